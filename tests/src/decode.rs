//! Undoes the coding of a body, since two programs compress the same bytes differently.

use std::io::Read;

use flate2::read::{DeflateDecoder, GzDecoder, ZlibDecoder};
use ruzstd::decoding::StreamingDecoder;

use crate::message::Message;

impl Message {
    /// Replaces a coded body by what it says; gives the line that tells how it was coded.
    pub fn decode(&mut self) -> Option<String> {
        let coding = self.field("content-encoding")?.to_owned();
        let (format, decoded) = match coding.as_str() {
            "gzip" => ("gzip", read(GzDecoder::new(&self.body[..]))),
            // Either form goes by this name; the first byte of zlib's says so.
            "deflate" if self.body.first() == Some(&0x78) => ("zlib", read(ZlibDecoder::new(&self.body[..]))),
            "br" => ("brotli", read(brotli::Decompressor::new(&self.body[..], 4096))),
            "zstd" => ("zstd", StreamingDecoder::new(&self.body[..]).map_or_else(|_| (Vec::new(), false), read)),
            "deflate" => ("bare deflate", read(DeflateDecoder::new(&self.body[..]))),
            _ => return None,
        };
        let smaller = if self.body.len() < decoded.0.len() { ", smaller" } else { "" };
        let end = if decoded.1 { "whole" } else { "cut" };
        self.body = decoded.0;
        Some(format!("coded as {format}, {end}{smaller}"))
    }
}

/// What can be decoded, and whether that is all of it.
fn read(mut decoder: impl Read) -> (Vec<u8>, bool) {
    let mut decoded = Vec::new();
    let whole = decoder.read_to_end(&mut decoded).is_ok();
    (decoded, whole)
}
