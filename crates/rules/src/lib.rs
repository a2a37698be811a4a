//! Samples, converters, ACLs, log formats and actions: compiled from configuration, run on a message. Pure.

#![forbid(unsafe_code)]

pub mod client_hello;

pub use client_hello::{ClientHello, HelloError};
