//! Fetches of HTTP messages (section 7.3.6).

use super::{
    fields::{
        all, all_binary, cookie_names, count, count_elements, count_lines, element, element_ip, line, names, parse_ip,
        request_cookie, response_cookie,
    },
    internal::{in_exchange, int},
    spec::{FetchSpec, each, one},
};
use crate::{
    context::{Context, Phase},
    hash,
    keyword::{
        Arg,
        ArgKind::{self, Int as Number, Range, Str as Text},
        ArgSpec, Args, Places, arg, opt,
    },
    sample::{Cursor, Fetched, Missing},
    turn::{self, cost},
    value::{
        Type::{Addr, Bin, Bool, Int, Method, Str},
        Value, parse_int,
    },
};
use base64::Engine as _;
use penstock_http::{Known, RequestHead, ResponseHead, Version};
use std::{borrow::Cow, net::IpAddr};

const REQUEST: Places = Places::IN_REQUEST;
const RESPONSE: Places = Places::IN_RESPONSE;
const KEPT: Places = Places::FROM_REQUEST;
/// As in HAProxy, also while a server is chosen, where there is no response yet.
const CACHED: Places = Places::FROM_RESPONSE.or(Places::SERVER);
/// The methods for which HAProxy has numbers.
const NUMBERED_METHODS: &[&[u8]] = &[b"OPTIONS", b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"TRACE", b"CONNECT"];
const NAME: &[ArgSpec] = &[opt("name", Text)];
/// HAProxy counts back at most ten occurrences.
const FIELD: &[ArgSpec] = &[opt("name", Text), opt("occurrence", Range(-10, i64::MAX))];
const PARAM: &[ArgSpec] = &[opt("name", Text), opt("delimiter", Text), opt("flags", ArgKind::Within("i"))];
/// A parameter of a form in a body; `i` ignores the case of its name.
const FORM: &[ArgSpec] = &[opt("name", Text), opt("flags", ArgKind::Within("i"))];
const INDEX: &[ArgSpec] = &[arg("index", Number)];
const DELIM: &[ArgSpec] = &[opt("delimiter", Text)];
const LIST: &[ArgSpec] = &[arg("userlist", ArgKind::Userlist)];

