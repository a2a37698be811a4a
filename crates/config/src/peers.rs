//! `peers` sections (manual section 3.5).

use crate::{
    address,
    args::{Args, Parsed, Reported},
    bind::{self, BindDraft},
    keyword::{ANYTHING, Keyword, NONE, ONE, SOME, Table, at_least},
    model::{ListenAddress, Peer, Peers, ServerHost, ServerPort, ServerSettings},
    name::valid_name,
    server,
    span::{Span, Word},
    surroundings::Surroundings,
    values::number_above_zero,
};

type Entry = Keyword<PeersDraft>;

/// A section being read. Which peer is this process is known from the start: `localpeer` comes before.
pub(crate) struct PeersDraft {
    section: Peers,
    local: String,
    default_bind: BindDraft,
    default_server: ServerSettings,
    /// The first `bind` line, and the first line `peer` or `server` with an address for this process.
    bind: Option<Span>,
    peer: Option<Span>,
}

impl PeersDraft {
    pub(crate) fn new(name: String, local: &str, span: Span) -> PeersDraft {
        PeersDraft {
            section: Peers { name, span, ..Peers::default() },
            local: local.to_owned(),
            default_bind: BindDraft::new(Vec::new(), span),
            default_server: ServerSettings::default(),
            bind: None,
            peer: None,
        }
    }
}

pub(crate) static TABLE: Table<PeersDraft> = Table::new(
    "peers",
    &[&[
        Entry::new("peer", at_least(1), "A peer and its address", |p, a| peer(p, a, true)),
        Entry::new("server", at_least(1), "A peer; the address of this process is on 'bind'", |p, a| peer(p, a, false)),
        Entry::new("bind", SOME, "Where peers connect to", |p, a| {
            if p.peer.is_some() {
                return mixed(a, p.peer);
            }
            a.only_once(p.bind.is_some())?;
            let settings = &a.words[1..];
            without_effect(&bind::TABLE, settings, &bind::MEANT_FOR_PEERS, "here", a.around);
            let bind = bind::parse_from(p.default_bind.clone(), a)?;
            let is_tcp =
                |address: &ListenAddress| matches!(address, ListenAddress::Ip { .. } | ListenAddress::Host { .. });
            if let Some(other) = bind.addresses.iter().find(|address| !is_tcp(&address.value)) {
                let message = "peers are listened for on TCP addresses only";
                a.diagnostics().error(other.span, message).hint("for instance 'bind 192.0.2.1:1024'");
                return Err(Reported);
            }
            p.bind = p.bind.or(Some(a.span));
            p.section.binds.push(bind);
            Ok(())
        }),
        Entry::new("default-bind", ANYTHING, "Settings of the addresses that follow", |p, a| {
            without_effect(&bind::TABLE, a.words, &bind::MEANT_FOR_PEERS, "here", a.around);
            bind::settings(&bind::TABLE, &mut p.default_bind, a)
        }),
        Entry::new("default-server", ANYTHING, "Settings of the peers that follow", |p, a| {
            without_effect(&server::TABLE, a.words, meant_for_peers(), "for a peer", a.around);
            bind::settings(&server::TABLE, &mut p.default_server, a)
        }),
        Entry::new("disabled", NONE, "Nothing is exchanged", |p, _| {
            p.section.disabled = true;
            Ok(())
        })
        .spare(),
        Entry::new("disable", NONE, "Nothing is exchanged", |p, _| {
            p.section.disabled = true;
            Ok(())
        })
        .spare(),
        Entry::new("enabled", NONE, "Undoes 'disabled'", |p, _| {
            p.section.disabled = false;
            Ok(())
        })
        .spare(),
        Entry::new("enable", NONE, "Undoes 'disabled'", |p, _| {
            p.section.disabled = false;
            Ok(())
        })
        .spare(),
        Entry::accepted("log", SOME, "Where it is logged", "what happens between peers goes to the log of 'global'"),
        Entry::new("shards", ONE, "How many peers share the keys", number_above_zero)
            .notice("every peer gets every key"),
        Entry::new("table", SOME, "A stick table of this section", |p, a| {
            let name = a.word("the table's name")?;
            valid_name(name, a.around)?;
            let name = name.clone();
            let line = a.rest();
            if let Some((first, _)) = p.section.tables.iter().find(|(known, _)| known.text == name.text) {
                let line = first.span.line;
                let message = format!("the table '{}' is already in this section", name.text);
                return a.wrong(&name, message, format!("the first one is at line {line}"));
            }
            p.section.tables.push((name, line));
            Ok(())
        }),
    ]],
);

