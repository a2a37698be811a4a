//! The reference of the rules language, generated from its tables.

use crate::{
    acl::{PREDEFINED, criteria},
    action::{ACTIONS, Works},
    conv, fetch,
    keyword::{ArgSpec, Support},
    kind::Kind,
    log::ALIASES,
    patterns::Method,
};
use std::fmt::Write as _;

/// The reference as Markdown. `docs/rules.md` is this text, which a test checks. `proof` returns the link to the test
/// of a row, given the table (`fetch`, `converter`, `alias` or, for an action, the name of a list of rules) and the
/// name.
pub fn manual(proof: impl Fn(&str, &str) -> String) -> String {
    let mut out = String::from(INTRODUCTION);
    let written = write(&mut out, &proof);
    written.expect("writing into a string does not fail");
    out
}

const INTRODUCTION: &str = "\
<!-- Made from the tables of penstock-rules; `make generate` writes it anew. -->

# Rules: fetches, converters, ACLs, actions, log formats

What rules may be made of, keyword by keyword. The meaning is that of HAProxy's configuration manual (sections 4, 7 and
8.2); this reference says what is there and what is refused, and why. Where something differs from HAProxy, it is here:

- **Regular expressions** never backtrack. The syntax is PCRE2's, on bytes (without its UTF mode), without what needs
  backtracking: back-references, look-ahead and look-behind, atomic groups, possessive quantifiers (`a++`), recursion and
  conditionals are errors that name what was used, as are `\\K`, `\\X`, `\\p`, verbs (`(*UTF)`), `(?|` and the flags `n`, `J` and
  `xx`. `$` and `\\Z` match at the end and before a line feed that is last; what follows them does not match that line feed.
  `\\G` may only be at the start, and `\\R` may take `\\r` alone where that makes a match. What a byte of a request may cost is
  bounded: counted repetitions that expand to thousands of states, as in `([^&]{1,255}&?){1,30}#`, are tried in all states
  at a time, and what cannot be is refused. The place of a match, which replacements need, is looked for in up to five
  million steps (bytes times such states); beyond them nothing is replaced, as in HAProxy once its library gives up.
- **Names are not resolved** in ACLs on addresses: write the address.
- **Long lists** of patterns are hashed or put in one automaton; the first written wins among equals, and of networks and
  prefixes the longest.
- **A keyword in a place where it can never be evaluated** is an error in rules and a warning in ACLs, as in HAProxy.

";

fn write(out: &mut String, proof: &dyn Fn(&str, &str) -> String) -> std::fmt::Result {
    writeln!(out, "## Sample fetches\n")?;
    for (section, table) in fetch::sections() {
        writeln!(
            out,
            "### {section}\n\n| fetch | type | where | what | works | shown by |\n|---|---|---|---|---|---|"
        )?;
        for spec in *table {
            let works = works(&spec.support);
            let places = spec.places.describe();
            let shown = if works == "yes" { proof("fetch", spec.name) } else { String::new() };
            let call = call(spec.name, spec.args);
            writeln!(out, "| {call} | {} | {places} | {} | {works} | {shown} |", spec.output, spec.doc)?;
        }
        writeln!(out)?;
    }
    writeln!(out, "### Other names\n\n| name | is |\n|---|---|")?;
    for (alias, target) in fetch::ALIASES {
        writeln!(out, "| `{alias}` | `{target}` |")?;
    }
    writeln!(out, "\n## Converters\n")?;
    for (section, table) in conv::sections() {
        writeln!(
            out,
            "### {section}\n\n| converter | takes | gives | what | works | shown by |\n|---|---|---|---|---|---|"
        )?;
        for spec in *table {
            let works = works(&spec.support);
            let shown = if works == "yes" { proof("converter", spec.name) } else { String::new() };
            let call = call(spec.name, spec.args);
            writeln!(out, "| {call} | {} | {} | {} | {works} | {shown} |", spec.input, spec.output, spec.doc)?;
        }
        writeln!(out)?;
    }
    writeln!(out, "## ACLs\n\nMatching methods (`-m`): {}.\n", list(Method::NAMES.iter().map(|(name, _)| *name)))?;
    let criteria: Vec<String> = criteria().collect();
    writeln!(out, "Criteria with a method of their own: {}.\n", list(criteria.iter().map(String::as_str)))?;
    writeln!(out, "| predefined ACL | is |\n|---|---|")?;
    for (name, text) in PREDEFINED {
        writeln!(out, "| `{name}` | `{text}` |")?;
    }
    writeln!(out, "\n## Actions\n\n| action | in | what | works | shown by |\n|---|---|---|---|---|")?;
    for spec in ACTIONS {
        let kinds: Vec<&str> =
            Kind::ALL.iter().filter(|kind| spec.allowed_in(**kind)).map(|kind| kind.name()).collect();
        let mut shown: Vec<String> = Vec::new();
        for link in kinds.iter().filter(|_| spec.is_implemented()).map(|kind| proof(kind, spec.name)) {
            if !shown.contains(&link) {
                shown.push(link);
            }
        }
        let (kinds, shown) = (kinds.join(", "), shown.join(", "));
        let works = match spec.works {
            Works::Yes(_) => "yes".to_owned(),
            Works::NoEffect(_, why) => format!("no effect: {why}"),
            Works::Refused(why) => format!("refused: {why}"),
        };
        let space = if spec.args.is_empty() || spec.args.starts_with('(') { "" } else { " " };
        let args = spec.args.replace('|', "\\|");
        writeln!(out, "| `{}{space}{args}` | {kinds} | {} | {works} | {shown} |", spec.name, spec.doc)?;
    }
    writeln!(
        out,
        "\n## Log formats\n\n`%[expression]` writes a sample; `%{{+Q}}`, `%{{+E}}` and `%{{+X}}` before an alias or a sample quote,"
    )?;
    writeln!(out, "escape and write in hexadecimal; `%o` sets flags for all that follow; `%%` is a percent sign.\n")?;
    writeln!(out, "| alias | what | only in HTTP | shown by |\n|---|---|---|---|")?;
    for spec in ALIASES {
        let (http, shown) = (if spec.http { "yes" } else { "" }, proof("alias", spec.name));
        writeln!(out, "| `%{}` | {} | {http} | {shown} |", spec.name, spec.doc)?;
    }
    Ok(())
}

fn works<F>(support: &Support<F>) -> String {
    support.describe()
}

fn call(name: &str, args: &[ArgSpec]) -> String {
    if args.is_empty() {
        return format!("`{name}`");
    }
    let args = args.iter().map(|arg| {
        let kind = arg.kind.describe().replace('|', "\\|");
        if arg.optional { format!("[{}: {kind}]", arg.name) } else { format!("{}: {kind}", arg.name) }
    });
    format!("`{name}({})`", args.collect::<Vec<_>>().join(", "))
}

fn list<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}
