//! Commands that add and remove servers.

use crate::{Args, Level, Refusal, table::Entry};
use std::time::Duration;

/// A command that adds or removes servers of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Membership {
    /// Adds a server: backend, name, then its address and settings.
    Add(String, String, Vec<String>),
    /// Removes a server: backend and name.
    Remove(String, String),
    /// Waits until a server can be removed: time limit, backend and name.
    Wait(Duration, Option<(String, String)>),
}

pub(crate) const ENTRIES: &[Entry<Membership>] = &[
    Entry::new("add server", "add server <bk>/<srv> <addr> [args]*", "create a new server", |args| {
        let (backend, name) = server(args)?;
        Ok(Membership::Add(backend, name, args.rest()))
    })
    .level(Level::Admin)
    .secret_after("agent-send")
    .changes("the servers of a backend"),
    Entry::new("del server", "del server <bk>/<srv>", "remove a server that is in maintenance", |args| {
        let (backend, name) = server(args)?;
        Ok(Membership::Remove(backend, name))
    })
    .level(Level::Admin)
    .changes("the servers of a backend"),
    Entry::new("wait", WAIT, "wait that long, or less if the condition holds", |args| {
        const USAGE: &str = concat!(
            "Usage: wait {-h|<delay>} [srv-removable <bk>/<srv>]\n",
            "  <delay>: a number of milliseconds, or one followed by us, ms, s, m, h or d\n",
            "  srv-removable <bk>/<srv>: waits no longer than until 'del server' can remove the server\n",
        );
        let delay = args.require("Expects a duration in milliseconds.")?;
        if delay == "-h" {
            return Err(Refusal::new(USAGE));
        }
        let delay = duration(&delay).ok_or_else(|| Refusal::new("Invalid duration."))?;
        let removable = match args.word() {
            None => None,
            Some(condition) if condition == "srv-removable" => Some(server(args)?),
            Some(_) => return Err(Refusal::new(USAGE)),
        };
        Ok(Membership::Wait(delay, removable))
    })
    .level(Level::Admin),
];

const WAIT: &str = "wait {-h|<delay>} [srv-removable <bk>/<srv>]";

fn server(args: &mut Args) -> Result<(String, String), Refusal> {
    let word = args.require("Require 'backend/server'.")?;
    match word.split_once('/') {
        Some((backend, name)) if !name.is_empty() => Ok((backend.into(), name.into())),
        _ => Err(Refusal::new("Require 'backend/server'.")),
    }
}

/// A number of milliseconds, or a number with a unit.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok()?;
    let ms = match &text[digits.len()..] {
        "" | "ms" => number,
        "us" => number / 1000,
        "s" => number.checked_mul(1000)?,
        "m" => number.checked_mul(60_000)?,
        "h" => number.checked_mul(3_600_000)?,
        _ => return None,
    };
    Some(Duration::from_millis(ms))
}
