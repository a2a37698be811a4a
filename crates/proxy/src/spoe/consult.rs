//! Tells agents about an exchange, and does what they answer.

use super::{
    agent::{Agent, Answer, Asking, status},
    consulted::Had,
    link,
};
use crate::{
    connection::Conn,
    exchange::{
        live::Live,
        state::{Exchange, ms_between},
    },
    rules::context::{Readable, context},
};
use penstock_config::{model::SpoeEvent, syslog};
use penstock_rules::{SpoeSend, Value, turn};
use penstock_spop::{AckAction, AgentData, NotifyPayload, ack_actions};
use std::{
    fmt::Write,
    future::poll_fn,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll},
};
use tokio::time::Instant;

/// The longest payload: agents that take fragments are sent no more.
const PAYLOAD_MAX: usize = 1 << 20;

/// Agents that are being told.
pub(crate) type Telling<'l> = Pin<Box<dyn Future<Output = ()> + 'l>>;

/// Tells the engines of a request's frontend and backend about an event; `None` if there is nobody to tell, as nearly always.
pub(crate) fn http<'l>(live: &'l mut Live<'_, '_>, event: SpoeEvent, stage: Readable) -> Option<Telling<'l>> {
    if !is_asked(live.conn, live.x, event) {
        return None;
    }
    Some(Box::pin(async move {
        let client = &mut *live.client;
        run(live.conn, live.x, event, stage, &mut |cx| client.poll_cancelled(cx)).await;
    }))
}

/// Tells them that there is a connection to a server.
pub(crate) fn connected<'l>(live: &'l mut Live<'_, '_>) -> Option<Telling<'l>> {
    let knows_already = std::mem::replace(&mut live.x.consulted.knows_server, true);
    if knows_already { None } else { http(live, SpoeEvent::ServerSession, Readable::Request) }
}

/// Tells the engines of a connection of `mode tcp`; its task is small where nobody is asked, so that is to be found out first.
pub(crate) async fn tcp(conn: &mut Conn<'_>, x: &mut Exchange, event: SpoeEvent, stage: Readable) {
    run(conn, x, event, stage, &mut |_| Poll::Pending).await;
}

/// Sends a group of messages: `send-spoe-group` in rules of a request and its response.
pub(crate) async fn http_group(live: &mut Live<'_, '_>, number: usize, stage: Readable) {
    let client = &mut *live.client;
    Box::pin(group(live.conn, live.x, number, stage, &mut |cx| client.poll_cancelled(cx))).await;
}

/// The same for a connection of `mode tcp`.
pub(crate) async fn tcp_group(conn: &mut Conn<'_>, x: &mut Exchange, number: usize, stage: Readable) {
    Box::pin(group(conn, x, number, stage, &mut |_| Poll::Pending)).await;
}

/// Whether some engine has messages for an event.
pub(crate) fn is_asked(conn: &Conn<'_>, x: &Exchange, event: SpoeEvent) -> bool {
    let program = &conn.worker.shared.program;
    !program.spoe.is_empty() && engines(conn, x).any(|engine| !program.spoe[engine].at(event).is_empty())
}

/// The engines of the frontend, then those of the backend.
fn engines(conn: &Conn<'_>, x: &Exchange) -> impl Iterator<Item = usize> {
    let (frontend, backend) = (conn.frontend, x.backend);
    let of = &conn.worker.shared.program.spoe;
    let proxies = std::iter::once(frontend).chain(backend.filter(|backend| *backend != frontend));
    proxies.flat_map(|proxy| of.iter().enumerate().filter(move |(_, engine)| engine.proxy == proxy).map(|(at, _)| at))
}

