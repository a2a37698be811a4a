//! Fetches of TLS (section 7.3.4): the handshake with the client (`ssl_fc_*`) and with the server (`ssl_bc_*`), and the
//! certificates of the client (`ssl_c_*`), our own (`ssl_f_*`) and the server's (`ssl_s_*`).

use super::{
    internal::int,
    spec::{FetchSpec, one, refused},
};
use crate::{
    context::Context,
    keyword::{Arg, ArgKind, ArgSpec, Args, Places, opt},
    sample::{Fetched, Missing},
    tls_facts::{Captured, TlsFacts},
    value::{
        Type::{Bin, Bool, Int, Str},
        Value,
    },
    x509,
};
use std::borrow::Cow;

const CLIENT: Places = Places::FROM_SESSION;
const SERVER: Places = Places::FROM_SERVER;
const FILTER: &[ArgSpec] = &[opt("filter", ArgKind::Int)];
const DN: &[ArgSpec] =
    &[opt("entry", ArgKind::Str), opt("occurrence", ArgKind::Int), opt("format", ArgKind::OneOf(&["rfc2253"]))];
const SECRET: &str = "secrets of a session do not leave the TLS layer";
const RANDOM: &str = "the TLS layer keeps no handshake's random bytes";
const NPN: &str = "NPN is gone from TLS; use the alpn fetches";
const DEVICES: &str = "no device database is built in";

macro_rules! certificate {
    ($prefix:literal, $whose:literal, $places:expr, $pick:path) => {
        &[
            one(
                concat!($prefix, "der"),
                &[],
                Bin,
                $places,
                concat!("The certificate of ", $whose, ", DER."),
                |ctx, _| Ok(Value::bin($pick(ctx)?)),
            ),
            one(
                concat!($prefix, "i_dn"),
                DN,
                Str,
                $places,
                concat!("Issuer of the certificate of ", $whose, "."),
                |ctx, args| name(x509::issuer($pick(ctx)?, &dn(args))),
            ),
            one(
                concat!($prefix, "key_alg"),
                &[],
                Str,
                $places,
                concat!("Key type of the certificate of ", $whose, "."),
                |ctx, _| name(x509::key_algorithm($pick(ctx)?)),
            ),
            one(
                concat!($prefix, "notafter"),
                &[],
                Str,
                $places,
                concat!("End of the certificate of ", $whose, "."),
                |ctx, _| name(x509::not_after($pick(ctx)?)),
            ),
            one(
                concat!($prefix, "notbefore"),
                &[],
                Str,
                $places,
                concat!("Start of the certificate of ", $whose, "."),
                |ctx, _| name(x509::not_before($pick(ctx)?)),
            ),
            one(
                concat!($prefix, "s_dn"),
                DN,
                Str,
                $places,
                concat!("Subject of the certificate of ", $whose, "."),
                |ctx, args| name(x509::subject($pick(ctx)?, &dn(args))),
            ),
            one(
                concat!($prefix, "serial"),
                &[],
                Bin,
                $places,
                concat!("Serial number of the certificate of ", $whose, "."),
                |ctx, _| Ok(Value::Bin(Cow::Owned(x509::serial($pick(ctx)?).ok_or(Missing::Absent)?))),
            ),
            one(
                concat!($prefix, "sha1"),
                &[],
                Bin,
                $places,
                concat!("SHA-1 of the certificate of ", $whose, "."),
                |ctx, _| Ok(Value::Bin(Cow::Owned(x509::sha1($pick(ctx)?)))),
            ),
            one(
                concat!($prefix, "sig_alg"),
                &[],
                Str,
                $places,
                concat!("Signature of the certificate of ", $whose, "."),
                |ctx, _| name(x509::signature_algorithm($pick(ctx)?)),
            ),
            one(
                concat!($prefix, "version"),
                &[],
                Int,
                $places,
                concat!("Version of the certificate of ", $whose, "."),
                |ctx, _| int(x509::version($pick(ctx)?).ok_or(Missing::Absent)?),
            ),
        ]
    };
}

