//! Commands about counters of the process and of proxies.

use crate::{Args, Refusal, table::Entry};

/// A command about counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statistics {
    /// Shows the counters of the process.
    Info(InfoFormat),
    /// Shows the counters of proxies and servers.
    Stat(Format, Rows),
    /// Shows the schema of their JSON.
    Schema,
    /// Prints the counters in the form that a later process can start from.
    StatsFile,
}

/// The format of fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// A table, or `name: value`.
    #[default]
    Plain,
    /// One per line, with number, name, tags, type and value.
    Typed,
    /// JSON.
    Json,
}

/// The format of `show info`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InfoFormat {
    /// The format.
    pub format: Format,
    /// With the meaning of each field.
    pub described: bool,
    /// With times as fractions of seconds.
    pub float: bool,
}

/// The rows that `show stat` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The name or the number of a proxy.
    pub proxy: Option<String>,
    /// The kinds, added up: 1 frontends, 2 backends, 4 servers, 8 listeners.
    pub kinds: u32,
    /// The number of a server or listener.
    pub sid: Option<u32>,
    /// With the meaning of each field.
    pub described: bool,
    /// Without servers in maintenance.
    pub no_maint: bool,
    /// Only servers that are up.
    pub up: bool,
}

impl Default for Rows {
    fn default() -> Rows {
        Rows { proxy: None, kinds: u32::MAX, sid: None, described: false, no_maint: false, up: false }
    }
}

pub(crate) const ENTRIES: &[Entry<Statistics>] = &[
    Entry::new("dump stats-file", "dump stats-file", "dump counters for 'stats-file' to begin with", |_| {
        Ok(Statistics::StatsFile)
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
            Ok(Statistics::Info(info))
        },
    ),
    Entry::new("show schema json", "show schema json", "report schema used for stats", |_| Ok(Statistics::Schema)),
    Entry::new(
        "show stat",
        "show stat [domain proxy] [desc|json|no-maint|typed|up]*",
        "report counters for each proxy and server",
        |args| {
            if args.take("domain") {
                match args.word().as_deref() {
                    Some("proxy") => {}
                    Some("resolvers") => {
                        return Err(Refusal::new("'show resolvers' shows the counters of name servers."));
                    }
                    _ => return Err(Refusal::new("Invalid statistics domain.")),
                }
            }
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
            Ok(Statistics::Stat(shape, rows))
        },
    ),
];

/// An unknown word is ignored, as in HAProxy.
fn format(word: &str) -> Option<Format> {
    match word {
        "json" => Some(Format::Json),
        "typed" => Some(Format::Typed),
        _ => None,
    }
}

/// Takes `PROXY KINDS SERVER` at the start, if all three are there.
fn selected(args: &mut Args) -> Rows {
    let mut words = args.rest();
    let mut rows = Rows::default();
    if words.len() >= 3 {
        let rest = words.split_off(3);
        // Anything but a number counts as 0, and a negative one as all, as in C.
        let number = |word: &str| word.parse::<i64>().unwrap_or(0);
        rows.proxy = Some(words[0].clone()).filter(|word| word != "-1");
        rows.kinds = u32::try_from(number(&words[1])).unwrap_or(u32::MAX);
        rows.sid = u32::try_from(number(&words[2])).ok();
        words = rest;
    }
    *args = Args::new(words, None);
    rows
}
