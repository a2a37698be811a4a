//! Expressions, formats, conditions and actions of the rules' language, made from the rows of its own tables: a new row
//! is used without a change here.

mod left_out;
mod vocabulary;

use std::collections::HashSet;
use std::process::Command;
use std::sync::LazyLock;

use penstock_rules::log::ALIASES;
use penstock_rules::{
    ACTIONS, ArgKind, ArgSpec, Kind, PREDEFINED, Places, Support, Type, conv, criteria, fetch, patterns,
};

use super::dice::Dice;
use super::grammar::expand;
use super::reference;
use crate::process::Subject;
use left_out::{LEFT_OUT_ACTIONS, NEWER_ACLS, UNSTEADY_ALIASES, UNSTEADY_CONVERTERS, UNSTEADY_FETCHES};
pub use vocabulary::NAMES;
use vocabulary::{NUMBERS, REGEXES, TEXTS};

/// What HAProxy's own lists of keywords name: a row of a newer release has nothing to be compared with.
static OF_HAPROXY: LazyLock<HashSet<String>> = LazyLock::new(|| {
    let Some(program) = reference().program() else { return HashSet::new() };
    let Ok(output) = Command::new(program).args(["-dKsmp,cnv,cfg", "-q", "-c", "-f", "/dev/null"]).output() else {
        return HashSet::new();
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // `[ Y . ] name(arguments): type` for fetches, `name(arguments): type => type` for converters.
    let names = text.lines().map(|l| l.rsplit(']').find(|p| p.contains(": ")).unwrap_or(l).trim());
    let functions =
        names.filter(|l| l.contains(": ")).map(|l| l.split(['(', ':']).next().unwrap_or_default().to_owned());
    // Actions: `http-request add-acl*`.
    functions.chain(text.lines().map(|l| l.trim().trim_end_matches('*').to_owned())).collect()
});

/// Whether HAProxy has what came after 2.6.
fn knows_newer() -> bool {
    reference() != Subject::Haproxy
}

/// Whether HAProxy knows a fetch or a converter. Where HAProxy is not there, nothing is compared, and all is known.
fn is_known(name: &str) -> bool {
    OF_HAPROXY.is_empty() || OF_HAPROXY.contains(name)
}

/// Where something is said: what the message's state allows follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// In a rule.
    Rule(Kind),
    /// In a log format.
    Log,
}

impl Moment {
    fn places(self) -> Places {
        match self {
            Moment::Rule(Kind::TcpConnection) => Places::CONNECTION,
            Moment::Rule(Kind::TcpSession) => Places::SESSION,
            Moment::Rule(Kind::TcpContent | Kind::HttpRequest) => Places::REQUEST,
            Moment::Rule(_) => Places::RESPONSE,
            Moment::Log => Places::LOG,
        }
    }
}

fn unsteady(table: &[(&str, &str)], name: &str) -> bool {
    table.iter().any(|(n, _)| {
        *n == name || (n.ends_with(['_', '.']) || n.starts_with("date") || *n == "rand") && name.starts_with(n)
    })
}

/// A word of the configuration: quoted where it has to be.
pub fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\'' | '\\' | '#' | '$');
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        if matches!(c, '"' | '\\' | '$') {
            out.push('\\');
        }
        out.push(c);
    }
    out + "\""
}

