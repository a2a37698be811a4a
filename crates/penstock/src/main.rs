//! The penstock command: HAProxy's flags, and subcommands beside them.

#![forbid(unsafe_code)]

mod accounts;
mod arguments;
mod bench;
mod commands;
mod completion;
mod configuration;
mod control;
mod ctl;
mod device;
mod doctor;
mod engine;
mod flags;
mod heritage;
mod lab_setup;
mod limits;
mod machine;
mod man;
mod master;
mod measure;
mod name;
mod plan;
mod quickstart;
mod ready;
mod say;
mod serve;
mod services;
mod strangers;
mod tie;
mod told;
mod top;
mod version;

use flags::Flags;
use ready::Reporter;
use std::{ffi::OsString, process::ExitCode};
use tie::Tie;

#[global_allocator]
static ALLOCATOR: penstock_sys::Allocator = penstock_sys::Allocator;

/// The exit status of `-c` for a configuration without errors but without a listener, and of `-cc` for an invalid
/// condition.
const NOT_QUITE: u8 = 2;

fn main() -> ExitCode {
    if *name::NAME == name::Name::Haproxy {
        // Otherwise the process is named after the link's target. The name of masters and workers is what `pidof` looks
        // for.
        let _ = rustix::thread::set_name(c"haproxy");
    }
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(command) = arguments.first().and_then(|word| commands::find(word.to_str()?)) {
        return command.start(name::NAME.command(), &arguments[1..]);
    }
    let first = arguments.first().cloned();
    match Flags::parse(arguments) {
        Ok(flags) => obey(flags),
        Err(why) if *name::NAME == name::Name::Haproxy => {
            let failed = serve::fail(&why);
            eprintln!("\n{}", flags::usage(commands::COMMANDS));
            failed
        }
        Err(why) => {
            // The cause comes last, where it is seen.
            eprintln!("{}", flags::usage(commands::COMMANDS));
            match first.and_then(|word| commands::nearest(word.to_str()?)) {
                Some(near) => serve::fail(&format!("{why}; did you mean '{near}'?")),
                None => serve::fail(&why),
            }
        }
    }
}

fn obey(flags: Flags) -> ExitCode {
    if let Some(byte) = flags.poison {
        penstock_sys::poison(byte);
    }
    if flags.version > 0 {
        print!("{}", if flags.version > 1 { version::long() } else { version::short() });
        return ExitCode::SUCCESS;
    }
    if let Some(condition) = &flags.condition {
        return evaluate(condition, &flags);
    }
    if flags.help_page {
        print!("{}", flags::usage(commands::COMMANDS));
        return ExitCode::SUCCESS;
    }
    if flags.help || flags.files.is_empty() {
        eprint!("{}\n{}", version::short(), flags::usage(commands::COMMANDS));
        return ExitCode::FAILURE;
    }
    if tie::is_worker() {
        return work(&flags);
    }
    if let Some(directory) = &flags.directory
        && let Err(e) = std::env::set_current_dir(directory)
    {
        return serve::fail(&format!("cannot change to the directory {}: {e}", directory.display()));
    }
    if flags.check {
        return check(&flags);
    }
    let sources = match configuration::sources(&flags.files) {
        Ok(sources) => sources,
        Err(why) => return serve::fail(&why),
    };
    let loaded = configuration::load(sources.clone(), &flags);
    if loaded.0.global.master_worker {
        master::run(&loaded.0, &sources, &flags)
    } else {
        serve::serve(loaded, &flags, Reporter::Nobody, |_| {}).code()
    }
}

/// Runs as a worker, with the configuration that its master has read.
fn work(flags: &Flags) -> ExitCode {
    let received = Tie::received().and_then(|tie| Ok((tie.sources()?, tie)));
    match received {
        Ok((sources, tie)) => {
            serve::serve(configuration::load(sources, flags), flags, Reporter::Master(tie), |_| {}).code()
        }
        Err(e) => serve::fail(&format!("cannot reach the master: {e}")),
    }
}

/// `-c` and `check`: reports everything that can be found without starting.
fn check(flags: &Flags) -> ExitCode {
    let sources = match configuration::sources(&flags.files) {
        Ok(sources) => sources,
        Err(why) => return serve::fail(&why),
    };
    let (config, mut diagnostics) = configuration::load(sources, flags);
    let has_listener = configuration::has_listener(&config);
    let Some(built) = serve::build(config, flags, &mut diagnostics) else { return ExitCode::FAILURE };
    // The system frees it with the process; to free 50,000 certificates one by one takes an eighth of a check's time.
    std::mem::forget(built);
    if !has_listener {
        if !flags.quiet {
            println!("The configuration has no errors, but nothing would listen: exit status {NOT_QUITE}");
        }
        return ExitCode::from(NOT_QUITE);
    }
    if !flags.quiet {
        println!("Configuration file is valid");
    }
    ExitCode::SUCCESS
}

/// `-cc`.
fn evaluate(condition: &str, flags: &Flags) -> ExitCode {
    match penstock_config::evaluate_condition(condition, &configuration::environment(flags)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(bad) => {
            serve::fail(&format!("cannot evaluate the condition: {}", bad.message));
            eprintln!("  {condition}\n  {:>1$}", "^", bad.at + 1);
            if let Some(hint) = bad.hint {
                eprintln!("  {hint}");
            }
            ExitCode::from(NOT_QUITE)
        }
    }
}
