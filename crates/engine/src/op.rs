//! One piece of public-key work. It owns its memory: it may outlive whoever asked for it.

use crate::{Scheme, Secret, SigningKey};
use aws_lc_rs::{agreement, kem};
use std::{fmt, sync::Arc};

/// A curve that keys are agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Curve {
    X25519,
    P256,
    P384,
}

impl Curve {
    /// The class of making key pairs on it.
    pub(crate) const fn class_of_pairs(self) -> Class {
        match self {
            Curve::X25519 => Class::X25519KeyGen,
            Curve::P256 => Class::P256KeyGen,
            Curve::P384 => Class::P384KeyGen,
        }
    }

    /// Length of a public key: raw for X25519, an uncompressed point else.
    pub const fn public_len(self) -> usize {
        match self {
            Curve::X25519 => 32,
            Curve::P256 => 65,
            Curve::P384 => 97,
        }
    }

    /// Length of the shared secret, which is that of a private key as well.
    pub const fn secret_len(self) -> usize {
        match self {
            Curve::X25519 | Curve::P256 => 32,
            Curve::P384 => 48,
        }
    }
}

/// What is to be computed.
pub enum Op {
    /// A signature of `message`, which is hashed as part of the operation.
    Sign {
        /// With this key.
        key: Arc<SigningKey>,
        /// In this scheme.
        scheme: Scheme,
        /// The bytes to be signed.
        message: Vec<u8>,
    },
    /// A fresh key pair.
    KeyGen {
        /// On this curve.
        curve: Curve,
    },
    /// The secret shared with a peer, by a key pair made before.
    Derive {
        /// Our half.
        private: Private,
        /// The peer's public key.
        peer: Vec<u8>,
    },
    /// A fresh key pair and the secret it shares with a peer, at once: what a TLS 1.3 server does.
    Agree {
        /// On this curve.
        curve: Curve,
        /// The peer's public key.
        peer: Vec<u8>,
    },
    /// A fresh ML-KEM-768 key pair.
    KemKeyGen,
    /// A secret, and its ciphertext under a peer's ML-KEM-768 key.
    KemEncapsulate {
        /// The peer's encapsulation key.
        peer: Vec<u8>,
    },
    /// The secret within a ciphertext.
    KemDecapsulate {
        /// Our half.
        private: KemPrivate,
        /// What the peer sent.
        ciphertext: Vec<u8>,
    },
}

/// The private half of a key pair, used once.
pub enum Private {
    /// Of the native library.
    Native(Curve, agreement::PrivateKey),
    /// The bare number, as a batched engine makes it.
    Scalar(Curve, Secret),
}

impl Private {
    /// The curve it is on.
    pub fn curve(&self) -> Curve {
        match self {
            Private::Native(curve, _) | Private::Scalar(curve, _) => *curve,
        }
    }
}

/// The private half of an ML-KEM-768 key pair, used once.
pub struct KemPrivate(pub(crate) kem::DecapsulationKey);

/// What came out.
pub enum Answer {
    /// Of [`Op::Sign`].
    Signature(Vec<u8>),
    /// Of [`Op::KeyGen`].
    Pair {
        /// To be sent to the peer.
        public: Vec<u8>,
        /// To be kept for [`Op::Derive`].
        private: Private,
    },
    /// Of [`Op::Derive`] and [`Op::KemDecapsulate`].
    Shared(Secret),
    /// Of [`Op::Agree`] and [`Op::KemEncapsulate`]: our public key or ciphertext, and the secret.
    Agreed {
        /// To be sent to the peer.
        public: Vec<u8>,
        /// Shared with it.
        secret: Secret,
    },
    /// Of [`Op::KemKeyGen`].
    KemPair {
        /// To be sent to the peer.
        public: Vec<u8>,
        /// To be kept for [`Op::KemDecapsulate`].
        private: KemPrivate,
    },
}

impl fmt::Debug for Answer {
    /// Which kind, never what it holds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Answer::Signature(_) => "Signature",
            Answer::Pair { .. } => "Pair",
            Answer::Shared(_) => "Shared",
            Answer::Agreed { .. } => "Agreed",
            Answer::KemPair { .. } => "KemPair",
        })
    }
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The peer's public key or ciphertext is not valid: its fault, and final.
    PeerKey,
    /// Ours: the library refused.
    Internal,
    /// The engine found its own answer wrong.
    Wrong,
    /// The engine's device did not do it.
    Device,
    /// The one who asked has gone.
    Cancelled,
}

/// Operations that can share a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Class {
    Rsa2048,
    Rsa3072,
    Rsa4096,
    RsaOther,
    EcdsaP256,
    EcdsaP384,
    SignOther,
    X25519KeyGen,
    X25519Derive,
    X25519Agree,
    P256KeyGen,
    P256Derive,
    P256Agree,
    P384KeyGen,
    P384Derive,
    P384Agree,
    MlKemKeyGen,
    MlKemEncapsulate,
    MlKemDecapsulate,
}

