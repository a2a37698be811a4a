//! Why not to believe a result, in words.

use super::machine::Moment;
use super::{Arrivals, Doubt, LoadReport, Mode, Second};

/// A thread that ran, or waited for a core, for this share of the time had no time left for more load.
pub(crate) const SATURATED: f64 = 0.9;
/// With fewer units or seconds no spread is given.
const UNITS_MIN: u64 = 500;
const SECONDS_MIN: f64 = 3.0;
/// Steal time beyond this share is noticeable.
const STOLEN_MAX: f64 = 0.01;
/// Seconds; a clock that is only being slewed moves by less.
const CLOCK_MAX: f64 = 0.01;
/// Spread of the seconds' rates, as standard deviation over mean.
const SPREAD_MAX: f64 = 0.15;
/// A delay of our own that would show among latencies, µs.
const OWN_DELAY_MAX_US: u64 = 1000;

/// Everything that speaks against the report.
pub(crate) fn of(report: &LoadReport, began: &Moment, ended: &Moment) -> Vec<Doubt> {
    let mut doubts = of_counts(report);
    let stolen = ended.stolen_since(began);
    if stolen > STOLEN_MAX {
        doubts.push(doubt("stolen", format!("this machine's host gave {:.1} % of its time to others", stolen * 100.0)));
    }
    let moved = ended.clock_moved_since(began);
    if moved.abs() > CLOCK_MAX {
        doubts.push(doubt("clock-moved", format!("the wall clock was moved by {:.0} ms meanwhile", moved * 1e3)));
    }
    doubts
}

/// What the counts themselves say; called again on the merged reports of agents.
pub(crate) fn of_counts(report: &LoadReport) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    let units = report.plan.mode.units();
    let mut say = |kind: &str, says: String| doubts.push(doubt(kind, says));
    if report.client.bottleneck {
        say(
            "client-saturated",
            format!(
                "the client, not the server, may have set the rate: its busiest thread ran or waited for a core {:.0} % of \
                 the time (give it more threads and cores)",
                report.client.busiest_thread * 100.0
            ),
        );
    }
    let own = report.latency.own_delay.percentile_us(99.0);
    if own > OWN_DELAY_MAX_US {
        say(
            "client-late",
            format!("the client itself was up to {:.1} ms late for 1 % of the {units}", own as f64 / 1e3),
        );
    }
    if !report.plan.resume && report.totals.resumed_handshakes > 0 {
        say(
            "resumed",
            format!("{} handshakes resumed a session although none should", report.totals.resumed_handshakes),
        );
    }
    if report.plan.resume && report.totals.full_handshakes > report.plan.connections as u64 {
        say(
            "not-resumed",
            format!(
                "{} handshakes were full although all but the first of each of {} connections should resume a session",
                report.totals.full_handshakes, report.plan.connections
            ),
        );
    }
    if report.totals.retried_handshakes > 0 {
        say(
            "retried",
            format!(
                "{} handshakes took a round more, as the server wanted another group",
                report.totals.retried_handshakes
            ),
        );
    }
    if report.failed() > 0 {
        say("errors", format!("{} {units} failed", report.failed()));
    }
    let refused: u64 =
        report.statuses.iter().filter(|(status, _)| !status.starts_with(['2', '3'])).map(|(_, n)| n).sum();
    if refused > 0 {
        say("statuses", format!("{refused} responses were neither 2xx nor 3xx"));
    }
    if report.totals.never_begun > 0 {
        say(
            "behind",
            format!(
                "{} {units} fell due and never began, as every connection was busy: the server (or the number of \
                 connections) does not carry this rate; percentiles count them with the time they had waited",
                report.totals.never_begun
            ),
        );
    }
    if let Arrivals::Open(rate) = report.plan.arrivals
        && report.totals.never_begun == 0
        && report.plan.mode != Mode::Idle
        && report.plan.count.is_none()
        && report.rate() < rate * 0.98
        && report.seconds >= 1.0
    {
        say("below-rate", format!("{:.1} {units}/s were finished of the {rate} asked for", report.rate()));
    }
    if report.totals.done < UNITS_MIN || report.seconds < SECONDS_MIN {
        say("too-short", format!("{} {units} in {:.1} s tell little: run longer", report.totals.done, report.seconds));
    }
    let spread = spread(&report.series);
    if spread > SPREAD_MAX && report.plan.mode != Mode::Idle {
        say("unsteady", format!("from second to second the rate varied by {:.0} % of its mean", spread * 100.0));
    }
    if report.server.is_some_and(|cost| cost.incomplete) {
        say("cost-incomplete", "a process of the server's ended, and its CPU time with it: the cost is too low".into());
    }
    if report.partial {
        say("partial", format!("the run was cut short, or not all took part: {:.1} s were measured", report.seconds));
    }
    doubts
}

fn doubt(kind: &str, says: String) -> Doubt {
    Doubt { kind: kind.into(), says }
}

/// Standard deviation over mean of the rates of whole seconds; 0 where there are fewer than three.
fn spread(series: &[Second]) -> f64 {
    let rates: Vec<f64> = series.iter().filter(|s| s.seconds > 0.9).map(|s| s.done as f64 / s.seconds).collect();
    if rates.len() < 3 {
        return 0.0;
    }
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / (rates.len() - 1) as f64;
    if mean > 0.0 { variance.sqrt() / mean } else { 0.0 }
}
