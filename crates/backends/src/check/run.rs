//! A check in progress: bytes in, the next action out. The caller has sockets and clocks.

use super::{
    Outcome, Verdict,
    script::{Action, Connect, Expect, Kind, Match, Pattern, Script, Standing},
};
use penstock_config::model::ProxyId;
use penstock_http::{BodyReader, Error, Framing, Limits, Parse, ResponseHead, Step as BodyStep, response_framing};
use penstock_rules::{
    Buffered, ConnFacts, Context, Expr, LogFacts, LogFormat, Now, Phase, ProxyFacts, ServerConnFacts, ServerFacts,
    Session, Txn, Type, Value, World,
};
use std::borrow::Cow;
use std::sync::Arc;

/// The caller's next action.
#[derive(Debug)]
pub enum Next {
    /// Connect as specified; then call [`Run::connected`] or [`Run::connect_failed`].
    Connect(Connect),
    /// Send these bytes; then call [`Run::step`].
    Send(Vec<u8>),
    /// Wait for bytes; then call [`Run::received`] or [`Run::ended`].
    Receive,
    /// The check is over.
    Done(Outcome),
}

/// Why connecting failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// The system reported this error.
    Refused(String),
    /// The time limit was reached before the connection was made.
    Timeout,
    /// The TLS handshake failed.
    Tls(String),
    /// The time limit was reached during the TLS handshake.
    TlsTimeout,
}

/// The server that a check is about, and what its expressions may look at.
pub struct About<'a> {
    /// The backend.
    pub backend: (ProxyId, &'a ProxyFacts),
    /// The server.
    pub server: &'a ServerFacts,
    /// Access to the rest of the process.
    pub world: &'a dyn World,
    /// When the check started.
    pub now: Now,
    /// The state of the server as its own check reports it to it.
    pub standing: Standing,
}

/// A check in progress.
pub struct Run<'a> {
    script: Arc<Script>,
    about: About<'a>,
    at: usize,
    input: Vec<u8>,
    ended: bool,
    exchanged: bool,
    method: String,
    /// The head of the response, and the part of its body that has arrived.
    response: Option<ResponseHead>,
    body: Vec<u8>,
    /// What else expressions can see: there is no client.
    server_conn: Option<ServerConnFacts>,
    conn: ConnFacts,
    log: LogFacts,
    session: Session,
    txn: Txn,
    /// The outcome if the script ends now.
    last: Option<Outcome>,
}

/// A longer answer is judged by its start.
const INPUT_MAX: usize = 16 * 1024;

/// The result of judging an answer; `None` while it depends on more bytes.
type Judged<T> = Option<Result<T, Outcome>>;

impl<'a> Run<'a> {
    /// A check that has not started.
    pub fn new(script: Arc<Script>, about: About<'a>) -> Run<'a> {
        Run {
            script,
            about,
            at: 0,
            input: Vec::new(),
            ended: false,
            exchanged: false,
            method: String::new(),
            response: None,
            body: Vec::new(),
            server_conn: None,
            conn: ConnFacts::default(),
            log: LogFacts::default(),
            session: Session { check_vars: Some(Box::default()), ..Session::default() },
            txn: Txn::default(),
            last: None,
        }
    }

    /// What expressions can see. They have to decide on this basis.
    fn context(&mut self) -> Context<'_> {
        let is_http = self.script.kind == Kind::Http;
        let bytes = if is_http { &self.body } else { &self.input };
        Context {
            now: self.about.now,
            phase: Phase::During,
            conn: &self.conn,
            frontend: self.about.backend,
            backend: Some(self.about.backend),
            server: Some(self.about.server),
            server_conn: self.server_conn.as_ref(),
            request: None,
            response: self.response.as_mut(),
            input: Buffered { complete: true, ..Buffered::default() },
            output: Buffered { bytes, complete: true, raw: !is_http, announced: None },
            session: &mut self.session,
            txn: &mut self.txn,
            log: &self.log,
            world: self.about.world,
        }
    }

