//! Bytes that must not outlive their use.

use zeroize::{Zeroize, ZeroizeOnDrop};

/// `N` secret bytes: zeroed when dropped, never printed, never copied; read only by name.
pub struct Secret<const N: usize>([u8; N]);

impl<const N: usize> Secret<N> {
    /// Takes over the bytes. The caller must zero any copy it keeps.
    pub fn new(bytes: [u8; N]) -> Secret<N> {
        Secret(bytes)
    }

    /// The bytes, to be passed to where they are needed.
    pub fn expose(&self) -> &[u8; N] {
        &self.0
    }
}

impl<const N: usize> Drop for Secret<N> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl<const N: usize> ZeroizeOnDrop for Secret<N> {}