type Gone<'g> = &'g mut dyn FnMut(&mut Context<'_>) -> Poll<()>;

async fn run(conn: &mut Conn<'_>, x: &mut Exchange, event: SpoeEvent, stage: Readable, gone: Gone<'_>) {
    let shared = conn.worker.shared.clone();
    let asked: Vec<usize> = engines(conn, x).collect();
    for engine in asked {
        let messages = shared.program.spoe[engine].at(event);
        if !messages.is_empty() {
            send(conn, x, engine, Occasion { kind: "EVENT", name: event.name() }, messages, stage, gone).await;
        }
    }
}

async fn group(conn: &mut Conn<'_>, x: &mut Exchange, number: usize, stage: Readable, gone: Gone<'_>) {
    let shared = conn.worker.shared.clone();
    let group = &shared.program.spoe_groups[number];
    let occasion = Occasion { kind: "GROUP", name: &group.name };
    send(conn, x, group.engine, occasion, &group.messages, stage, gone).await;
}

/// Why messages are sent, for the log.
#[derive(Clone, Copy)]
struct Occasion<'a> {
    kind: &'static str,
    name: &'a str,
}

async fn send(
    conn: &mut Conn<'_>,
    x: &mut Exchange,
    engine: usize,
    occasion: Occasion<'_>,
    messages: &[SpoeSend],
    stage: Readable,
    gone: Gone<'_>,
) {
    let worker = conn.worker;
    let agent = worker.agents.of(engine).clone();
    let engines = &mut x.consulted.engines;
    let place = match engines.iter().position(|known| known.engine == engine) {
        Some(place) => place,
        None => {
            engines.push(Had { engine, frames: 0, is_off: false, total_ms: 0 });
            engines.len() - 1
        }
    };
    if engines[place].is_off || agent.is_resting(worker.now_ms()) {
        return;
    }
    let since = worker.clock.tick();
    let payload = encode(conn, x, messages, stage);
    if payload.is_empty() {
        // As in HAProxy, an event none of whose messages is due counts as well.
        agent.count(true, worker.now_ms());
        return;
    }
    let had = &mut x.consulted.engines[place];
    had.frames += 1;
    let (stream, frame) = (u64::from(x.log.request_counter), had.frames);
    let encoded = worker.clock.tick();
    let (answer, sent) = if payload.len() > PAYLOAD_MAX {
        (Err(status::TOO_BIG), None)
    } else {
        let mut asking = pin!(agent.ask(stream, frame, payload.into_bytes()));
        link::carry(worker, &agent);
        let answer = poll_fn(|cx| match asking.as_mut().poll(cx) {
            Poll::Ready(answer) => Poll::Ready(answer),
            Poll::Pending => gone(cx).map(|()| Err(status::INTERRUPTED)),
        })
        .await;
        (answer, Asking::sent_at(&asking))
    };
    let answered = worker.clock.tick();
    agent.count(answer.is_ok(), worker.now_ms());
    obey(conn, x, place, &answer, ms_between(since, answered), stage);
    if answer.is_err() && !worker.shared.config.spoe[engine].agent.continue_on_error {
        x.consulted.engines[place].is_off = true;
    }
    tell(conn, &agent, engine, occasion, stream, &answer, Moments { since, encoded, sent, answered });
}

/// Writes the messages that are due. It spends the turn as rules do.
fn encode(conn: &mut Conn<'_>, x: &mut Exchange, messages: &[SpoeSend], stage: Readable) -> NotifyPayload {
    let mut context = context(conn, x, stage);
    let mut payload = NotifyPayload::default();
    for message in messages.iter().filter(|message| message.is_due(&context)) {
        turn::spend(turn::cost::RULE);
        payload.message(&message.name, message.len());
        for (name, value) in message.arguments(&context) {
            payload.argument(name, value.as_ref().map_or(AgentData::Null, data));
        }
    }
    context.settle();
    payload
}

fn data<'v>(value: &'v Value<'_>) -> AgentData<'v> {
    match value {
        Value::Bool(value) => AgentData::Bool(*value),
        Value::Int(value) => AgentData::Int(*value),
        Value::Ipv4(ip) => AgentData::Ipv4(*ip),
        Value::Ipv6(ip) => AgentData::Ipv6(*ip),
        Value::Str(text) | Value::Method(text) => AgentData::Text(text),
        Value::Bin(bytes) => AgentData::Binary(bytes),
    }
}

