//! Changes of administrative flags: maintenance and drain, by operators and by servers that are tracked.

use super::{After, ends_backups, leave_state, slow_start};
use crate::server::{Admin, Backend, Check, Core, Notice, Operational, host_name};
use penstock_config::syslog;
use std::{sync::Arc, time::Duration};

/// A change of one administrative flag of one server.
pub(super) struct AdminChange<'a> {
    pub(super) flag: Admin,
    pub(super) on: bool,
    /// The reason that the log shows in parentheses.
    pub(super) reason: &'a str,
    /// The server that it tracks, if that caused the change.
    pub(super) via: Option<&'a str>,
    /// Whether the server that it tracks is up; true if it tracks none.
    pub(super) tracked_up: bool,
    pub(super) now: Duration,
}

/// What a change of flags means for the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AdminStep {
    /// Nothing visible.
    Nothing,
    /// The server was down, and is now also in maintenance.
    MaintainDown,
    /// The server goes down for maintenance.
    Maintain,
    /// The server's maintenance ends.
    Resume,
    /// An operator's maintenance ends, but another reason for maintenance remains.
    StayMaintained,
    /// The server takes no new clients.
    Drain,
    /// The server takes new clients again.
    Undrain,
}

impl AdminStep {
    fn of(was: Admin, is: Admin, change: &AdminChange<'_>, state: Operational) -> AdminStep {
        match (was.maint(), is.maint()) {
            (false, true) if state == Operational::Stopped => AdminStep::MaintainDown,
            (false, true) => AdminStep::Maintain,
            (true, false) => AdminStep::Resume,
            (true, true) if !change.on && change.flag == Admin::FORCED_MAINT => AdminStep::StayMaintained,
            (true, true) => AdminStep::Nothing,
            (false, false) if was.drain() == is.drain() => AdminStep::Nothing,
            (false, false) if is.drain() => AdminStep::Drain,
            (false, false) => AdminStep::Undrain,
        }
    }
}
impl<E> Backend<E> {
    /// Changes a flag of a server in this backend; returns what is left to do outside the lock.
    pub(super) fn set_admin(self: &Arc<Self>, core: &mut Core<E>, server: usize, change: &AdminChange<'_>) -> After<E> {
        let mut after = After::default();
        let was = core.status[server].admin;
        let is = was.with(change.flag, change.on);
        if was == is {
            return after;
        }
        let had_servers = self.has_servers(core);
        let step = AdminStep::of(was, is, change, core.status[server].state);
        core.status[server].admin = is;
        let (severity, text) = match step {
            AdminStep::Nothing => return after,
            AdminStep::MaintainDown => (syslog::NOTICE, self.maintain_down(core, server, change)),
            AdminStep::Maintain => self.maintain(core, server, change, &mut after),
            AdminStep::Resume => (syslog::NOTICE, self.resume(core, server, change, &mut after)),
            AdminStep::StayMaintained => {
                let subject = self.subject(core.server(server));
                (syslog::NOTICE, format!("{subject} is leaving forced maintenance but remains in maintenance"))
            }
            AdminStep::Drain => (syslog::NOTICE, self.drain(core, server, change, &mut after)),
            AdminStep::Undrain => (syslog::NOTICE, self.undrain(core, server, change)),
        };
        let mailed = (step == AdminStep::Drain).then_some(severity);
        after.notices.push(Notice { proxy: self.proxy, severity, text: text + ".", mailed });
        if step == AdminStep::Resume && is.has(Admin::FORCED_DRAIN) {
            let text = format!("{} remains in forced drain mode.", self.subject(core.server(server)));
            after.notices.push(Notice { proxy: self.proxy, severity: syslog::NOTICE, text, mailed: None });
        }
        self.note_backend(core, had_servers, change.now, &mut after.notices);
        after
    }

