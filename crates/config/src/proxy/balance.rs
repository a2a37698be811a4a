//! How a server is chosen: `balance`, `hash-type`, `cookie`.

use super::draft::Draft;
use crate::{
    Line, Span, Word,
    args::{Args, Parsed, Reported},
    keyword::{ANYTHING, BACK, FRONT, Keyword, NONE, ONE, SOME, at_least, between},
    model::{Balance, BalanceKey, Cookie, CookieMode, HashFunction, HashType},
};

type Entry = Keyword<Draft>;

pub(super) const KEYWORDS: &[Entry] = &[
    Entry::new("balance", ANYTHING, "How the load is distributed to servers", balance).at(BACK),
    Entry::new("hash-type", between(1, 3), "How a hash is computed and mapped to servers", hash_type).at(BACK),
    Entry::new("hash-balance-factor", ONE, "Load over the average at which hashing goes to the next server", |d, a| {
        let word = a.word("a percentage")?;
        let factor: u32 = a.number_in(word, &word.text, "a percentage", 0..=65535)?;
        if (1..=100).contains(&factor) {
            return a.wrong(
                word,
                format!("'{factor}' leaves no room above the average load"),
                "expected 0 for off, or a value over 100",
            );
        }
        d.proxy.hash_balance_factor = factor;
        Ok(())
    })
    .spare()
    .at(BACK),
    Entry::new("hash-preserve-affinity", ONE, "Whether a full server keeps the clients that hash to it", |_, a| {
        a.choice("a policy", &[("always", ()), ("maxconn", ()), ("maxqueue", ())])
    })
    .at(BACK)
    .notice("a full server's clients wait in its queue"),
    Entry::new("cookie", SOME, "The cookie that identifies a client's server", cookie).at(BACK),
    Entry::refused(
        "appsession",
        "Persistence by an application's own cookie",
        "HAProxy 1.6 removed it",
        "use 'cookie NAME insert indirect nocache'",
    )
    .at(BACK),
    Entry::new("dynamic-cookie-key", ONE, "Secret from which servers' cookie values are derived", |d, a| {
        d.proxy.dynamic_cookie_key = Some(a.text("a secret")?);
        Ok(())
    })
    .spare()
    .at(BACK)
    .notice("give each server its cookie"),
    Entry::new("persist rdp-cookie", NONE, "The server whose address is in a cookie of RDP, 'msts'", |d, a| {
        let name = match a.verb.split_once('(') {
            None => "msts",
            Some((_, name)) => match name.strip_suffix(')').filter(|name| !name.is_empty()) {
                Some(name) => name,
                None => {
                    a.error("the name of the cookie is missing").hint("expected 'persist rdp-cookie(msts)'");
                    return Err(Reported);
                }
            },
        };
        d.proxy.persist_rdp_cookie = Some(rdp_cookie_line(name, a.span));
        Ok(())
    })
    .spare()
    .at(BACK),
    Entry::new(
        "max-keep-alive-queue",
        ONE,
        "Queue length above which a kept connection may go to another server",
        |d, a| {
            // -1 stands for no limit.
            d.proxy.max_keep_alive_queue =
                u32::try_from(a.number("a number of requests", -1..=i64::from(i32::MAX))?).ok();
            Ok(())
        },
    )
    .spare()
    .at(BACK),
    Entry::new(
        "max-session-srv-conns",
        ONE,
        "Number of idle server connections that a client's session may keep",
        |_, a| a.number("a number of connections", -1..=i64::from(i32::MAX)).map(drop),
    )
    .at(FRONT)
    .notice("a session keeps its own connections as long as it lasts"),
    Entry::new("use-server", at_least(2), "Chooses a server by name under a condition", |d, a| {
        let rest = a.rest();
        d.proxy.use_server.push(rest);
        Ok(())
    })
    .at(crate::keyword::BACK_ONLY),
];

/// A balance algorithm.
struct Algorithm {
    /// The algorithm's syntax in error messages: the word, and the argument in parentheses if it has one.
    form: &'static str,
    read: Reader,
    /// What may follow `balance`, for tests and for whoever makes configurations.
    examples: &'static [&'static str],
}

/// Parses what follows the word: its argument in parentheses, and the rest of the line.
type Reader = fn(&'static str, Given<'_>, &mut Args<'_>) -> Parsed<Balance>;

/// The word of an algorithm, and its argument in parentheses.
#[derive(Clone, Copy)]
struct Given<'a> {
    word: &'a Word,
    argument: Option<&'a str>,
}

