//! Settings of the process: its user, directory and threads, and what it reports.

use crate::{
    address,
    args::{Args, Parsed, Reported},
    bind::octal,
    cpu_map,
    keyword::{ANYTHING, Keyword, NONE, ONE, SOME, at_least, between, exactly},
    model::{Account, Global, SeverityOutput, StatsLevel, StatsSocket, Statuses},
    proxy::log_target,
    span::Spanned,
    surroundings::DefaultPath,
    values::{switch, threads, time},
};
use std::path::PathBuf;

type Entry = Keyword<Global>;

pub(super) const KEYWORDS: &[Entry] = &[
    Entry::new("daemon", NONE, "Goes to the background", |g, _| {
        g.daemon = true;
        Ok(())
    }),
    Entry::new("master-worker", between(0, 1), "A master process watches the worker", |g, a| {
        g.no_exit_on_failure |= a.take_if("no-exit-on-failure");
        a.unexpected(&["no-exit-on-failure"])?;
        g.master_worker = true;
        Ok(())
    }),
    Entry::new("nbthread", ONE, "Number of worker threads", |g, a| {
        g.nbthread = Some(a.number("a number of threads", 1..=cpu_map::THREADS_MAX)?);
        Ok(())
    }),
    Entry::refused(
        "nbproc",
        "Number of processes",
        "HAProxy 2.5 removed it, since one process with threads does the same work and shares its state",
        "write 'nbthread' with the number of CPUs, or leave it out to use them all",
    ),
    Entry::new("cpu-map", at_least(2), "Binds threads to CPUs", cpu_map::parse),
    Entry::new("user", ONE, "The user to become", |g, a| {
        let Spanned { value, span } = a.spanned("a user")?;
        g.user = Some(Spanned { value: Account::Name(value), span });
        Ok(())
    }),
    Entry::new("uid", ONE, "The user to become, by number", |g, a| {
        let span = a.peek().map_or(a.span, |w| w.span);
        let value = Account::Id(a.number("a user's number", 0..=u32::MAX)?);
        g.user = Some(Spanned { value, span });
        Ok(())
    }),
    Entry::new("setcap", ONE, "Capabilities that the process keeps when it becomes another user", |g, a| {
        let word = a.word("a list of capabilities")?;
        for name in word.text.split(',') {
            let Some(known) = CAPABILITIES.iter().find(|known| **known == name) else {
                let hint = format!("they are {}", CAPABILITIES.join(", "));
                return a.wrong(word, format!("'{name}' is none of the capabilities that can be kept"), hint);
            };
            if !g.capabilities.contains(known) {
                g.capabilities.push(known);
            }
        }
        Ok(())
    }),
    Entry::new("group", ONE, "The group to become", |g, a| {
        let Spanned { value, span } = a.spanned("a group")?;
        g.group = Some(Spanned { value: Account::Name(value), span });
        Ok(())
    }),
    Entry::new("gid", ONE, "The group to become, by number", |g, a| {
        let span = a.peek().map_or(a.span, |w| w.span);
        let value = Account::Id(a.number("a group's number", 0..=u32::MAX)?);
        g.group = Some(Spanned { value, span });
        Ok(())
    }),
    Entry::new("chroot", ONE, "Directory to which the process is confined", |g, a| {
        let Spanned { value, span } = a.spanned("a directory")?;
        g.chroot = Some(Spanned { value: PathBuf::from(value), span });
        Ok(())
    }),
    Entry::new("http-err-codes", SOME, "Servers' statuses that count as errors: 400 to 499 by default", |g, a| {
        let usual = Statuses::of(|status| g.is_http_error(status));
        status_codes(g.http_err_codes.get_or_insert(usual), a)
    }),
    Entry::new(
        "http-fail-codes",
        SOME,
        "Servers' statuses that count as failures: 500 to 599 without 501 and 505 by default",
        |g, a| {
            let usual = Statuses::of(|status| g.is_http_failure(status));
            status_codes(g.http_fail_codes.get_or_insert(usual), a)
        },
    ),
    Entry::accepted(
        "prealloc-fd",
        NONE,
        "Has the kernel make room for all file descriptors at start",
        "the kernel makes room as descriptors are opened",
    ),
    Entry::new("pidfile", ONE, "File to which the process id is written", |g, a| {
        g.pidfile = Some(PathBuf::from(a.text("a file")?));
        Ok(())
    }),
    Entry::new("log", SOME, "Where log lines go", |g, a| {
        if a.negated {
            a.rest();
            g.logs.clear();
            return Ok(());
        }
        if let Some(word) = a.peek().filter(|w| w.text == "global") {
            return a.wrong(word, "'log global' means the targets of this section", "give the address of a log");
        }
        let target = log_target(a)?;
        g.logs.push(target);
        Ok(())
    })
    .no(),
    Entry::new("log-tag", ONE, "The tag of syslog lines", |g, a| {
        g.log_tag = Some(a.text("a tag")?);
        Ok(())
    }),
    Entry::new("log-send-hostname", between(0, 1), "Syslog lines carry the host's name, or this one", |g, a| {
        g.log_send_hostname = Some(a.take().map(|w| w.text.clone()));
        Ok(())
    })
    .spare(),
    Entry::new("node", ONE, "The node's name on the statistics page", |g, a| {
        let name = a.word("a name")?;
        if !name.text.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-' | b'_')) {
            let message = format!("'{}' cannot name a node", name.text);
            return a.wrong(name, message, "use letters, digits, '.', '-' and '_'");
        }
        g.node = Some(name.text.clone());
        Ok(())
    }),
    Entry::new("description", SOME, "Free text on the statistics page", |g, a| {
        let words: Vec<_> = a.rest().words.into_iter().map(|w| w.text).collect();
        g.description = Some(words.join(" "));
        Ok(())
    }),
    Entry::new("localpeer", ONE, "Name of this process among peers", |g, a| {
        let name = a.text("a name")?;
        let (span, named, late) = (a.span, a.around.named_peer, a.around.has_peers);
        if named || late {
            let why = if named { "'-L' names this peer" } else { "a 'peers' section comes before it" };
            a.diagnostics()
                .warning(span, format!("'localpeer' is ignored: {why}"))
                .hint("remove one of the two, or move it up");
            return Ok(());
        }
        a.around.variables.insert("HAPROXY_LOCALPEER".into(), name.clone());
        g.localpeer = Some(name);
        Ok(())
    }),
    Entry::new(
        "stats socket",
        SOME,
        "A socket for the runtime API, from which a new process also gets the listening sockets",
        stats_socket,
    ),
    Entry::new("stats timeout", ONE, "Longest inactivity on a stats socket", |g, a| {
        g.stats_timeout = Some(a.time_above_zero("a timeout of zero would end each conversation at once")?);
        Ok(())
    })
    .spare(),
    Entry::new("stats maxconn", ONE, "Largest number of connections to stats sockets", |g, a| {
        g.stats_maxconn = Some(a.number("a number of connections", 1..=i32::MAX as u32)?);
        Ok(())
    })
    .spare(),
    Entry::accepted("stats bind-process", SOME, "Which processes serve it", "there is one process"),
    Entry::new("hard-stop-after", ONE, "Longest time that connections get to finish in a soft stop", |g, a| {
        g.hard_stop_after = Some(a.time("a time")?);
        Ok(())
    })
    .spare(),
    Entry::new("grace", ONE, "Time between the request for a soft stop and the stop", |g, a| {
        g.grace = Some(a.time("a time")?);
        Ok(())
    })
    .spare(),
    Entry::new("close-spread-time", ONE, "Period over which a stopping process closes its idle connections", |_, a| {
        if a.take_if("infinite") { Ok(()) } else { a.time("a time, or 'infinite'").map(drop) }
    })
    .notice("idle connections are closed at once")
    .spare(),
    Entry::new("stats-file", ONE, "A file from 'dump stats-file' with the values at which counters start", |g, a| {
        g.stats_file = Some(a.path("a file")?);
        Ok(())
    }),
    Entry::new("runtime-changes-file", ONE, "Where changes made at run time are kept for the next process", |g, a| {
        g.runtime_changes_file = Some(a.path("a file")?);
        Ok(())
    }),
    Entry::new("server-state-file", ONE, "File from which servers' states are loaded at start", |g, a| {
        g.server_state_file = Some(PathBuf::from(a.text("a file")?));
        Ok(())
    }),
    Entry::new("server-state-base", ONE, "Directory of server state files given by relative paths", |g, a| {
        g.server_state_base = Some(PathBuf::from(a.text("a directory")?));
        Ok(())
    }),
    Entry::new(
        "default-path",
        between(1, 2),
        "Directory that relative paths in the configuration start from",
        |g, a| {
            let origin = a.peek().is_some_and(|w| w.text == "origin");
            let path =
                match a.choice("a starting point", &[("current", 0), ("config", 1), ("parent", 2), ("origin", 3)])? {
                    0 => DefaultPath::Current,
                    1 => DefaultPath::Config,
                    2 => DefaultPath::Parent,
                    _ => {
                        let Spanned { value, span } = a.spanned("a directory")?;
                        g.default_path_origins.push(Spanned { value: PathBuf::from(&value), span });
                        DefaultPath::Origin(PathBuf::from(value))
                    }
                };
            if !origin {
                a.unexpected(&[])?;
            }
            a.around.default_path = path;
            Ok(())
        },
    ),
    Entry::new("h1-case-adjust", exactly(2), "Letter case in which one header field's name is sent", |g, a| {
        let (from, to) = (a.word("a header's name in lower case")?, a.word("the name as sent")?);
        if !from.text.eq_ignore_ascii_case(&to.text) {
            return a.wrong(
                to,
                format!("'{}' is another name than '{}'", to.text, from.text),
                "only the case may differ",
            );
        }
        if from.text.chars().any(|c| c.is_ascii_uppercase()) {
            let message = format!("'{}' is not in lower case: no name is ever equal to it", from.text);
            a.around.diagnostics.warning(from.span, message);
        }
        if g.h1_case_adjust.iter().any(|(earlier, _)| *earlier == from.text) {
            return a.wrong(from, format!("the case of '{}' is given twice", from.text), "remove one of the two lines");
        }
        g.h1_case_adjust.push((from.text.clone(), to.text.clone()));
        Ok(())
    }),
    Entry::new("h1-case-adjust-file", ONE, "A file with the letter case of header field names", |g, a| {
        g.h1_case_adjust_file = Some(a.path("a file")?);
        Ok(())
    }),
    Entry::new("expose-experimental-directives", NONE, "Allows experimental keywords", |g, _| {
        g.experimental = true;
        Ok(())
    })
    .spare(),
    Entry::accepted(
        "expose-deprecated-directives",
        NONE,
        "Allows deprecated keywords",
        "deprecated keywords are always allowed",
    ),
    Entry::new(
        "set-dumpable",
        between(0, 1),
        "Allows core dumps of any size, after a change of user as well",
        |g, a| {
            g.dumpable = match a.peek() {
                // Of a later version.
                Some(_) => a.choice("a kind of core dump", &[("on", true), ("off", false), ("libs", true)])?,
                None => a.on(),
            };
            Ok(())
        },
    )
    .no(),
    Entry::accepted(
        "quick-exit",
        NONE,
        "Ends the process without releasing its memory first",
        "it always ends like this",
    ),
    Entry::accepted("quiet", NONE, "Suppresses messages at startup", "use the command line's -q"),
    Entry::new("zero-warning", NONE, "The process does not start if there are warnings", |g, _| {
        g.zero_warning = true;
        Ok(())
    }),
    Entry::new("insecure-fork-wanted", NONE, "The process may start programs, for 'option external-check'", |g, a| {
        g.may_start_programs = a.on();
        Ok(())
    })
    .no(),
    Entry::accepted(
        "insecure-setuid-wanted",
        NONE,
        "Lets external programs gain privileges",
        "the programs of checks never gain any",
    ),
    Entry::new("mworker-max-reloads", ONE, "Number of reloads that an old worker survives", |g, a| {
        g.mworker_max_reloads = Some(a.number("a number of reloads", 0..=i32::MAX as u32)?);
        Ok(())
    }),
    Entry::accepted("numa-cpu-mapping", NONE, "Binds threads to one NUMA node", "use 'cpu-map'").spare().no(),
    Entry::accepted("cpu-set", SOME, "The CPUs that threads may use", "use 'cpu-map'"),
    Entry::accepted("cpu-policy", SOME, "Policy by which CPUs are chosen for threads", "use 'cpu-map'"),
    Entry::new("thread-groups", ONE, "Number of thread groups", |_, a| a.number("a number", 1..=16).map(drop))
        .notice("all threads are one group"),
    Entry::new("thread-group", SOME, "The threads that form a group", |g, a| {
        a.number("the number of a group", 1..=16)?;
        while a.peek().is_some() {
            threads(g, a)?;
        }
        Ok(())
    })
    .notice("all threads are one group"),
    Entry::new("thread-hard-limit", ONE, "Upper limit of the number of threads", |_, a| {
        a.number("a number", 1..=i64::from(i32::MAX)).map(drop)
    })
    .notice("use 'nbthread'"),
    Entry::new("unix-bind", SOME, "Where the listening unix sockets of 'bind' lines are, and whose", unix_bind),
    Entry::accepted(
        "cluster-secret",
        ONE,
        "A secret shared by the machines of a cluster",
        "nothing is derived from it yet",
    ),
    Entry::accepted(
        "pp2-never-send-local",
        NONE,
        "Sends PROXY rather than LOCAL headers in health checks",
        "health checks send LOCAL headers",
    ),
    Entry::new("external-check", between(0, 1), "Servers may be checked by programs", |g, a| {
        // Of a later version: the program gets the environment of the process too.
        let preserve = match a.take() {
            None => false,
            Some(word) if word.text == "preserve-env" => true,
            Some(word) => {
                return a.wrong(word, format!("'{}' is not expected", word.text), "only 'preserve-env' may follow");
            }
        };
        g.external_check = Some(preserve);
        Ok(())
    }),
    Entry::accepted(
        "h1-accept-payload-with-any-method",
        NONE,
        "Accepts a body with methods such as GET",
        "such bodies are always accepted",
    ),
    Entry::accepted(
        "h1-do-not-close-on-insecure-transfer-encoding",
        NONE,
        "Keeps connections whose messages have both Transfer-Encoding and Content-Length",
        "such connections are closed",
    ),
    Entry::new(
        "h2-workaround-bogus-websocket-clients",
        NONE,
        "WebSockets over HTTP/2 are not offered to clients",
        |g, _| {
            g.h2_no_websockets = true;
            Ok(())
        },
    ),
    Entry::accepted("httpclient.resolvers.id", ONE, "The resolvers section that the HTTP client uses", NO_CLIENT),
    Entry::new("httpclient.resolvers.prefer", ONE, "Address family that the HTTP client prefers", |_, a| {
        a.choice("a family", &[("ipv4", ()), ("ipv6", ())])
    })
    .notice(NO_CLIENT),
    Entry::new("httpclient.resolvers.disabled", ONE, "Disables name resolution in the HTTP client", |_, a| {
        a.choice("a switch", &[("on", ()), ("off", ())])
    })
    .notice(NO_CLIENT),
    Entry::accepted("httpclient.retries", ONE, "Number of attempts of the HTTP client", NO_CLIENT),
    Entry::accepted("httpclient.ssl.ca-file", ONE, "Certificate authorities that the HTTP client trusts", NO_CLIENT),
    Entry::new("httpclient.ssl.verify", ONE, "Whether the HTTP client verifies servers' certificates", |_, a| {
        a.choice("a way to verify", &[("none", ()), ("required", ())])
    })
    .notice(NO_CLIENT),
    Entry::new("httpclient.timeout.connect", ONE, "Connect timeout of the HTTP client", time).notice(NO_CLIENT),
    Entry::accepted("dns-accept-family", ONE, "Address families accepted from DNS", "use 'resolve-prefer' on servers"),
    Entry::new("harden.reject-privileged-ports.tcp", ONE, "Rejects clients whose source port is below 1024", |g, a| {
        g.reject_privileged_ports = a.choice("a switch", &[("on", true), ("off", false)])?;
        Ok(())
    }),
    Entry::new("harden.reject-privileged-ports.quic", ONE, "Rejects clients whose source port is below 1024", switch)
        .notice("QUIC is not served"),
    Entry::accepted(
        "force-cfg-parser-pause",
        ONE,
        "Pauses while the configuration is read",
        "the configuration is read without pauses",
    ),
    Entry::new("warn-blocked-traffic-after", ONE, "Time after which blocked traffic is reported", |_, a| {
        let word = a.peek();
        match (a.time("a time")?.as_millis(), word) {
            (1..=1000, _) | (_, None) => Ok(()),
            (_, Some(word)) => a.wrong(word, format!("'{}' is not such a time", word.text), "expected 1ms to 1s"),
        }
    })
    .notice("the watchdog's own time counts"),
    Entry::new("anonkey", ONE, "Key with which dumps hide names and addresses", |_, a| {
        a.number("a number", 0..=i64::from(u32::MAX)).map(drop)
    })
    .notice("dumps are not anonymised"),
    Entry::accepted(
        "limited-quic",
        NONE,
        "Enables QUIC with a TLS library that supports it only in part",
        "QUIC is not served",
    ),
    Entry::accepted("no-quic", NONE, "Disables QUIC", "QUIC is not served"),
    Entry::accepted("presetenv-file", ONE, "Sets environment variables from a file", "use 'presetenv'"),
    lua("lua-load"),
    lua("lua-load-per-thread"),
    lua("lua-prepend-path"),
    detection("51degrees-cache-size"),
    detection("51degrees-data-file"),
    detection("51degrees-property-name-list"),
    detection("51degrees-property-separator"),
    detection("51degrees-difference"),
    detection("51degrees-allow-unmatched"),
    detection("51degrees-drift"),
    detection("51degrees-use-performance-graph"),
    detection("51degrees-use-predictive-graph"),
    detection("deviceatlas-json-file"),
    detection("deviceatlas-log-level"),
    detection("deviceatlas-properties-cookie"),
    detection("deviceatlas-separator"),
    detection("wurfl-cache-size"),
    detection("wurfl-data-file"),
    detection("wurfl-information-list"),
    detection("wurfl-information-list-separator"),
    detection("wurfl-patch-file"),
    detection("wurfl-engine-mode"),
    detection("wurfl-useragent-priority"),
];

