//! One connection to an agent, from the choice of its server to its end.

use super::agent::{Agent, status};
use crate::{
    connection::{
        stream::{Fill, Stream},
        timer::Deadline,
    },
    observe::counters::InUse,
    server::{Assignment, Presence, Seen, Server, Slot, Want},
    servers::connect,
    worker::{pulse::Who, state::Worker, task, turn},
};
use penstock_backends::{
    queue::Granted,
    reuse::{Key, Name},
};
use penstock_http::proxy_protocol;
use penstock_rules::PacketFields;
use penstock_spop::{AgentEvent, AgentSession, AgentStatus};
use std::{
    future::poll_fn,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::AsyncWrite,
    time::{Instant, timeout},
};

/// A connection that was of use for so long, if only by being there, has come to something.
const LASTS: Duration = Duration::from_secs(1);
/// The longest wait to be connected, where the backend does not say.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Has somebody carry what waits for an agent.
pub(super) fn carry(worker: &Rc<Worker>, agent: &Rc<Agent>) {
    if let Some(place) = agent.dispatch() {
        task::spawn(worker, Who::Server { peer: None }, run(worker.clone(), agent.clone(), place));
    }
}

/// Opens a connection, and serves it to its end.
async fn run(worker: Rc<Worker>, agent: Rc<Agent>, place: usize) {
    while !agent.may_open(worker.now_ms()) {
        // The rate counts anew in the next second.
        tokio::time::sleep(Duration::from_millis(1000 - worker.now_ms() % 1000)).await;
    }
    let is_useful = match connected(&worker, &agent).await {
        Some((_present, slot, stream)) => {
            let cells = worker.cells(slot.server());
            let _in_use = InUse::of(cells);
            let talk = Box::pin(talk(&worker, &agent, place, slot.server(), stream)).await;
            if !talk.has_greeted {
                agent.avoid.set(Some(slot.server().at.server));
                cells.response_errors.inc();
                worker.shared.backends.observe(slot.server().at, Seen::BadResponse, worker.clock.now().into_std());
            }
            talk.is_useful
        }
        None => {
            agent.tried(false);
            false
        }
    };
    if !is_useful {
        // Meanwhile this counts as a connection that is being opened, so that no other is.
        tokio::time::sleep(agent.pause()).await;
    }
    agent.closed(place);
    carry(&worker, &agent);
}

/// Connects to a server of the agent's backend.
async fn connected(worker: &Rc<Worker>, agent: &Agent) -> Option<(Presence, Slot, Stream)> {
    let shared = &worker.shared;
    let pool = shared.backends.get(agent.backend?)?;
    let timeouts = &shared.config.proxies[pool.proxy].timeouts;
    let want = Want { avoid: agent.avoid.get(), ..Want::default() };
    worker.counters().backend(pool.proxy).session(worker.now_ms());
    let present = pool.enter();
    let slot = loop {
        match pool.assign(&want) {
            Assignment::Slot(slot) => break slot,
            Assignment::Queued(ticket) => {
                let limit = timeouts.queue.or(timeouts.connect).unwrap_or(CONNECT_MAX);
                match timeout(limit, ticket).await.ok()? {
                    Granted::Slot(slot) => break slot,
                    Granted::Again => {}
                }
            }
            Assignment::Full | Assignment::NoServer => return None,
        }
    };
    let server = slot.server().clone();
    let cells = worker.cells(&server);
    cells.session(worker.now_ms());
    cells.connects.inc();
    let opened = match key(&server) {
        Some(key) => {
            let opening = Box::pin(connect::open(shared, &server, &key));
            timeout(timeouts.connect.unwrap_or(CONNECT_MAX), opening).await.ok().and_then(Result::ok)
        }
        None => None,
    };
    let seen = if opened.is_some() { Seen::Connected } else { Seen::NotConnected };
    shared.backends.observe(server.at, seen, worker.clock.now().into_std());
    match opened {
        Some(stream) => Some((present, slot, stream)),
        None => {
            crate::exchange::assign::count_connect_error(worker, &server);
            agent.avoid.set(Some(server.at.server));
            None
        }
    }
}

/// A connection of our own, not for a client.
fn key(server: &Server) -> Option<Key> {
    let header = server.config.settings.proxy_header_version().map(|version| {
        let mut header = Vec::new();
        if version == 1 {
            proxy_protocol::write_v1(None, &mut header);
        } else {
            // LOCAL, without addresses.
            header.extend_from_slice(&proxy_protocol::V2_SIGNATURE);
            header.extend_from_slice(&[0x20, 0x00, 0x00, 0x00]);
        }
        header.into_boxed_slice()
    });
    Some(Key {
        at: server.at,
        target: server.endpoint.load().target(None)?,
        encrypted: server.is_encrypted(),
        name: Name::default(),
        header,
        pinned: None,
        only_http1: false,
        source: None,
        packets: PacketFields::default(),
        namespace: None,
    })
}

