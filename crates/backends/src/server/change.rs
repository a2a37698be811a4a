//! How a server changes state, what follows for its backend, its sessions and its trackers, and how logs tell it.

use super::{Admin, Backend, Backends, Check, Core, Notice, Operational, Server, ServerRef, Shutdown, Status};
use crate::{balance::Ramp, queue::Granted};
use penstock_config::Config;
use std::fmt::Write as _;
use std::sync::{Arc, atomic::Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Why a server changed, for its log line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    /// Who decided, such as `changed from Web interface`.
    pub note: &'static str,
    /// The check that decided, where the log has not told it already.
    pub check: bool,
    /// The agent decided.
    pub agent: bool,
}

/// What an operator may ask of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Leaves maintenance and drain.
    Ready,
    /// Takes no new clients.
    Drain,
    /// Out of service, checks too.
    Maint,
    /// Sets its weight, 0 to 256.
    Weight(u32),
    /// Takes its check for passed.
    HealthUp,
    /// Takes its check for failed.
    HealthDown,
    /// Takes its check for conditionally passed.
    HealthStopping,
    /// Ends its sessions.
    ShutdownSessions,
}

const ALERT: u8 = 1;
const EMERGENCY: u8 = 0;
const NOTICE: u8 = 5;

/// Who waited in the queue of a server that went down.
type Evicted = Vec<oneshot::Sender<Granted>>;

/// What a change left to do outside the lock.
#[derive(Default)]
struct After {
    notices: Vec<Notice>,
    evicted: Evicted,
    shut_sessions: bool,
    shut_backup_sessions: bool,
}

impl Backends {
    /// Finds who tracks whom. Names that lead nowhere have been refused with the configuration.
    pub(super) fn link_trackers(&mut self, config: &Config) {
        for backend in self.by_proxy.iter().flatten() {
            for server in &backend.servers {
                let Some(track) = &config.proxies[backend.proxy].servers[server.index].settings.track else { continue };
                let (owner, name) = match track.split_once('/') {
                    Some((owner, name)) => (self.by_name(owner), name),
                    None => (Some(backend), track.text.as_str()),
                };
                let Some((owner, target)) = owner.and_then(|owner| Some((owner, owner.server(name)?))) else {
                    continue;
                };
                let target = ServerRef { proxy: owner.proxy, server: target.index };
                self.trackers.push((target, ServerRef { proxy: backend.proxy, server: server.index }));
            }
        }
    }

    /// Gives the algorithms the states that the configuration says.
    pub(super) fn settle(&self) {
        for backend in self.iter() {
            let mut core = backend.core();
            (0..backend.servers.len()).for_each(|server| backend.balance_again(&mut core, server, None));
            drop(core);
        }
        let down: Vec<ServerRef> = self
            .iter()
            .flat_map(|b| b.servers.iter().map(|s| ServerRef { proxy: b.proxy, server: s.index }))
            .filter(|at| self.status(*at).is_some_and(|status| status.admin.maint()))
            .collect();
        for at in down {
            self.inherit(at, Duration::ZERO, true);
        }
    }

    /// The state of a server now.
    pub fn status(&self, at: ServerRef) -> Option<Status> {
        self.get(at.proxy)?.core().status.get(at.server).cloned()
    }

    /// The server that `at` tracks.
    pub fn tracked_by(&self, at: ServerRef) -> Option<ServerRef> {
        self.trackers.iter().find(|(_, tracker)| *tracker == at).map(|(tracked, _)| *tracked)
    }

    /// The server whose checks decide for `at`: the end of its chain of `track`.
    pub fn reference(&self, at: ServerRef) -> ServerRef {
        // A loop of trackers has been refused with the configuration; the bound is for the reader.
        let mut end = at;
        for _ in 0..=self.trackers.len() {
            match self.tracked_by(end) {
                Some(next) => end = next,
                None => break,
            }
        }
        end
    }

    /// `backend/server`.
    pub fn name(&self, at: ServerRef) -> String {
        let backend = self.get(at.proxy);
        let server = backend.and_then(|backend| backend.servers.get(at.server));
        format!("{}/{}", backend.map_or("", |b| b.name.as_str()), server.map_or("", |s| s.name.as_str()))
    }

