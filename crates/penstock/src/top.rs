//! `penstock top`: what a running process is doing, updated every second.

use crate::{
    arguments::{Arguments, Opt, help, switch, value},
    serve,
};
use penstock_top::{Address, Choices, Looks, Sample, Screen, Trail, frame};
use std::{
    ffi::OsString,
    io::Write,
    process::ExitCode,
    time::{Duration, Instant},
};

/// The address at which quickstart serves its metrics.
const DEFAULT: &str = "http://127.0.0.1:8404/metrics";

/// The options of this subcommand.
pub fn options() -> Vec<Opt> {
    vec![
        switch("--once", "prints the view of one interval and exits, for scripts"),
        value("--interval", "SECONDS", "time between two views [1]"),
        value("--width", "COLUMNS", "with --once: the width at which lines are cut [160]"),
        switch("--help", "shows this help"),
    ]
}

/// Runs `penstock top`.
pub fn run(arguments: &[OsString]) -> ExitCode {
    let options = options();
    let arguments = match Arguments::parse(&options, arguments) {
        Ok(arguments) => arguments,
        Err(why) => return serve::fail(&format!("top: {why}; 'penstock top --help' lists the options")),
    };
    if arguments.has("--help") {
        print!(
            "Usage: penstock top [URL] [options]\n\n\
             URL is where a frontend has 'http-request use-service prometheus-exporter' [{DEFAULT}].\n\
             Keys: q quits, the space bar pauses, ? lists the others: sort, filter, one proxy, servers, engine, scroll.\n\n{}",
            help(&options)
        );
        return ExitCode::SUCCESS;
    }
    match top(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => serve::fail(&format!("top: {why}")),
    }
}

fn top(arguments: &Arguments) -> Result<(), String> {
    let address = match &arguments.words[..] {
        [] => Address::parse(DEFAULT)?,
        [one] => Address::parse(one)?,
        [_, second, ..] => return Err(format!("'{second}' is one address too many")),
    };
    let seconds = |text: &str| text.parse().ok().filter(|n| (0.1..=3600.0).contains(n));
    let interval = arguments.one("--interval").unwrap_or("1");
    let interval = seconds(interval).ok_or_else(|| format!("--interval {interval} is not 0.1 to 3600 seconds"))?;
    let interval = Duration::from_secs_f64(interval);
    let first = read(&address)?;
    if !arguments.has("--once") {
        return watch(&address, first, interval);
    }
    let width = arguments.one("--width").unwrap_or("160");
    let width = width.parse().map_err(|_| format!("--width {width} is not a number of columns"))?;
    std::thread::sleep(interval);
    let second = read(&address)?;
    let looks = Looks { width, height: 0, styled: false };
    let between = (second.1 - first.1).as_secs_f64();
    let (choices, trail) = (Choices::default(), Trail::default());
    let mut out = std::io::stdout().lock();
    for line in frame(&address.to_string(), (&first.0, &second.0), between, looks, &choices, &trail) {
        // A reader that has seen enough closes the pipe.
        if writeln!(out, "{line}").is_err() {
            break;
        }
    }
    Ok(())
}

fn read(address: &Address) -> Result<(Sample, Instant), String> {
    let sample = Sample::parse(&address.fetch()?);
    match sample.is_empty() {
        true => Err(format!("{address} has no metrics of a load balancer")),
        false => Ok((sample, Instant::now())),
    }
}

/// Draws until the user quits. If the process does not respond for a while, or was replaced, this waits for it.
fn watch(address: &Address, first: (Sample, Instant), interval: Duration) -> Result<(), String> {
    let screen = Screen::open()?;
    let (mut before, mut now) = (first.clone(), first);
    let mut title = address.to_string();
    let (mut choices, mut trail) = (Choices::default(), Trail::default());
    loop {
        let next = Instant::now() + interval;
        loop {
            let (width, height) = screen.size();
            let looks = Looks { width, height, styled: true };
            let between = (now.1 - before.1).as_secs_f64();
            screen.draw(&frame(&title, (&before.0, &now.0), between, looks, &choices, &trail));
            let left = next.saturating_duration_since(Instant::now());
            let keys = screen.keys(if choices.paused { interval } else { left });
            if !keys.iter().all(|key| choices.press(*key)) {
                return Ok(());
            }
            if keys.is_empty() && !choices.paused {
                break;
            }
        }
        match read(address) {
            Ok(sample) => {
                before = std::mem::replace(&mut now, sample);
                trail.push(&before.0, &now.0, (now.1 - before.1).as_secs_f64());
                title = address.to_string();
            }
            Err(why) => title = why,
        }
    }
}
