//! The smaller sections: userlist, resolvers, crt-store, http-errors, and those without effect.

use crate::{
    address,
    args::{Args, Parsed, Reported},
    keyword::{ANYTHING, Keyword, NONE, ONE, SOME, Table, at_least, exactly},
    model::{Account, CrtStore, ExternalProgram, Resolvers, User, Userlist},
    proxy::{HttpErrors, errorfile},
    sections::Section,
    span::{Span, Spanned, Word},
    surroundings::Surroundings,
};
use std::{collections::HashSet, net::SocketAddr, path::PathBuf};

pub(crate) static USERLIST: Table<Userlist> = Table::new(
    "userlist",
    &[&[
        Keyword::<Userlist>::new("user", SOME, "A user, with a password and groups", user),
        Keyword::<Userlist>::new("group", SOME, "A group, with its users", |list, a| {
            let name = a.word("a group's name")?;
            if list.groups.contains_key(&name.text) {
                let message = format!("the group '{}' is already in this list: this line is ignored", name.text);
                a.diagnostics().warning(name.span, message).hint("name it once");
                return Ok(());
            }
            let mut members = Vec::new();
            if a.peek().is_some() {
                a.choice("the word 'users'", &[("users", ())])?;
                members = commas(a.word("a list of users")?);
            }
            list.groups.insert(name.text.clone(), members);
            a.unexpected(&[])
        }),
    ]],
);

fn user(list: &mut Userlist, args: &mut Args<'_>) -> Parsed {
    let name = args.word("a user's name")?;
    if let Some(first) = list.users.iter().find(|u| u.name == name.text) {
        let line = first.span.line;
        args.diagnostics()
            .warning(name.span, format!("the user '{}' is already in this list: this line is ignored", name.text))
            .hint(format!("the first one is at line {line}"));
        return Ok(());
    }
    let mut user = User { name: name.text.clone(), span: name.span, ..User::default() };
    while let Some(word) = args.take() {
        match word.text.as_str() {
            "password" => user.password = args.text("an encrypted password")?,
            "insecure-password" => {
                user.password = args.text("a password")?;
                user.insecure = true;
            }
            "groups" => user.groups = commas(args.word("a list of groups")?),
            _ => {
                args.next -= 1;
                args.unexpected(&["password", "insecure-password", "groups"])?;
            }
        }
    }
    if user.password.is_empty() {
        let message = format!("the user '{}' has no password, and can never log in", user.name);
        args.diagnostics().notice(name.span, message);
    }
    list.users.push(user);
    Ok(())
}

fn commas(list: &Word) -> Vec<Word> {
    let mut end = 0;
    let part = |name: &str| {
        let begin = end;
        end += name.len() + 1;
        Word { text: name.to_owned(), span: list.part(begin..begin + name.len()) }
    };
    list.text.split(',').map(part).filter(|name| !name.text.is_empty()).collect()
}

/// Users name groups and groups name users: merges both into one membership.
pub(crate) fn end_userlist(list: &mut Userlist, around: &mut Surroundings) {
    for user in &list.users {
        for Word { text: group, span } in &user.groups {
            match list.groups.get_mut(group) {
                Some(members) if members.iter().all(|member| member.text != user.name) => {
                    members.push(Word { text: user.name.clone(), span: user.span });
                }
                Some(_) => {}
                None => {
                    around
                        .diagnostics
                        .error(*span, format!("user '{}' is in a group '{group}' that this list lacks", user.name))
                        .hint(format!("add a line 'group {group}'"));
                }
            }
        }
    }
    for (group, members) in &list.groups {
        for Word { text: member, span } in members {
            match list.users.iter_mut().find(|u| u.name == *member) {
                Some(user) if user.groups.iter().all(|known| known.text != *group) => {
                    user.groups.push(Word { text: group.clone(), span: *span });
                }
                Some(_) => {}
                None => {
                    around
                        .diagnostics
                        .error(
                            *span,
                            format!("group '{group}' has a user '{member}' that the userlist '{}' lacks", list.name),
                        )
                        .hint(format!("add a line 'user {member} password ...'"));
                }
            }
        }
    }
}