/// An argument of a fetch or a converter.
fn argument(of: &str, spec: &ArgSpec, dice: &mut Dice) -> String {
    match spec.kind {
        // The values of a map have a type, and so does the default for a missing one.
        ArgKind::Map => map_file(of).to_owned(),
        ArgKind::Str if of.starts_with("map") && of.ends_with("_int") => dice.pick(NUMBERS).to_owned(),
        ArgKind::Str if of.starts_with("map") && of.ends_with("_ip") && of != "map_ip" => "10.0.0.9".to_owned(),
        ArgKind::Int => dice.pick(NUMBERS).to_owned(),
        ArgKind::NonZero => dice.pick(&["1", "2", "-1", "10"]).to_owned(),
        ArgKind::Range(low, high) => dice.pick(&[&*low.to_string(), &*high.to_string()]).to_owned(),
        ArgKind::Within(characters) => {
            characters.chars().filter(|c| c.is_ascii_alphanumeric()).take(1 + dice.below(2)).collect()
        }
        ArgKind::IntOrVar | ArgKind::FromOrVar(_) if dice.chance(70) => dice.pick(NUMBERS).to_owned(),
        ArgKind::Base64OrVar if dice.chance(70) => {
            dice.pick(&["YWJj", "c2VjcmV0IGtleQ==", "MDEyMzQ1Njc4OWFiY2RlZg==", "MDEyMzQ1Njc4OWFi"]).to_owned()
        }
        ArgKind::IntOrVar | ArgKind::FromOrVar(_) | ArgKind::Base64OrVar | ArgKind::Var => variable(dice),
        ArgKind::Word => text_argument(spec.name, dice),
        ArgKind::Str => text_argument(spec.name, dice),
        ArgKind::VarCondition => dice
            .pick(&["ifexists", "ifnotexists", "ifempty", "ifnotempty", "ifset", "ifnotset", "ifgt", "iflt"])
            .to_owned(),
        ArgKind::Hex => dice.pick(&["4142", "00ff", "", "0a0D"]).to_owned(),
        ArgKind::Bool => dice.pick(&["true", "false", "1", "0"]).to_owned(),
        ArgKind::Ipv4 => dice.pick(&["127.0.0.1", "10.0.0.1", "0.0.0.0", "255.255.255.255"]).to_owned(),
        ArgKind::Ipv6 => dice.pick(&["::1", "2001:db8::1", "::ffff:1.2.3.4", "::"]).to_owned(),
        ArgKind::Mask4 => dice.pick(&["24", "255.255.0.0", "0", "32", "8"]).to_owned(),
        ArgKind::Mask6 => dice.pick(&["64", "128", "0", "ffff::"]).to_owned(),
        ArgKind::Regex => quoted(dice.pick(REGEXES)),
        ArgKind::Backend => "k§".to_owned(),
        ArgKind::Frontend => "f§".to_owned(),
        ArgKind::Server => "k§/s1".to_owned(),
        ArgKind::Table => "k§".to_owned(),
        ArgKind::Acl => "TRUE".to_owned(),
        ArgKind::Userlist => "users".to_owned(),
        ArgKind::Tlv => dice.pick(&["AUTHORITY", "UNIQUE_ID", "2", "0xe0"]).to_owned(),
        ArgKind::Digest => dice.pick(&["md5", "SHA1", "sha-256", "sha512-256", "SHA3-384"]).to_owned(),
        ArgKind::TokenAlgorithm => dice.pick(&["HS256", "RS512", "ES384", "PS256", "none", "txn.a"]).to_owned(),
        ArgKind::TokenKey => dice.pick(&["secret", "txn.b"]).to_owned(),
        ArgKind::FieldNumber => dice.pick(&["1", "1.2", "3.1.4"]).to_owned(),
        ArgKind::FixTag => dice.pick(&["35", "MsgType", "CheckSum", "49"]).to_owned(),
        ArgKind::MqttPacket => dice.pick(&["connect", "CONNECT", "1"]).to_owned(),
        ArgKind::MqttField => dice.pick(&["flags", "username", "KeepAlive", "33"]).to_owned(),
        ArgKind::OneOf(words) => dice.pick(words).to_owned(),
    }
}

