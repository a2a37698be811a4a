//! A configuration without one word: what a test that depends on the word must notice.

use std::sync::LazyLock;

use regex::Regex;

use super::rows::{Kind, Row};
use penstock_config::manual;

/// The variants of a text without the row, best first; a text in which the row does not occur is unchanged. All texts
/// of a configuration have equally many variants, and those of one index belong together.
pub fn mutants(row: &Row, text: &str) -> Vec<String> {
    match row.kind {
        Kind::Line(section) => vec![lines(text, section, |words| begins(words, row.name))],
        Kind::Action(rules) => vec![lines(text, "proxy", |words| acts(words, rules, row.name))],
        Kind::Setting(section, min, max) => vec![settings(text, section, row.name, min, max)],
        Kind::Fetch => {
            const INSTEAD: [&str; 5] =
                ["str(mutated)", "int(424242)", "ipv4(203.0.113.9)", "always_false", "always_true"];
            INSTEAD.iter().map(|instead| fetches(text, row.name, instead)).collect()
        }
        Kind::Converter => vec![converters(text, row.name)],
        Kind::Alias => vec![aliases(text, row.name)],
        Kind::Metric => vec![text.to_owned()],
    }
}

/// The kinds of sections that a configuration has.
const SECTIONS: &[&str] = &[
    "global",
    "defaults",
    "frontend",
    "listen",
    "backend",
    "userlist",
    "resolvers",
    "peers",
    "crt-store",
    "http-errors",
    "cache",
    "mailers",
    "ring",
    "log-forward",
    "program",
    "fcgi-app",
    "spoe-agent",
    "spoe-message",
    "spoe-group",
];

/// Each line with the kind of section it stands in.
fn sectioned(text: &str) -> impl Iterator<Item = (&'static str, &str)> {
    let mut section = "";
    text.lines().map(move |line| {
        let first = line.split_whitespace().next().unwrap_or_default();
        let heads = SECTIONS.iter().find(|s| **s == first);
        if let Some(name) = heads {
            section = match *name {
                "defaults" | "frontend" | "listen" | "backend" => "proxy",
                other => other,
            };
        }
        // A section's own head is none of its lines.
        (if heads.is_some() { "" } else { section }, line)
    })
}

/// The text without the lines of a section that `goes` chooses. They stay empty, so that the others keep their numbers.
fn lines(text: &str, section: &str, goes: impl Fn(&[&str]) -> bool) -> String {
    let kept = sectioned(text).map(|(place, line)| {
        let words: Vec<&str> = words(line).into_iter().map(|(from, to)| &line[from..to]).collect();
        if place == section && goes(&words) { "" } else { line }
    });
    kept.collect::<Vec<_>>().join("\n")
}

fn begins(words: &[&str], name: &str) -> bool {
    let words = words.strip_prefix(&["no"]).unwrap_or(words);
    let mut count = 0;
    let named = name.split(' ').all(|part| {
        count += 1;
        // As in `http-check set-var(check.name)`.
        let of_one = |word: &&str| word.strip_prefix(part).is_some_and(|rest| rest.is_empty() || rest.starts_with('('));
        words.get(count - 1).is_some_and(of_one)
    });
    named && !(name == "stats socket" && words.len() < 3)
}

fn acts(words: &[&str], rules: &str, name: &str) -> bool {
    let count = rules.split(' ').count();
    let Some(action) = words.get(count).filter(|_| begins(words, rules)) else { return false };
    match action.strip_prefix(name) {
        Some("") => true,
        Some(rest) if name == "track-sc" => rest.bytes().all(|b| b.is_ascii_digit()),
        Some(rest) => rest.starts_with('('),
        None => false,
    }
}

/// The text without a setting of its `bind` or `server` lines, or of the part in brackets in a crt-list.
fn settings(text: &str, section: &str, name: &str, min: u8, max: u8) -> String {
    let known: Vec<&str> = manual::keywords().iter().filter(|e| e.section == section).map(|e| e.name).collect();
    let changed = sectioned(text).map(|(place, line)| {
        let found = words(line);
        let word = |i: usize| found.get(i).map_or("", |(from, to)| &line[*from..*to]);
        let first = match (section, word(0)) {
            ("bind", "bind") => 2,
            ("server", "server") => 3,
            ("server", "server-template") => 4,
            ("server", "default-server") => 1,
            ("bind", _) if place.is_empty() && line.contains(" [") && line.contains(']') => 1,
            _ => return line.to_owned(),
        };
        let mut gone = Vec::new();
        let mut i = first;
        while i < found.len() {
            let bare = word(i).trim_start_matches('[').trim_end_matches(']');
            // As in `set-proxy-v2-tlv-fmt(2)`.
            if !bare.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('(')) {
                i += 1;
                continue;
            }
            let mut end = i + 1 + usize::from(min);
            while end < found.len() && end - i - 1 < usize::from(max) && !known.contains(&word(end)) {
                end += 1;
            }
            gone.extend(i..end.min(found.len()));
            i = end;
        }
        let mut line = line.to_owned();
        for at in gone.into_iter().rev() {
            let (from, to) = found[at];
            let brackets: String = line[from..to].chars().filter(|c| place.is_empty() && "[]".contains(*c)).collect();
            line.replace_range(from..to, &brackets);
        }
        line
    });
    changed.collect::<Vec<_>>().join("\n")
}