impl Class {
    /// All of them, in the order of their numbers.
    pub const ALL: [Class; 19] = {
        use Class::*;
        [
            Rsa2048,
            Rsa3072,
            Rsa4096,
            RsaOther,
            EcdsaP256,
            EcdsaP384,
            SignOther,
            X25519KeyGen,
            X25519Derive,
            X25519Agree,
            P256KeyGen,
            P256Derive,
            P256Agree,
            P384KeyGen,
            P384Derive,
            P384Agree,
            MlKemKeyGen,
            MlKemEncapsulate,
            MlKemDecapsulate,
        ]
    };
    /// How many there are.
    pub const COUNT: usize = Class::ALL.len();

    /// Its name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Rsa2048 => "rsa2048",
            Class::Rsa3072 => "rsa3072",
            Class::Rsa4096 => "rsa4096",
            Class::RsaOther => "rsa-other",
            Class::EcdsaP256 => "ecdsa-p256",
            Class::EcdsaP384 => "ecdsa-p384",
            Class::SignOther => "sign-other",
            Class::X25519KeyGen => "x25519-keygen",
            Class::X25519Derive => "x25519-derive",
            Class::X25519Agree => "x25519-agree",
            Class::P256KeyGen => "p256-keygen",
            Class::P256Derive => "p256-derive",
            Class::P256Agree => "p256-agree",
            Class::P384KeyGen => "p384-keygen",
            Class::P384Derive => "p384-derive",
            Class::P384Agree => "p384-agree",
            Class::MlKemKeyGen => "mlkem768-keygen",
            Class::MlKemEncapsulate => "mlkem768-encapsulate",
            Class::MlKemDecapsulate => "mlkem768-decapsulate",
        }
    }
}

impl Op {
    /// The class it can be batched in.
    pub fn class(&self) -> Class {
        match self {
            Op::Sign { key, .. } => key.class(),
            Op::KeyGen { curve: Curve::X25519 } => Class::X25519KeyGen,
            Op::KeyGen { curve: Curve::P256 } => Class::P256KeyGen,
            Op::KeyGen { curve: Curve::P384 } => Class::P384KeyGen,
            Op::Derive { private, .. } => match private.curve() {
                Curve::X25519 => Class::X25519Derive,
                Curve::P256 => Class::P256Derive,
                Curve::P384 => Class::P384Derive,
            },
            Op::Agree { curve: Curve::X25519, .. } => Class::X25519Agree,
            Op::Agree { curve: Curve::P256, .. } => Class::P256Agree,
            Op::Agree { curve: Curve::P384, .. } => Class::P384Agree,
            Op::KemKeyGen => Class::MlKemKeyGen,
            Op::KemEncapsulate { .. } => Class::MlKemEncapsulate,
            Op::KemDecapsulate { .. } => Class::MlKemDecapsulate,
        }
    }

    /// Whether `answer` may be let out as an answer to this: a signature verifies, everything else has the right shape and
    /// a secret is not all zero (the mark of a low-order point, RFC 7748 section 6.1).
    pub(crate) fn accepts(&self, answer: &Answer) -> bool {
        const KEM_PUBLIC: usize = 1184;
        const KEM_CIPHERTEXT: usize = 1088;
        const KEM_SECRET: usize = 32;
        let secret_fits = |secret: &Secret, len: usize| {
            secret.expose().len() == len && secret.expose().iter().fold(0, |any, byte| any | byte) != 0
        };
        match (self, answer) {
            (Op::Sign { key, scheme, message }, Answer::Signature(signature)) => {
                key.verify(*scheme, message, signature)
            }
            (Op::KeyGen { curve }, Answer::Pair { public, private }) => {
                public.len() == curve.public_len() && private.curve() == *curve
            }
            (Op::Derive { private, .. }, Answer::Shared(secret)) => secret_fits(secret, private.curve().secret_len()),
            (Op::Agree { curve, .. }, Answer::Agreed { public, secret }) => {
                public.len() == curve.public_len() && secret_fits(secret, curve.secret_len())
            }
            (Op::KemKeyGen, Answer::KemPair { public, .. }) => public.len() == KEM_PUBLIC,
            (Op::KemEncapsulate { .. }, Answer::Agreed { public, secret }) => {
                public.len() == KEM_CIPHERTEXT && secret_fits(secret, KEM_SECRET)
            }
            (Op::KemDecapsulate { .. }, Answer::Shared(secret)) => secret_fits(secret, KEM_SECRET),
            _ => false,
        }
    }
}