pub(super) const TABLE: &[FetchSpec] = &[
    one("base", &[], Str, REQUEST, "The first Host field and the path, the query left out.", |ctx, _| {
        base(ctx, false).map(Value::Str)
    }),
    one("base32", &[], Int, REQUEST, "A 32-bit hash of `base`.", |ctx, _| int(hash32(&base(ctx, false)?))),
    one("base32+src", &[], Bin, REQUEST, "That hash and the client's address, as bytes.", |ctx, _| {
        with_source(ctx, hash32(&base(ctx, false)?))
    }),
    one("baseq", &[], Str, REQUEST, "The first Host field, the path and the query.", |ctx, _| {
        base(ctx, true).map(Value::Str)
    }),
    one("capture.req.hdr", INDEX, Str, KEPT, "What a request capture slot holds.", |ctx, args| {
        captured(&ctx.txn.request_captures, args)
    }),
    one("capture.req.method", &[], Str, KEPT, "The method as received.", |ctx, _| received(ctx, |line| line.method())),
    one("capture.req.uri", &[], Str, KEPT, "The path as received, with its query.", |ctx, _| {
        path_of(ctx.txn.received.target()).map(Value::str).ok_or(Missing::Absent)
    }),
    one("capture.req.ver", &[], Str, KEPT, "`HTTP/1.0` or `HTTP/1.1`, as received.", |ctx, _| {
        received(ctx, |line| if line.version() == b"HTTP/1.0" { b"HTTP/1.0" } else { b"HTTP/1.1" })
    }),
    one("capture.res.hdr", INDEX, Str, Places::FROM_RESPONSE, "What a response capture slot holds.", |ctx, args| {
        captured(&ctx.txn.response_captures, args)
    }),
    one("capture.res.ver", &[], Str, KEPT, "`HTTP/1.0` or `HTTP/1.1`, as the response had it.", |ctx, _| {
        match ctx.txn.response_version {
            Some(Version::Http10) => Ok(Value::str(b"HTTP/1.0")),
            Some(_) => Ok(Value::str(b"HTTP/1.1")),
            None => Err(Missing::Absent),
        }
    }),
    one("req.body", &[], Bin, REQUEST, "The part of the request's body that is buffered.", |ctx, _| {
        request(ctx)?;
        Ok(Value::bin(ctx.input.body()))
    })
    .changing(|ctx, _| !ctx.input.raw && !ctx.input.complete),
    one("req.body_len", &[], Int, REQUEST, "Bytes of the request's body that are buffered.", |ctx, _| {
        request(ctx)?;
        int(ctx.input.body().len() as i64)
    }),
    each("req.body_param", FORM, Bin, REQUEST, "A parameter of a form in the request's body.", |ctx, args, cursor| {
        request(ctx)?;
        parameter(ctx.input.body(), Named::of(args, 1), b'&', cursor).map(Value::bin)
    }),
    one(
        "req.body_size",
        &[],
        Int,
        REQUEST,
        "Announced length of the request's body, or what is buffered.",
        |ctx, _| {
            request(ctx)?;
            int(ctx.input.announced.unwrap_or(ctx.input.body().len() as u64) as i64)
        },
    ),
    each("req.cook", NAME, Str, REQUEST, "A cookie of the request.", |ctx, args, cursor| {
        request_cookie(&request(ctx)?.fields, args.bytes(0), cursor).map(Value::str)
    }),
    one("req.cook_cnt", NAME, Int, REQUEST, "How often a cookie occurs in the request.", |ctx, args| {
        let fields = &request(ctx)?.fields;
        count(|cursor| request_cookie(fields, args.bytes(0), cursor).is_ok())
    }),
    one("req.cook_names", DELIM, Str, REQUEST, "Names of the request's cookies, comma separated.", |ctx, args| {
        Ok(cookie_names(&request(ctx)?.fields, Known::Cookie, args.bytes(0)))
    }),
    each("req.cook_val", NAME, Int, REQUEST, "A cookie of the request, as a number.", |ctx, args, cursor| {
        number(request_cookie(&request(ctx)?.fields, args.bytes(0), cursor)?)
    }),
    each("req.fhdr", FIELD, Str, REQUEST, "A whole field line of the request, commas and all.", |ctx, args, cursor| {
        line(&request(ctx)?.fields, args, cursor).map(Value::str)
    }),
    one("req.fhdr_cnt", NAME, Int, REQUEST, "Field lines of a name in the request.", |ctx, args| {
        count_lines(&request(ctx)?.fields, args.bytes(0))
    }),
    each(
        "req.hdr",
        FIELD,
        Str,
        REQUEST,
        "A value of a field of the request; commas separate values.",
        |ctx, args, cursor| element(&request(ctx)?.fields, args, cursor).map(Value::str),
    ),
    one("req.hdr_cnt", NAME, Int, REQUEST, "Values of a field of the request.", |ctx, args| {
        count_elements(&request(ctx)?.fields, args.bytes(0))
    }),
    each(
        "req.hdr_ip",
        FIELD,
        Addr,
        REQUEST,
        "A value of a field of the request, as an address.",
        |ctx, args, cursor| element_ip(&request(ctx)?.fields, args, cursor),
    ),
    one("req.hdr_names", DELIM, Str, REQUEST, "Names of the request's fields, comma separated.", |ctx, args| {
        Ok(names(&request(ctx)?.fields, args.bytes(0)))
    }),
    each("req.hdr_val", FIELD, Int, REQUEST, "A value of a field of the request, as a number.", |ctx, args, cursor| {
        number(element(&request(ctx)?.fields, args, cursor)?)
    }),
    one("req.hdrs", &[], Bin, REQUEST, "All fields of the request as text.", |ctx, _| Ok(all(&request(ctx)?.fields))),
    one("req.hdrs_bin", &[], Bin, REQUEST, "All fields of the request, each length encoded before it.", |ctx, _| {
        Ok(all_binary(&request(ctx)?.fields))
    }),
    one("req.ver", &[], Str, REQUEST, "The request's version: 1.0, 1.1, 2.0.", |ctx, _| {
        Ok(Value::string(request(ctx)?.received_version()[5..].to_vec()))
    }),
    one("http_auth", LIST, Bool, REQUEST, "Whether the request's login is in a userlist.", |ctx, args| {
        Ok(Value::Bool(login(ctx, args)?.is_some()))
    }),
    one(
        "http_auth_bearer",
        &[opt("field", Text)],
        Str,
        REQUEST,
        "The token of an authorisation by Bearer.",
        |ctx, args| {
            let fields = &request(ctx)?.fields;
            let value = match args.bytes(0) {
                Some(name) => fields.get(name),
                None => fields.known(Known::Authorization),
            };
            let (kind, token) = value.and_then(split_scheme).ok_or(Missing::Absent)?;
            if kind.eq_ignore_ascii_case(b"bearer") { Ok(Value::str(token)) } else { Err(Missing::Absent) }
        },
    ),
    each(
        "http_auth_group",
        LIST,
        Str,
        REQUEST,
        "The login's groups in a userlist; by itself, its user.",
        |ctx, args, cursor| {
            let Some(Arg::Userlist(list)) = args.first() else { return Err(Missing::Absent) };
            let user = login(ctx, args)?.ok_or(Missing::Absent)?;
            if !cursor.iterating {
                return Ok(Value::string(user));
            }
            let groups = list.groups(&user);
            let group = groups.get(cursor.given).ok_or(Missing::Absent)?;
            cursor.given += 1;
            cursor.more = cursor.given < groups.len();
            Ok(Value::str(group.as_bytes()))
        },
    ),
    one("http_auth_pass", &[], Str, REQUEST, "The password of an authorisation by Basic.", |ctx, _| {
        Ok(Value::string(basic_credentials(request(ctx)?).ok_or(Missing::Absent)?.1))
    }),
    one("http_auth_type", &[], Str, REQUEST, "The scheme of the authorisation.", |ctx, _| {
        let head = request(ctx)?;
        let value = head.fields.known(Known::Authorization).and_then(split_scheme).ok_or(Missing::Absent)?;
        // The schemes whose credentials can be parsed, by their registered names.
        if basic_credentials(head).is_some() {
            Ok(Value::str(b"Basic"))
        } else if value.0.eq_ignore_ascii_case(b"bearer") {
            Ok(Value::str(b"Bearer"))
        } else {
            Err(Missing::Absent)
        }
    }),
    one("http_auth_user", &[], Str, REQUEST, "The user of an authorisation by Basic.", |ctx, _| {
        Ok(Value::string(basic_credentials(request(ctx)?).ok_or(Missing::Absent)?.0))
    }),
    one("http_first_req", &[], Bool, KEPT, "Whether this is the connection's first request.", |ctx, _| {
        in_exchange(ctx)?;
        Ok(Value::Bool(ctx.session.requests <= 1))
    }),
    one("method", &[], Method, KEPT, "The request's method.", |ctx, _| {
        // HAProxy stores the number of the method that the client sent, whatever `set-method` does later. A method
        // without a number is read from the request's line, and dropped with it.
        let received = ctx.txn.received.method();
        if received.is_empty() {
            return Err(ctx.input.later());
        }
        if NUMBERED_METHODS.contains(&received) {
            return Ok(Value::Method(Cow::Borrowed(received)));
        }
        let is_over = ctx.response.is_some() || ctx.phase == Phase::After;
        let head = ctx.request.as_deref().filter(|_| !is_over).ok_or(Missing::Absent)?;
        Ok(Value::Method(Cow::Borrowed(head.method())))
    }),
    one("path", &[], Str, REQUEST, "The path, without the query.", |ctx, _| {
        let path = request(ctx)?.path();
        // The target of `OPTIONS *` has no path.
        if path.starts_with(b"/") { Ok(Value::str(path)) } else { Err(Missing::Absent) }
    }),
    one("pathq", &[], Str, REQUEST, "The path and the query.", |ctx, _| {
        let path = request(ctx)?.path_and_query();
        if path.starts_with(b"/") { Ok(Value::str(path)) } else { Err(Missing::Absent) }
    }),
    one("query", &[], Str, REQUEST, "What follows the first `?`.", |ctx, _| {
        request(ctx)?.query().map(Value::str).ok_or(Missing::Absent)
    }),
    one("res.body", &[], Bin, RESPONSE, "The part of the response's body that is buffered.", |ctx, _| {
        response(ctx)?;
        Ok(Value::bin(ctx.output.body()))
    })
    .changing(|ctx, _| !ctx.output.raw && !ctx.output.complete),
    one("res.body_len", &[], Int, RESPONSE, "Bytes of the response's body that are buffered.", |ctx, _| {
        response(ctx)?;
        int(ctx.output.body().len() as i64)
    }),
    one(
        "res.body_size",
        &[],
        Int,
        RESPONSE,
        "Announced length of the response's body, or what is buffered.",
        |ctx, _| {
            response(ctx)?;
            int(ctx.output.announced.unwrap_or(ctx.output.body().len() as u64) as i64)
        },
    ),
    one("res.cache_hit", &[], Bool, CACHED, "Whether the response came from the cache.", |ctx, _| {
        Ok(Value::Bool(ctx.txn.cache.is_some()))
    }),
    one("res.cache_name", &[], Str, CACHED, "Name of the cache it came from.", |ctx, _| {
        ctx.txn.cache.as_ref().map(|name| Value::str(name.as_bytes())).ok_or(Missing::Absent)
    }),
    one("res.comp", &[], Bool, Places::FROM_RESPONSE, "Whether the response is compressed here.", |ctx, _| {
        Ok(Value::Bool(ctx.txn.compression.is_some()))
    }),
    one("res.comp_algo", &[], Str, Places::FROM_RESPONSE, "The algorithm it is compressed with.", |ctx, _| {
        ctx.txn.compression.map(|name| Value::str(name.as_bytes())).ok_or(Missing::Absent)
    }),
    each("res.cook", NAME, Str, RESPONSE, "A cookie the response sets.", |ctx, args, cursor| {
        response_cookie(&response(ctx)?.fields, args.bytes(0), cursor).map(Value::str)
    }),
    one("res.cook_cnt", NAME, Int, RESPONSE, "How often the response sets a cookie.", |ctx, args| {
        let fields = &response(ctx)?.fields;
        count(|cursor| response_cookie(fields, args.bytes(0), cursor).is_ok())
    }),
    one(
        "res.cook_names",
        DELIM,
        Str,
        RESPONSE,
        "Names of the cookies the response sets, comma separated.",
        |ctx, args| Ok(cookie_names(&response(ctx)?.fields, Known::SetCookie, args.bytes(0))),
    ),
    each("res.cook_val", NAME, Int, RESPONSE, "A cookie the response sets, as a number.", |ctx, args, cursor| {
        number(response_cookie(&response(ctx)?.fields, args.bytes(0), cursor)?)
    }),
    each("res.fhdr", FIELD, Str, RESPONSE, "A whole field line of the response.", |ctx, args, cursor| {
        line(&response(ctx)?.fields, args, cursor).map(Value::str)
    }),
    one("res.fhdr_cnt", NAME, Int, RESPONSE, "Field lines of a name in the response.", |ctx, args| {
        count_lines(&response(ctx)?.fields, args.bytes(0))
    }),
    each("res.hdr", FIELD, Str, RESPONSE, "A value of a field of the response.", |ctx, args, cursor| {
        element(&response(ctx)?.fields, args, cursor).map(Value::str)
    }),
    one("res.hdr_cnt", NAME, Int, RESPONSE, "Values of a field of the response.", |ctx, args| {
        count_elements(&response(ctx)?.fields, args.bytes(0))
    }),
    each(
        "res.hdr_ip",
        FIELD,
        Addr,
        RESPONSE,
        "A value of a field of the response, as an address.",
        |ctx, args, cursor| element_ip(&response(ctx)?.fields, args, cursor),
    ),
    one("res.hdr_names", DELIM, Str, RESPONSE, "Names of the response's fields, comma separated.", |ctx, args| {
        Ok(names(&response(ctx)?.fields, args.bytes(0)))
    }),
    each(
        "res.hdr_val",
        FIELD,
        Int,
        RESPONSE,
        "A value of a field of the response, as a number.",
        |ctx, args, cursor| number(element(&response(ctx)?.fields, args, cursor)?),
    ),
    one("res.hdrs", &[], Bin, RESPONSE, "All fields of the response as text.", |ctx, _| {
        Ok(all(&response(ctx)?.fields))
    }),
    one("res.hdrs_bin", &[], Bin, RESPONSE, "All fields of the response, each length encoded before it.", |ctx, _| {
        Ok(all_binary(&response(ctx)?.fields))
    }),
    one("res.ver", &[], Str, RESPONSE, "The response's version: 1.0, 1.1.", |ctx, _| {
        Ok(Value::str(&response(ctx)?.version().as_str().as_bytes()[5..]))
    }),
    one("status", &[], Int, Places::FROM_RESPONSE, "The response's status.", |ctx, _| {
        match (ctx.response.as_deref(), ctx.txn.status) {
            // In the log, responses made here have no version.
            _ if ctx.phase != Phase::During && ctx.txn.response_version.is_none() => Err(Missing::Absent),
            (Some(head), _) => int(head.status()),
            // What is not HTTP has none.
            (None, Some(0)) => Err(Missing::Absent),
            (None, Some(status)) => int(status),
            (None, None) => Err(ctx.output.later()),
        }
    }),
    one("url", &[], Str, REQUEST, "The target as it stands in the request.", |ctx, _| {
        Ok(Value::str(request(ctx)?.target()))
    }),
    one("url32", &[], Int, REQUEST, "A 32-bit hash of the first Host field and the whole target.", |ctx, _| {
        int(hash32(&base(ctx, true)?))
    }),
    one("url32+src", &[], Bin, REQUEST, "That hash and the client's address, as bytes.", |ctx, _| {
        with_source(ctx, hash32(&base(ctx, true)?))
    }),
    one("url_ip", &[], Addr, REQUEST, "The address in an absolute target.", |ctx, _| {
        let authority = request(ctx)?.authority().ok_or(Missing::Absent)?;
        parse_ip(authority.host).map(Value::ip).ok_or(Missing::Absent)
    }),
    one("url_port", &[], Int, REQUEST, "The port behind the address in an absolute target, else 80.", |ctx, _| {
        let authority = request(ctx)?.authority().ok_or(Missing::Absent)?;
        parse_ip(authority.host).ok_or(Missing::Absent)?;
        int(authority.port.unwrap_or(80))
    }),
    each("urlp", PARAM, Str, REQUEST, "A parameter of the query.", |ctx, args, cursor| {
        parameter_of_query(ctx, args, cursor).map(Value::str)
    }),
    each("urlp_val", PARAM, Int, REQUEST, "A parameter of the query, as a number.", |ctx, args, cursor| {
        number(parameter_of_query(ctx, args, cursor)?)
    }),
];