    pub(super) fn since(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }

    /// Down, by a check or by traffic.
    pub fn set_stopped(&self, at: ServerRef, cause: &Cause, now: Instant) {
        self.set_state(at, Operational::Stopped, cause, self.since(now));
    }

    /// Up, by a check: in its slow start if it has one.
    pub fn set_running(&self, at: ServerRef, cause: &Cause, now: Instant) {
        self.set_state(at, Operational::Running, cause, self.since(now));
    }

    /// Closed to new clients, by a check.
    pub fn set_stopping(&self, at: ServerRef, cause: &Cause, now: Instant) {
        self.set_state(at, Operational::Stopping, cause, self.since(now));
    }

    fn set_state(&self, at: ServerRef, state: Operational, cause: &Cause, now: Duration) {
        let Some(backend) = self.get(at.proxy) else { return };
        let via = self.tracked_by(at).map(|tracked| self.name(tracked));
        let after = backend.set_state(at.server, state, cause, via.as_deref(), now);
        let Some(after) = after else { return };
        self.finish(backend, at.server, after);
        for tracker in self.trackers_of(at) {
            self.set_state(tracker, state, &Cause::default(), now);
        }
    }

    fn trackers_of(&self, at: ServerRef) -> Vec<ServerRef> {
        self.trackers.iter().filter(|(tracked, _)| *tracked == at).map(|(_, tracker)| *tracker).collect()
    }

    fn finish(&self, backend: &Arc<Backend>, server: usize, after: After) {
        for notice in &after.notices {
            (self.announce)(notice);
        }
        for waiter in after.evicted {
            // Who has left needs no word.
            let _ = waiter.send(Granted::Again);
        }
        if after.shut_sessions {
            backend.servers[server].shut_sessions(Shutdown::Down);
        }
        if after.shut_backup_sessions {
            let is_backup = |server: &&Server| server.config.settings.backup;
            let backups = backend.servers.iter().filter(is_backup);
            backups.for_each(|server| server.shut_sessions(Shutdown::Up));
        }
    }