    /// Determines the next action.
    pub fn step(&mut self) -> Next {
        let script = self.script.clone();
        while let Some(step) = script.steps.get(self.at) {
            match &step.action {
                Action::Comment => self.at += 1,
                Action::Set(rules) => {
                    self.at += 1;
                    rules.run(&mut self.context(), 0);
                }
                Action::Connect(connect) => {
                    let mut connect = connect.clone();
                    if let Some(from) = &connect.port_from {
                        connect.port = self.number_from(from);
                    }
                    return Next::Connect(connect);
                }
                Action::Send(text) => {
                    self.forget();
                    let Some(bytes) = text.render(&self.context()) else {
                        let text =
                            format!("tcp-check send : failed to build log-format string at step {}", self.number());
                        return Next::Done(Outcome::new(Verdict::L7Response, text));
                    };
                    self.at += 1;
                    return Next::Send(bytes);
                }
                Action::Request(request) => {
                    self.forget();
                    self.at += 1;
                    self.method.clone_from(&request.method);
                    let state = script.send_state.then(|| self.about.standing.state.clone());
                    return Next::Send(request.render(&self.context(), state.as_deref()));
                }
                Action::Expect(expect) => {
                    self.exchanged = true;
                    match self.judge(expect) {
                        None => return Next::Receive,
                        Some(Err(outcome)) => return Next::Done(outcome),
                        Some(Ok(outcome)) => {
                            self.last = Some(outcome);
                            self.at += 1;
                        }
                    }
                }
            }
        }
        Next::Done(self.last.take().unwrap_or_else(|| self.passed()))
    }

    /// Drops what has been received, since it cannot be the answer to what is sent next.
    fn forget(&mut self) {
        self.exchanged = true;
        self.input.clear();
        self.body.clear();
        self.response = None;
    }

    fn passed(&self) -> Outcome {
        let tls = self.server_conn.as_ref().is_some_and(|conn| conn.tls.is_some());
        match (self.script.kind, self.exchanged, tls) {
            (Kind::Tcp, true, _) => Outcome::new(Verdict::L7Ok, "(tcp-check)"),
            (_, false, true) => Outcome::new(Verdict::L6Ok, ""),
            (_, false, false) => Outcome::new(Verdict::L4Ok, ""),
            _ => Outcome::new(Verdict::L7Ok, ""),
        }
    }

    /// Reports that the connection was made.
    pub fn connected(&mut self, conn: ServerConnFacts) {
        let exchanged = self.exchanged;
        self.forget();
        self.exchanged = exchanged;
        self.server_conn = Some(conn);
        self.ended = false;
        self.at += 1;
    }

    /// Reports that connecting failed.
    pub fn connect_failed(&mut self, error: ConnectError) -> Outcome {
        match error {
            ConnectError::Refused(text) => self.located(Verdict::L4Connection, &text),
            ConnectError::Timeout => self.located(Verdict::L4Timeout, ""),
            ConnectError::Tls(text) => self.located(Verdict::L6Response, &text),
            ConnectError::TlsTimeout => self.located(Verdict::L6Timeout, ""),
        }
    }

    /// Adds bytes that were received.
    pub fn received(&mut self, bytes: &[u8]) {
        let room = INPUT_MAX.saturating_sub(self.input.len());
        self.input.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.ended |= self.input.len() >= INPUT_MAX;
    }

    /// Reports that the server closed.
    pub fn ended(&mut self) {
        self.ended = true;
    }

    /// Reports that sending or receiving failed.
    pub fn broken(&mut self, text: &str) -> Outcome {
        self.located(Verdict::SocketError, text)
    }

    /// Reports that no answer came in time.
    pub fn timed_out(&mut self) -> Outcome {
        let verdict = match self.script.steps.get(self.at).map(|step| &step.action) {
            Some(Action::Expect(expect)) => expect.timeout_status.unwrap_or(Verdict::L7Timeout),
            _ => Verdict::L7Timeout,
        };
        self.located(verdict, "")
    }

