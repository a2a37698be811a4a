//! `penstock plan`: what a service level takes and costs, or what this machine can do.

use crate::{
    arguments::{Arguments, Opt, help, switch, value},
    measure, serve,
};
use penstock_planner::{
    Curve, Device, INPUTS, Inputs, Rates, Report, published,
    render::{
        csv, html, json,
        text::{self, View},
    },
};
use std::{
    ffi::OsString,
    io::{IsTerminal, Write},
    process::ExitCode,
};

/// The options of this subcommand.
pub fn options() -> Vec<Opt> {
    let mut options = vec![
        switch("--published", "plans with the published rates and design points of an eight-server rack"),
        value("--level", "TPS", "a service level; may be repeated [5K, 9K, 18K and 30K]"),
        value("--native", "RATES", "software one at a time: TPS of a core, or CORES:TPS,CORES:TPS,..."),
        value("--sw", "RATES", "software, eight lanes at a time"),
        value("--hw", "RATES", "a QuickAssist card with the cores that feed it"),
        value("--device-peak", "TPS", "what one card never exceeds [the highest rate of --hw]"),
        value("--study", "FILE", "the rates of a study, JSON"),
        value("--view", "NAME", "plan, rack, edge, cost, inputs; may be repeated [plan and inputs]"),
        switch(
            "--measure",
            "measures how many handshakes a second this machine can do, and what would change that; with --level, plans with the result",
        ),
        value("--crt", "FILE", "with --measure: the certificate, PEM [an RSA-2048 certificate that is made]"),
        value("--key", "FILE", "with --measure: its key, where it is not in the same file"),
        value("--tls", "1.2|1.3", "with --measure: the version of TLS [1.3]"),
        value("--seconds", "N", "with --measure: how long, about [3]"),
        value("--resumption", "SHARE", "with --measure: share of clients that would resume [60%]"),
        value("--cards", "N", "with --measure: number of QuickAssist cards to consider [1]"),
        value("--submit-us", "N", "with --measure: CPU to hand a handshake to a card, assumed [10]"),
        switch("--json", "everything as JSON"),
        switch("--csv", "one view as CSV [the plans]"),
        value("--html", "FILE", "writes a page with figures, '-' for standard output"),
        switch("--help", "shows this help"),
    ];
    for input in INPUTS {
        let unit = if input.unit.is_empty() { "N" } else { input.unit };
        let default = Inputs::default().value(input);
        let help = format!("{} [{default}, {}]", input.doc, input.origin.name());
        options.push(value(&format!("--{}", input.name), unit, &help));
    }
    options.push(value(
        "--attribution",
        "whole|cores",
        "which part of a server counts as cost: all of it, or the allocated cores [cores, NOT PUBLISHED]",
    ));
    options
}

/// Runs `penstock plan`.
pub fn run(arguments: &[OsString]) -> ExitCode {
    let options = options();
    let arguments = match Arguments::parse(&options, arguments) {
        Ok(arguments) => arguments,
        Err(why) => return serve::fail(&format!("plan: {why}; 'penstock plan --help' lists the options")),
    };
    if arguments.has("--help") {
        print!("Usage: penstock plan [options]\n\n{}", help(&options));
        return ExitCode::SUCCESS;
    }
    match plan(&arguments, &options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => serve::fail(&format!("plan: {why}")),
    }
}

fn plan(arguments: &Arguments, options: &[Opt]) -> Result<(), String> {
    if let Some(word) = arguments.words.first() {
        return Err(format!("'{word}' is not understood here; 'penstock plan --help' lists the options"));
    }
    let mut inputs = Inputs::default();
    for option in options {
        let name = option.name.trim_start_matches('-');
        if INPUTS.iter().any(|input| input.name == name) || name == "attribution" {
            for value in arguments.all(&option.name) {
                inputs.set(name, value).map_err(|e| e.to_string())?;
            }
        }
    }
    if arguments.has("--measure") {
        let Some(rates) = measure::run(arguments, &mut inputs)? else { return Ok(()) };
        let report = Report::new(&levels(arguments)?, inputs, rates).map_err(|e| e.to_string())?;
        return show(&report, arguments);
    }
    let levels = levels(arguments)?;
    let report = Report::new(&levels, inputs, rates(arguments)?).map_err(|e| e.to_string())?;
    show(&report, arguments)
}

/// The highest plausible level, TPS.
const LEVEL_MAX: f64 = 1e9;

