//! One report of several: counts are added, histograms bucket by bucket.

use super::control::{Done, Outcome};
use crate::cost::Cost;
use crate::load::{AgentShare, Doubt, LoadPlan, LoadReport, Second, doubts_of_counts};

/// An agent that began later than this after the others did not take part in the whole.
const LATE_MAX: f64 = 0.1;

/// What this machine cannot see of another.
const OF_MACHINES: [&str; 2] = ["stolen", "clock-moved"];

pub(super) fn merge(plan: &LoadPlan, outcomes: Vec<Outcome>, server: Option<Cost>, cut_short: bool) -> LoadReport {
    let mut merged = LoadReport::empty(plan.clone());
    let mut doubts = Vec::new();
    for Outcome { name, share } in outcomes {
        let share = match share {
            Ok(Done { report, late_by }) => {
                let trouble = (late_by > LATE_MAX).then(|| format!("began {late_by:.1} s late"));
                for doubt in report.doubts.iter().filter(|doubt| OF_MACHINES.contains(&doubt.kind.as_str())) {
                    doubts.push(Doubt { kind: doubt.kind.clone(), says: format!("agent {name}: {}", doubt.says) });
                }
                let done = Some(report.totals.done);
                add_report(&mut merged, *report);
                AgentShare { name, done, late_by, trouble }
            }
            Err(why) => {
                merged.partial = true;
                AgentShare { name, done: None, late_by: 0.0, trouble: Some(why) }
            }
        };
        if let Some(why) = &share.trouble {
            let missing = if share.done.is_none() { "; its share is missing from this result" } else { "" };
            doubts.push(Doubt { kind: "agent".into(), says: format!("agent {}: {why}{missing}", share.name) });
        }
        merged.agents.push(share);
    }
    merged.partial |= cut_short;
    merged.server = server;
    merged.client.cpu_us_per_unit = merged.client.cpu_seconds * 1e6 / merged.totals.done.max(1) as f64;
    merged.doubts = doubts_of_counts(&merged);
    merged.doubts.extend(doubts);
    merged
}

fn add_report(sum: &mut LoadReport, one: LoadReport) {
    sum.began_at = if sum.began_at == 0.0 { one.began_at } else { sum.began_at.min(one.began_at) };
    sum.seconds = sum.seconds.max(one.seconds);
    sum.partial |= one.partial;
    sum.totals.add(&one.totals);
    sum.held += one.held;
    for (class, n) in one.statuses {
        *sum.statuses.entry(class).or_default() += n;
    }
    for (why, n) in one.errors {
        *sum.errors.entry(why).or_default() += n;
    }
    for (agreed, n) in one.negotiated {
        match sum.negotiated.iter_mut().find(|(known, _)| *known == agreed) {
            Some((_, total)) => *total += n,
            None => sum.negotiated.push((agreed, n)),
        }
    }
    sum.latency.merge(&one.latency);
    for (number, second) in one.series.iter().enumerate() {
        match sum.series.get_mut(number) {
            Some(total) => add(total, second),
            None => sum.series.push(second.clone()),
        }
    }
    sum.client.cpu_seconds += one.client.cpu_seconds;
    sum.client.busiest_thread = sum.client.busiest_thread.max(one.client.busiest_thread);
    sum.client.bottleneck |= one.client.bottleneck;
}

/// Adds what another agent did in the same second.
pub(super) fn add(sum: &mut Second, one: &Second) {
    sum.at = sum.at.max(one.at);
    sum.seconds = sum.seconds.max(one.seconds);
    sum.done += one.done;
    sum.failed += one.failed;
    sum.body_bytes += one.body_bytes;
    sum.open += one.open;
}
