//! The reference of the rules' language, made from its tables.

use crate::{
    acl::{PREDEFINED, criteria},
    action::ACTIONS,
    conv, fetch,
    keyword::{ArgSpec, Support},
    log::ALIASES,
    patterns::Method,
    rules::Kind,
};
use std::fmt::Write as _;

/// The reference as Markdown. `docs/rules.md` is this text; a test keeps it so.
pub fn manual() -> String {
    let mut out = String::from(INTRODUCTION);
    let written = write(&mut out);
    written.expect("writing into a string does not fail");
    out
}

const INTRODUCTION: &str = "\
<!-- Made from the tables of penstock-rules by its test `the_reference_is_fresh`; run that with BLESS=1 to write it anew. -->

# Rules: fetches, converters, ACLs, actions, log formats

What rules may be made of, keyword by keyword. The meaning is that of HAProxy's configuration manual (sections 4, 7 and
8.2); this reference says what is there and what is refused, and why. Where something differs from HAProxy, it is here:

- **Regular expressions** never backtrack, so that no request can make one slow. The syntax is PCRE's without what needs
  backtracking: back-references, look-ahead and look-behind, atomic groups, possessive repetition, recursion and
  conditionals are errors that name what was used. `$` matches only at the very end of the text. `\\d`, `\\w`, `\\s` mean
  ASCII.
- **Names are not resolved** in ACLs on addresses: write the address.
- **Long lists** of patterns are hashed or put in one automaton; the first written wins among equals, and of networks and
  prefixes the longest.
- **A keyword in a place where it can never be evaluated** is an error in rules and a warning in ACLs, as in HAProxy.

";

fn write(out: &mut String) -> std::fmt::Result {
    writeln!(out, "## Sample fetches\n")?;
    for (section, table) in fetch::sections() {
        writeln!(out, "### {section}\n\n| fetch | type | where | what | works |\n|---|---|---|---|---|")?;
        for spec in *table {
            let works = works(&spec.support);
            let places = spec.places.describe();
            writeln!(out, "| {} | {} | {places} | {} | {works} |", call(spec.name, spec.args), spec.output, spec.doc)?;
        }
        writeln!(out)?;
    }
    writeln!(out, "### Other names\n\n| name | is |\n|---|---|")?;
    for (alias, target) in fetch::ALIASES {
        writeln!(out, "| `{alias}` | `{target}` |")?;
    }
    writeln!(out, "\n## Converters\n")?;
    for (section, table) in conv::sections() {
        writeln!(out, "### {section}\n\n| converter | takes | gives | what | works |\n|---|---|---|---|---|")?;
        for spec in *table {
            let works = works(&spec.support);
            writeln!(
                out,
                "| {} | {} | {} | {} | {works} |",
                call(spec.name, spec.args),
                spec.input,
                spec.output,
                spec.doc
            )?;
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
    writeln!(out, "\n## Actions\n\n| action | in | what | works |\n|---|---|---|---|")?;
    for spec in ACTIONS {
        let kinds = Kind::ALL.iter().filter(|kind| spec.allowed_in(**kind)).map(|kind| kind.name());
        let kinds = kinds.collect::<Vec<_>>().join(", ");
        let works = spec.refusal().map_or("yes".to_owned(), |why| format!("refused: {why}"));
        let space = if spec.args.is_empty() || spec.args.starts_with('(') { "" } else { " " };
        let args = spec.args.replace('|', "\\|");
        writeln!(out, "| `{}{space}{args}` | {kinds} | {} | {works} |", spec.name, spec.doc)?;
    }
    writeln!(
        out,
        "\n## Log formats\n\n`%[expression]` writes a sample; `%{{+Q}}`, `%{{+E}}` and `%{{+X}}` before an alias or a sample quote,"
    )?;
    writeln!(out, "escape and write in hexadecimal; `%o` sets flags for all that follow; `%%` is a percent sign.\n")?;
    writeln!(out, "| alias | what | only in HTTP |\n|---|---|---|")?;
    for spec in ALIASES {
        writeln!(out, "| `%{}` | {} | {} |", spec.name, spec.doc, if spec.http { "yes" } else { "" })?;
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
