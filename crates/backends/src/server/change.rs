//! Changes of a server's state, with the consequences for its backend, its sessions and its trackers, and the log lines
//! about them.

mod admin;

use self::admin::AdminChange;
use super::{
    Admin, Backend, Backends, Check, Core, Notice, Operational, Server, ServerId, ServerRef, Shutdown, Status,
};
use crate::{balance::Ramp, queue::Granted};
use penstock_config::{Config, syslog};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::{Arc, MutexGuard, PoisonError, atomic::Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Why a server changed, for its log line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    /// What decided, such as `changed from Web interface`.
    pub note: &'static str,
    /// Whether the log line describes the check that decided; not if a line about that was written already.
    pub check: bool,
    /// Whether the agent decided.
    pub agent: bool,
}

/// Commands that an operator may give for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// End maintenance and drain.
    Ready,
    /// Take no new clients.
    Drain,
    /// Go out of service, without checks.
    Maint,
    /// Set the server's weight, 0 to 256.
    Weight(u32),
    /// Treat the server's check as passed.
    HealthUp,
    /// Treat the server's check as failed.
    HealthDown,
    /// Treat the server's check as conditionally passed.
    HealthStopping,
    /// Treat the server's agent as having said that the server is up.
    AgentUp,
    /// Treat the server's agent as having said that the server is down.
    AgentDown,
    /// End the server's sessions.
    ShutdownSessions,
}

/// The requests that waited for a server that went down.
type Evicted<E> = Vec<oneshot::Sender<Granted<E>>>;

/// What is left to do outside the lock after a change.
struct After<E> {
    notices: Vec<Notice>,
    evicted: Evicted<E>,
    shut_sessions: bool,
    shut_backup_sessions: bool,
    /// Whether its slow start has begun.
    starts: bool,
}

impl<E> Default for After<E> {
    fn default() -> Self {
        let (shut_sessions, shut_backup_sessions) = (false, false);
        After { notices: Vec::new(), evicted: Vec::new(), shut_sessions, shut_backup_sessions, starts: false }
    }
}

impl<E> Backends<E> {
    /// Resolves which servers track which. Names that do not exist were reported as errors in the configuration.
    pub(super) fn link_trackers(&self, config: &Config) {
        let mut trackers = Vec::new();
        for backend in self.by_proxy.iter().flatten() {
            let named = config.proxies[backend.proxy].use_server.iter().filter_map(|rule| rule.words.first());
            for server in named.filter_map(|word| backend.server(&word.text)) {
                server.pin();
            }
            for server in backend.servers().iter() {
                let Some(track) = &server.config.settings.track else { continue };
                if let Some(target) = self.named(backend, &track.text) {
                    target.pin();
                    trackers.push((target.at, server.at));
                }
            }
        }
        self.trackers.store(Arc::new(trackers));
    }

    /// The server that `track` in that backend names: `server`, or `backend/server`.
    pub(super) fn named(&self, backend: &Backend<E>, track: &str) -> Option<Arc<Server<E>>> {
        match track.split_once('/') {
            Some((owner, name)) => self.by_name(owner)?.server(name),
            None => backend.server(track),
        }
    }

    /// Passes the configured states to the algorithms.
    pub(super) fn settle(&self) {
        for backend in self.iter() {
            let mut core = backend.core();
            (0..backend.servers().capacity()).for_each(|server| backend.balance_again(&mut core, server, None));
            drop(core);
        }
        let all = self.iter().flat_map(|backend| backend.servers().iter().map(|server| server.at).collect::<Vec<_>>());
        let down: Vec<ServerRef> =
            all.filter(|at| self.status(*at).is_some_and(|status| status.admin.maint())).collect();
        for at in down {
            self.inherit(at, Duration::ZERO, true);
        }
    }

    /// Locks the backend of an existing server.
    #[expect(clippy::type_complexity, reason = "a name for the pair would say no more than it does")]
    pub(super) fn lock(&self, at: ServerRef) -> Option<(&Arc<Backend<E>>, MutexGuard<'_, Core<E>>)> {
        let backend = self.get(at.proxy)?;
        let core = backend.core();
        core.servers.get(at.server)?;
        Some((backend, core))
    }

    /// The current state of a server.
    pub fn status(&self, at: ServerRef) -> Option<Status> {
        self.lock(at).map(|(_, core)| core.status[at.server.index()].clone())
    }

