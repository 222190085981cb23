//! Names of 32 bytes, written as 64 lower-case hex digits.

/// Implements the text form, serde included, for a newtype of 32 bytes.
macro_rules! hex32 {
    ($name:ident, $what:literal) => {
        impl $name {
            /// The 32 bytes.
            pub const fn bytes(&self) -> &[u8; 32] {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&hex::encode(self.0))
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::ProtocolError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                $crate::hex32::parse(text, $what).map(Self)
            }
        }

        impl TryFrom<String> for $name {
            type Error = $crate::ProtocolError;
            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.to_string()
            }
        }
    };
}

pub(crate) use hex32;

use crate::ProtocolError;

pub(crate) fn parse(text: &str, what: &'static str) -> Result<[u8; 32], ProtocolError> {
    let lower = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let mut bytes = [0; 32];
    match hex::decode_to_slice(text, &mut bytes) {
        Ok(()) if lower => Ok(bytes),
        _ => Err(ProtocolError::Hex(what)),
    }
}