/// Reads `400,402-444`, which replaces a set, `+500`, which extends it, and `-450-459`, which takes away from it.
/// The capabilities that `setcap` knows.
const CAPABILITIES: [&str; 4] = ["cap_net_raw", "cap_net_admin", "cap_net_bind_service", "cap_sys_admin"];

fn status_codes(set: &mut Statuses, a: &mut Args<'_>) -> Parsed {
    while let Some(word) = a.take() {
        let (ranges, member) = match word.text.as_bytes()[..] {
            [b'+', ..] => (&word.text[1..], true),
            [b'-', ..] => (&word.text[1..], false),
            _ => {
                *set = Statuses::of(|_| false);
                (&word.text[..], true)
            }
        };
        for range in ranges.split(',') {
            let (low, high) = range.split_once('-').unwrap_or((range, range));
            let number = |text: &str| {
                let (first, last) = Statuses::BOUNDS;
                text.parse().ok().filter(|status| (first..=last).contains(status))
            };
            match (number(low), number(high)) {
                (Some(low), Some(high)) if low <= high => (low..=high).for_each(|status| set.set(status, member)),
                _ => {
                    let message = format!("'{range}' is not a range of statuses from 100 to 599");
                    return a.wrong(word, message, "for instance 400-499, -404 or +500");
                }
            }
        }
    }
    Ok(())
}

