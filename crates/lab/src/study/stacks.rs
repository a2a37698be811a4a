//! Call stacks: what perf saw, folded, and as a tree.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Functions that are listed.
const LISTED: usize = 12;
/// What takes a smaller share than this is not kept in the tree: it would be two points wide on a page.
const LEAST: f64 = 0.002;
/// How deep the tree is kept. Readers of JSON set a limit to nesting (serde_json's is 128), and each call nests twice.
const DEEPEST: usize = 56;
/// Functions with a smaller share than this are not listed.
const LISTED_LEAST: f64 = 0.005;

/// A profile of one contestant: the functions in which it spends its CPU time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stacks {
    /// The work that it was watched at, and on which cores.
    pub at: String,
    /// How many samples were taken.
    pub samples: u64,
    /// Shares by innermost function, largest first.
    pub hottest: Vec<(f64, String)>,
    /// All stacks as trees, outermost function first. What lies deeper than 56 calls is counted with its 56th caller.
    pub tree: Vec<Frame>,
}

/// A function, and what it called.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    /// The function's name.
    pub name: String,
    /// The function's share of all samples.
    pub share: f64,
    /// The owner of the function's code.
    pub code: Code,
    /// The functions that this one called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Frame>,
}

/// The owner of the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Code {
    /// The contestant's own.
    Program,
    /// A shared library's.
    Library,
    /// The kernel's.
    Kernel,
}

