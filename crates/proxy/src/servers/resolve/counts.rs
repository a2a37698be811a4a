//! Counts of DNS queries and their results, as `show resolvers` reports them.

use penstock_config::{Config, model::Resolvers};
use std::{
    net::{IpAddr, SocketAddr},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// The name servers of each `resolvers` section, with their counts.
#[derive(Debug, Default)]
pub struct Resolving {
    /// The sections in their order.
    pub sections: Vec<Section>,
    failed: AtomicU64,
}

/// A section.
#[derive(Debug)]
pub struct Section {
    /// The section's name.
    pub name: String,
    /// The section's name servers.
    pub nameservers: Vec<NameServer>,
}

/// A name server.
#[derive(Debug)]
pub struct NameServer {
    /// The name server's name.
    pub name: String,
    /// The name server's address.
    pub address: SocketAddr,
    counts: [AtomicU64; COUNTS.len()],
}

/// The names of the counts, in HAProxy's words and order. Those that stay at zero cannot occur here: aliases are resolved within the
/// answer, an answer marked as truncated counts as failed, and late answers are not waited for.
pub const COUNTS: [&str; 15] = [
    "sent",
    "snd_error",
    "valid",
    "update",
    "cname",
    "cname_error",
    "any_err",
    "nx",
    "timeout",
    "refused",
    "other",
    "invalid",
    "too_big",
    "truncated",
    "outdated",
];

/// The counts that can occur, by their place in [`COUNTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
#[repr(usize)]
pub(crate) enum Count {
    Sent = 0,
    SendError = 1,
    Valid = 2,
    Update = 3,
    NoSuchName = 7,
    Timeout = 8,
    Refused = 9,
    Other = 10,
    Invalid = 11,
    /// Answers larger than `accepted_payload_size`, which were ignored.
    TooBig = 12,
}

impl NameServer {
    /// The counts with their names from [`COUNTS`].
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        COUNTS.into_iter().zip(self.counts.iter().map(|count| count.load(Relaxed)))
    }

    pub(crate) fn count(&self, what: Count) {
        self.counts[what as usize].fetch_add(1, Relaxed);
    }
}

impl Resolving {
    /// Zero counts for the name servers of a configuration, including the system's where a section asks for them.
    pub(crate) fn new(config: &Config) -> Resolving {
        let sections = config
            .resolvers
            .iter()
            .map(|section| Section { name: section.name.clone(), nameservers: nameservers(section) });
        Resolving { sections: sections.collect(), failed: AtomicU64::new(0) }
    }

    /// How many times a name could not be resolved.
    pub fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    pub(crate) fn has_failed(&self) {
        self.failed.fetch_add(1, Relaxed);
    }
}

/// The section's own name servers, then the system's if it asks for them (`parse-resolv-conf`).
fn nameservers(section: &Resolvers) -> Vec<NameServer> {
    let mut list = section.nameservers.clone();
    if section.parse_resolv_conf {
        let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
        let lines = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver")?.trim().parse().ok());
        list.extend(lines.map(|ip: IpAddr| (ip.to_string(), SocketAddr::new(ip, 53))));
    }
    list.into_iter().map(|(name, address)| NameServer { name, address, counts: Default::default() }).collect()
}
