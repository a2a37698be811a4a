//! What checks and traffic report about a server, and the consequences.

use super::{Backends, Cause, Notice, Operational, ServerRef};
use crate::check::{Effect, Outcome, Verdict, schedule::Conclusion, script::Standing};
use penstock_config::syslog;
use std::time::{Duration, Instant};

/// An event in a server's traffic, for `observe`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A connection was made.
    Connected,
    /// A connection failed.
    NotConnected,
    /// A response was read.
    Response,
    /// A response with an error status: 5xx other than 501 and 505.
    WrongStatus,
    /// A response that could not be parsed.
    BadResponse,
    /// The server closed or reset the connection before its response.
    NoResponse,
    /// The server did not respond in time.
    ResponseTimeout,
}

impl Seen {
    /// The layer (4 or 7), whether it is an error, and HAProxy's words for it.
    fn row(self) -> (u8, bool, &'static str) {
        match self {
            Seen::Connected => (4, false, "L4 successful connection"),
            Seen::NotConnected => (4, true, "L4 unsuccessful connection"),
            Seen::Response => (7, false, "Correct http response"),
            Seen::WrongStatus => (7, true, "Wrong http response"),
            Seen::BadResponse => (7, true, "Invalid http response (headers)"),
            Seen::NoResponse => (7, true, "Close from server (http)"),
            Seen::ResponseTimeout => (7, true, "Read timeout (http)"),
        }
    }
}

impl<E> Backends<E> {
    /// Records that a check of `at` starts.
    pub fn check_begins(&self, at: ServerRef) {
        let Some((_, mut core)) = self.lock(at) else { return };
        if let Some(check) = core.status[at.server.index()].check.as_mut() {
            check.running = true;
        }
    }

    /// What a check tells the server about itself.
    pub fn standing(&self, at: ServerRef, node: Option<&str>) -> Standing {
        let Some((backend, core)) = self.lock(at) else { return Standing::default() };
        let slot = at.server.index();
        let server = core.server(slot).clone();
        let status = core.status[slot].clone();
        let weight = core.balancer.weight_of(slot);
        let total = core.balancer.displayed_weight(core.balancer.totals().weight);
        let served: u32 = core.balancer.members().iter().map(|member| member.served).sum();
        let waiting = core.queues.waiting_for(slot);
        drop(core);
        let target = server.endpoint.load().target(None);
        let (address, port) = match target {
            Some(super::Target::Ip(address)) => (address.ip().to_string(), address.port()),
            _ => ("unix".into(), 0),
        };
        let state = format!(
            "{}; address={address}; port={port}; name={}/{}; node={}; weight={weight}/{total}; scur={}/{served}; qcur={waiting}",
            status.words(&status, None),
            backend.name,
            server.name,
            node.unwrap_or("localhost"),
            server.served(),
        );
        let down = status.state == Operational::Stopped;
        Standing { state, down }
    }

    /// Records the end of a check of `at`. With `told`, every change of health is logged.
    pub fn checked(&self, at: ServerRef, outcome: &Outcome, took: Duration, told: bool, now: Instant) {
        let Some((_, mut core)) = self.lock(at) else { return };
        let slot = at.server.index();
        let backup = core.server(slot).config.settings.backup;
        if core.status[slot].admin.maint() {
            return;
        }
        let weight = core.status[slot].weight;
        core.status[slot].consecutive_errors = 0;
        let agent_is_well = core.status[slot].live_agent().is_none_or(|agent| agent.health >= agent.rise);
        let Some(check) = core.status[slot].check.as_mut() else { return };
        let before = check.status;
        let (conclusion, moved) = check.record(outcome, Some(took));
        check.running = false;
        let notice = (told && (moved || before != check.status)).then(|| {
            let effect = outcome.verdict.effect();
            let kind = if backup { "backup server" } else { "server" };
            let conditionally = if effect == Effect::Conditional { "conditionally " } else { "" };
            let end = if effect == Effect::Failed { "failed" } else { "succeeded" };
            let mut text = format!("Health check for {kind} {} {conditionally}{end}", self.name(at));
            check.append_report(&mut text);
            let up = check.health >= check.rise;
            let (n, m) = check.progress(up);
            let word = match (up, weight) {
                (true, 0) => "DRAIN",
                (true, _) => "UP",
                _ => "DOWN",
            };
            text.push_str(&format!(", status: {n}/{m} {word}."));
            Notice { proxy: at.proxy, severity: syslog::NOTICE, text, mailed: Some(syslog::INFO) }
        });
        drop(core);
        if let Some(notice) = notice {
            (self.announce)(&notice);
        }
        let cause = Cause { check: !told, ..Cause::default() };
        match conclusion {
            Conclusion::Down => self.set_stopped(at, &cause, now),
            // A server is up only if both its check and its agent say so.
            Conclusion::Up if agent_is_well => self.set_running(at, &cause, now),
            Conclusion::Stopping if agent_is_well => self.set_stopping(at, &cause, now),
            _ => {}
        }
    }

    /// Records an event in the traffic of `at`: with `observe`, enough errors in a row count as failed checks.
    pub fn observe(&self, at: ServerRef, seen: Seen, now: Instant) {
        let Some(server) = self.server(at) else { return };
        let settings = &server.config.settings;
        let (layer, error, words) = seen.row();
        let wanted = match settings.observe.as_deref() {
            Some("layer4") => layer == 4,
            // An error of layer 4 is also one of layer 7, but a connection is not yet a response.
            Some("layer7") => layer == 7 || error,
            _ => return,
        };
        if !wanted || !settings.check.enabled {
            return;
        }
        let Some((_, mut core)) = self.lock(at) else { return };
        let status = &mut core.status[at.server.index()];
        if !error {
            status.consecutive_errors = 0;
            return;
        }
        if status.state == Operational::Stopped || status.admin.maint() {
            return;
        }
        status.consecutive_errors += 1;
        if status.consecutive_errors < settings.error_limit {
            return;
        }
        let text = format!("Detected {} consecutive errors, last one was: {words}", status.consecutive_errors);
        status.consecutive_errors = 0;
        status.failed_observations += 1;
        let Some(check) = status.check.as_mut() else { return };
        let conclusion = match settings.on_error.as_deref() {
            Some("fastinter") => Conclusion::Steady,
            mode => {
                match mode {
                    Some("sudden-death") if check.health > check.rise => check.health = check.rise + 1,
                    Some("mark-down") => check.health = check.rise,
                    _ => {}
                }
                check.record(&Outcome::new(Verdict::Observed, text), None).0
            }
        };
        drop(core);
        if conclusion == Conclusion::Down {
            self.set_stopped(at, &Cause { check: true, ..Cause::default() }, now);
        }
        if settings.check.fastinter.is_some() {
            server.hurry.notify_one();
        }
    }
}