impl Code {
    /// For the legend, in order.
    pub const ALL: [(Code, &'static str); 3] =
        [(Code::Program, "the program"), (Code::Library, "shared libraries"), (Code::Kernel, "kernel")];
}

type Step = (String, Code);

/// How often each stack was seen, outermost function first.
#[derive(Debug, Default)]
pub(super) struct Folded(BTreeMap<Vec<Step>, u64>);

impl Folded {
    /// Reads what `perf script -F comm,ip,sym,dso` writes: a block a sample, its innermost function first.
    pub(super) fn read(text: &str, program: &str) -> Folded {
        let mut stacks = BTreeMap::new();
        for block in text.split("\n\n") {
            let mut lines = block.lines().filter(|line| !line.trim().is_empty());
            let Some(name) = lines.next() else { continue };
            // `worker-3` and its brothers are one.
            let thread = name.trim().trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches(['-', '/', ':']);
            let mut stack: Vec<Step> = lines.filter_map(|line| frame(line, program)).collect();
            stack.push((thread.to_owned(), Code::Program));
            stack.reverse();
            // A library without symbols is one function, however deep it goes.
            stack.dedup();
            *stacks.entry(stack).or_insert(0) += 1;
        }
        Folded(stacks)
    }

    fn samples(&self) -> u64 {
        self.0.values().sum()
    }

    /// A line a stack, as tools for flame graphs read them.
    pub(super) fn lines(&self) -> String {
        let line = |(stack, count): (&Vec<Step>, &u64)| {
            let names: Vec<String> = stack.iter().map(|(name, _)| name.replace(';', ":")).collect();
            format!("{} {count}\n", names.join(";"))
        };
        self.0.iter().map(line).collect()
    }

    /// What there is to show; none where nothing was seen.
    pub(super) fn stacks(&self, at: String) -> Option<Stacks> {
        let samples = self.samples();
        let total = samples as f64;
        let mut innermost: BTreeMap<&str, u64> = BTreeMap::new();
        for (stack, count) in &self.0 {
            *innermost.entry(stack.last().map_or("", |(name, _)| name)).or_insert(0) += count;
        }
        let mut hottest: Vec<(f64, String)> =
            innermost.into_iter().map(|(name, count)| (count as f64 / total, name.to_owned())).collect();
        hottest.retain(|(share, _)| *share >= LISTED_LEAST);
        hottest.sort_by(|a, b| b.0.total_cmp(&a.0));
        hottest.truncate(LISTED);
        let kept = |stack: &Vec<Step>| stack.len().min(DEEPEST);
        let all: Vec<(&[Step], u64)> = self.0.iter().map(|(stack, count)| (&stack[..kept(stack)], *count)).collect();
        (samples > 0).then(|| Stacks { at, samples, hottest, tree: tree(&all, total) })
    }
}

/// The first functions of these stacks, the widest first, with what they called.
fn tree(stacks: &[(&[Step], u64)], total: f64) -> Vec<Frame> {
    let mut by_first: BTreeMap<&Step, Vec<(&[Step], u64)>> = BTreeMap::new();
    for (stack, count) in stacks {
        if let [first, rest @ ..] = stack {
            by_first.entry(first).or_default().push((rest, *count));
        }
    }
    let frame = |((name, code), above): (&Step, Vec<(&[Step], u64)>)| {
        let share = above.iter().map(|(_, count)| count).sum::<u64>() as f64 / total;
        (share >= LEAST).then(|| Frame { name: name.clone(), share, code: *code, calls: tree(&above, total) })
    };
    let mut frames: Vec<Frame> = by_first.into_iter().filter_map(frame).collect();
    frames.sort_by(|a, b| b.share.total_cmp(&a.share));
    frames
}

/// `    7f3a1c SSL_read (/usr/lib/libssl.so.3)`
fn frame(line: &str, program: &str) -> Option<Step> {
    let (_, rest) = line.trim().split_once(' ')?;
    let (symbol, file) =
        rest.rsplit_once(" (").map_or((rest, ""), |(symbol, file)| (symbol, file.trim_end_matches(')')));
    let code = match file {
        "[vdso]" => Code::Library,
        _ if file.starts_with("[k") || file.starts_with("[guest") => Code::Kernel,
        _ if file == program || file.is_empty() || file.starts_with('[') => Code::Program,
        _ => Code::Library,
    };
    let of_file = || file.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("[unknown]").to_owned();
    Some((if symbol == "[unknown]" { of_file() } else { symbol.to_owned() }, code))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEN: &str = "\
worker-1
\t    55d0 sign (/usr/sbin/it)
\t    55d1 handshake (/usr/sbin/it)

worker-2
\t    55d0 sign (/usr/sbin/it)
\t    55d1 handshake (/usr/sbin/it)

worker-1
\t    7f02 [unknown] (/usr/lib/libcrypto.so.3)
\t    7f00 [unknown] (/usr/lib/libcrypto.so.3)
\t    55d1 handshake (/usr/sbin/it)

worker-1
\tffffffff81 tcp_sendmsg ([kernel.kallsyms])

";

    #[test]
    fn stacks_are_folded_outermost_first_and_counted() {
        let folded = Folded::read(SEEN, "/usr/sbin/it");
        assert_eq!(
            folded.lines(),
            "worker;handshake;libcrypto.so.3 1\nworker;handshake;sign 2\nworker;tcp_sendmsg 1\n"
        );
    }

    #[test]
    fn shares_are_of_all_samples() {
        let stacks = Folded::read(SEEN, "/usr/sbin/it").stacks("handshakes".into()).unwrap();
        assert_eq!((stacks.samples, stacks.hottest[0].clone()), (4, (0.5, "sign".to_owned())));
        let [root] = &stacks.tree[..] else { panic!("one root: {:?}", stacks.tree) };
        let calls: Vec<(&str, f64, Code)> =
            root.calls.iter().map(|frame| (frame.name.as_str(), frame.share, frame.code)).collect();
        assert_eq!(calls, [("handshake", 0.75, Code::Program), ("tcp_sendmsg", 0.25, Code::Kernel)]);
        assert_eq!(root.calls[0].calls[1].code, Code::Library);
    }

    #[test]
    fn a_deep_recursion_is_read_back() {
        let depth = 500;
        let lines: String = (0..depth).map(|n| format!("\t    55d0 step_{n} (/usr/sbin/it)\n")).collect();
        let stacks = Folded::read(&format!("worker-1\n{lines}\n"), "/usr/sbin/it").stacks(String::new()).unwrap();
        let result = serde_json::json!({"cells": [{"stacks": [&stacks]}]}).to_string();
        let read: serde_json::Value = serde_json::from_str(&result).unwrap();
        assert_eq!(serde_json::from_value::<Stacks>(read["cells"][0]["stacks"][0].clone()).unwrap(), stacks);
        let mut frame = &stacks.tree[0];
        while let Some(next) = frame.calls.first() {
            frame = next;
        }
        assert_eq!(frame.share, 1.0, "{}", frame.name);
    }

    #[test]
    fn nothing_seen_is_nothing_to_show() {
        assert_eq!(Folded::read("", "it").stacks(String::new()), None);
    }
}