    /// Carries out what an operator asks; `by` says in logs how, such as `changed from Web interface`.
    pub fn command(&self, at: ServerRef, command: Command, by: &'static str, now: Instant) {
        let cause = Cause { note: by, ..Cause::default() };
        let Some(backend) = self.get(at.proxy).filter(|backend| at.server < backend.servers.len()) else { return };
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
            Command::HealthUp | Command::HealthDown | Command::HealthStopping => {
                let set = |health: fn(&Check) -> u32| {
                    let mut core = backend.core();
                    if let Some(check) = core.status[at.server].check.as_mut() {
                        check.health = health(check);
                    }
                };
                match command {
                    Command::HealthUp => {
                        set(|check| check.rise + check.fall - 1);
                        self.set_running(at, &cause, now);
                    }
                    Command::HealthDown => {
                        set(|_| 0);
                        self.set_stopped(at, &cause, now);
                    }
                    _ => {
                        set(|check| check.rise + check.fall - 1);
                        self.set_stopping(at, &cause, now);
                    }
                }
            }
            Command::ShutdownSessions => backend.servers[at.server].shut_sessions(Shutdown::Operator),
        }
    }

    /// Tells the logs something.
    pub fn announce(&self, notice: &Notice) {
        (self.announce)(notice);
    }

    /// Has no address yet when it starts: not a word is said until it has one.
    pub fn start_unresolved(&self, at: ServerRef) {
        let Some(backend) = self.get(at.proxy) else { return };
        let mut core = backend.core();
        let status = &mut core.status[at.server];
        status.admin = status.admin.with(Admin::UNRESOLVED, true);
        status.state = Operational::Stopped;
        backend.balance_again(&mut core, at.server, None);
    }

    /// Sets or clears one administrative flag, here and with those that track this server.
    pub fn set_admin(&self, at: ServerRef, flag: Admin, on: bool, now: Duration) {
        self.set_admin_for(at, flag, on, "", now);
    }

    /// The same, with words for the log in parentheses.
    pub fn set_admin_for(&self, at: ServerRef, flag: Admin, on: bool, reason: &str, now: Duration) {
        let Some(backend) = self.get(at.proxy) else { return };
        let via = self.tracked_by(at);
        let tracked_up = via.and_then(|tracked| self.status(tracked)).is_none_or(|s| s.state != Operational::Stopped);
        let via = via.map(|tracked| self.name(tracked));
        let (was, is) = {
            let mut core = backend.core();
            let was = core.status[at.server].admin;
            let after = backend.set_admin(&mut core, at.server, (flag, on, reason), via.as_deref(), tracked_up, now);
            let is = core.status[at.server].admin;
            drop(core);
            self.finish(backend, at.server, after);
            (was, is)
        };
        if was.maint() != is.maint() {
            self.inherit(at, now, is.maint());
        }
        if was.drain() != is.drain() {
            for tracker in self.trackers_of(at) {
                self.set_admin(tracker, Admin::INHERITED_DRAIN, is.drain(), now);
            }
        }
        backend.dispatch(at.server);
    }

    fn inherit(&self, at: ServerRef, now: Duration, on: bool) {
        for tracker in self.trackers_of(at) {
            self.set_admin(tracker, Admin::INHERITED_MAINT, on, now);
        }
    }

    /// Sets the weight of a server. Where the algorithm's weights are fixed, only none and the configured one count.
    pub fn set_weight(&self, at: ServerRef, weight: u32, now: Instant) {
        let Some(backend) = self.get(at.proxy) else { return };
        let mut core = backend.core();
        core.status[at.server].weight = weight.min(256);
        let ramp = self.ramp(backend, &core, at.server, self.since(now));
        backend.balance_again(&mut core, at.server, ramp);
        drop(core);
        backend.dispatch(at.server);
    }

    fn ramp(&self, backend: &Backend, core: &Core, server: usize, now: Duration) -> Option<Ramp> {
        let status = &core.status[server];
        let whole = backend.servers[server].config.settings.slowstart?.as_secs() as u32;
        let elapsed = now.saturating_sub(status.last_change).as_secs() as u32;
        (status.state == Operational::Starting && elapsed < whole).then_some(Ramp { elapsed, whole })
    }

    /// Once a second: slow starts go on.
    pub fn tick(&self, now: Instant) {
        let now = self.since(now);
        for backend in self.iter() {
            for server in 0..backend.servers.len() {
                let mut core = backend.core();
                if core.status[server].state != Operational::Starting {
                    continue;
                }
                let ramp = self.ramp(backend, &core, server, now);
                if ramp.is_none() {
                    core.status[server].state = Operational::Running;
                    core.status[server].last_change = now;
                }
                backend.balance_again(&mut core, server, ramp);
                drop(core);
                let requeued = backend.dispatch(server);
                if ramp.is_none() {
                    let mut text = format!("{} is UP", backend.subject(server));
                    backend.append_counts(&mut text, &backend.core(), server, requeued);
                    (self.announce)(&Notice { proxy: backend.proxy, severity: NOTICE, text: text + "." });
                }
            }
        }
    }
}

impl Backend {
    /// The balancer learns the state of a server, readers too.
    fn balance_again(&self, core: &mut Core, server: usize, ramp: Option<Ramp>) {
        let status = &core.status[server];
        core.balancer.update(server, status.is_ready(), status.weight, ramp);
        let (usable, running) = (core.balancer.members()[server].usable(), status.state != Operational::Stopped);
        self.servers[server].usable.store(usable, Relaxed);
        self.servers[server].running.store(running && !status.admin.maint(), Relaxed);
        let totals = core.balancer.totals();
        self.active.store(totals.active, Relaxed);
        self.backup.store(totals.backup, Relaxed);
    }

