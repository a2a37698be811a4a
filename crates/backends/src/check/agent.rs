//! What the agent of `agent-check` answers: one line of words, which say how much the server can take and in what state it wants to
//! be. Bytes in, an [`AgentReply`] out; [`Backends::agent_answered`](crate::server::Backends::agent_answered) applies it.

use super::{Outcome, Verdict, outcome::printable};

/// The longest answer that is read. The line of an agent has a few dozen bytes.
const LINE_MAX: usize = 16 * 1024;

/// The most bytes of an agent's text that logs and statistics show.
const TEXT_MAX: usize = 127;

/// An answer that is being received.
#[derive(Debug, Default)]
pub struct AgentLine {
    bytes: Vec<u8>,
    complete: bool,
}

/// What to do after bytes were received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentProgress {
    /// Receive more.
    More,
    /// The answer is known, whatever would follow.
    Done(AgentReply),
}

impl AgentLine {
    /// Adds bytes that were received.
    pub fn received(&mut self, bytes: &[u8]) -> AgentProgress {
        let room = LINE_MAX - self.bytes.len();
        let taken = &bytes[..bytes.len().min(room)];
        // A null byte ends the text like the end of the line does, but does not complete it.
        let end = taken.iter().position(|byte| matches!(byte, b'\r' | b'\n' | 0));
        self.bytes.extend_from_slice(&taken[..end.unwrap_or(taken.len())]);
        match end {
            Some(end) if taken[end] != 0 => {
                self.complete = true;
                AgentProgress::Done(self.answer())
            }
            Some(_) => AgentProgress::Done(self.answer()),
            None if self.bytes.len() >= LINE_MAX => AgentProgress::Done(self.answer()),
            None => AgentProgress::More,
        }
    }

    /// The answer of an agent that has closed its connection.
    pub fn ended(&self) -> AgentReply {
        if self.bytes.is_empty() {
            // HAProxy's words: an agent is to it a script of two steps.
            return AgentReply::failed(Outcome::new(Verdict::L7Response, "TCPCHK got an empty response at step 2"));
        }
        self.answer()
    }

    fn answer(&self) -> AgentReply {
        if !self.complete {
            return AgentReply { health: AgentHealth::Incomplete, ..AgentReply::default() };
        }
        parse(&String::from_utf8_lossy(&self.bytes))
    }
}

/// An agent's answer, or why there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentReply {
    /// The state that it asks for.
    pub state: Option<AgentState>,
    /// The weight that it asks for, as written: a percentage of the configured one.
    pub weight: Option<String>,
    /// The limit of connections that it asks for, as written.
    pub maxconn: Option<String>,
    /// Whether the server is up.
    pub health: AgentHealth,
    /// The agent's description of the state, or the word that was not understood.
    pub text: String,
}

/// The state that an agent asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentState {
    /// In service.
    Ready,
    /// No new clients.
    Drain,
    /// Out of service.
    Maint,
}

/// What an agent says about the health of its server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AgentHealth {
    /// Nothing.
    #[default]
    Unsaid,
    /// The server is up; the word as written.
    Up(String),
    /// The server is down; the word as written.
    Down(String),
    /// The line was not complete, and is ignored.
    Incomplete,
    /// The agent could not be asked.
    Failed(Outcome),
}

impl AgentReply {
    /// No answer, with the reason.
    pub fn failed(outcome: Outcome) -> AgentReply {
        AgentReply { health: AgentHealth::Failed(outcome), ..AgentReply::default() }
    }

    /// The outcome for logs and statistics. `refused` says why the weight or the limit was not applied.
    pub fn outcome(&self, refused: Option<&str>) -> Option<Outcome> {
        let with = |text: &str, word: &str| match text {
            "" => format!("via agent : {word}"),
            text => format!("via agent : {word} ({text})"),
        };
        let text = Some(self.text.as_str()).filter(|text| !text.is_empty()).or(refused);
        let mut outcome = match (&self.health, text) {
            (AgentHealth::Incomplete, _) => return None,
            (AgentHealth::Failed(outcome), _) => outcome.clone(),
            (AgentHealth::Up(word), text) => Outcome::new(Verdict::L7Ok, with(text.unwrap_or(""), word)),
            (AgentHealth::Down(word), text) => Outcome::new(Verdict::L7Status, with(text.unwrap_or(""), word)),
            (AgentHealth::Unsaid, Some(text)) if self.text.is_empty() => {
                Outcome::new(Verdict::Unchanged, format!("agent warns : {text}"))
            }
            (AgentHealth::Unsaid, Some(text)) => {
                Outcome::new(Verdict::Unchanged, format!("agent reports an error : {text}"))
            }
            (AgentHealth::Unsaid, None) => Outcome::new(Verdict::Unchanged, ""),
        };
        let mut end = outcome.info.len().min(TEXT_MAX);
        while !outcome.info.is_char_boundary(end) {
            end -= 1;
        }
        outcome.info.truncate(end);
        Some(outcome)
    }
}

