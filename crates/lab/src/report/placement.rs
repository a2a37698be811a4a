//! The drawing of who ran where: every processor of the machine, coloured by what ran on it.

use crate::study::Outcome;
use std::fmt::Write;

/// One processor, and the distances between them.
const CELL: f64 = 34.0;
const GAP: f64 = 6.0;
/// Cores in a row.
const ROW: usize = 24;

/// Which part runs on a processor: the place in the legend.
fn part(outcome: &Outcome, cpu: u32) -> (usize, &'static str) {
    let server = outcome.placement.steps.last().is_some_and(|step| step.cpus.contains(&cpu));
    let clients = outcome.placement.clients.contains(&cpu);
    let origin = outcome.placement.origin.contains(&cpu);
    match (server, clients, origin) {
        (true, false, false) => (0, "server under test"),
        (false, true, false) => (1, "clients"),
        (false, false, true) => (2, "backend servers"),
        (false, true, true) => (3, "clients and backend servers"),
        (true, _, _) => (4, "server and others"),
        (false, false, false) => (5, "no process of ours"),
    }
}

/// The drawing with its legend.
pub(super) fn drawing(outcome: &Outcome) -> String {
    let cores = &outcome.placement.cores;
    let most = cores.iter().map(Vec::len).max().unwrap_or(1) as f64;
    let columns = cores.len().clamp(1, ROW);
    let rows = cores.len().div_ceil(ROW).max(1);
    let (width, height) = (columns as f64 * (CELL + GAP) + GAP, rows as f64 * (most * CELL + 3.0 * GAP) + GAP);
    // Small machines are not blown up to the width of the page.
    let mut out = format!(
        "<svg class=\"places\" viewBox=\"0 0 {width} {height}\" style=\"max-width:{:.0}px\" role=\"img\" aria-label=\"Who ran where\">",
        width * 1.6
    );
    let mut seen: Vec<(usize, &str)> = Vec::new();
    for (at, threads) in cores.iter().enumerate() {
        let (x, y) = (GAP + (at % ROW) as f64 * (CELL + GAP), GAP + (at / ROW) as f64 * (most * CELL + 3.0 * GAP));
        // Writing to a String does not fail.
        let _ = write!(
            out,
            "<rect class=\"core\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"5\"/>",
            x - 2.0,
            y - 2.0,
            CELL + 4.0,
            threads.len() as f64 * CELL + 4.0
        );
        for (place, cpu) in threads.iter().enumerate() {
            let (colour, name) = part(outcome, *cpu);
            if !seen.contains(&(colour, name)) {
                seen.push((colour, name));
            }
            let top = y + place as f64 * CELL;
            let _ = write!(
                out,
                "<rect class=\"p{colour}\" x=\"{x:.1}\" y=\"{top:.1}\" width=\"{CELL}\" height=\"{:.1}\" rx=\"4\"><title>processor {cpu}: {name}</title></rect>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{cpu}</text>",
                CELL - 2.0,
                x + CELL / 2.0,
                top + CELL / 2.0 + 4.0
            );
        }
    }
    out.push_str("</svg><p class=\"legend\">");
    seen.sort_unstable();
    for (colour, name) in seen {
        let _ = write!(out, "<span><i class=\"b{colour}\"></i>{name}</span>");
    }
    out.push_str("</p>");
    out
}

/// The placement in words, line by line.
pub(super) fn words(outcome: &Outcome) -> Vec<String> {
    let list = |cpus: &[u32]| cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let placement = &outcome.placement;
    let mut lines: Vec<String> = placement
        .steps
        .iter()
        .map(|step| format!("server, {}: processors {}", step.name(), list(&step.cpus)))
        .collect();
    match &placement.agents[..] {
        [] => lines.push(format!("clients: processors {}", list(&placement.clients))),
        agents => lines.push(format!("clients: {}", agents.join(", "))),
    }
    if !placement.origin.is_empty() {
        lines.push(format!("backend servers: processors {}", list(&placement.origin)));
    }
    lines
}
