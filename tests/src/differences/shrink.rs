//! Makes a case that differs as small as it goes: lines, headers, words and steps are left out as long as it differs.

use super::case::{Case, Section};

/// One thing that may be left out or made simpler.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Edit {
    /// A line of the configuration.
    DropLine(usize),
    /// Its text, made simpler.
    Line(usize, String),
    /// An answer or a step.
    DropBlock(usize),
    /// Its header, made simpler.
    Head(usize, String),
    /// A line of it.
    DropBlockLine(usize, usize),
    /// The text of that, made simpler.
    BlockLine(usize, usize, String),
}

/// How often all that is left is tried.
const ROUNDS: usize = 14;

/// The smallest case reached for which `holds` says yes. It is asked about many at a time, and hands back what it made
/// of those for which the answer is yes.
pub fn shrink(case: Case, holds: &dyn Fn(&[Case]) -> Vec<Option<Case>>) -> Case {
    let mut case = case;
    for _ in 0..ROUNDS {
        let edits = edits(&case);
        let mut singles: Vec<Option<Case>> = Vec::new();
        for part in edits.chunks(40) {
            let candidates: Vec<Case> = part.iter().map(|e| apply(&case, std::slice::from_ref(e))).collect();
            singles.extend(holds(&candidates));
        }
        let good: Vec<Edit> = edits.iter().zip(&singles).filter(|(_, s)| s.is_some()).map(|(e, _)| e.clone()).collect();
        if good.is_empty() {
            break;
        }
        // All at once, halves, quarters... : what was left out alone cannot always be left out together.
        let mut groups: Vec<Vec<Edit>> = Vec::new();
        let mut size = good.len();
        while size > 1 && groups.len() < 30 {
            groups.extend(good.chunks(size).filter(|c| c.len() > 1).map(<[Edit]>::to_vec));
            size /= 2;
        }
        let candidates: Vec<Case> = groups.iter().map(|g| apply(&case, g)).collect();
        let together = if candidates.is_empty() { Vec::new() } else { holds(&candidates) };
        let smallest = together.into_iter().chain(singles).flatten().min_by_key(size_of);
        match smallest {
            Some(smaller) if size_of(&smaller) < size_of(&case) => case = smaller,
            _ => break,
        }
    }
    case
}

/// Bytes of all that a case says: each edit makes it less.
fn size_of(case: &Case) -> usize {
    let lines: usize = case.lines.iter().map(|(_, l)| l.len() + 1).sum();
    let blocks = case.blocks.iter().map(|b| b.head.len() + 1 + b.lines.iter().map(|l| l.len() + 1).sum::<usize>());
    lines + blocks.sum::<usize>()
}

fn edits(case: &Case) -> Vec<Edit> {
    let mut edits = Vec::new();
    for (at, (_, line)) in case.lines.iter().enumerate() {
        if !line.starts_with("bind ") {
            edits.push(Edit::DropLine(at));
        }
        edits.extend(simpler(line).into_iter().map(|text| Edit::Line(at, text)));
    }
    for (at, block) in case.blocks.iter().enumerate() {
        edits.push(Edit::DropBlock(at));
        let kept = if block.head.starts_with("answer") { 3 } else { 2 };
        let words: Vec<&str> = block.head.split(' ').collect();
        for gone in kept..words.len() {
            let rest: Vec<&str> = words.iter().enumerate().filter(|(n, _)| *n != gone).map(|(_, w)| *w).collect();
            edits.push(Edit::Head(at, rest.join(" ")));
        }
        let is_http = block.head.starts_with("request") || block.head.starts_with("answer");
        for (n, line) in block.lines.iter().enumerate() {
            if n > 0 || !is_http {
                edits.push(Edit::DropBlockLine(at, n));
            }
            let words: Vec<&str> = line.split(' ').collect();
            if n == 0 && block.head.starts_with("request") && words.len() == 3 && words[1] != "/" {
                edits.push(Edit::BlockLine(at, n, format!("{} / {}", words[0], words[2])));
            }
        }
    }
    edits
}