/// Parses a line. Words are separated by blanks and commas; where several say the same kind of thing the last one counts, and of words
/// that are not understood the first one is reported. What follows `#` is a description.
fn parse(line: &str) -> AgentReply {
    let mut answer = AgentReply::default();
    let blank = |c: char| matches!(c, ' ' | '\t' | ',');
    let mut rest = line;
    loop {
        rest = rest.trim_start_matches(blank);
        if let Some(description) = rest.strip_prefix('#') {
            let description = description.trim_start_matches(blank);
            // It explains a state of health; without one it says nothing.
            if answer.health != AgentHealth::Unsaid {
                answer.text = printable(description);
            }
            return answer;
        }
        if rest.is_empty() {
            return answer;
        }
        let (word, after) = rest.split_at(rest.find(blank).unwrap_or(rest.len()));
        rest = after;
        let lower = word.to_ascii_lowercase();
        match lower.as_str() {
            "up" => answer.health = AgentHealth::Up(word.into()),
            "down" | "stopped" | "fail" => answer.health = AgentHealth::Down(word.into()),
            "ready" => answer.state = Some(AgentState::Ready),
            "drain" => answer.state = Some(AgentState::Drain),
            "maint" => answer.state = Some(AgentState::Maint),
            other if other.starts_with(|c: char| c.is_ascii_digit()) && other.contains('%') => {
                answer.weight = Some(word.into());
            }
            other => match other.strip_prefix("maxconn:") {
                Some(limit) => answer.maxconn = Some(limit.into()),
                None if answer.text.is_empty() => answer.text = printable(word),
                None => {}
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The answer to these bytes and the end of the connection.
    fn answer(bytes: &[u8]) -> AgentReply {
        let mut line = AgentLine::default();
        match line.received(bytes) {
            AgentProgress::Done(answer) => answer,
            AgentProgress::More => line.ended(),
        }
    }

    fn said(bytes: &[u8]) -> String {
        let outcome = answer(bytes).outcome(None);
        outcome.map_or("ignored".into(), |outcome| format!("{} {}", outcome.verdict.short(), outcome.info))
    }

    #[test]
    fn health_is_reported_as_haproxy_reports_it() {
        for (bytes, wanted) in [
            (&b"up\n"[..], "L7OK via agent : up"),
            (b"UP, 10%, MAXCONN:5\r\nmore\n", "L7OK via agent : UP"),
            (b"  up\n", "L7OK via agent : up"),
            (b"up # fine\n", "L7OK via agent : up (fine)"),
            (b"up garbage\n", "L7OK via agent : up (garbage)"),
            (b"down\n", "L7STS via agent : down"),
            (b"down #because of it\n", "L7STS via agent : down (because of it)"),
            (b"fail # x, y\n", "L7STS via agent : fail (x, y)"),
            (b"stopped\n", "L7STS via agent : stopped"),
            (b"garbage down\n", "L7STS via agent : down (garbage)"),
            (b"down a b c\n", "L7STS via agent : down (a)"),
            (b"down bad\tworse # yy\n", "L7STS via agent : down (yy)"),
            (b"ready,down,up\n", "L7OK via agent : up"),
            (b"x% up\n", "L7OK via agent : up (x%)"),
            (b"-5% up\n", "L7OK via agent : up (-5%)"),
            (b"75%\n", "CHECKED "),
            (b"\n", "CHECKED "),
            (b"#only\n", "CHECKED "),
            (b"garbage # xx\n", "CHECKED agent reports an error : garbage"),
            (b"garbage\n", "CHECKED agent reports an error : garbage"),
            (b"30\n", "CHECKED agent reports an error : 30"),
            (b"down#abc\n", "CHECKED agent reports an error : down#abc"),
            (b"up", "ignored"),
            (b"up\0down\n", "ignored"),
            (b"", "L7RSP TCPCHK got an empty response at step 2"),
            (b"down \x1b[2Jx\n", "L7STS via agent : down (?[2Jx)"),
        ] {
            assert_eq!(said(bytes), wanted, "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn the_last_state_weight_and_limit_count() {
        let answer = answer(b"maint,10%,ready 75% maxconn:3 MaxConn:30\n");
        assert_eq!(answer.state, Some(AgentState::Ready));
        assert_eq!((answer.weight.as_deref(), answer.maxconn.as_deref()), (Some("75%"), Some("30")));
    }

    #[test]
    fn why_something_was_not_applied_is_told() {
        let told = |bytes: &[u8]| answer(bytes).outcome(Some("why")).map(|outcome| outcome.info);
        assert_eq!(told(b"5%x\n").as_deref(), Some("agent warns : why"));
        assert_eq!(told(b"50%% up\n").as_deref(), Some("via agent : up (why)"));
        assert_eq!(told(b"50%% up # fine\n").as_deref(), Some("via agent : up (fine)"));
    }

    #[test]
    fn an_answer_without_end_is_bounded() {
        let mut line = AgentLine::default();
        let mut rounds = 0;
        while line.received(&[b'a'; 1000]) == AgentProgress::More {
            rounds += 1;
            assert!(rounds < 20);
        }
        assert_eq!(line.bytes.len(), LINE_MAX);
        let long = [b"down # ".as_slice(), "é".repeat(500).as_bytes(), b"\n"].concat();
        assert!(answer(&long).outcome(None).unwrap().info.len() <= TEXT_MAX);
    }

    proptest! {
        /// However the bytes are cut, the answer is the same.
        #[test]
        fn cuts_do_not_matter(bytes in prop::collection::vec(any::<u8>(), 0..60), cut in 0_usize..60) {
            let cut = cut.min(bytes.len());
            let mut line = AgentLine::default();
            let pieces = match line.received(&bytes[..cut]) {
                AgentProgress::Done(answer) => answer,
                AgentProgress::More => match line.received(&bytes[cut..]) {
                    AgentProgress::Done(answer) => answer,
                    AgentProgress::More => line.ended(),
                },
            };
            prop_assert_eq!(pieces, answer(&bytes));
        }
    }
}