/// The request, for rules that run before it is sent to a server.
fn request<'c>(ctx: &'c Context<'_>) -> Result<&'c RequestHead, Missing> {
    if ctx.response.is_some() && ctx.phase == Phase::During {
        return Err(Missing::Absent);
    }
    ctx.request.as_deref().ok_or(ctx.input.later())
}

fn response<'c>(ctx: &'c Context<'_>) -> Result<&'c ResponseHead, Missing> {
    ctx.response.as_deref().ok_or(ctx.output.later())
}

fn base<'c>(ctx: &'c Context<'_>, query: bool) -> Result<Cow<'c, [u8]>, Missing> {
    let head = request(ctx)?;
    let path = if query { head.path_and_query() } else { head.path() };
    match head.fields.known(Known::Host) {
        Some(host) if path.starts_with(b"/") => Ok(Cow::Owned([host, path].concat())),
        Some(host) => Ok(Cow::Borrowed(host)),
        None if path.is_empty() => Err(Missing::Absent),
        None => Ok(Cow::Borrowed(path)),
    }
}

fn hash32(bytes: &[u8]) -> u32 {
    hash::avalanche(hash::sdbm(bytes))
}

fn with_source<'c>(ctx: &Context<'_>, hash: u32) -> Fetched<'c> {
    let mut out = hash.to_be_bytes().to_vec();
    match ctx.txn.source(ctx.conn).map(|src| src.ip()) {
        Some(IpAddr::V4(ip)) => out.extend(ip.octets()),
        Some(IpAddr::V6(ip)) => out.extend(ip.octets()),
        None => return Err(Missing::Absent),
    }
    Ok(Value::Bin(Cow::Owned(out)))
}

