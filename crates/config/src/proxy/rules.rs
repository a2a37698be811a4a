//! Rules, whose words are stored for `penstock-rules` to compile.

use super::draft::Draft;
use crate::{
    args::{Args, Parsed},
    keyword::{
        ANY, BACK_ONLY, BACK_RULES, FRONT, FRONT_ONLY, FRONT_RULES, Keyword, ONE, Places, RULES, SOME, at_least,
        exactly,
    },
    model::{Capture, Proxy},
    name::valid_name,
    span::{Line, Word},
};

type Entry = Keyword<Draft>;

pub(super) const KEYWORDS: &[Entry] = &[
    Entry::new("acl", at_least(2), "Declares a named condition", |d, a| {
        if let Some(name) = a.peek() {
            valid_name(name, a.around)?;
            if matches!(name.text.as_str(), "or" | "if" | "unless" | "rw" | "any" | "ne" | "all") && name.text == "or" {
                return a.wrong(name, "'or' cannot name a condition", "it joins conditions; choose another name");
            }
        }
        push(d, a, |p| &mut p.acls)
    })
    .at(RULES),
    rule("http-request", RULES, "Rules for requests", |d, a| push(d, a, |p| &mut p.http_request)),
    rule("http-response", RULES, "Rules for responses of servers", |d, a| push(d, a, |p| &mut p.http_response)),
    rule("http-after-response", RULES, "Rules for every response, including the proxy's own", |d, a| {
        push(d, a, |p| &mut p.http_after_response)
    }),
    rule("tcp-request connection", FRONT_RULES, "Rules for connections before their first byte", |d, a| {
        push(d, a, |p| &mut p.tcp_request_connection)
    }),
    rule(
        "tcp-request client-hello",
        FRONT_RULES,
        "What to do with a TLS connection once its ClientHello is read",
        |d, a| push(d, a, |p| &mut p.tcp_request_client_hello),
    ),
    rule("tcp-request session", FRONT_RULES, "Rules for connections after their handshakes", |d, a| {
        push(d, a, |p| &mut p.tcp_request_session)
    }),
    rule("tcp-request content", RULES, "Rules for the first bytes of a stream", |d, a| {
        push(d, a, |p| &mut p.tcp_request_content)
    }),
    Entry::new("tcp-request inspect-delay", ONE, "Longest wait for the bytes that content rules ask for", |d, a| {
        d.proxy.tcp_request_inspect_delay = Some(a.time("a time")?);
        Ok(())
    })
    .spare()
    .at(RULES),
    rule("tcp-response content", BACK_RULES, "Rules for the first bytes of a response", |d, a| {
        push(d, a, |p| &mut p.tcp_response_content)
    }),
    Entry::new("tcp-response inspect-delay", ONE, "Longest wait for the bytes that content rules ask for", |d, a| {
        d.proxy.tcp_response_inspect_delay = Some(a.time("a time")?);
        Ok(())
    })
    .spare()
    .at(BACK_RULES),
    rule("redirect", ANY, "Answers with a redirection", |d, a| push(d, a, |p| &mut p.redirects)),
    Entry::new("use_backend", SOME, "Chooses a backend by name under a condition", |d, a| {
        push(d, a, |p| &mut p.use_backend)
    })
    .at(FRONT_ONLY),
    rule("force-persist", BACK_ONLY, "The cookie's server is used even when it is down", persist),
    rule("ignore-persist", BACK_ONLY, "Ignores the persistence cookie under a condition", persist),
    Entry::new("capture request header", exactly(3), "Keeps a request header for the log", |d, a| {
        let capture = capture(a)?;
        d.proxy.capture_request_headers.push(capture);
        Ok(())
    })
    .at(FRONT_ONLY),
    Entry::new("capture response header", exactly(3), "Keeps a response header for the log", |d, a| {
        let capture = capture(a)?;
        d.proxy.capture_response_headers.push(capture);
        Ok(())
    })
    .at(FRONT_ONLY),
    Entry::new("capture cookie", exactly(3), "Keeps a cookie for the log", |d, a| {
        d.proxy.capture_cookie = Some(capture(a)?);
        Ok(())
    })
    .at(FRONT_ONLY),
    Entry::new("declare capture request", exactly(2), "Reserves room that rules may capture into", |d, a| {
        declare(d, a, true)
    })
    .at(FRONT_ONLY),
    Entry::new("declare capture response", exactly(2), "Reserves room that rules may capture into", |d, a| {
        declare(d, a, false)
    })
    .at(FRONT_ONLY),
    Entry::new("unique-id-format", ONE, "How a request's unique identifier is made", |d, a| {
        d.proxy.unique_id_format = Some(a.word("a format")?.clone());
        Ok(())
    })
    .at(FRONT),
    Entry::new("unique-id-header", ONE, "The request header that carries the unique identifier", |d, a| {
        d.proxy.unique_id_header = Some(a.text("the name of a header")?);
        Ok(())
    })
    .spare()
    .at(FRONT),
    removed("reqadd", "write 'http-request add-header'"),
    removed("reqallow", "write 'http-request allow'"),
    removed("reqiallow", "write 'http-request allow'"),
    removed("reqdel", "write 'http-request del-header'"),
    removed("reqidel", "write 'http-request del-header'"),
    removed("reqdeny", "write 'http-request deny'"),
    removed("reqideny", "write 'http-request deny'"),
    removed("reqpass", "write 'http-request allow'"),
    removed("reqipass", "write 'http-request allow'"),
    removed("reqrep", "write 'http-request' with replace-path, replace-uri or replace-header"),
    removed("reqirep", "write 'http-request' with replace-path, replace-uri or replace-header"),
    removed("reqsetbe", "write 'use_backend'"),
    removed("reqisetbe", "write 'use_backend'"),
    removed("reqtarpit", "write 'http-request tarpit'"),
    removed("reqitarpit", "write 'http-request tarpit'"),
    removed("rspadd", "write 'http-response add-header'"),
    removed("rspdel", "write 'http-response del-header'"),
    removed("rspidel", "write 'http-response del-header'"),
    removed("rspdeny", "write 'http-response deny'"),
    removed("rspideny", "write 'http-response deny'"),
    removed("rsprep", "write 'http-response replace-header'"),
    removed("rspirep", "write 'http-response replace-header'"),
    removed("block", "write 'http-request deny'"),
];