    fn set_state(
        self: &Arc<Self>,
        server: usize,
        to: Operational,
        cause: &Cause,
        via: Option<&str>,
        now: Duration,
    ) -> Option<After> {
        let mut core = self.core();
        let from = core.status[server].state;
        let same = match to {
            Operational::Running => matches!(from, Operational::Running | Operational::Starting),
            to => from == to,
        };
        if same || core.status[server].admin.maint() {
            return None;
        }
        let settings = &self.servers[server].config.settings;
        let slowstart = settings.slowstart.filter(|slow| slow.as_secs() > 0);
        let had_servers = self.has_servers(&core);
        let mut after = After::default();
        self.leave_state(&mut core, server, now);
        let status = &mut core.status[server];
        status.state = match (to, slowstart) {
            (Operational::Running, Some(_)) => Operational::Starting,
            _ => to,
        };
        let ramp = slowstart.filter(|_| to == Operational::Running);
        let ramp = ramp.map(|whole| Ramp { elapsed: 0, whole: whole.as_secs() as u32 });
        self.balance_again(&mut core, server, ramp);
        let (word, severity) = match to {
            Operational::Stopped if from == Operational::Stopping => ("DOWN", NOTICE),
            Operational::Stopped => ("DOWN", ALERT),
            Operational::Stopping => ("stopping", NOTICE),
            _ => ("UP", NOTICE),
        };
        let mut text = format!("{} is {word}", self.subject(server));
        self.append_cause(&mut text, &core.status[server], cause, via);
        if to == Operational::Running {
            after.shut_backup_sessions = self.ends_backups(&core, server);
            drop(core);
            let requeued = self.dispatch(server);
            core = self.core();
            self.append_counts(&mut text, &core, server, requeued);
        } else {
            after.evicted = self.evict(&mut core, server);
            self.append_counts(&mut text, &core, server, after.evicted.len() as u32);
            if to == Operational::Stopped {
                after.shut_sessions = settings.on_marked_down_shutdown;
                core.status[server].down_transitions += 1;
            }
        }
        after.notices.push(Notice { proxy: self.proxy, severity, text: text + "." });
        self.note_backend(&mut core, had_servers, now, &mut after.notices);
        Some(after)
    }

