//! The conversation with one client of the master's command socket (pure): bytes in; requests to the master, commands
//! for workers, and bytes for the client out.
//!
//! At first a session is not interactive: it carries out what the client has sent, and ends. What a client sends is
//! bounded by [`LINE_MAX`] and [`PAYLOAD_MAX`], and no more is taken from it while something is being carried out.

use super::commands::{self, Own, Switch};
use crate::tie::{self, Level, Rights};
use std::time::Duration;

/// The longest line: HAProxy's buffer.
const LINE_MAX: usize = 16 << 10;

/// The longest payload; workers have a limit of their own (`tune.cli.max-payload-size`).
const PAYLOAD_MAX: usize = 8 << 20;

/// How long a client may be silent, as for HAProxy's stats sockets.
const PATIENCE: Duration = Duration::from_secs(10);

/// A process, as selected by a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The worker that serves.
    Current,
    /// A worker by its id.
    Pid(i32),
    /// No process; the text is what the client wrote.
    Nobody(String),
}

impl Target {
    /// The answer if there is no such process.
    pub fn missing(&self) -> String {
        let prefix = match self {
            Target::Current => "1".to_owned(),
            Target::Pid(pid) => format!("!{pid}"),
            Target::Nobody(text) => text.clone(),
        };
        format!("Can't find the target PID matching the prefix '@{prefix}'")
    }
}

/// What the session needs next.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Pass it input from the client.
    Read,
    /// Ask the master, and pass the answer to [`Session::answer`].
    Ask(Ask),
    /// Send this to a worker, and its answer to the client; then call [`Session::answered`], or [`Session::answer`] if
    /// there is no such worker. With `both_ways`, the client's further input also goes to the worker.
    Forward { target: Target, text: Vec<u8>, rights: Rights, both_ways: bool },
    /// Send the remaining output, and close.
    Close,
}

/// A request to the master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    Sockets,
    Processes,
    StartupLogs,
    Reload {
        hard: bool,
    },
    /// Find a worker; the result goes to [`Session::found`].
    Find(Target),
}

/// A conversation.
pub struct Session {
    rights: Rights,
    debug: bool,
    timeout: Duration,
    interactive: bool,
    shows_prompt: bool,
    /// The worker that commands go to, if not the master.
    worker: Option<i32>,
    reload_failed: bool,
    input: Vec<u8>,
    input_ended: bool,
    /// The rest of the line.
    line: Option<Vec<u8>>,
    /// A command that waits for its payload, and the line that ends that.
    payload: Option<Payload>,
    has_had_line: bool,
    over: bool,
    output: Vec<u8>,
}

struct Payload {
    target: Target,
    text: Vec<u8>,
    end: Vec<u8>,
}

impl Session {
    /// A session of a client with this level.
    pub fn new(level: Level) -> Session {
        Session {
            rights: Rights::new(level),
            debug: false,
            timeout: PATIENCE,
            interactive: false,
            shows_prompt: false,
            worker: None,
            reload_failed: false,
            input: Vec::new(),
            input_ended: false,
            line: None,
            payload: None,
            has_had_line: false,
            over: false,
            output: Vec::new(),
        }
    }

