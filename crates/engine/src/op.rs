//! One piece of public-key work. It owns its memory: it may outlive whoever asked for it.

use crate::{Scheme, Secret, SigningKey};
use aws_lc_rs::{agreement, kem};
use std::{fmt, sync::Arc};

/// A curve for key agreement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Curve {
    X25519,
    P256,
    P384,
}

impl Curve {
    /// The class of generating key pairs on this curve.
    pub(crate) const fn class_of_pairs(self) -> Class {
        match self {
            Curve::X25519 => Class::X25519KeyGen,
            Curve::P256 => Class::P256KeyGen,
            Curve::P384 => Class::P384KeyGen,
        }
    }

    /// Length of a public key in bytes: raw for X25519, otherwise an uncompressed point.
    pub const fn public_len(self) -> usize {
        match self {
            Curve::X25519 => 32,
            Curve::P256 => 65,
            Curve::P384 => 97,
        }
    }

    /// Length in bytes of the shared secret and of a private key.
    pub const fn secret_len(self) -> usize {
        match self {
            Curve::X25519 | Curve::P256 => 32,
            Curve::P384 => 48,
        }
    }
}

/// An operation to be computed.
pub enum Op {
    /// A signature of `message`, which is hashed as part of the operation.
    Sign {
        /// The key to sign with.
        key: Arc<SigningKey>,
        /// The signature scheme.
        scheme: Scheme,
        /// The bytes to be signed.
        message: Vec<u8>,
    },
    /// A fresh key pair.
    KeyGen {
        /// The curve.
        curve: Curve,
    },
    /// The secret shared with a peer, from a key pair made before.
    Derive {
        /// Our private key.
        private: Private,
        /// The peer's public key.
        peer: Vec<u8>,
    },
    /// A fresh key pair and the secret it shares with a peer, in one step: what a TLS 1.3 server needs.
    Agree {
        /// The curve.
        curve: Curve,
        /// The peer's public key.
        peer: Vec<u8>,
    },
    /// A fresh ML-KEM-768 key pair.
    KemKeyGen,
    /// A fresh secret and its ciphertext under a peer's ML-KEM-768 key.
    KemEncapsulate {
        /// The peer's encapsulation key.
        peer: Vec<u8>,
    },
    /// The secret inside a ciphertext.
    KemDecapsulate {
        /// Our private key.
        private: KemPrivate,
        /// The ciphertext that the peer sent.
        ciphertext: Vec<u8>,
    },
}

/// The private half of a key pair, used once.
pub enum Private {
    /// A key of the native library.
    Native(Curve, agreement::PrivateKey),
    /// The bare scalar, as a batched engine makes it.
    Scalar(Curve, Secret),
}

impl Private {
    /// The key's curve.
    pub fn curve(&self) -> Curve {
        match self {
            Private::Native(curve, _) | Private::Scalar(curve, _) => *curve,
        }
    }
}

/// The private half of an ML-KEM-768 key pair, used once.
pub struct KemPrivate(pub(crate) kem::DecapsulationKey);

/// The result of an operation.
pub enum Answer {
    /// The signature of [`Op::Sign`].
    Signature(Vec<u8>),
    /// The key pair of [`Op::KeyGen`].
    Pair {
        /// Sent to the peer.
        public: Vec<u8>,
        /// Kept for [`Op::Derive`].
        private: Private,
    },
    /// The shared secret of [`Op::Derive`] and [`Op::KemDecapsulate`].
    Shared(Secret),
    /// The result of [`Op::Agree`] and [`Op::KemEncapsulate`]: our public key or ciphertext, and the secret.
    Agreed {
        /// Sent to the peer.
        public: Vec<u8>,
        /// The secret shared with the peer.
        secret: Secret,
    },
    /// The key pair of [`Op::KemKeyGen`].
    KemPair {
        /// Sent to the peer.
        public: Vec<u8>,
        /// Kept for [`Op::KemDecapsulate`].
        private: KemPrivate,
    },
}

impl fmt::Debug for Answer {
    /// Shows the kind of operation, never its contents.
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
    /// The peer's public key or ciphertext is invalid. Final: repeating the operation would not help.
    PeerKey,
    /// The library failed.
    Internal,
    /// The engine found that its own answer was wrong.
    Wrong,
    /// The engine's device failed.
    Device,
    /// The operation was abandoned.
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
    /// All classes, in the order of their numbers.
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
    /// Number of classes.
    pub const COUNT: usize = Class::ALL.len();

    /// The class's name in metrics.
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
    /// The class in which this operation is batched.
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

    /// Whether `answer` may be released as the answer to this operation: a signature verifies, everything else has the right shape, and
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
