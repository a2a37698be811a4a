//! Intel's crypto_mb, where the dynamic linker finds it.
//!
//! It does less: a result of RSA is not checked, and ECDSA signs with the nonce it is handed. One call computes eight
//! lanes whatever the fill.

use super::operations::common::TestKey;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::hint::black_box;
use std::ptr::null_mut;
use std::sync::OnceLock;

/// Eight operations.
pub type Call = Box<dyn Fn()>;
type Eight = [*const u8; 8];

const NAMES: [&CStr; 5] =
    [c"libcrypto_mb.so", c"libcrypto_mb.so.13", c"libcrypto_mb.so.12", c"libcrypto_mb.so.11", c"libcrypto_mb.so.10"];

fn library() -> Option<(&'static CStr, *mut c_void)> {
    static LIBRARY: OnceLock<Option<(&CStr, usize)>> = OnceLock::new();
    let opened = LIBRARY.get_or_init(|| {
        NAMES.into_iter().find_map(|name| {
            // SAFETY: a C string; the library's constructors are the linker's and Intel's business.
            let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
            (!handle.is_null()).then_some((name, handle as usize))
        })
    });
    opened.map(|(name, handle)| (name, handle as *mut c_void))
}

/// A sentence for the head of the report.
pub fn description() -> String {
    match library() {
        Some((name, _)) => format!("{} (RSA unchecked, ECDSA with a given nonce)", name.to_string_lossy()),
        None => "not installed".to_owned(),
    }
}

/// The function of that name.
fn symbol(name: &CStr) -> Option<*mut c_void> {
    let (_, handle) = library()?;
    // SAFETY: an open library and a C string.
    let symbol = unsafe { libc::dlsym(handle, name.as_ptr().cast::<c_char>()) };
    (!symbol.is_null()).then_some(symbol)
}

/// Declares what a symbol is, as the library's headers do.
macro_rules! function {
    ($name:expr, fn($($argument:ty),* $(,)?) -> $result:ty) => {{
        let symbol = symbol($name)?;
        // SAFETY: the type is that of the header crypto_mb/*.h (2.3 to 13).
        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> $result>(symbol) }
    }};
}

fn eight<T>(rows: &[Vec<T>; 8]) -> Eight {
    rows.each_ref().map(|row| row.as_ptr().cast())
}

/// Rows that the library writes.
fn output(bytes: usize) -> [Vec<Cell<u8>>; 8] {
    core::array::from_fn(|_| vec![Cell::new(0); bytes])
}

/// Runs a call once, and hands it over if it answers that all is well.
fn tried(call: impl Fn() -> u32 + 'static) -> Option<Call> {
    let status = call();
    if status != 0 {
        eprintln!("crypto_mb answers {status:#x}");
        return None;
    }
    Some(Box::new(move || {
        black_box(call());
    }))
}

/// A number as little-endian words.
fn words(big_endian: &[u8]) -> Vec<u64> {
    big_endian.rchunks(8).map(|chunk| chunk.iter().fold(0, |word, byte| word << 8 | u64::from(*byte))).collect()
}

/// The private operation by the Chinese remainder theorem.
pub fn rsa(key: &TestKey) -> Option<Call> {
    let bits = 8 * key.part(0).len() as c_int;
    let method = function!(c"mbx_RSA_private_crt_Method", fn(c_int) -> *const c_void);
    let private = function!(
        c"mbx_rsa_private_crt_mb8",
        fn(
            *const Eight,
            *const Eight,
            *const Eight,
            *const Eight,
            *const Eight,
            *const Eight,
            *const Eight,
            c_int,
            *const c_void,
            *mut u8,
        ) -> u32
    );
    // SAFETY: it looks a table up.
    let method = unsafe { method(bits) };
    let input: [Vec<u8>; 8] = core::array::from_fn(|_| vec![0x5a; key.part(0).len()]);
    let output = output(key.part(0).len());
    let half = key.part(0).len() / 16;
    let part = |index: usize| -> [Vec<u64>; 8] {
        let mut words = words(key.part(index));
        words.resize(half, 0);
        core::array::from_fn(|_| words.clone())
    };
    let parts = [3, 4, 5, 6, 7].map(part);
    tried(move || {
        let (from, to) = (eight(&input), eight(&output));
        let [p, q, dp, dq, qinv] = parts.each_ref().map(eight);
        // SAFETY: eight rows each, of the lengths the headers ask for; output is only this call's.
        unsafe { private(&from, &to, &p, &q, &dp, &dq, &qinv, bits, method, null_mut()) }
    })
}