/// Parses `peer NAME ADDRESS SETTINGS...` or `server NAME [ADDRESS] SETTINGS...`.
fn peer(draft: &mut PeersDraft, args: &mut Args<'_>, is_peer: bool) -> Parsed {
    let name = args.word("the peer's name")?;
    valid_name(name, args.around)?;
    if let Some(first) = draft.section.peers.iter().find(|peer| peer.name == name.text) {
        let line = first.span.line;
        if first.is_local {
            let message = format!("the peer '{}', which is this process, is already in this section", name.text);
            return args.wrong(name, message, format!("the first one is at line {line}"));
        }
        let message = format!("the peer '{}' is already in this section: this line is ignored", name.text);
        args.diagnostics().warning(name.span, message).hint(format!("the first one is at line {line}"));
        return Ok(());
    }
    let is_local = name.text == draft.local;
    if is_peer && draft.bind.is_some() {
        return mixed(args, draft.bind);
    }
    let mut address = None;
    if is_peer || !is_local {
        if let Some(word) = args.take() {
            address = Some(tcp_address(args, word, "peers")?);
        } else {
            args.diagnostics()
                .warning(name.span, format!("the peer '{}' has no address: it is not connected to", name.text))
                .hint("for instance 'peer lb2 192.0.2.2:1024'");
        }
    }
    let settings = &args.words[args.next..];
    without_effect(&server::TABLE, settings, meant_for_peers(), "for a peer", args.around);
    let mut own = draft.default_server.clone();
    let span = args.span;
    if is_peer && is_local {
        // HAProxy listens with the settings of `default-bind`; those of the line itself are a server's.
        draft.peer = Some(span);
        let listens = match &address {
            Some((ServerHost::Ip(ip), port)) => Some(ListenAddress::Ip { ip: *ip, first: *port, last: *port }),
            Some((ServerHost::Name(host), port)) => {
                Some(ListenAddress::Host { host: host.clone(), first: *port, last: *port })
            }
            _ => None,
        };
        if let Some(listens) = listens {
            draft.default_bind.listen(listens, span);
            draft.section.binds.push(draft.default_bind.clone().finish(args)?);
        }
    }
    bind::settings(&server::TABLE, &mut own, args)?;
    let settings = server::complete(own);
    draft.section.peers.push(Peer { name: name.text.clone(), span, is_local, address, settings });
    Ok(())
}

/// An address that is connected to over TCP: an IP address or a name, and a port. `whose` names what has it.
pub(crate) fn tcp_address(args: &mut Args<'_>, word: &Word, whose: &str) -> Parsed<(ServerHost, u16)> {
    match address::server(args, word)? {
        (host @ (ServerHost::Ip(_) | ServerHost::Name(_)), ServerPort::Fixed(port)) => Ok((host, port)),
        (ServerHost::Unix(_) | ServerHost::Abstract(_), _) => args.wrong(
            word,
            format!("{whose} are connected to over TCP"),
            "give an address and a port, for instance 192.0.2.2:1024",
        ),
        _ => {
            let message = format!("'{}' is not an address of {whose}: the port is missing", word.text);
            args.wrong(word, message, "for instance 192.0.2.2:1024")
        }
    }
}

fn mixed(args: &mut Args<'_>, other: Option<Span>) -> Parsed {
    let line = other.map_or(0, |span| span.line);
    args.error("a section has either 'peer' or 'bind' lines")
        .hint(format!("the other is at line {line}; beside 'bind', write 'server' for 'peer'"));
    Err(Reported)
}

/// The settings that matter for a peer: those of TLS, apart from names that depend on requests.
pub(crate) fn meant_for_peers() -> &'static [&'static str] {
    static NAMES: std::sync::OnceLock<Vec<&'static str>> = std::sync::OnceLock::new();
    let depends = |name: &str| matches!(name, "sni" | "alpn" | "no-alpn");
    NAMES.get_or_init(|| server::TLS.iter().map(|entry| entry.name).filter(|name| !depends(name)).collect())
}

/// Says which settings mean nothing between peers.
pub(crate) fn without_effect<T>(
    table: &'static Table<T>,
    words: &[Word],
    meant: &[&'static str],
    place: &str,
    around: &mut Surroundings,
) {
    let mut at = 0;
    while let Some(word) = words.get(at) {
        at += 1;
        let Some((setting, _)) = table.find(std::slice::from_ref(word)) else { continue };
        at += usize::from(setting.arity.min);
        let is_implemented = setting.support == crate::keyword::Support::Implemented;
        if is_implemented && !meant.contains(&setting.name) {
            around.diagnostics.notice(word.span, format!("'{}' has no effect {place}", setting.name));
        }
    }
}

/// Completes a section. One without a line for this process exchanges nothing, as in HAProxy.
pub(crate) fn end(draft: PeersDraft, around: &mut Surroundings) -> Peers {
    let mut section = draft.section;
    if section.disabled {
        return section;
    }
    let (name, local) = (&section.name, &draft.local);
    if !section.peers.iter().any(|peer| peer.is_local) {
        around
            .diagnostics
            .warning(section.span, format!("the section '{name}' exchanges nothing: no peer in it is called '{local}'"))
            .hint("name this process with '-L NAME' or 'localpeer NAME' as one of the peers");
        section.disabled = true;
    } else if section.binds.is_empty() {
        around
            .diagnostics
            .warning(section.span, format!("the section '{name}' does not say where this process listens for peers"))
            .hint(format!("add 'bind ADDRESS:PORT', or write 'peer {local} ADDRESS:PORT'"));
    }
    section
}
