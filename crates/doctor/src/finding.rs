//! What is found: evidence, consequence and fix.

use std::fmt;

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something was checked, and is as it should be.
    Good,
    /// Something is worth knowing; nothing must be done.
    Notice,
    /// Something costs speed or safety now.
    Warning,
    /// Something fails, or soon will.
    Critical,
}

impl Level {
    /// The level in one word.
    pub fn name(self) -> &'static str {
        match self {
            Level::Good => "good",
            Level::Notice => "notice",
            Level::Warning => "warning",
            Level::Critical => "critical",
        }
    }
}

/// The part of the host or the configuration that a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Area {
    Cpu,
    Topology,
    Clock,
    Device,
    Kernel,
    Limits,
    Network,
    Certificates,
    Tls,
    Host,
}

impl Area {
    /// The area in one word.
    pub fn name(self) -> &'static str {
        match self {
            Area::Cpu => "cpu",
            Area::Topology => "topology",
            Area::Clock => "clock",
            Area::Device => "quickassist",
            Area::Kernel => "kernel",
            Area::Limits => "limits",
            Area::Network => "network",
            Area::Certificates => "certificates",
            Area::Tls => "tls",
            Area::Host => "host",
        }
    }
}

/// One step of a fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A kernel setting: now, and in sysctl.d for the next boot.
    Sysctl {
        /// The setting's dotted name.
        name: String,
        /// The value to set.
        value: String,
    },
    /// A file of /sys or /proc: now, and by a udev rule for the next boot where there is one.
    Value {
        /// The file's path.
        path: String,
        /// The value to write.
        value: String,
        /// The line of udev's rules that sets it again.
        udev: Option<String>,
    },
    /// A setting of a systemd service, in a drop-in.
    Service {
        /// `penstock.service`.
        unit: String,
        /// `LimitNOFILE=20064`.
        setting: String,
    },
    /// A whole file.
    File {
        /// The file's path.
        path: String,
        /// The file's contents.
        text: String,
    },
    /// What only a person can do: firmware settings, hardware, another configuration.
    ByHand(String),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Sysctl { name, value } => write!(f, "sysctl -w {name}={}", quoted(value)),
            Change::Value { path, value, .. } => write!(f, "echo {} > {path}", quoted(value)),
            Change::Service { unit, setting } => write!(f, "/etc/systemd/system/{unit}.d/90-penstock.conf: {setting}"),
            Change::File { path, text } => write!(f, "{path}:\n{}", text.trim_end()),
            Change::ByHand(text) => f.write_str(text),
        }
    }
}

fn quoted(value: &str) -> String {
    if value.contains([' ', ';', '\t']) { format!("\"{value}\"") } else { value.to_owned() }
}

/// `1 queue`, `2 queues`: for nouns that take an s.
pub(crate) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// A stable name, for scripts.
    pub id: &'static str,
    /// The part of the host or the configuration.
    pub area: Area,
    /// How serious the finding is.
    pub level: Level,
    /// What fixing the finding is worth, for the order within a level: roughly percent of the server's work.
    pub worth: u32,
    /// One sentence without a full stop.
    pub finding: String,
    /// The places at which this was seen, and what was there.
    pub evidence: Vec<String>,
    /// What the finding means for this configuration.
    pub consequence: String,
    /// What to do.
    pub fix: Vec<Change>,
}

impl Finding {
    /// A finding of this level, without evidence yet.
    pub fn new(id: &'static str, area: Area, level: Level, worth: u32, finding: impl Into<String>) -> Finding {
        Finding {
            id,
            area,
            level,
            worth,
            finding: finding.into(),
            evidence: Vec::new(),
            consequence: String::new(),
            fix: Vec::new(),
        }
    }

    /// A finding that something is as it should be.
    pub fn good(id: &'static str, area: Area, finding: impl Into<String>) -> Finding {
        Finding::new(id, area, Level::Good, 0, finding)
    }

    /// Adds where it was seen.
    pub fn seen(mut self, evidence: impl Into<String>) -> Finding {
        self.evidence.push(evidence.into());
        self
    }

    /// Sets what it means.
    pub fn means(mut self, consequence: impl Into<String>) -> Finding {
        self.consequence = consequence.into();
        self
    }

    /// Adds a change that fixes it.
    pub fn mend(mut self, change: Change) -> Finding {
        self.fix.push(change);
        self
    }

    /// Adds what only a person can do about it.
    pub fn by_hand(self, text: impl Into<String>) -> Finding {
        self.mend(Change::ByHand(text.into()))
    }

    /// Sets the level, for a finding that conditions make better or worse.
    pub fn at(mut self, level: Level) -> Finding {
        self.level = level;
        self
    }
}