const NO_CLIENT: &str = "there is no internal HTTP client";

const fn lua(name: &'static str) -> Entry {
    Entry::refused(
        name,
        "Lua scripts",
        "Lua is not supported, and rules that rely on a script must not be skipped in silence",
        "write the rule with 'http-request' actions and converters, or remove it",
    )
}

const fn detection(name: &'static str) -> Entry {
    Entry::accepted(name, ANYTHING, "Device detection", "device detection is not supported; its fetches are refused")
}

/// A user or group, by name or by number.
fn account(args: &mut Args<'_>, is_name: bool, name: &str, number: &str) -> Result<Account, Reported> {
    Ok(if is_name { Account::Name(args.text(name)?) } else { Account::Id(args.number(number, 0..=u32::MAX)?) })
}

/// What `bind` lines from here on start from; `stats socket` does not.
fn unix_bind(global: &mut Global, args: &mut Args<'_>) -> Parsed {
    const KNOWN: [&str; 6] = ["prefix", "mode", "user", "uid", "group", "gid"];
    while let Some(word) = args.take() {
        match word.text.as_str() {
            "prefix" => {
                let prefix = args.text("a directory")?;
                if args.around.unix_bind.prefix.is_some() {
                    args.diagnostics().warning(word.span, "'prefix' is given already, and the first one counts");
                } else {
                    args.around.unix_bind.prefix = Some(prefix);
                }
            }
            "mode" => args.around.unix_bind.mode = Some(octal(args)?),
            "user" | "uid" => {
                let value = account(args, word.text == "user", "a user", "a user's number")?;
                args.around.unix_bind.user = Some(value.clone());
                global.unix_bind_user = Some(Spanned { value, span: word.span });
            }
            "group" | "gid" => {
                let value = account(args, word.text == "group", "a group", "a group's number")?;
                args.around.unix_bind.group = Some(value.clone());
                global.unix_bind_group = Some(Spanned { value, span: word.span });
            }
            other => {
                let hint = crate::args::expected(other, KNOWN.into_iter());
                return args.wrong(word, format!("'{other}' is not a setting of unix sockets"), hint);
            }
        }
    }
    Ok(())
}

