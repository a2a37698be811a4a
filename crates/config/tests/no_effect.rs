//! Words that are read and do nothing say so: each of the tables' rows without effect, in a configuration of its own.

use penstock_config::{
    Env, Places, Severity, Source, Support, load,
    manual::{self, Entry},
};

/// Values of every kind that the rows take.
const VALUES: &[&str] = &[
    "1",
    "a",
    "10s",
    "on",
    "admin",
    "string",
    "/dev/null",
    "127.0.0.1:1",
    "1k",
    "a 1",
    "1 1",
    "a b",
    "a 127.0.0.1:1",
    "a b c",
    "all 0-1",
    "sc0 src",
    "ssl",
    "http",
    "type string len 8 size 1k",
    "TLSv1.2",
    "src",
    "str(a)",
    "a if TRUE",
    "if TRUE",
    "proc.x int(1)",
    "global",
    "reject",
    "always",
    "h2",
    "ipv4",
    "2048",
    "by-thread",
    "listeners",
    "id",
    "mode 600",
    "none",
    "rdhup",
    "connection",
    "down",
    "allow-dup-ip",
    "127.0.0.0/8",
];

/// A configuration with that row as its only line that matters.
fn sample(entry: &Entry, values: &str) -> String {
    let line = format!("{} {values}", entry.name);
    match entry.section {
        "proxy" => {
            let kinds =
                [(Places::LISTEN, "listen l"), (Places::FRONTEND, "frontend l"), (Places::BACKEND, "backend l")];
            let kind = kinds.iter().find(|(place, _)| entry.places.has(*place)).map_or("defaults d", |(_, kind)| *kind);
            format!("{kind}\n {line}\n")
        }
        "bind" => format!("listen l\n bind 127.0.0.1:1 {line}\n"),
        "server" => format!("listen l\n server s 127.0.0.1:1 {line}\n"),
        "global" => format!("global\n {line}\n"),
        "traces" => format!("traces\n {line}\n"),
        section => format!("{section} s\n {line}\n"),
    }
}

fn says_so(entry: &Entry, values: &str) -> bool {
    let source = Source::new("one.cfg", sample(entry, values).as_bytes());
    let (_, found) = load([source], &Env::default());
    let wanted = format!("'{}' has no effect", entry.name);
    found.list.iter().any(|d| d.severity == Severity::Notice && d.message.starts_with(&wanted))
}

#[test]
fn every_word_without_effect_says_so() {
    let rows: Vec<Entry> =
        manual::keywords().into_iter().filter(|e| matches!(e.support, Support::Accepted(_))).collect();
    assert!(rows.len() > 200, "only {} rows", rows.len());
    let silent = |e: &&Entry| !(says_so(e, "") || VALUES.iter().any(|values| says_so(e, values)));
    let wrong: Vec<String> = rows.iter().filter(silent).map(|e| format!("{} {}", e.section, e.name)).collect();
    assert!(wrong.is_empty(), "{} of {} print no notice:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}