    /// How long the client may be silent, or not read.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Takes input from the client; an empty slice means that it has ended.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.input_ended |= bytes.is_empty();
        self.input.extend_from_slice(bytes);
    }

    /// Takes the bytes to be sent.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// What is needed next. Prompts show whether the last reload failed.
    pub fn step(&mut self, reload_failed: bool) -> Step {
        self.reload_failed = reload_failed;
        loop {
            if self.over {
                return Step::Close;
            }
            let step = if self.payload.is_some() { self.read_payload() } else { self.next_command() };
            if let Some(step) = step {
                return step;
            }
        }
    }

    /// Takes the master's answer. After the answer to a reload the session ends.
    pub fn answer(&mut self, text: &str) {
        for line in text.lines().filter(|line| !line.is_empty()) {
            self.output.extend_from_slice(line.as_bytes());
            self.output.push(b'\n');
        }
        self.output.push(b'\n');
        self.prompt();
    }

    /// Records that a worker has answered.
    pub fn answered(&mut self) {
        self.prompt();
    }

    /// Sets the worker that commands go to from now on.
    pub fn found(&mut self, target: &Target, worker: Option<i32>) {
        match worker {
            Some(_) => {
                self.worker = worker;
                self.prompt();
            }
            None => self.answer(&target.missing()),
        }
    }

    /// Ends the session: nothing more is carried out.
    pub fn end(&mut self) {
        self.over = true;
    }

    fn next_command(&mut self) -> Option<Step> {
        let Some(mut line) = self.line.take() else { return self.next_line() };
        let start = line.iter().take_while(|c| c.is_ascii_whitespace()).count();
        line.drain(..start);
        if line.starts_with(b"@@") {
            let (word, rest) = split_word(&line[2..]);
            return Some(self.converse(target(word), rest));
        }
        let end = end_of_command(&line);
        if end < line.len() {
            self.line = Some(line.split_off(end + 1));
            line.truncate(end);
        }
        self.command(&line)
    }

    /// Takes a line from the input.
    fn next_line(&mut self) -> Option<Step> {
        match take_line(&mut self.input) {
            Some(mut line) => {
                if line.ends_with(b"\r") {
                    line.pop();
                }
                self.has_had_line = true;
                self.line = Some(line);
                None
            }
            None if self.input.len() > LINE_MAX => {
                self.answer(&format!("A line may have {LINE_MAX} bytes."));
                self.over = true;
                None
            }
            None if self.input_ended || (self.has_had_line && !self.interactive) => Some(Step::Close),
            None => Some(Step::Read),
        }
    }

    /// Carries out one command, or returns who has to.
    fn command(&mut self, text: &[u8]) -> Option<Step> {
        let text = text.trim_ascii();
        let (target, text, is_turned) = match text.strip_prefix(b"@") {
            Some(rest) => {
                let (word, rest) = split_word(rest);
                let target = match word {
                    b"" | b"0" | b"master" => None,
                    word => Some(target(word)),
                };
                if rest.is_empty() {
                    return self.turn_to(target);
                }
                (target, rest, false)
            }
            None => (self.worker.map(Target::Pid), text, true),
        };
        let Some(target) = target else { return self.own(text) };
        // What concerns the session itself stays here: a level that is lowered has to apply to the commands that follow too.
        if commands::concerns_session(text, is_turned) {
            return self.own(text);
        }
        // A worker's conversation ends with its command in any case.
        if !is_turned && (text == b"quit" || text == b"exit") {
            self.prompt();
            return None;
        }
        let mut line = text.to_vec();
        line.push(b'\n');
        match payload_end(text) {
            Some(end) if self.line.is_none() => {
                self.payload = Some(Payload { target, text: line, end: end.to_vec() });
                self.prompt_for_payload();
                None
            }
            _ => Some(self.forward(target, line, false)),
        }
    }

    /// Handles a prefix on its own: later commands go to that process.
    fn turn_to(&mut self, target: Option<Target>) -> Option<Step> {
        match target {
            Some(target) => Some(Step::Ask(Ask::Find(target))),
            None => {
                self.worker = None;
                self.prompt();
                None
            }
        }
    }

    /// `@@`: the rest of the line goes to the worker unchanged; if it is empty, so does all further input until the
    /// worker ends the conversation.
    fn converse(&mut self, target: Target, rest: &[u8]) -> Step {
        let mut text = match (rest.is_empty(), self.shows_prompt) {
            (false, _) => rest.to_vec(),
            (true, false) => b"prompt i".to_vec(),
            (true, true) => b"prompt p".to_vec(),
        };
        text.push(b'\n');
        text.append(&mut self.input);
        self.forward(target, text, true)
    }

    fn forward(&self, target: Target, text: Vec<u8>, both_ways: bool) -> Step {
        Step::Forward { target, text, rights: self.rights, both_ways }
    }

    fn read_payload(&mut self) -> Option<Step> {
        while let Some(line) = take_line(&mut self.input) {
            let payload = self.payload.as_mut().expect("the caller has looked");
            payload.text.extend_from_slice(&line);
            payload.text.push(b'\n');
            if line.strip_suffix(b"\r").unwrap_or(&line) == payload.end {
                let Payload { target, text, .. } = self.payload.take().expect("as above");
                return Some(self.forward(target, text, false));
            }
            self.prompt_for_payload();
        }
        let so_far = self.payload.as_ref().map_or(0, |payload| payload.text.len()) + self.input.len();
        if so_far > PAYLOAD_MAX {
            self.answer(&format!("A payload may have {PAYLOAD_MAX} bytes."));
            self.over = true;
            return None;
        }
        Some(if self.input_ended { Step::Close } else { Step::Read })
    }

    fn own(&mut self, text: &[u8]) -> Option<Step> {
        let text = String::from_utf8_lossy(text);
        let words: Vec<String> = text.split_whitespace().map(String::from).collect();
        if words.is_empty() {
            self.prompt();
            return None;
        }
        let own = match commands::parse(&words, self.rights.level) {
            Ok(own) => own,
            Err(sentence) => {
                self.answer(&sentence);
                return None;
            }
        };
        match own {
            Own::Help(words) => self.answer(&commands::help(&words)),
            Own::Prompt(words) => self.change_prompt(&words),
            Own::Quit => self.over = true,
            Own::Lower(level) => {
                self.rights.level = self.rights.level.min(level);
                self.prompt();
            }
            Own::ShowLevel => self.answer(tie::word(self.rights.level)),
            Own::ShowVersion => self.answer(&crate::version::reported()),
            Own::Switch(which, None) => {
                let state = if *self.switch(which) { "ON" } else { "OFF" };
                self.answer(&format!("{} is {state}", which.name()));
            }
            Own::Switch(which, Some(on)) => {
                *self.switch(which) = on;
                self.prompt();
            }
            Own::Severity(output) => {
                self.rights.severity = output;
                self.prompt();
            }
            Own::Timeout(timeout) => {
                self.timeout = timeout;
                self.prompt();
            }
            Own::ShowSockets => return Some(Step::Ask(Ask::Sockets)),
            Own::ShowProcesses => return Some(Step::Ask(Ask::Processes)),
            Own::ShowStartupLogs => return Some(Step::Ask(Ask::StartupLogs)),
            Own::Reload { hard } => return Some(Step::Ask(Ask::Reload { hard })),
        }
        None
    }

    fn switch(&mut self, which: Switch) -> &mut bool {
        match which {
            Switch::Expert => &mut self.rights.expert,
            Switch::Experimental => &mut self.rights.experimental,
            Switch::Debug => &mut self.debug,
        }
    }

    fn change_prompt(&mut self, words: &[String]) {
        (self.interactive, self.shows_prompt) = match words.first().map(String::as_str) {
            Some("n") => (false, false),
            Some("i") => (true, false),
            Some("p") => (true, true),
            _ => (!self.shows_prompt, !self.shows_prompt),
        };
        self.prompt();
    }

    fn prompt(&mut self) {
        if !self.shows_prompt || self.over {
            return;
        }
        let who = match (self.worker, self.reload_failed) {
            (Some(pid), _) => pid.to_string(),
            (None, false) => "master".into(),
            (None, true) => "master[ReloadFailed]".into(),
        };
        let flags = [(self.rights.experimental, 'x'), (self.rights.expert, 'e'), (self.debug, 'd')];
        let flags: String = flags.into_iter().filter(|(on, _)| *on).map(|(_, flag)| flag).collect();
        let flags = if flags.is_empty() { flags } else { format!("({flags})") };
        self.output.extend_from_slice(format!("{who}{flags}> ").as_bytes());
    }

    fn prompt_for_payload(&mut self) {
        if self.shows_prompt {
            self.output.extend_from_slice(b"+ ");
        }
    }
}

