//! Parses the words of rules into actions.

mod inspect;
mod state;

use super::{
    Action, Address, Amount, HeaderName, PacketField, Part, Side, Timeout,
    normalize::Normalizer,
    table::{ACTIONS, Works, find},
};
use crate::{
    acl::{Acls, Condition},
    context::{Detour, LogLevel},
    conv,
    expr::{Expr, parse::word_at},
    hint,
    kind::Kind,
    link::{Consulted, Linker, Scope},
    log::{LogFormat, Purpose},
    problem::Problem,
    regexes::Regex,
    rules::Rule,
    value::Type,
    words::{Words, parse_time_ms},
};
use penstock_config::{
    Diagnostics, Line, Span, Word,
    model::{CacheId, Mode, ProxyId, ProxyKind},
    syslog,
};
use penstock_http::Version;
use std::{ops::RangeInclusive, time::Duration};

/// The line being parsed, and everything its words may refer to.
pub(crate) struct Build<'b, 'l, 'c> {
    pub(crate) linker: &'b mut Linker<'c>,
    pub(crate) diagnostics: &'b mut Diagnostics,
    pub(crate) acls: &'b mut Acls,
    pub(crate) scope: Scope,
    pub(crate) kind: Kind,
    /// The capture slots so far; rules may add some.
    pub(crate) captures: &'b mut Captures,
    /// The realm that `auth` shows if none is given.
    pub(crate) realm: &'b str,
    pub(crate) words: Words<'l>,
    /// The word that names the action, and the argument in its parentheses.
    pub(crate) word: &'l Word,
    pub(crate) inside: &'l str,
}

/// The capture slots of a proxy, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Captures {
    pub(crate) request: Vec<Slot>,
    pub(crate) response: Vec<Slot>,
    /// The slots that rules name by `id`, each of responses or not, which may be declared after them.
    pub(crate) named: Vec<(bool, usize, Span)>,
}

/// A place where something is kept for logs.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    /// The header that is kept in it, in lower case; `None` if rules fill it.
    pub(crate) header: Option<String>,
    pub(crate) len: usize,
    /// Where the slot was declared in the configuration.
    pub(crate) at: Span,
}

impl<'l> Build<'_, 'l, '_> {
    /// Parses the action and the condition. `None` if there was an error, which has been reported.
    pub(crate) fn rule(&mut self, line: &Line) -> Option<Rule> {
        let Some((spec, inside)) = find(&self.word.text, self.kind) else {
            let known = ACTIONS.iter().filter(|spec| spec.allowed_in(self.kind)).map(|spec| spec.name);
            let near = hint::nearest(self.word.text.split('(').next().unwrap_or_default(), known);
            self.error(self.word.span, format!("unknown action '{}' of '{}'", self.word.text, self.kind.name()), near);
            return None;
        };
        if !spec.allowed_in(self.kind) {
            let elsewhere: Vec<&str> =
                Kind::ALL.iter().filter(|kind| spec.allowed_in(**kind)).map(|kind| kind.name()).collect();
            let hint = format!("it may stand in {}", elsewhere.join(", "));
            self.error(
                self.word.span,
                format!("'{}' is not an action of '{}'", spec.name, self.kind.name()),
                Some(hint),
            );
            return None;
        }
        let (read, no_effect) = match spec.works {
            Works::Yes(read) => (read, None),
            Works::NoEffect(read, why) => (read, Some(why)),
            Works::Refused(why) => {
                self.error(self.word.span, format!("the action '{}' is not supported: {why}", spec.name), None);
                return None;
            }
        };
        if self.word.text.contains('(') && !inside.ends_with(')') {
            self.error(self.word.span, format!("the parenthesis of '{}' is not closed", self.word.text), None);
            return None;
        }
        self.inside = inside.strip_suffix(')').unwrap_or(inside);
        let action = read(self)?;
        if let Some(why) = no_effect {
            self.diagnostics.notice(self.word.span, format!("'{}' has no effect: {why}", self.word.text));
        }
        let condition = self.condition()?;
        Some(Rule { condition, action, span: line.span })
    }

    pub(crate) fn condition(&mut self) -> Option<Condition> {
        self.linker.condition(&mut self.words, self.acls, self.scope, self.diagnostics)
    }

    pub(crate) fn error(&mut self, span: Span, message: String, hint: Option<String>) {
        self.diagnostics.error(span, message).hint = hint;
    }

    pub(super) fn problem(&mut self, word: &Word, problem: Problem) {
        problem.report(word.span, &word.text, self.diagnostics);
    }