    /// The server that `at` tracks.
    pub fn tracked_by(&self, at: ServerRef) -> Option<ServerRef> {
        self.trackers.load().iter().find(|(_, tracker)| *tracker == at).map(|(tracked, _)| *tracked)
    }

    /// The server whose checks determine the state of `at`: the end of its chain of `track`.
    pub fn reference(&self, at: ServerRef) -> ServerRef {
        // A loop of trackers is an error in the configuration; the bound only makes termination obvious.
        let mut end = at;
        for _ in 0..=self.trackers.load().len() {
            match self.tracked_by(end) {
                Some(next) => end = next,
                None => break,
            }
        }
        end
    }

    /// The name `backend/server`.
    pub fn name(&self, at: ServerRef) -> String {
        let server = self.server(at);
        let server = server.as_ref().map_or("", |server| server.name.as_str());
        format!("{}/{server}", self.get(at.proxy).map_or("", |backend| backend.name.as_str()))
    }

    pub(super) fn since(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }

    /// Takes it down, because of a check or traffic.
    pub fn set_stopped(&self, at: ServerRef, cause: &Cause, now: Instant) {
        self.set_state(at, Operational::Stopped, cause, self.since(now));
    }

    /// Brings it up, because of a check; its slow start begins if it has one.
    pub fn set_running(&self, at: ServerRef, cause: &Cause, now: Instant) {
        self.set_state(at, Operational::Running, cause, self.since(now));
    }

    /// Closes it to new clients, because of a check.
    pub fn set_stopping(&self, at: ServerRef, cause: &Cause, now: Instant) {
        self.set_state(at, Operational::Stopping, cause, self.since(now));
    }

    fn set_state(&self, at: ServerRef, state: Operational, cause: &Cause, now: Duration) {
        let via = self.tracked_by(at).map(|tracked| self.name(tracked));
        let Some((backend, core)) = self.lock(at) else { return };
        let Some(after) = backend.set_state(core, at.server.index(), state, cause, via.as_deref(), now) else { return };
        self.finish(backend, at.server, after);
        for tracker in self.trackers_of(at) {
            self.set_state(tracker, state, &Cause::default(), now);
        }
    }

    /// The servers that track it, the latest first, which is the order in which HAProxy changes and announces them.
    fn trackers_of(&self, at: ServerRef) -> Vec<ServerRef> {
        self.trackers.load().iter().rev().filter(|(tracked, _)| *tracked == at).map(|(_, tracker)| *tracker).collect()
    }

    fn finish(&self, backend: &Arc<Backend<E>>, server: ServerId, after: After<E>) {
        for notice in &after.notices {
            (self.announce)(notice);
        }
        for waiter in after.evicted {
            // If the request has left, there is nothing to tell it.
            let _ = waiter.send(Granted::Again);
        }
        if let Some(server) = backend.get(server).filter(|_| after.shut_sessions) {
            server.shut_sessions(Shutdown::Down);
        }
        if after.shut_backup_sessions {
            let servers = backend.servers();
            let backups = servers.iter().filter(|server| server.config.settings.backup);
            backups.for_each(|server| server.shut_sessions(Shutdown::Up));
        }
        if after.starts {
            self.starting().insert(ServerRef { proxy: backend.proxy, server });
        }
    }

    /// Carries out an operator's command; `by` says in logs how it was given, such as `changed from Web interface`.
    pub fn command(&self, at: ServerRef, command: Command, by: &'static str, now: Instant) {
        let cause = Cause { note: by, ..Cause::default() };
        let since = self.since(now);
        match command {
            Command::Ready => {
                self.set_admin(at, Admin::FORCED_MAINT, false, since);
                self.set_admin(at, Admin::FORCED_DRAIN, false, since);
            }
            Command::Drain => {
                self.set_admin(at, Admin::FORCED_DRAIN, true, since);
                self.set_admin(at, Admin::FORCED_MAINT, false, since);
            }
            Command::Maint => self.set_admin(at, Admin::FORCED_MAINT, true, since),
            Command::Weight(weight) => self.set_weight(at, weight, now),
            Command::HealthUp => {
                self.set_health(at, |check| check.rise + check.fall - 1);
                self.set_running(at, &cause, now);
            }
            Command::HealthDown => {
                self.set_health(at, |_| 0);
                self.set_stopped(at, &cause, now);
            }
            Command::HealthStopping => {
                self.set_health(at, |check| check.rise + check.fall - 1);
                self.set_stopping(at, &cause, now);
            }
            Command::AgentUp => {
                self.set_agent_health(at, |agent| agent.rise + agent.fall - 1);
                self.set_running(at, &cause, now);
            }
            Command::AgentDown => {
                self.set_agent_health(at, |_| 0);
                self.set_stopped(at, &cause, now);
            }
            Command::ShutdownSessions => {
                if let Some(server) = self.server(at) {
                    server.shut_sessions(Shutdown::Operator);
                }
            }
        }
    }