/// Sets the variables that the agent names, and those that say how it went.
fn obey(conn: &mut Conn<'_>, x: &mut Exchange, place: usize, answer: &Answer, ms: i64, stage: Readable) {
    let had = &mut x.consulted.engines[place];
    had.total_ms += ms;
    let Had { engine, total_ms, .. } = *had;
    let shared = &conn.worker.shared;
    let program = &shared.program.spoe[engine];
    let mut context = context(conn, x, stage);
    for (var, value) in [(&program.process_time, ms), (&program.total_time, total_ms)] {
        if let Some(var) = var {
            context.set_var(var, Some(Value::Int(value)));
        }
    }
    match answer {
        Ok(actions) => {
            for action in ack_actions(actions) {
                turn::spend(turn::cost::RULE);
                let (scope, name, value) = match action {
                    AckAction::SetVar { scope, name, value } => (scope, name, owned(value)),
                    AckAction::UnsetVar { scope, name } => (scope, name, None),
                };
                if let Some(var) = program.variable(scope.word(), name, &shared.program.variables) {
                    context.set_var(&var, value);
                }
            }
        }
        Err(status) => {
            if let Some(var) = &program.on_error {
                context.set_var(var, Some(Value::Int((*status).into())));
            }
        }
    }
}

fn owned(value: AgentData<'_>) -> Option<Value<'static>> {
    Some(match value {
        AgentData::Null => return None,
        AgentData::Bool(value) => Value::Bool(value),
        AgentData::Int(value) => Value::Int(value),
        AgentData::Ipv4(ip) => Value::Ipv4(ip),
        AgentData::Ipv6(ip) => Value::Ipv6(ip),
        AgentData::Text(text) => Value::string(text),
        AgentData::Binary(bytes) => Value::Bin(bytes.to_vec().into()),
    })
}

/// When the steps of the processing were over.
struct Moments {
    since: Instant,
    encoded: Instant,
    sent: Option<Instant>,
    answered: Instant,
}

/// Writes the line of the event, as HAProxy does (SPOE.txt, 4).
fn tell(
    conn: &Conn<'_>,
    agent: &Rc<Agent>,
    engine: usize,
    occasion: Occasion<'_>,
    stream: u64,
    answer: &Answer,
    moments: Moments,
) {
    let worker = conn.worker;
    let settings = &worker.shared.config.spoe[engine].agent;
    if answer.is_ok() && settings.dontlog_normal || !worker.logger.logs_agent(engine) {
        return;
    }
    let Moments { since, encoded, sent, answered } = moments;
    let queued = sent.map_or(-1, |sent| ms_between(encoded, sent));
    let unanswered = [status::TIMEOUT, status::TOO_BIG, status::TOO_BIG_FOR_AGENT, status::INTERRUPTED];
    let is_answered = !answer.as_ref().is_err_and(|status| unanswered.contains(status));
    let waited = sent.filter(|_| is_answered).map_or(-1, |sent| ms_between(sent, answered));
    let acted = if answer.is_ok() { 0 } else { -1 };
    let [idle, links, sending, waiting] = agent.figures();
    let mut line = String::new();
    let _ = write!(
        line,
        "SPOE: [{}] <{}:{}> sid={stream} st={} {}/{queued}/{waited}/{acted}/{} {idle}/{links} {sending}/{waiting} {}/{}",
        settings.name.text,
        occasion.kind,
        occasion.name,
        answer.as_ref().err().copied().unwrap_or(0),
        ms_between(since, encoded),
        ms_between(since, answered),
        agent.failed.get(),
        agent.processed.get(),
    );
    let severity = if answer.is_ok() { syslog::NOTICE } else { syslog::WARNING };
    worker.logger.send_agent(engine, worker.clock.unix_us(), severity, line.as_bytes());
}
