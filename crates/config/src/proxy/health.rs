//! `http-check *` and `tcp-check *`, whose words are stored and compiled later.

use super::draft::{Draft, Steps, is_step};
use crate::{
    args::Args,
    keyword::{ANYTHING, BACK, Keyword, ONE},
    model::CheckKind,
    span::Word,
};

type Entry = Keyword<Draft>;

pub(super) const KEYWORDS: &[Entry] = &[
    http("http-check comment", "Names the next step in reports"),
    http("http-check connect", "Opens a connection"),
    http("http-check disable-on-404", "A response with status 404 takes the server out of rotation for new clients"),
    http("http-check expect", "What the response must be"),
    http("http-check send", "Method, path, headers and body of the check's request"),
    http("http-check send-state", "Adds a header with the server's state to the check's request"),
    http("http-check set-var", "Sets a variable"),
    http("http-check set-var-fmt", "Sets a variable from a format"),
    http("http-check unset-var", "Removes a variable"),
    tcp("tcp-check comment", "Names the next step in reports"),
    tcp("tcp-check connect", "Opens a connection"),
    tcp("tcp-check expect", "What the answer must be"),
    tcp("tcp-check send", "Sends text"),
    tcp("tcp-check send-lf", "Sends text made by a format"),
    tcp("tcp-check send-binary", "Sends bytes"),
    tcp("tcp-check send-binary-lf", "Sends bytes made by a format"),
    tcp("tcp-check set-var", "Sets a variable"),
    tcp("tcp-check set-var-fmt", "Sets a variable from a format"),
    tcp("tcp-check unset-var", "Forgets a variable"),
    Entry::new("external-check command", ONE, "The program that 'option external-check' runs", |d, a| {
        d.proxy.external_command = Some(a.text("a program")?);
        Ok(())
    })
    .at(BACK),
    Entry::new("external-check path", ONE, "The PATH of that program", |d, a| {
        d.proxy.external_path = Some(a.text("a PATH")?);
        Ok(())
    })
    .at(BACK),
];

const fn http(name: &'static str, doc: &'static str) -> Entry {
    Entry::new(name, ANYTHING, doc, |d, a| {
        let line = with_verb(a);
        if is_step(&line) {
            let inherited = d.own_steps(Steps::Http);
            // A request of its own replaces the one from the defaults.
            if inherited && a.verb == "send" && matches!(d.proxy.check, CheckKind::Http { .. }) {
                d.proxy.check = CheckKind::Http { method: None, uri: None, version: None };
            }
        }
        d.proxy.http_check.push(line);
        Ok(())
    })
    .at(BACK)
}

const fn tcp(name: &'static str, doc: &'static str) -> Entry {
    Entry::new(name, ANYTHING, doc, |d, a| {
        let line = with_verb(a);
        d.own_steps(Steps::Tcp);
        d.proxy.tcp_check.push(line);
        Ok(())
    })
    .at(BACK)
}

/// The words after `http-check`, so that the first one is `send` or similar.
fn with_verb(args: &mut Args<'_>) -> crate::span::Line {
    let verb = args.verb.to_owned();
    let mut line = args.rest();
    line.words.insert(0, Word { text: verb, span: args.keyword_span });
    line
}