    pub(super) fn set_health(&self, at: ServerRef, health: impl FnOnce(&Check) -> u32) {
        let Some((_, mut core)) = self.lock(at) else { return };
        if let Some(check) = core.status[at.server.index()].check.as_mut() {
            check.health = health(check);
        }
    }

    fn set_agent_health(&self, at: ServerRef, health: impl FnOnce(&Check) -> u32) {
        let Some((_, mut core)) = self.lock(at) else { return };
        if let Some(agent) = core.status[at.server.index()].agent.as_mut() {
            agent.health = health(agent);
        }
    }

    /// Passes a notice to the logs.
    pub fn announce(&self, notice: &Notice) {
        (self.announce)(notice);
    }

    /// Marks a server that has no address yet at start, without a notice.
    pub fn start_unresolved(&self, at: ServerRef) {
        let Some((backend, mut core)) = self.lock(at) else { return };
        let status = &mut core.status[at.server.index()];
        status.admin = status.admin.with(Admin::UNRESOLVED, true);
        status.state = Operational::Stopped;
        backend.balance_again(&mut core, at.server.index(), None);
    }

    /// Sets or clears one administrative flag, for this server and those that track it.
    pub fn set_admin(&self, at: ServerRef, flag: Admin, on: bool, now: Duration) {
        self.set_admin_for(at, flag, on, "", now);
    }

    /// Like [`Backends::set_admin`], with a reason that the log shows in parentheses.
    pub fn set_admin_for(&self, at: ServerRef, flag: Admin, on: bool, reason: &str, now: Duration) {
        let via = self.tracked_by(at);
        let tracked_up = via.and_then(|tracked| self.status(tracked)).is_none_or(|s| s.state != Operational::Stopped);
        let via = via.map(|tracked| self.name(tracked));
        let Some((backend, mut core)) = self.lock(at) else { return };
        let slot = at.server.index();
        let was = core.status[slot].admin;
        let change = AdminChange { flag, on, reason, via: via.as_deref(), tracked_up, now };
        let after = backend.set_admin(&mut core, slot, &change);
        let is = core.status[slot].admin;
        drop(core);
        self.finish(backend, at.server, after);
        if was.maint() != is.maint() {
            self.inherit(at, now, is.maint());
        }
        if was.drain() != is.drain() {
            for tracker in self.trackers_of(at) {
                self.set_admin(tracker, Admin::INHERITED_DRAIN, is.drain(), now);
            }
        }
        backend.dispatch(slot);
    }

    fn inherit(&self, at: ServerRef, now: Duration, on: bool) {
        for tracker in self.trackers_of(at) {
            self.set_admin(tracker, Admin::INHERITED_MAINT, on, now);
        }
    }

    /// Sets the weight of a server. If the algorithm's weights are fixed, only 0 and the configured one are effective.
    pub fn set_weight(&self, at: ServerRef, weight: u32, now: Instant) {
        let Some((backend, mut core)) = self.lock(at) else { return };
        let slot = at.server.index();
        core.status[slot].weight = weight.min(256);
        let ramp = ramp(&core, slot, self.since(now));
        backend.balance_again(&mut core, slot, ramp);
        drop(core);
        backend.dispatch(slot);
    }

    /// Sets the limit of concurrent requests of a server, 0 for no limit; waiting requests may be admitted at once.
    pub fn set_maxconn(&self, at: ServerRef, maxconn: u32) {
        let Some((backend, mut core)) = self.lock(at) else { return };
        let slot = at.server.index();
        core.balancer.set_limits(slot, |member| {
            let is_dynamic = member.minconn != member.maxconn;
            member.maxconn = maxconn;
            member.minconn = if is_dynamic { member.minconn.min(maxconn) } else { maxconn };
        });
        drop(core);
        backend.dispatch(slot);
    }

    /// Advances slow starts; called once a second.
    pub fn tick(&self, now: Instant) {
        let mut starting = std::mem::take(&mut *self.starting());
        let now = self.since(now);
        starting.retain(|at| self.goes_on_starting(*at, now));
        // Others may have begun in the meantime.
        self.starting().extend(starting);
    }