const fn rule(
    name: &'static str,
    places: Places,
    doc: &'static str,
    parse: fn(&mut Draft, &mut Args<'_>) -> Parsed,
) -> Entry {
    Entry::new(name, SOME, doc, parse).at(places)
}

const fn removed(name: &'static str, instead: &'static str) -> Entry {
    Entry::refused(name, "A rule of HAProxy 1.x", "HAProxy 2.1 removed it", instead)
}

fn push(draft: &mut Draft, args: &mut Args<'_>, list: fn(&mut Proxy) -> &mut Vec<Line>) -> Parsed {
    let line = args.rest();
    list(&mut draft.proxy).push(line);
    Ok(())
}

/// Keeps the keyword as the first word, because it tells `force-persist` from `ignore-persist`.
fn persist(draft: &mut Draft, args: &mut Args<'_>) -> Parsed {
    let keyword = Word { text: args.keyword.to_owned(), span: args.keyword_span };
    let mut line = args.rest();
    line.words.insert(0, keyword);
    draft.proxy.persist_rules.push(line);
    Ok(())
}

/// Parses `NAME len N`.
fn capture(args: &mut Args<'_>) -> Parsed<Capture> {
    let name = args.text("a name")?;
    Ok(Capture { name, len: length(args)?, span: args.keyword_span })
}

/// Parses `len N`.
fn length(args: &mut Args<'_>) -> Parsed<u32> {
    args.choice("the word 'len'", &[("len", ())])?;
    args.number("a length", 0..=i32::MAX as u32)
}

fn declare(draft: &mut Draft, args: &mut Args<'_>, request: bool) -> Parsed {
    args.choice("the word 'len'", &[("len", ())])?;
    let len = args.number("a length", 1..=i32::MAX as u32)?;
    draft.proxy.declare_captures.push((request, len, args.keyword_span));
    Ok(())
}
