//! Parts of HAProxy that are parsed, so that a configuration is checked as a whole, but not implemented: some will be
//! later, others never.

use super::draft::Draft;
use crate::{
    args::{Args, Parsed},
    keyword::{ANY, ANYTHING, BACK_ONLY, Keyword, ONE, SOME, at_least},
    model::Proxy,
    span::{Line, Word},
};

type Entry = Keyword<Draft>;

pub(super) const KEYWORDS: &[Entry] = &[
    Entry::new("stick-table", SOME, "A table with counters and servers by client, or by another key", |d, a| {
        a.only_once(d.proxy.stick_table.is_some())?;
        d.proxy.stick_table = Some(a.rest());
        Ok(())
    })
    .at(ANY),
    stick("stick match", "Uses the server that the table has for a sample"),
    stick("stick on", "Matches the table and stores the request's sample with its server"),
    stick("stick store-request", "Stores a request's sample with its server"),
    stick("stick store-response", "Stores a response's sample with its server"),
    Entry::new("filter cache", ONE, "Where a cache stands among filters", crate::cache::filter).at(ANY),
    Entry::accepted("filter trace", ANYTHING, "Prints the data that passes, for developers", "nothing is traced")
        .at(ANY),
    Entry::new("filter spoe", at_least(2), "Asks an agent about sessions, by SPOP", crate::spoe::filter).at(ANY),
    filter("filter fcgi-app", "Talks to servers in FastCGI", "FastCGI is not spoken"),
    filter("filter opentracing", "Sends traces by OpenTracing", "OpenTracing is not supported"),
    Entry::refused(
        "use-fcgi-app",
        "The FastCGI application of the servers",
        "FastCGI is not spoken",
        "put a web server in between",
    )
    .at(BACK_ONLY),
    Entry::accepted(
        "bind-process",
        SOME,
        "Which processes serve a proxy",
        "there is one process; 'thread' on a bind line would say which threads",
    ),
    Entry::accepted(
        "force-be-switch",
        at_least(2),
        "Uses a disabled backend under a condition",
        "disabled backends are never used",
    )
    .at(crate::keyword::FRONT_ONLY),
    Entry::refused(
        "grace",
        "Time between the request for a soft stop and the stop itself",
        "HAProxy 2.4 moved it",
        "write 'grace' in 'global'",
    ),
];

type Parse = fn(&mut Draft, &mut Args<'_>) -> Parsed;

const fn stick(name: &'static str, doc: &'static str) -> Entry {
    const PARSE: Parse = |d, a| push_with_keyword(d, a, |p| &mut p.stick);
    Entry::new(name, SOME, doc, PARSE).at(BACK_ONLY)
}

const fn filter(name: &'static str, doc: &'static str, why: &'static str) -> Entry {
    Entry::refused(name, doc, why, "remove the filter").at(ANY)
}

/// The second word of the keyword becomes the first of the line.
fn push_with_keyword(draft: &mut Draft, args: &mut Args<'_>, list: fn(&mut Proxy) -> &mut Vec<Line>) -> Parsed {
    let verb = args.keyword.split_once(' ').map_or(args.keyword, |(_, verb)| verb).to_owned();
    let mut line = args.rest();
    line.words.insert(0, Word { text: verb, span: args.keyword_span });
    list(&mut draft.proxy).push(line);
    Ok(())
}
