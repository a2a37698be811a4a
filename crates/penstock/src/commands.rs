//! The table of subcommands.

use crate::{
    arguments::Command,
    bench, check, completion, ctl, doctor,
    flags::{self, Flags},
    lab_setup, man, plan, quickstart, serve, top,
};
use std::{ffi::OsString, io::Write, path::PathBuf, process::ExitCode};

/// Every subcommand, in the order of the help.
pub const COMMANDS: &[Command] = &[
    Command::new(
        "quickstart",
        "",
        "starts a complete HTTPS load balancer with two backends, for a first look",
        |rest| alone("quickstart", rest, quickstart::run),
    ),
    Command::new("check", "FILE|DIR...", "shows everything that is wrong with a configuration, as -c does", |rest| {
        // Every other command has -f before a file.
        let files: Vec<PathBuf> = rest.iter().filter(|word| *word != "-f").map(PathBuf::from).collect();
        if files.is_empty() {
            return serve::fail("check: it needs a configuration file or a directory of them");
        }
        check(&Flags { files, check: true, ..Flags::default() })
    }),
    Command::new("ctl", "[options] COMMAND...", "gives commands to a running process, on its stats socket", ctl::run)
        .options(ctl::options)
        .words(ctl::words),
    Command::new("top", "[URL] [options]", "shows what a running process does, from its metrics", top::run)
        .options(top::options),
    Command::new("bench", "COMMAND [options]", "measures any TLS server", bench::run).below(bench::COMMANDS),
    Command::new(
        "plan",
        "[options]",
        "calculates what a service level needs: cores, servers, devices, power, cost",
        plan::run,
    )
    .options(plan::options),
    Command::new(
        "doctor",
        "[-f FILE] [options] | qat [DEVICE] status|up|down|restart|reset",
        "examines what this machine lacks for a configuration, and fixes it",
        doctor::run,
    )
    .options(doctor::options)
    .words(|| doctor::WORDS.to_vec()),
    Command::new(
        "lab-setup",
        "--role server|client [options]",
        "sets up one side of a measurement, and restores the host",
        lab_setup::run,
    )
    .options(lab_setup::options),
    Command::new("keywords", "", "lists every keyword of the configuration language", |rest| {
        alone("keywords", rest, list_keywords)
    }),
    Command::new("completion", "bash|zsh|fish", "prints the script that completes this command line", |rest| {
        let shell = one(rest).and_then(completion::Shell::parse);
        shown(shell.map(|shell| completion::script(COMMANDS, shell)), "completion: choose bash, zsh or fish")
    })
    .words(|| completion::SHELLS.iter().map(|(name, _)| *name).collect()),
    Command::new("man", "PAGE", "prints a manual page, for man -l -", |rest| {
        let page = one(rest).and_then(|name| man::page(COMMANDS, name));
        shown(page, &format!("man: the pages are {}", man::PAGES.map(|(name, _)| name).join(", ")))
    })
    .words(|| man::PAGES.map(|(name, _)| name).to_vec()),
    Command::new("help", "", "shows the options and subcommands", |rest| {
        alone("help", rest, || shown(Some(flags::usage(COMMANDS)), ""))
    }),
];

/// The subcommand with this name.
pub fn find(word: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.name == word)
}

/// The subcommand that was meant, if it was mistyped.
pub fn nearest(word: &str) -> Option<&'static str> {
    let is_option = word.starts_with('-');
    penstock_config::units::nearest(word, COMMANDS.iter().map(|command| command.name)).filter(|_| !is_option)
}

/// Runs a command that takes no arguments.
fn alone(name: &str, rest: &[OsString], run: impl Fn() -> ExitCode) -> ExitCode {
    match rest {
        [] => run(),
        [first, ..] => serve::fail(&format!("{name}: it takes no arguments, not even '{}'", first.display())),
    }
}

/// The argument, if there is exactly one.
fn one(rest: &[OsString]) -> Option<&str> {
    match rest {
        [word] => word.to_str(),
        _ => None,
    }
}

/// Prints the text, or an error if there is none.
fn shown(text: Option<String>, wrong: &str) -> ExitCode {
    let Some(text) = text else { return serve::fail(wrong) };
    // A reader that has seen enough closes the pipe.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

/// Prints every keyword, one per line: section, name, level of support, meaning.
fn list_keywords() -> ExitCode {
    use penstock_config::Support;
    let mut page = String::new();
    for entry in penstock_config::manual::keywords() {
        let class = match entry.support {
            Support::Implemented => "implemented",
            Support::Accepted(_) => "no effect",
            Support::Refused { .. } => "refused",
        };
        page.push_str(&format!("{:<12} {:<40} {class:<12} {}\n", entry.section, entry.name, entry.doc));
    }
    shown(Some(page), "")
}
