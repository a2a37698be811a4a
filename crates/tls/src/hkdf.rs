//! TLS 1.3's key derivation (RFC 5869; RFC 8446, 7.1) over keys that are prepared once.
//!
//! HMAC hashes its key, padded to a block, twice before it sees any data. rustls' own provider does so again for every output,
//! and extracts a secret again for each of them: a handshake derives nineteen outputs from ten keys. Here each key is hashed
//! once, which saves a third of a handshake's hashing.

use aws_lc_rs::hmac;
use rustls::{
    SupportedCipherSuite, Tls13CipherSuite,
    crypto::{
        hmac::Tag,
        tls13::{Hkdf, HkdfExpander, OkmBlock, OutputLengthError},
    },
};

/// The same suite, with its key derivation done here.
pub(crate) fn over_prepared_keys(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    let SupportedCipherSuite::Tls13(suite) = suite else { return suite };
    let hkdf_provider: &'static dyn Hkdf = match suite.common.hash_provider.output_len() {
        32 => &Prepared(hmac::HMAC_SHA256),
        48 => &Prepared(hmac::HMAC_SHA384),
        _ => return SupportedCipherSuite::Tls13(suite),
    };
    // Three of them in the life of a process, and rustls wants them for ever.
    SupportedCipherSuite::Tls13(Box::leak(Box::new(Tls13CipherSuite {
        common: rustls::crypto::CipherSuiteCommon { ..suite.common },
        hkdf_provider,
        aead_alg: suite.aead_alg,
        quic: suite.quic,
    })))
}

struct Prepared(hmac::Algorithm);

/// A pseudorandom key.
struct Expander(hmac::Key);

/// A salt that is not given, and keying material that is not there, are as many zeros as the hash is long.
const ZEROS: [u8; OkmBlock::MAX_LEN] = [0; OkmBlock::MAX_LEN];

impl Prepared {
    fn len(&self) -> usize {
        self.0.digest_algorithm().output_len()
    }
}

impl Hkdf for Prepared {
    fn extract_from_zero_ikm(&self, salt: Option<&[u8]>) -> Box<dyn HkdfExpander> {
        self.extract_from_secret(salt, &ZEROS[..self.len()])
    }

    fn extract_from_secret(&self, salt: Option<&[u8]>, secret: &[u8]) -> Box<dyn HkdfExpander> {
        let salt = hmac::Key::new(self.0, salt.unwrap_or(&ZEROS[..self.len()]));
        Box::new(Expander(hmac::Key::new(self.0, hmac::sign(&salt, secret).as_ref())))
    }

    fn expander_for_okm(&self, okm: &OkmBlock) -> Box<dyn HkdfExpander> {
        Box::new(Expander(hmac::Key::new(self.0, okm.as_ref())))
    }

    fn hmac_sign(&self, key: &OkmBlock, message: &[u8]) -> Tag {
        Tag::new(hmac::sign(&hmac::Key::new(self.0, key.as_ref()), message).as_ref())
    }
}

impl HkdfExpander for Expander {
    fn expand_slice(&self, info: &[&[u8]], output: &mut [u8]) -> Result<(), OutputLengthError> {
        let len = self.hash_len();
        if output.len() > 255 * len {
            return Err(OutputLengthError);
        }
        let info = info.concat();
        let mut before: Option<hmac::Tag> = None;
        for (number, chunk) in (1u8..=255).zip(output.chunks_mut(len)) {
            let mut block = hmac::Context::with_key(&self.0);
            before.iter().for_each(|tag| block.update(tag.as_ref()));
            block.update(&info);
            block.update(&[number]);
            let tag = block.sign();
            chunk.copy_from_slice(&tag.as_ref()[..chunk.len()]);
            before = Some(tag);
        }
        Ok(())
    }

    fn expand_block(&self, info: &[&[u8]]) -> OkmBlock {
        let mut block = zeroize::Zeroizing::new(ZEROS);
        let block = &mut block[..self.hash_len()];
        self.expand_slice(info, block).expect("one block is not too long");
        OkmBlock::new(block)
    }

    fn hash_len(&self) -> usize {
        self.0.algorithm().digest_algorithm().output_len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::crypto::aws_lc_rs::cipher_suite as suite;

    fn theirs_and_ours(which: SupportedCipherSuite) -> [&'static dyn Hkdf; 2] {
        [which, over_prepared_keys(which)].map(|suite| match suite {
            SupportedCipherSuite::Tls13(suite) => suite.hkdf_provider,
            SupportedCipherSuite::Tls12(_) => panic!("of TLS 1.3"),
        })
    }

    #[test]
    fn every_output_is_that_of_the_provider_replaced() {
        for which in [suite::TLS13_AES_128_GCM_SHA256, suite::TLS13_AES_256_GCM_SHA384] {
            let both = theirs_and_ours(which);
            for salt in [None, Some(&b"salt"[..]), Some(&[7; 200][..])] {
                for secret in [&b"secret"[..], &[1; 64], &[2; 1000]] {
                    for info in [&[][..], &[&b"one"[..], b"", b"two"], &[&[3; 300]]] {
                        for len in [1, 12, 16, 32, 48, 64, 255, 8160] {
                            let [a, b] = both.map(|hkdf| {
                                let mut out = vec![0; len];
                                hkdf.extract_from_secret(salt, secret).expand_slice(info, &mut out).unwrap();
                                out
                            });
                            assert_eq!(a, b);
                        }
                        let [a, b] = both.map(|hkdf| hkdf.extract_from_zero_ikm(salt).expand_block(info));
                        assert_eq!(a.as_ref(), b.as_ref());
                        let [c, d] = both.map(|hkdf| hkdf.expander_for_okm(&a).expand_block(info));
                        assert_eq!(c.as_ref(), d.as_ref());
                    }
                    let okm = both[0].extract_from_zero_ikm(salt).expand_block(&[]);
                    let [a, b] = both.map(|hkdf| hkdf.hmac_sign(&okm, secret));
                    assert_eq!(a.as_ref(), b.as_ref());
                }
            }
        }
    }

    #[test]
    fn as_rfc_5869_has_it() {
        let hex = |text: &str| -> Vec<u8> {
            (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
        };
        // Appendix A.1 and A.3.
        let a1 = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865";
        let a3 = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8";
        for (salt, info, expected) in [
            (Some(hex("000102030405060708090a0b0c")), hex("f0f1f2f3f4f5f6f7f8f9"), a1),
            (None, vec![], a3),
        ] {
            let mut out = [0; 42];
            let expander = Prepared(hmac::HMAC_SHA256).extract_from_secret(salt.as_deref(), &[0x0b; 22]);
            expander.expand_slice(&[&info], &mut out).unwrap();
            assert_eq!(out[..], hex(expected));
            assert!(expander.expand_slice(&[], &mut [0; 255 * 32 + 1]).is_err());
        }
    }
}
