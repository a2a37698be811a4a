//! Queues of network cards, and which processors their interrupts go to.

use super::Case;
use crate::{
    Change, Finding, Level,
    facts::Interface,
    finding::{Area::Network, count},
};
use std::collections::BTreeSet;

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for interface in &case.interfaces {
        let before = found.len();
        found.extend(queues(case, interface));
        found.extend(affinity(case, interface));
        if found.len() == before {
            let speed = interface.speed.map(|s| format!(", {} Gbit/s", s as f64 / 1000.0)).unwrap_or_default();
            let driver = interface.driver.as_deref().unwrap_or("unknown driver");
            let what = format!(
                "{} ({driver}{speed}): {} for {}",
                interface.name,
                count(interface.queues.len(), "queue"),
                count(case.cpu.online.len(), "processor")
            );
            found.push(Finding::good("nic-queues", Network, what));
        }
    }
    found
}

/// The mask of /sys for these processors: words of 32 bits, the highest first.
fn mask(cpus: &[u32]) -> String {
    let words = cpus.iter().max().map_or(1, |most| most / 32 + 1);
    let word =
        |index: u32| cpus.iter().filter(|cpu| **cpu / 32 == index).fold(0u32, |bits, cpu| bits | 1 << (cpu % 32));
    let first = format!("{:x}", word(words - 1));
    (0..words - 1).rev().fold(first, |text, index| format!("{text},{:08x}", word(index)))
}

/// Reports fewer queues than workers: the processors of those interrupts do all workers' network work.
fn queues(case: &Case<'_>, interface: &Interface) -> Option<Finding> {
    let queues = interface.queues.len();
    let workers = case.workers() as usize;
    let name = &interface.name;
    // Eight workers to a queue are well served; one queue for all is not.
    if queues == 0 || workers < 2 || queues * 8 >= workers && queues > 1 {
        return None;
    }
    if interface.spreads {
        let what = format!(
            "{name} has {}; the kernel spreads its packets over processors (RPS)",
            count(queues, "receive queue")
        );
        return Some(Finding::good("nic-queues", Network, what));
    }
    let mut finding = Finding::new(
        "nic-queues",
        Network,
        Level::Notice,
        14,
        format!("{name} has {} for {workers} workers", count(queues, "receive queue")),
    )
    .seen(format!("/sys/class/net/{name}/queues: {}; rps_cpus all zero", interface.queues.join(" ")))
    .means("one processor does the network work of all: its worker falls behind at high packet rates");
    let value = mask(&case.cpu.online);
    for queue in &interface.queues {
        finding = finding.mend(Change::Value {
            path: format!("/sys/class/net/{name}/queues/{queue}/rps_cpus"),
            value: value.clone(),
            udev: Some(format!(
                "SUBSYSTEM==\"net\", ACTION==\"add\", KERNEL==\"{name}\", ATTR{{queues/{queue}/rps_cpus}}=\"{value}\""
            )),
        });
    }
    let or = if case.cpu.is_virtual() {
        "or give the virtual card more queues"
    } else {
        "or 'ethtool -L' for more queues, where the card has them"
    };
    Some(finding.by_hand(or))
}

/// Reports all queues on one processor.
fn affinity(case: &Case<'_>, interface: &Interface) -> Option<Finding> {
    let workers = case.workers();
    let pinned: Vec<&(u32, Vec<u32>)> = interface.interrupts.iter().filter(|(_, cpus)| !cpus.is_empty()).collect();
    if pinned.len() < 2 || interface.queues.len() < 2 || workers < 2 {
        return None;
    }
    let single: BTreeSet<u32> = pinned.iter().filter(|(_, cpus)| cpus.len() == 1).map(|(_, cpus)| cpus[0]).collect();
    let all_single = pinned.iter().all(|(_, cpus)| cpus.len() == 1);
    if !all_single || single.len() * 2 > pinned.len().min(case.cpu.online.len()) {
        return None;
    }
    let (first, cpus) = pinned[0];
    let mut finding = Finding::new(
        "nic-affinity",
        Network,
        Level::Warning,
        24,
        format!("{} interrupts of {} go to {}", pinned.len(), interface.name, count(single.len(), "processor")),
    )
    .seen(format!("/proc/irq/{first}/smp_affinity_list: {cpus:?}, and its like"))
    .means("the queues are many, but one processor empties them all");
    for (at, (number, _)) in pinned.iter().enumerate() {
        let cpu = case.cpu.online[at % case.cpu.online.len()];
        finding = finding.mend(Change::Value {
            path: format!("/proc/irq/{number}/smp_affinity_list"),
            value: cpu.to_string(),
            udev: None,
        });
    }
    Some(finding.by_hand("irqbalance moves them again: exclude them there, or stop it"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn masks_are_written_as_the_kernel_reads_them() {
        assert_eq!(super::mask(&[0, 1]), "3");
        assert_eq!(super::mask(&[0, 33]), "2,00000001");
        assert_eq!(super::mask(&[64]), "1,00000000,00000000");
    }
}