/// The map that fits a converter: keys are texts, numbers or addresses, and so are values.
fn map_file(of: &str) -> &'static str {
    let keys = match of {
        _ if of.starts_with("map_ip") => "ip",
        _ if of.starts_with("map_int") => "int",
        _ => "text",
    };
    match (keys, of) {
        ("ip", "map_ip_ip") => "{{dir}}/ip-ip.map",
        ("ip", "map_ip_int") => "{{dir}}/ip-int.map",
        ("ip", _) => "{{dir}}/ip-text.map",
        ("int", "map_int_int") => "{{dir}}/int-int.map",
        ("int", "map_int_ip") => "{{dir}}/int-ip.map",
        ("int", _) => "{{dir}}/int-text.map",
        (_, of) if of.ends_with("_int") => "{{dir}}/text-int.map",
        (_, of) if of.ends_with("_ip") => "{{dir}}/text-ip.map",
        _ => "{{dir}}/map.txt",
    }
}

fn text_argument(name: &str, dice: &mut Dice) -> String {
    let text = match name {
        "name" | "field" => dice.pick(NAMES),
        "delimiter" | "delimiters" | "separator" => dice.pick(&["/", ".", ",", "-", "&", "=", ";", " ", "a"]),
        "chars" => dice.pick(&["a", "/", " ", "ab", "0", "-"]),
        "json_path" => dice.pick(&["$.a", "$.b.c", "$.l[0]", "$.none", "$"]),
        "format" => dice.pick(&["%Y", "%d/%b/%Y", "%H:%M", "%%", "%j"]),
        "flags" => dice.pick(&["g", "i", "gi", ""]),
        "replacement" => dice.pick(&["x", "\\1", "[\\2\\1]", "", "\\0-"]),
        "method" => dice.pick(&["GET", "POST", "FOO"]),
        "values" => dice.pick(&["fr;en", "de", "en;fr;es"]),
        _ => dice.pick(TEXTS),
    };
    quoted(text)
}

/// Text as an argument between parentheses: quotes protect what would end it.
fn quoted(text: &str) -> String {
    if text.contains([',', ')', '(', ' ', '\\', '"', '\'', ']']) { format!("'{text}'") } else { text.to_owned() }
}

fn variable(dice: &mut Dice) -> String {
    let scope = dice.pick(&["txn", "txn", "req", "res", "sess"]);
    format!("{scope}.{}", dice.pick(&["v1", "v2"]))
}

fn call(name: &str, args: &[ArgSpec], dice: &mut Dice) -> String {
    let mut given: Vec<String> = Vec::new();
    for spec in args {
        // The current proxy, which stands for a name that is left out, is often of the wrong kind.
        let named = matches!(spec.kind, ArgKind::Backend | ArgKind::Frontend | ArgKind::Table);
        if spec.optional && !named && dice.chance(35) {
            break;
        }
        given.push(argument(name, spec, dice));
    }
    if given.is_empty() { name.to_owned() } else { format!("{name}({})", given.join(",")) }
}

/// A sample expression of any type, and its type where that is known.
pub fn expression(moment: Moment, dice: &mut Dice) -> (String, Type) {
    let fetches = usable_fetches();
    let spec = loop {
        let spec = fetches[dice.below(fetches.len())];
        // Stick tables and maps have as many rows as all else together.
        if is_of_tables(spec.name) && dice.chance(70) {
            continue;
        }
        let fits = spec.places.meets(moment.places());
        // Text of the request is what most converters are for.
        let dull = spec.args.is_empty() && spec.output != Type::Str;
        if (fits || dice.chance(1)) && (!dull || dice.chance(40)) {
            break spec;
        }
    };
    let mut text = call(spec.name, spec.args, dice);
    if dice.chance(4)
        && let Some((alias, _)) = fetch::ALIASES.iter().find(|(_, of)| *of == spec.name)
    {
        text = text.replacen(spec.name, alias, 1);
    }
    let mut kind = spec.output;
    for _ in 0..dice.pick(&["0", "0", "1", "1", "2", "3"]).parse::<usize>().unwrap_or(0) {
        let converters = usable_converters();
        let fitting: Vec<_> = converters.iter().filter(|c| kind.casts_to(c.input)).collect();
        if fitting.is_empty() {
            break;
        }
        let spec = fitting[dice.below(fitting.len())];
        if is_of_tables(spec.name) && dice.chance(70) {
            continue;
        }
        text = format!("{text},{}", call(spec.name, spec.args, dice));
        if spec.output != Type::Any {
            kind = spec.output;
        }
    }
    (text, kind)
}

