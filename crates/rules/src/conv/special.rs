//! Converters for addresses, servers and what is in tokens, and those that are not supported.

use super::{
    gcm,
    spec::{ConvFn, ConvSpec, bytes_arg, conv, refused},
};
use crate::{
    context::Context,
    keyword::{
        Arg,
        ArgKind::{Acl, Base64OrVar, Mask4, Mask6, OneOf, Str as Text, Table, Var, VarCondition, Word},
        ArgSpec, Args, Support, arg, opt,
    },
    log::LogFacts,
    turn::{self, cost},
    value::{
        Type::{Addr, Any, Bin, Bool, Int, Str},
        Value, v6_to_v4,
    },
    vars::Assignment,
};
use base64::{Engine as _, engine::general_purpose::STANDARD, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::de::IgnoredAny;
use std::borrow::Cow;

const PATH: &[ArgSpec] = &[opt("json_path", Text), opt("type", OneOf(&["int"]))];

pub(super) const IN_TABLE: ConvSpec = ConvSpec {
    name: "in_table",
    args: &[arg("table", Table)],
    input: Any,
    output: Bool,
    doc: "Whether a stick table has an entry for the sample.",
    support: Support::Yes(ConvFn::Plain(|ctx, value, args| {
        args.table(0)?.find(value, ctx.now.mono).map(|entry| Value::Bool(entry.is_some()))
    })),
};

pub(super) const TABLE: &[ConvSpec] = &[
    refused("51d.single", Str, Str, "Properties of the client's device.", "no device database is built in"),
    conv(
        "aes_gcm_dec",
        &[
            arg("bits", OneOf(&["128", "192", "256"])),
            arg("nonce", Base64OrVar),
            arg("key", Base64OrVar),
            arg("aead_tag", Base64OrVar),
        ],
        Bin,
        Bin,
        "Decrypts AES-GCM; the sample is lost when the tag is wrong.",
        |ctx, value, args| {
            let base64 = |at| STANDARD.decode(bytes_arg(ctx, args, at)?).ok();
            let mut text = value.bytes()?.to_vec();
            gcm::open(args.word(0)?, &base64(2)?, &base64(1)?, &base64(3)?, &mut text)?;
            Some(Value::Bin(Cow::Owned(text)))
        },
    ),
    conv(
        "aes_gcm_enc",
        &[
            arg("bits", OneOf(&["128", "192", "256"])),
            arg("nonce", Base64OrVar),
            arg("key", Base64OrVar),
            arg("aead_tag", Var),
        ],
        Bin,
        Bin,
        "Encrypts with AES-GCM; the tag goes into a variable.",
        |ctx, value, args| {
            let base64 = |at| STANDARD.decode(bytes_arg(ctx, args, at)?).ok();
            let mut text = value.bytes()?.to_vec();
            let tag = Value::string(STANDARD.encode(gcm::seal(args.word(0)?, &base64(2)?, &base64(1)?, &mut text)?));
            ctx.txn.pending.borrow_mut().push(Assignment { var: args.var(3)?.clone(), value: Some(tag) });
            Some(Value::Bin(Cow::Owned(text)))
        },
    ),
    refused("capture-req", Str, Str, "Keeps the sample in a request capture slot.", "use 'http-request capture'"),
    refused("capture-res", Str, Str, "Keeps the sample in a response capture slot.", "use 'http-response capture'"),
    refused("da-csv-conv", Str, Str, "Properties of the client's device.", "no device database is built in"),
    refused("debug", Any, Any, "Writes the sample to a trace.", "log it, or send it in a header"),
    conv(
        "ipmask",
        &[arg("mask4", Mask4), opt("mask6", Mask6)],
        Addr,
        Addr,
        "The address under a mask.",
        |_, value, args| match (unmapped(value), args) {
            (Value::Ipv4(ip), [Arg::Ipv4(mask), ..]) => Some(Value::Ipv4((u32::from(ip) & u32::from(*mask)).into())),
            (Value::Ipv6(ip), [_, Arg::Ipv6(mask)]) => Some(Value::Ipv6((u128::from(ip) & u128::from(*mask)).into())),
            _ => None,
        },
    ),
    conv(
        "json_query",
        &[arg("json_path", Word), opt("type", OneOf(&["int"]))],
        Str,
        Any,
        "What a path such as `$.a.b[0]` finds in JSON.",
        |_, value, args| json_query(value.bytes()?, args.bytes(0)?, args.word(1).is_some()),
    ),
    conv(
        "jwt_header_query",
        PATH,
        Bin,
        Any,
        "What a path finds in the header of a JSON web token.",
        |_, value, args| jwt_query(value.bytes()?, 0, args),
    ),
    conv(
        "jwt_payload_query",
        PATH,
        Bin,
        Any,
        "What a path finds in the payload of a JSON web token.",
        |_, value, args| jwt_query(value.bytes()?, 1, args),
    ),
    conv("nbsrv", &[], Str, Int, "Usable servers of the backend it names.", |ctx, value, _| {
        let id = ctx.world.find_backend(value.bytes()?)?;
        Some(Value::Int(ctx.world.backend(id).usable_servers.into()))
    }),
    conv(
        "set-var",
        &[
            arg("var", Var),
            opt("condition", VarCondition),
            opt("condition", VarCondition),
            opt("condition", VarCondition),
            opt("condition", VarCondition),
        ],
        Any,
        Any,
        "Keeps the sample in a variable, and gives it on; lost where a condition does not hold.",
        |ctx, value, args| {
            let var = args.var(0)?;
            let conditions = args.iter().filter_map(|arg| match arg {
                Arg::Condition(condition) => Some(*condition),
                _ => None,
            });
            let conditions: Vec<_> = conditions.collect();
            // Like HAProxy, a sample that may not be stored gives no result.
            if !ctx.may_assign(var, &conditions, &value) {
                return None;
            }
            let kept = Some(value.clone().into_owned());
            ctx.txn.pending.borrow_mut().push(Assignment { var: var.clone(), value: kept });
            Some(value)
        },
    ),
    conv("srv_queue", &[], Str, Int, "Requests queued for the server it names.", |ctx, value, _| {
        let id = ctx.world.find_server(value.bytes()?)?;
        Some(Value::Int(ctx.world.server(id).queue.into()))
    }),
    conv(
        "unset-var",
        &[arg("var", Var)],
        Any,
        Any,
        "Forgets a variable, and gives the sample on.",
        |ctx, value, args| {
            let var = args.var(0)?;
            if !ctx.reaches(var.scope) {
                return None;
            }
            ctx.txn.pending.borrow_mut().push(Assignment { var: var.clone(), value: None });
            Some(value)
        },
    ),
    conv(
        "when",
        &[arg("condition", OneOf(WHEN)), opt("acl", Acl)],
        Any,
        Any,
        "The sample if a condition holds, and nothing otherwise.",
        |ctx, value, args| {
            let at = args.word(0)?;
            (holds(ctx, at, &args[1..])? != WHEN[at].starts_with('!')).then_some(value)
        },
    ),
    conv("x509_v_err_str", &[], Int, Str, "OpenSSL's name of a result of verifying a certificate.", |_, value, _| {
        let number = value.to_int()?;
        Some(match u32::try_from(number).ok().and_then(crate::x509::result_name) {
            Some("OK") => Value::str(b"X509_V_OK"),
            Some(name) => Value::string(format!("X509_V_ERR_{name}")),
            None => Value::string((number as u64).to_string()),
        })
    }),
];

/// What `when` may ask for, each also with `!` before it.
const WHEN: &[&str] = &[
    "acl",
    "error",
    "forwarded",
    "normal",
    "processed",
    "stopping",
    "toapplet",
    "!acl",
    "!error",
    "!forwarded",
    "!normal",
    "!processed",
    "!stopping",
    "!toapplet",
];

/// Whether a condition of `when` holds.
fn holds(ctx: &Context<'_>, condition: usize, args: &[Arg]) -> Option<bool> {
    let forwarded = || ctx.server.is_some();
    let by_service = || ctx.server.is_none() && ctx.log.no_server != LogFacts::default().no_server;
    Some(match WHEN[condition].trim_start_matches('!') {
        "acl" => {
            args.iter().all(|arg| matches!(arg, Arg::Acl { acl, negated } if acl.decide(ctx).is_yes() != *negated))
        }
        "error" => ctx.log.is_error(ctx.txn.status),
        "forwarded" => forwarded(),
        "normal" => !ctx.log.is_error(ctx.txn.status),
        "processed" => forwarded() || by_service(),
        "stopping" => ctx.world.stopping(),
        _ => by_service(),
    })
}

/// An IPv4 address that is written as IPv6 (`::ffff:1.2.3.4`) is masked with the IPv4 mask.
fn unmapped(value: Value<'_>) -> Value<'_> {
    match value {
        Value::Ipv6(ip) => v6_to_v4(ip).map_or(value, Value::Ipv4),
        other => other,
    }
}

fn jwt_query<'c>(token: &[u8], part: usize, args: &[Arg]) -> Option<Value<'c>> {
    let json = URL_SAFE_NO_PAD.decode(token.split(|&byte| byte == b'.').nth(part)?).ok()?;
    match args.bytes(0) {
        Some(path) => json_query(&json, path, args.word(1).is_some()),
        // Its three parts make a token (RFC 7515, 3.1): without a path into it, anything would pass for JSON.
        None => (memchr::memchr_iter(b'.', token).count() == 2).then(|| Value::string(json)),
    }
}

/// Evaluates `$.name[1].other`. It finds text, numbers and booleans, but not objects and lists. Numbers are returned as
/// text, or on request as integers without their fraction; those beyond 2^53, which JSON cannot represent exactly, are
/// not found.
/// What a path finds in JSON: an array as it is written, the value of what else is no object.
fn json_query<'c>(json: &[u8], path: &[u8], int: bool) -> Option<Value<'c>> {
    turn::spend_on_bytes(json.len(), cost::JSON_BYTES);
    let is_whole = serde_json::from_slice::<IgnoredAny>(json).is_ok();
    let mut rest = std::str::from_utf8(path).ok()?.strip_prefix('$').filter(|_| is_whole)?;
    let mut at = json.trim_ascii();
    while !rest.is_empty() {
        if let Some(name) = rest.strip_prefix('.') {
            let end = name.find(['.', '[']).unwrap_or(name.len());
            at = json_member(at, &name[..end])?;
            rest = &name[end..];
        } else {
            let (index, after) = rest.strip_prefix('[')?.split_once(']')?;
            at = json_element(at, index.parse().ok()?)?;
            rest = after;
        }
    }
    if at.first() == Some(&b'[') {
        return Some(Value::string(at));
    }
    Some(match serde_json::from_slice(at).ok()? {
        serde_json::Value::Bool(b) => Value::Bool(b),
        serde_json::Value::Number(n) if int => {
            let n = n.as_i64().or_else(|| n.as_f64().map(|n| n as i64))?;
            Value::Int(Some(n).filter(|n| n.unsigned_abs() < 1 << 53)?)
        }
        serde_json::Value::Number(n) => match n.as_i64() {
            Some(n) => Value::string(n.to_string()),
            None => Value::string(general(n.as_f64()?)),
        },
        serde_json::Value::String(text) => Value::string(text),
        _ => return None,
    })
}

/// The first member of this name of a JSON object, as it is written.
fn json_member<'j>(object: &'j [u8], name: &str) -> Option<&'j [u8]> {
    let mut rest = object.strip_prefix(b"{")?;
    loop {
        let (key, after) = json_value(rest)?;
        let (value, after) = json_value(after.trim_ascii_start().strip_prefix(b":")?)?;
        if serde_json::from_slice::<String>(key).ok()? == name {
            return Some(value);
        }
        rest = after.trim_ascii_start().strip_prefix(b",")?;
    }
}

