//! Workers against cores, sockets and memory nodes.

use super::Case;
use crate::{
    Finding, Level,
    facts::range,
    finding::{Area::Topology, count},
};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    if case.cpu.online.is_empty() {
        return found;
    }
    found.extend(quota(case));
    found.extend(cluster(case));
    let before = found.len();
    found.extend(threads(case));
    found.extend(absent(case));
    found.extend(siblings(case));
    found.extend(nodes(case));
    if found.len() == before && case.config.is_some() {
        let what =
            format!("{} on {}", count(case.workers() as usize, "worker"), count(case.cpu.online.len(), "processor"));
        found.push(Finding::good("cpu-map", Topology, format!("the workers fit the processors: {what}")));
    }
    found
}

/// A CPU quota: once it is used up, workers wait until the period ends.
fn quota(case: &Case<'_>) -> Option<Finding> {
    let (path, text) = match case.host.text("/sys/fs/cgroup/cpu.max") {
        Some(text) => ("/sys/fs/cgroup/cpu.max", text),
        None => {
            let own = case.host.text("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")?;
            let period = case.host.text("/sys/fs/cgroup/cpu/cpu.cfs_period_us")?;
            ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", format!("{own} {period}"))
        }
    };
    let (quota, period) = text.split_once(' ')?;
    let (quota, period) = (quota.parse::<f64>().ok()?, period.trim().parse::<f64>().ok()?);
    if quota <= 0.0 || period <= 0.0 {
        return None;
    }
    let cpus = quota / period;
    let workers = f64::from(case.workers());
    if cpus >= workers {
        return Some(Finding::good(
            "cpu-quota",
            Topology,
            format!("the quota of {cpus:.1} processors covers {}", count(workers as usize, "worker")),
        ));
    }
    Some(
        Finding::new("cpu-quota", Topology, Level::Warning, 45, format!("{workers} workers share a quota of {cpus:.1} processors"))
            .seen(format!("{path}: {text}"))
            .means("once the quota is used up every worker stands still for the rest of the period: latency jumps by tens of milliseconds")
            .by_hand(format!("write 'nbthread {}' in global, or raise the container's limit", (cpus.floor() as u32).max(1))),
    )
}

/// Sub-NUMA clustering: more memory nodes than sockets.
fn cluster(case: &Case<'_>) -> Option<Finding> {
    let (nodes, sockets) = (case.cpu.nodes.len(), case.cpu.socket_count());
    if nodes <= sockets {
        return None;
    }
    Some(
        Finding::new("sub-numa", Topology, Level::Notice, 7, "sub-NUMA clustering is on")
            .seen(format!("{nodes} memory nodes with processors on {}", count(sockets, "socket")))
            .means("memory and devices of one cluster are farther from the others: without cpu-map, workers pay for it")
            .by_hand("bind the workers with cpu-map to the cluster of the network card and the device, or turn SNC/NPS off in the firmware"),
    )
}

fn threads(case: &Case<'_>) -> Option<Finding> {
    let workers = case.workers() as usize;
    let cpus = case.cpu.online.len();
    if workers <= cpus {
        return None;
    }
    Some(
        Finding::new(
            "nbthread",
            Topology,
            Level::Warning,
            35,
            format!("{workers} workers for {}", count(cpus, "processor")),
        )
        .seen(format!("nbthread {workers}; online: {cpus}"))
        .means("workers take turns on a processor: each waits for the other's time slice, and batches split")
        .by_hand(format!("write 'nbthread {cpus}' in global, or leave it out")),
    )
}

/// The map, as far as its threads exist.
fn mapped<'a>(case: &Case<'a>) -> BTreeMap<u32, &'a [u32]> {
    let workers = case.workers();
    let map = case.config.map(|config| &config.global.cpu_map);
    map.into_iter().flatten().filter(|(t, _)| **t <= workers).map(|(t, cpus)| (*t, cpus.as_slice())).collect()
}

fn absent(case: &Case<'_>) -> Option<Finding> {
    let map = mapped(case);
    let online: BTreeSet<u32> = case.cpu.online.iter().copied().collect();
    // A set may name more than there is ('0-63'); a thread with nothing that exists cannot run there.
    let stranded: Vec<u32> = map
        .iter()
        .filter(|(_, cpus)| !cpus.is_empty() && cpus.iter().all(|c| !online.contains(c)))
        .map(|(t, _)| *t)
        .collect();
    let first = stranded.first()?;
    Some(
        Finding::new(
            "cpu-map",
            Topology,
            Level::Critical,
            60,
            format!("cpu-map binds {} to processors that are not there", count(stranded.len(), "worker")),
        )
        .seen(format!("thread {first}: {:?}; online: {}", map[first], shown(&case.cpu.online)))
        .means("binding fails, and the worker floats or does not start")
        .by_hand(suggestion(case)),
    )
}