fn captured<'c>(slots: &'c [Option<Vec<u8>>], args: &[Arg]) -> Fetched<'c> {
    let slot = args.int(0).and_then(|n| slots.get(usize::try_from(n).ok()?));
    slot.and_then(Option::as_deref).map(Value::str).ok_or(Missing::Absent)
}

fn received<'c>(ctx: &'c Context<'_>, part: impl Fn(&'c crate::RequestLine) -> &'c [u8]) -> Fetched<'c> {
    if ctx.txn.received.is_empty() { Err(Missing::Absent) } else { Ok(Value::str(part(&ctx.txn.received))) }
}

/// The path and query of a target, unless it has none: it is `*`, an authority, or ends with one.
pub(crate) fn path_of(target: &[u8]) -> Option<&[u8]> {
    if target.starts_with(b"/") {
        return Some(target);
    }
    let authority = memchr::memmem::find(target, b"://")? + 3;
    memchr::memchr(b'/', &target[authority..]).map(|at| &target[authority + at..])
}

fn number<'c>(text: &[u8]) -> Fetched<'c> {
    // An empty field counts as 0.
    int(parse_int(text).unwrap_or(0))
}

fn parameter_of_query<'c>(ctx: &'c Context<'_>, args: &'c [Arg], cursor: &mut Cursor) -> Result<&'c [u8], Missing> {
    let head = request(ctx)?;
    let delimiter = args.bytes(1).and_then(|d| d.first().copied());
    let query = match delimiter {
        None | Some(b'?') => head.query().ok_or(Missing::Absent)?,
        // Parameters start after the first delimiter of the other kind, wherever it is.
        Some(delimiter) => {
            let path = head.path_and_query();
            let at = memchr::memchr(delimiter, path).ok_or(Missing::Absent)?;
            &path[at + 1..]
        }
    };
    parameter(query, Named::of(args, 2), delimiter.unwrap_or(b'?'), cursor)
}

