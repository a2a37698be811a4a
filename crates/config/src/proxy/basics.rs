//! The basics of a proxy: its name, mode, addresses, servers, limits and error pages.

use super::{
    draft::Draft,
    error_pages::{ErrorPages, errorfile, status},
    service,
};
use crate::{
    args::{Args, Parsed, Reported},
    bind,
    keyword::{
        ANY, ANYTHING, BACK, BACK_ONLY, FRONT, FRONT_ONLY, Keyword, NONE, ONE, SOME, at_least, between, exactly,
    },
    model::{HttpReuse, Mode},
    server,
    span::Spanned,
};
use std::path::PathBuf;

type Entry = Keyword<Draft>;

pub(super) const KEYWORDS: &[Entry] = &[
    Entry::new(
        "mode",
        ONE,
        "Whether TCP streams or HTTP messages are handled; backends of log messages (`log`) are refused",
        |d, a| {
            if d.proxy.service.is_some() {
                return service::mode(d, a);
            }
            if let Some(word) = a.peek().filter(|word| matches!(word.text.as_str(), "icap" | "tap")) {
                let message = format!("mode '{}' is a mode of services", word.text);
                return a.wrong(word, message, "write it into a section 'service NAME'");
            }
            // HAProxy 3.1 lets only agents be reached by such a backend.
            if d.section() == "backend" && a.take_if("spop") {
                d.proxy.mode = Mode::Tcp;
                return Ok(());
            }
            if let Some(word) = a.peek().filter(|word| word.text == "log") {
                let hint = "several 'log' lines with 'sample' share messages among receivers, and the servers of a 'ring' have a copy each";
                return a.wrong(word, "backends that balance log messages (mode 'log') do not exist here", hint);
            }
            let refused = ["health", "syslog", "spop", "haterm"];
            if let Some(word) = a.peek().filter(|w| refused.contains(&w.text.as_str())) {
                let instead = if word.text == "health" {
                    "write 'mode http' and 'http-request return status 200'"
                } else {
                    "expected 'http' or 'tcp'"
                };
                return a.wrong(word, format!("mode '{}' is not supported", word.text), instead);
            }
            d.proxy.mode = a.choice("a mode", &[("http", Mode::Http), ("tcp", Mode::Tcp)])?;
            Ok(())
        },
    ),
    Entry::new("bind", SOME, "Addresses to listen on, and how", |d, a| {
        let bind = bind::parse(a)?;
        d.proxy.binds.push(bind);
        Ok(())
    })
    .at(FRONT_ONLY),
    Entry::new("dispatch", ONE, "The address of the only server, which has no name", server::dispatch).at(BACK_ONLY),
    Entry::new("server", at_least(2), "A server: its name, address and settings", server::server).at(BACK_ONLY),
    Entry::new("server-template", at_least(3), "Several servers that share one address or name", server::template)
        .at(BACK_ONLY),
    Entry::new("default-server", ANYTHING, "Settings of the servers that follow", server::default_server).at(BACK),
    Entry::new("default_backend", ONE, "The backend where no use_backend rule applies", |d, a| {
        d.proxy.default_backend = Some(a.word("the name of a backend")?.clone());
        Ok(())
    })
    .at(FRONT),
    Entry::new("id", ONE, "Number of the proxy in statistics", |d, a| {
        a.only_once(d.proxy.id.is_some())?;
        d.proxy.id = Some(a.number("a proxy's number", 1..=i32::MAX as u32)?);
        Ok(())
    })
    .at(ANY),
    Entry::new("guid", ONE, "A unique name under which counters outlive the process", |d, a| {
        d.proxy.guid = Some(a.guid()?);
        Ok(())
    })
    .at(ANY),
    Entry::new("description", SOME, "Free text shown on the statistics page", |d, a| {
        d.proxy.description = Some(joined(a));
        Ok(())
    })
    .at(ANY),
    Entry::new("disabled", NONE, "The proxy takes no traffic", |d, _| {
        d.proxy.disabled = true;
        Ok(())
    }),
    Entry::new("enabled", NONE, "Undoes 'disabled' of the defaults", |d, _| {
        d.proxy.disabled = false;
        Ok(())
    }),
    Entry::new("maxconn", ONE, "Largest number of concurrent connections", |d, a| {
        d.proxy.maxconn = Some(a.number("a number of connections", 0..=i32::MAX as u32)?);
        Ok(())
    })
    .at(FRONT),
    Entry::new("backlog", ONE, "Number of connections that the system may queue before they are accepted", |d, a| {
        d.proxy.backlog = Some(a.number("a number of connections", 0..=i32::MAX as u32)?);
        Ok(())
    })
    .at(FRONT),
    Entry::new("fullconn", ONE, "The load at which servers get their whole maxconn", |d, a| {
        d.proxy.fullconn = Some(a.number("a number of connections", 0..=i32::MAX as u32)?);
        Ok(())
    })
    .at(BACK),
    Entry::new("rate-limit sessions", ONE, "Largest number of new sessions per second", |d, a| {
        d.proxy.rate_limit_sessions = Some(a.number("a number of sessions a second", 0..=i32::MAX as u32)?);
        Ok(())
    })
    .spare()
    .at(FRONT),
    Entry::new("retries", ONE, "How often a failed connection to a server is tried again", |d, a| {
        d.proxy.retries = a.number("a number of tries", 0..=i32::MAX as u32)?;
        Ok(())
    })
    .at(BACK),
    Entry::new("retry-on", SOME, "Which failures are tried again", retry_on).at(BACK),
    Entry::new("http-reuse", ONE, "Which idle server connections may serve other clients", |d, a| {
        d.proxy.http_reuse = a.choice(
            "a reuse mode",
            &[
                ("never", HttpReuse::Never),
                ("safe", HttpReuse::Safe),
                ("aggressive", HttpReuse::Aggressive),
                ("always", HttpReuse::Always),
            ],
        )?;
        Ok(())
    })
    .at(BACK),
    Entry::new("monitor-uri", ONE, "A path answered with 200 by the proxy itself", |d, a| {
        d.proxy.monitor_uri = Some(a.text("a path")?);
        Ok(())
    })
    .at(FRONT),
    Entry::new("monitor fail", at_least(2), "When monitor-uri answers 503", |d, a| {
        let first = a.word("'if' or 'unless'")?;
        if !matches!(first.text.as_str(), "if" | "unless") {
            return a.wrong(first, format!("'{}' is not a condition", first.text), "expected 'if' or 'unless'");
        }
        a.next = 0;
        d.proxy.monitor_fail.push(a.rest());
        Ok(())
    })
    .at(FRONT_ONLY),
    Entry::new("errorfile", exactly(2), "File sent for a status that the proxy itself produces", |d, a| {
        let (code, file) = errorfile(a)?;
        d.error_pages.push(ErrorPages::File(code, file));
        Ok(())
    }),
    Entry::new("errorfiles", SOME, "Error files from an http-errors section", |d, a| {
        let name = a.word("the name of an http-errors section")?.clone();
        let mut codes = Vec::new();
        while a.peek().is_some() {
            codes.push(status(a)?);
        }
        d.error_pages.push(ErrorPages::Section(name, codes));
        Ok(())
    }),
    Entry::new("errorloc", exactly(2), "Redirects (302) where the proxy would send an error", |d, a| {
        errorloc(d, a, 302)
    }),
    Entry::new("errorloc302", exactly(2), "Redirects (302) where the proxy would send an error", |d, a| {
        errorloc(d, a, 302)
    }),
    Entry::new("errorloc303", exactly(2), "Redirects (303) where the proxy would send an error", |d, a| {
        errorloc(d, a, 303)
    }),
    Entry::new("http-error", at_least(2), "An error page from a file or a string, with headers", |d, a| {
        a.choice("the word 'status'", &[("status", ())])?;
        let code = status(a)?;
        a.next = 0;
        d.error_pages.push(ErrorPages::Reply(code, a.rest()));
        Ok(())
    }),
    Entry::new("source", SOME, "The address that connections to servers come from", |d, a| {
        d.proxy.source = Some(server::source(a, false)?);
        a.unexpected(&["usesrc", "interface"])
    })
    .at(BACK),
    Entry::new("http-send-name-header", ONE, "Tells the server its own name in this header", |d, a| {
        d.proxy.http_send_name_header = a.take().map(|word| word.text.clone());
        Ok(())
    })
    .spare()
    .at(BACK),
    Entry::new("load-server-state-from-file", ONE, "Which file the servers' states are read from at start", |d, a| {
        let kind = a.choice("a kind of state file", &[("global", "global"), ("local", "local"), ("none", "none")])?;
        d.proxy.load_server_state = Some(kind.to_owned());
        Ok(())
    })
    .at(BACK),
    Entry::new("server-state-file-name", between(0, 1), "The file for 'load-server-state-from-file local'", |d, a| {
        d.proxy.server_state_file_name = match a.take() {
            Some(word) if word.text != "use-backend-name" => Some(word.text.clone()),
            _ => None,
        };
        Ok(())
    })
    .at(BACK),
];

