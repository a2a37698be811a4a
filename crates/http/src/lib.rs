//! HTTP/1 messages: bytes in, bytes out; framing, limits, smuggling rules. Pure.

#![forbid(unsafe_code)]