/// Parses the text after `@`.
fn target(word: &[u8]) -> Target {
    let text = String::from_utf8_lossy(word);
    match text.strip_prefix('!') {
        Some(pid) => pid.parse().ok().filter(|pid| *pid > 0).map(Target::Pid),
        // There is one worker at a time.
        None => (text == "1").then_some(Target::Current),
    }
    .unwrap_or_else(|| Target::Nobody(text.into_owned()))
}

/// Splits off the first word.
fn split_word(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len());
    (&text[..end], text[end..].trim_ascii())
}

/// The position of the first semicolon that is not escaped with a backslash.
fn end_of_command(line: &[u8]) -> usize {
    let mut escaped = false;
    let ends = line.iter().position(|&byte| {
        let ends = byte == b';' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    ends.unwrap_or(line.len())
}

/// The line that ends the payload, if the last word announces one.
fn payload_end(command: &[u8]) -> Option<&[u8]> {
    command.rsplit(u8::is_ascii_whitespace).next()?.strip_prefix(b"<<").filter(|end| end.len() <= 64)
}

fn take_line(input: &mut Vec<u8>) -> Option<Vec<u8>> {
    let end = input.iter().position(|&byte| byte == b'\n')?;
    let mut line: Vec<u8> = input.drain(..=end).collect();
    line.pop();
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a session on input split into pieces of size `cut`; returns each step and each piece of output.
    fn run(bytes: &[u8], cut: usize) -> Vec<String> {
        let mut session = Session::new(Level::Admin);
        let mut pieces = bytes.chunks(cut);
        let mut seen = Vec::new();
        let mut told = String::new();
        loop {
            let step = session.step(false);
            told.push_str(&String::from_utf8(session.take_output()).unwrap());
            match step {
                Step::Read => session.receive(pieces.next().unwrap_or_default()),
                Step::Close => break,
                other => {
                    if !told.is_empty() {
                        seen.push(std::mem::take(&mut told));
                    }
                    match other {
                        Step::Ask(Ask::Find(target)) => {
                            let pid = (target == Target::Current).then_some(7);
                            session.found(&target, pid);
                        }
                        Step::Ask(ask) => {
                            seen.push(format!("{ask:?}"));
                            session.answer("asked");
                        }
                        Step::Forward { target, text, rights, both_ways } => {
                            let modes = (rights.expert, rights.severity);
                            let text = String::from_utf8(text).unwrap();
                            seen.push(match both_ways {
                                true => format!("both ways {target:?} {text:?}"),
                                false => format!("{target:?} {modes:?} {text:?}"),
                            });
                            session.answered();
                        }
                        Step::Read | Step::Close => unreachable!(),
                    }
                }
            }
        }
        seen.extend(Some(told).filter(|told| !told.is_empty()));
        seen
    }

    /// The result does not depend on how the input is split.
    fn seen(bytes: &[u8]) -> Vec<String> {
        let whole = run(bytes, bytes.len());
        assert_eq!(run(bytes, 1), whole);
        whole
    }

    #[test]
    fn a_line_is_carried_out_in_order_and_the_session_is_over() {
        let wanted = ["Processes", "asked\n\n", "Current (false, None) \"show info\\n\"", "admin\n\n"];
        assert_eq!(seen(b"show proc;@1 show info;show cli level\n"), wanted);
        assert_eq!(seen(b"\n"), [""; 0]);
        assert_eq!(seen(b"show proc"), [""; 0], "a line without an end is none");
    }

    #[test]
    fn a_prefix_alone_turns_what_follows_to_a_worker() {
        let wanted = ["Pid(7) (false, None) \"show info\\n\"", "Pid(7) (false, None) \"show stat\\n\""];
        assert_eq!(seen(b"@1; show info; show stat\n"), wanted);
        assert_eq!(seen(b"@1;@;show cli level\n"), ["admin\n\n"]);
        assert_eq!(seen(b"@1;@master show cli level\n"), ["admin\n\n"]);
        assert_eq!(seen(b"@2;show cli level\n"), ["Can't find the target PID matching the prefix '@2'\n\nadmin\n\n"]);
        assert_eq!(seen(b"@!x\n"), ["Can't find the target PID matching the prefix '@!x'\n\n"]);
        assert_eq!(seen(b"@!12 a\n"), ["Pid(12) (false, None) \"a\\n\""]);
    }

    #[test]
    fn prompts_say_where_one_is_and_in_which_modes() {
        let told = seen(b"prompt\nexpert-mode on\nexperimental-mode on\n@1\n@\nmcli-debug-mode on\nquit\n").concat();
        assert_eq!(told, "master> master(e)> master(xe)> 7(xe)> master(xe)> master(xed)> ");
        let mut session = Session::new(Level::Admin);
        session.receive(b"prompt\n");
        assert_eq!(session.step(true), Step::Read);
        assert_eq!(session.take_output(), b"master[ReloadFailed]> ");
    }

    #[test]
    fn a_level_lowered_behind_a_prefix_stays_lowered() {
        for told in ["@1;user;show env;show cli level\n", "prompt i\n@1\nuser\nshow env\nshow cli level\n"] {
            let mut session = Session::new(Level::Admin);
            session.receive(told.as_bytes());
            let mut levels = Vec::new();
            loop {
                match session.step(false) {
                    Step::Ask(Ask::Find(target)) => session.found(&target, Some(7)),
                    Step::Forward { rights, .. } => {
                        levels.push(rights.level);
                        session.answered();
                    }
                    Step::Read => session.receive(b""),
                    Step::Close => break,
                    Step::Ask(_) => unreachable!("only workers are asked"),
                }
            }
            assert_eq!(levels, [Level::User, Level::User], "{told}");
        }
        let modes = ["Pid(7) (true, Number) \"a\\n\""];
        assert_eq!(seen(b"@1;expert-mode on;set severity-output number;a\n"), modes);
    }

    #[test]
    fn modes_and_severities_go_to_the_worker() {
        let wanted = ["Current (true, Number) \"a\\n\""];
        assert_eq!(seen(b"set severity-output number;expert-mode on;@1 a;quit\n"), wanted);
    }

    #[test]
    fn a_payload_goes_along_whatever_is_in_it() {
        assert_eq!(
            run(b"@1 set x <<\na;@ b\n\nshow cli level\n", 99),
            ["Current (false, None) \"set x <<\\na;@ b\\n\\n\"", "admin\n\n"]
        );
        assert_eq!(seen(b"@1 set x <<END\r\n\n1\nEND\n"), ["Current (false, None) \"set x <<END\\n\\n1\\nEND\\n\""]);
        assert_eq!(seen(b"@1 set x <<\nno end\n"), [""; 0]);
    }

    #[test]
    fn two_signs_give_the_worker_the_rest() {
        assert_eq!(seen(b"@@1 show info;show stat\n"), ["both ways Current \"show info;show stat\\n\""]);
        assert_eq!(run(b"@@1\nshow info\n", 99), ["both ways Current \"prompt i\\nshow info\\n\""]);
    }

    #[test]
    fn a_backslash_takes_the_meaning_of_a_semicolon() {
        assert_eq!(
            seen(
                br"@1 a\;b c;show cli level
"
            ),
            [r#"Current (false, None) "a\\;b c\n""#, "admin\n\n"]
        );
    }

    #[test]
    fn what_is_too_long_is_refused() {
        let long = vec![b'a'; LINE_MAX + 2];
        assert!(run(&long, 1000).concat().starts_with("A line may have"));
        let long = [&b"@1 set x <<\n"[..], &b"line\n".repeat(PAYLOAD_MAX / 5 + 1)].concat();
        assert!(run(&long, 4096).concat().starts_with("A payload may have"));
    }

    #[test]
    fn who_may_not_is_told_so() {
        let mut session = Session::new(Level::User);
        session.receive(b"reload;@1 a\n");
        assert!(matches!(session.step(false), Step::Forward { rights, .. } if rights.level == Level::User));
        assert_eq!(session.take_output(), b"Permission denied\n\n");
    }
}
