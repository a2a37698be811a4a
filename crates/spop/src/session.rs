//! One connection to an agent.

use crate::{
    AgentStatus,
    frame::{self, FIN, FRAME_PREFIX, FRAME_SIZE_MIN, Frame},
    hello::{self, AgentHello, Greeting},
};

/// After our farewell an agent has this long to say its own.
const FAREWELL_MS: u64 = 1_000;

/// What is offered to an agent, and for how long it is waited for.
#[derive(Clone, Debug)]
pub struct AgentSettings {
    /// The greatest size of a frame, at least [`crate::FRAME_SIZE_MIN`].
    pub max_frame_size: u32,
    /// Whether several payloads may wait for their acknowledgement.
    pub pipelining: bool,
    /// How many then may.
    pub waiting_max: usize,
    /// Whether acknowledgements may come over another connection.
    pub is_async: bool,
    /// Whether payloads that do not fit into a frame are sent in fragments.
    pub fragments: bool,
    /// What connections of one engine have in common.
    pub engine_id: String,
    /// How long the agent's hello may take.
    pub hello_ms: Option<u64>,
    /// How long the agent may be silent.
    pub idle_ms: Option<u64>,
}

/// What happened on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentEvent {
    /// The agent has greeted: payloads may be sent.
    Ready,
    /// The agent has acknowledged a payload.
    Acknowledged {
        /// The stream that was numbered so.
        stream: u64,
        /// The number of the payload in it.
        frame: u64,
        /// What [`crate::ack_actions`] reads.
        actions: Vec<u8>,
    },
    /// The connection carries nothing any more. What waits on it will not be acknowledged.
    Ended(AgentStatus),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Greeting,
    Open(AgentHello),
    /// We have said that we leave.
    Leaving,
    /// The same, and what the agent sends has lost its frames.
    Deaf,
    Over,
}

/// A connection, whose bytes and time someone else moves.
#[derive(Debug)]
pub struct AgentSession {
    settings: AgentSettings,
    state: State,
    input: Vec<u8>,
    output: Vec<u8>,
    /// The payloads that the agent owes an acknowledgement.
    waiting: Vec<(u64, u64)>,
    /// When the time began that the agent has now.
    since: u64,
    /// Whether a payload was sent after what the agent said last.
    is_silent: bool,
}

impl AgentSession {
    /// Begins: there is a hello to be sent.
    pub fn new(settings: AgentSettings, now: u64) -> AgentSession {
        let capabilities = match (settings.pipelining, settings.is_async) {
            (true, true) => "pipelining,async",
            (true, false) => "pipelining",
            (false, true) => "async",
            (false, false) => "",
        };
        let mut output = Vec::new();
        let greeting = Greeting {
            max_frame_size: settings.max_frame_size,
            capabilities,
            engine_id: Some(&settings.engine_id),
            is_check: false,
        };
        hello::write_hello(&greeting, &mut output);
        let state = State::Greeting;
        AgentSession { settings, state, input: Vec::new(), output, waiting: Vec::new(), since: now, is_silent: false }
    }

    /// Takes bytes of the agent.
    pub fn input(&mut self, bytes: &[u8], now: u64, events: &mut Vec<AgentEvent>) {
        match self.state {
            State::Over | State::Deaf => return,
            // A greeting or a farewell has to be whole in its time.
            State::Greeting | State::Leaving => {}
            State::Open(_) => (self.since, self.is_silent) = (now, false),
        }
        let mut input = std::mem::take(&mut self.input);
        input.extend_from_slice(bytes);
        let mut rest = &input[..];
        while !matches!(self.state, State::Over | State::Deaf) {
            let max = match self.state {
                State::Open(hello) => hello.max_frame_size,
                _ => self.settings.max_frame_size,
            };
            match Frame::read(&mut rest, max) {
                Ok(Some(frame)) => {
                    if let Err(status) = self.frame(&frame, now, events) {
                        self.leave(status, now, events);
                    }
                }
                Ok(None) => break,
                Err(status) => {
                    self.leave(status, now, events);
                    self.state = State::Deaf;
                }
            }
        }
        let read = input.len() - rest.len();
        input.drain(..read);
        if !matches!(self.state, State::Over | State::Deaf) {
            self.input = input;
        }
    }

    fn frame(&mut self, frame: &Frame<'_>, now: u64, events: &mut Vec<AgentEvent>) -> Result<(), AgentStatus> {
        match (frame.kind, self.state) {
            (frame::AGENT_DISCONNECT, State::Leaving) => self.state = State::Over,
            (_, State::Leaving | State::Deaf | State::Over) => {}
            (frame::AGENT_DISCONNECT, _) => {
                let status = hello::read_disconnect(frame.payload);
                self.end(status, events);
            }
            (frame::AGENT_HELLO, State::Greeting) => {
                whole(frame)?;
                if (frame.stream, frame.frame) != (0, 0) {
                    return Err(AgentStatus::INVALID);
                }
                self.state = State::Open(hello::read_hello(frame.payload, self.settings.max_frame_size)?);
                self.since = now;
                events.push(AgentEvent::Ready);
            }
            (frame::ACK, State::Open(_)) => {
                whole(frame)?;
                let (stream, number) = (frame.stream, frame.frame);
                self.forget(stream, number);
                events.push(AgentEvent::Acknowledged { stream, frame: number, actions: frame.payload.to_vec() });
            }
            (_, State::Greeting) | (frame::AGENT_HELLO, State::Open(_)) => return Err(AgentStatus::INVALID),
            // Of a later version (3.2.2).
            (_, State::Open(_)) => {}
        }
        Ok(())
    }