pub(super) const CLIENT_CERTIFICATE: &[FetchSpec] = certificate!("ssl_c_", "the client", CLIENT, client_certificate);
pub(super) const OWN_CERTIFICATE: &[FetchSpec] = certificate!("ssl_f_", "ours", CLIENT, own_certificate);
pub(super) const SERVER_CERTIFICATE: &[FetchSpec] = certificate!("ssl_s_", "the server", SERVER, server_certificate);

pub(super) const TABLE: &[FetchSpec] = &[
    refused("51d.all", Str, "Properties of the client's device.", DEVICES),
    one("ssl_bc", &[], Bool, SERVER, "Whether the server's connection is encrypted.", |ctx, _| {
        Ok(Value::Bool(server_tls(ctx).is_ok()))
    }),
    one("ssl_bc_alg_keysize", &[], Int, SERVER, "Bits of the cipher's key towards the server.", |ctx, _| {
        int(server_tls(ctx)?.keysize)
    }),
    one("ssl_bc_alpn", &[], Str, SERVER, "The protocol agreed on with the server.", |ctx, _| alpn(server_tls(ctx)?)),
    one("ssl_bc_cipher", &[], Str, SERVER, "The cipher used with the server.", |ctx, _| text(server_tls(ctx)?.cipher)),
    one("ssl_bc_curve", &[], Str, SERVER, "The group of the key exchange with the server.", |ctx, _| {
        text(server_tls(ctx)?.group.ok_or(Missing::Absent)?)
    }),
    refused("ssl_bc_client_early_traffic_secret", Str, "A secret of the session.", SECRET),
    refused("ssl_bc_client_handshake_traffic_secret", Str, "A secret of the session.", SECRET),
    refused("ssl_bc_client_random", Bin, "Our random bytes towards the server.", RANDOM),
    refused("ssl_bc_client_traffic_secret_0", Str, "A secret of the session.", SECRET),
    refused("ssl_bc_early_exporter_secret", Str, "A secret of the session.", SECRET),
    one("ssl_bc_err", &[], Int, SERVER, "Number of the handshake's error with the server.", |ctx, _| {
        int(server_error(ctx)?.0)
    }),
    one("ssl_bc_err_str", &[], Str, SERVER, "The handshake's error with the server, in words.", |ctx, _| {
        reason(server_error(ctx)?)
    }),
    refused("ssl_bc_exporter_secret", Str, "A secret of the session.", SECRET),
    one("ssl_bc_is_resumed", &[], Bool, SERVER, "Whether the session with the server was resumed.", |ctx, _| {
        Ok(Value::Bool(server_tls(ctx)?.resumed))
    }),
    refused("ssl_bc_npn", Str, "The protocol agreed on by NPN.", NPN),
    one("ssl_bc_protocol", &[], Str, SERVER, "The version of TLS spoken with the server.", |ctx, _| {
        text(server_tls(ctx)?.version)
    }),
    refused("ssl_bc_server_handshake_traffic_secret", Str, "A secret of the session.", SECRET),
    refused("ssl_bc_server_random", Bin, "The server's random bytes.", RANDOM),
    refused("ssl_bc_server_traffic_secret_0", Str, "A secret of the session.", SECRET),
    one("ssl_bc_session_id", &[], Bin, SERVER, "Identifier of the session with the server.", |ctx, _| {
        session_id(server_tls(ctx)?)
    }),
    refused("ssl_bc_session_key", Bin, "Key of the session with the server.", SECRET),
    refused("ssl_bc_unique_id", Bin, "`tls-unique` of the server's connection.", RANDOM),
    one("ssl_bc_use_keysize", &[], Int, SERVER, "Bits of the cipher's key in use towards the server.", |ctx, _| {
        int(server_tls(ctx)?.keysize)
    }),
    one("ssl_c_ca_err", &[], Int, CLIENT, "First error among the client certificate's authorities.", |ctx, _| {
        int(client_tls(ctx)?.ca_err)
    }),
    one("ssl_c_ca_err_depth", &[], Int, CLIENT, "Depth of that error.", |ctx, _| int(client_tls(ctx)?.ca_err_depth)),
    one("ssl_c_chain_der", &[], Bin, CLIENT, "What the client sent above its certificate, DER.", |ctx, _| {
        let tls = client_tls(ctx)?;
        let chain = tls.peer.as_deref().filter(|_| !tls.resumed).map_or(&[][..], |peer| &peer.chain);
        concatenated(chain.get(1..).unwrap_or_default())
    }),
    one("ssl_c_err", &[], Int, CLIENT, "Error of the client's certificate itself.", |ctx, _| {
        int(client_tls(ctx)?.leaf_err)
    }),
    refused(
        "ssl_c_r_dn",
        Str,
        "Name of the root of the client's chain.",
        "which authority ended the chain is not kept",
    ),
    one(
        "ssl_c_used",
        &[],
        Bool,
        CLIENT,
        "Whether the client presented a certificate, now or in the session resumed.",
        |ctx, _| Ok(Value::Bool(client_tls(ctx)?.peer.is_some())),
    ),
    one("ssl_c_verify", &[], Int, CLIENT, "Result of verifying the client's certificate, 0 for success.", |ctx, _| {
        int(client_tls(ctx)?.verify)
    }),
    one("ssl_fc", &[], Bool, CLIENT, "Whether the client's connection is encrypted.", |ctx, _| {
        Ok(Value::Bool(ctx.conn.tls.is_some()))
    }),
    one("ssl_fc_alg_keysize", &[], Int, CLIENT, "Bits of the cipher's key.", |ctx, _| int(client_tls(ctx)?.keysize)),
    one("ssl_fc_alpn", &[], Str, CLIENT, "The protocol agreed on with the client.", |ctx, _| alpn(client_tls(ctx)?)),
    one("ssl_fc_cipher", &[], Str, CLIENT, "The cipher used with the client.", |ctx, _| text(client_tls(ctx)?.cipher)),
    one("ssl_fc_cipherlist_bin", FILTER, Bin, CLIENT, "Ciphers the client offered, two bytes each.", |ctx, args| {
        Ok(Value::Bin(pairs(ciphers(ctx)?, args)))
    }),
    one("ssl_fc_cipherlist_hex", FILTER, Str, CLIENT, "The same in hexadecimal.", |ctx, args| {
        let list = pairs(ciphers(ctx)?, args);
        Ok(Value::string(crate::value::hex_of(&list)))
    }),
    refused("ssl_fc_cipherlist_str", Str, "Ciphers the client offered, by name.", "use ssl_fc_cipherlist_hex"),
    one("ssl_fc_cipherlist_xxh", &[], Int, CLIENT, "XXH64 of the ciphers offered.", |ctx, _| {
        int(xxhash_rust::xxh64::xxh64(ciphers(ctx)?, 0) as i64)
    }),
    refused("ssl_fc_client_early_traffic_secret", Str, "A secret of the session.", SECRET),
    refused("ssl_fc_client_handshake_traffic_secret", Str, "A secret of the session.", SECRET),
    refused("ssl_fc_client_random", Bin, "The client's random bytes.", RANDOM),
    refused("ssl_fc_client_traffic_secret_0", Str, "A secret of the session.", SECRET),
    one("ssl_fc_curve", &[], Str, CLIENT, "The group of the key exchange with the client.", |ctx, _| {
        text(client_tls(ctx)?.group.ok_or(Missing::Absent)?)
    }),
    refused("ssl_fc_early_exporter_secret", Str, "A secret of the session.", SECRET),
    refused("ssl_fc_ecformats_bin", Bin, "Point formats the client offered.", "only the list of ciphers is kept"),
    refused("ssl_fc_eclist_bin", Bin, "Groups the client offered.", "only the list of ciphers is kept"),
    // Extensions: the worker's engine, and how long the handshake waited for it.
    one(
        "ssl_fc_engine",
        &[],
        Str,
        CLIENT,
        "The crypto engine of the worker that made the handshake: native, sw, hw, hw+sw.",
        |ctx, _| text(client_tls(ctx)?.engine),
    ),
    one("ssl_fc_engine_wait", &[], Int, CLIENT, "How long the handshake waited for the engine, µs.", |ctx, _| {
        int(client_tls(ctx)?.engine_wait_us)
    }),
    one("ssl_fc_err", &[], Int, CLIENT, "Number of the handshake's error with the client.", |ctx, _| {
        int(client_error(ctx)?.0)
    }),
    one("ssl_fc_err_str", &[], Str, CLIENT, "The handshake's error with the client, in words.", |ctx, _| {
        reason(client_error(ctx)?)
    }),
    refused("ssl_fc_exporter_secret", Str, "A secret of the session.", SECRET),
    refused("ssl_fc_extlist_bin", Bin, "Extensions the client sent.", "only the list of ciphers is kept"),
    one("ssl_fc_has_crt", &[], Bool, CLIENT, "Whether the client sent a certificate in this handshake.", |ctx, _| {
        let tls = client_tls(ctx)?;
        Ok(Value::Bool(tls.peer.is_some() && !tls.resumed))
    }),
    one("ssl_fc_has_early", &[], Bool, CLIENT, "Whether early data was received: it never is.", |ctx, _| {
        client_tls(ctx)?;
        Ok(Value::Bool(false))
    }),
    one("ssl_fc_has_sni", &[], Bool, CLIENT, "Whether the client named a server.", |ctx, _| {
        Ok(Value::Bool(client_tls(ctx).is_ok_and(|tls| tls.sni.is_some())))
    }),
    one("ssl_fc_is_resumed", &[], Bool, CLIENT, "Whether the session was resumed.", |ctx, _| {
        Ok(Value::Bool(client_tls(ctx).is_ok_and(|tls| tls.resumed)))
    }),
    refused("ssl_fc_npn", Str, "The protocol agreed on by NPN.", NPN),
    one("ssl_fc_protocol", &[], Str, CLIENT, "The version of TLS spoken with the client.", |ctx, _| {
        text(client_tls(ctx)?.version)
    }),
    one(
        "ssl_fc_protocol_hello_id",
        &[],
        Int,
        CLIENT,
        "The version in the ClientHello, where it is captured.",
        |ctx, _| int(hello(ctx)?.version),
    ),
    refused("ssl_fc_server_handshake_traffic_secret", Str, "A secret of the session.", SECRET),
    refused("ssl_fc_server_random", Bin, "Our random bytes towards the client.", RANDOM),
    refused("ssl_fc_server_traffic_secret_0", Str, "A secret of the session.", SECRET),
    one("ssl_fc_session_id", &[], Bin, CLIENT, "Identifier of the session with the client.", |ctx, _| {
        session_id(client_tls(ctx)?)
    }),
    refused("ssl_fc_session_key", Bin, "Key of the session with the client.", SECRET),
    one("ssl_fc_sni", &[], Str, CLIENT, "The server the client named.", |ctx, _| {
        text(client_tls(ctx)?.sni.as_deref().ok_or(Missing::Absent)?)
    }),
    refused("ssl_fc_unique_id", Bin, "`tls-unique` of the client's connection.", RANDOM),
    one("ssl_fc_use_keysize", &[], Int, CLIENT, "Bits of the cipher's key in use.", |ctx, _| {
        int(client_tls(ctx)?.keysize)
    }),
    one("ssl_s_chain_der", &[], Bin, SERVER, "The server's whole chain, DER.", |ctx, _| {
        concatenated(server_tls(ctx)?.peer.as_deref().map_or(&[], |peer| &peer.chain))
    }),
];

