//! Bytes that must not outlive their use.

use zeroize::Zeroize;

/// A secret: zeroed on drop, without `Debug` and `Clone`. Its bytes leave only through [`Secret::expose`].
#[derive(Default)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// The bytes, for the computation or the key schedule they are meant for.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Secret {
    /// Takes over the allocation, so that no second copy remains.
    fn from(bytes: Vec<u8>) -> Self {
        Secret(bytes)
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}
