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
                $crate::parse_hex(text).map(Self).ok_or($crate::ProtocolError::Hex($what))
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