fn client_tls<'c>(ctx: &'c Context<'_>) -> Result<&'c TlsFacts, Missing> {
    ctx.conn.tls.as_deref().ok_or(Missing::Absent)
}

fn server_tls<'c>(ctx: &'c Context<'_>) -> Result<&'c TlsFacts, Missing> {
    ctx.server_conn.and_then(|conn| conn.tls.as_deref()).ok_or(Missing::Absent)
}

fn client_certificate<'c>(ctx: &'c Context<'_>) -> Result<&'c [u8], Missing> {
    client_tls(ctx)?.peer.as_deref().map(|peer| peer.leaf()).ok_or(Missing::Absent)
}

fn own_certificate<'c>(ctx: &'c Context<'_>) -> Result<&'c [u8], Missing> {
    client_tls(ctx)?.own.as_deref().ok_or(Missing::Absent)
}

fn server_certificate<'c>(ctx: &'c Context<'_>) -> Result<&'c [u8], Missing> {
    server_tls(ctx)?.peer.as_deref().map(|peer| peer.leaf()).ok_or(Missing::Absent)
}

fn alpn(tls: &TlsFacts) -> Fetched<'_> {
    tls.alpn.as_deref().map(Value::str).ok_or(Missing::Absent)
}

fn concatenated<'c>(chain: &[Vec<u8>]) -> Fetched<'c> {
    if chain.is_empty() { Err(Missing::Absent) } else { Ok(Value::Bin(Cow::Owned(chain.concat()))) }
}