/// Parses `ADDRESS SETTINGS...` after `stats socket`.
fn stats_socket(global: &mut Global, args: &mut Args<'_>) -> Parsed {
    const KNOWN: &[&str] = &[
        "mode",
        "user",
        "uid",
        "group",
        "gid",
        "level",
        "severity-output",
        "expose-fd",
        "process",
        "thread",
        "name",
        "maxconn",
    ];
    let word = args.word("an address")?;
    let address = address::listen(args, word, &word.text)?;
    let mut socket = StatsSocket {
        address,
        mode: None,
        user: None,
        group: None,
        level: StatsLevel::Operator,
        severity_output: SeverityOutput::None,
        expose_fd_listeners: false,
        span: args.span,
    };
    while let Some(word) = args.take() {
        match word.text.as_str() {
            "mode" => socket.mode = Some(octal(args)?),
            "user" => socket.user = Some(Account::Name(args.text("a user")?)),
            "uid" => socket.user = Some(Account::Id(args.number("a user's number", 0..=u32::MAX)?)),
            "group" => socket.group = Some(Account::Name(args.text("a group")?)),
            "gid" => socket.group = Some(Account::Id(args.number("a group's number", 0..=u32::MAX)?)),
            "level" => {
                let levels =
                    [("user", StatsLevel::User), ("operator", StatsLevel::Operator), ("admin", StatsLevel::Admin)];
                socket.level = args.choice("a level", &levels)?;
            }
            "expose-fd" => {
                args.choice("what to expose", &[("listeners", ())])?;
                socket.expose_fd_listeners = true;
            }
            "severity-output" => {
                let outputs = [
                    ("none", SeverityOutput::None),
                    ("number", SeverityOutput::Number),
                    ("string", SeverityOutput::Text),
                ];
                socket.severity_output = args.choice("how to write severities", &outputs)?;
            }
            "process" | "thread" | "name" | "maxconn" | "backlog" | "nice" | "id" => {
                args.word("a value")?;
                let why = match word.text.as_str() {
                    "process" | "thread" | "nice" => "commands are answered by a thread of their own",
                    "maxconn" => "'stats maxconn' bounds the clients of all these sockets",
                    "backlog" => "the system's own queue is used",
                    _ => "there is no such place for it: 'show cli sockets' names sockets by their addresses",
                };
                args.diagnostics().notice(word.span, format!("'{}' has no effect on a stats socket: {why}", word.text));
            }
            "accept-proxy" | "ssl" | "crt" => {
                return args.wrong(word, format!("'{}' is not supported on a stats socket", word.text), "remove it");
            }
            _ => {
                args.next -= 1;
                args.unexpected(KNOWN)?;
                return Err(Reported);
            }
        }
    }
    global.stats_sockets.push(socket);
    Ok(())
}