/// Speaks with the agent until the connection ends.
async fn talk(worker: &Rc<Worker>, agent: &Rc<Agent>, place: usize, server: &Server, mut stream: Stream) -> Talk {
    let counted = [worker.cells(server), worker.counters().backend(server.at.proxy)];
    let mut session = AgentSession::new(agent.settings.clone(), worker.now_ms());
    let mut deadline = Deadline::default();
    let mut state =
        Talk { since: worker.clock.now(), has_greeted: false, is_async: false, is_useful: false, is_over: false };
    poll_fn(|cx| {
        let now = worker.clock.tick();
        loop {
            turn::round();
            let mut moved = false;
            for (stream, frame) in agent.note(place, |link| link.waker = Some(cx.waker().clone())) {
                session.forget(stream, frame);
            }
            while session.room() {
                let Some(ask) = agent.next_ask() else { break };
                match session.notify(ask.stream, ask.frame, &ask.payload, worker.now_ms()) {
                    Ok(()) => agent.sent(place, ask, now),
                    Err(_) if ask.payload.len() < agent.settings.max_frame_size as usize => {
                        ask.refuse(status::TOO_BIG_FOR_AGENT, now)
                    }
                    Err(_) => ask.refuse(status::TOO_BIG, now),
                }
            }
            let mut events = Vec::new();
            match poll_write(cx, &mut stream, &mut session) {
                Poll::Ready(Ok(sent)) => {
                    moved |= sent > 0;
                    counted.iter().for_each(|cells| cells.bytes_in.add(sent as u64));
                }
                Poll::Ready(Err(())) => session.closed(&mut events),
                Poll::Pending => {}
            }
            match poll_read(cx, worker, &mut stream, &mut session, &mut events) {
                Poll::Ready(Ok(received)) => {
                    moved = true;
                    counted.iter().for_each(|cells| cells.bytes_out.add(received as u64));
                }
                Poll::Ready(Err(())) => session.closed(&mut events),
                Poll::Pending => {}
            }
            session.tick(worker.now_ms(), &mut events);
            moved |= !events.is_empty();
            for event in events {
                turn::spend(turn::cost::FRAME);
                state.happened(event, worker, agent, place, &session);
            }
            agent
                .note(place, |link| {
                    (link.room, link.is_async) = (session.room(), state.is_async);
                    link.is_open = if state.is_over { state.is_useful } else { state.has_greeted };
                })
                .into_iter()
                .for_each(|(stream, frame)| session.forget(stream, frame));
            if agent.has_queue() && !session.room() {
                carry(worker, agent);
            }
            if session.is_over() {
                return Poll::Ready(());
            }
            if moved {
                continue;
            }
            let left = session.deadline().map(|at| Duration::from_millis(at.saturating_sub(worker.now_ms())));
            deadline.set(worker.clock.now(), left);
            if deadline.poll_expired(cx).is_pending() {
                return Poll::Pending;
            }
        }
    })
    .await;
    state
}

/// What was learnt in a conversation.
struct Talk {
    since: Instant,
    has_greeted: bool,
    /// Whether something was acknowledged, or the connection has lasted.
    is_useful: bool,
    is_over: bool,
    /// Whether acknowledgements may come over other connections.
    is_async: bool,
}

impl Talk {
    fn happened(
        &mut self,
        event: AgentEvent,
        worker: &Rc<Worker>,
        agent: &Rc<Agent>,
        place: usize,
        session: &AgentSession,
    ) {
        match event {
            AgentEvent::Ready => {
                (self.has_greeted, self.is_async) = (true, session.is_async());
                agent.avoid.set(None);
            }
            AgentEvent::Acknowledged { stream, frame, actions } => {
                if agent.acknowledged(place, self.is_async, (stream, frame), actions) && !self.is_useful {
                    self.is_useful = true;
                    agent.tried(true);
                }
            }
            AgentEvent::Ended(status) => {
                self.is_over = true;
                self.is_useful |= self.has_greeted && worker.clock.now() - self.since >= LASTS;
                agent.tried(self.is_useful);
                agent.ended(place, self.is_async, status);
                if status == AgentStatus::TIMEOUT && self.has_greeted {
                    return;
                }
                if status != AgentStatus::NORMAL {
                    let backend = agent.backend.map(|backend| worker.counters().backend(backend));
                    backend.iter().for_each(|cells| cells.response_errors.inc());
                }
            }
        }
    }
}

/// Sends what is due; how much was sent.
fn poll_write(cx: &mut Context<'_>, stream: &mut Stream, session: &mut AgentSession) -> Poll<Result<usize, ()>> {
    if session.output().is_empty() {
        return stream.poll_flush_all(cx).map(|flushed| flushed.map(|()| 0).map_err(drop));
    }
    Pin::new(stream).poll_write(cx, session.output()).map(|written| match written {
        Ok(bytes) if bytes > 0 => {
            session.sent(bytes);
            Ok(bytes)
        }
        _ => Err(()),
    })
}

/// Reads what there is, into a buffer that the connection only has meanwhile; how much it was.
fn poll_read(
    cx: &mut Context<'_>,
    worker: &Worker,
    stream: &mut Stream,
    session: &mut AgentSession,
    events: &mut Vec<AgentEvent>,
) -> Poll<Result<usize, ()>> {
    if stream.poll_read_ready(cx).is_pending() {
        return Poll::Pending;
    }
    let mut buffer = worker.buffers.take_anyway();
    let polled = stream.poll_fill(cx, &mut buffer, usize::MAX).map(|filled| match filled {
        Ok(Fill::Bytes(_)) => {
            session.input(buffer.data(), worker.now_ms(), events);
            Ok(buffer.data().len())
        }
        _ => Err(()),
    });
    buffer.clear();
    worker.buffers.give(buffer);
    polled
}