pub(crate) static RESOLVERS: Table<Resolvers> = Table::new(
    "resolvers",
    &[&[
        Keyword::<Resolvers>::new("nameserver", at_least(2), "A name server, which is asked over UDP only", |r, a| {
            let name = a.word("a name server's name")?;
            if r.nameservers.iter().any(|(other, _)| *other == name.text) {
                let message = format!("the name server '{}' is already in this section", name.text);
                return a.wrong(name, message, "each needs a name of its own");
            }
            let name = name.text.clone();
            let word = a.word("its address")?;
            let plain = match word.text.split_once('@') {
                Some(("udp", address)) => address.to_owned(),
                Some(("udp4", address)) => format!("ipv4@{address}"),
                Some(("udp6", address)) => format!("ipv6@{address}"),
                _ => word.text.clone(),
            };
            if plain.starts_with("tcp") {
                return a.wrong(word, "name servers are asked over UDP only", "give the address without 'tcp@'");
            }
            let address::Address::Net { host, port, .. } = address::parse(a, word, &plain)? else {
                return a.wrong(
                    word,
                    format!("'{}' is not a name server's address", word.text),
                    "for instance 9.9.9.9:53",
                );
            };
            let Some(port) = port.filter(|port| !port.is_empty()) else {
                return a.wrong(word, format!("'{}' has no port", word.text), "name servers usually have port 53");
            };
            let port = a.number_in(word, &port, "a port", 1..=65535)?;
            let Ok(ip) = host.parse() else {
                return a.wrong(word, format!("'{host}' is not an address"), "for instance 9.9.9.9:53");
            };
            r.nameservers.push((name, SocketAddr::new(ip, port)));
            a.unexpected(&[])
        }),
        Keyword::<Resolvers>::new("parse-resolv-conf", NONE, "Name servers of /etc/resolv.conf", |r, _| {
            r.parse_resolv_conf = true;
            Ok(())
        })
        .spare(),
        Keyword::<Resolvers>::new("hold", exactly(2), "How long a DNS response is valid", |r, a| {
            let states = ["nx", "refused", "timeout", "other", "valid", "obsolete"].map(|s| (s, s));
            let state = a.choice("a state", &states)?;
            let time = a.time("a time")?;
            r.hold.insert(state.to_owned(), time);
            Ok(())
        }),
        Keyword::<Resolvers>::new("resolve_retries", ONE, "Number of queries before a resolution fails", |r, a| {
            r.resolve_retries = a.number("a number of tries", 1..=i32::MAX as u32)?;
            Ok(())
        })
        .spare(),
        Keyword::<Resolvers>::new("timeout resolve", ONE, "Time between resolutions", |r, a| {
            r.timeout_resolve = a.time("a time")?;
            Ok(())
        })
        .spare(),
        Keyword::<Resolvers>::new("timeout retry", ONE, "Time between queries", |r, a| {
            r.timeout_retry = a.time("a time")?;
            Ok(())
        })
        .spare(),
        Keyword::<Resolvers>::new("accepted_payload_size", ONE, "Largest DNS response accepted, in bytes", |r, a| {
            r.accepted_payload_size = a.number("a size", 512..=65535)?;
            Ok(())
        })
        .spare(),
    ]],
);

pub(crate) static CRT_STORE: Table<CrtStore> = Table::new(
    "crt-store",
    &[&[
        Keyword::<CrtStore>::new("crt-base", ONE, "Directory of the store's certificates", |s, a| {
            s.crt_base = Some(PathBuf::from(a.text("a directory")?));
            Ok(())
        }),
        Keyword::<CrtStore>::new("key-base", ONE, "Directory of the store's keys", |s, a| {
            s.key_base = Some(PathBuf::from(a.text("a directory")?));
            Ok(())
        }),
        Keyword::<CrtStore>::new("load", SOME, "Loads a certificate from its parts", |s, a| {
            let line = a.rest();
            s.loads.push(line);
            Ok(())
        }),
    ]],
);

/// Checks a store at the end of its section: it loads each certificate once, or under several aliases.
pub(crate) fn end_crt_store(store: &CrtStore, around: &mut Surroundings) {
    let mut names = HashSet::new();
    for load in &store.loads {
        let name = load.value_of("alias").or_else(|| load.value_of("crt"));
        if let Some(again) = name.filter(|name| !names.insert(*name)) {
            around
                .diagnostics
                .error(load.span, format!("this store loads '{again}' already"))
                .hint("give it another alias, or remove the line");
        }
    }
}

pub(crate) static HTTP_ERRORS: Table<HttpErrors> = Table::new(
    "http-errors",
    &[&[Keyword::<HttpErrors>::new("errorfile", exactly(2), "File that is sent for a status", |e, a| {
        let file = errorfile(a)?;
        e.files.push(file);
        Ok(())
    })]],
);

const UNTRACED: &str = "nothing is traced";

static TRACES: Table<()> =
    Table::new("traces", &[&[Keyword::accepted("trace", ANYTHING, "Events that are traced", UNTRACED)]]);

