//! Checks by a program (`option external-check`). A thread of its own starts the program, waits for it and kills it when its time is up:
//! neither fork nor a program that hangs holds up a worker. There is at most one for each server.

use crate::{
    process::programs::Programs,
    server::{Host, Server, Target},
    worker::state::Worker,
};
use penstock_backends::check::{Outcome, Verdict};
use penstock_config::model::{ListenAddress, Proxy, ServerPort};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open},
};
use std::{
    io,
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// What stands for an address or a port that there is not.
const UNUSED: &str = "NOT_USED";

/// Runs the program once.
pub(super) async fn run(worker: &Worker, server: &Server) -> Outcome {
    let global = &worker.shared.config.global;
    if !global.may_start_programs {
        return Outcome::new(Verdict::SocketError, "programs are not started without 'insecure-fork-wanted'");
    }
    let proxy = &worker.shared.config.proxies[server.at.proxy];
    let inter = server.config.settings.check.inter;
    // As in HAProxy, the next check is the latest end of this one.
    let limit = proxy.timeouts.check.map_or(inter, |limit| limit.min(inter));
    let command = command(worker, proxy, server, global.external_check == Some(true));
    let (answer, answered) = oneshot::channel();
    let thread = std::thread::Builder::new().name("check".into()).stack_size(128 * 1024);
    let shared = worker.shared.clone();
    // If the worker has ended, there is nobody to tell.
    let started = thread.spawn(move || drop(answer.send(outcome(command, limit, &shared.programs))));
    match started {
        Ok(_) => answered.await.unwrap_or_else(|_| Outcome::new(Verdict::SocketError, "the check broke down")),
        Err(error) => Outcome::new(Verdict::SocketError, super::words(&error)),
    }
}

/// The program with its arguments (address and port of the proxy, then of the server) and its environment.
fn command(worker: &Worker, proxy: &Proxy, server: &Server, preserve_env: bool) -> Command {
    let facing = proxy.binds.first().and_then(|bind| bind.addresses.first());
    let facing = facing.map(|address| match &address.value {
        ListenAddress::Ip { ip, first, .. } => (ip.to_string(), first.to_string()),
        ListenAddress::Host { host, first, .. } => (host.clone(), first.to_string()),
        ListenAddress::Unix(path) => (path.display().to_string(), String::new()),
        ListenAddress::Abstract(name) => (name.clone(), String::new()),
        ListenAddress::Fd(_) => Default::default(),
    });
    let (proxy_address, proxy_port) = facing.unwrap_or_default();
    let endpoint = server.endpoint.load_full();
    let (address, port) = match endpoint.target(None) {
        Some(Target::Ip(address)) => (address.ip().to_string(), address.port().to_string()),
        Some(Target::Unix(path)) => (path.display().to_string(), String::new()),
        Some(Target::Abstract(name)) => (name.to_string(), String::new()),
        None => match (&endpoint.host, endpoint.port) {
            (Some(Host::Ip(ip)), ServerPort::Offset(_)) => (ip.to_string(), String::new()),
            _ => Default::default(),
        },
    };
    let or_unused = |text: &str| if text.is_empty() { UNUSED.to_owned() } else { text.to_owned() };
    let mut command = Command::new(proxy.external_command.as_deref().unwrap_or_default());
    command.args([&proxy_address, &proxy_port, &address, &port].map(|text| or_unused(text)));
    if !preserve_env {
        command.env_clear();
    }
    let facts = &worker.shared.proxies[server.at.proxy];
    command.envs([
        ("PATH", proxy.external_path.clone().unwrap_or_default()),
        ("HAPROXY_PROXY_NAME", proxy.name.clone()),
        ("HAPROXY_PROXY_ID", facts.id.to_string()),
        ("HAPROXY_PROXY_ADDR", proxy_address),
        ("HAPROXY_PROXY_PORT", proxy_port),
        ("HAPROXY_SERVER_NAME", server.name.clone()),
        ("HAPROXY_SERVER_ID", server.id.to_string()),
        ("HAPROXY_SERVER_ADDR", address),
        ("HAPROXY_SERVER_PORT", port),
        ("HAPROXY_SERVER_MAXCONN", server.config.settings.maxconn.to_string()),
        ("HAPROXY_SERVER_CURCONN", server.served().to_string()),
        ("HAPROXY_SERVER_SSL", u32::from(server.is_encrypted()).to_string()),
        ("HAPROXY_SERVER_PROTO", if facts.http { "h1" } else { "tcp" }.to_owned()),
    ]);
    command.stdin(Stdio::null());
    command
}

/// Runs a program for at most this long.
fn outcome(mut command: Command, limit: Duration, programs: &Programs) -> Outcome {
    // Its own group, so that what the program has started ends with it.
    command.process_group(0);
    penstock_sys::unblock_signals(&mut command);
    penstock_sys::confine(&mut command);
    let mut child = match command.spawn() {
        Ok(child) => child,
        // What a shell and HAProxy's child would report: it could not be run.
        Err(error) => {
            return Outcome { info: super::words(&error), ..Outcome::new(Verdict::ProgramFailed, "").code(255) };
        }
    };
    match wait(&mut child, limit, programs) {
        Ok(Some(status)) if status.success() => Outcome::new(Verdict::ProgramPassed, ""),
        Ok(Some(status)) => match status.code() {
            Some(code) => Outcome::new(Verdict::ProgramFailed, "").code(code.unsigned_abs()),
            None => {
                let signal = status.signal().unwrap_or_default();
                Outcome::new(Verdict::ProgramFailed, format!("killed by signal {signal}"))
            }
        },
        Ok(None) => Outcome::new(Verdict::ProgramTimeout, ""),
        Err(error) => Outcome::new(Verdict::SocketError, super::words(&error)),
    }
}

/// Waits for the end of a program; when the time is up, kills it and whatever it has started, and returns `None`.
fn wait(child: &mut Child, limit: Duration, programs: &Programs) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    let pid = Pid::from_child(child);
    // Dropped before the program is waited for: until then no other process has its number.
    let running = programs.enter(pid);
    let ended = pidfd_open(pid, PidfdFlags::empty())?;
    let in_time = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&left)) {
            Ok(0) => break false,
            Ok(_) => break true,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    };
    // What it left behind is ended too, so that nothing accumulates check by check. Until the program is waited for, no other group
    // can have this number.
    let _ = kill_process_group(pid, Signal::KILL);
    drop(running);
    let status = child.wait()?;
    Ok(in_time.then_some(status))
}
