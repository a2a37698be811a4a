//! NIST P-256: key exchange and ECDSA, one to eight at a time.

crate::ec::api!(P256, Sha256, 5, 32);
