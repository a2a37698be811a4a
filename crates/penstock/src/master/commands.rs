//! The master's own commands: one table for parser and `help`.

use crate::tie::{Level, SeverityOutput};
use std::time::Duration;

/// A command for the master itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Own {
    Help(Vec<String>),
    Prompt(Vec<String>),
    Quit,
    Lower(Level),
    ShowLevel,
    ShowSockets,
    ShowProcesses,
    ShowVersion,
    ShowStartupLogs,
    /// Reloads; `hard` means that previous workers are stopped instead of drained.
    Reload {
        hard: bool,
    },
    Switch(Switch, Option<bool>),
    Severity(SeverityOutput),
    Timeout(Duration),
}

/// What `on` and `off` apply to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    Expert,
    Experimental,
    Debug,
}

impl Switch {
    pub fn name(self) -> &'static str {
        match self {
            Switch::Expert => "expert-mode",
            Switch::Experimental => "experimental-mode",
            Switch::Debug => "mcli-debug-mode",
        }
    }
}

struct Entry {
    words: &'static str,
    /// The command's syntax as `help` shows it; empty if `help` does not show it.
    usage: &'static str,
    help: &'static str,
    level: Level,
    parse: fn(&[String]) -> Result<Own, String>,
    about: Concerns,
}

/// What a command is about, when commands go to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Concerns {
    /// The process: with `@1` before it, it goes to the worker.
    Process,
    /// The session: it stays with the master, unless it has a prefix of its own.
    Session,
    /// The conversation: it stays with the master in any case.
    Conversation,
    /// The end of the conversation: it stays with the master, unless it has a prefix of its own, as in HAProxy.
    End,
}

const fn entry(
    words: &'static str,
    usage: &'static str,
    help: &'static str,
    level: Level,
    parse: fn(&[String]) -> Result<Own, String>,
) -> Entry {
    Entry { words, usage, help, level, parse, about: Concerns::Process }
}

impl Entry {
    const fn concerns(self, about: Concerns) -> Entry {
        Entry { about, ..self }
    }

    /// Whether these words start with its own.
    fn is_named<'a>(&self, mut words: impl Iterator<Item = &'a str>) -> bool {
        self.words.split(' ').all(|own| words.next() == Some(own))
    }
}

#[rustfmt::skip]
const TABLE: &[Entry] = &[
    entry("experimental-mode", "experimental-mode [on|off]", "commands of workers that may change in later releases", Level::Admin, |a| switch(Switch::Experimental, a)).concerns(Concerns::Session),
    entry("expert-mode", "expert-mode [on|off]", "commands of workers that want care", Level::Admin, |a| switch(Switch::Expert, a)).concerns(Concerns::Session),
    entry("hard-reload", "hard-reload", "reload, and stop the former worker at once", Level::Operator, |_| Ok(Own::Reload { hard: true })),
    entry("mcli-debug-mode", "mcli-debug-mode [on|off]", "a mark in the prompt: the master has no commands for debugging", Level::Admin, |a| switch(Switch::Debug, a)),
    entry("operator", "operator", "lower the level of the current CLI session to operator", Level::User, |_| Ok(Own::Lower(Level::Operator))).concerns(Concerns::Session),
    entry("reload", "reload", "reload haproxy", Level::Operator, |_| Ok(Own::Reload { hard: false })),
    entry("set severity-output", "set severity-output [none|number|string]", "set presence of severity level in feedback information", Level::User, |a| {
        let output = a.first().and_then(|word| SeverityOutput::parse(word));
        output.map(Own::Severity).ok_or_else(|| "one of 'none', 'number', 'string' is a required argument".into())
    }).concerns(Concerns::Session),
    entry("set timeout cli", "set timeout cli <delay>", "change the time that the client may be silent", Level::User, |a| {
        let seconds = a.first().and_then(|word| word.strip_suffix('s').unwrap_or(word).parse().ok()).filter(|&s| s > 0);
        seconds.map(|s| Own::Timeout(Duration::from_secs(s))).ok_or_else(|| "Invalid timeout value, in seconds.".into())
    }).concerns(Concerns::Session),
    entry("show cli level", "show cli level", "display the level of the current CLI session", Level::User, |_| Ok(Own::ShowLevel)),
    entry("show cli sockets", "show cli sockets", "dump list of cli sockets", Level::User, |_| Ok(Own::ShowSockets)),
    entry("show proc", "show proc", "show processes status", Level::User, |_| Ok(Own::ShowProcesses)),
    entry("show startup-logs", "show startup-logs", "report logs emitted during the last start or reload", Level::User, |_| Ok(Own::ShowStartupLogs)),
    entry("show version", "show version", "show version of the current process", Level::User, |_| Ok(Own::ShowVersion)),
    entry("user", "user", "lower the level of the current CLI session to user", Level::User, |_| Ok(Own::Lower(Level::User))).concerns(Concerns::Session),
    entry("help", "help [<command>]", "list matching or all commands", Level::User, |a| Ok(Own::Help(a.to_vec()))),
    entry("prompt", "prompt [n|i|p]", "toggle interactive mode with prompt", Level::User, |a| Ok(Own::Prompt(a.to_vec()))).concerns(Concerns::Conversation),
    entry("quit", "quit", "disconnect", Level::User, |_| Ok(Own::Quit)).concerns(Concerns::End),
    entry("exit", "", "disconnect", Level::User, |_| Ok(Own::Quit)).concerns(Concerns::End),
];

