//! Samples, converters, ACLs, log formats and actions: compiled from configuration, run on a message. Pure.

#![forbid(unsafe_code)]

pub mod client_hello;
mod tls_facts;

pub use client_hello::{ClientHello, HelloError};
pub use tls_facts::{PeerCertificate, TlsFacts};