fn rows(seed: u8) -> [Vec<u8>; 8] {
    core::array::from_fn(|i| vec![seed + i as u8; 32])
}

/// A shared secret.
pub fn x25519_derive() -> Option<Call> {
    let derive = function!(c"mbx_x25519_mb8", fn(*const Eight, *const Eight, *const Eight) -> u32);
    let (out, scalars, peers) = (output(32), rows(1), rows(101));
    // SAFETY: rows of 32 bytes; output is only this call's.
    tried(move || unsafe { derive(&eight(&out), &eight(&scalars), &eight(&peers)) })
}

/// A public key.
pub fn x25519_keygen() -> Option<Call> {
    let keygen = function!(c"mbx_x25519_public_key_mb8", fn(*const Eight, *const Eight) -> u32);
    let (out, scalars) = (output(32), rows(1));
    // SAFETY: rows of 32 bytes; output is only this call's.
    tried(move || unsafe { keygen(&eight(&out), &eight(&scalars)) })
}

/// One of the NIST curves.
pub struct Nist {
    /// `nistp256` or `nistp384`.
    pub curve: &'static str,
    /// Bytes of a scalar.
    pub bytes: usize,
}

impl Nist {
    fn name(&self, operation: &str) -> std::ffi::CString {
        std::ffi::CString::new(format!("mbx_{}_{operation}_mb8", self.curve)).expect("a name without zeros")
    }

    fn rows(&self, seed: u64) -> [Vec<u64>; 8] {
        core::array::from_fn(|i| vec![(seed + i as u64) * 0x0101_0101_0101_0101; self.bytes / 8])
    }

    /// A shared secret with `peer`, an uncompressed point.
    pub fn derive(&self, peer: &[u8]) -> Option<Call> {
        let derive = function!(
            &self.name("ecdh"),
            fn(*const Eight, *const Eight, *const Eight, *const Eight, *const Eight, *mut u8) -> u32
        );
        let (out, scalars) = (output(self.bytes), self.rows(1));
        let (x, y) = peer[1..].split_at(self.bytes);
        let [x, y] = [x, y].map(|coordinate| core::array::from_fn(|_| words(coordinate)));
        let none = std::ptr::null();
        // SAFETY: rows of a coordinate's length; no z stands for affine points; output is only this call's.
        tried(move || unsafe { derive(&eight(&out), &eight(&scalars), &eight(&x), &eight(&y), none, null_mut()) })
    }

    /// A public key.
    pub fn keygen(&self) -> Option<Call> {
        let keygen = function!(
            &self.name("ecpublic_key"),
            fn(*const Eight, *const Eight, *const Eight, *const Eight, *mut u8) -> u32
        );
        let (x, y, scalars) = (output(self.bytes), output(self.bytes), self.rows(1));
        let none = std::ptr::null();
        // SAFETY: rows of a coordinate's length; no z asks for affine points; output is only this call's.
        tried(move || unsafe { keygen(&eight(&x), &eight(&y), none, &eight(&scalars), null_mut()) })
    }

    /// A signature, its nonce given.
    pub fn sign(&self) -> Option<Call> {
        let sign = function!(
            &self.name("ecdsa_sign"),
            fn(*const Eight, *const Eight, *const Eight, *const Eight, *const Eight, *mut u8) -> u32
        );
        let (r, s, digests) = (output(self.bytes), output(self.bytes), self.rows(9));
        let (nonces, keys) = (self.rows(17), self.rows(1));
        // SAFETY: rows of a scalar's length; output is only this call's.
        tried(move || unsafe {
            sign(&eight(&r), &eight(&s), &eight(&digests), &eight(&nonces), &eight(&keys), null_mut())
        })
    }
}
