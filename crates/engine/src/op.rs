//! One piece of public-key work. It owns its memory: it may outlive its submitter.

use crate::{Class, Curve, Scheme, Secret, SigningKey, Work};
use aws_lc_rs::{agreement, kem};
use std::{fmt, sync::Arc};

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

impl Op {
    /// The class in which this operation is batched.
    pub fn class(&self) -> Class {
        Class::of(match self {
            Op::Sign { key, .. } => Work::Sign(key.algorithm()),
            Op::KeyGen { curve } => Work::KeyGen(*curve),
            Op::Derive { private, .. } => Work::Derive(private.curve()),
            Op::Agree { curve, .. } => Work::Agree(*curve),
            Op::KemKeyGen => Work::KemKeyGen,
            Op::KemEncapsulate { .. } => Work::KemEncapsulate,
            Op::KemDecapsulate { .. } => Work::KemDecapsulate,
        })
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