/// The same line with one thing less: a word, or a converter of an expression.
fn simpler(line: &str) -> Vec<String> {
    let mut out = Vec::new();
    for end in [" if ", " unless "] {
        if let Some(at) = line.find(end) {
            out.push(line[..at].to_owned());
        }
    }
    let words = words(line);
    let protected = if line.starts_with("bind ") { 2 } else { 1 };
    for gone in protected..words.len() {
        let rest: Vec<&str> = words.iter().enumerate().filter(|(n, _)| *n != gone).map(|(_, w)| *w).collect();
        out.push(rest.join(" "));
    }
    // `,converter(args)` up to the next comma or bracket of its own depth.
    let bytes = line.as_bytes();
    for (at, _) in line.match_indices(',') {
        let (mut depth, mut end) = (0_i32, at + 1);
        while end < bytes.len() {
            match bytes[end] {
                b'(' => depth += 1,
                b')' if depth == 0 => break,
                b')' => depth -= 1,
                b',' | b']' | b' ' | b'"' if depth == 0 => break,
                _ => {}
            }
            end += 1;
        }
        out.push(format!("{}{}", &line[..at], &line[end..]));
    }
    out
}

/// Words of a configuration line; quoted ones keep their blanks.
fn words(line: &str) -> Vec<&str> {
    let (mut words, mut from, mut quote, mut escaped) = (Vec::new(), 0, None, false);
    for (at, c) in line.char_indices() {
        match (c, quote) {
            _ if escaped => escaped = false,
            ('\\', _) if quote != Some('\'') => escaped = true,
            ('"' | '\'', None) => quote = Some(c),
            (c, Some(q)) if c == q => quote = None,
            (' ', None) => {
                words.push(&line[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    words.push(&line[from..]);
    words
}

fn apply(case: &Case, edits: &[Edit]) -> Case {
    let mut lines: Vec<Option<(Section, String)>> = case.lines.iter().cloned().map(Some).collect();
    let mut blocks: Vec<Option<(String, Vec<Option<String>>)>> =
        case.blocks.iter().map(|b| Some((b.head.clone(), b.lines.iter().cloned().map(Some).collect()))).collect();
    let mut changed: Vec<usize> = Vec::new();
    for edit in edits {
        match edit {
            Edit::DropLine(at) => lines[*at] = None,
            // Two changes of one line were each tried without the other.
            Edit::Line(at, _) if changed.contains(at) => {}
            Edit::Line(at, text) => {
                changed.push(*at);
                if let Some(line) = &mut lines[*at] {
                    line.1.clone_from(text);
                }
            }
            Edit::DropBlock(at) => blocks[*at] = None,
            Edit::Head(at, text) => {
                if let Some(block) = &mut blocks[*at] {
                    block.0.clone_from(text);
                }
            }
            Edit::DropBlockLine(at, n) => {
                if let Some(block) = &mut blocks[*at] {
                    block.1[*n] = None;
                }
            }
            Edit::BlockLine(at, n, text) => {
                if let Some(block) = &mut blocks[*at] {
                    block.1[*n] = Some(text.clone());
                }
            }
        }
    }
    let blocks = blocks.into_iter().flatten();
    Case {
        lines: lines.into_iter().flatten().collect(),
        blocks: blocks
            .map(|(head, lines)| super::case::Block { head, lines: lines.into_iter().flatten().collect() })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::case::Block;
    use super::*;

    #[test]
    fn only_what_matters_is_left() {
        let front = |text: &str| (Section::Front, text.to_owned());
        let case = Case {
            lines: vec![
                front("bind {{bind b§}}"),
                front("http-request deny if { always_false }"),
                front("http-request set-header x \"%[str(a),upper,lower,base64]\" if { always_true }"),
            ],
            blocks: vec![
                Block::new("request b§", vec!["GET /a HTTP/1.1".into(), "Host: h".into(), "A: b".into()]),
                Block::new("request b§ keep", vec!["GET /b HTTP/1.1".into(), "A: c".into()]),
            ],
        };
        let holds = |cases: &[Case]| {
            let differs = |c: &Case| {
                c.lines.iter().any(|(_, l)| l.contains("set-header x") && l.contains("lower"))
                    && c.blocks.iter().any(|b| b.lines.iter().any(|l| l == "A: c"))
            };
            cases.iter().map(|c| differs(c).then(|| c.clone())).collect()
        };
        let small = shrink(case, &holds);
        assert_eq!(small.lines.len(), 2);
        assert_eq!(small.lines[1].1, "http-request set-header x \"%[str(a),lower]\"");
        assert_eq!(small.blocks, [Block::new("request b§", vec!["GET / HTTP/1.1".into(), "A: c".into()])]);
    }
}