    /// Sends a payload. To be called only where there is [`AgentSession::room`].
    ///
    /// # Errors
    ///
    /// The payload does not fit into a frame, and cannot be sent in fragments.
    pub fn notify(&mut self, stream: u64, number: u64, payload: &[u8], now: u64) -> Result<(), AgentStatus> {
        let State::Open(hello) = self.state else { return Err(AgentStatus::IO) };
        let piece = hello.max_frame_size as usize - frame::overhead(stream, number);
        if payload.len() > piece && !(self.settings.fragments && hello.fragmentation) {
            return Err(AgentStatus::TOO_BIG);
        }
        if !std::mem::replace(&mut self.is_silent, true) {
            self.since = now;
        }
        self.waiting.push((stream, number));
        let count = payload.len().div_ceil(piece).max(1);
        for (at, part) in (0..count).map(|at| (at, &payload[at * piece..payload.len().min((at + 1) * piece)])) {
            let kind = if at == 0 { frame::NOTIFY } else { frame::UNSET };
            let flags = if at + 1 == count { FIN } else { 0 };
            Frame { kind, flags, stream, frame: number, payload: part }.write(&mut self.output);
        }
        Ok(())
    }

    /// Whether another payload may be sent. What the agent does not read holds up the next payload, so that it is bounded.
    pub fn room(&self) -> bool {
        match self.state {
            State::Open(hello) if self.output.len() >= hello.max_frame_size as usize => false,
            State::Open(hello) if hello.pipelining && self.settings.pipelining => {
                self.waiting.len() < self.settings.waiting_max
            }
            State::Open(_) => self.waiting.is_empty(),
            _ => false,
        }
    }

    /// Whether both sides take acknowledgements of payloads that went over another connection.
    pub fn is_async(&self) -> bool {
        matches!(self.state, State::Open(hello) if hello.is_async && self.settings.is_async)
    }

    /// How many payloads the agent owes an acknowledgement.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Notes that nobody waits for the acknowledgement of a payload any more: its time is over, or it came over another
    /// connection.
    pub fn forget(&mut self, stream: u64, number: u64) {
        self.waiting.retain(|known| *known != (stream, number));
    }

    /// Says farewell.
    pub fn leave(&mut self, status: AgentStatus, now: u64, events: &mut Vec<AgentEvent>) {
        if matches!(self.state, State::Greeting | State::Open(_)) {
            hello::write_disconnect(status, &mut self.output);
            self.end(status, events);
            (self.state, self.since) = (State::Leaving, now);
        }
    }

    /// Notes that the connection was closed or failed.
    pub fn closed(&mut self, events: &mut Vec<AgentEvent>) {
        if matches!(self.state, State::Greeting | State::Open(_)) {
            self.end(AgentStatus::IO, events);
        }
        self.state = State::Over;
        self.output.clear();
    }

    fn end(&mut self, status: AgentStatus, events: &mut Vec<AgentEvent>) {
        self.state = State::Over;
        self.waiting.clear();
        events.push(AgentEvent::Ended(status));
    }

    /// When the agent's patience with time ends: then [`AgentSession::tick`] is to be called.
    pub fn deadline(&self) -> Option<u64> {
        let limit = match self.state {
            // An agent that has not greeted in time is not told, as it could not be understood yet.
            State::Greeting => self.settings.hello_ms,
            State::Open(_) => self.settings.idle_ms,
            State::Leaving | State::Deaf => Some(FAREWELL_MS),
            State::Over => None,
        };
        limit.map(|limit| self.since + limit)
    }

    /// Acts on the time.
    pub fn tick(&mut self, now: u64, events: &mut Vec<AgentEvent>) {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        match self.state {
            State::Greeting => self.end(AgentStatus::TIMEOUT, events),
            State::Open(_) => self.leave(AgentStatus::TIMEOUT, now, events),
            State::Leaving | State::Deaf | State::Over => self.state = State::Over,
        }
    }

    /// Whether nothing is read any more; what is left of the output may still be sent.
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// The bytes to be sent.
    pub fn output(&self) -> &[u8] {
        &self.output
    }

    /// Notes that this many bytes were sent.
    pub fn sent(&mut self, bytes: usize) {
        self.output.drain(..bytes);
    }
}

/// Fragments are never asked for (3.2.1).
fn whole(frame: &Frame<'_>) -> Result<(), AgentStatus> {
    if frame.flags & FIN == 0 { Err(AgentStatus::FRAGMENTED) } else { Ok(()) }
}

/// The hello of a health check.
pub fn check_request(max_frame_size: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let greeting = Greeting { max_frame_size, capabilities: "", engine_id: None, is_check: true };
    hello::write_hello(&greeting, &mut out);
    out
}

/// Reads the answer to a health check; `None` while it is incomplete.
///
/// # Errors
///
/// Why the agent cannot be used.
pub fn check_answer(mut bytes: &[u8], max_frame_size: u32) -> Result<Option<()>, AgentStatus> {
    let Some(frame) = Frame::read(&mut bytes, max_frame_size.max(FRAME_SIZE_MIN))? else { return Ok(None) };
    match frame.kind {
        frame::AGENT_HELLO => {
            whole(&frame)?;
            hello::read_hello(frame.payload, max_frame_size).map(|_| Some(()))
        }
        frame::AGENT_DISCONNECT => Err(hello::read_disconnect(frame.payload)),
        _ => Err(AgentStatus::INVALID),
    }
}

const _: () = assert!(FRAME_SIZE_MIN as usize > FRAME_PREFIX + 1 + 4 + 2 * 10, "a frame has room for its numbers");