pub(super) fn joined(args: &mut Args<'_>) -> String {
    let words: Vec<_> = args.rest().words.into_iter().map(|w| w.text).collect();
    words.join(" ")
}

fn retry_on(draft: &mut Draft, args: &mut Args<'_>) -> Parsed {
    const EVENTS: &[&str] = &[
        "none",
        "conn-failure",
        "empty-response",
        "junk-response",
        "response-timeout",
        "0rtt-rejected",
        "all-retryable-errors",
    ];
    const CODES: &[&str] = &["401", "403", "404", "408", "421", "425", "429", "500", "501", "502", "503", "504"];
    let words = args.rest().words;
    for word in &words {
        if !EVENTS.contains(&word.text.as_str()) && !CODES.contains(&word.text.as_str()) {
            let hint = crate::args::expected(&word.text, EVENTS.iter().chain(CODES).copied());
            return args.wrong(word, format!("'{}' is not a failure to retry on", word.text), hint);
        }
    }
    if words.len() > 1 && words.iter().any(|w| w.text == "none") {
        args.error("'retry-on none' cannot be combined with other failures");
        return Err(Reported);
    }
    draft.proxy.retry_on = Some(words);
    Ok(())
}

fn errorloc(draft: &mut Draft, args: &mut Args<'_>, with: u16) -> Parsed {
    let code = status(args)?;
    let url = args.text("a URL")?;
    draft.error_pages.push(ErrorPages::Location(code, with, url));
    Ok(())
}

/// A path as it will be opened: relative to `base`, if there is one.
pub(crate) fn based(base: Option<&PathBuf>, path: Spanned<PathBuf>) -> Spanned<PathBuf> {
    match base {
        Some(base) if path.value.is_relative() => Spanned { value: base.join(&path.value), span: path.span },
        _ => path,
    }
}
