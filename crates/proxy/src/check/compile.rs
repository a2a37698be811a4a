//! From `option httpchk`, `http-check`, `option tcp-check`, `tcp-check` and their like to a [`Script`].

use super::script::{Action, Connect, Expect, Kind, Match, Pattern, Piece, Request, Script, Step, Template};
use super::{Verdict, protocol};
use penstock_config::{
    Diagnostics, Line, Span, Word,
    model::{CheckKind, Proxy},
};
use regex::bytes::Regex;

/// The check of a backend's servers; what is wrong with it goes to `diagnostics`.
pub fn compile(proxy: &Proxy, diagnostics: &mut Diagnostics) -> Script {
    match &proxy.check {
        CheckKind::Connect => protocol::connect(),
        CheckKind::SslHello => protocol::ssl_hello(),
        CheckKind::Smtp(hello) => {
            let (hello, domain) = hello.as_ref().map_or(("HELO", "localhost"), |(h, d)| (h.as_str(), d.as_str()));
            protocol::smtp(hello, domain)
        }
        CheckKind::Mysql(user) => protocol::mysql(user.as_deref()),
        CheckKind::Pgsql(user) => protocol::pgsql(user),
        CheckKind::Redis => protocol::redis(),
        CheckKind::Ldap => protocol::ldap(),
        CheckKind::Tcp => compile_tcp(proxy, diagnostics),
        CheckKind::Http { method, uri, version } => {
            compile_http(proxy, [method.as_deref(), uri.as_deref(), version.as_deref()], diagnostics)
        }
    }
}

/// The words of one directive, one after the other.
struct Words<'a> {
    line: &'a Line,
    at: usize,
    diagnostics: &'a mut Diagnostics,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a Word> {
        let word = self.line.words.get(self.at)?;
        self.at += 1;
        Some(word)
    }

    /// The argument of `keyword`.
    fn argument(&mut self, keyword: &Word) -> &'a str {
        match self.next() {
            Some(word) => &word.text,
            None => {
                self.diagnostics.error(keyword.span, format!("'{}' expects an argument", keyword.text));
                ""
            }
        }
    }

    fn number<T: std::str::FromStr>(&mut self, keyword: &Word) -> Option<T> {
        let span = self.line.words.get(self.at).map_or(keyword.span, |word| word.span);
        let text = self.argument(keyword);
        let number = text.parse().ok();
        if number.is_none() {
            self.error(span, format!("'{}' expects a number, not '{text}'", keyword.text));
        }
        number
    }

    fn template(&mut self, keyword: &Word) -> Template {
        let span = self.line.words.get(self.at).map_or(keyword.span, |word| word.span);
        let text = self.argument(keyword);
        self.parse_template(text, span)
    }

    /// A log format of which checks know the names that make sense without a client.
    fn parse_template(&mut self, text: &str, span: Span) -> Template {
        let (mut pieces, mut rest) = (Vec::new(), text);
        while let Some(at) = rest.find("%[") {
            let Some(end) = rest[at..].find(']') else { break };
            pieces.push(Piece::Bytes(rest.as_bytes()[..at].to_vec()));
            match &rest[at + 2..at + end] {
                "srv_name" => pieces.push(Piece::ServerName),
                "be_name" => pieces.push(Piece::BackendName),
                other => {
                    let text = format!("'{other}' has no value in a health check");
                    self.diagnostics.error(span, text).hint("srv_name and be_name have");
                }
            }
            rest = &rest[at + end + 1..];
        }
        pieces.push(Piece::Bytes(rest.as_bytes().to_vec()));
        pieces.retain(|piece| *piece != Piece::Bytes(Vec::new()));
        Template(pieces)
    }

    fn regex(&mut self, pattern: &str, span: Span) -> Regex {
        Regex::new(pattern).unwrap_or_else(|error| {
            self.error(span, format!("'{pattern}' is no regular expression: {error}"));
            Regex::new("^").expect("the empty beginning is a regular expression")
        })
    }

    fn error(&mut self, span: Span, text: String) {
        self.diagnostics.error(span, text);
    }

    fn unknown(&mut self, word: &Word) {
        self.error(word.span, format!("'{}' is not known here", word.text));
    }
}

fn implicit() -> Step {
    let connect = Connect { implicit: true, as_server: true, ..Connect::default() };
    Step { action: Action::Connect(connect), comment: None }
}

/// Puts the connection in front that nobody wrote.
fn with_connection(mut steps: Vec<Step>) -> Vec<Step> {
    let first = steps.iter().find(|step| !matches!(step.action, Action::Comment));
    if !matches!(first.map(|step| &step.action), Some(Action::Connect(_))) {
        steps.insert(0, implicit());
    }
    steps
}

