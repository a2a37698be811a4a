//! Converters: one table for each kind (section 7.3.1 of the manual).

mod codec;
mod digests;
mod fix;
mod forwarded;
mod gcm;
mod jwt;
mod maps;
mod mqtt;
mod numbers;
mod protobuf;
mod spec;
mod special;
mod text;

pub(crate) use digests::{DIGESTS, digest_named};
pub(crate) use fix::tag_named;
pub(crate) use jwt::{ALGORITHMS, KeyOfFile, PublicKey, PublicKeys, TokenKeyArg, algorithm_named, needs_public_key};
pub(crate) use maps::map_kind;
pub(crate) use mqtt::{field_named, has_field, packet_named};
pub use spec::{ConvFn, ConvSpec, ConvertFn};

use crate::{keyword::Support, value::Type};
use std::{collections::HashMap, sync::LazyLock};

/// Kinds of converters and their tables.
pub fn sections() -> &'static [(&'static str, &'static [ConvSpec])] {
    static SECTIONS: LazyLock<Vec<(&str, &[ConvSpec])>> = LazyLock::new(|| {
        vec![
            ("Numbers", numbers::TABLE),
            ("Text", text::TABLE),
            ("Encodings", codec::TABLE),
            ("Hashes", digests::TABLE),
            ("Maps", maps::table()),
            ("The Forwarded field", forwarded::TABLE),
            ("Stick tables", tables()),
            ("Tokens", jwt::TABLE),
            ("Protocol Buffers and gRPC", protobuf::TABLE),
            ("FIX", fix::TABLE),
            ("MQTT", mqtt::TABLE),
            ("Others", special::TABLE),
        ]
    });
    &SECTIONS
}

fn tables() -> &'static [ConvSpec] {
    static TABLE: LazyLock<Vec<ConvSpec>> = LazyLock::new(|| {
        let lookups = crate::fetch::lookups().map(|(name, args, output, doc, lookup)| ConvSpec {
            name,
            args,
            input: Type::Any,
            output,
            doc,
            support: Support::Yes(ConvFn::Lookup(lookup)),
        });
        lookups.chain([special::IN_TABLE]).collect()
    });
    &TABLE
}

static BY_NAME: LazyLock<HashMap<&'static str, &'static ConvSpec>> =
    LazyLock::new(|| sections().iter().flat_map(|(_, table)| *table).map(|spec| (spec.name, spec)).collect());

/// A converter by name.
pub fn find(name: &str) -> Option<&'static ConvSpec> {
    BY_NAME.get(name).copied()
}

/// All names, for hints.
pub fn names() -> impl Iterator<Item = &'static str> {
    BY_NAME.keys().copied()
}