fn session_id(tls: &TlsFacts) -> Fetched<'_> {
    if tls.session_id.is_empty() { Err(Missing::Absent) } else { Ok(Value::bin(&tls.session_id)) }
}

/// OpenSSL's error for the handshake with the client, (0, "") if it succeeded; missing for clear text.
fn client_error(ctx: &Context<'_>) -> Result<(u32, &'static str), Missing> {
    ctx.conn.tls_error.or(ctx.conn.tls.is_some().then_some((0, ""))).ok_or(Missing::Absent)
}

/// OpenSSL's error for the handshake with the server, (0, "") if it succeeded; missing for clear text.
fn server_error(ctx: &Context<'_>) -> Result<(u32, &'static str), Missing> {
    let conn = ctx.server_conn.ok_or(Missing::Absent)?;
    conn.tls_error.or(conn.tls.is_some().then_some((0, ""))).ok_or(Missing::Absent)
}

/// An error in OpenSSL's wording.
fn reason<'c>((number, words): (u32, &'static str)) -> Fetched<'c> {
    if number == 0 {
        return Err(Missing::Absent);
    }
    Ok(Value::string(format!("error:{number:08X}:SSL routines::{words}")))
}

fn hello<'c>(ctx: &'c Context<'_>) -> Result<&'c Captured, Missing> {
    client_tls(ctx)?.hello.as_deref().ok_or(Missing::Absent)
}

fn ciphers<'c>(ctx: &'c Context<'_>) -> Result<&'c [u8], Missing> {
    Ok(&hello(ctx)?.ciphers)
}

/// The list, without GREASE values (RFC 8701) if the filter is 1.
fn pairs<'c>(list: &'c [u8], args: &[Arg]) -> Cow<'c, [u8]> {
    if args.int(0) != Some(1) {
        return Cow::Borrowed(list);
    }
    let grease = |pair: &[u8]| pair[0] == pair[1] && pair[0] & 0x0f == 0x0a;
    Cow::Owned(list.chunks_exact(2).filter(|pair| !grease(pair)).flatten().copied().collect())
}

fn text(text: &str) -> Fetched<'_> {
    Ok(Value::str(text.as_bytes()))
}

fn name<'c>(text: Option<String>) -> Fetched<'c> {
    text.map(Value::string).ok_or(Missing::Absent)
}

fn dn<'a>(args: &'a [Arg]) -> x509::NamePart<'a> {
    let entry = args.bytes(0).and_then(|entry| std::str::from_utf8(entry).ok()).filter(|entry| !entry.is_empty());
    x509::NamePart { entry, occurrence: args.int(1).unwrap_or(1), rfc2253: args.word(2) == Some(0) }
}