fn compile_tcp(proxy: &Proxy, diagnostics: &mut Diagnostics) -> Script {
    let mut steps = Vec::new();
    for line in &proxy.tcp_check {
        let words = &mut Words { line, at: 0, diagnostics };
        let Some(verb) = words.next() else { continue };
        let step = match verb.text.as_str() {
            "connect" => connect(words),
            "comment" => comment(words, verb),
            "expect" => expect(words, Kind::Tcp),
            "send" | "send-lf" | "send-binary" | "send-binary-lf" => {
                let span = line.words.get(1).map_or(verb.span, |word| word.span);
                let bytes = match verb.text.as_str() {
                    "send" => Template::bytes(words.argument(verb)),
                    "send-lf" => words.template(verb),
                    _ => {
                        let text = words.argument(verb);
                        Template::bytes(hex(text).unwrap_or_else(|| {
                            words.error(span, format!("'{text}' is not hexadecimal"));
                            Vec::new()
                        }))
                    }
                };
                let comment = trailing_comment(words);
                Some(Step { action: Action::Send(bytes), comment })
            }
            _ => {
                words.unknown(verb);
                None
            }
        };
        steps.extend(step);
    }
    Script { steps: with_connection(steps), kind: Kind::Tcp, ..Script::default() }
}

fn compile_http(proxy: &Proxy, option: [Option<&str>; 3], diagnostics: &mut Diagnostics) -> Script {
    let [method, uri, version] = option;
    let mut script = Script { kind: Kind::Http, ..Script::default() };
    // Headers used to be smuggled in behind the version: they still are.
    let (version, extra) =
        version.unwrap_or("HTTP/1.0").split_once("\r\n").unwrap_or((version.unwrap_or("HTTP/1.0"), ""));
    let headers = extra.split("\r\n").filter_map(|line| line.split_once(':'));
    let base = Request {
        method: method.unwrap_or("OPTIONS").into(),
        uri: Template::bytes(uri.unwrap_or("/")),
        version: version.into(),
        headers: headers.map(|(name, value)| (name.trim().into(), Template::bytes(value.trim()))).collect(),
        body: Template::default(),
    };
    let mut steps = Vec::new();
    let mut requests = 0;
    for line in &proxy.http_check {
        let words = &mut Words { line, at: 0, diagnostics };
        let Some(verb) = words.next() else { continue };
        match verb.text.as_str() {
            "disable-on-404" => script.disable_on_404 = true,
            "send-state" => script.send_state = true,
            "connect" => steps.extend(connect(words)),
            "comment" => steps.extend(comment(words, verb)),
            "expect" => steps.extend(expect(words, Kind::Http)),
            "send" => {
                requests += 1;
                let base = if requests == 1 { base.clone() } else { Request { uri: Template::bytes("/"), ..fresh() } };
                steps.push(request(words, base));
            }
            _ => words.unknown(verb),
        }
    }
    if requests == 0 {
        let at = steps.iter().position(|step| matches!(step.action, Action::Expect(_))).unwrap_or(steps.len());
        steps.insert(at, Step { action: Action::Request(base), comment: None });
    }
    steps = with_connection(steps);
    if !steps.iter().any(|step| matches!(step.action, Action::Expect(_))) {
        let well = Expect::new(Pattern::Status(vec![(200, 399)]));
        steps.push(Step { action: Action::Expect(well), comment: None });
    }
    Script { steps, ..script }
}

fn fresh() -> Request {
    Request { method: "GET".into(), version: "HTTP/1.0".into(), ..Request::default() }
}

fn connect(words: &mut Words<'_>) -> Option<Step> {
    let (mut connect, mut comment) = (Connect::default(), None);
    while let Some(word) = words.next() {
        match word.text.as_str() {
            "default" => connect.as_server = true,
            "port" => connect.port = words.number(word),
            "addr" => connect.addr = words.number(word),
            "ssl" => connect.ssl = true,
            "sni" => connect.sni = Some(words.argument(word).into()),
            "send-proxy" => connect.send_proxy = true,
            "linger" | "via-socks4" => {}
            "alpn" | "proto" => {
                words.argument(word);
            }
            "comment" => comment = Some(words.argument(word).into()),
            _ => words.unknown(word),
        }
    }
    Some(Step { action: Action::Connect(connect), comment })
}

fn comment(words: &mut Words<'_>, verb: &Word) -> Option<Step> {
    Some(Step { action: Action::Comment, comment: Some(words.argument(verb).into()) })
}

fn trailing_comment(words: &mut Words<'_>) -> Option<String> {
    let word = words.next()?;
    if word.text != "comment" {
        words.unknown(word);
        return None;
    }
    Some(words.argument(word).into())
}

fn request(words: &mut Words<'_>, mut request: Request) -> Step {
    let mut comment = None;
    while let Some(word) = words.next() {
        match word.text.as_str() {
            "meth" => request.method = words.argument(word).into(),
            "uri" => request.uri = Template::bytes(words.argument(word)),
            "uri-lf" => request.uri = words.template(word),
            "ver" => request.version = words.argument(word).into(),
            "hdr" => {
                let name = words.argument(word).to_string();
                let value = words.template(word);
                request.headers.push((name, value));
            }
            "body" => request.body = Template::bytes(words.argument(word)),
            "body-lf" => request.body = words.template(word),
            "comment" => comment = Some(words.argument(word).into()),
            _ => words.unknown(word),
        }
    }
    Step { action: Action::Request(request), comment }
}

