//! One check under way: bytes in, what to do next out. Sockets and clocks are the runner's.

use super::script::{Action, Connect, Expect, Kind, Names, Pattern, Script};
use super::{Outcome, Verdict};
use penstock_http::{BodyReader, Error, Framing, Limits, Parse, ResponseHead, Step as BodyStep, response_framing};
use std::sync::Arc;

/// What the runner does next.
#[derive(Debug)]
pub enum Next {
    /// Connect as said; then [`Run::connected`] or [`Run::connect_failed`].
    Connect(Connect),
    /// Send these bytes; then [`Run::step`].
    Send(Vec<u8>),
    /// Wait for bytes; then [`Run::received`] or [`Run::ended`].
    Receive,
    /// The check is over.
    Done(Outcome),
}

/// How connecting failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// The system refused, with its words.
    Refused(String),
    /// The time was up before the connection was made.
    Timeout,
    /// The TLS handshake failed.
    Tls(String),
    /// The time was up in the TLS handshake.
    TlsTimeout,
}

/// A check under way.
pub struct Run {
    script: Arc<Script>,
    names: Names,
    at: usize,
    input: Vec<u8>,
    ended: bool,
    connected_tls: bool,
    exchanged: bool,
    method: String,
    /// The outcome if the script ends now.
    last: Option<Outcome>,
}

/// An answer larger than this is judged by its beginning.
const INPUT_MAX: usize = 16 * 1024;

/// What a pattern makes of the input.
enum Found {
    /// More bytes may tell.
    Open,
    /// What came is no answer of the protocol.
    Broken,
    /// A fixed protocol's answer.
    Judged(Result<Outcome, Outcome>),
    /// The pattern is there, or not.
    Bytes(bool),
    /// It is in the response of that status and reason, or not.
    Response { matched: bool, in_body: bool, status: u16, reason: String },
    /// `disable-on-404` applies.
    Conditional,
}

impl Run {
    /// A check that is about to begin.
    pub fn new(script: Arc<Script>, names: Names) -> Run {
        Run {
            script,
            names,
            at: 0,
            input: Vec::new(),
            ended: false,
            connected_tls: false,
            exchanged: false,
            method: String::new(),
            last: None,
        }
    }

    /// What to do now.
    pub fn step(&mut self) -> Next {
        let script = self.script.clone();
        while let Some(step) = script.steps.get(self.at) {
            match &step.action {
                Action::Comment => self.at += 1,
                Action::Connect(connect) => return Next::Connect(connect.clone()),
                Action::Send(bytes) => {
                    self.at += 1;
                    self.exchanged = true;
                    let mut out = Vec::new();
                    bytes.render(&self.names, &mut out);
                    return Next::Send(out);
                }
                Action::Request(request) => {
                    self.at += 1;
                    self.exchanged = true;
                    self.input.clear();
                    self.method.clone_from(&request.method);
                    return Next::Send(request.render(&self.names, script.send_state));
                }
                Action::Expect(expect) => {
                    self.exchanged = true;
                    match self.judge(expect) {
                        None => return Next::Receive,
                        Some(Err(outcome)) => return Next::Done(outcome),
                        Some(Ok(outcome)) => {
                            // The bytes of the answer belong to this step; an HTTP answer may be judged twice.
                            if !matches!(script.steps.get(self.at + 1).map(|s| &s.action), Some(Action::Expect(_))) {
                                self.input.clear();
                            }
                            self.last = Some(outcome);
                            self.at += 1;
                        }
                    }
                }
            }
        }
        Next::Done(self.last.take().unwrap_or_else(|| self.passed()))
    }

    fn passed(&self) -> Outcome {
        match (self.script.kind, self.exchanged, self.connected_tls) {
            (Kind::Tcp, true, _) => Outcome::new(Verdict::L7Ok, "(tcp-check)"),
            (_, false, true) => Outcome::new(Verdict::L6Ok, ""),
            (_, false, false) => Outcome::new(Verdict::L4Ok, ""),
            _ => Outcome::new(Verdict::L7Ok, ""),
        }
    }

    /// The connection is made, with or without TLS.
    pub fn connected(&mut self, tls: bool) {
        self.connected_tls = tls;
        self.input.clear();
        self.ended = false;
        self.at += 1;
    }

    /// Connecting failed.
    pub fn connect_failed(&mut self, error: ConnectError) -> Outcome {
        match error {
            ConnectError::Refused(text) => self.located(Verdict::L4Connection, &text),
            ConnectError::Timeout => self.located(Verdict::L4Timeout, ""),
            ConnectError::Tls(text) => self.located(Verdict::L6Response, &text),
            ConnectError::TlsTimeout => self.located(Verdict::L6Timeout, ""),
        }
    }

    /// Bytes came.
    pub fn received(&mut self, bytes: &[u8]) {
        let room = INPUT_MAX.saturating_sub(self.input.len());
        self.input.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.ended |= self.input.len() >= INPUT_MAX;
    }

    /// The server closed.
    pub fn ended(&mut self) {
        self.ended = true;
    }

