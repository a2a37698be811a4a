//! The classes of operations: one row each, from which everything else that is known of a class follows.

use std::time::Duration;

/// A curve for key agreement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Curve {
    X25519,
    P256,
    P384,
}

impl Curve {
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

/// Signature algorithms, as far as engines tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Algorithm {
    Rsa2048,
    Rsa3072,
    Rsa4096,
    /// RSA of any other size.
    RsaOther,
    EcdsaP256,
    EcdsaP384,
    /// ECDSA P-521 and Ed25519, which only the library computes.
    Other,
}

impl Algorithm {
    /// Whether the algorithm is RSA, with a key of any size.
    pub const fn is_rsa(self) -> bool {
        matches!(self, Algorithm::Rsa2048 | Algorithm::Rsa3072 | Algorithm::Rsa4096 | Algorithm::RsaOther)
    }
}

/// What an operation does, and with what: operations that do the same can share a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// A signature.
    Sign(Algorithm),
    /// A fresh key pair.
    KeyGen(Curve),
    /// The secret shared with a peer.
    Derive(Curve),
    /// A fresh key pair and the secret it shares with a peer.
    Agree(Curve),
    /// A fresh ML-KEM-768 key pair.
    KemKeyGen,
    /// A secret and its ciphertext under an ML-KEM-768 key.
    KemEncapsulate,
    /// The secret inside an ML-KEM-768 ciphertext.
    KemDecapsulate,
}

impl Work {
    /// The curve of a key agreement.
    pub const fn curve(self) -> Option<Curve> {
        match self {
            Work::KeyGen(curve) | Work::Derive(curve) | Work::Agree(curve) => Some(curve),
            _ => None,
        }
    }
}

/// Costs of a class that lanes serve, for a machine that has not been measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Assumed {
    /// One operation by the native library.
    pub native: Duration,
    /// A call to the lanes.
    pub lanes: Duration,
    /// A call with one operation, where that differs from a full batch's.
    pub single: Duration,
}

/// Nanoseconds: native, in lanes, in lanes alone.
const fn ns(native: u64, lanes: u64, single: u64) -> Option<Assumed> {
    let [native, lanes, single] =
        [Duration::from_nanos(native), Duration::from_nanos(lanes), Duration::from_nanos(single)];
    Some(Assumed { native, lanes, single })
}

macro_rules! classes {
    ($($class:ident $name:literal [$($work:tt)+] $assumed:expr;)+) => {
        /// Operations that can share a batch.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs)]
        pub enum Class {
            $($class),+
        }

        impl Class {
            /// All classes, in the order of their numbers.
            pub const ALL: [Class; Class::COUNT] = [$(Class::$class),+];
            /// Number of classes.
            pub const COUNT: usize = [$($name),+].len();

            /// The class's name in metrics.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Class::$class => $name),+
                }
            }

            /// What operations of this class do.
            pub const fn work(self) -> Work {
                match self {
                    $(Class::$class => $($work)+),+
                }
            }

            /// The class of operations that do this.
            pub const fn of(work: Work) -> Class {
                match work {
                    $($($work)+ => Class::$class),+
                }
            }

            /// Costs where nothing was measured; `None` for a class that lanes do not serve.
            pub(crate) const fn assumed(self) -> Option<Assumed> {
                match self {
                    $(Class::$class => $assumed),+
                }
            }
        }
    };
}

