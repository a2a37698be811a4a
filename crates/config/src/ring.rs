//! `ring` sections (manual section 3.9).

use crate::{
    args::{Args, Parsed},
    bind,
    diagnostic::Diagnostics,
    keyword::{Keyword, ONE, Table, at_least},
    model::{Config, LogAddress, LogTarget, LogTransport, Ring, RingServer, ServerHost, ServerSettings},
    name::valid_name,
    peers,
    proxy::log_format,
    server,
    span::{Span, Spanned, Word},
    surroundings::Surroundings,
    units::suggestion,
};
use std::time::Duration;

type Entry = Keyword<Ring>;

/// The largest ring. Its memory is set aside when the process starts.
const SIZE_MAX: u64 = 1 << 32;

pub(crate) static TABLE: Table<Ring> = Table::new(
    "ring",
    &[&[
        Entry::new("description", ONE, "Text that 'show events' shows beside the name", |r, a| {
            r.description = a.text("a text")?;
            Ok(())
        })
        .spare(),
        Entry::new("format", ONE, "Format of the ring's lines; 'raw' by default", |r, a| {
            r.format = log_format(a)?;
            Ok(())
        })
        .spare(),
        Entry::new("maxlen", ONE, "Longest line, in bytes; anything longer is cut", |r, a| {
            let span = a.peek().map_or(a.keyword_span, |word| word.span);
            let value = a.size("a length", 1..=SIZE_MAX)?;
            r.maxlen = Some(Spanned { value, span });
            Ok(())
        })
        .spare(),
        Entry::new("size", ONE, "Memory for lines, in bytes; that of a buffer by default", |r, a| {
            r.size = a.size("a size", 1..=SIZE_MAX)?;
            Ok(())
        })
        .spare(),
        Entry::new("timeout connect", ONE, "Longest time in which a server is connected to", |r, a| {
            r.connect = Some(a.time("a time")?);
            Ok(())
        })
        .spare(),
        Entry::new("timeout server", ONE, "Longest time for which a server takes none of the lines", |r, a| {
            r.server = Some(a.time("a time")?);
            Ok(())
        })
        .spare(),
        Entry::new("server", at_least(2), "Log server that receives every line, over TCP or TLS", server_line),
        Entry::refused(
            "default-server",
            "Settings of the servers that follow",
            "a ring's servers have no defaults",
            "write the settings on the 'server' lines",
        ),
        Entry::refused(
            "backing-file",
            "File that keeps the ring across restarts",
            "lines are kept in memory only, since a page of a file may stop whoever writes to it",
            "add a 'server' that stores them",
        ),
    ]],
);

/// Parses `server NAME ADDRESS SETTINGS...`.
fn server_line(ring: &mut Ring, args: &mut Args<'_>) -> Parsed {
    let name = args.word("the server's name")?;
    valid_name(name, args.around)?;
    if let Some(first) = ring.servers.iter().find(|server| server.name == name.text) {
        let line = first.span.line;
        let message = format!("the server '{}' is already in this ring", name.text);
        return args.wrong(name, message, format!("the first one is at line {line}"));
    }
    let word = args.word("the server's address")?;
    let (host, port) = peers::tcp_address(args, word, "log servers")?;
    let meant: Vec<_> = peers::meant_for_peers().iter().copied().chain(["log-proto"]).collect();
    peers::without_effect(&server::TABLE, &args.words[args.next..], &meant, "for a log server", args.around);
    let mut settings = ServerSettings::default();
    bind::settings(&server::TABLE, &mut settings, args)?;
    let settings = server::complete(settings);
    ring.servers.push(RingServer { name: name.text.clone(), span: args.span, host, port, settings });
    Ok(())
}

/// Adds the ring of a `log` line that names a server over TCP, with the settings that HAProxy gives it, and returns its
/// name. Its lines have the format and the length of the `log` line.
pub(crate) fn of_log_line(host: ServerHost, port: u16, span: Span, around: &mut Surroundings) -> String {
    let name = format!("ring#{}", around.rings.len() + 1);
    let description =
        format!("created from log directive declared into '{}' at line {}", around.file_name, around.line);
    let server = RingServer { name: name.clone(), span, host, port, settings: ServerSettings::default() };
    around.rings.push(Ring {
        description,
        format: LogTransport::Usual,
        connect: Some(Duration::from_secs(1)),
        server: Some(Duration::from_secs(5)),
        servers: vec![server],
        ..Ring::new(name.clone(), 0, span)
    });
    name
}

/// Checks a section as a whole.
pub(crate) fn end(ring: &Ring, around: &mut Surroundings) {
    let (name, diagnostics) = (&ring.name, &mut around.diagnostics);
    if let Some(maxlen) = ring.maxlen.as_ref().filter(|maxlen| maxlen.value > ring.line_max()) {
        diagnostics
            .warning(maxlen.span, format!("the ring '{name}' has no room for lines of {} bytes", maxlen.value))
            .hint(format!("they are cut to {}: add for instance 'size {}'", ring.line_max(), maxlen.value * 16));
    }
    let missing = [("timeout connect", ring.connect), ("timeout server", ring.server)];
    let missing: Vec<_> = missing.iter().filter(|(_, time)| time.is_none()).map(|(word, _)| *word).collect();
    if !missing.is_empty() && !ring.servers.is_empty() {
        diagnostics.warning(ring.span, format!("ring '{name}' has no '{}'", missing.join("' or '"))).hint(format!(
            "without a limit, a server that hangs receives nothing more; for instance '{} 5s'",
            missing[0]
        ));
    }
}

/// Checks that the rings of `log` lines exist.
pub(crate) fn references(config: &Config, diagnostics: &mut Diagnostics) {
    let known = || config.rings.iter().map(|ring| ring.name.as_str()).chain([Ring::BUILT_IN]);
    let of_proxies = config.proxies.iter().flat_map(|proxy| &proxy.logs);
    let of_agents = config.spoe.iter().flat_map(|engine| &engine.agent.logs);
    let of_sections = config.log_forwards.iter().flat_map(|section| &section.logs);
    let all = config.global.logs.iter().chain(of_proxies).chain(of_agents).chain(of_sections);
    for LogTarget { address, span, .. } in all {
        let LogAddress::Ring(name) = address else { continue };
        if !known().any(|ring| ring == name) {
            let finding = diagnostics.error(*span, format!("there is no ring '{name}'"));
            finding.hint = suggestion(name, known(), "rings");
        }
    }
}

/// Refuses the names of what is there already.
pub(crate) fn name(name: &Word, around: &mut Surroundings) -> Parsed {
    if [Ring::BUILT_IN, "stdout", "stderr"].contains(&name.text.as_str()) {
        around
            .diagnostics
            .error(name.span, format!("the ring '{}' is always there", name.text))
            .hint("choose another name");
        return Err(crate::args::Reported);
    }
    Ok(())
}
