//! `log-forward` sections (manual section 3.10).

use crate::{
    address,
    args::{Args, Parsed, Reported},
    bind::{self, BindDraft},
    keyword::{Keyword, ONE, SOME, Table},
    model::{Bind, ListenAddress, LogForward},
    peers::without_effect,
    proxy::log_line,
    span::Spanned,
    surroundings::Surroundings,
};

type Entry = Keyword<LogForward>;

pub(crate) static TABLE: Table<LogForward> = Table::new(
    "log-forward",
    &[&[
        Entry::new("bind", SOME, "Address for syslog over TCP or TLS", |f, a| {
            without_effect(&bind::TABLE, &a.words[1..], &bind::MEANT_FOR_PEERS, "here", a.around);
            let bind = bind::parse_from(BindDraft::new(Vec::new(), a.span), a)?;
            only_net(a, &bind, "bind 127.0.0.1:514")?;
            f.binds.push(bind);
            Ok(())
        }),
        Entry::new("dgram-bind", SOME, "Address for syslog over UDP", |f, a| {
            let bind = datagrams(a)?;
            f.datagrams.push(bind);
            Ok(())
        }),
        Entry::new("log", SOME, "Where messages are forwarded to: a target, or 'global'", |f, a| {
            log_line(&mut f.logs, &mut f.log_global, a)
        })
        .no(),
        Entry::new("backlog", ONE, "Number of connections that may wait to be accepted", |f, a| {
            f.backlog = Some(a.number("a number of connections", 0..=i32::MAX as u32)?);
            Ok(())
        }),
        Entry::new("maxconn", ONE, "Largest number of concurrent connections, 10 by default", |f, a| {
            f.maxconn = a.number("a number of connections", 1..=i32::MAX as u32)?;
            Ok(())
        }),
        Entry::new("timeout client", ONE, "Longest inactivity of a connection", |f, a| {
            f.client = Some(a.time("a time")?);
            Ok(())
        })
        .spare(),
        Entry::refused(
            "option assume-rfc6587-ntf",
            "Takes every message of a stream for a line",
            "it is a word of later versions than HAProxy 3.0",
            "remove it: a message that begins with '<' is a line",
        ),
        Entry::refused(
            "option dont-parse-log",
            "Forwards messages without parsing them",
            "it is a word of later versions than HAProxy 3.0",
            "remove it: without 'format' on the 'log' line a message keeps its own",
        ),
        Entry::refused(
            "option host",
            "What is done with the host name of a message",
            "it is a word of later versions than HAProxy 3.0",
            "remove it: the name in the message is kept",
        ),
    ]],
);

/// The settings that matter for a socket that receives datagrams.
const MEANT: [&str; 6] = ["interface", "transparent", "v4v6", "v6only", "name", "id"];

/// Parses `dgram-bind ADDRESS[,...] SETTINGS...`.
fn datagrams(args: &mut Args<'_>) -> Parsed<Bind> {
    without_effect(&bind::TABLE, &args.words[1..], &MEANT, "here", args.around);
    let word = args.word("an address")?;
    let mut addresses = Vec::new();
    for part in word.text.split(',') {
        let plain = match part.split_once('@') {
            Some(("udp" | "dgram+ip", rest)) => rest.to_owned(),
            Some(("udp4" | "dgram+ipv4", rest)) => format!("ipv4@{rest}"),
            Some(("udp6" | "dgram+ipv6", rest)) => format!("ipv6@{rest}"),
            _ => part.to_owned(),
        };
        if part.starts_with("tcp") {
            return args.wrong(word, "messages come here over UDP", "write 'bind' for syslog over TCP");
        }
        addresses.push(Spanned { value: address::listen(args, word, &plain)?, span: word.span });
    }
    let mut draft = BindDraft::new(addresses, args.span);
    bind::settings(&bind::TABLE, &mut draft, args)?;
    let bind = draft.finish(args)?;
    only_net(args, &bind, "dgram-bind 127.0.0.1:514")?;
    Ok(bind)
}

fn only_net(args: &mut Args<'_>, bind: &Bind, example: &str) -> Parsed {
    let is_net = |address: &ListenAddress| matches!(address, ListenAddress::Ip { .. } | ListenAddress::Host { .. });
    match bind.addresses.iter().find(|address| !is_net(&address.value)) {
        None => Ok(()),
        Some(other) => {
            let message = "messages are received at addresses with a port only";
            args.diagnostics().error(other.span, message).hint(format!("for instance '{example}'"));
            Err(Reported)
        }
    }
}

/// Checks a section as a whole.
pub(crate) fn end(section: &LogForward, around: &mut Surroundings) {
    let name = &section.name;
    if section.binds.is_empty() && section.datagrams.is_empty() {
        around
            .diagnostics
            .warning(
                section.span,
                format!("log-forward '{name}' has no 'bind' and no 'dgram-bind' line: nothing can reach it"),
            )
            .hint("add for instance 'dgram-bind 127.0.0.1:514'");
    }
}