/// Whether a fetch or a converter is one of the many that ask a stick table or a map.
fn is_of_tables(name: &str) -> bool {
    ["sc_", "sc0_", "sc1_", "sc2_", "src_", "table_", "in_table", "map_"].iter().any(|start| name.starts_with(start))
        && !matches!(name, "src_port" | "src_is_local")
}

/// Whether a line of the configuration needs a stick table.
pub fn needs_table(line: &str) -> bool {
    ["sc_", "sc0_", "sc1_", "sc2_", "src_", "table", "track-sc", "stick "].iter().any(|part| line.contains(part))
}

/// Rows of fetches whose value can be compared.
pub fn usable_fetches() -> &'static [&'static fetch::FetchSpec] {
    static ROWS: LazyLock<Vec<&fetch::FetchSpec>> = LazyLock::new(|| {
        let sections = fetch::sections().iter().filter(|(name, _)| !name.starts_with("Layer 5"));
        let rows = sections.flat_map(|(_, table)| *table).filter(|s| matches!(s.support, Support::Yes(_)));
        rows.filter(|s| !unsteady(UNSTEADY_FETCHES, s.name) && is_known(s.name)).collect()
    });
    &ROWS
}

/// Rows of converters whose value can be compared.
pub fn usable_converters() -> &'static [&'static conv::ConvSpec] {
    static ROWS: LazyLock<Vec<&conv::ConvSpec>> = LazyLock::new(|| {
        let rows = conv::sections().iter().flat_map(|(_, table)| *table);
        let rows = rows.filter(|s| matches!(s.support, Support::Yes(_)));
        rows.filter(|s| !unsteady(UNSTEADY_CONVERTERS, s.name) && is_known(s.name)).collect()
    });
    &ROWS
}

/// A format: text, expressions, aliases.
pub fn format(moment: Moment, dice: &mut Dice) -> String {
    let mut out = String::new();
    for _ in 0..=dice.below(2) {
        match dice.below(10) {
            0 => out.push_str(&dice.pick(TEXTS).replace('%', "%%")),
            1 | 2 => {
                let aliases: Vec<_> = ALIASES
                    .iter()
                    .filter(|a| !unsteady(UNSTEADY_ALIASES, a.name) && !a.name.starts_with("ssl"))
                    .collect();
                let alias = aliases[dice.below(aliases.len())].name;
                out.push_str(&format!("%{}{alias} ", flags(dice)));
            }
            _ => out.push_str(&format!("%{}[{}]", flags(dice), expression(moment, dice).0)),
        }
    }
    if out.is_empty() { "-".to_owned() } else { out }
}

fn flags(dice: &mut Dice) -> &'static str {
    if dice.chance(85) { "" } else { dice.pick(&["{+Q}", "{+E}", "{+X}", "{+Q,+E}", "{-Q}"]) }
}

/// A log format. It begins with the frontend's name, by which its lines are recognised.
pub fn log_format(dice: &mut Dice) -> String {
    let mut out = "f§".to_owned();
    for _ in 0..=dice.below(5) {
        out.push(' ');
        out.push_str(&format(Moment::Log, dice));
    }
    // HAProxy writes a line that waits for nothing but the request's head twice.
    out + " %B"
}

