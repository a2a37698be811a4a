//! Commands about frontends and the limits of the process.

use crate::{Args, Level, Refusal, table::Entry};

/// A command about frontends or limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frontends {
    /// Changes a frontend by name; the refusal is reported only once the frontend has been found.
    Set(String, Result<FrontendChange, Refusal>),
    /// Sets the limit of connections of the process; 0 restores the configured one.
    MaxConn(i64),
    /// Sets a limit per second of the process; 0 for no limit.
    Rate(Rate, i64),
    /// Resets the maxima of counters, or the counters too.
    ClearCounters {
        /// Whether to reset the counters too.
        all: bool,
    },
}

/// A change to a frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrontendChange {
    /// Accepts connections again.
    Enable,
    /// Stops accepting connections for now.
    Disable,
    /// Stops accepting connections for good.
    Shutdown,
    /// Sets its limit of connections.
    MaxConn(i64),
}

/// What is limited per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Connections.
    Connections,
    /// Sessions.
    Sessions,
    /// TLS handshakes.
    Tls,
    /// Bytes compressed.
    Compression,
}

const RATES: &str = "'set rate-limit' only supports :\n   \
     - 'connections global' to set the per-process maximum connection rate\n   \
     - 'sessions global' to set the per-process maximum session rate\n   \
     - 'ssl-sessions global' to set the per-process maximum SSL session rate\n   \
     - 'http-compression global' to set the per-process maximum compression speed in kB/s";

pub(crate) const ENTRIES: &[Entry<Frontends>] = &[
    Entry::new("clear counters", "clear counters [all]", "clear max statistics counters (or all counters)", |_| {
        Ok(Frontends::ClearCounters { all: false })
    })
    .level(Level::Operator)
    .changes("counters"),
    Entry::new("clear counters all", "", "clear all counters", |_| Ok(Frontends::ClearCounters { all: true }))
        .level(Level::Admin)
        .changes("counters"),
    one("disable frontend", "disable frontend <frontend>", "temporarily disable specific frontend", |args| {
        named(args, |_| Ok(FrontendChange::Disable))
    }),
    one("enable frontend", "enable frontend <frontend>", "re-enable specific frontend", |args| {
        named(args, |_| Ok(FrontendChange::Enable))
    }),
    one(
        "set maxconn frontend",
        "set maxconn frontend <frontend> <value>",
        "change a frontend's maxconn setting",
        |args| named(args, |args| Ok(FrontendChange::MaxConn(exactly(args, "Integer value expected.")?))),
    ),
    one("set maxconn global", "set maxconn global <value>", "change the per-process maxconn setting", |args| {
        Ok(Frontends::MaxConn(exactly(args, "Expects an integer value.")?))
    }),
    one("set rate-limit", "set rate-limit <setting> <value>", "change a rate limiting value", |args| {
        let (what, whose) = (args.word().unwrap_or_default(), args.word().unwrap_or_default());
        let rate = match (what.as_str(), whose.as_str()) {
            ("connections", "global") => Rate::Connections,
            ("sessions", "global") => Rate::Sessions,
            ("ssl-sessions", "global") => Rate::Tls,
            ("http-compression", "global") => Rate::Compression,
            _ => return Err(Refusal::new(RATES)),
        };
        Ok(Frontends::Rate(rate, exactly(args, "Expects an integer value.")?))
    }),
    one("shutdown frontend", "shutdown frontend <frontend>", "stop a specific frontend", |args| {
        named(args, |_| Ok(FrontendChange::Shutdown))
    }),
];

const fn one(
    words: &'static str,
    usage: &'static str,
    help: &'static str,
    parse: fn(&mut Args) -> Result<Frontends, Refusal>,
) -> Entry<Frontends> {
    Entry::new(words, usage, help, parse).level(Level::Admin).changes("limits")
}

fn named(
    args: &mut Args,
    change: impl FnOnce(&mut Args) -> Result<FrontendChange, Refusal>,
) -> Result<Frontends, Refusal> {
    let name = args.require("A frontend name is expected.")?;
    Ok(Frontends::Set(name, change(args)))
}

/// Parses a number, and nothing else: HAProxy takes a slip of the hand for 0, which shuts a frontend and lifts a limit of rates.
fn exactly(args: &mut Args, missing: &str) -> Result<i64, Refusal> {
    args.require(missing)?.parse().map_err(|_| Refusal::new(missing))
}