// Costs are medians of a 2.0 GHz Sapphire Rapids, November 2026.
classes! {
    Rsa2048          "rsa2048"              [Work::Sign(Algorithm::Rsa2048)]    ns(407_000, 380_000, 290_000);
    Rsa3072          "rsa3072"              [Work::Sign(Algorithm::Rsa3072)]    ns(1_068_000, 1_240_000, 690_000);
    Rsa4096          "rsa4096"              [Work::Sign(Algorithm::Rsa4096)]    ns(2_190_000, 2_800_000, 1_390_000);
    RsaOther         "rsa-other"            [Work::Sign(Algorithm::RsaOther)]   None;
    EcdsaP256        "ecdsa-p256"           [Work::Sign(Algorithm::EcdsaP256)]  ns(20_700, 60_000, 60_000);
    EcdsaP384        "ecdsa-p384"           [Work::Sign(Algorithm::EcdsaP384)]  ns(170_000, 180_000, 180_000);
    SignOther        "sign-other"           [Work::Sign(Algorithm::Other)]      None;
    X25519KeyGen     "x25519-keygen"        [Work::KeyGen(Curve::X25519)]       ns(11_100, 20_000, 20_000);
    X25519Derive     "x25519-derive"        [Work::Derive(Curve::X25519)]       ns(27_800, 40_000, 40_000);
    X25519Agree      "x25519-agree"         [Work::Agree(Curve::X25519)]        ns(39_000, 60_000, 60_000);
    P256KeyGen       "p256-keygen"          [Work::KeyGen(Curve::P256)]         ns(13_600, 24_000, 24_000);
    P256Derive       "p256-derive"          [Work::Derive(Curve::P256)]         ns(61_000, 75_000, 75_000);
    P256Agree        "p256-agree"           [Work::Agree(Curve::P256)]          ns(75_000, 100_000, 100_000);
    P384KeyGen       "p384-keygen"          [Work::KeyGen(Curve::P384)]         ns(80_000, 60_000, 60_000);
    P384Derive       "p384-derive"          [Work::Derive(Curve::P384)]         ns(200_000, 220_000, 220_000);
    P384Agree        "p384-agree"           [Work::Agree(Curve::P384)]          ns(280_000, 280_000, 280_000);
    MlKemKeyGen      "mlkem768-keygen"      [Work::KemKeyGen]                   None;
    MlKemEncapsulate "mlkem768-encapsulate" [Work::KemEncapsulate]              ns(14_300, 37_000, 37_000);
    MlKemDecapsulate "mlkem768-decapsulate" [Work::KemDecapsulate]              None;
}

/// A set of classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classes([bool; Class::COUNT]);

impl Default for Classes {
    fn default() -> Self {
        Classes([true; Class::COUNT])
    }
}

impl Classes {
    /// Reads the list of `algo`, in the words of OpenSSL's engines: `ALL`, `RSA`, `EC`, `PKEY`... Those that name no public-key
    /// operation add nothing.
    ///
    /// # Errors
    /// The first word that is no such name.
    pub fn parse(list: &str) -> Result<Classes, &str> {
        let mut classes = [false; Class::COUNT];
        for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let named: fn(Work) -> bool = match word.to_ascii_uppercase().as_str() {
                // The papers' engine registers X25519 and ML-KEM under PKEY.
                "ALL" | "PKEY" | "PKEY_CRYPTO" => |_| true,
                "RSA" => |work| matches!(work, Work::Sign(algorithm) if algorithm.is_rsa()),
                "EC" => |work| match work {
                    Work::Sign(algorithm) => !algorithm.is_rsa(),
                    work => work.curve().is_some(),
                },
                "DSA" | "DH" | "RAND" | "CIPHERS" | "DIGESTS" | "PKEY_ASN1" => |_| false,
                _ => return Err(word),
            };
            for class in Class::ALL {
                classes[class as usize] |= named(class.work());
            }
        }
        Ok(Classes(classes))
    }

    /// The classes of this set for which `also` holds.
    #[must_use]
    pub fn and(&self, also: impl Fn(Class) -> bool) -> Classes {
        Classes(Class::ALL.map(|class| self.contains(class) && also(class)))
    }

    /// Whether `class` is in the set.
    pub fn contains(&self, class: Class) -> bool {
        self.0[class as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn algo_names_the_classes_that_leave_native() {
        let has = |list, class| Classes::parse(list).expect("known words").contains(class);
        assert!(has("ALL", Class::MlKemKeyGen) && has("RSA,EC", Class::EcdsaP384) && has("ec", Class::X25519Agree));
        assert!(!has("RSA", Class::P256Agree) && !has("EC", Class::Rsa2048) && !has("CIPHERS,DIGESTS", Class::Rsa2048));
        assert!(!has("EC", Class::MlKemEncapsulate) && has("EC", Class::SignOther));
        assert_eq!(Classes::parse("RSA,QUANTUM"), Err("QUANTUM"));
    }

    #[test]
    fn a_class_and_what_it_does_name_each_other() {
        for class in Class::ALL {
            assert_eq!(Class::of(class.work()), class);
            assert_eq!(Class::ALL[class as usize], class);
        }
    }
}
