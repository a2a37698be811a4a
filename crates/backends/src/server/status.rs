//! The state of one server, and its description in words.

use penstock_config::model::ServerSettings;
use std::time::Duration;

/// The state of a server according to its checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Operational {
    /// Down.
    Stopped,
    /// Up, in its slow start.
    Starting,
    /// Up.
    #[default]
    Running,
    /// Up for clients tied to it, closed to others (`http-check disable-on-404`).
    Stopping,
}

/// The administrative state of a server, set by operators and other servers: a set of flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Admin(u8);

impl Admin {
    /// Maintenance by an operator or by `disabled`.
    pub const FORCED_MAINT: Admin = Admin(1);
    /// Maintenance of the server it tracks.
    pub const INHERITED_MAINT: Admin = Admin(2);
    /// Maintenance because the server's name does not resolve.
    pub const UNRESOLVED: Admin = Admin(4);
    /// Drain by an operator or the agent.
    pub const FORCED_DRAIN: Admin = Admin(8);
    /// Drain of the server it tracks.
    pub const INHERITED_DRAIN: Admin = Admin(16);

    /// Whether any flag of `other` is set.
    pub fn has(self, other: Admin) -> bool {
        self.0 & other.0 != 0
    }

    /// A copy with the flags of `other` set or cleared.
    #[must_use]
    pub fn with(self, other: Admin, on: bool) -> Admin {
        if on { Admin(self.0 | other.0) } else { Admin(self.0 & !other.0) }
    }

    /// Whether any reason for maintenance is set.
    pub fn maint(self) -> bool {
        self.has(Admin(1 | 2 | 4))
    }

    /// Whether any reason for draining is set.
    pub fn drain(self) -> bool {
        self.has(Admin(8 | 16))
    }
}

/// Health as counted by a check: 0 is dead, `rise` or more is up, `rise + fall - 1` is fully healthy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// From 0 to `rise + fall - 1`.
    pub health: u32,
    /// Successes in a row that bring it up.
    pub rise: u32,
    /// Failures in a row that take it down.
    pub fall: u32,
    /// The short name of the last result, such as `L4OK`; empty before the first.
    pub status: &'static str,
    /// The description of the last result, such as `Layer4 check passed`.
    pub description: &'static str,
    /// An HTTP status, or another protocol's code, if one was read.
    pub code: Option<u32>,
    /// How long the last check took.
    pub duration: Option<Duration>,
    /// The text that the server or the system returned.
    pub info: String,
    /// Whether a check is in progress.
    pub running: bool,
    /// Whether the check is carried out; an operator may switch it off.
    pub enabled: bool,
    /// Number of checks that failed while the server was up.
    pub failed: u64,
}

/// The health according to an agent.
pub type Agent = Check;

impl Check {
    /// Up, one failure away from down.
    pub fn new(rise: u32, fall: u32) -> Check {
        Check {
            health: rise,
            rise,
            fall,
            status: "",
            description: "",
            code: None,
            duration: None,
            info: String::new(),
            running: false,
            enabled: true,
            failed: 0,
        }
    }

    /// Whether the server is fully healthy: only `fall` failures in a row would take it down.
    pub fn is_well(&self) -> bool {
        self.health + 1 == self.rise + self.fall
    }

    /// The progress `n/m` towards up or down.
    pub fn progress(&self, up: bool) -> (u32, u32) {
        if up { ((self.health + 1).saturating_sub(self.rise), self.fall) } else { (self.health, self.rise) }
    }
}

/// The state of a server.
#[derive(Clone, Debug)]
pub struct Status {
    /// The state according to checks.
    pub state: Operational,
    /// The state set by operators.
    pub admin: Admin,
    /// `weight`, as configured or set at run time.
    pub weight: u32,
    /// The server's health check; `None` if it has none.
    pub check: Option<Check>,
    /// What the server's agent says, if it has one. One answer suffices to take the server down or bring it up.
    pub agent: Option<Agent>,
    /// Time of the last change, since start.
    pub last_change: Duration,
    /// How long the server had been in the state that it started with, if another process left that.
    pub age_at_start: Duration,
    /// Total time that the server was down before the last change.
    pub down_time: Duration,
    /// How many times the server went down.
    pub down_transitions: u64,
    /// Requests that the algorithm assigned to it.
    pub lb_total: u64,
    /// Errors in a row seen in the server's traffic.
    pub consecutive_errors: u32,
    /// Errors seen in the server's traffic that counted against it.
    pub failed_observations: u64,
}

impl Status {
    /// The state of a server at start: up, unless `disabled`.
    pub fn new(settings: &ServerSettings) -> Status {
        let check = &settings.check;
        let admin = Admin::default().with(Admin::FORCED_MAINT, settings.disabled);
        Status {
            state: if settings.disabled { Operational::Stopped } else { Operational::Running },
            admin,
            weight: settings.weight,
            check: (check.enabled && settings.track.is_none()).then(|| Check::new(check.rise, check.fall)),
            agent: settings.agent.is_some().then(|| Agent::new(1, 1)),
            last_change: Duration::ZERO,
            age_at_start: Duration::ZERO,
            down_time: Duration::ZERO,
            down_transitions: 0,
            lb_total: 0,
            consecutive_errors: 0,
            failed_observations: 0,
        }
    }

    /// The health check; `None` if there is none or it is switched off.
    pub fn live_check(&self) -> Option<&Check> {
        self.check.as_ref().filter(|check| check.enabled)
    }

    /// The agent; `None` if there is none or it is switched off.
    pub fn live_agent(&self) -> Option<&Agent> {
        self.agent.as_ref().filter(|agent| agent.enabled)
    }

    /// Whether the algorithms may choose it, apart from its weight.
    pub fn is_ready(&self) -> bool {
        let up = matches!(self.state, Operational::Starting | Operational::Running);
        up && !self.admin.maint() && !self.admin.drain()
    }

    /// The state in HAProxy's words. `reference` is the server at the end of its chain of `track`, or itself if it
    /// tracks none; `via` is the name of the server it tracks (`backend/server`).
    pub fn words(&self, reference: &Status, via: Option<&str>) -> String {
        if self.admin.has(Admin::INHERITED_MAINT) {
            return format!("MAINT (via {})", via.unwrap_or_default());
        }
        if self.admin.has(Admin::UNRESOLVED) {
            return "MAINT (resolution)".into();
        }
        if self.admin.maint() {
            return "MAINT".into();
        }
        let partial = |word: &str, check: &Check| {
            let (n, m) = check.progress(reference.state != Operational::Stopped);
            format!("{word} {n}/{m}")
        };
        let (check, agent) = (reference.live_check(), reference.live_agent());
        match self.state {
            Operational::Running | Operational::Starting => match check {
                _ if self.admin.drain() && agent.is_some() => "DRAIN (agent)".into(),
                Some(check) if !check.is_well() => partial(if self.admin.drain() { "DRAIN" } else { "UP" }, check),
                _ if self.admin.drain() => "DRAIN".into(),
                Some(_) => "UP".into(),
                None => "no check".into(),
            },
            Operational::Stopping => match check {
                Some(check) if !check.is_well() => partial("NOLB", check),
                _ => "NOLB".into(),
            },
            Operational::Stopped => match (check, agent) {
                (_, Some(agent)) if agent.health == 0 => "DOWN (agent)".into(),
                (Some(check), _) if check.health > 0 => partial("DOWN", check),
                (None, Some(agent)) if agent.health > 0 => partial("DOWN", agent),
                _ => "DOWN".into(),
            },
        }
    }
}