fn expect(words: &mut Words<'_>, kind: Kind) -> Option<Step> {
    let mut expect = Expect::new(Pattern::Status(Vec::new()));
    let mut comment = None;
    let mut found = false;
    while let Some(word) = words.next() {
        let http = kind == Kind::Http;
        match word.text.as_str() {
            "!" => expect.inverse = !expect.inverse,
            "comment" => comment = Some(words.argument(word).to_string()),
            "min-recv" => expect.min_recv = words.number::<i64>(word).map_or(0, |n| usize::try_from(n).unwrap_or(0)),
            "ok-status" => expect.ok_status = verdict(words, word),
            "error-status" => expect.error_status = verdict(words, word),
            "tout-status" => expect.timeout_status = verdict(words, word),
            "on-success" => expect.on_success = Some(words.template(word)),
            "on-error" => expect.on_error = Some(words.template(word)),
            "status-code" => {
                words.argument(word);
            }
            _ => {
                found = true;
                expect.pattern = pattern(words, word, http)?;
            }
        }
    }
    if !found {
        words.error(words.line.span, "'expect' says nothing of what is expected".into());
        return None;
    }
    Some(Step { action: Action::Expect(expect), comment })
}

fn pattern(words: &mut Words<'_>, word: &Word, http: bool) -> Option<Pattern> {
    let text = words.argument(word).to_string();
    let span = words.line.words.get(words.at - 1).map_or(word.span, |word| word.span);
    Some(match (word.text.as_str(), http) {
        ("string" | "string-lf", true) => Pattern::BodyBytes(text.into_bytes()),
        ("rstring", true) => Pattern::BodyRegex(words.regex(&text, span)),
        ("string" | "string-lf", false) => Pattern::Bytes { bytes: text.into_bytes(), name: "string" },
        ("rstring", false) => Pattern::Regex { regex: words.regex(&text, span), hexadecimal: false },
        ("binary" | "binary-lf", false) => match hex(&text) {
            Some(bytes) => Pattern::Bytes { bytes, name: "binary" },
            None => {
                words.error(span, format!("'{text}' is not hexadecimal"));
                return None;
            }
        },
        // The expression is matched against the bytes written in hexadecimal, in capitals.
        ("rbinary", false) => Pattern::Regex { regex: words.regex(&text, span), hexadecimal: true },
        ("status", true) => Pattern::Status(statuses(words, &text, span)),
        ("rstatus", true) => Pattern::StatusRegex(words.regex(&text, span)),
        ("hdr" | "fhdr", true) => {
            // The word taken for the argument is `name` or `name-lf`.
            let name = matched(words, span)?;
            let value = match words.line.words.get(words.at).map(|word| word.text.as_str()) {
                Some("value" | "value-lf") => {
                    words.at += 1;
                    Some(matched(words, span)?)
                }
                _ => None,
            };
            Pattern::Header { full: word.text == "fhdr", name, value }
        }
        _ => {
            words.unknown(word);
            return None;
        }
    })
}

/// `[-m METHOD] TEXT`.
fn matched(words: &mut Words<'_>, span: Span) -> Option<Match> {
    let mut method = "str";
    let mut word = words.next();
    if word.is_some_and(|word| word.text == "-m") {
        method = words.next().map_or("", |word| word.text.as_str());
        word = words.next();
    }
    let Some(word) = word else {
        words.error(span, "a name or value is missing".into());
        return None;
    };
    let bytes = word.text.as_bytes().to_vec();
    Some(match method {
        "str" => Match::Is(bytes),
        "beg" => Match::Begins(bytes),
        "end" => Match::Ends(bytes),
        "sub" => Match::Has(bytes),
        "reg" => Match::Regex(words.regex(&word.text, word.span)),
        _ => {
            words.error(span, format!("'{method}' is no way to match: str, beg, end, sub or reg"));
            return None;
        }
    })
}

fn verdict(words: &mut Words<'_>, keyword: &Word) -> Option<Verdict> {
    let name = words.argument(keyword).to_string();
    let verdict = Verdict::named(&name);
    if verdict.is_none() {
        words.error(keyword.span, format!("'{name}' is no status of a check"));
    }
    verdict
}

/// `200,204,300-399`.
fn statuses(words: &mut Words<'_>, text: &str, span: Span) -> Vec<(u16, u16)> {
    let parse = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
    };
    let ranges: Option<Vec<(u16, u16)>> = text.split(',').map(parse).collect();
    ranges.unwrap_or_else(|| {
        words.error(span, format!("'{text}' is no list of statuses such as '200,300-399'"));
        Vec::new()
    })
}

fn hex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}