    /// Sending or receiving failed.
    pub fn broken(&mut self, text: &str) -> Outcome {
        self.located(Verdict::SocketError, text)
    }

    /// The time for an answer was up.
    pub fn timed_out(&mut self) -> Outcome {
        let verdict = match self.script.steps.get(self.at).map(|step| &step.action) {
            Some(Action::Expect(expect)) => expect.timeout_status.unwrap_or(Verdict::L7Timeout),
            _ => Verdict::L7Timeout,
        };
        self.located(verdict, "")
    }

    /// An outcome whose text says at which step, where the configuration wrote the steps.
    fn located(&self, verdict: Verdict, text: &str) -> Outcome {
        if self.script.kind != Kind::Tcp {
            return Outcome::new(verdict, text);
        }
        let action = self.script.steps.get(self.at).map(|step| &step.action);
        if let Some(Action::Connect(Connect { implicit: true, .. })) = action {
            return Outcome::new(verdict, format!("{text} at initial connection step of tcp-check"));
        }
        let what = match action {
            Some(Action::Connect(Connect { port: Some(port), .. })) => format!(" (connect port {port})"),
            Some(Action::Connect(_)) => " (connect)".into(),
            Some(Action::Send(_)) => " (send)".into(),
            Some(Action::Expect(Expect { pattern: Pattern::Bytes { bytes, name }, .. })) => {
                format!(" (expect {name} '{}')", String::from_utf8_lossy(bytes))
            }
            Some(Action::Expect(Expect { pattern: pattern @ Pattern::Regex { .. }, .. })) => {
                format!(" (expect {})", name_of(pattern))
            }
            _ => String::new(),
        };
        let comment = self.comment().map(|comment| format!(" comment: '{comment}'")).unwrap_or_default();
        Outcome::new(verdict, format!("{text} at step {} of tcp-check{what}{comment}", self.number()))
    }

    /// The number of the step, as written: a connection nobody wrote does not count.
    fn number(&self) -> usize {
        let implicit = matches!(self.script.steps.first().map(|s| &s.action), Some(Action::Connect(c)) if c.implicit);
        self.at + 1 - usize::from(implicit)
    }

    /// The last comment up to here.
    fn comment(&self) -> Option<&str> {
        self.script.steps.iter().take(self.at + 1).rev().find_map(|step| step.comment.as_deref())
    }

    /// Whether the input is what is expected: `None` while that is open.
    fn judge(&self, expect: &Expect) -> Option<Result<Outcome, Outcome>> {
        if self.input.len() < expect.min_recv && !self.ended {
            return None;
        }
        let http = self.script.kind == Kind::Http;
        if self.input.is_empty() && !http {
            if !self.ended {
                return None;
            }
            let verdict = expect.error_status.unwrap_or(Verdict::L7Response);
            let text = format!("TCPCHK got an empty response at step {}", self.number());
            return Some(Err(Outcome::new(verdict, text)));
        }
        let found = if http { self.look_http(expect) } else { self.look(expect) };
        let (matched, success, failure) = match found {
            Found::Open if !self.ended => return None,
            Found::Open if !http && !matches!(expect.pattern, Pattern::Protocol(_)) => {
                (false, self.passed(), self.mismatch(expect))
            }
            Found::Open | Found::Broken => {
                return Some(Err(self.failure(expect, Outcome::new(Verdict::L7Response, ""))));
            }
            Found::Judged(Ok(outcome)) => (!expect.inverse, outcome, self.mismatch(expect)),
            Found::Judged(Err(outcome)) => return Some(Err(outcome)),
            Found::Bytes(matched) => (matched, self.passed(), self.mismatch(expect)),
            Found::Conditional => return Some(Ok(Outcome::new(Verdict::L7Conditional, "").code(404))),
            Found::Response { matched, in_body, status, reason } => {
                let status = u32::from(status);
                let failure =
                    if in_body { self.mismatch(expect) } else { Outcome::new(Verdict::L7Status, reason).code(status) };
                (matched, Outcome::new(Verdict::L7Ok, "").code(status), failure)
            }
        };
        if matched == expect.inverse {
            return Some(Err(self.failure(expect, failure)));
        }
        let mut success = success;
        if let Some(verdict) = expect.ok_status {
            success = Outcome { verdict, ..success };
        }
        if let Some(text) = &expect.on_success {
            success.info = self.rendered(text);
        }
        let code = success.code.unwrap_or(0);
        Some(Ok(success.code(code)))
    }

