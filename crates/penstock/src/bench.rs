//! `penstock bench`: measures any TLS server.

mod agent;
mod compare;
mod interrupt;
mod load;
mod report;
mod study;
mod words;

use crate::serve;
use std::{ffi::OsString, process::ExitCode};

/// What can be done: its name, one line for the help, and who does it.
type Command = (&'static str, &'static str, fn(&[OsString]) -> ExitCode);

const COMMANDS: [Command; 6] = [
    ("load", "loads a server and says what came of it", load::run),
    ("agent", "makes its share of a load that another machine runs", agent::run),
    ("certs", "makes the certificates for mutual TLS between the machines of a test", agent::certificates),
    ("study", "starts servers, loads them in turn, and reports with figures", study::run),
    ("report", "the report of a result that was written before", report::run),
    ("compare", "two results of one study side by side, with intervals", compare::run),
];

/// Runs it.
pub fn run(arguments: &[OsString]) -> ExitCode {
    let first = arguments.first().and_then(|word| word.to_str());
    if matches!(first, None | Some("--help" | "help" | "-h")) {
        print!("{}", usage());
        return ExitCode::SUCCESS;
    }
    match COMMANDS.iter().find(|(name, ..)| Some(*name) == first) {
        Some((.., command)) => command(&arguments[1..]),
        None => serve::fail(&format!("bench: '{}' is nothing it can do\n\n{}", arguments[0].display(), usage())),
    }
}

fn usage() -> String {
    let mut page = "Usage: penstock bench COMMAND [options]; each has its own --help\n\n".to_owned();
    for (name, help, _) in COMMANDS {
        page.push_str(&format!("  {name:<10} {help}\n"));
    }
    page
}