    /// The next word, which must exist and must not be the start of the condition. As in HAProxy, an empty one is none.
    pub(super) fn next(&mut self, what: &str) -> Option<&'l Word> {
        match self.words.peek() {
            Some(word) if !matches!(word.text.as_str(), "" | "if" | "unless") => self.words.next(),
            _ => {
                let span = self.words.last_span();
                self.error(span, format!("'{}' needs {what}", self.word.text), None);
                None
            }
        }
    }

    /// The value after a keyword. As in HAProxy, an empty one is none.
    pub(super) fn value_of(&mut self, keyword: &Word) -> Option<&'l Word> {
        let value = self.words.next().filter(|word| !word.text.is_empty());
        if value.is_none() {
            self.error(keyword.span, format!("'{}' needs a value", keyword.text), None);
        }
        value
    }

    pub(crate) fn expect(&mut self, word: &str) -> Option<()> {
        let found = self.next(&format!("'{word}'"))?;
        if found.text == word {
            return Some(());
        }
        self.error(found.span, format!("'{word}' is expected, not '{}'", found.text), None);
        None
    }

    /// A sample expression: one word, followed by any words that are converters.
    fn expr(&mut self) -> Option<Expr> {
        let first = self.next("a sample expression")?;
        let mut text = first.text.clone();
        while let Some(word) = self.words.peek() {
            let name = word_at(word, 0);
            if matches!(word.text.as_str(), "if" | "unless" | "table" | "len" | "id")
                || conv::find(&word.text[name]).is_none()
            {
                break;
            }
            text.push(',');
            text.push_str(word);
            self.words.next();
        }
        match self.linker.expression_in(&text, 0, self.scope) {
            Ok((expr, end)) if end == text.len() => Some(expr),
            Ok((_, end)) => {
                let problem =
                    Problem::new(end..text.len(), format!("'{}' does not belong to an expression", &text[end..]));
                self.problem(first, problem);
                None
            }
            Err(problem) => {
                self.problem(first, problem);
                None
            }
        }
    }

    pub(super) fn typed_expr(&mut self, wanted: Type) -> Option<Box<Expr>> {
        let word = self.words.peek();
        let expr = self.expr()?;
        // Values are converted when the rule runs, and by then an address is of one family.
        let given = if expr.output() == Type::Addr { Type::Ipv4 } else { expr.output() };
        if !given.casts_to(wanted) {
            let span = word.map_or(self.word.span, |word| word.span);
            let message = format!("'{}' has no effect: it needs {wanted}, and {given} is never one", self.word.text);
            self.diagnostics.warning(span, message);
        }
        Some(Box::new(expr))
    }

    pub(crate) fn format_of(&mut self, word: &Word, purpose: Purpose) -> Option<LogFormat> {
        let compiled = self.linker.log_format(&word.text, purpose, self.scope);
        for problem in self.linker.of_no_effect.drain(..) {
            problem.warn(word.span, &word.text, self.diagnostics);
        }
        match compiled {
            Ok(format) => Some(format),
            Err(problem) => {
                self.problem(word, problem);
                None
            }
        }
    }

    fn regex(&mut self) -> Option<Regex> {
        let word = self.next("a regular expression")?;
        match Regex::new(&word.text, false) {
            Ok(regex) => Some(regex),
            Err(problem) => {
                self.problem(word, problem);
                None
            }
        }
    }

    pub(super) fn name(&mut self) -> Option<Box<[u8]>> {
        let word = self.next("the name of a field")?;
        if penstock_http::is_token(word.as_bytes()) {
            return Some(word.to_ascii_lowercase().into_bytes().into());
        }
        self.error(word.span, format!("'{}' cannot be the name of a field", word.text), None);
        None
    }

    /// A format whose result goes into a message that this kind of rule changes, which is HTTP.
    pub(super) fn http_format(&mut self) -> Option<LogFormat> {
        let word = self.next("a value")?;
        self.format_of(word, Purpose::Http)
    }

    pub(crate) fn header(&mut self, make: fn(Box<[u8]>, LogFormat) -> Action) -> Option<Action> {
        let name = self.name()?;
        Some(make(name, self.http_format()?))
    }

    pub(crate) fn del_header(&mut self) -> Option<Action> {
        let word = self.next("the name of a field")?;
        let part = || word.to_ascii_lowercase().into_bytes().into();
        if !self.words.take("-m") {
            return Some(Action::DelHeader(HeaderName::Exactly(part())));
        }
        let method = self.next("a matching method")?;
        Some(Action::DelHeader(match method.text.as_str() {
            "str" => HeaderName::Exactly(part()),
            "beg" => HeaderName::Begins(part()),
            "end" => HeaderName::Ends(part()),
            "sub" => HeaderName::Contains(part()),
            // As in HAProxy: it sees the name in small letters, and distinguishes them.
            "reg" => match Regex::new(&word.text, false) {
                Ok(regex) => HeaderName::Matches(regex),
                Err(problem) => {
                    self.problem(word, problem);
                    return None;
                }
            },
            other => {
                let hint = Some("one of str, beg, end, sub, reg".to_owned());
                self.error(method.span, format!("field names cannot be compared with '{other}'"), hint);
                return None;
            }
        }))
    }

    pub(crate) fn replace_header(&mut self, whole: bool) -> Option<Action> {
        let name = self.name()?;
        let regex = self.regex()?;
        Some(Action::ReplaceHeader { name, regex, by: self.http_format()?, whole })
    }

    pub(crate) fn replace_target(&mut self, part: Part) -> Option<Action> {
        let regex = self.regex()?;
        Some(Action::ReplaceTarget { part, regex, by: self.http_format()? })
    }

    pub(crate) fn target(&mut self, part: Part) -> Option<Action> {
        Some(Action::SetTarget { part, value: self.http_format()? })
    }

    pub(crate) fn normalize(&mut self) -> Option<Action> {
        if !self.linker.config.global.experimental {
            let hint = Some("add 'expose-experimental-directives' to the global section".to_owned());
            self.error(self.word.span, "'normalize-uri' is experimental".to_owned(), hint);
            return None;
        }
        let word = self.next("a normaliser")?;
        let option = Normalizer::option(&word.text).is_some_and(|option| self.words.take(option));
        match Normalizer::parse(&word.text, option) {
            Some(normalizer) => Some(Action::Normalize(normalizer)),
            None => {
                let near = hint::nearest(&word.text, Normalizer::NAMES.iter().copied())
                    .or_else(|| Some(format!("one of {}", Normalizer::NAMES.join(", "))));
                self.error(word.span, format!("unknown normaliser '{}'", word.text), near);
                None
            }
        }
    }

    /// `set-nice`, which has no effect.
    pub(crate) fn nice(&mut self) -> Option<Action> {
        self.number(-1024..=1024).map(|_| Action::Nothing)
    }

    pub(crate) fn mark_packets(&mut self, side: Side, field: PacketField) -> Option<Action> {
        let is_number = |word: &Word| word.text.starts_with(|first: char| first.is_ascii_digit() || first == '-');
        let value = if self.words.peek().is_none_or(is_number) {
            Amount::Fixed(self.number(match field {
                PacketField::Mark => 0..=i64::from(u32::MAX),
                PacketField::Tos => 0..=255,
            })?)
        } else {
            Amount::Sample(self.typed_expr(Type::Int)?)
        };
        Some(Action::MarkPackets { side, field, value })
    }

    /// Reads a number in a range, decimal or hexadecimal.
    fn number(&mut self, valid: RangeInclusive<i64>) -> Option<i64> {
        let word = self.next("a number")?;
        let number = match word.strip_prefix("0x") {
            Some(digits) => i64::from_str_radix(digits, 16).ok(),
            None => word.parse().ok(),
        };
        if number.is_some_and(|n| valid.contains(&n)) {
            return number;
        }
        self.error(word.span, format!("'{}' is not a valid number for '{}'", word.text, self.word.text), None);
        None
    }

    pub(crate) fn status(&mut self) -> Option<Action> {
        let status = self.status_code(100..=999)?;
        let reason = if self.words.take("reason") {
            Some(penstock_config::bytes_of(self.next("a reason")?).into())
        } else {
            None
        };
        Some(Action::SetStatus { status, reason })
    }

    pub(super) fn status_code(&mut self, range: RangeInclusive<u16>) -> Option<u16> {
        let word = self.next("a status")?;
        let status = word.parse::<u16>().ok().filter(|status| range.contains(status));
        if status.is_none() {
            self.error(
                word.span,
                format!("'{}' is not a status from {} to {}", word.text, range.start(), range.end()),
                None,
            );
        }
        status
    }

    pub(crate) fn auth(&mut self) -> Option<Action> {
        let realm = if self.words.take("realm") { self.next("a realm")?.text.clone() } else { self.realm.to_owned() };
        Some(Action::Auth { realm: penstock_config::bytes_of(&realm).into() })
    }

    pub(crate) fn cache(&mut self, action: fn(CacheId) -> Action) -> Option<Action> {
        let word = self.next("the name of a cache")?;
        let caches = &self.linker.config.caches;
        let found = caches.iter().zip(0..).find_map(|(cache, id)| (cache.name == word.text).then_some(CacheId(id)));
        if found.is_none() {
            let near = hint::nearest(&word.text, caches.iter().map(|cache| cache.name.as_str()));
            self.error(word.span, format!("there is no cache '{}'", word.text), near);
        }
        found.map(action)
    }

    pub(crate) fn log_level(&mut self) -> Option<Action> {
        let word = self.next("a level")?;
        if word.text == "silent" {
            return Some(Action::LogLevel(LogLevel::Silent));
        }
        match syslog::LEVELS.iter().position(|level| *level == word.text) {
            Some(level) => Some(Action::LogLevel(LogLevel::Level(level as u8))),
            None => {
                let near = hint::nearest(&word.text, syslog::LEVELS.iter().copied().chain(["silent"]));
                self.error(word.span, format!("unknown level '{}' of logs", word.text), near);
                None
            }
        }
    }

    pub(crate) fn strict_mode(&mut self) -> Option<Action> {
        let word = self.next("'on' or 'off'")?;
        match word.text.as_str() {
            "on" => Some(Action::StrictMode(true)),
            "off" => Some(Action::StrictMode(false)),
            other => {
                self.error(word.span, format!("'on' or 'off' is expected, not '{other}'"), None);
                None
            }
        }
    }

    pub(crate) fn silent_drop(&mut self) -> Option<Action> {
        if self.words.take("rst-ttl") {
            let word = self.next("a number of hops")?;
            if !word.parse().is_ok_and(|hops: i64| (1..=255).contains(&hops)) {
                self.error(word.span, format!("'{}' is not a number of hops from 1 to 255", word.text), None);
                return None;
            }
        }
        Some(Action::SilentDrop)
    }

    pub(crate) fn switch_mode(&mut self) -> Option<Action> {
        self.expect("http")?;
        let mut version = None;
        if self.words.take("proto") {
            let word = self.next("a protocol")?;
            version = match word.text.as_str() {
                "h1" => Some(Version::Http11),
                "h2" => Some(Version::Http2),
                other => {
                    self.error(word.span, format!("'h1' or 'h2' is expected, not '{other}'"), None);
                    return None;
                }
            };
        }
        Some(Action::SwitchToHttp(version))
    }

    pub(crate) fn detour(&mut self, how: fn(ProxyId) -> Detour) -> Option<Action> {
        let word = self.next("the name of a backend")?;
        match self.linker.proxy(&word.text, 0..word.text.len(), "backend", |kind| kind.has_backend()) {
            Ok(backend) => Some(Action::Detour(how(backend))),
            Err(problem) => {
                self.problem(word, problem);
                None
            }
        }
    }

    pub(crate) fn consult(&mut self) -> Option<Action> {
        let engine = self.next("the name of an engine")?;
        let group = self.next("the name of a group")?;
        let section = self.scope.proxy.and_then(|id| self.linker.config.proxies.get(id));
        if self.kind == Kind::TcpResponse && section.is_some_and(|proxy| proxy.mode == Mode::Tcp) {
            let message = "a response of mode tcp cannot wait for an agent here".to_owned();
            let hint = "give the messages 'event on-tcp-response', and name them in the agent's 'messages'";
            self.error(self.word.span, message, Some(hint.to_owned()));
            return None;
        }
        let engines = &self.linker.config.spoe;
        let here = engines.iter().enumerate().filter(|(_, known)| Some(known.proxy) == self.scope.proxy);
        let Some((place, found)) = here.clone().find(|(_, known)| known.name == engine.text) else {
            let hint = hint::nearest(&engine.text, here.map(|(_, known)| known.name.as_str()));
            let message = format!("this section has no 'filter spoe' with the engine '{}'", engine.text);
            self.error(engine.span, message, hint);
            return None;
        };
        let is_named = found.agent.groups.iter().any(|word| word.text == group.text);
        let section = found.groups.iter().position(|known| known.name.text == group.text).filter(|_| is_named);
        let Some(section) = section else {
            let hint = hint::nearest(&group.text, found.agent.groups.iter().map(|word| word.text.as_str()));
            let message = format!("the agent of '{}' has no group '{}'", engine.text, group.text);
            self.error(group.span, message, hint);
            return None;
        };
        self.linker.consulted.push(Consulted { engine: place, group: section, place: self.scope.place });
        Some(Action::Consult(self.linker.consulted.len() - 1))
    }

    pub(crate) fn service(&mut self) -> Option<Action> {
        let word = self.next("the name of a service")?;
        if word.text == "prometheus-exporter" {
            return Some(Action::UseService(word.text.as_str().into()));
        }
        let hint = hint::nearest(&word.text, ["prometheus-exporter"]);
        self.error(word.span, format!("there is no service '{}'", word.text), hint);
        None
    }

    pub(crate) fn wait_for_body(&mut self) -> Option<Action> {
        let (mut time, mut at_least) = (None, 0);
        while let Some(word) = self.words.peek() {
            match word.text.as_str() {
                "time" => {
                    self.words.next();
                    time = Some(self.time()?);
                }
                "at-least" => {
                    self.words.next();
                    let size = self.next("a size")?;
                    let bytes = crate::words::parse_size(size).filter(|bytes| u32::try_from(*bytes).is_ok());
                    let Some(bytes) = bytes else {
                        self.error(size.span, format!("'{}' is not a size", size.text), None);
                        return None;
                    };
                    at_least = bytes;
                }
                _ => break,
            }
        }
        let Some(ms) = time else {
            self.error(self.word.span, "'wait-for-body' needs a 'time'".to_owned(), None);
            return None;
        };
        Some(Action::WaitForBody { time: (ms > 0).then(|| Duration::from_millis(ms)), at_least })
    }

    /// What the section is in which the rule is written; `None` if that is a defaults section: a rule there may stay although it
    /// does not fit the section that inherits it.
    fn written_in(&self) -> Option<ProxyKind> {
        let proxy = self.scope.proxy.and_then(|id| self.linker.config.proxies.get(id))?;
        let (rule, section) = (self.word.span, proxy.span);
        ((rule.file, rule.line) > (section.file, section.line)).then_some(proxy.kind)
    }

    fn time(&mut self) -> Option<u64> {
        let word = self.next("a time")?;
        let ms = parse_time_ms(word);
        if ms.is_none() {
            self.error(
                word.span,
                format!("'{}' is not a time", word.text),
                Some("for instance 500ms or 10s".to_owned()),
            );
        }
        ms
    }

    pub(crate) fn timeout(&mut self) -> Option<Action> {
        let word = self.next("'client', 'server' or 'tunnel'")?;
        let which = match word.text.as_str() {
            "client" => Timeout::Client,
            "server" => Timeout::Server,
            "tunnel" => Timeout::Tunnel,
            other => {
                self.error(word.span, format!("'client', 'server' or 'tunnel' is expected, not '{other}'"), None);
                return None;
            }
        };
        let kind = self.written_in();
        let (fits, here, there) = match which {
            Timeout::Client => {
                (kind.is_none_or(|kind| kind.has_frontend()), "backend, which has no clients", "frontend")
            }
            _ => (kind.is_none_or(|kind| kind.has_backend()), "frontend, which has no servers", "backend"),
        };
        if !fits {
            let hint = Some(format!("write the rule in the {there}"));
            self.error(word.span, format!("'set-timeout {}' has no effect in a {here}", word.text), hint);
            return None;
        }
        let at = self.words.peek().map_or(word.span, |word| word.span);
        let value = self.amount(parse_time_ms)?;
        if matches!(value, Amount::Fixed(0)) {
            self.error(at, "a timeout of 0 would end every exchange".to_owned(), None);
            return None;
        }
        Some(Action::Timeout { which, value })
    }

    /// Reads a number, as `parse` understands it, or an expression that gives one.
    pub(super) fn amount<N: TryInto<i64>>(&mut self, parse: fn(&str) -> Option<N>) -> Option<Amount> {
        match self.words.peek().and_then(|word| parse(&word.text)?.try_into().ok()) {
            Some(fixed) => {
                self.words.next();
                Some(Amount::Fixed(fixed))
            }
            None => Some(Amount::Sample(self.typed_expr(Type::Int)?)),
        }
    }

    pub(crate) fn priority(&mut self, class: bool) -> Option<Action> {
        Some(Action::Priority { class, expr: self.typed_expr(Type::Int)? })
    }

    pub(crate) fn address(&mut self, which: Address) -> Option<Action> {
        let wanted = if matches!(which, Address::Dst | Address::Src) { Type::Addr } else { Type::Int };
        Some(Action::SetAddress { which, expr: self.typed_expr(wanted)? })
    }
}