    fn maintain_down(&self, core: &Core<E>, server: usize, change: &AdminChange<'_>) -> String {
        let subject = self.subject(core.server(server));
        format!("{subject} was DOWN and now enters maintenance{}{}", change.reason(), change.via())
    }

    fn maintain(
        &self,
        core: &mut Core<E>,
        server: usize,
        change: &AdminChange<'_>,
        after: &mut After<E>,
    ) -> (u8, String) {
        let shared = core.server(server).clone();
        let status = &mut core.status[server];
        // A draining server took no new clients before.
        let drained = status.admin.drain() || status.state == Operational::Stopping;
        let severity = if drained { syslog::NOTICE } else { syslog::ALERT };
        leave_state(status, change.now);
        status.state = Operational::Stopped;
        status.down_transitions += 1;
        // As if its check had failed, so that it comes back one failure away from down.
        if let Some(check) = status.check.as_mut() {
            check.health = 0;
        }
        self.balance_again(core, server, None);
        after.evicted = self.evict(core, server);
        after.shut_sessions = shared.config.settings.on_marked_down_shutdown;
        let subject = self.subject(&shared);
        let mut text = format!("{subject} is going DOWN for maintenance{}{}", change.reason(), change.via());
        self.append_counts(&mut text, core, server, after.evicted.len() as u32);
        (severity, text)
    }

    fn resume(&self, core: &mut Core<E>, server: usize, change: &AdminChange<'_>, after: &mut After<E>) -> String {
        let shared = core.server(server).clone();
        let status = &mut core.status[server];
        // It counts as up until a check says otherwise; the first failed check suffices.
        if let Some(check) = status.check.as_mut() {
            check.health = check.health.max(check.rise);
        }
        // The agent went on during maintenance, so what it says counts.
        let well = |check: Option<&Check>| check.is_none_or(|check| check.health >= check.rise);
        let up = well(status.live_check()) && well(status.live_agent()) && change.tracked_up;
        let starts = slow_start(&shared).filter(|_| up);
        if up {
            leave_state(status, change.now);
            status.state = if starts.is_some() { Operational::Starting } else { Operational::Running };
            after.starts = starts.is_some();
        }
        let mode = if status.admin.drain() { "DRAIN" } else { "READY" };
        self.balance_again(core, server, starts);
        after.shut_backup_sessions = ends_backups(core, server);
        let (subject, state) = (self.subject(&shared), if up { "UP" } else { "DOWN" });
        match change.flag {
            Admin::FORCED_MAINT => format!("{subject} is {state}/{mode} (leaving forced maintenance)"),
            Admin::UNRESOLVED => {
                let host = host_name(&shared);
                format!("{subject} ('{host}') is {state}/{mode} (resolves again)")
            }
            _ => format!("{subject} is {state}/{mode} (leaving maintenance)"),
        }
    }

    fn drain(&self, core: &mut Core<E>, server: usize, change: &AdminChange<'_>, after: &mut After<E>) -> String {
        core.status[server].last_change = change.now;
        self.balance_again(core, server, None);
        after.evicted = self.evict(core, server);
        let mut text = format!("{} enters drain state{}", self.subject(core.server(server)), change.via());
        self.append_counts(&mut text, core, server, after.evicted.len() as u32);
        text
    }

    fn undrain(&self, core: &mut Core<E>, server: usize, change: &AdminChange<'_>) -> String {
        let status = &mut core.status[server];
        status.last_change = change.now;
        let state = if status.state == Operational::Stopped { "DOWN" } else { "UP" };
        self.balance_again(core, server, None);
        format!("{} is {state} (leaving forced drain)", self.subject(core.server(server)))
    }
}

impl AdminChange<'_> {
    fn reason(&self) -> String {
        if self.reason.is_empty() { String::new() } else { format!(" ({})", self.reason) }
    }

    fn via(&self) -> String {
        self.via.map(|via| format!(" via {via}")).unwrap_or_default()
    }
}