const ALGORITHMS: &[Algorithm] = &[
    Algorithm { form: "roundrobin", read: plain, examples: &["roundrobin"] },
    Algorithm { form: "static-rr", read: plain, examples: &["static-rr"] },
    Algorithm { form: "leastconn", read: plain, examples: &["leastconn"] },
    Algorithm { form: "first", read: plain, examples: &["first"] },
    Algorithm { form: "source", read: |name, _, _| Ok(Balance::by(name, BalanceKey::Source)), examples: &["source"] },
    Algorithm {
        form: "uri",
        read: uri,
        examples: &["uri", "uri whole", "uri path-only", "uri path-only len 4", "uri depth 1", "uri len 3"],
    },
    Algorithm {
        form: "url_param",
        read: url_param,
        examples: &["url_param a", "url_param a check_post", "url_param a check_post 64"],
    },
    Algorithm { form: "hdr(NAME)", read: hdr, examples: &["hdr(x-a)", "hdr(host) use_domain_only"] },
    Algorithm { form: "random(DRAWS)", read: random, examples: &["random", "random(3)"] },
    Algorithm { form: "rdp-cookie(NAME)", read: rdp_cookie, examples: &["rdp-cookie", "rdp-cookie(mstshash)"] },
    Algorithm { form: "hash", read: hash, examples: &["hash path", "hash req.hdr(x-a),lower"] },
];

impl Algorithm {
    fn name(&self) -> &'static str {
        self.form.split('(').next().unwrap_or_default()
    }

    fn takes(&self, argument: Option<&str>) -> bool {
        argument.is_none() || self.form.ends_with(')')
    }
}

/// The words that `balance` accepts.
pub fn algorithms() -> impl Iterator<Item = &'static str> {
    ALGORITHMS.iter().map(Algorithm::name)
}

/// Lines of `balance` that are valid, without that word: some of each algorithm.
pub fn examples() -> impl Iterator<Item = &'static str> {
    ALGORITHMS.iter().flat_map(|row| row.examples).copied()
}

fn balance(draft: &mut Draft, args: &mut Args<'_>) -> Parsed {
    // `balance` without arguments means the default algorithm.
    if args.peek().is_none() {
        draft.proxy.balance = Some(Balance::default());
        return Ok(());
    }
    let word = args.word("an algorithm")?;
    let (name, argument) = match word.text.split_once('(') {
        Some((name, rest)) => match rest.strip_suffix(')') {
            Some(argument) => (name, Some(argument)),
            None => return args.wrong(word, "this parenthesis is never closed", "expected ')'"),
        },
        None => (word.text.as_str(), None),
    };
    let Some(algorithm) = ALGORITHMS.iter().find(|row| row.name() == name && row.takes(argument)) else {
        let hint = crate::args::expected(name, ALGORITHMS.iter().map(|row| row.form));
        return args.wrong(word, format!("'{}' is not a balance algorithm", word.text), hint);
    };
    let balance = (algorithm.read)(algorithm.name(), Given { word, argument }, args)?;
    args.unexpected(&[])?;
    draft.proxy.balance = Some(balance);
    Ok(())
}

fn plain(name: &'static str, _: Given<'_>, _: &mut Args<'_>) -> Parsed<Balance> {
    Ok(Balance::plain(name))
}

fn url_param(algorithm: &'static str, _: Given<'_>, args: &mut Args<'_>) -> Parsed<Balance> {
    let name = args.text("the name of a URL parameter")?;
    let check_post = match args.take_if("check_post") {
        true if args.peek().is_some() => Some(args.number("a number of bytes", 0..=u32::MAX)?),
        true => Some(48),
        false => None,
    };
    Ok(Balance::by(algorithm, BalanceKey::UrlParam { name, check_post }))
}

fn hdr(algorithm: &'static str, given: Given<'_>, args: &mut Args<'_>) -> Parsed<Balance> {
    let Some(header) = given.argument.filter(|header| !header.is_empty()) else {
        return args.wrong(given.word, "'hdr' needs the name of a header", "for instance 'balance hdr(Host)'");
    };
    let use_domain_only = args.take_if("use_domain_only");
    Ok(Balance::by(algorithm, BalanceKey::Hdr { name: header.to_owned(), use_domain_only }))
}

fn random(algorithm: &'static str, given: Given<'_>, args: &mut Args<'_>) -> Parsed<Balance> {
    let draws = given.argument;
    let draws = draws.map_or(Ok(2), |n| args.number_in(given.word, n, "a number of draws", 1..=i32::MAX as u32))?;
    Ok(Balance { draws, ..Balance::plain(algorithm) })
}

fn rdp_cookie(algorithm: &'static str, given: Given<'_>, _: &mut Args<'_>) -> Parsed<Balance> {
    let line = rdp_cookie_line(given.argument.unwrap_or("mstshash"), given.word.span);
    Ok(Balance::by(algorithm, BalanceKey::Sample(line)))
}

/// The expression of a cookie of RDP.
fn rdp_cookie_line(name: &str, span: Span) -> Line {
    Line { words: vec![Word { text: format!("rdp_cookie({name})"), span }], span }
}

fn hash(algorithm: &'static str, _: Given<'_>, args: &mut Args<'_>) -> Parsed<Balance> {
    args.word("a sample expression")?;
    args.next -= 1;
    Ok(Balance::by(algorithm, BalanceKey::Sample(args.rest())))
}

