//! `penstock bench`: measures any TLS server.

mod agent;
mod compare;
mod interrupt;
mod load;
mod report;
mod study;
mod words;

use crate::{arguments::Command, serve};
use std::{ffi::OsString, process::ExitCode};

/// The subcommands.
pub const COMMANDS: &[Command] = &[
    Command::new("load", "URL [options]", "loads a server and reports the result", load::run).options(load::options),
    Command::new(
        "agent",
        "[options]",
        "generates this machine's share of a load that another machine controls",
        agent::run,
    )
    .options(agent::options),
    Command::new(
        "certs",
        "DIR HOST...",
        "makes the certificates for mutual TLS between the machines of a test",
        agent::certificates,
    ),
    Command::new("study", "NAME [options]", "starts servers, loads them in turn, and reports with figures", study::run)
        .options(study::options)
        .words(study::names),
    Command::new("report", "result.json [options]", "shows a saved result again", report::run).options(report::options),
    Command::new(
        "compare",
        "A.json B.json [options]",
        "compares two results of one study, with intervals",
        compare::run,
    )
    .options(compare::options),
];

/// Runs `penstock bench`.
pub fn run(arguments: &[OsString]) -> ExitCode {
    let first = arguments.first().and_then(|word| word.to_str());
    if matches!(first, None | Some("--help" | "help" | "-h")) {
        print!("{}", usage());
        return ExitCode::SUCCESS;
    }
    match COMMANDS.iter().find(|command| Some(command.name) == first) {
        Some(command) => command.start("penstock bench", &arguments[1..]),
        None => serve::fail(&format!("bench: unknown command '{}'\n\n{}", arguments[0].display(), usage())),
    }
}

fn usage() -> String {
    let mut page = "Usage: penstock bench COMMAND [options]; each has its own --help\n\n".to_owned();
    for command in COMMANDS {
        page.push_str(&format!("  {:<10} {}\n", command.name, command.help));
    }
    page
}
