//! What the device would compute, on bare numbers, by aws-lc.

use aws_lc_sys as lc;
use std::ptr;

struct Number(*mut lc::BIGNUM);

impl Number {
    fn new() -> Number {
        // SAFETY: an allocation, which aborts where there is no memory left.
        Number(unsafe { lc::BN_new() })
    }

    fn from(bytes: &[u8]) -> Number {
        // SAFETY: reads no more bytes than the length it is given.
        Number(unsafe { lc::BN_bin2bn(bytes.as_ptr(), bytes.len(), ptr::null_mut()) })
    }

    fn bytes(&self, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        // SAFETY: writes no more bytes than the length it is given.
        (unsafe { lc::BN_bn2bin_padded(bytes.as_mut_ptr(), len, self.0) } == 1).then_some(bytes)
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        // SAFETY: ours, and last used here.
        unsafe { lc::BN_clear_free(self.0) };
    }
}

struct Context(*mut lc::BN_CTX);

impl Context {
    fn new() -> Context {
        // SAFETY: an allocation.
        Context(unsafe { lc::BN_CTX_new() })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: ours, and last used here.
        unsafe { lc::BN_CTX_free(self.0) };
    }
}

/// The RSA private operation by the Chinese remainder theorem: p, q, dp, dq, 1/q mod p.
pub fn rsa([p, q, dp, dq, qinv]: [&[u8]; 5], input: &[u8]) -> Option<Vec<u8>> {
    let [p, q, dp, dq, qinv, c] = [p, q, dp, dq, qinv, input].map(Number::from);
    let (context, [m1, m2, h, m]) = (Context::new(), [(); 4].map(|()| Number::new()));
    // SAFETY: all are numbers of ours, distinct where they are written.
    let done = unsafe {
        lc::BN_nnmod(h.0, c.0, p.0, context.0) == 1
            && lc::BN_mod_exp(m1.0, h.0, dp.0, p.0, context.0) == 1
            && lc::BN_nnmod(h.0, c.0, q.0, context.0) == 1
            && lc::BN_mod_exp(m2.0, h.0, dq.0, q.0, context.0) == 1
            && lc::BN_mod_sub(h.0, m1.0, m2.0, p.0, context.0) == 1
            && lc::BN_mod_mul(h.0, h.0, qinv.0, p.0, context.0) == 1
            && lc::BN_mul(m.0, h.0, q.0, context.0) == 1
            && lc::BN_add(m.0, m.0, m2.0) == 1
    };
    if done { m.bytes(input.len()) } else { None }
}

/// A curve of aws-lc's, by the length of its prime.
fn group(len: usize) -> Option<*const lc::EC_GROUP> {
    // SAFETY: static tables.
    match len {
        32 => Some(unsafe { lc::EC_group_p256() }),
        48 => Some(unsafe { lc::EC_group_p384() }),
        _ => None,
    }
}

/// k times the point (x, y).
pub fn multiply(k: &[u8], x: &[u8], y: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (len, group) = (x.len(), group(x.len())?);
    let (context, [k, x, y]) = (Context::new(), [k, x, y].map(Number::from));
    // SAFETY: a group that is never freed, numbers of ours, and points that are freed below.
    unsafe {
        let (point, product) = (lc::EC_POINT_new(group), lc::EC_POINT_new(group));
        let done = lc::EC_POINT_set_affine_coordinates_GFp(group, point, x.0, y.0, context.0) == 1
            && lc::EC_POINT_mul(group, product, ptr::null(), point, k.0, context.0) == 1
            && lc::EC_POINT_get_affine_coordinates_GFp(group, product, x.0, y.0, context.0) == 1;
        lc::EC_POINT_free(point);
        lc::EC_POINT_free(product);
        if done { Some((x.bytes(len)?, y.bytes(len)?)) } else { None }
    }
}

/// An ECDSA signature (FIPS 186-5, 6.4.1), with the nonce it is given: r, s.
pub fn ecdsa(base: (&[u8], &[u8]), n: &[u8], k: &[u8], digest: &[u8], d: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let len = n.len();
    let (x, _) = multiply(k, base.0, base.1)?;
    let (context, [n, k, m, d, x]) = (Context::new(), [n, k, digest, d, &x].map(Number::from));
    let [r, s] = [(); 2].map(|()| Number::new());
    // SAFETY: numbers of ours, distinct where they are written, but for those that may be the same.
    let done = unsafe {
        lc::BN_nnmod(r.0, x.0, n.0, context.0) == 1
            && lc::BN_mod_mul(s.0, r.0, d.0, n.0, context.0) == 1
            && lc::BN_mod_add(s.0, s.0, m.0, n.0, context.0) == 1
            && !lc::BN_mod_inverse(k.0, k.0, n.0, context.0).is_null()
            && lc::BN_mod_mul(s.0, s.0, k.0, n.0, context.0) == 1
    };
    if done { Some((r.bytes(len)?, s.bytes(len)?)) } else { None }
}

/// X25519, of big-endian numbers.
pub fn x25519(k: &[u8], x: Option<&[u8]>) -> Option<Vec<u8>> {
    let little = |bytes: &[u8]| -> Option<[u8; 32]> {
        let mut bytes: [u8; 32] = bytes.try_into().ok()?;
        bytes.reverse();
        Some(bytes)
    };
    let (k, mut out) = (little(k)?, [0; 32]);
    // SAFETY: arrays of the length they must have. A result of nothing is an answer all the same: a device gives it.
    unsafe {
        match x {
            Some(x) => _ = lc::X25519(out.as_mut_ptr(), k.as_ptr(), little(x)?.as_ptr()),
            None => lc::X25519_public_from_private(out.as_mut_ptr(), k.as_ptr()),
        }
    }
    out.reverse();
    Some(out.to_vec())
}
