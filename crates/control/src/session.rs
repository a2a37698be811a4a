//! The conversation with one client: bytes in, requests out; answers in, bytes out.
//!
//! At first a session is not interactive: it carries out what the client has sent, and ends. `prompt` makes it
//! interactive. Every answer ends with an empty line and contains no other. What a client sends is bounded by
//! [`Settings::line_max`] and [`Settings::payload_max`], and nothing is taken from it while a request is being carried
//! out. What a client is sent is bounded by the caller, which fetches the next piece of an answer when
//! [`Session::output`] is small enough.

use crate::{
    Command, Found, Level, Severity, SeverityOutput, Table,
    commands::{Own, SESSION},
    help,
    line::Line,
    payload::Payload,
    table::Mode,
};
use std::{collections::VecDeque, time::Duration};

/// The initial settings of a session.
#[derive(Clone, Copy)]
pub struct Settings {
    /// The session's commands, besides those that every session has.
    pub table: Table,
    /// The level of its client.
    pub level: Level,
    /// Whether sentences start with their severity.
    pub severity: SeverityOutput,
    /// How long the client may be silent, or not read.
    pub timeout: Duration,
    /// The longest line.
    pub line_max: usize,
    /// The longest payload.
    pub payload_max: usize,
    /// Whether `expert-mode` is on from the start.
    pub expert: bool,
    /// Whether `experimental-mode` is on from the start.
    pub experimental: bool,
    /// The name in its prompt, before `> `.
    pub name: &'static str,
}

/// The answer to a line that HAProxy would take for one that ends at this byte.
const ZERO_BYTE: &str = "A command and its payload cannot contain a zero byte.";

/// How much output of its own a session gathers.
const OUTPUT_MAX: usize = 64 << 10;

/// A conversation.
pub struct Session {
    settings: Settings,
    level: Level,
    expert: bool,
    experimental: bool,
    severity: SeverityOutput,
    prompt: Prompt,
    timeout: Duration,
    input: Input,
    /// Whether the client has finished sending.
    input_ended: bool,
    /// The remaining commands of the line.
    commands: VecDeque<Vec<String>>,
    /// The line that ends the payload of the last of them.
    payload_end: Option<Vec<u8>>,
    payload: Option<Payload>,
    /// Whether a line has been carried out.
    answered: bool,
    running: bool,
    over: bool,
    /// Everything received has been answered, and nothing more is waited for.
    answered_all: bool,
    output: Vec<u8>,
    /// How many bytes of `output` have been sent.
    sent: usize,
    /// Whether the answer so far is empty or consists of whole lines.
    line_begins: bool,
}

/// What is shown between answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    /// Whether the session continues after a line.
    pub interactive: bool,
    /// Whether a prompt is shown.
    pub shown: bool,
    /// Whether the prompt shows how long the process has run.
    pub timed: bool,
}

/// A command to be carried out.
pub struct Request {
    /// The command.
    pub command: Command,
    /// What the command changes, if anything.
    pub changes: Option<&'static str>,
    /// The command's words without secrets, for the audit log.
    pub told: String,
    /// The level of the client.
    pub level: Level,
    /// The words of a command that changes something.
    pub words: Vec<String>,
    /// The payload of a command that changes something.
    pub payload: Option<Vec<u8>>,
}

impl std::fmt::Debug for Request {
    /// Omits the words and the payload, which may contain secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Request { command, changes, told, level, .. } = self;
        let mut shown = f.debug_struct("Request");
        shown.field("command", command).field("changes", changes).field("told", told).field("level", level);
        shown.finish_non_exhaustive()
    }
}

/// What a session needs next.
#[derive(Debug)]
pub enum Step {
    /// Carry this out: pass the answer to [`Session::say`] or [`Session::write`], and then call [`Session::finish`].
    Run(Request),
    /// Pass it what comes from the client.
    Read,
    /// Pass it what has come from the client, or say that nothing has: [`Session::nothing_came`].
    Look,
    /// Send the remaining output, and close.
    Close,
    /// Complete the request that is being carried out.
    Finish,
    /// Send the output; there is enough of it.
    Send,
}

