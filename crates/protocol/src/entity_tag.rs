use std::fmt;

use sha2::{Digest, Sha256};

/// The name of a signed document in `etag` and `if-none-match`: the first 16 bytes of SHA-256 of
/// its body, as hex digits in quotes.
///
/// # Privacy
/// Whoever asks computes it from bytes that are the same for everyone, and never repeats what a
/// server called them: such a name could be made for one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntityTag([u8; 16]);

impl EntityTag {
    /// The name of a body.
    pub fn of(body: &[u8]) -> Self {
        let digest = Sha256::digest(body);
        Self(std::array::from_fn(|index| digest[index]))
    }
}

impl fmt::Display for EntityTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_half_a_hash_in_quotes() {
        // SHA-256 of "abc", FIPS 180-2.
        let tag = EntityTag::of(b"abc").to_string();
        assert_eq!(tag, "\"ba7816bf8f01cfea414140de5dae2223\"");
    }
}