    #[allow(clippy::too_many_arguments)] // One flag of one server: what it is, where it comes from, and when.
    fn set_admin(
        self: &Arc<Self>,
        core: &mut Core,
        server: usize,
        (flag, on, reason): (Admin, bool, &str),
        via: Option<&str>,
        tracked_up: bool,
        now: Duration,
    ) -> After {
        let mut after = After::default();
        let was = core.status[server].admin;
        let is = was.with(flag, on);
        if was == is {
            return after;
        }
        let had_servers = self.has_servers(core);
        let from = core.status[server].state;
        let subject = self.subject(server);
        let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
        let via = via.map(|via| format!(" via {via}")).unwrap_or_default();
        core.status[server].admin = is;
        let settings = &self.servers[server].config.settings;
        let mut severity = NOTICE;
        let mut remains = false;
        let text = match (was.maint(), is.maint()) {
            (false, true) if from == Operational::Stopped => {
                format!("{subject} was DOWN and now enters maintenance{reason}{via}")
            }
            (false, true) => {
                self.leave_state(core, server, now);
                let status = &mut core.status[server];
                status.state = Operational::Stopped;
                status.down_transitions += 1;
                self.balance_again(core, server, None);
                after.evicted = self.evict(core, server);
                after.shut_sessions = settings.on_marked_down_shutdown;
                if from != Operational::Stopping {
                    severity = ALERT;
                }
                let mut text = format!("{subject} is going DOWN for maintenance{reason}");
                text.push_str(&via);
                self.append_counts(&mut text, core, server, after.evicted.len() as u32);
                text
            }
            (true, false) => {
                let status = &mut core.status[server];
                // It is up until a check says otherwise, and the first one that fails does.
                for check in [&mut status.check, &mut status.agent].into_iter().flatten() {
                    check.health = check.health.max(check.rise);
                }
                let healthy = |check: &Option<Check>| check.as_ref().is_none_or(|c| c.health >= c.rise);
                let up = healthy(&status.check) && healthy(&status.agent) && tracked_up;
                remains = is.has(Admin::FORCED_DRAIN);
                let slow = settings.slowstart.filter(|slow| slow.as_secs() > 0);
                if up {
                    self.leave_state(core, server, now);
                    let starting = if slow.is_some() { Operational::Starting } else { Operational::Running };
                    core.status[server].state = starting;
                }
                let ramp = slow.filter(|_| up).map(|whole| Ramp { elapsed: 0, whole: whole.as_secs() as u32 });
                self.balance_again(core, server, ramp);
                after.shut_backup_sessions = self.ends_backups(core, server);
                let state = if up { "UP" } else { "DOWN" };
                let mode = if is.drain() { "DRAIN" } else { "READY" };
                match flag {
                    Admin::FORCED_MAINT => format!("{subject} is {state}/{mode} (leaving forced maintenance)"),
                    Admin::UNRESOLVED => {
                        let host = super::host_name(&self.servers[server]);
                        format!("{subject} ('{host}') is {state}/{mode} (resolves again)")
                    }
                    _ => format!("{subject} is {state}/{mode} (leaving maintenance)"),
                }
            }
            (true, true) if on => return after,
            (true, true) if flag == Admin::FORCED_MAINT => {
                format!("{subject} is leaving forced maintenance but remains in maintenance")
            }
            (true, true) => return after,
            (false, false) if was.drain() == is.drain() => return after,
            (false, false) if is.drain() => {
                core.status[server].last_change = now;
                self.balance_again(core, server, None);
                after.evicted = self.evict(core, server);
                let mut text = format!("{subject} enters drain state{via}");
                self.append_counts(&mut text, core, server, after.evicted.len() as u32);
                text
            }
            (false, false) => {
                core.status[server].last_change = now;
                self.balance_again(core, server, None);
                let state = if from == Operational::Stopped { "DOWN" } else { "UP" };
                format!("{subject} is {state} (leaving forced drain)")
            }
        };
        after.notices.push(Notice { proxy: self.proxy, severity, text: text + "." });
        if remains {
            let text = format!("{subject} remains in forced drain mode.");
            after.notices.push(Notice { proxy: self.proxy, severity: NOTICE, text });
        }
        self.note_backend(core, had_servers, now, &mut after.notices);
        after
    }

    /// This server has just come up, and takes over from backups at once.
    fn ends_backups(&self, core: &Core, server: usize) -> bool {
        let settings = &self.servers[server].config.settings;
        settings.on_marked_up_shutdown_backup && !settings.backup && core.balancer.members()[server].usable()
    }

    /// A stretch of the old state ends.
    fn leave_state(&self, core: &mut Core, server: usize, now: Duration) {
        let status = &mut core.status[server];
        if status.state == Operational::Stopped {
            status.down_time += now.saturating_sub(status.last_change);
        }
        status.last_change = now;
    }

    fn evict(&self, core: &mut Core, server: usize) -> Evicted {
        if !self.redispatch {
            return Evicted::new();
        }
        let evicted = core.queues.evict(server);
        self.publish(core, server);
        evicted
    }

    fn has_servers(&self, core: &Core) -> bool {
        let totals = core.balancer.totals();
        totals.active + totals.backup > 0
    }

    /// The backend lost its last server or got its first.
    fn note_backend(&self, core: &mut Core, had_servers: bool, now: Duration, notices: &mut Vec<Notice>) {
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
            notices.push(Notice { proxy: self.proxy, severity: EMERGENCY, text });
        }
        changes.last_change = now;
    }

    fn subject(&self, server: usize) -> String {
        let server = &self.servers[server];
        let kind = if server.config.settings.backup { "Backup Server" } else { "Server" };
        format!("{kind} {}/{}", self.name, server.name)
    }

    fn append_cause(&self, text: &mut String, status: &Status, cause: &Cause, via: Option<&str>) {
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

    fn append_counts(&self, text: &mut String, core: &Core, server: usize, requeued: u32) {
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

impl Check {
    /// `, reason: ..., code: ..., info: "...", check duration: ...ms`.
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