/// ` if ...` or ` unless ...`, or nothing.
pub fn condition(moment: Moment, dice: &mut Dice) -> String {
    if dice.chance(45) {
        return String::new();
    }
    let mut out = format!(" {}", dice.pick(&["if", "if", "if", "unless"]));
    for term in 0..=dice.below(3).min(dice.below(3)) {
        if term > 0 && dice.chance(40) {
            out.push_str(dice.pick(&[" or", " ||"]));
        }
        let not = if dice.chance(20) { "!" } else { "" };
        match dice.below(6) {
            0 => {
                let known: Vec<_> =
                    PREDEFINED.iter().map(|(n, _)| *n).filter(|n| knows_newer() || !NEWER_ACLS.contains(n)).collect();
                out.push_str(&format!(" {not}{}", dice.pick(&known)));
            }
            1 => out.push_str(&format!(" {not}{}", dice.pick(&["a1", "a2"]))),
            _ => out.push_str(&format!(" {not}{{ {} }}", test(moment, dice))),
        }
    }
    out
}

/// The part of an `acl` line after its name, or of a condition in braces.
pub fn test(moment: Moment, dice: &mut Dice) -> String {
    if dice.chance(15) {
        let all: Vec<String> = criteria().filter(|c| !c.starts_with("ssl")).collect();
        let name = &all[dice.below(all.len())];
        let argument = if name.starts_with("base") || name.starts_with("path") || name.starts_with("url_") {
            String::new()
        } else {
            format!("({})", dice.pick(NAMES))
        };
        let pattern = patterns_of(name.rsplit('_').next().unwrap_or_default(), dice);
        return format!("{name}{argument} -- {pattern}");
    }
    let (text, kind) = expression(moment, dice);
    let natural = match kind {
        Type::Bool => "bool",
        Type::Int => "int",
        Type::Addr | Type::Ipv4 | Type::Ipv6 => "ip",
        Type::Bin => "bin",
        _ => "str",
    };
    let mut out = word(&text);
    let method = match dice.below(3) {
        0 => {
            let names: Vec<&str> = patterns::Method::NAMES.iter().map(|(n, _)| *n).collect();
            dice.pick(&names)
        }
        1 => natural,
        // Bytes have no method of their own.
        _ if matches!(kind, Type::Bin | Type::Any) || text.contains(')') && text.contains(',') => natural,
        _ => "",
    };
    let ignore_case = if dice.chance(15) { " -i" } else { "" };
    out.push_str(ignore_case);
    if !method.is_empty() {
        out.push_str(&format!(" -m {method}"));
    }
    let spoken = if method.is_empty() { natural } else { method };
    if method.is_empty() && kind == Type::Bool || spoken == "found" || spoken == "bool" && dice.chance(80) {
        return out;
    }
    if dice.chance(6) {
        let list = match spoken {
            "int" | "len" => "int-text.map",
            "ip" => "ip-text.map",
            "bin" => "bin.txt",
            _ => "list.txt",
        };
        return format!("{out} {} {{{{dir}}}}/{list}", if list.ends_with(".map") { "-M -f" } else { "-f" });
    }
    format!("{out} -- {}", patterns_of(spoken, dice))
}

fn patterns_of(method: &str, dice: &mut Dice) -> String {
    let mut out = Vec::new();
    for _ in 0..=dice.below(2) {
        out.push(match method {
            "int" | "len" => {
                dice.pick(&["0", "1", "3", "gt 0", "lt 3", "ge 1", "le 2", "eq 1", "1:5", "0:", ":2"]).to_owned()
            }
            "ip" => dice
                .pick(&["127.0.0.1", "127.0.0.0/8", "::1", "10.0.0.0/8", "0.0.0.0/0", "::ffff:127.0.0.1"])
                .to_owned(),
            "bin" => dice.pick(&["41", "616263", "00", "4142"]).to_owned(),
            "bool" => dice.pick(&["true", "false", "1"]).to_owned(),
            "reg" => word(dice.pick(REGEXES)),
            _ => word(dice.pick(TEXTS)),
        });
    }
    out.join(" ")
}

/// Actions that write a target, or a path.
const TARGETS: &[&str] = &["set-path", "set-pathq", "set-uri", "replace-path", "replace-pathq", "replace-uri"];