    /// An outcome whose text names the step, if the configuration defines the steps.
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
            Some(Action::Expect(Expect { pattern, .. })) => match quoted(pattern) {
                Some(text) => format!(" (expect {} '{text}')", name_of(pattern)),
                None => format!(" (expect {})", name_of(pattern)),
            },
            _ => String::new(),
        };
        let comment = self.comment().map(|comment| format!(" comment: '{comment}'")).unwrap_or_default();
        Outcome::new(verdict, format!("{text} at step {} of tcp-check{what}{comment}", self.number()))
    }

    /// The number of the step as written: an implicit connection does not count.
    fn number(&self) -> usize {
        let implicit = matches!(self.script.steps.first().map(|s| &s.action), Some(Action::Connect(c)) if c.implicit);
        self.at + 1 - usize::from(implicit)
    }

    /// The last comment up to this step.
    fn comment(&self) -> Option<&str> {
        self.script.steps.iter().take(self.at + 1).rev().find_map(|step| step.comment.as_deref())
    }

    /// Whether the answer is as expected.
    fn judge(&mut self, expect: &Expect) -> Judged<Outcome> {
        if self.script.kind == Kind::Http { self.judge_response(expect) } else { self.judge_bytes(expect) }
    }

    fn judge_bytes(&mut self, expect: &Expect) -> Judged<Outcome> {
        if self.input.is_empty() {
            let text = format!("TCPCHK got an empty response at step {}", self.number());
            let verdict = expect.error_status.unwrap_or(Verdict::L7Response);
            return self.ended.then(|| Err(Outcome::new(verdict, text)));
        }
        if let Pattern::Protocol(judge) = expect.pattern {
            return match judge(&self.input) {
                None if !self.ended => None,
                None => Some(Err(self.failure(expect, Outcome::new(Verdict::L7Response, "")))),
                Some(Ok(outcome)) => Some(Ok(self.success(expect, outcome))),
                Some(Err(outcome)) => Some(Err(outcome)),
            };
        }
        let found = self.search(expect, self.ended)?;
        Some(found.and_then(|found| self.conclude(expect, found, self.passed(), self.mismatch(expect))))
    }

    fn judge_response(&mut self, expect: &Expect) -> Judged<Outcome> {
        let broken = Outcome::new(Verdict::L7Response, "");
        let whole = match self.read_response() {
            Ok(Some(whole)) => whole,
            Ok(None) if !self.ended => return None,
            _ => return Some(Err(self.failure(expect, broken))),
        };
        let Some(head) = &self.response else { return Some(Err(self.failure(expect, broken))) };
        let status = head.status();
        if self.script.disable_on_404 && status == 404 && !self.about.standing.down {
            return Some(Ok(Outcome::new(Verdict::L7Conditional, "").code(404)));
        }
        let reason = String::from_utf8_lossy(head.reason()).into_owned();
        let found = match &expect.pattern {
            Pattern::Status(ranges) => ranges.iter().any(|range| (range.0..=range.1).contains(&status)),
            Pattern::StatusRegex(regex) => regex.is_match(status.to_string().as_bytes()),
            Pattern::Header { full, name, value } => self.has_field(*full, name, value.as_ref()),
            _ => {
                let last = whole || self.ended;
                if self.body.is_empty() {
                    let text = "HTTP content check could not find a response body";
                    let failure = Outcome::new(Verdict::L7Response, text);
                    return last.then(|| Err(self.failure(expect, failure)));
                }
                let found = self.search(expect, last)?;
                let well = Outcome::new(Verdict::L7Ok, "").code(status.into());
                return Some(found.and_then(|found| self.conclude(expect, found, well, self.mismatch(expect))));
            }
        };
        let well = Outcome::new(Verdict::L7Ok, "").code(status.into());
        Some(self.conclude(expect, found, well, Outcome::new(Verdict::L7Status, reason).code(status.into())))
    }

    fn conclude(
        &mut self,
        expect: &Expect,
        found: bool,
        success: Outcome,
        failure: Outcome,
    ) -> Result<Outcome, Outcome> {
        if found == expect.inverse { Err(self.failure(expect, failure)) } else { Ok(self.success(expect, success)) }
    }

    fn rendered(&mut self, text: &LogFormat) -> String {
        String::from_utf8_lossy(&text.to_bytes(&self.context())).into_owned()
    }

    fn number_from<T: TryFrom<i64>>(&mut self, expr: &Expr) -> Option<T> {
        match expr.eval(&self.context()).ok()?.cast(Type::Int)? {
            Value::Int(n) => T::try_from(n).ok(),
            _ => None,
        }
    }

    /// A success, reported as the configuration says.
    fn success(&mut self, expect: &Expect, mut outcome: Outcome) -> Outcome {
        outcome.verdict = expect.ok_status.unwrap_or(outcome.verdict);
        if let Some(text) = &expect.on_success {
            outcome.info = self.rendered(text);
        }
        self.coded(expect, outcome)
    }

    /// A failed expectation, reported as the configuration says.
    fn failure(&mut self, expect: &Expect, mut outcome: Outcome) -> Outcome {
        outcome.verdict = expect.error_status.unwrap_or(outcome.verdict);
        if let Some(text) = &expect.on_error {
            outcome.info = self.rendered(text);
        } else if let Some(comment) = self.comment().filter(|_| self.script.kind != Kind::Plain) {
            outcome.info = format!("{} comment: {comment}", outcome.info);
        }
        self.coded(expect, outcome)
    }

    fn coded(&mut self, expect: &Expect, outcome: Outcome) -> Outcome {
        let code = expect.code.as_ref().and_then(|code| self.number_from(code));
        let code = code.or(outcome.code).unwrap_or(0);
        outcome.code(code)
    }

    fn mismatch(&self, expect: &Expect) -> Outcome {
        let verb = if expect.inverse { "matched unwanted" } else { "did not match" };
        let text = match (self.script.kind, quoted(&expect.pattern)) {
            (Kind::Http, _) if expect.inverse => "HTTP check matched unwanted content".into(),
            (Kind::Http, _) => "HTTP content check did not match".into(),
            (_, Some(text)) if name_of(&expect.pattern) == "string" => {
                format!("TCPCHK {verb} content '{text}' at step {}", self.number())
            }
            _ => format!("TCPCHK {verb} content ({}) at step {}", name_of(&expect.pattern), self.number()),
        };
        Outcome::new(Verdict::L7Response, text)
    }

    /// Whether the bytes or the body contain the pattern; with `last`, no more will come.
    fn search(&mut self, expect: &Expect, last: bool) -> Judged<bool> {
        let refused = |text: &str| Some(Err(Outcome::new(Verdict::L7Response, text)));
        let wanted = match &expect.pattern {
            Pattern::Bytes { text, .. } => match text.render(&self.context()) {
                None => return refused("Failed to parse hexastring resulting of eval of a log-format string"),
                Some(wanted) if wanted.is_empty() => return refused("log-format string evaluated to an empty string"),
                Some(wanted) => wanted,
            },
            _ => Vec::new(),
        };
        let seen = if self.script.kind == Kind::Http { &self.body } else { &self.input };
        if !last && seen.len() < wanted.len().max(expect.min_recv.unwrap_or(0)) {
            return None;
        }
        let found = match &expect.pattern {
            Pattern::Bytes { .. } => memchr::memmem::find(seen, &wanted).is_some(),
            Pattern::Regex { regex, hexadecimal } => matches(regex, seen, *hexadecimal),
            _ => return refused(""),
        };
        if !found && !last && expect.min_recv.is_none() {
            return None;
        }
        Some(Ok(found))
    }

    fn has_field(&mut self, full: bool, name: &Match, value: Option<&Match>) -> bool {
        let (name, value) = {
            let context = self.context();
            (name.wanted(&context), value.map(|value| value.wanted(&context)))
        };
        let wanted = |text: &[u8]| value.as_ref().is_none_or(|value| value.matches(text, false));
        let mut fields = self.response.iter().flat_map(|head| head.fields.iter());
        fields.any(|field| {
            name.matches(field.name, true)
                && match full {
                    true => wanted(field.value),
                    false => field.value.split(|&c| c == b',').any(|value| wanted(value.trim_ascii())),
                }
        })
    }

    /// Parses the response received so far, skipping interim ones: returns whether it is complete, `None` while its
    /// head is not.
    fn read_response(&mut self) -> Result<Option<bool>, Error> {
        let limits = Limits::default();
        let mut head = ResponseHead::new();
        let mut consumed = 0;
        loop {
            match head.parse(&self.input[consumed..], &limits)? {
                Parse::Partial => return Ok(None),
                Parse::Complete { consumed: n } => consumed += n,
            }
            if !head.is_interim() {
                break;
            }
            head.clear();
        }
        let (body, whole) = match head.status() {
            101 => (Vec::new(), true),
            _ => payload(&self.input[consumed..], response_framing(&mut head, self.method.as_bytes(), false)?)?,
        };
        (self.response, self.body) = (Some(head), body);
        Ok(Some(whole))
    }
}

fn matches(regex: &penstock_rules::Regex, input: &[u8], hexadecimal: bool) -> bool {
    if !hexadecimal {
        return regex.is_match(input);
    }
    let digits: String = input.iter().map(|byte| format!("{byte:02X}")).collect();
    regex.is_match(digits.as_bytes())
}

/// The name of a pattern in messages.
fn name_of(pattern: &Pattern) -> &'static str {
    match pattern {
        Pattern::Bytes { name, .. } => name,
        Pattern::Regex { hexadecimal: true, .. } => "binary regex",
        _ => "regex",
    }
}

/// The text of a pattern for messages, if it is constant.
fn quoted(pattern: &Pattern) -> Option<Cow<'_, str>> {
    match pattern {
        Pattern::Bytes { text, name: "string" | "binary" } => text.format.constant().map(String::from_utf8_lossy),
        _ => None,
    }
}

/// The part of a body that has arrived, and whether that is all of it.
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