/// An element of a JSON array, as it is written.
fn json_element(array: &[u8], index: usize) -> Option<&[u8]> {
    let mut rest = array.strip_prefix(b"[")?;
    for _ in 0..index {
        let (_, after) = json_value(rest)?;
        rest = after.trim_ascii_start().strip_prefix(b",")?;
    }
    json_value(rest).map(|(value, _)| value)
}

/// The value that JSON begins with, and what follows it.
fn json_value(json: &[u8]) -> Option<(&[u8], &[u8])> {
    let json = json.trim_ascii_start();
    let mut values = serde_json::Deserializer::from_slice(json).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    json.split_at_checked(values.byte_offset())
}

/// A number as `%g` of printf(3) writes it: six digits, and an exponent only if that is shorter.
fn general(n: f64) -> String {
    if n == 0.0 {
        return "0".to_owned();
    }
    let scientific = format!("{n:.5e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..6).contains(&exponent) {
        return trimmed(&format!("{n:.*}", usize::try_from(5 - exponent).unwrap_or(0)));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(digits), exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_find_their_way() {
        let json = br#"{"a":{"b":[1,2.5,"x"]},"t":true,"n":null}"#;
        let find = |path: &str| json_query(json, path.as_bytes(), false);
        assert_eq!(find("$.a.b[0]"), Some(Value::string("1")));
        assert_eq!(find("$.a.b[1]"), Some(Value::string("2.5")));
        assert_eq!(find("$.a.b[2]"), Some(Value::string("x")));
        assert_eq!(find("$.a.b"), Some(Value::string(r#"[1,2.5,"x"]"#)));
        assert_eq!((find("$.a"), find("$.a.b[3]"), find("$.a[0]"), find("$.a.b.x")), (None, None, None, None));
        assert_eq!(find("$.t"), Some(Value::Bool(true)));
        assert_eq!((find("$.n"), find("$.x"), find("a"), find("$.a.b[")), (None, None, None, None));
    }

    #[test]
    fn arrays_are_as_they_are_written_and_the_first_of_two_members_counts() {
        let json = br#" { "x" : { "a" : 0 } , "a" : [ 1 , {"b" : "]"} ] , "a":[], "\u0062" : true } "#;
        let find = |path: &str| json_query(json, path.as_bytes(), false);
        assert_eq!(find("$.a"), Some(Value::string(r#"[ 1 , {"b" : "]"} ]"#)));
        assert_eq!((find("$.a[1].b"), find("$.b")), (Some(Value::string("]")), Some(Value::Bool(true))));
        assert_eq!(json_query(b"[1,2", b"$[0]", false), None, "what is not JSON holds nothing");
        assert_eq!(json_query(b"{\"a\":1} x", b"$.a", false), None);
    }

    #[test]
    fn numbers_are_written_as_printf_does() {
        for (n, text) in [
            (2.5, "2.5"),
            (1000.0, "1000"),
            (0.1, "0.1"),
            (123456.7, "123457"),
            (1e20, "1e+20"),
            (1.5e-7, "1.5e-07"),
            (0.0001, "0.0001"),
            (-0.00001234, "-1.234e-05"),
        ] {
            assert_eq!(general(n), text);
        }
    }

    #[test]
    fn a_token_is_taken_apart() {
        let token = format!(
            "{}.{}.sig",
            URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256"}"#),
            URL_SAFE_NO_PAD.encode(r#"{"sub":"x"}"#)
        );
        let args = [Arg::Bytes(b"$.sub"[..].into())];
        assert_eq!(jwt_query(token.as_bytes(), 1, &args), Some(Value::string("x")));
        assert_eq!(jwt_query(b"not a token", 1, &args), None);
    }
}