/// Prefixes that select a process; they are handled when a line is parsed.
const PREFIXES: &[(&str, &str)] = &[
    ("@!<pid>", "send a command to the <pid> process"),
    ("@<relative pid>", "send a command to the <relative pid> process"),
    ("@@<process>", "send the rest of the line, and what follows it, to the process"),
    ("@master", "send a command to the master process"),
];

fn switch(which: Switch, arguments: &[String]) -> Result<Own, String> {
    match arguments.first().map(String::as_str) {
        None => Ok(Own::Switch(which, None)),
        Some("on") => Ok(Own::Switch(which, Some(true))),
        Some("off") => Ok(Own::Switch(which, Some(false))),
        Some(other) => Err(format!("'{}' is 'on' or 'off', not '{other}'", which.name())),
    }
}

/// Parses the words.
///
/// # Errors
/// If they are no command of the master's, or one that this client may not give: the sentence for the client.
pub fn parse(words: &[String], level: Level) -> Result<Own, String> {
    match TABLE.iter().find(|entry| entry.is_named(words.iter().map(String::as_str))) {
        Some(entry) if level < entry.level => Err("Permission denied".into()),
        Some(entry) => (entry.parse)(&words[entry.words.split(' ').count()..]),
        None => Err(unknown(words)),
    }
}

/// Whether a command is about the session, whichever process later commands go to (`turned`), or the command alone.
pub fn concerns_session(text: &[u8], turned: bool) -> bool {
    let text = String::from_utf8_lossy(text);
    match TABLE.iter().find(|entry| entry.is_named(text.split_whitespace())).map(|entry| entry.about) {
        Some(Concerns::Conversation) => true,
        Some(Concerns::Session | Concerns::End) => turned,
        Some(Concerns::Process) | None => false,
    }
}

fn unknown(words: &[String]) -> String {
    let near = near(words);
    match near.is_empty() {
        true => page("Unknown command. Please enter one of the following commands only:\n", &all()),
        false => page("Unknown command, but maybe one of the following ones is a better match:\n", &near),
    }
}

/// `help`: the commands that start with these words, else all.
pub fn help(words: &[String]) -> String {
    let near = near(words);
    let entries = if near.is_empty() { all() } else { near };
    page("The following commands are valid at this level:\n", &entries)
}

fn all() -> Vec<(&'static str, &'static str)> {
    let own = TABLE.iter().filter(|entry| !entry.usage.is_empty()).map(|entry| (entry.usage, entry.help));
    PREFIXES.iter().copied().chain(own).collect()
}

/// The commands that start with the given words.
fn near(words: &[String]) -> Vec<(&'static str, &'static str)> {
    let begun = |usage: &str| {
        let mut own = usage.split(' ');
        words.iter().all(|given| own.next().is_some_and(|own| own.starts_with(given.as_str())))
    };
    if words.is_empty() { Vec::new() } else { all().into_iter().filter(|(usage, _)| begun(usage)).collect() }
}

fn page(heading: &str, entries: &[(&str, &str)]) -> String {
    let lines = entries.iter().map(|(usage, help)| format!("  {usage:<40}: {help}\n"));
    std::iter::once(heading.to_owned()).chain(lines).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn words_lead_to_commands_and_what_misses_is_said() {
        let parsed = |text| parse(&words(text), Level::Admin);
        assert_eq!(parsed("show proc debug"), Ok(Own::ShowProcesses));
        assert_eq!(parsed("hard-reload"), Ok(Own::Reload { hard: true }));
        assert_eq!(parsed("expert-mode on"), Ok(Own::Switch(Switch::Expert, Some(true))));
        assert_eq!(parsed("experimental-mode"), Ok(Own::Switch(Switch::Experimental, None)));
        assert_eq!(parsed("set timeout cli 60s"), Ok(Own::Timeout(Duration::from_secs(60))));
        assert_eq!(parsed("set severity-output number"), Ok(Own::Severity(SeverityOutput::Number)));
        assert!(parsed("expert-mode yes").unwrap_err().contains("'yes'"));
        assert!(parsed("set timeout cli soon").unwrap_err().contains("seconds"));
        assert!(parsed("show pr").unwrap_err().contains("show proc"), "what begins so is a better match");
        assert!(parsed("nonsense").unwrap_err().starts_with("Unknown command. Please"));
        assert_eq!(parse(&words("reload"), Level::User), Err("Permission denied".into()));
    }

    #[test]
    fn help_lists_every_command_once() {
        let page = help(&[]);
        for (usage, _) in all() {
            assert_eq!(page.matches(&format!("\n  {usage:<40}: ")).count(), 1, "{usage}");
        }
        assert!(help(&words("show p")).lines().count() == 2);
    }
}
