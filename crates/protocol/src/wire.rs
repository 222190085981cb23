//! How integers that may need 64 bits are written in JSON: as decimal strings.

use serde::{Deserialize, Deserializer, Serializer, de::Error};

/// The integer that `digits` is the one canonical way of writing.
pub(crate) fn canonical_integer(digits: &str) -> Option<u64> {
    let canonical = !digits.is_empty()
        && digits.bytes().all(|b| b.is_ascii_digit())
        && (digits == "0" || !digits.starts_with('0'));
    canonical.then(|| digits.parse().ok()).flatten()
}

fn parse<E: Error>(text: &str) -> Result<u64, E> {
    canonical_integer(text).ok_or_else(|| {
        E::custom("integer must be a decimal string without sign or leading zeros, below 2^64")
    })
}

pub(crate) mod integer {
    use super::{Deserialize, Deserializer, Serializer, parse};

    #[allow(clippy::trivially_copy_pass_by_ref)]
    pub fn serialize<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        parse(&String::deserialize(deserializer)?)
    }
}

pub(crate) mod integers {
    use super::{Deserialize, Deserializer, Serializer, parse};

    pub fn serialize<S: Serializer>(values: &[u64], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.iter().map(u64::to_string))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
        Vec::<String>::deserialize(deserializer)?.iter().map(|text| parse(text)).collect()
    }
}
