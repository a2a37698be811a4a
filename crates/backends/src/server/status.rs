//! The state of one server and the words for it.

use penstock_config::model::ServerSettings;
use std::time::Duration;

/// What checks make of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Operational {
    /// Down.
    Stopped,
    /// Up, in its slow start.
    Starting,
    /// Up.
    #[default]
    Running,
    /// Up for those bound to it, closed for others (`http-check disable-on-404`).
    Stopping,
}

/// What operators and other servers make of it: a set of flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Admin(u8);

impl Admin {
    /// Maintenance by an operator or by `disabled`.
    pub const FORCED_MAINT: Admin = Admin(1);
    /// Maintenance of the server it tracks.
    pub const INHERITED_MAINT: Admin = Admin(2);
    /// Its name does not resolve.
    pub const UNRESOLVED: Admin = Admin(4);
    /// Drain by an operator or the agent.
    pub const FORCED_DRAIN: Admin = Admin(8);
    /// Drain of the server it tracks.
    pub const INHERITED_DRAIN: Admin = Admin(16);

    /// Any flag of `other` is set.
    pub fn has(self, other: Admin) -> bool {
        self.0 & other.0 != 0
    }

    /// With the flags of `other` set or cleared.
    #[must_use]
    pub fn with(self, other: Admin, on: bool) -> Admin {
        if on { Admin(self.0 | other.0) } else { Admin(self.0 & !other.0) }
    }

    /// In maintenance for any reason.
    pub fn maint(self) -> bool {
        self.has(Admin(1 | 2 | 4))
    }

    /// Draining for any reason.
    pub fn drain(self) -> bool {
        self.has(Admin(8 | 16))
    }
}

/// Health as a check counts it: 0 is dead, `rise` and more is up, `rise + fall - 1` is well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// From 0 to `rise + fall - 1`.
    pub health: u32,
    /// Successes that bring it up.
    pub rise: u32,
    /// Failures that take it down.
    pub fall: u32,
    /// The last result: its short name, such as `L4OK`; empty before the first.
    pub status: &'static str,
    /// The sentence for it, such as `Layer4 check passed`.
    pub description: &'static str,
    /// An HTTP status or another protocol's code, where one was read.
    pub code: Option<u32>,
    /// How long it took.
    pub duration: Option<Duration>,
    /// What the server or the system said.
    pub info: String,
    /// A check is under way.
    pub running: bool,
    /// Failed checks while up.
    pub failed: u64,
}

/// What an agent's check adds.
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
            failed: 0,
        }
    }

    /// As healthy as can be.
    pub fn is_well(&self) -> bool {
        self.health + 1 == self.rise + self.fall
    }

    /// `n/m` of the way up or down.
    pub fn progress(&self, up: bool) -> (u32, u32) {
        if up { ((self.health + 1).saturating_sub(self.rise), self.fall) } else { (self.health, self.rise) }
    }
}

/// The state of a server.
#[derive(Clone, Debug)]
pub struct Status {
    /// From checks.
    pub state: Operational,
    /// From operators.
    pub admin: Admin,
    /// `weight`, or what was set since.
    pub weight: u32,
    /// Its health check, if it has one.
    pub check: Option<Check>,
    /// Its agent, if it has one.
    pub agent: Option<Agent>,
    /// Since start.
    pub last_change: Duration,
    /// Sum of the times it was down before the last change.
    pub down_time: Duration,
    /// How often it went down.
    pub down_transitions: u64,
    /// Requests the algorithm gave it.
    pub lb_total: u64,
    /// Errors seen in its traffic in a row.
    pub consecutive_errors: u32,
    /// Errors seen in its traffic that counted against it.
    pub failed_observations: u64,
}

impl Status {
    /// As a server starts: up, unless `disabled`.
    pub fn new(settings: &ServerSettings) -> Status {
        let check = &settings.check;
        let admin = Admin::default().with(Admin::FORCED_MAINT, settings.disabled);
        Status {
            state: if settings.disabled { Operational::Stopped } else { Operational::Running },
            admin,
            weight: settings.weight,
            check: (check.enabled && settings.track.is_none()).then(|| Check::new(check.rise, check.fall)),
            agent: None,
            last_change: Duration::ZERO,
            down_time: Duration::ZERO,
            down_transitions: 0,
            lb_total: 0,
            consecutive_errors: 0,
            failed_observations: 0,
        }
    }

    /// Whether the algorithms may choose it, weight apart.
    pub fn is_ready(&self) -> bool {
        let up = matches!(self.state, Operational::Starting | Operational::Running);
        up && !self.admin.maint() && !self.admin.drain()
    }

    /// The state in HAProxy's words. `reference` is the server at the end of its chain of `track`, itself where it
    /// tracks none; `via` names the server it tracks (`backend/server`).
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
        let (check, agent) = (reference.check.as_ref(), reference.agent.as_ref());
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