    /// Gives a server in its slow start the weight for this time. Returns whether the start goes on.
    fn goes_on_starting(&self, at: ServerRef, now: Duration) -> bool {
        let Some((backend, mut core)) = self.lock(at) else { return false };
        let slot = at.server.index();
        if core.status[slot].state != Operational::Starting {
            return false;
        }
        let ramp = ramp(&core, slot, now);
        if ramp.is_none() {
            core.status[slot].state = Operational::Running;
            core.status[slot].last_change = now;
        }
        backend.balance_again(&mut core, slot, ramp);
        let shared = core.server(slot).clone();
        drop(core);
        let requeued = backend.dispatch(slot);
        if ramp.is_none() {
            let mut text = format!("{} is UP", backend.subject(&shared));
            backend.append_counts(&mut text, &backend.core(), slot, requeued);
            (self.announce)(&Notice {
                proxy: backend.proxy,
                severity: syslog::NOTICE,
                text: text + ".",
                mailed: Some(syslog::NOTICE),
            });
        }
        ramp.is_some()
    }

    fn starting(&self) -> MutexGuard<'_, HashSet<ServerRef>> {
        self.starting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The progress of a server's slow start.
fn ramp<E>(core: &Core<E>, server: usize, now: Duration) -> Option<Ramp> {
    let status = &core.status[server];
    let whole = core.server(server).config.settings.slowstart?.as_secs() as u32;
    let elapsed = now.saturating_sub(status.last_change).as_secs() as u32;
    (status.state == Operational::Starting && elapsed < whole).then_some(Ramp { elapsed, whole })
}

impl<E> Backend<E> {
    /// Passes the state of a server to the balancer and to readers.
    pub(super) fn balance_again(&self, core: &mut Core<E>, server: usize, ramp: Option<Ramp>) {
        let status = &core.status[server];
        core.balancer.update(server, status.is_ready(), status.weight, ramp);
        let (usable, running) = (core.balancer.members()[server].usable(), status.state != Operational::Stopped);
        let shared = core.server(server);
        shared.usable.store(usable, Relaxed);
        shared.running.store(running && !status.admin.maint(), Relaxed);
        let totals = core.balancer.totals();
        self.active.store(totals.active, Relaxed);
        self.backup.store(totals.backup, Relaxed);
    }

    fn set_state<'a>(
        self: &'a Arc<Self>,
        mut core: MutexGuard<'a, Core<E>>,
        server: usize,
        to: Operational,
        cause: &Cause,
        via: Option<&str>,
        now: Duration,
    ) -> Option<After<E>> {
        let from = core.status[server].state;
        let same = match to {
            Operational::Running => matches!(from, Operational::Running | Operational::Starting),
            to => from == to,
        };
        if same || core.status[server].admin.maint() {
            return None;
        }
        let shared = core.server(server).clone();
        let had_servers = self.has_servers(&core);
        let mut after = After::default();
        leave_state(&mut core.status[server], now);
        let starts = slow_start(&shared).filter(|_| to == Operational::Running);
        core.status[server].state = if starts.is_some() { Operational::Starting } else { to };
        after.starts = starts.is_some();
        self.balance_again(&mut core, server, starts);
        let (word, severity) = match to {
            // It took no new clients before.
            Operational::Stopped if from == Operational::Stopping || core.status[server].admin.drain() => {
                ("DOWN", syslog::NOTICE)
            }
            Operational::Stopped => ("DOWN", syslog::ALERT),
            Operational::Stopping => ("stopping", syslog::NOTICE),
            _ => ("UP", syslog::NOTICE),
        };
        let mut text = format!("{} is {word}", self.subject(&shared));
        append_cause(&mut text, &core.status[server], cause, via);
        if to == Operational::Running {
            after.shut_backup_sessions = ends_backups(&core, server);
            drop(core);
            let requeued = self.dispatch(server);
            core = self.core();
            self.append_counts(&mut text, &core, server, requeued);
        } else {
            after.evicted = self.evict(&mut core, server);
            self.append_counts(&mut text, &core, server, after.evicted.len() as u32);
            if to == Operational::Stopped {
                after.shut_sessions = shared.config.settings.on_marked_down_shutdown;
                core.status[server].down_transitions += 1;
            }
        }
        let mailed = (to != Operational::Stopping).then_some(severity);
        after.notices.push(Notice { proxy: self.proxy, severity, text: text + ".", mailed });
        let admin = core.status[server].admin;
        if admin.drain() {
            let subject = self.subject(&shared);
            let text = match via {
                Some(via) if !admin.has(Admin::FORCED_DRAIN) => {
                    format!("{subject} is leaving forced drain but remains in drain mode via {via}.")
                }
                _ => format!("{subject} remains in forced drain mode."),
            };
            after.notices.push(Notice { proxy: self.proxy, severity: syslog::NOTICE, text, mailed: None });
        }
        self.note_backend(&mut core, had_servers, now, &mut after.notices);
        Some(after)
    }