/// An action with its arguments, if this list takes it.
pub fn action(kind: Kind, dice: &mut Dice) -> String {
    let rows: Vec<_> = ACTIONS
        .iter()
        .filter(|s| s.allowed_in(kind) && s.refusal().is_none() && is_known(&format!("{} {}", kind.name(), s.name)))
        .filter(|s| !LEFT_OUT_ACTIONS.iter().any(|(n, _)| *n == s.name))
        .collect();
    let row = rows[dice.below(rows.len())];
    // Most that end a message's way leave nothing for the rest of the case to show.
    let ends = matches!(
        row.name,
        "deny" | "reject" | "return" | "redirect" | "tarpit" | "close" | "auth" | "accept" | "allow"
    );
    if ends && dice.chance(60) {
        return format!("set-header x-{} {}", dice.pick(&["1", "2", "3"]), word(&format(Moment::Rule(kind), dice)))
            .replace(
                "set-header x-1",
                if kind.name().starts_with("http") { "set-header x-1" } else { "set-var-fmt(txn.v1)" },
            );
    }
    let args = expand(row.args, dice, &mut |slot, dice| match slot {
        "method" => dice.pick(&["str", "beg", "end", "sub", "reg"]).to_owned(),
        // An empty path, or one without a slash, is an intended difference: `rules/empty-path`, `rules/path-without-slash`.
        "fmt" if TARGETS.contains(&row.name) => word(&format!("/{}", format(Moment::Rule(kind), dice))),
        slot => filler(slot, Moment::Rule(kind), dice).unwrap_or_else(|| format!("<{slot}>")),
    });
    let space = if args.is_empty() || row.args.starts_with('(') { "" } else { " " };
    match row.name {
        // The table writes its number as an argument; it is part of the word.
        "track-sc" if !args.contains(" table ") => format!("track-sc{args} table k§"),
        "track-sc" => format!("track-sc{args}"),
        name => format!("{name}{space}{args}"),
    }
}

/// What may stand in a slot of an argument's pattern.
pub fn filler(slot: &str, moment: Moment, dice: &mut Dice) -> Option<String> {
    Some(match slot {
        "fmt" => word(&format(moment, dice)),
        "logfmt" => word(&log_format(dice)),
        "expr" => word(&expression(moment, dice).0),
        "test" => test(moment, dice),
        "cond-rule" => condition(moment, dice),
        "name" => dice.pick(NAMES).to_owned(),
        "text" | "realm" => word(dice.pick(&["a", "two words", "x-1"])),
        "regex" => word(dice.pick(REGEXES)),
        "var" => variable(dice),
        "cond" => argument("", &ArgSpec { name: "cond", kind: ArgKind::VarCondition, optional: false }, dice),
        "n" | "sc" => dice.pick(&["0", "1", "2"]).to_owned(),
        "idx" => dice.pick(&["0", "1"]).to_owned(),
        "slot" => dice.pick(&["0", "1"]).to_owned(),
        "len" => dice.pick(&["1", "5", "20", "100"]).to_owned(),
        "file" => dice.pick(&["{{dir}}/map.txt", "{{dir}}/list.txt"]).to_owned(),
        "key" | "value" => word(&format(moment, dice)),
        "code" => dice.pick(&["200", "400", "403", "404", "429", "503"]).to_owned(),
        "errcode" => dice.pick(&["400", "403", "404", "408", "500", "502", "503", "504"]).to_owned(),
        "status" => dice.pick(&["200", "204", "304", "404", "500", "299", "101"]).to_owned(),
        "reply" => expand(
            "{content-type text/plain {string <word> | lf-string <fmt> | file <dir>/page.txt} | default-errorfiles | errorfile <dir>/404.http | errorfiles pages | hdr <name> <fmt> content-type text/html string <word>}",
            dice,
            &mut |slot, dice| filler(slot, moment, dice).unwrap_or_default(),
        ),
        "dir" => "{{dir}}".to_owned(),
        "word" => word(dice.pick(TEXTS)),
        "normalizer" => dice
            .pick(&[
                "fragment-encode",
                "fragment-strip",
                "path-merge-slashes",
                "path-strip-dot",
                "path-strip-dotdot",
                "path-strip-dotdot full",
                "percent-decode-unreserved",
                "percent-decode-unreserved strict",
                "percent-to-uppercase",
                "query-sort-by-name",
            ])
            .to_owned(),
        "redirection" => redirection(moment, dice),
        "int" => dice.pick(&["0", "1", "7"]).to_owned(),
        "table" => "k§".to_owned(),
        "level" => dice.pick(&["silent", "debug", "emerg", "info"]).to_owned(),
        "mark" | "tos" => dice.pick(&["0", "2", "0x10"]).to_owned(),
        "nice" => "10".to_owned(),
        "time" => dice.pick(&["100ms", "200", "1s"]).to_owned(),
        "bytes" => dice.pick(&["1", "10", "1k"]).to_owned(),
        "ttl" => "1".to_owned(),
        "proto" => "h1".to_owned(),
        "service" => "prometheus-exporter".to_owned(),
        _ => return None,
    })
}