    fn rendered(&self, text: &super::script::Template) -> String {
        let mut out = Vec::new();
        text.render(&self.names, &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    /// The failure of an expectation, as the configuration wants it told.
    fn failure(&self, expect: &Expect, mut outcome: Outcome) -> Outcome {
        outcome.verdict = expect.error_status.unwrap_or(outcome.verdict);
        match (&expect.on_error, self.comment()) {
            (Some(text), _) => outcome.info = self.rendered(text),
            (None, Some(comment)) if self.script.kind != Kind::Plain => {
                outcome.info = format!("{} comment: {comment}", outcome.info);
            }
            _ => {}
        }
        let code = outcome.code.unwrap_or(0);
        outcome.code(code)
    }

    fn mismatch(&self, expect: &Expect) -> Outcome {
        let text = match (&expect.pattern, expect.inverse, self.script.kind) {
            (_, true, Kind::Http) => "HTTP check matched unwanted content".into(),
            (_, false, Kind::Http) => "HTTP content check did not match".into(),
            (Pattern::Bytes { bytes, name: "string" }, inverse, _) => {
                let verb = if inverse { "matched unwanted" } else { "did not match" };
                format!("TCPCHK {verb} content '{}' at step {}", String::from_utf8_lossy(bytes), self.number())
            }
            (pattern @ (Pattern::Bytes { .. } | Pattern::Regex { .. }), inverse, _) => {
                let verb = if inverse { "matched unwanted" } else { "did not match" };
                format!("TCPCHK {verb} content ({}) at step {}", name_of(pattern), self.number())
            }
            _ => String::new(),
        };
        Outcome::new(Verdict::L7Response, text)
    }

    fn look(&self, expect: &Expect) -> Found {
        // An absence is final only when the server has had its say, or as soon as enough has come for an inverse.
        let enough = expect.inverse || self.ended;
        match &expect.pattern {
            Pattern::Bytes { bytes, .. } => match memchr::memmem::find(&self.input, bytes) {
                Some(_) => Found::Bytes(true),
                None if enough && self.input.len() >= bytes.len() => Found::Bytes(false),
                None => Found::Open,
            },
            Pattern::Regex { regex, hexadecimal } => match matches(regex, &self.input, *hexadecimal) {
                true => Found::Bytes(true),
                false if enough => Found::Bytes(false),
                false => Found::Open,
            },
            Pattern::Protocol(judge) => judge(&self.input).map_or(Found::Open, Found::Judged),
            _ => Found::Broken,
        }
    }

    fn look_http(&self, expect: &Expect) -> Found {
        let limits = Limits::default();
        let mut head = ResponseHead::new();
        let mut consumed = 0;
        loop {
            match head.parse(&self.input[consumed..], &limits) {
                Ok(Parse::Partial) => return Found::Open,
                Err(_) => return Found::Broken,
                Ok(Parse::Complete { consumed: n }) => consumed += n,
            }
            if !head.is_interim() {
                break;
            }
            head.clear();
        }
        let status = head.status();
        if self.script.disable_on_404 && status == 404 && !self.names.down {
            return Found::Conditional;
        }
        let reason = String::from_utf8_lossy(head.reason()).into_owned();
        let (matched, in_body) = match &expect.pattern {
            Pattern::Status(ranges) => (ranges.iter().any(|range| (range.0..=range.1).contains(&status)), false),
            Pattern::StatusRegex(regex) => (regex.is_match(status.to_string().as_bytes()), false),
            Pattern::Header { full, name, value } => {
                let wanted = |text: &[u8]| value.as_ref().is_none_or(|value| value.matches(text, false));
                let found = head.fields.iter().filter(|field| name.matches(field.name, true)).any(|field| match full {
                    true => wanted(field.value),
                    false => field.value.split(|&c| c == b',').any(|value| wanted(value.trim_ascii())),
                });
                (found, false)
            }
            pattern => {
                let Ok(framing) = response_framing(&mut head, self.method.as_bytes(), false) else {
                    return Found::Broken;
                };
                let Ok((body, whole)) = payload(&self.input[consumed..], framing) else { return Found::Broken };
                let matched = match pattern {
                    Pattern::BodyBytes(want) => memchr::memmem::find(&body, want).is_some(),
                    Pattern::BodyRegex(regex) => regex.is_match(&body),
                    _ => return Found::Broken,
                };
                if !matched && !whole && !self.ended {
                    return Found::Open;
                }
                (matched, true)
            }
        };
        Found::Response { matched, in_body, status, reason }
    }
}

fn matches(regex: &regex::bytes::Regex, input: &[u8], hexadecimal: bool) -> bool {
    if !hexadecimal {
        return regex.is_match(input);
    }
    let digits: String = input.iter().map(|byte| format!("{byte:02X}")).collect();
    regex.is_match(digits.as_bytes())
}

/// What messages call a pattern that they do not quote.
fn name_of(pattern: &Pattern) -> &'static str {
    match pattern {
        Pattern::Bytes { name, .. } => name,
        Pattern::Regex { hexadecimal: true, .. } => "binary regex",
        _ => "regex",
    }
}

/// The payload of a body as far as it has come, and whether that is all.
fn payload(mut input: &[u8], framing: Framing) -> Result<(Vec<u8>, bool), Error> {
    let mut reader = BodyReader::new(framing, Limits::default());
    let mut body = Vec::new();
    loop {
        let n = match reader.step(input)? {
            BodyStep::Data(n) => {
                body.extend_from_slice(&input[..n]);
                n
            }
            BodyStep::Framing(n) | BodyStep::Skip(n) => n,
            BodyStep::NeedMore => return Ok((body, false)),
            BodyStep::End => return Ok((body, true)),
        };
        input = &input[n..];
    }
}