    fn evict(&self, core: &mut Core<E>, server: usize) -> Evicted<E> {
        if !self.redispatch {
            return Evicted::<E>::new();
        }
        let evicted = core.queues.evict(server);
        self.publish(core, server);
        evicted
    }

    fn has_servers(&self, core: &Core<E>) -> bool {
        let totals = core.balancer.totals();
        totals.active + totals.backup > 0
    }

    /// Reports that the backend lost its last server or got its first.
    fn note_backend(&self, core: &mut Core<E>, had_servers: bool, now: Duration, notices: &mut Vec<Notice>) {
        let has_servers = self.has_servers(core);
        if had_servers == has_servers {
            return;
        }
        let changes = &mut core.changes;
        if has_servers {
            changes.down_time += now.saturating_sub(changes.last_change);
        } else {
            changes.down_transitions += 1;
            let kind = if self.listens { "proxy" } else { "backend" };
            let text = format!("{kind} {} has no server available!", self.name);
            notices.push(Notice { proxy: self.proxy, severity: syslog::EMERGENCY, text, mailed: None });
        }
        changes.last_change = now;
    }

    fn subject(&self, server: &Server<E>) -> String {
        let kind = if server.config.settings.backup { "Backup Server" } else { "Server" };
        format!("{kind} {}/{}", self.name, server.name)
    }

    fn append_counts(&self, text: &mut String, core: &Core<E>, server: usize, requeued: u32) {
        let totals = core.balancer.totals();
        let on_backup = if totals.backup > 0 && totals.active == 0 { " Running on backup." } else { "" };
        let (active, backup) = (totals.active, totals.backup);
        let waiting = core.queues.waiting_for(server);
        let _ = if core.status[server].state == Operational::Stopped {
            let sessions = core.balancer.members()[server].served;
            write!(
                text,
                ". {active} active and {backup} backup servers left.{on_backup} {sessions} sessions active, \
                 {requeued} requeued, {waiting} remaining in queue"
            )
        } else {
            write!(
                text,
                ". {active} active and {backup} backup servers online.{on_backup} {requeued} sessions requeued, \
                 {waiting} total in queue"
            )
        };
    }
}

/// Adds up the time spent in the old state.
fn leave_state(status: &mut Status, now: Duration) {
    if status.state == Operational::Stopped {
        status.down_time += now.saturating_sub(status.last_change);
    }
    status.last_change = now;
}

/// The slow start of a server that comes up, if it has one.
fn slow_start<E>(server: &Server<E>) -> Option<Ramp> {
    let whole = server.config.settings.slowstart?.as_secs() as u32;
    (whole > 0).then_some(Ramp { elapsed: 0, whole })
}

/// Whether this server has just come up, and takes over from backups at once.
fn ends_backups<E>(core: &Core<E>, server: usize) -> bool {
    let settings = &core.server(server).config.settings;
    settings.on_marked_up_shutdown_backup && !settings.backup && core.balancer.members()[server].usable()
}

fn append_cause(text: &mut String, status: &Status, cause: &Cause, via: Option<&str>) {
    if !cause.note.is_empty() {
        let _ = write!(text, ", {}", cause.note);
    }
    if let Some(via) = via {
        let _ = write!(text, " via {via}");
    }
    let check = if cause.agent { &status.agent } else { &status.check };
    if let Some(check) = check.as_ref().filter(|check| cause.check && !check.status.is_empty()) {
        check.append_report(text);
    }
}

impl Check {
    /// Appends `, reason: ..., code: ..., info: "...", check duration: ...ms`.
    pub fn append_report(&self, text: &mut String) {
        let _ = write!(text, ", reason: {}", self.description);
        if let Some(code) = self.code {
            let _ = write!(text, ", code: {code}");
        }
        if !self.info.is_empty() {
            let _ = write!(text, ", info: \"{}\"", self.info);
        }
        if let Some(duration) = self.duration {
            let _ = write!(text, ", check duration: {}ms", duration.as_millis());
        }
    }
}
