//! `penstock doctor`: what this machine lacks for a configuration, and how to fix it.

use crate::{
    arguments::{Arguments, Opt, help, switch, value},
    configuration,
    flags::Flags,
    plan::on_terminal,
    serve,
};
use penstock_config::Config;
use penstock_doctor::{Action, Changes, Devices, Host, How, Level, Subject, examine, json, text};
use std::{
    ffi::OsString,
    io::{Read, Write},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::{SystemTime, UNIX_EPOCH},
};

/// Something costs speed or safety.
const WARNINGS: u8 = 3;
/// Something fails, or soon will.
const CRITICAL: u8 = 4;
/// The file in which changes are recorded, on the host on which they are made.
const JOURNAL: &str = "/var/lib/penstock/doctor.json";

/// The options of this subcommand.
pub fn options() -> Vec<Opt> {
    vec![
        value("-f", "FILE|DIR", "the configuration to be served; may be repeated"),
        switch("--json", "findings as JSON"),
        switch("--fix", "shows every command and file of the fixes, and why the rest needs none"),
        switch("--apply", "makes the changes, and writes down what was there before"),
        switch("--undo", "puts back what was there before the first --apply"),
        switch("--force", "with --undo: also what someone else has changed since"),
        value("--only", "ID", "this finding only; may be repeated"),
        value(
            "--metrics",
            "URL|FILE",
            "Prometheus metrics of the running process: http://..., a file, '-' for standard input",
        ),
        value("--host", "FILE|DIR", "examines a recording, or the host below a directory, instead of this one"),
        switch("--record", "writes a recording of what was read of this host, for --host"),
        switch("--help", "shows this help"),
    ]
}

fn usage() -> String {
    format!(
        "Usage: penstock doctor [-f FILE] [options]\n       penstock doctor qat [DEVICE] status|up|down|restart|reset [--apply] [--json]\n\n{}\n\
         Exit status: 0 nothing to fix, {WARNINGS} warnings, {CRITICAL} critical findings, 1 the examination itself failed.\n",
        help(&options())
    )
}

/// Runs `penstock doctor`.
pub fn run(arguments: &[OsString]) -> ExitCode {
    let done = Arguments::parse(&options(), arguments).and_then(|arguments| {
        if arguments.has("--help") {
            print(&usage());
            return Ok(ExitCode::SUCCESS);
        }
        match arguments.words.first().map(String::as_str) {
            None => doctor(&arguments),
            Some("qat") => qat(&arguments).map(|()| ExitCode::SUCCESS),
            Some(word) => Err(format!("'{word}' is not understood; 'penstock doctor --help' lists what is")),
        }
    });
    done.unwrap_or_else(|why| serve::fail(&format!("doctor: {why}")))
}

/// Prints text; a reader that has seen enough closes the pipe.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// The host to examine, and the directory in which changes would be made; a recording has none.
fn host(arguments: &Arguments) -> Result<(Host, Option<PathBuf>), String> {
    let Some(place) = arguments.one("--host") else { return Ok((Host::at("/"), Some("/".into()))) };
    if Path::new(place).is_dir() {
        return Ok((Host::at(place), Some(place.into())));
    }
    let text = std::fs::read_to_string(place).map_err(|e| format!("cannot read the host {place}: {e}"))?;
    Ok((Host::recorded(&text).map_err(|why| format!("{place}: {why}"))?, None))
}