/// Which parameter is looked for.
struct Named<'a> {
    /// All, if it is empty.
    name: &'a [u8],
    ignore_case: bool,
}

impl<'a> Named<'a> {
    /// By the first argument, and that with the flags.
    fn of(args: &'a [Arg], flags: usize) -> Named<'a> {
        let ignore_case = args.bytes(flags).is_some_and(|flags| flags.contains(&b'i'));
        Named { name: args.bytes(0).unwrap_or_default(), ignore_case }
    }

    fn is(&self, known: &[u8]) -> bool {
        self.name.is_empty()
            || if self.ignore_case { self.name.eq_ignore_ascii_case(known) } else { self.name == known }
    }
}

/// The first parameter with a name, or one after another when iterating.
fn parameter<'c>(query: &'c [u8], named: Named<'_>, delimiter: u8, cursor: &mut Cursor) -> Result<&'c [u8], Missing> {
    let mut rest = query.get(cursor.position..).unwrap_or_default();
    let (mut found, mut looked_at) = (None, 0_usize);
    while !rest.is_empty() && found.is_none() {
        let end = rest.iter().position(|&b| b == delimiter || matches!(b, b'&' | b';')).unwrap_or(rest.len());
        let pair = &rest[..end];
        rest = rest.get(end + 1..).unwrap_or_default();
        looked_at += 1;
        let equals = memchr::memchr(b'=', pair);
        found = equals.filter(|&equals| named.is(&pair[..equals])).map(|equals| &pair[equals + 1..]);
    }
    turn::spend(looked_at.div_ceil(cost::PARTS) as u32);
    if found.is_some() {
        cursor.position = query.len() - rest.len();
        cursor.more = cursor.iterating && !rest.is_empty();
    }
    found.ok_or(Missing::Absent)
}

/// Splits `Basic abc` into its two words. As in HAProxy, a comma ends them.
fn split_scheme(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let value = super::fields::split_raw(value).next()?;
    let space = memchr::memchr(b' ', value)?;
    Some((&value[..space], value[space + 1..].trim_ascii()))
}

/// User and password according to RFC 7617.
pub(crate) fn basic_credentials(head: &RequestHead) -> Option<(Vec<u8>, Vec<u8>)> {
    let (scheme, token) = split_scheme(head.fields.known(Known::Authorization)?)?;
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return None;
    }
    let mut user = base64::engine::general_purpose::STANDARD.decode(token).ok()?;
    let colon = memchr::memchr(b':', &user)?;
    let password = user.split_off(colon + 1);
    user.pop();
    Some((user, password))
}

/// The user if the login is right; `None` if there is no login.
fn login(ctx: &Context<'_>, args: &[Arg]) -> Result<Option<Vec<u8>>, Missing> {
    let Some(Arg::Userlist(list)) = args.first() else { return Err(Missing::Absent) };
    let (user, password) = basic_credentials(request(ctx)?).ok_or(Missing::Absent)?;
    let right = ctx.txn.logins.ask(list, &user, &password).ok_or(Missing::NotYet)?;
    Ok(right.then_some(user))
}
