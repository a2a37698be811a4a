//! Commands about sessions.

use crate::{Args, Level, Refusal, table::Entry};

/// A command about sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sessions {
    /// Lists all sessions, one per line.
    List {
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Shows details of one session, or of all.
    Tell {
        /// The session's number; `None` for all.
        id: Option<u64>,
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Ends the session with this number.
    End(u64),
    /// Shows the last invalid messages, of all proxies or of one, in both directions or in one.
    Errors {
        /// The name or the number of a proxy.
        proxy: Option<String>,
        /// `true` for requests only, `false` for responses only, `None` for both.
        requests: Option<bool>,
        /// Whether the answer is JSON.
        json: bool,
    },
}

pub(crate) const ENTRIES: &[Entry<Sessions>] = &[
    Entry::new(
        "show errors",
        "show errors [<px>] [request|response]",
        "report last request and/or response errors for each proxy",
        |args| {
            let json = args.take_anywhere("json");
            let (mut proxy, mut requests) = (None, None);
            for word in args.rest() {
                match word.as_str() {
                    "request" => requests = Some(true),
                    "response" => requests = Some(false),
                    _ => proxy = proxy.or(Some(word)),
                }
            }
            Ok(Sessions::Errors { proxy, requests, json })
        },
    )
    .level(Level::Operator),
    Entry::new(
        "show sess",
        "show sess [id|all]",
        "report the list of current sessions or dump this exact session",
        |args| {
            let json = args.take_anywhere("json");
            let word = args.word();
            Ok(match word.as_deref() {
                Some("all") => Sessions::Tell { id: None, json },
                // A word that is not a number lists all sessions, as in HAProxy.
                Some(word) if number(word) != 0 => Sessions::Tell { id: Some(number(word)), json },
                _ => Sessions::List { json },
            })
        },
    )
    .level(Level::Operator),
    Entry::new("shutdown session", "shutdown session [id]", "kill a specific session", end)
        .level(Level::Admin)
        .changes("sessions"),
];

fn end(args: &mut Args) -> Result<Sessions, Refusal> {
    match args.word().map_or(0, |word| number(&word)) {
        0 => Err(Refusal::new("Session pointer expected (use 'show sess').")),
        id => Ok(Sessions::End(id)),
    }
}

/// The number of a session; 0 for anything else.
fn number(word: &str) -> u64 {
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap_or(0),
        None => word.parse().unwrap_or(0),
    }
}
