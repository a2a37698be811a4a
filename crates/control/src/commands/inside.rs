//! Commands that show the inside of the process, to find the causes of problems, and unsupported commands, which are refused.

use crate::{Args, Level, Mode, Refusal, table::Entry};

/// A command that shows the inside of the process, or a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inside {
    /// Shows what each worker has done.
    Activity {
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Shows what each worker is doing.
    Threads {
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Shows how many workers are busy, and what they hold.
    Tasks {
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Shows the caches and what is stored in them.
    Caches {
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Shows the rings, or the lines of one.
    Events {
        /// The ring; `None` for a list.
        sink: Option<String>,
        /// Continues with lines that are written later, until the client sends something.
        wait: bool,
        /// Leaves out the lines that are there.
        only_new: bool,
        /// Whether the list is JSON.
        json: bool,
    },
    /// Shows the open descriptors, or one of them.
    Descriptors {
        /// The descriptor's number; `None` for all.
        number: Option<u32>,
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Shows the files that the program was loaded from.
    Libraries {
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Shows the peers of one section or of all.
    Peers {
        /// The section to show; `None` for all.
        section: Option<String>,
        /// Shows the names that were exchanged, too.
        dictionary: bool,
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Shows the results of queries to name servers, for one section or all.
    Resolvers {
        /// The section.
        name: Option<String>,
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Shows the engine that computes handshakes, and how busy it is.
    Engine {
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Shows where copies of the traffic go, and what is missing in them.
    Taps {
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Shows the messages of the process's start.
    StartupLogs {
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Shows how many handshakes wait for a turn, for each worker and in all.
    Line {
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Shows a variable of the process.
    Variable(String),
    /// Sets a variable: the keyword of the configuration that does so, and its words.
    SetVariable(&'static str, Vec<String>),
    /// A command about the dynamic cookies of a backend, which are not supported.
    DynamicCookie(String),
}

const NO_PROFILE: &str = "Nothing is profiled from inside: run 'perf record -p PID' beside the process.";
const NO_TRACES: &str = "There are no trace sources: use the log, 'show sess' and 'show errors'.";
const NO_DEBUGGING: &str =
    "There is none of these here: a client of this socket could crash or stall the process with them.";

pub(crate) const ENTRIES: &[Entry<Inside>] = &[
    Entry::new("debug dev", "debug dev <what>", "debug the process: refused", |_| Err(Refusal::new(NO_DEBUGGING)))
        .level(Level::Admin)
        .mode(Mode::Expert),
    cookie("disable dynamic-cookie backend", "disable dynamic-cookie backend <bk>", |args| made_up(args, false)),
    cookie("enable dynamic-cookie backend", "enable dynamic-cookie backend <bk>", |args| made_up(args, false)),
    cookie("set dynamic-cookie-key backend", "set dynamic-cookie-key backend <bk> <k>", |args| made_up(args, true))
        .tells(1),
    Entry::new("get var", "get var <name>", "retrieve contents of a process-wide variable", |args| {
        let name = args.require("Missing process-wide variable identifier.")?;
        Ok(Inside::Variable(name))
    })
    .level(Level::Operator),
    Entry::new("httpclient", "httpclient <method> <URI>", "launch an HTTP request: refused", |_| {
        Err(Refusal::new("There is no HTTP client inside: use curl."))
    })
    .level(Level::Admin)
    .mode(Mode::Expert),
    Entry::new(
        "set profiling",
        "set profiling <what> {auto|on|off}",
        "enable/disable resource profiling: refused",
        |_| Err(Refusal::new(NO_PROFILE)),
    )
    .level(Level::Admin),
    Entry::new(
        "set var",
        "set var <name> [fmt|expr] {<fmt>|<expr>}",
        "set variable from an expression or a format",
        set_var,
    )
    .level(Level::Admin)
    .mode(Mode::Experimental)
    .changes("variables"),
    Entry::new("show activity", "show activity", "show per-thread activity stats (for support/developers)", |args| {
        Ok(Inside::Activity { json: args.take("json") })
    }),
    Entry::new("show cache", "show cache", "show the caches and what is stored in them", |args| {
        Ok(Inside::Caches { json: args.take("json") })
    })
    .level(Level::Admin),
    Entry::new("show engine", "show engine", "show what computes handshakes: its queue, batches and fills", |args| {
        Ok(Inside::Engine { json: args.take("json") })
    }),
    Entry::new("show events", "show events [<sink>] [-w] [-n]", "show event sink state", events),
    Entry::new("show fd", "show fd [num]", "dump list of file descriptors in use or a specific one", |args| {
        let json = args.take_anywhere("json");
        let number = args.word().map(|word| word.parse().map_err(|_| Refusal::new("Invalid FD type"))).transpose()?;
        Ok(Inside::Descriptors { number, json })
    })
    .level(Level::Operator),
    Entry::new("show libs", "show libs", "show loaded object files and libraries", |args| {
        Ok(Inside::Libraries { json: args.take("json") })
    })
    .level(Level::Operator),
    Entry::new("show line", "show line", "show the handshakes that wait for their turn, for each worker", |args| {
        Ok(Inside::Line { json: args.take("json") })
    }),
    Entry::new(
        "show peers",
        "show peers [dict|-] [section]",
        "dump some information about all the peers or this peers section",
        |args| {
            let json = args.take_anywhere("json");
            let dictionary = args.take("dict");
            if !dictionary {
                args.take("-");
            }
            Ok(Inside::Peers { section: args.word(), dictionary, json })
        },
    ),
    Entry::new("show pools", "show pools", "report information about the memory pools usage: refused", |_| {
        Err(Refusal::new(
            "There are no pools: memory comes from the allocator; 'show info' says how much the process has (PoolAlloc_bytes).",
        ))
    }),
    Entry::new("show profiling", "show profiling [<what>|<#lines>|byaddr]*", "show profiling state: refused", |_| {
        Err(Refusal::new(NO_PROFILE))
    })
    .level(Level::Operator),
    Entry::new(
        "show resolvers",
        "show resolvers [id]",
        "dumps counters from all resolvers section and associated name servers",
        |args| {
            let json = args.take_anywhere("json");
            Ok(Inside::Resolvers { name: args.word(), json })
        },
    ),
    Entry::new("show startup-logs", "show startup-logs", "report logs emitted during startup", |args| {
        Ok(Inside::StartupLogs { json: args.take("json") })
    })
    .level(Level::Operator),
    Entry::new("show taps", "show taps", "show where copies of the traffic go, and what is missing in them", |args| {
        Ok(Inside::Taps { json: args.take("json") })
    })
    .level(Level::Operator),
    Entry::new("show tasks", "show tasks", "show running tasks", |args| Ok(Inside::Tasks { json: args.take("json") })),
    Entry::new("show threads", "show threads", "show what each thread does", |args| {
        Ok(Inside::Threads { json: args.take("json") })
    }),
    Entry::new("show trace", "show trace [<module>]", "show live tracing state: refused", |_| {
        Err(Refusal::new(NO_TRACES))
    }),
    Entry::new("trace", "trace [<module>|0] [cmd [args...]]", "manage live tracing: refused", |_| {
        Err(Refusal::new(NO_TRACES))
    })
    .level(Level::Operator),
];

const fn cookie(
    words: &'static str,
    usage: &'static str,
    parse: fn(&mut Args) -> Result<Inside, Refusal>,
) -> Entry<Inside> {
    Entry::new(words, usage, "cookies that a backend makes up: refused", parse).level(Level::Admin)
}

/// Parses a command about dynamic cookies, with a key if `with_key`.
fn made_up(args: &mut Args, with_key: bool) -> Result<Inside, Refusal> {
    let backend = args.require("A backend name is expected.")?;
    if with_key {
        args.require("String value expected.")?;
    }
    Ok(Inside::DynamicCookie(backend))
}

fn events(args: &mut Args) -> Result<Inside, Refusal> {
    let json = args.take("json");
    let sink = args.word();
    let (mut wait, mut only_new) = (false, false);
    while let Some(word) = args.word() {
        match word.as_str() {
            "-w" => wait = true,
            "-n" => only_new = true,
            "-wn" | "-nw" => (wait, only_new) = (true, true),
            _ => return Err(Refusal::new("unknown option")),
        }
    }
    Ok(Inside::Events { sink, wait, only_new, json })
}

fn set_var(args: &mut Args) -> Result<Inside, Refusal> {
    let name = args.require("Missing process-wide variable identifier.")?;
    if !name.starts_with("proc.") {
        let sentence = format!("'set var': cannot set variable '{name}', only scope 'proc' is permitted here.");
        return Err(Refusal::new(sentence));
    }
    let keyword = if args.take("fmt") { "set-var-fmt" } else { "set-var" };
    if keyword == "set-var" {
        args.take("expr");
    }
    let words = args.rest();
    if words.is_empty() {
        return Err(Refusal::new("Missing either 'expr', 'fmt' or expression."));
    }
    Ok(Inside::SetVariable(keyword, [vec![name], words].concat()))
}
