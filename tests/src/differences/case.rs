//! One generated case: a frontend, a backend, origins' answers and steps. Many stand in one scenario; each can also be
//! written as a scenario of its own.

use super::reference;
use crate::process::Subject;

/// A placeholder for the case's number in names that must be unique: `f§` is the frontend, `k§` the backend, `b§` the
/// address, `o§` the origin. In a scenario of its own the number is left out.
pub const NUMBER: char = '§';

/// An origin's section, an answer or a step: a header without its brackets, and lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// `request b§ keep`.
    pub head: String,
    /// What stands below.
    pub lines: Vec<String>,
}

impl Block {
    /// A block of these lines.
    pub fn new(head: impl Into<String>, lines: Vec<String>) -> Self {
        Self { head: head.into(), lines }
    }

    /// Whether it is a step, and not a part of the world.
    pub fn is_step(&self) -> bool {
        !matches!(self.head.split(' ').next(), Some("origin" | "answer"))
    }
}

/// Which section of the configuration a line belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// `defaults d§ from base`, if it has lines.
    Defaults,
    /// `frontend f§`.
    Front,
    /// `backend k§`.
    Back,
}

/// A case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Case {
    /// Lines of the configuration, each with its section.
    pub lines: Vec<(Section, String)>,
    /// Answers and steps, in order.
    pub blocks: Vec<Block>,
}

/// A line of a rendered configuration: whose it is (case, line), and its text.
pub struct Line {
    /// The case and the place of the line in it, if it belongs to a case.
    pub owner: Option<(usize, usize)>,
    /// Its text.
    pub text: String,
}

/// What all cases stand on. Times are short because cases wait for them. Those of clients differ from those of servers, which
/// begin with them: chance would decide which is over first.
const BASE: &str = "global
    nbthread 1
    expose-experimental-directives
    log {{syslog}} local0
defaults base
    mode http
    log global
    option httplog
    timeout connect 1500
    timeout client 1300
    timeout server 1500
    timeout http-keep-alive 200
    timeout tarpit 100
    timeout queue 300";

/// Sections that are there when a case names them.
const ON_DEMAND: &[(&str, &str)] = &[
    (
        "users",
        "userlist users
    group g1 users alice
    user alice insecure-password secret
    user bob insecure-password x",
    ),
    (
        "pages",
        "http-errors pages
    errorfile 404 {{dir}}/404.http
    errorfile 503 {{dir}}/503.http",
    ),
];

/// Files that are there when a case names them.
pub const FILES: &[(&str, &str)] = &[
    ("404.http", "HTTP/1.0 404 Gone\nX-File: 404\nContent-Length: 5\n\nlost"),
    ("503.http", "HTTP/1.1 503 Away\nContent-Type: text/plain\nContent-Length: 5\n\naway"),
    ("page.txt", "a page of text"),
    ("int-int.map", "0 100\n1 101\n10 110"),
    ("int-ip.map", "0 10.0.0.0\n1 10.0.0.1\n10 10.0.0.10"),
    ("int-text.map", "0 zero\n1 one\n10 ten"),
    ("ip-int.map", "127.0.0.0/8 127\n::1 1"),
    ("ip-ip.map", "127.0.0.0/8 10.0.0.127\n::1 10.0.0.1"),
    ("ip-text.map", "127.0.0.0/8 local\n::1 six"),
    ("text-int.map", "a 1\n/a 2\n/a/b 3\nGET 4"),
    ("text-ip.map", "a 10.0.0.1\n/a 10.0.0.2\n/a/b 10.0.0.3\nGET 10.0.0.4"),
    ("bin.txt", "41\n616263"),
    ("list.txt", "# a list\nabc\n/a/b\n127.0.0.1\n1\nGET\nh.example"),
    ("map.txt", "a apple\nab better\n/a path\n/a/b deeper\n1 one\n127.0.0.0/8 local\nGET got\nh.example host"),
];

/// The whole configuration of several cases.
pub fn configuration(cases: &[&Case]) -> Vec<Line> {
    let mut out: Vec<Line> = Vec::new();
    let plain = |text: &str, out: &mut Vec<Line>| {
        out.extend(text.lines().map(|l| Line { owner: None, text: l.to_owned() }));
    };
    plain(BASE, &mut out);
    let named = |word: &str| cases.iter().any(|c| c.lines.iter().any(|(_, l)| mentions(l, word)));
    for (word, text) in ON_DEMAND {
        if named(word) {
            plain(text, &mut out);
        }
    }
    for (number, case) in cases.iter().enumerate() {
        let suffix = if cases.len() == 1 { String::new() } else { number.to_string() };
        let own = |text: &str| text.replace(NUMBER, &suffix);
        let has_defaults = case.lines.iter().any(|(s, _)| *s == Section::Defaults);
        let from = if has_defaults { "d§" } else { "base" };
        for (section, head) in [
            (Section::Defaults, "defaults d§ from base".to_owned()),
            (Section::Front, format!("frontend f§ from {from}")),
            (Section::Back, format!("backend k§ from {from}")),
        ] {
            let lines: Vec<_> = case.lines.iter().enumerate().filter(|(_, (s, _))| *s == section).collect();
            if lines.is_empty() {
                continue;
            }
            plain(&own(&head), &mut out);
            out.extend(
                lines
                    .into_iter()
                    .map(|(at, (_, text))| Line { owner: Some((number, at)), text: format!("    {}", own(text)) }),
            );
        }
    }
    out
}

/// Whether `word` stands in `text` by itself.
fn mentions(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    text.match_indices(word).any(|(at, _)| !text[..at].ends_with(part) && !text[at + word.len()..].starts_with(part))
}

/// The scenario of several cases. The case of each step, in order, comes with it.
pub fn scenario(about: &str, arguments: &str, cases: &[&Case]) -> (String, Vec<usize>) {
    let config = configuration(cases);
    let mut out = String::new();
    for line in about.lines() {
        out.push_str(&format!("# {line}\n"));
    }
    let space = if arguments.is_empty() { "" } else { " " };
    if reference() == Subject::Haproxy30 {
        out.push_str("[reference 3.0]\n");
    }
    out.push_str(&format!("[config whole{space}{arguments}]\n"));
    for line in &config {
        out.push_str(&line.text);
        out.push('\n');
    }
    for (name, text) in FILES {
        if config.iter().any(|l| l.text.contains(&format!("{{{{dir}}}}/{name}"))) {
            out.push_str(&format!("\n[file {name}]\n{text}\n"));
        }
    }
    let mut steps = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let suffix = if cases.len() == 1 { String::new() } else { number.to_string() };
        for block in &case.blocks {
            if block.is_step() {
                steps.push(number);
            }
            let text = format!("\n[{}]\n{}\n", block.head, block.lines.join("\n"));
            out.push_str(&text.replace(NUMBER, &suffix));
        }
    }
    (out, steps)
}
