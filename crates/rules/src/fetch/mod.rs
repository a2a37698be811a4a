//! Sample fetches: one table for each layer of the manual's section 7.3.

mod counters;
mod developer;
mod fields;
mod http;
mod internal;
mod layer4;
mod layer5;
mod payload;
mod progress;
mod spec;

pub(crate) use counters::{Lookup, lookups};
pub(crate) use fields::split_raw;
pub use fields::{cookies, end_of_cookie};
pub(crate) use http::path_of;
pub use spec::{ChangeFn, EachFn, FetchFn, FetchRun, FetchSpec};

use crate::keyword::Places;
use std::{collections::HashMap, sync::LazyLock};

/// Sections of the manual and their fetches.
pub fn sections() -> &'static [(&'static str, &'static [FetchSpec])] {
    static SECTIONS: LazyLock<Vec<(&str, &[FetchSpec])>> = LazyLock::new(|| {
        vec![
            ("Internal states", internal::TABLE),
            ("How an exchange goes", progress::TABLE),
            ("Layer 4", layer4::TABLE),
            ("Stick tables", counters::table()),
            ("Layer 5: TLS", layer5::TABLE),
            ("Layer 5: the client's certificate", layer5::CLIENT_CERTIFICATE),
            ("Layer 5: our certificate", layer5::OWN_CERTIFICATE),
            ("Layer 5: the server's certificate", layer5::SERVER_CERTIFICATE),
            ("Buffer contents", payload::TABLE),
            ("HTTP", http::TABLE),
            ("For developers", developer::TABLE),
        ]
    });
    &SECTIONS
}

/// Other names of fetches. If a name means different things for requests and responses, the request's comes first.
pub const ALIASES: &[(&str, &str)] = &[
    ("cook", "req.cook"),
    ("cook_cnt", "req.cook_cnt"),
    ("cook_val", "req.cook_val"),
    ("cookie", "req.cook"),
    ("cookie", "res.cook"),
    ("hdr", "req.hdr"),
    ("hdr", "res.hdr"),
    ("hdr_cnt", "req.hdr_cnt"),
    ("hdr_ip", "req.hdr_ip"),
    ("hdr_val", "req.hdr_val"),
    ("payload", "req.payload"),
    ("payload", "res.payload"),
    ("payload_lv", "req.payload_lv"),
    ("payload_lv", "res.payload_lv"),
    ("rdp_cookie", "req.rdp_cookie"),
    ("rdp_cookie_cnt", "req.rdp_cookie_cnt"),
    ("rep_ssl_hello_type", "res.ssl_hello_type"),
    ("req_len", "req.len"),
    ("req_proto_http", "req.proto_http"),
    ("req_rdp_cookie", "req.rdp_cookie"),
    ("req_rdp_cookie_cnt", "req.rdp_cookie_cnt"),
    ("req_ssl_hello_type", "req.ssl_hello_type"),
    ("req_ssl_sni", "req.ssl_sni"),
    ("req_ssl_ver", "req.ssl_ver"),
    ("req_ver", "req.ver"),
    ("resp_ver", "res.ver"),
    ("scook", "res.cook"),
    ("scook_cnt", "res.cook_cnt"),
    ("scook_val", "res.cook_val"),
    ("shdr", "res.hdr"),
    ("shdr_cnt", "res.hdr_cnt"),
    ("shdr_ip", "res.hdr_ip"),
    ("shdr_val", "res.hdr_val"),
    ("url_param", "urlp"),
];

static BY_NAME: LazyLock<HashMap<&'static str, &'static FetchSpec>> =
    LazyLock::new(|| sections().iter().flat_map(|(_, table)| *table).map(|spec| (spec.name, spec)).collect());

/// Finds a fetch by name, or by an alias whose target is available in `place`.
pub fn find(name: &str, place: Places) -> Option<&'static FetchSpec> {
    if let Some(spec) = BY_NAME.get(name) {
        return Some(spec);
    }
    let mut targets =
        ALIASES.iter().filter(|(alias, _)| *alias == name).filter_map(|(_, target)| BY_NAME.get(target).copied());
    let first = targets.next()?;
    if first.places.meets(place) { Some(first) } else { targets.find(|spec| spec.places.meets(place)).or(Some(first)) }
}

/// All names, for hints.
pub fn names() -> impl Iterator<Item = &'static str> {
    BY_NAME.keys().copied().chain(ALIASES.iter().map(|(alias, _)| *alias))
}