fn redirection(moment: Moment, dice: &mut Dice) -> String {
    let target = match dice.below(5) {
        0 => "scheme https".to_owned(),
        1 => format!("prefix {}", word(&format!("http://x{}", format(moment, dice)))),
        2 => format!("prefix {}", dice.pick(&["/", "/pre", "http://h.example"])),
        3 => format!("location {}", word(&format(moment, dice))),
        _ => "location /new?x=1".to_owned(),
    };
    let mut out = target;
    if dice.chance(50) {
        out.push_str(&format!(" code {}", dice.pick(&["301", "302", "303", "307", "308"])));
    }
    for option in ["drop-query", "append-slash", "set-cookie A=1", "clear-cookie A=", "ignore-empty"] {
        if dice.chance(12) {
            out.push_str(&format!(" {option}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row with an argument that cannot be made up would never be generated.
    #[test]
    fn every_slot_of_the_table_of_actions_is_filled() {
        // HAProxy has no rules on a ClientHello.
        for kind in Kind::ALL.iter().filter(|kind| **kind != Kind::TcpHello) {
            for seed in 0..300 {
                let text = action(*kind, &mut Dice::new(seed));
                assert!(!text.contains('<') || text.contains('"') || text.contains("(?"), "{}: {text}", kind.name());
            }
        }
    }

    /// What is left out is left out for a row that is there.
    #[test]
    fn what_is_left_out_exists() {
        let fetches: Vec<&str> = fetch::names().collect();
        let converters: Vec<&str> = conv::names().collect();
        let aliases: Vec<&str> = ALIASES.iter().map(|a| a.name).collect();
        let actions: Vec<&str> = ACTIONS.iter().map(|a| a.name).collect();
        for (table, names) in [
            (UNSTEADY_FETCHES, fetches),
            (UNSTEADY_CONVERTERS, converters),
            (UNSTEADY_ALIASES, aliases),
            (LEFT_OUT_ACTIONS, actions),
        ] {
            for (name, _) in table {
                assert!(names.iter().any(|n| n.starts_with(name)), "there is no `{name}`");
            }
        }
    }

    /// Each row of the tables comes up.
    #[test]
    fn every_usable_row_is_spoken() {
        let mut dice = Dice::new(1);
        let moments: Vec<Moment> = Kind::ALL.iter().map(|k| Moment::Rule(*k)).chain([Moment::Log]).collect();
        let spoken: String = (0..60_000).map(|n| expression(moments[n % moments.len()], &mut dice).0 + "\n").collect();
        for name in usable_fetches().iter().map(|s| s.name).chain(usable_converters().iter().map(|s| s.name)) {
            assert!(spoken.contains(name), "{name} is never spoken");
        }
    }
}
