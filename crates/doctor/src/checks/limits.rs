//! Descriptors against maxconn.

use super::Case;
use crate::{Change, Finding, Level, facts::service_unit, finding::Area::Limits};

/// Descriptors beyond two for each connection: what the process keeps for itself, as its start counts them.
const RESERVE: u64 = 64;
const PER_WORKER: u64 = 4;

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    let Some((soft, hard)) = case.limits.nofile else { return found };
    let Some(config) = case.config else { return found };
    let listeners: usize = config.proxies.iter().flat_map(|p| &p.binds).map(|b| b.addresses.len()).sum();
    let checks = config.proxies.iter().flat_map(|p| &p.servers).filter(|s| s.settings.check.enabled).count();
    let fixed = RESERVE + (PER_WORKER + listeners as u64) * u64::from(case.workers()) + checks as u64;
    let seen = format!("{}: {soft} soft, {hard} hard", case.limits.source);
    let Some(maxconn) = case.maxconn() else {
        let most = config.global.fd_hard_limit.map_or(soft, |most| hard.min(most.into()));
        let fits = most.saturating_sub(fixed) / 2;
        if fits < 10_000 {
            let finding = Finding::new(
                "nofile",
                Limits,
                Level::Warning,
                27,
                format!("without 'maxconn', {most} descriptors allow {fits} connections"),
            )
            .seen(seen)
            .means("further clients wait in the listening queue")
            .by_hand("write 'maxconn' in global: the limit is raised for it");
            found.push(service(case, finding, 200_000));
        } else {
            found.push(
                Finding::good("nofile", Limits, format!("{most} descriptors allow {fits} connections")).seen(seen),
            );
        }
        return found;
    };
    let needed = config.global.ulimit_n.unwrap_or(maxconn * 2 + fixed);
    let most = case.host.text("/proc/sys/fs/nr_open").and_then(|n| n.parse().ok()).unwrap_or(u64::MAX);
    let all = case.host.text("/proc/sys/fs/file-max").and_then(|n| n.parse().ok()).unwrap_or(u64::MAX);
    if needed > most || needed > all {
        let (name, limit) = if needed > most { ("fs.nr_open", most) } else { ("fs.file-max", all) };
        found.push(
            Finding::new(
                "file-max",
                Limits,
                Level::Critical,
                62,
                format!("maxconn {maxconn} needs {needed} descriptors, the kernel gives {limit}"),
            )
            .seen(format!("{name} = {limit}"))
            .means("the configuration does not start (strict-limits)")
            .mend(Change::Sysctl { name: name.into(), value: needed.next_power_of_two().to_string() }),
        );
    }
    if needed <= soft {
        found.push(
            Finding::good("nofile", Limits, format!("{soft} descriptors cover maxconn {maxconn} ({needed})"))
                .seen(seen),
        );
    } else if needed <= hard {
        found.push(
            Finding::good(
                "nofile",
                Limits,
                format!("maxconn {maxconn} needs {needed} descriptors: the process raises its limit itself"),
            )
            .seen(seen),
        );
    } else {
        // Root may raise the hard limit too; a service that starts as another user may not.
        let level = if case.limits.is_root { Level::Notice } else { Level::Critical };
        let consequence = if case.limits.is_root {
            "started by root it raises the limit itself; started by another user it does not start (strict-limits)"
        } else {
            "the configuration does not start (strict-limits), or takes fewer connections without"
        };
        let finding = Finding::new(
            "nofile",
            Limits,
            level,
            61,
            format!("maxconn {maxconn} needs {needed} descriptors, above the hard limit of {hard}"),
        )
        .seen(seen)
        .means(consequence);
        found.push(service(case, finding, needed));
    }
    found
}

/// The limit in the service's unit, where there is one.
fn service(case: &Case<'_>, finding: Finding, descriptors: u64) -> Finding {
    match service_unit(case.host) {
        Some((unit, _)) => {
            finding.mend(Change::Service { unit: unit.into(), setting: format!("LimitNOFILE={descriptors}") })
        }
        None => finding.by_hand(format!(
            "LimitNOFILE={descriptors} in the service's unit, or 'ulimit -n {descriptors}' before it"
        )),
    }
}
