//! The notation in which the tables and the manual write arguments: `<name>` is a slot, `[x]` may be left out, `{a | b}`
//! is a choice, `[,x]*` may come several times; all else stands for itself.

use super::dice::Dice;

/// Fills in a pattern. `slot` gives the text of a `<name>`; a choice or an option is thrown.
pub fn expand(pattern: &str, dice: &mut Dice, slot: &mut dyn FnMut(&str, &mut Dice) -> String) -> String {
    let mut out = String::new();
    let mut rest = pattern;
    while let Some(at) = rest.find(['<', '[', '{']) {
        out.push_str(&rest[..at]);
        let length = closing(&rest[at..]);
        let inner = &rest[at + 1..at + length - 1];
        let opening = rest.as_bytes()[at];
        rest = &rest[at + length..];
        match opening {
            b'<' => out.push_str(&slot(inner, dice)),
            b'{' => out.push_str(&choose(inner, dice, slot)),
            _ => {
                let repeated = rest.starts_with('*');
                rest = rest.strip_prefix('*').unwrap_or(rest);
                let chance = if repeated { 20 } else { 40 };
                if dice.chance(chance) {
                    out.push_str(&choose(inner, dice, slot));
                }
            }
        }
    }
    out.push_str(rest);
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn choose(inner: &str, dice: &mut Dice, slot: &mut dyn FnMut(&str, &mut Dice) -> String) -> String {
    let choices = alternatives(inner);
    let chosen = choices[dice.below(choices.len())].trim();
    // What a slot holds may have blanks of its own: only the pattern's are tidied.
    expand(chosen, dice, slot)
}

/// Length of the bracketed part that `text` begins with.
fn closing(text: &str) -> usize {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '<' | '[' | '{' => depth += 1,
            '>' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    text.len()
}

fn alternatives(text: &str) -> Vec<&str> {
    let (mut depth, mut from, mut parts) = (0, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '<' | '[' | '{' => depth += 1,
            '>' | ']' | '}' => depth -= 1,
            '|' if depth == 0 => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_pattern_gives_all_that_it_stands_for() {
        let all: BTreeSet<String> = (0..400)
            .map(|seed| {
                expand("(<n>[,<n>]*) {len <n> | id} [full | strict]", &mut Dice::new(seed), &mut |name, _| {
                    name.to_uppercase()
                })
            })
            .collect();
        let some = ["(N) len N", "(N) id", "(N,N) id full", "(N) len N strict"];
        assert!(some.iter().all(|s| all.contains(*s)), "{all:?}");
    }
}
