//! Agents of servers (`agent-check`): one task for each, which asks it on time. What an answer means is in
//! `penstock_backends::check::agent`.

use super::{Pace, words};
use crate::{
    connection::socket::Socket,
    process::namespaces,
    server::{Endpoint, Host, Server},
    servers::connect::open_socket,
    worker::{pulse::Who, state::Worker, task},
};
use penstock_backends::check::{
    Outcome, Verdict,
    agent::{AgentLine, AgentProgress, AgentReply},
};
use penstock_config::model::{AgentCheck, ServerPort};
use penstock_rules::PacketFields;
use std::{rc::Rc, sync::Arc, time::Duration};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};

/// Starts asking the agent of a server, if it has one.
pub(super) fn start(worker: &Rc<Worker>, server: &Arc<Server>, delay: Duration) {
    if let Some(settings) = server.config.settings.agent.clone() {
        let who = Who::Check { proxy: server.at.proxy, server: server.at.server.index() };
        task::spawn(worker, who, watch(worker.clone(), server.clone(), settings, delay));
    }
}

/// Asks one agent for as long as the worker runs and the server exists.
async fn watch(worker: Rc<Worker>, server: Arc<Server>, settings: AgentCheck, delay: Duration) {
    let shared = worker.shared.clone();
    let told = shared.config.proxies[server.at.proxy].options.log_health_checks;
    let mut pace = Pace::of(&server);
    tokio::time::sleep(delay).await;
    while !server.is_removed() {
        if server.is_asked() {
            shared.backends.asking_begins(server.at);
            let started = Instant::now();
            let answer = ask(&worker, &server, settings.inter).await;
            shared.backends.agent_answered(server.at, &answer, started.elapsed(), told, std::time::Instant::now());
        }
        tokio::time::sleep(pace.next(settings.inter, shared.config.global.spread_checks)).await;
    }
}

/// Asks once. The time is limited as for a check: with `timeout check`, connecting and the answer each have their own limit; without
/// it, everything together may take `agent-inter`. The memory is limited by [`AgentLine`], which also knows when nothing more can matter.
async fn ask(worker: &Worker, server: &Server, inter: Duration) -> AgentReply {
    let timeouts = &worker.shared.config.proxies[server.at.proxy].timeouts;
    let started = Instant::now();
    let connect_limit = match timeouts.check {
        Some(_) => timeouts.connect.map_or(inter, |limit| limit.min(inter)),
        None => inter,
    };
    let mut socket = match timeout_at(started + connect_limit, dial(worker, server)).await {
        Err(_) => return AgentReply::failed(Outcome::new(Verdict::L4Timeout, "")),
        Ok(Err(text)) => return AgentReply::failed(Outcome::new(Verdict::L4Connection, text)),
        Ok(Ok(socket)) => socket,
    };
    let deadline = timeouts.check.map_or(started + inter, |limit| Instant::now() + limit);
    let answer = match timeout_at(deadline, converse(&mut socket, &server.agent_place.load().send)).await {
        Err(_) => AgentReply::failed(Outcome::new(Verdict::L7Timeout, "")),
        Ok(answer) => answer,
    };
    // Like a check's connection, it leaves no socket in TIME_WAIT.
    socket.reset_on_close();
    answer
}

async fn dial(worker: &Worker, server: &Server) -> Result<Socket, String> {
    let place = server.agent_place.load_full();
    let host = match place.addr {
        Some(ip) => Some(Host::Ip(ip)),
        None => server.endpoint.load().host.clone(),
    };
    let endpoint = Endpoint { host, port: ServerPort::Fixed(place.port) };
    let target = endpoint.target(None).ok_or("the server has no address")?;
    let namespace = namespaces::of_server(&server.config.settings, None);
    open_socket(&worker.shared, server, &target, namespace, None, PacketFields::default())
        .await
        .map_err(|error| words(&error))
}

async fn converse(socket: &mut Socket, send: &str) -> AgentReply {
    let broken = |error: std::io::Error| AgentReply::failed(Outcome::new(Verdict::SocketError, words(&error)));
    if !send.is_empty()
        && let Err(error) = socket.write_all(&penstock_config::bytes_of(send)).await
    {
        return broken(error);
    }
    let mut line = AgentLine::default();
    let mut buffer = [0; 1024];
    loop {
        match socket.read(&mut buffer).await {
            Err(error) => return broken(error),
            Ok(0) => return line.ended(),
            Ok(n) => {
                if let AgentProgress::Done(answer) = line.received(&buffer[..n]) {
                    return answer;
                }
            }
        }
    }
}
