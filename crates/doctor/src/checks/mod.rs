//! The checks, a file for each part of a host, and the order of what they find.

mod certificates;
mod cpu;
mod device;
mod kernel;
mod limits;
mod network;
mod resumption;
mod topology;

use crate::{
    Finding, Host, Level,
    facts::{self, Cpu, Interface, Limits, Qat, Seen},
    finding::Area,
};
use penstock_config::Config;
use std::io;

/// What is examined.
pub struct Subject<'a> {
    /// The machine examined.
    pub host: &'a Host,
    /// The configuration that the machine is to serve; without one, checks that depend on it are left out.
    pub config: Option<&'a Config>,
    /// The time now, in seconds since 1970.
    pub now: i64,
    /// Reads a certificate's file: not part of the host, so that no recording holds a key.
    pub read: &'a dyn Fn(&str) -> io::Result<Vec<u8>>,
    /// TLS sessions of clients so far, and how many of them were resumed, if a running process was asked.
    pub resumed: Option<(u64, u64)>,
}

/// The subject with what is known of it.
struct Case<'a> {
    host: &'a Host,
    config: Option<&'a Config>,
    now: i64,
    read: &'a dyn Fn(&str) -> io::Result<Vec<u8>>,
    resumed: Option<(u64, u64)>,
    cpu: Cpu,
    limits: Limits,
    devices: Vec<Qat>,
    devices_seen: Seen,
    interfaces: Vec<Interface>,
}

impl Case<'_> {
    /// Worker threads: `nbthread`, or one for each processor.
    fn workers(&self) -> u32 {
        let asked = self.config.and_then(|config| config.global.nbthread);
        asked.unwrap_or(self.cpu.online.len().max(1) as u32)
    }

    /// `maxconn` of the process, where the configuration has one.
    fn maxconn(&self) -> Option<u64> {
        self.config?.global.maxconn.map(u64::from)
    }

    /// Whether the configuration asks for a device.
    fn wants_device(&self) -> bool {
        let Some(config) = self.config else { return false };
        let crypto = &config.global.crypto;
        let engine = crypto.engine.as_ref().is_some_and(|engine| engine.value.starts_with("hw"));
        let named = [&crypto.ssl_engine, &crypto.ssl_provider].into_iter().flatten();
        engine || named.into_iter().any(|name| name.value.starts_with("qat"))
    }

    /// Whether the configuration demands a device, and accepts nothing else.
    fn demands_device(&self) -> bool {
        let engine = self.config.and_then(|config| config.global.crypto.engine.as_ref());
        engine.is_some_and(|engine| engine.value == "hw")
    }

    /// Whether the configuration asks for eight lanes.
    fn wants_lanes(&self) -> bool {
        let engine = self.config.and_then(|config| config.global.crypto.engine.as_ref());
        engine.is_some_and(|engine| engine.value.ends_with("sw"))
    }

    /// Whether the configuration terminates TLS; without a configuration, that is assumed.
    fn has_tls(&self) -> bool {
        self.config.is_none_or(|config| {
            config.proxies.iter().any(|proxy| !proxy.disabled && proxy.binds.iter().any(|bind| bind.tls.is_some()))
        })
    }
}

/// All findings, most valuable first.
pub fn examine(subject: &Subject<'_>) -> Vec<Finding> {
    let host = subject.host;
    let (devices, devices_seen) = facts::devices(host);
    let case = Case {
        host,
        config: subject.config,
        now: subject.now,
        read: subject.read,
        resumed: subject.resumed,
        cpu: Cpu::of(host),
        limits: Limits::of(host),
        devices,
        devices_seen,
        interfaces: facts::interfaces(host),
    };
    let checks: [fn(&Case<'_>) -> Vec<Finding>; 8] = [
        cpu::check,
        topology::check,
        device::check,
        kernel::check,
        limits::check,
        network::check,
        certificates::check,
        resumption::check,
    ];
    let mut findings: Vec<Finding> = checks.iter().flat_map(|check| check(&case)).collect();
    findings.extend(hidden(&case));
    // Findings of equal value stay in the order of the checks.
    findings.sort_by_key(|finding| (std::cmp::Reverse(finding.level), std::cmp::Reverse(finding.worth)));
    findings
}

/// Reports what could not be examined.
fn hidden(case: &Case<'_>) -> Option<Finding> {
    let mut missing = Vec::new();
    for (path, what) in [
        ("/proc/cpuinfo", "instructions and microcode"),
        ("/sys/devices/system/cpu", "topology, governor and frequencies"),
        ("/sys/class/net", "network interfaces"),
        ("/proc/sys/net", "kernel settings"),
        ("/proc/self/limits", "limits of processes"),
    ] {
        if !case.host.exists(path) {
            missing.push(format!("{path} is not there: {what} are unknown"));
        }
    }
    if case.devices_seen == Seen::Nowhere {
        missing.push("neither /sys/bus/pci nor /proc/bus/pci is there: QuickAssist devices are unknown".into());
    }
    missing.extend(case.host.denied().into_iter().map(|path| format!("{path} may not be read")));
    if missing.is_empty() {
        return None;
    }
    let mut finding =
        Finding::new("hidden", Area::Host, Level::Notice, 5, "parts of the host cannot be seen from here")
            .means("what is not seen is neither praised nor blamed: the findings are those of the rest")
            .by_hand("run it on the host rather than in a container, or as root");
    finding.evidence = missing;
    Some(finding)
}