/// Sections that are refused as a whole: their keywords are known, so that the manual's matrix is complete.
const fn refused(name: &'static str, doc: &'static str) -> Keyword<()> {
    Keyword::refused(name, doc, "the whole section is refused", "remove the section")
}

pub(crate) static PROGRAM: Table<ExternalProgram> = Table::new(
    "program",
    &[&[
        Keyword::<ExternalProgram>::new("command", SOME, "The program and its arguments", |p, a| {
            p.command = a.rest().words.iter().map(|word| word.text.clone()).collect();
            Ok(())
        }),
        Keyword::<ExternalProgram>::new("user", ONE, "The user that the program runs as", |p, a| {
            let Spanned { value, span } = a.spanned("a user")?;
            p.user = Some(Spanned { value: Account::Name(value), span });
            Ok(())
        }),
        Keyword::<ExternalProgram>::new("group", ONE, "The group that the program runs as", |p, a| {
            let Spanned { value, span } = a.spanned("a group")?;
            p.group = Some(Spanned { value: Account::Name(value), span });
            Ok(())
        }),
        Keyword::<ExternalProgram>::new(
            "option start-on-reload",
            NONE,
            "The program is restarted by a reload",
            |p, a| {
                p.start_on_reload = a.on();
                Ok(())
            },
        )
        .no(),
    ]],
);

/// Reports a program without a command, and drops it.
pub(crate) fn end_program(program: ExternalProgram, around: &mut Surroundings) -> Option<ExternalProgram> {
    if program.command.is_empty() {
        let message = format!("the program '{}' has no command", program.name);
        around.diagnostics.error(program.span, message).hint("for instance 'command /usr/bin/helper --verbose'");
        return None;
    }
    Some(program)
}

pub(crate) static NAMESPACE_LIST: Table<Vec<Spanned<String>>> = Table::new(
    "namespace_list",
    &[&[Keyword::<Vec<Spanned<String>>>::new(
        "namespace",
        SOME,
        "Network namespaces that PROXY headers may name, besides those of 'bind' and 'server' lines",
        |list, a| {
            while a.peek().is_some() {
                list.push(a.spanned("a namespace")?);
            }
            Ok(())
        },
    )]],
);

static FCGI_APP: Table<()> = Table::new(
    "fcgi-app",
    &[&[
        refused("acl", "Declares a named condition"),
        refused("docroot", "Document root of the scripts"),
        refused("index", "Script that serves a directory"),
        refused("log-stderr", "Where the application's error output is logged"),
        refused("pass-header", "Header fields that are passed on"),
        refused("path-info", "Regular expression that splits the path"),
        refused("option get-values", "Asks the application for its limits"),
        refused("option keep-conn", "Keeps connections to the application"),
        refused("option max-reqs", "Largest number of concurrent requests"),
        refused("option mpxs-conns", "Multiplexes requests over a connection"),
        refused("set-param", "Sets a parameter of the application"),
    ]],
);

static LOG_PROFILE: Table<()> = Table::new(
    "log-profile",
    &[&[refused("log-tag", "The tag of syslog lines"), refused("on", "Log format of one step")]],
);

static ACME: Table<()> = Table::new(
    "acme",
    &[&[
        refused("account-key", "File of the account's key"),
        refused("bits", "Size of RSA keys, in bits"),
        refused("challenge", "Challenge by which names are proved"),
        refused("contact", "Contact address of the account"),
        refused("curves", "Curve of ECDSA keys"),
        refused("directory", "URL of the authority's directory"),
        refused("keytype", "Type of keys"),
        refused("map", "Map in which challenge tokens are kept"),
        refused("reuse-key", "Reuses keys when certificates are renewed"),
    ]],
);

/// The tables of sections without effect.
pub(crate) static OTHERS: &[&Table<()>] = &[&TRACES, &FCGI_APP, &LOG_PROFILE, &ACME];

/// A section that is not applied: read with a notice, or refused as a whole.
pub(crate) fn begin(kind: &str, span: Span, around: &mut Surroundings) -> Parsed<Section> {
    let (why, instead) = match kind {
        "traces" => {
            let table = OTHERS.iter().find(|t| t.section == kind);
            return table.map(|t| Section::Other(t)).ok_or(Reported);
        }
        "fcgi-app" => ("FastCGI is not spoken", "put a web server in between"),
        "log-profile" => (
            "it is a section of later versions than HAProxy 3.0",
            "use 'log-format', 'log-tag' and 'error-log-format' in the proxies",
        ),
        _ => ("certificates are not fetched", "use an ACME client and 'crt'"),
    };
    around.diagnostics.error(span, format!("'{kind}' sections are refused: {why}")).hint(instead);
    Err(Reported)
}
