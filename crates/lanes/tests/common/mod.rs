//! What several tests and the benchmark share: keys, and the little DER they are kept in.
#![allow(dead_code, missing_docs)]

use penstock_lanes::rsa::{RsaKey, RsaParts};

/// A private key as RFC 8017 lays it out (RSAPrivateKey, DER).
pub struct TestKey {
    pub der: Vec<u8>,
    parts: Vec<Vec<u8>>,
}

impl TestKey {
    pub fn load(name: &str) -> TestKey {
        let path = format!("{}/tests/keys/{name}.der", env!("CARGO_MANIFEST_DIR"));
        let der = std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
        let parts = integers(&der);
        assert_eq!(parts.len(), 9);
        TestKey { der, parts }
    }

    /// n, e, d, p, q, dp, dq, qinv.
    pub fn part(&self, index: usize) -> &[u8] {
        &self.parts[index + 1]
    }

    pub fn parts(&self) -> RsaParts<'_> {
        RsaParts {
            n: self.part(0),
            e: self.part(1),
            p: self.part(3),
            q: self.part(4),
            dp: self.part(5),
            dq: self.part(6),
            qinv: self.part(7),
        }
    }

    pub fn prepare(&self) -> RsaKey {
        RsaKey::new(&self.parts()).unwrap()
    }
}

/// The integers of a DER SEQUENCE OF INTEGER, without leading zeros.
pub fn integers(der: &[u8]) -> Vec<Vec<u8>> {
    fn element(der: &[u8]) -> (&[u8], &[u8]) {
        let (length, at) = match der[1] {
            short @ 0..=0x7f => (usize::from(short), 2),
            long => {
                let n = usize::from(long & 0x7f);
                (der[2..2 + n].iter().fold(0, |l, b| l << 8 | usize::from(*b)), 2 + n)
            }
        };
        (&der[at..at + length], &der[at + length..])
    }
    let (mut body, _) = element(der);
    let mut all = Vec::new();
    while !body.is_empty() {
        let (value, rest) = element(body);
        let start = value.iter().position(|b| *b != 0).unwrap_or(value.len());
        all.push(value[start..].to_vec());
        body = rest;
    }
    all
}