/// What may stand before a fetch.
const BEFORE_FETCH: &str = r"(?:%(?:\{[^}]*\})?\[\s*|\{\s*(?:!\s*)?|\bacl\s+\S+\s+|set-var\([^)]*\)\s+|track-sc\d+\s+|stick\s+(?:on|match|store-request|store-response)\s+|\bcapture\s+|(?:check-)?sni\s+|\bhash\s+|set-gpt0?\([^)]*\)\s+|set-(?:src|dst|src-port|dst-port|priority-class|priority-offset)\s+|\bconcat\()";

fn fetches(text: &str, name: &str, instead: &str) -> String {
    let pattern = format!(r"{BEFORE_FETCH}({})(?:[(,\s\]]|$)", regex::escape(name));
    let pattern = Regex::new(&pattern).expect("an escaped name");
    each_line(text, |line| {
        let mut line = line.to_owned();
        let mut from = 0;
        while let Some(found) = pattern.captures_at(&line, from) {
            let found = found.get(1).expect("the pattern's only group");
            let range = found.start()..closing(&line, found.end());
            from = range.start + instead.len();
            line.replace_range(range, instead);
        }
        line
    })
}

fn converters(text: &str, name: &str) -> String {
    let pattern = format!(r"(,{})(?:[(,\s\])]|$)", regex::escape(name));
    let pattern = Regex::new(&pattern).expect("an escaped name");
    each_line(text, |line| {
        let mut line = line.to_owned();
        while let Some(found) = pattern.captures(&line) {
            let found = found.get(1).expect("the pattern's only group");
            line.replace_range(found.start()..closing(&line, found.end()), "");
        }
        line
    })
}

fn aliases(text: &str, name: &str) -> String {
    let pattern = format!(r"%(?:\{{[^}}]*\}})?{}(?:\b|$)", regex::escape(name));
    let pattern = Regex::new(&pattern).expect("an escaped name");
    each_line(text, |line| pattern.replace_all(line, "-").into_owned())
}

/// Lines of a configuration, their comments left out of it.
fn each_line(text: &str, change: impl Fn(&str) -> String) -> String {
    let comment = |line: &str| line.trim_start().starts_with('#');
    text.lines().map(|l| if comment(l) { l.to_owned() } else { change(l) }).collect::<Vec<_>>().join("\n")
}

/// Where the parenthesis that opens at `at` has closed; `at` itself where none opens there.
fn closing(line: &str, at: usize) -> usize {
    if !line[at..].starts_with('(') {
        return at;
    }
    let (mut depth, mut quote) = (0_usize, None);
    for (i, c) in line[at..].char_indices() {
        match c {
            '\'' | '"' if quote == Some(c) => quote = None,
            '\'' | '"' if quote.is_none() => quote = Some(c),
            '(' if quote.is_none() => depth += 1,
            ')' if quote.is_none() => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + i + 1;
        }
    }
    line.len()
}

/// Where a line's words are, as written; none of a comment.
fn words(line: &str) -> Vec<(usize, usize)> {
    static WORD: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r##"(?:\{\{[^}]*\}\}|\\.|'[^']*'|"(?:\\.|[^"\\])*"|[^\s#'"\\])+|#.*"##).expect("a constant pattern")
    });
    WORD.find_iter(line).take_while(|m| !m.as_str().starts_with('#')).map(|m| (m.start(), m.end())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(kind: Kind, name: &'static str, text: &str) -> String {
        mutants(&Row { kind, name }, text).remove(0)
    }

    #[test]
    fn a_line_goes_only_from_its_section() {
        let text = "global\n maxconn 5 # maxconn\nlisten l\n maxconn 7\n # maxconn\n no option httplog";
        let kept = "global\n maxconn 5 # maxconn\nlisten l\n\n # maxconn\n no option httplog";
        assert_eq!(one(Kind::Line("proxy"), "maxconn", text), kept);
        assert_eq!(one(Kind::Line("proxy"), "option httplog", "listen l\n no option httplog"), "listen l\n");
        assert_eq!(one(Kind::Action("http-request"), "deny", "listen l\n http-request deny if x"), "listen l\n");
        let track = "listen l\n http-request track-sc0 src\n http-request track-sc0-x";
        let kept = "listen l\n\n http-request track-sc0-x";
        assert_eq!(one(Kind::Action("http-request"), "track-sc", track), kept);
    }

    #[test]
    fn a_setting_goes_with_its_words() {
        let bind = Kind::Setting("bind", 1, 1);
        assert_eq!(one(bind, "crt", "bind {{bind a}} ssl crt 'a b' alpn h2"), "bind {{bind a}} ssl   alpn h2");
        assert_eq!(one(bind, "crt", "bind crt ssl"), "bind crt ssl");
        assert_eq!(one(bind, "alpn", "a.pem [alpn h2 ssl-min-ver TLSv1.2] x"), "a.pem [  ssl-min-ver TLSv1.2] x");
        let options = Kind::Setting("server", 1, u8::MAX);
        assert_eq!(one(options, "on-error", "server s :1 on-error a b check"), "server s :1    check");
    }

    #[test]
    fn samples_lose_their_fetch_or_converter() {
        let fetch = |text| one(Kind::Fetch, "path", text);
        assert_eq!(fetch("acl a path /x"), "acl a str(mutated) /x");
        assert_eq!(
            fetch("http-request set-header A %[path,lower] path"),
            "http-request set-header A %[str(mutated),lower] path"
        );
        assert_eq!(fetch("use_backend path if { path_beg /path }"), "use_backend path if { path_beg /path }");
        let conv = |text| one(Kind::Converter, "regsub", text);
        assert_eq!(conv(r#"%[path,regsub("(a)",b),lower]"#), "%[path,lower]");
        assert_eq!(one(Kind::Alias, "T", "log-format %T%Tw %{+Q}T"), "log-format -%Tw -");
    }
}
