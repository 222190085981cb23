//! A generator that plays back given bytes.

use std::convert::Infallible;

use rand_core::TryRng;

/// Gives its bytes in order, and panics at the end of them.
pub struct Tape {
    bytes: Vec<u8>,
    used: usize,
}

impl Tape {
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, used: 0 }
    }

    pub fn used(&self) -> usize {
        self.used
    }
}

impl TryRng for Tape {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let mut word = [0; 4];
        self.try_fill_bytes(&mut word)?;
        Ok(u32::from_be_bytes(word))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut word = [0; 8];
        self.try_fill_bytes(&mut word)?;
        Ok(u64::from_be_bytes(word))
    }

    fn try_fill_bytes(&mut self, target: &mut [u8]) -> Result<(), Infallible> {
        target.copy_from_slice(&self.bytes[self.used..self.used + target.len()]);
        self.used += target.len();
        Ok(())
    }
}
