//! Parses the words of `http-check` and `tcp-check` lines into [`Step`]s.

use super::{
    Verdict,
    script::{Action, Connect, Expect, Kind, Match, Pattern, Request, Step, Text, hex},
};
use penstock_config::{Diagnostics, Line, Span, Word, model::ProxyId};
use penstock_rules::{Compiler, Expr, LogFormat, Places, Regex, log::Purpose};
use std::net::{IpAddr, SocketAddr};

/// The words of a directive, taken one after another.
pub(super) struct Words<'a, 'c> {
    line: &'a Line,
    at: usize,
    proxy: ProxyId,
    compiler: &'a mut Compiler<'c>,
}

/// Whether a step is `set-var(NAME)`, `set-var-fmt(NAME)` or `unset-var(NAME)`.
pub(super) fn is_variable(verb: &str) -> bool {
    ["set-var(", "set-var-fmt(", "unset-var("].iter().any(|start| verb.starts_with(start))
}

impl<'a, 'c> Words<'a, 'c> {
    /// A cursor over all words of a line.
    pub fn new(line: &'a Line, proxy: ProxyId, compiler: &'a mut Compiler<'c>) -> Self {
        Words { line, at: 0, proxy, compiler }
    }

    /// The next word.
    pub fn next(&mut self) -> Option<&'a Word> {
        let word = self.line.words.get(self.at)?;
        self.at += 1;
        Some(word)
    }

    /// Whether the line ends here; reports a word that follows.
    pub fn ends(&mut self) -> bool {
        match self.next() {
            Some(word) => self.unknown(word).is_some(),
            None => true,
        }
    }

    /// Reports an unknown word.
    pub fn unknown(&mut self, word: &Word) -> Option<Step> {
        self.error(word.span, format!("'{}' is not known here", word.text));
        None
    }

    fn diagnostics(&mut self) -> &mut Diagnostics {
        self.compiler.diagnostics()
    }

    fn error(&mut self, span: Span, text: String) {
        self.diagnostics().error(span, text);
    }

    /// The word after `keyword`; if there is none, reports that and returns an empty one.
    fn value(&mut self, keyword: &Word) -> Word {
        match self.next() {
            Some(word) => word.clone(),
            None => {
                self.error(keyword.span, format!("'{}' expects an argument", keyword.text));
                Word { text: String::new(), span: keyword.span }
            }
        }
    }

    fn argument(&mut self, keyword: &Word) -> String {
        self.value(keyword).text
    }

    fn number(&mut self, keyword: &Word) -> Option<i64> {
        let word = self.value(keyword);
        let number = word.text.parse().ok();
        if number.is_none() {
            self.error(word.span, format!("'{}' expects a number, not '{}'", keyword.text, word.text));
        }
        number
    }

    fn format(&mut self, keyword: &Word) -> LogFormat {
        let word = self.value(keyword);
        self.format_of(&word)
    }

    fn format_of(&mut self, word: &Word) -> LogFormat {
        self.compiler.format(word, Purpose::Text, self.proxy, Places::CHECK).unwrap_or_default()
    }

    fn expression(&mut self, word: Word) -> Option<Expr> {
        let line = Line { span: word.span, words: vec![word] };
        self.compiler.expression(&line, self.proxy, Places::CHECK)
    }

    /// The text after `keyword`, which is one of the variants of `send` and `expect`.
    fn text(&mut self, keyword: &Word) -> Option<Text> {
        let word = self.value(keyword);
        let (hexadecimal, format) = (keyword.text.contains("binary"), keyword.text.ends_with("-lf"));
        if format {
            return Some(Text { format: self.format_of(&word), hexadecimal });
        }
        let bytes = penstock_config::bytes_of(&word.text);
        if !hexadecimal {
            return Some(Text::bytes(&bytes));
        }
        let bytes = hex(&bytes);
        if bytes.is_none() {
            self.error(word.span, format!("'{}' is not hexadecimal", word.text));
        }
        bytes.map(|bytes| Text::bytes(&bytes))
    }

    fn regex(&mut self, word: &Word, ignore_case: bool) -> Option<Regex> {
        match Regex::new(&word.text, ignore_case) {
            Ok(regex) => Some(regex),
            Err(problem) => {
                self.error(word.span, problem.message);
                None
            }
        }
    }

    /// Parses `connect`; `before` are the steps before it, which must start with a connection if they contain any
    /// action.
    pub fn connect(&mut self, before: &[Step]) -> Option<Step> {
        let first = before.iter().find(|step| step.action.acts());
        if first.is_some_and(|step| !matches!(step.action, Action::Connect(_))) {
            let span = self.line.span;
            let hint = "a comment, 'set-var' or 'unset-var' may stand before it";
            let text = "where there is a 'connect', the first step must be one";
            self.diagnostics().error(span, text).hint(hint);
        }
        let (mut connect, mut comment) = (Connect::default(), None);
        while let Some(word) = self.next() {
            match word.text.as_str() {
                "default" => connect.as_server = true,
                "port" => {
                    let port = self.value(word);
                    match port.text.parse() {
                        Ok(0) => {
                            self.error(port.span, "0 is not a port: write 1 to 65535, or an expression".to_owned())
                        }
                        Ok(port) => connect.port = Some(port),
                        Err(_) => connect.port_from = self.expression(port),
                    }
                }
                "addr" => {
                    let text = self.argument(word);
                    match (text.parse::<IpAddr>(), text.parse::<SocketAddr>()) {
                        (Ok(ip), _) => connect.addr = Some(ip),
                        (_, Ok(address)) => {
                            connect.addr = Some(address.ip());
                            connect.port = connect.port.or(Some(address.port()));
                        }
                        _ => self.error(word.span, format!("'{text}' is not an address: write IP or IP:PORT")),
                    }
                }
                "ssl" => connect.ssl = true,
                "sni" => connect.sni = Some(self.argument(word)),
                "alpn" => connect.alpn = Some(self.argument(word).split(',').map(str::to_owned).collect()),
                "send-proxy" => connect.send_proxy = true,
                "linger" => connect.linger = true,
                "via-socks4" => {
                    let text = "'via-socks4' has no effect: servers have no SOCKS4 proxy";
                    self.diagnostics().notice(word.span, text);
                }
                "proto" => {
                    let text = self.argument(word);
                    if text != "h1" {
                        let text = format!("checks do not speak '{text}': HTTP/1 is all they know");
                        self.error(word.span, text);
                    }
                }
                "comment" => comment = Some(self.argument(word)),
                _ => {
                    self.unknown(word);
                }
            }
        }
        Some(Step { action: Action::Connect(connect), comment })
    }

    /// A step that sets or unsets a variable.
    pub fn variable(&mut self) -> Option<Step> {
        let rules = self.compiler.check_step(self.line, self.proxy)?;
        Some(Step { action: Action::Set(rules), comment: None })
    }

    /// A step that consists of a `comment`.
    pub fn comment(&mut self, verb: &Word) -> Option<Step> {
        Some(Step { action: Action::Comment, comment: Some(self.argument(verb)) })
    }

    /// Parses `tcp-check send` and its variants.
    pub fn send(&mut self, verb: &Word) -> Option<Step> {
        let text = self.text(verb)?;
        let mut comment = None;
        while let Some(word) = self.next() {
            match word.text.as_str() {
                "comment" => comment = Some(self.argument(word)),
                _ => return self.unknown(word),
            }
        }
        Some(Step { action: Action::Send(text), comment })
    }

    /// Parses `http-check send`, which changes or completes `request`.
    pub fn request(&mut self, mut request: Request) -> Step {
        let mut comment = None;
        while let Some(word) = self.next() {
            match word.text.as_str() {
                "meth" => request.method = self.argument(word),
                "uri" => request.uri = LogFormat::literal(self.argument(word).as_bytes()),
                "uri-lf" => request.uri = self.format(word),
                "ver" => request.version = self.argument(word),
                "hdr" => {
                    let name = self.argument(word);
                    let host = |name: &str| name.eq_ignore_ascii_case("host");
                    if name.is_empty() {
                        self.error(word.span, "'hdr' needs a name and a value".to_owned());
                    } else if host(&name) && request.headers.iter().any(|(name, _)| host(name)) {
                        self.error(word.span, "a request has one Host".to_owned());
                    }
                    request.headers.push((name, self.format(word)));
                }
                "body" => request.body = LogFormat::literal(&penstock_config::bytes_of(&self.argument(word))),
                "body-lf" => request.body = self.format(word),
                "comment" => comment = Some(self.argument(word)),
                _ => {
                    self.unknown(word);
                }
            }
        }
        Step { action: Action::Request(request), comment }
    }

    /// `expect`.
    pub fn expect(&mut self, kind: Kind) -> Option<Step> {
        let mut expect = Expect::new(Pattern::Status(Vec::new()));
        let (mut comment, mut found) = (None, false);
        while let Some(word) = self.next() {
            // A negation may be attached to the word it negates.
            let negated = Word { text: word.text.trim_start_matches('!').to_owned(), span: word.span };
            let word = if word.text.starts_with('!') {
                expect.inverse = !expect.inverse;
                &negated
            } else {
                word
            };
            match word.text.as_str() {
                "" => {}
                "comment" => comment = Some(self.argument(word)),
                "min-recv" => {
                    let number = self.number(word)?;
                    if number < -1 {
                        self.error(word.span, format!("'min-recv' expects -1 or a number of bytes, not '{number}'"));
                    }
                    expect.min_recv = usize::try_from(number).ok();
                }
                "ok-status" => expect.ok_status = self.verdict(word, &["L4OK", "L6OK", "L7OK", "L7OKC"]),
                "error-status" => expect.error_status = self.verdict(word, &["L4CON", "L6RSP", "L7RSP", "L7STS"]),
                "tout-status" => expect.timeout_status = self.verdict(word, &["L4TOUT", "L6TOUT", "L7TOUT"]),
                "on-success" => expect.on_success = Some(self.format(word)),
                "on-error" => expect.on_error = Some(self.format(word)),
                "status-code" => {
                    let value = self.value(word);
                    expect.code = self.expression(value);
                }
                _ if found => self.error(word.span, "'expect' takes one pattern".to_owned()),
                _ => {
                    found = true;
                    expect.pattern = self.pattern(word, kind == Kind::Http)?;
                }
            }
        }
        if !found {
            let span = self.line.span;
            self.error(span, "'expect' says nothing of what is expected".into());
            return None;
        }
        Some(Step { action: Action::Expect(expect), comment })
    }

    fn pattern(&mut self, word: &Word, http: bool) -> Option<Pattern> {
        Some(match (word.text.as_str(), http) {
            ("string", _) => Pattern::Bytes { text: self.text(word)?, name: "string" },
            ("string-lf", _) => Pattern::Bytes { text: self.text(word)?, name: "log-format string" },
            ("binary", false) => Pattern::Bytes { text: self.text(word)?, name: "binary" },
            ("binary-lf", false) => Pattern::Bytes { text: self.text(word)?, name: "log-format binary" },
            ("rstring", _) => {
                let pattern = self.value(word);
                Pattern::Regex { regex: self.regex(&pattern, false)?, hexadecimal: false }
            }
            // The expression is matched against the bytes in upper-case hexadecimal.
            ("rbinary", false) => {
                let pattern = self.value(word);
                Pattern::Regex { regex: self.regex(&pattern, false)?, hexadecimal: true }
            }
            ("status", true) => {
                let list = self.value(word);
                Pattern::Status(self.statuses(&list))
            }
            ("rstatus", true) => {
                let pattern = self.value(word);
                Pattern::StatusRegex(self.regex(&pattern, false)?)
            }
            ("hdr" | "fhdr", true) => {
                let name = self.value(word);
                if !matches!(name.text.as_str(), "name" | "name-lf") {
                    self.error(name.span, format!("'name' or 'name-lf' is expected, not '{}'", name.text));
                    return None;
                }
                let name = self.matched(&name, true)?;
                let value = match self.line.words.get(self.at) {
                    Some(value) if matches!(value.text.as_str(), "value" | "value-lf") => {
                        self.at += 1;
                        Some(self.matched(value, false)?)
                    }
                    _ => None,
                };
                Pattern::Header { full: word.text == "fhdr", name, value }
            }
            _ => {
                self.unknown(word);
                return None;
            }
        })
    }

    /// Parses `[-m METHOD] TEXT` after `keyword`.
    fn matched(&mut self, keyword: &Word, ignore_case: bool) -> Option<Match> {
        let mut method = "str".to_owned();
        let mut word = self.value(keyword);
        if word.text == "-m" {
            method = self.argument(&word);
            word = self.value(keyword);
        }
        let with_format = keyword.text.ends_with("-lf");
        if method == "reg" && !with_format {
            return self.regex(&word, ignore_case).map(Match::Regex);
        }
        let text = if with_format {
            self.format_of(&word)
        } else {
            LogFormat::literal(&penstock_config::bytes_of(&word.text))
        };
        Some(match method.as_str() {
            "str" => Match::Is(text),
            "beg" => Match::Begins(text),
            "end" => Match::Ends(text),
            "sub" => Match::Has(text),
            _ => {
                let text =
                    format!("unknown matching method '{method}': expected str, beg, end, sub, or reg without a format");
                self.error(word.span, text);
                return None;
            }
        })
    }

    /// A status of checks, one of those that the keyword takes.
    fn verdict(&mut self, keyword: &Word, statuses: &[&str]) -> Option<Verdict> {
        let word = self.value(keyword);
        let verdict = Verdict::named(&word.text)
            .filter(|_| statuses.iter().any(|status| status.eq_ignore_ascii_case(&word.text)));
        if verdict.is_none() {
            self.error(word.span, format!("'{}' takes {}, not '{}'", keyword.text, statuses.join(", "), word.text));
        }
        verdict
    }

    /// Parses `200,204,300-399`.
    fn statuses(&mut self, list: &Word) -> Vec<(u16, u16)> {
        let parse = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range: (u16, u16) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            (range.0 <= range.1).then_some(range)
        };
        let ranges: Option<Vec<(u16, u16)>> = list.text.split(',').map(parse).collect();
        ranges.unwrap_or_else(|| {
            self.error(list.span, format!("'{}' is not a list of statuses such as '200,300-399'", list.text));
            Vec::new()
        })
    }
}