fn doctor(arguments: &Arguments) -> Result<ExitCode, String> {
    let (host, root) = host(arguments)?;
    let changes = root.map(|root| Changes::new(root, JOURNAL));
    let nowhere = || "a recording cannot be changed: leave --host out".to_owned();
    if arguments.has("--undo") {
        let told = changes.ok_or_else(nowhere)?.undo(arguments.has("--force"))?;
        print(&(told.join("\n") + "\n"));
        return Ok(ExitCode::SUCCESS);
    }
    let config = config(arguments)?;
    let resumed = arguments.one("--metrics").map(metrics).transpose()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    let read = |path: &str| std::fs::read(path);
    let mut findings = examine(&Subject { host: &host, config: config.as_ref(), now, read: &read, resumed });
    if arguments.has("--record") {
        print(&host.record());
        return Ok(ExitCode::SUCCESS);
    }
    let wanted: Vec<&str> = arguments.all("--only").collect();
    if let Some(unknown) = wanted.iter().find(|id| !findings.iter().any(|f| f.id == **id)) {
        return Err(format!("there is no finding '{unknown}' here"));
    }
    findings.retain(|f| wanted.is_empty() || wanted.contains(&f.id));
    if arguments.has("--apply") {
        let changes = changes.ok_or_else(nowhere)?;
        let steps = changes.steps(&findings);
        if steps.is_empty() {
            print("There is nothing that can be changed from here.\n");
            return Ok(ExitCode::SUCCESS);
        }
        changes.apply(&steps)?;
        for step in &steps {
            let text = if step.is_value { step.text.clone() } else { "written".into() };
            print(&format!("{}: {text}\n", step.path));
        }
        if steps.iter().any(|step| step.path.ends_with(".service.d/90-penstock.conf")) {
            print("Then: systemctl daemon-reload, and restart the service.\n");
        }
        print(&format!("'penstock doctor --undo' puts back what was there before ({JOURNAL}).\n"));
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.has("--json") {
        print(&format!("{:#}\n", json(&findings)));
    } else {
        if config.is_none() {
            print("No configuration was given (-f): what depends on one is left out.\n\n");
        }
        print(&text(&findings, arguments.has("--fix"), on_terminal()));
        if arguments.has("--fix") {
            // A recording has no directory; what would be written is the same.
            let changes = changes.unwrap_or_else(|| Changes::new("/nonexistent", JOURNAL));
            for step in changes.steps(&findings).iter().filter(|step| !step.is_value) {
                print(&format!("\n{}\n    {}\n", step.path, step.text.trim_end().replace('\n', "\n    ")));
            }
            print("\nNothing was changed: --apply makes these changes, and writes down what was there before.\n");
        }
    }
    Ok(match findings.first().map(|f| f.level) {
        Some(Level::Critical) => ExitCode::from(CRITICAL),
        Some(Level::Warning) => ExitCode::from(WARNINGS),
        _ => ExitCode::SUCCESS,
    })
}

/// The named configuration, as far as it can be parsed.
fn config(arguments: &Arguments) -> Result<Option<Config>, String> {
    let files: Vec<PathBuf> = arguments.all("-f").map(PathBuf::from).collect();
    if files.is_empty() {
        return Ok(None);
    }
    let flags = Flags { files: files.clone(), ..Flags::default() };
    let (config, diagnostics) = configuration::load(configuration::sources(&files)?, &flags);
    if diagnostics.has_errors() {
        configuration::accepted(&config, &diagnostics, &flags);
        return Err("the configuration has errors: correct them first".into());
    }
    Ok(Some(config))
}

/// The metrics of ten thousand servers are smaller than this.
const METRICS_MAX: u64 = 64 << 20;

/// The number of TLS sessions, and of those that were resumed, from the Prometheus metrics of penstock or HAProxy.
fn metrics(file: &str) -> Result<(u64, u64), String> {
    let mut text = String::new();
    let read = match file {
        "-" => std::io::stdin().take(METRICS_MAX).read_to_string(&mut text),
        address if address.starts_with("http://") => {
            text = penstock_top::Address::parse(address)?.fetch()?;
            Ok(text.len())
        }
        file => std::fs::File::open(file).and_then(|f| f.take(METRICS_MAX).read_to_string(&mut text)),
    };
    read.map_err(|e| format!("cannot read the metrics {file}: {e}"))?;
    let number = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|v| v.trim().parse::<f64>().ok()).map(|v| v as u64)
    };
    let sessions = number("haproxy_process_ssl_cache_lookups_total");
    let fresh = number("haproxy_process_ssl_cache_misses_total");
    let (Some(sessions), Some(fresh)) = (sessions, fresh) else {
        return Err(format!("{file} has no haproxy_process_ssl_cache_lookups_total and _misses_total"));
    };
    Ok((sessions, sessions.saturating_sub(fresh)))
}

/// What may follow `doctor`.
pub const WORDS: [&str; 6] = ["qat", "qat down", "qat reset", "qat restart", "qat status", "qat up"];

/// `doctor qat [DEVICE] ACTION`.
fn qat(arguments: &Arguments) -> Result<(), String> {
    let (device, action) = match &arguments.words[1..] {
        [] => (None, "status"),
        [one] if Action::parse(one).is_some() => (None, one.as_str()),
        [device] => (Some(device.as_str()), "status"),
        [device, action] => (Some(device.as_str()), action.as_str()),
        [.., extra] => {
            return Err(format!("unexpected argument '{extra}': doctor qat [DEVICE] status|up|down|restart|reset"));
        }
    };
    let action =
        Action::parse(action).ok_or_else(|| format!("'{action}' is not one of status, up, down, restart, reset"))?;
    let (host, root) = host(arguments)?;
    let devices = Devices::of(&host);
    if action == Action::Status {
        print(&if arguments.has("--json") {
            format!("{:#}\n", devices.json(device)?)
        } else {
            devices.status(device)?
        });
        return Ok(());
    }
    let how = devices.plan(action, device)?;
    let apply = arguments.has("--apply");
    match how {
        How::Write(steps) => {
            for step in &steps {
                print(&format!("echo {} > {}\n", step.text, step.path));
                if apply {
                    let root = root.as_ref().ok_or("a recording cannot be changed: leave --host out")?;
                    let path = root.join(step.path.trim_start_matches('/'));
                    std::fs::write(&path, &step.text).map_err(|e| format!("cannot write {}: {e}", step.path))?;
                }
            }
        }
        How::Run(lines) => {
            for line in &lines {
                print(&format!("{line}\n"));
                if apply {
                    let mut words = line.split(' ');
                    let mut command = Command::new(words.next().unwrap_or_default());
                    let status = command.args(words).stdin(Stdio::null()).status();
                    match status {
                        Ok(status) if status.success() => {}
                        Ok(status) => return Err(format!("'{line}' ended with {status}")),
                        Err(e) => return Err(format!("cannot run '{line}': {e}")),
                    }
                }
            }
        }
    }
    if apply {
        print(&Devices::of(&host).status(device)?);
    } else {
        print(
            "Nothing was changed: --apply does it. Operations under way on the device are lost and redone in software.\n",
        );
    }
    Ok(())
}
