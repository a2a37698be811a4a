//! What was measured and what would be, for a terminal and for scripts.

use crate::whatif::{Answer, Basis, Measured, Operation, Question, Timing};
use penstock_figures::number::whole;
use serde_json::{Value, json};
use std::fmt::Write;

const BOLD: &str = "\x1b[1m";
const SOFT: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

fn spread(timing: &Timing) -> String {
    format!("{:.1} ({:.1}-{:.1})", timing.median, timing.low, timing.high)
}

/// A page.
pub fn text(measured: &Measured, answers: &[Answer], question: &Question, colour: bool) -> String {
    let ink = |code: &'static str| if colour { code } else { "" };
    let m = measured;
    let mut out = String::new();
    let plural = if m.processors == 1 { "" } else { "s" };
    // Writing to a String does not fail.
    let _ = writeln!(out, "{}{}{}, {} processor{plural}", ink(BOLD), m.machine, ink(PLAIN), m.processors);
    let _ = writeln!(out, "{}; {}; server CPU over loopback: accept, handshake, close\n", m.certificate, m.protocol);
    if let Some(now) = answers.first() {
        let limit = if question.max_utilisation < 1.0 {
            format!(" at {:.0} % of them", question.max_utilisation * 100.0)
        } else {
            String::new()
        };
        let lanes = answers.iter().find(|a| a.id == "ifma" && a.basis == Basis::Computed);
        let lanes =
            lanes.map(|a| format!(", and {} eight at a time (engine sw, which 'auto' chooses here)", whole(a.whole)));
        let _ = writeln!(
            out,
            "{}{} handshakes a second{} is what this machine can do{limit} one at a time{}.\n",
            ink(BOLD),
            whole(now.whole),
            ink(PLAIN),
            lanes.unwrap_or_default()
        );
    }
    let _ = writeln!(
        out,
        "{}{:<46}{:>9}{:>12}{:>12}{:>8}{}",
        ink(SOFT),
        "",
        "µs each",
        "one CPU/s",
        "all/s",
        "gain",
        ink(PLAIN)
    );
    let most = answers.iter().map(|a| a.gain).fold(1.0, f64::max);
    for answer in answers {
        let width = (answer.gain / most * 24.0).round().max(1.0) as usize;
        let _ = writeln!(
            out,
            "{:<46}{:>9.1}{:>12}{:>12}{:>7.2}x  {}",
            answer.what,
            answer.us,
            whole(answer.per_processor),
            whole(answer.whole),
            answer.gain,
            "█".repeat(width)
        );
        let note = if answer.note.is_empty() { String::new() } else { format!("; {}", answer.note) };
        let _ = writeln!(out, "  {}{}{note}{}", ink(SOFT), answer.basis.name(), ink(PLAIN));
    }
    let _ = writeln!(
        out,
        "\n{}{:<34}{:>26}{:>26}{:>26}{}",
        ink(SOFT),
        "µs, median (spread)",
        "native",
        "each of 8",
        "each of 4",
        ink(PLAIN)
    );
    for operation in [&m.sign, &m.agree] {
        let (eight, four) = match &operation.lanes {
            Some((eight, four)) => (spread(eight), spread(four)),
            None => ("not on this processor".into(), String::new()),
        };
        let _ = writeln!(out, "{:<34}{:>26}{eight:>26}{four:>26}", operation.name, spread(&operation.native));
    }
    for (name, timing) in [
        ("full handshake", &m.full),
        ("the same, every processor busy", &m.loaded),
        ("full handshake, ECDSA P-256", &m.ecdsa),
        ("resumed handshake", &m.resumed),
    ] {
        let _ = writeln!(out, "{name:<34}{:>26}", spread(timing));
    }
    let _ = writeln!(
        out,
        "\nRequests, logging and servers come on top. {} rounds each, in turn; trust ratios before times.",
        m.full.rounds
    );
    out
}

/// For scripts; its `modes` is a study that `--study` reads.
pub fn json(measured: &Measured, answers: &[Answer]) -> Value {
    let m = measured;
    let timing = |t: &Timing| json!({ "us": t.median, "low": t.low, "high": t.high, "rounds": t.rounds });
    let operation = |o: &Operation| {
        json!({
            "name": o.name,
            "native": timing(&o.native),
            "lanes8": o.lanes.as_ref().map(|(eight, _)| timing(eight)),
            "lanes4": o.lanes.as_ref().map(|(_, four)| timing(four)),
        })
    };
    let shown: Vec<Value> = answers
        .iter()
        .map(|a| {
            json!({ "id": a.id, "what": a.what, "us": a.us, "per_processor": a.per_processor, "whole": a.whole, "gain": a.gain,
                "basis": a.basis.name(), "note": a.note })
        })
        .collect();
    let points = |answer: &Answer| {
        // One processor that is alone, and all of them.
        let mut points = vec![json!({ "cores": 1, "tps": answer.per_processor })];
        if m.processors > 1 && answer.whole > answer.per_processor {
            points.push(json!({ "cores": m.processors, "tps": answer.whole }));
        }
        json!({ "points": points, "basis": answer.basis.name() })
    };
    let mut modes = serde_json::Map::new();
    for (id, mode) in [("now", "native"), ("ifma", "sw")] {
        if let Some(answer) = answers.iter().find(|a| a.id == id) {
            modes.insert(mode.into(), points(answer));
        }
    }
    json!({
        "source": format!("measured on {}, {} processors; {}; {}", m.machine, m.processors, m.certificate, m.protocol),
        "modes": modes,
        "machine": m.machine, "processors": m.processors, "certificate": m.certificate, "protocol": m.protocol,
        "full": timing(&m.full), "loaded": timing(&m.loaded), "resumed": timing(&m.resumed), "ecdsa": timing(&m.ecdsa),
        "sign": operation(&m.sign), "agree": operation(&m.agree),
        "answers": shown,
    })
}
