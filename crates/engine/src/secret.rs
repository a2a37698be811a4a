//! Bytes that must not outlive their use.

use zeroize::Zeroize;

/// A secret: wiped on drop, neither shown nor copied. Its bytes leave through [`Secret::expose`] alone.
#[derive(Default)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// The bytes, for the computation or the key schedule they are meant for.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Secret {
    /// Takes the allocation over; there is no second copy.
    fn from(bytes: Vec<u8>) -> Self {
        Secret(bytes)
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}
