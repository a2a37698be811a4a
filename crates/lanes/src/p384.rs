//! NIST P-384: key exchange and ECDSA, one to eight at a time.

crate::ec::api!(P384, Sha384, 8, 48);
