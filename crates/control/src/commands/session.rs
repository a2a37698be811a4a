//! Commands about the client's own session.

use crate::{Level, Refusal, SeverityOutput, table::Entry};
use std::time::Duration;

/// A command that the session handles itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Own {
    /// Shows the commands that start with these words, or all.
    Help(Vec<String>),
    /// Changes the prompt between answers.
    Prompt(Vec<String>),
    /// Ends the session.
    Quit,
    /// Lowers its level.
    Lower(Level),
    /// Shows its level.
    ShowLevel {
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Shows the severity before each sentence, or stops that.
    SeverityOutput(SeverityOutput),
    /// Sets the time of silence after which it ends.
    Timeout(Duration),
    /// Allows or forbids commands for experts, or shows whether they are allowed.
    Expert(Option<bool>),
    /// Allows or forbids experimental commands, or shows whether they are allowed.
    Experimental(Option<bool>),
    /// Prints these words.
    Echo(String),
}

/// The entries. `help` always shows the last three after everything else.
pub(crate) const ENTRIES: &[Entry<Own>] = &[
    Entry::new("echo", "echo [<text>]", "say <text>, to tell answers apart", |args| {
        Ok(Own::Echo(args.rest().join(" ")))
    }),
    Entry::new("expert-mode", "", "allow commands for experts", |args| {
        Ok(Own::Expert(args.word().map(|word| word == "on")))
    })
    .level(Level::Admin),
    Entry::new("experimental-mode", "", "allow experimental commands", |args| {
        Ok(Own::Experimental(args.word().map(|word| word == "on")))
    })
    .level(Level::Admin),
    Entry::new("operator", "operator", "lower the level of the current CLI session to operator", |_| {
        Ok(Own::Lower(Level::Operator))
    })
    .level(Level::Operator),
    Entry::new(
        "set severity-output",
        "set severity-output [none|number|string]",
        "set presence of severity level in feedback information",
        |args| {
            let word = args.word().unwrap_or_default();
            let output = SeverityOutput::parse(&word)
                .ok_or_else(|| Refusal::new("one of 'none', 'number', 'string' is a required argument"))?;
            Ok(Own::SeverityOutput(output))
        },
    ),
    Entry::new("set timeout", "set timeout [cli] <delay>", "change a timeout setting", |args| {
        if !args.take("cli") {
            return Err(Refusal::new("'set timeout' only supports 'cli'."));
        }
        let word = args.require("Expects an integer value.")?;
        match penstock_config::units::time(&word, Duration::from_secs(1)) {
            Ok((timeout, "")) if !timeout.is_zero() => Ok(Own::Timeout(timeout)),
            _ => Err(Refusal::new("Invalid timeout value.")),
        }
    }),
    Entry::new("show cli level", "show cli level", "display the level of the current CLI session", |args| {
        Ok(Own::ShowLevel { json: args.take("json") })
    }),
    Entry::new("user", "user", "lower the level of the current CLI session to user", |_| Ok(Own::Lower(Level::User))),
];

/// The entries that every session has, whatever its table.
pub(crate) const SESSION: &[Entry<Own>] = &[
    Entry::new("help", "help [<command>]", "list matching or all commands", |args| Ok(Own::Help(args.rest()))),
    Entry::new("prompt", "prompt [help | n | i | p | timed]*", "toggle interactive mode with prompt", |args| {
        Ok(Own::Prompt(args.rest()))
    }),
    Entry::new("quit", "quit", "disconnect", |_| Ok(Own::Quit)),
];
