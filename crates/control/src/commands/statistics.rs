//! Counters of the process and of its proxies.

use super::Command;
use crate::{Args, Entry};

/// A question about counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statistics {
    /// Those of the process.
    Info(InfoFormat),
    /// Those of proxies and servers.
    Stat(Format, Rows),
    /// What the JSON of the others looks like.
    Schema,
    /// The counters that a later process can begin with.
    StatsFile,
}

/// How fields are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// As a table, or `name: value`.
    #[default]
    Plain,
    /// A line each, with number, name, tags, type and value.
    Typed,
    /// JSON.
    Json,
}

/// What `show info` writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InfoFormat {
    /// How.
    pub format: Format,
    /// With what each field means.
    pub described: bool,
    /// Times with their fractions.
    pub float: bool,
}

/// Which rows `show stat` writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The name or the number of a proxy.
    pub proxy: Option<String>,
    /// Kinds: 1 frontends, 2 backends, 4 servers, 8 listeners.
    pub kinds: u32,
    /// The number of a server or listener.
    pub sid: Option<u32>,
    /// With what each field means.
    pub described: bool,
    /// No servers in maintenance.
    pub no_maint: bool,
    /// Only servers that are up.
    pub up: bool,
}

impl Default for Rows {
    fn default() -> Rows {
        Rows { proxy: None, kinds: u32::MAX, sid: None, described: false, no_maint: false, up: false }
    }
}

pub(crate) const ENTRIES: &[Entry] = &[
    Entry::new("dump stats-file", "dump stats-file", "dump counters for 'stats-file' to begin with", |_| {
        Ok(Command::Statistics(Statistics::StatsFile))
    }),
    Entry::new(
        "show info",
        "show info [desc|json|typed|float]*",
        "report information about the running process",
        |args| {
            let mut info = InfoFormat::default();
            for word in args.rest() {
                match word.as_str() {
                    "desc" => info.described = true,
                    "float" => info.float = true,
                    word => info.format = format(word).unwrap_or(info.format),
                }
            }
            Ok(Command::Statistics(Statistics::Info(info)))
        },
    ),
    Entry::new("show schema json", "show schema json", "report schema used for stats", |_| {
        Ok(Command::Statistics(Statistics::Schema))
    }),
    Entry::new(
        "show stat",
        "show stat [desc|json|no-maint|typed|up]*",
        "report counters for each proxy and server",
        |args| {
            let mut rows = selected(args);
            let mut shape = Format::default();
            for word in args.rest() {
                match word.as_str() {
                    "desc" => rows.described = true,
                    "no-maint" => rows.no_maint = true,
                    "up" => rows.up = true,
                    word => shape = format(word).unwrap_or(shape),
                }
            }
            Ok(Command::Statistics(Statistics::Stat(shape, rows)))
        },
    ),
];

/// What the words do not know is passed over, as HAProxy does.
fn format(word: &str) -> Option<Format> {
    match word {
        "json" => Some(Format::Json),
        "typed" => Some(Format::Typed),
        _ => None,
    }
}

/// `PROXY KINDS SERVER` at the beginning, where all three are there.
fn selected(args: &mut Args) -> Rows {
    let mut words = args.rest();
    let mut rows = Rows::default();
    if words.len() >= 3 {
        let rest = words.split_off(3);
        // A number that is none counts as 0, less than 0 as all, as in C.
        let number = |word: &str| word.parse::<i64>().unwrap_or(0);
        rows.proxy = Some(words[0].clone()).filter(|word| word != "-1");
        rows.kinds = u32::try_from(number(&words[1])).unwrap_or(u32::MAX);
        rows.sid = u32::try_from(number(&words[2])).ok();
        words = rest;
    }
    *args = Args::new(words, None);
    rows
}