/// Parses the levels: `5000`, `5K` or `0.5M`.
fn levels(arguments: &Arguments) -> Result<Vec<f64>, String> {
    let mut levels = Vec::new();
    for text in arguments.all("--level").flat_map(|list| list.split(',')) {
        let (digits, factor) = match text.strip_suffix(['k', 'K']) {
            Some(digits) => (digits, 1e3),
            None => text.strip_suffix('M').map_or((text, 1.0), |digits| (digits, 1e6)),
        };
        let level = digits.parse::<f64>().ok().map(|n| n * factor).filter(|n| *n > 0.0 && *n <= LEVEL_MAX);
        levels.push(
            level.ok_or_else(|| format!("--level cannot be '{text}': expected TPS above zero, at most {LEVEL_MAX}"))?,
        );
    }
    Ok(if levels.is_empty() { published::LEVELS.to_vec() } else { levels })
}

/// The rates: published, from a study, or given as options, which override those of a study.
fn rates(arguments: &Arguments) -> Result<Rates, String> {
    let typed = ["--native", "--sw", "--hw", "--device-peak"].iter().any(|name| arguments.has(name));
    if arguments.has("--published") {
        if typed || arguments.has("--study") {
            return Err("--published brings its own rates: leave the others out".into());
        }
        return Ok(published::rates());
    }
    let mut rates = match arguments.one("--study") {
        Some(file) => {
            let text = std::fs::read_to_string(file).map_err(|e| format!("cannot read the study {file}: {e}"))?;
            Rates::from_study(&text).map_err(|e| format!("{file}: {e}"))?
        }
        None if typed => Rates { source: "typed in".into(), ..Rates::default() },
        None => return Err("there are no rates: give --published, --study FILE, or --native, --sw, --hw".into()),
    };
    let curve = |name: &'static str| {
        let text = arguments.one(name);
        text.map(|text| Curve::parse(name.trim_start_matches('-'), text).map_err(|e| e.to_string())).transpose()
    };
    if let Some(curve) = curve("--native")? {
        rates.native = Some(curve);
    }
    if let Some(curve) = curve("--sw")? {
        rates.sw = Some(curve);
    }
    let peak = match arguments.one("--device-peak") {
        None => None,
        Some(text) => {
            let peak = text.parse::<f64>().ok();
            Some(peak.ok_or_else(|| format!("--device-peak cannot be '{text}': expected TPS above zero"))?)
        }
    };
    match (curve("--hw")?, rates.hw.take()) {
        (Some(curve), _) => rates.hw = Some(Device::new(curve, peak).map_err(|e| e.to_string())?),
        (None, Some(device)) => {
            let known = peak.or((!device.peak_is_highest_measured).then_some(device.peak));
            rates.hw = Some(Device::new(device.curve, known).map_err(|e| e.to_string())?);
        }
        (None, None) if peak.is_some() => return Err("--device-peak needs the rates of --hw or of a study".into()),
        (None, None) => {}
    }
    Ok(rates)
}

fn show(report: &Report, arguments: &Arguments) -> Result<(), String> {
    let mut views = Vec::new();
    for name in arguments.all("--view").flat_map(|list| list.split(',')) {
        match View::ALL.into_iter().find(|view| view.name() == name) {
            Some(view) => views.push(view),
            None if name == "all" => views.extend(View::ALL),
            None => return Err(format!("unknown view '{name}': choose plan, rack, edge, cost, inputs or all")),
        }
    }
    if views.is_empty() {
        views = vec![View::Plan, View::Inputs];
    }
    if let Some(file) = arguments.one("--html").filter(|file| *file != "-") {
        std::fs::write(file, html::render(report)).map_err(|e| format!("cannot write {file}: {e}"))?;
        return Ok(());
    }
    let out = if arguments.has("--json") {
        format!("{:#}\n", json::render(report))
    } else if arguments.has("--csv") {
        match views.as_slice() {
            [view] => csv::render(report, *view),
            _ if arguments.has("--view") => return Err("--csv writes one table: one --view".into()),
            _ => csv::render(report, View::Plan),
        }
    } else if arguments.has("--html") {
        html::render(report)
    } else {
        text::render(report, &views, on_terminal())
    };
    // A reader that has seen enough closes the pipe.
    let _ = std::io::stdout().write_all(out.as_bytes());
    Ok(())
}

/// Whether to use colours on standard output.
pub fn on_terminal() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}