fn uri(algorithm: &'static str, _: Given<'_>, args: &mut Args<'_>) -> Parsed<Balance> {
    let (mut whole, mut path_only, mut len, mut depth) = (false, false, None, None);
    while let Some(word) = args.take() {
        match word.text.as_str() {
            "whole" => whole = true,
            "path-only" => path_only = true,
            "len" => len = Some(args.number("a length", 1..=i32::MAX as u32)?),
            "depth" => depth = Some(args.number("a number of slashes", 1..=i32::MAX as u32)?),
            _ => {
                args.next -= 1;
                args.unexpected(&["len", "depth", "path-only", "whole"])?;
            }
        }
    }
    Ok(Balance::by(algorithm, BalanceKey::Uri { whole, path_only, len, depth }))
}

fn hash_type(draft: &mut Draft, args: &mut Args<'_>) -> Parsed {
    const FUNCTIONS: &[(&str, HashFunction)] = &[
        ("sdbm", HashFunction::Sdbm),
        ("djb2", HashFunction::Djb2),
        ("wt6", HashFunction::Wt6),
        ("crc32", HashFunction::Crc32),
        ("none", HashFunction::None),
    ];
    let method = args.word("a method")?;
    let mut hash = HashType::default();
    match method.text.as_str() {
        "consistent" => hash.consistent = true,
        "map-based" => {}
        other => {
            let hint = crate::args::expected(other, ["consistent", "map-based"].into_iter());
            return args.wrong(method, format!("'{other}' is not a hash method"), hint);
        }
    }
    if args.peek().is_some() {
        hash.function = args.choice("a hash function", FUNCTIONS)?;
        hash.avalanche |= args.take_if("avalanche");
    } else if hash.consistent {
        // HAProxy's default: consistent hashing uses the avalanche modifier.
        hash.avalanche = true;
    }
    args.unexpected(&["avalanche"])?;
    draft.proxy.hash_type = hash;
    Ok(())
}

/// The text of an attribute of a cookie, all of whose characters are `allowed`.
fn attribute(args: &mut Args<'_>, what: &str, allowed: impl Fn(char) -> bool) -> Parsed<String> {
    let word = args.word(what)?;
    match word.text.chars().find(|c| !allowed(*c)) {
        Some(wrong) => args.wrong(word, format!("{wrong:?} cannot be in {what} of a cookie"), "remove it"),
        None => Ok(word.text.clone()),
    }
}

const COOKIE_WORDS: &[&str] = &[
    "rewrite", "insert", "prefix", "indirect", "nocache", "postonly", "preserve", "httponly", "secure", "domain",
    "maxidle", "maxlife", "dynamic", "attr",
];

fn cookie(draft: &mut Draft, args: &mut Args<'_>) -> Parsed {
    let mut cookie = Cookie { name: args.text("the name of a cookie")?, ..Cookie::default() };
    let mut modes = 0;
    while let Some(word) = args.take() {
        match word.text.as_str() {
            "rewrite" => (cookie.mode, modes) = (CookieMode::Rewrite, modes + 1),
            "insert" => (cookie.mode, modes) = (CookieMode::Insert, modes + 1),
            "prefix" => (cookie.mode, modes) = (CookieMode::Prefix, modes + 1),
            "indirect" => cookie.indirect = true,
            "nocache" => cookie.nocache = true,
            "postonly" => cookie.postonly = true,
            "preserve" => cookie.preserve = true,
            "httponly" => cookie.httponly = true,
            "secure" => cookie.secure = true,
            "dynamic" => {
                cookie.dynamic = true;
                args.diagnostics().notice(word.span, "'dynamic' has no effect: give each server its cookie");
            }
            "domain" => cookie
                .domains
                .push(attribute(args, "a domain", |c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))?),
            // More attributes, or even header fields, would begin behind one of these.
            "attr" => cookie.attrs.push(attribute(args, "an attribute", |c| !c.is_ascii_control() && c != ';')?),
            "maxidle" => cookie.maxidle = Some(args.time_in_unit("a time", std::time::Duration::from_secs(1))?),
            "maxlife" => cookie.maxlife = Some(args.time_in_unit("a time", std::time::Duration::from_secs(1))?),
            _ => {
                args.next -= 1;
                args.unexpected(COOKIE_WORDS)?;
            }
        }
    }
    if modes > 1 {
        args.error("'cookie' takes only one of 'rewrite', 'insert' and 'prefix'");
        return Err(crate::args::Reported);
    }
    if cookie.indirect && cookie.mode == CookieMode::Rewrite {
        args.error("'indirect' cannot be combined with 'rewrite'").hint("use 'insert indirect'");
        return Err(crate::args::Reported);
    }
    if cookie.preserve && cookie.mode != CookieMode::Insert && !cookie.indirect {
        args.error("'preserve' has no effect without 'insert' or 'indirect'").hint("write 'insert preserve'");
        return Err(crate::args::Reported);
    }
    draft.proxy.cookie = Some(cookie);
    Ok(())
}
