//! Samples, converters, ACLs, log formats and actions: compiled from configuration, run on a message. Pure.

#![forbid(unsafe_code)]