impl Session {
    /// A session with these settings.
    pub fn new(settings: Settings) -> Session {
        Session {
            level: settings.level,
            expert: settings.expert,
            experimental: settings.experimental,
            severity: settings.severity,
            prompt: Prompt::default(),
            timeout: settings.timeout,
            settings,
            input: Input::default(),
            input_ended: false,
            commands: VecDeque::new(),
            payload_end: None,
            payload: None,
            answered: false,
            running: false,
            over: false,
            answered_all: false,
            output: Vec::new(),
            sent: 0,
            line_begins: true,
        }
    }

    /// How many bytes of input the session can take now.
    pub fn room(&self) -> usize {
        let limit = match &self.payload {
            Some(payload) => self.settings.payload_max.saturating_sub(payload.len()) + payload.end_len() + 2,
            None => self.settings.line_max + 2,
        };
        limit.saturating_sub(self.input.len())
    }

    /// Takes bytes from the client, at most [`Session::room`]; returns how many.
    pub fn receive(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.room());
        self.input.push(&bytes[..taken]);
        taken
    }

    /// Drops everything that has been received and not been carried out; returns whether there was anything.
    pub fn drop_input(&mut self) -> bool {
        let some = !self.commands.is_empty() || self.input.len() > 0;
        self.commands.clear();
        self.payload_end = None;
        self.input = Input::default();
        some
    }

    /// Records that the client has finished sending.
    pub fn end_input(&mut self) {
        self.input_ended = true;
    }

    /// Records that the client has sent nothing more, which ends a session that is not interactive.
    pub fn nothing_came(&mut self) {
        self.over |= self.answered_all;
    }

    /// What is needed next. `uptime` is how long the process has run.
    pub fn step(&mut self, uptime: Duration) -> Step {
        loop {
            if self.running {
                return Step::Finish;
            }
            if self.over {
                return Step::Close;
            }
            // The session answers some commands itself, however many of them a line has.
            if self.output().len() > OUTPUT_MAX {
                return Step::Send;
            }
            self.answered_all = false;
            let (words, payload) = match self.next_command() {
                Ok(Some(next)) => next,
                Ok(None) if self.input_ended => return Step::Close,
                Ok(None) => return if self.answered_all { Step::Look } else { Step::Read },
                Err(sentence) => {
                    self.say(Severity::Error, &sentence);
                    self.finish(uptime);
                    self.over = true;
                    return Step::Close;
                }
            };
            // An empty command, such as that behind a semicolon, asks for nothing.
            if words.is_empty() && payload.is_none() {
                self.finish(uptime);
                continue;
            }
            match self.understand(words, payload) {
                Ok(request) => match request.command {
                    Command::Own(own) => self.carry_out(own, uptime),
                    _ => {
                        self.running = true;
                        return Step::Run(request);
                    }
                },
                Err((severity, sentence)) => {
                    self.say(severity, &sentence);
                    self.finish(uptime);
                }
            }
        }
    }

    /// How long the client may be silent, or not read what it is sent.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// What is shown between answers.
    pub fn prompt(&self) -> Prompt {
        self.prompt
    }

    /// Adds a sentence to an answer.
    pub fn say(&mut self, severity: Severity, sentence: &str) {
        if !sentence.is_empty() {
            self.write(self.severity.prefix(severity).as_bytes());
            self.write(sentence.as_bytes());
            if !self.line_begins {
                self.write(b"\n");
            }
        }
    }

    /// Adds data to an answer. Empty lines, which would end it, are dropped.
    pub fn write(&mut self, piece: &[u8]) {
        for line in piece.split_inclusive(|&byte| byte == b'\n') {
            if self.line_begins && line == b"\n" {
                continue;
            }
            self.output.extend_from_slice(line);
            self.line_begins = line.ends_with(b"\n");
        }
    }

    /// Completes the answer.
    pub fn finish(&mut self, uptime: Duration) {
        self.running = false;
        if !self.line_begins {
            self.output.push(b'\n');
        }
        self.output.push(b'\n');
        self.line_begins = true;
        self.prompt_again(uptime);
    }

    /// The bytes to be sent.
    pub fn output(&self) -> &[u8] {
        &self.output[self.sent..]
    }

    /// Records that this many bytes have been sent.
    pub fn sent(&mut self, bytes: usize) {
        self.sent = (self.sent + bytes).min(self.output.len());
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
            // Memory for one long piece is not kept while the session waits.
            self.output.shrink_to(self.settings.line_max);
        }
    }

    /// The next command with its payload, if they are complete; a sentence if they are too long.
    fn next_command(&mut self) -> Result<Option<Given>, String> {
        loop {
            if let Some(payload) = &mut self.payload {
                let Some(line) = self.input.line() else {
                    let begun = self.input.waiting();
                    let is_too_long = payload.len() + begun.len() > self.settings.payload_max;
                    // What may become the line that ends a payload does not count, however it was cut.
                    let is_refused = is_too_long && !payload.may_end_with(begun);
                    return if is_refused { Err(self.payload_too_long()) } else { Ok(None) };
                };
                let is_last = payload.line(&line);
                if payload.len() > self.settings.payload_max {
                    return Err(self.payload_too_long());
                }
                if line.contains(&0) {
                    return Err(ZERO_BYTE.into());
                }
                if is_last {
                    let words = self.commands.pop_front().unwrap_or_default();
                    return Ok(Some((words, self.payload.take().map(Payload::into_bytes))));
                }
                self.prompt_for_payload();
            } else if self.commands.len() == 1
                && let Some(end) = self.payload_end.take()
            {
                self.payload = Some(Payload::new(end));
                self.prompt_for_payload();
            } else if let Some(words) = self.commands.pop_front() {
                return Ok(Some((words, None)));
            } else {
                let line = self.input.line();
                let length = line.as_ref().map_or(self.input.len(), Vec::len);
                if length > self.settings.line_max {
                    return Err(format!("A line may have {} bytes, as tune.bufsize says.", self.settings.line_max));
                }
                let Some(line) = line else {
                    // Commands that were sent after the first line are carried out, but not waited for.
                    self.answered_all = self.answered && !self.prompt.interactive && self.input.len() == 0;
                    return Ok(None);
                };
                if line.contains(&0) {
                    return Err(ZERO_BYTE.into());
                }
                let line = Line::parse(&line);
                self.answered = true;
                self.payload_end = line.payload_end;
                self.commands.extend(line.commands);
            }
        }
    }

    fn payload_too_long(&self) -> String {
        format!("A payload may have {} bytes, as tune.cli.max-payload-size says.", self.settings.payload_max)
    }

    /// Parses the words, and checks that this client may use the command.
    fn understand(&self, words: Vec<String>, payload: Option<Vec<u8>>) -> Result<Request, (Severity, String)> {
        let table = &self.settings.table;
        let modes = |mode| self.has_mode(mode);
        let every = Table::new(&[&SESSION]);
        let (found, mut args) = match every.find(words.clone(), None, modes) {
            Found::Entry(found, args) => (found, args),
            Found::Nothing => match table.find(words.clone(), payload.clone(), modes) {
                Found::Entry(found, args) => (found, args),
                Found::Nothing => return Err(self.unknown(&words)),
            },
        };
        let entry = found.about;
        if self.level < entry.level {
            return Err((Severity::Error, "Permission denied".into()));
        }
        let command = found.parse(&mut args).map_err(|refusal| (Severity::Error, refusal.0))?;
        let (changes, level) = (entry.changes, self.level);
        if changes.is_none() {
            return Ok(Request { command, changes, told: String::new(), level, words: Vec::new(), payload: None });
        }
        Ok(Request { command, changes, told: entry.told(&words), level, words, payload })
    }

    /// The response to words that name no command, or a command whose mode the client has not enabled.
    fn unknown(&self, words: &[String]) -> (Severity, String) {
        let Found::Entry(found, _) = self.settings.table.find(words.to_vec(), None, |_| true) else {
            return (Severity::Info, help::unknown(&self.settings.table, words, |mode| self.has_mode(mode)));
        };
        let mode = if found.about.mode == Mode::Expert { "expert" } else { "experimental" };
        (Severity::Error, format!("This command is restricted to {mode} mode only."))
    }

    fn has_mode(&self, mode: Mode) -> bool {
        match mode {
            Mode::Always => true,
            Mode::Expert => self.expert,
            Mode::Experimental => self.experimental,
        }
    }

    fn carry_out(&mut self, own: Own, uptime: Duration) {
        let state = |on: bool| if on { "ON" } else { "OFF" };
        match own {
            Own::Help(words) => {
                let page = help::help(&self.settings.table, &words, |mode| self.has_mode(mode));
                self.say(Severity::Info, &page);
            }
            Own::Prompt(words) => self.change_prompt(&words),
            Own::Quit => {
                self.over = true;
                return;
            }
            Own::Lower(level) => self.level = self.level.min(level),
            Own::ShowLevel { json: true } => {
                self.write(format!("{{\"level\":\"{}\"}}\n", self.level.word()).as_bytes())
            }
            Own::ShowLevel { json: false } => self.say(Severity::Info, self.level.word()),
            Own::SeverityOutput(output) => self.severity = output,
            Own::Timeout(timeout) => self.timeout = timeout,
            Own::Expert(Some(on)) => self.expert = on,
            Own::Expert(None) => self.say(Severity::Info, &format!("expert-mode is {}", state(self.expert))),
            Own::Experimental(Some(on)) => self.experimental = on,
            Own::Experimental(None) => {
                self.say(Severity::Info, &format!("experimental-mode is {}", state(self.experimental)));
            }
            Own::Echo(text) => self.write(text.as_bytes()),
        }
        self.finish(uptime);
    }

    fn change_prompt(&mut self, words: &[String]) {
        let mut is_told = false;
        for word in words {
            is_told |= ["n", "i", "p", "timed"].contains(&word.as_str());
            match word.as_str() {
                "n" => (self.prompt.interactive, self.prompt.shown) = (false, false),
                "i" => (self.prompt.interactive, self.prompt.shown) = (true, false),
                "p" => (self.prompt.interactive, self.prompt.shown) = (true, true),
                "timed" => self.prompt.timed ^= true,
                "help" => {
                    self.say(
                        Severity::Info,
                        "prompt        : toggle interactive mode and its prompt\n\
                         prompt n      : one line, and its answers\n\
                         prompt i      : many lines, no prompt\n\
                         prompt p      : many lines, with a prompt\n\
                         prompt timed  : toggle the time that the process has run, in the prompt\n",
                    );
                    return;
                }
                _ => {}
            }
        }
        if !is_told {
            let on = !self.prompt.shown;
            (self.prompt.interactive, self.prompt.shown) = (on, on);
        }
    }

    fn prompt_again(&mut self, uptime: Duration) {
        if self.prompt.shown && !self.over {
            if self.prompt.timed {
                let seconds = uptime.as_secs();
                let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
                let time = format!("[{days}:{hours:02}:{minutes:02}:{:02}]", seconds % 60);
                self.output.extend_from_slice(time.as_bytes());
            }
            self.output.extend_from_slice(self.settings.name.as_bytes());
            self.output.extend_from_slice(b"> ");
        }
    }

    fn prompt_for_payload(&mut self) {
        if self.prompt.shown {
            self.output.extend_from_slice(b"+ ");
        }
    }
}

/// The words of a command, and its payload.
type Given = (Vec<String>, Option<Vec<u8>>);

/// Bytes received and not parsed yet.
#[derive(Default)]
struct Input {
    bytes: Vec<u8>,
    /// The bytes before this have been taken.
    start: usize,
    /// Searched for a line end up to here; found none.
    searched: usize,
}

impl Input {
    fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    fn waiting(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.start);
        self.searched = self.searched.saturating_sub(self.start);
        self.start = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes a line, if there is a complete one.
    fn line(&mut self) -> Option<Vec<u8>> {
        let from = self.searched.max(self.start);
        let Some(length) = self.bytes[from..].iter().position(|&byte| byte == b'\n') else {
            self.searched = self.bytes.len();
            return None;
        };
        let line = self.bytes[self.start..from + length].to_vec();
        self.start = from + length + 1;
        self.searched = self.start;
        Some(line)
    }
}