/// Reports two workers on the two threads of a core, while other cores are idle.
fn siblings(case: &Case<'_>) -> Option<Finding> {
    if !case.cpu.has_smt() {
        return None;
    }
    let single: Vec<u32> = mapped(case).values().filter(|cpus| cpus.len() == 1).map(|cpus| cpus[0]).collect();
    let mut by_core: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for cpu in single.iter().copied() {
        let core = case.cpu.siblings.get(&cpu).and_then(|list| list.first()).copied().unwrap_or(cpu);
        by_core.entry(core).or_default().push(cpu);
    }
    let shared: Vec<_> = by_core.iter().filter(|(_, cpus)| cpus.len() > 1).collect();
    let idle = case.cpu.first_threads().len().saturating_sub(by_core.len());
    let (core, cpus) = shared.first()?;
    if idle == 0 {
        return None;
    }
    Some(
        Finding::new(
            "cpu-map-siblings",
            Topology,
            Level::Warning,
            30,
            format!("two workers each on {}, none on {}", count(shared.len(), "core"), count(idle, "other core")),
        )
        .seen(format!("processors {cpus:?} are threads of the core of processor {core}"))
        .means("two threads of a core do about 1.2 times the work of one: on two cores they would do twice")
        .by_hand(suggestion(case)),
    )
}

fn nodes(case: &Case<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    if case.cpu.nodes.len() < 2 {
        return found;
    }
    let map = mapped(case);
    let shown: Vec<String> =
        case.cpu.nodes.iter().map(|(node, cpus)| format!("node {node}: {}", self::shown(cpus))).collect();
    if map.is_empty() && case.config.is_some() {
        let mut finding = Finding::new(
            "cpu-map",
            Topology,
            Level::Warning,
            25,
            format!("{} workers float over {} memory nodes", case.workers(), case.cpu.nodes.len()),
        )
        .means("a worker's memory stays on the node where it was touched first: each move makes every access remote")
        .by_hand(suggestion(case));
        finding.evidence = shown;
        found.push(finding);
        return found;
    }
    let used: BTreeSet<u32> = map.values().flat_map(|cpus| cpus.iter()).filter_map(|c| case.cpu.node_of(*c)).collect();
    let wide: Vec<u32> = map
        .iter()
        .filter(|(_, cpus)| cpus.iter().filter_map(|c| case.cpu.node_of(*c)).collect::<BTreeSet<_>>().len() > 1)
        .map(|(thread, _)| *thread)
        .collect();
    if let Some(thread) = wide.first() {
        found.push(
            Finding::new(
                "cpu-map-nodes",
                Topology,
                Level::Warning,
                18,
                format!("{} may run on several memory nodes", count(wide.len(), "worker")),
            )
            .seen(format!("thread {thread}: {}", self::shown(map[thread])))
            .means("a worker that moves leaves its memory behind")
            .by_hand(suggestion(case)),
        );
    }
    let elsewhere = |node: Option<u32>| node.filter(|node| !used.is_empty() && !used.contains(node));
    for interface in &case.interfaces {
        if let Some(node) = elsewhere(interface.node) {
            found.push(
                Finding::new(
                    "cpu-map-nic",
                    Topology,
                    Level::Notice,
                    9,
                    format!("{} is on node {node}, no worker is", interface.name),
                )
                .seen(format!("/sys/class/net/{}/device/numa_node: {node}; workers on {used:?}", interface.name))
                .means("every packet crosses the link between sockets")
                .by_hand(format!(
                    "bind workers to node {node}: {}",
                    self::shown(&case.cpu.nodes.get(&node).cloned().unwrap_or_default())
                )),
            );
        }
    }
    for device in &case.devices {
        if let Some(node) = elsewhere(device.node) {
            found.push(
                Finding::new(
                    "cpu-map-device",
                    Topology,
                    Level::Notice,
                    9,
                    format!("the device {} is on node {node}, no worker is", device.address),
                )
                .seen(format!("/sys/bus/pci/devices/{}/numa_node: {node}; workers on {used:?}", device.address))
                .means("every operation crosses the link between sockets twice")
                .by_hand(format!("bind workers to node {node}, or use a device of theirs")),
            );
        }
    }
    found
}

/// Processors as ranges.
fn shown(cpus: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for &cpu in cpus {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => parts.push((cpu, cpu)),
        }
    }
    let part = |(low, high): &(u32, u32)| if low == high { low.to_string() } else { format!("{low}-{high}") };
    parts.iter().map(part).collect::<Vec<_>>().join(",")
}

/// The lines to write: one worker on each core, from the node of the first network card.
fn suggestion(case: &Case<'_>) -> String {
    let workers = case.workers() as usize;
    let home = case.interfaces.iter().find_map(|interface| interface.node);
    let mut cores = case.cpu.first_threads();
    cores.sort_by_key(|cpu| (case.cpu.node_of(*cpu) != home.or(Some(0)), *cpu));
    // Second threads only after every core has a worker.
    let seconds: Vec<u32> = case.cpu.online.iter().copied().filter(|cpu| !cores.contains(cpu)).collect();
    cores.extend(seconds);
    cores.truncate(workers);
    cores.sort_unstable();
    let list = shown(&cores);
    debug_assert_eq!(range(&list), cores);
    format!("in global: 'nbthread {0}' and 'cpu-map auto:1/1-{0} {list}'", cores.len())
}
