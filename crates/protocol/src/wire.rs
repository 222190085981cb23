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

fn parse_signed<E: Error>(text: &str) -> Result<i64, E> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let canonical = canonical_integer(digits).is_some() && text != "-0";
    canonical.then(|| text.parse().ok()).flatten().ok_or_else(|| {
        E::custom("integer must be a decimal string without plus or leading zeros, from -2^63")
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

/// For a field that may be left out, but is not `null` when it is there.
pub(crate) fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// The same for an integer as a string.
pub(crate) mod optional_integer {
    use super::{Deserializer, Serializer, integer};

    #[allow(clippy::ref_option)]
    pub fn serialize<S: Serializer>(value: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => integer::serialize(value, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<u64>, D::Error> {
        integer::deserialize(deserializer).map(Some)
    }
}

/// For a field that must be there and may be `null`.
pub(crate) mod nullable_integer {
    use super::{Deserialize, Deserializer, parse};

    pub use super::optional_integer::serialize;

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<u64>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| parse(&text)).transpose()
    }
}

/// Integers that may be negative.
pub(crate) mod integers {
    use super::{Deserialize, Deserializer, Serializer, parse_signed};

    pub fn serialize<S: Serializer>(values: &[i64], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.iter().map(i64::to_string))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<i64>, D::Error> {
        Vec::<String>::deserialize(deserializer)?.iter().map(|text| parse_signed(text)).collect()
    }
}
