//! The user's choices, made by pressing keys.

use crate::{screen::Key, table};

/// What the user has chosen to see, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    /// Whether updates are paused: no metrics are read.
    pub paused: bool,
    /// Whether the explanation of the keys is shown instead of the view.
    pub(crate) help: bool,
    /// The column by which rows are sorted, largest first; if `None`, they are sorted by proxy.
    pub(crate) sort: Option<usize>,
    pub(crate) reversed: bool,
    /// Only rows whose names contain this are shown.
    pub(crate) filter: String,
    /// Whether the filter is being typed.
    pub(crate) typing: bool,
    /// Whether servers are hidden.
    pub(crate) no_servers: bool,
    /// Whether the engine is hidden.
    pub(crate) no_engine: bool,
    /// The only proxy that is shown, counted from 1; 0 for all.
    pub(crate) proxy: usize,
    /// Number of lines scrolled past, above the first one that is shown.
    pub(crate) scrolled: usize,
}

/// The longest filter, in bytes.
const FILTER_MAX: usize = 60;

impl Choices {
    /// Handles a key; returns false to quit.
    pub fn press(&mut self, key: Key) -> bool {
        match key {
            Key::Interrupt => return false,
            Key::Resized | Key::Unknown => {}
            _ if self.help => self.help = false,
            Key::Escape if self.typing || !self.filter.is_empty() => {
                (self.typing, self.filter) = (false, String::new())
            }
            Key::Enter => self.typing = false,
            Key::Backspace if self.typing => drop(self.filter.pop()),
            Key::Char(c) if self.typing => {
                if self.filter.len() < FILTER_MAX && !c.is_control() {
                    self.filter.push(c);
                }
                self.scrolled = 0;
            }
            Key::Escape if self.proxy > 0 => self.proxy = 0,
            Key::Escape | Key::Char('q' | 'Q') => return false,
            Key::Char(' ') => self.paused = !self.paused,
            Key::Char('?' | 'h') => self.help = true,
            Key::Char('/' | 'f') => self.typing = true,
            Key::Char('s') => self.sort = next(self.sort),
            Key::Char('S') => self.sort = None,
            Key::Char('r') => self.reversed = !self.reversed,
            Key::Char('p') => self.no_servers = !self.no_servers,
            Key::Char('e') => self.no_engine = !self.no_engine,
            Key::Right | Key::Char('n') => (self.proxy, self.scrolled) = (self.proxy + 1, 0),
            Key::Left | Key::Char('N') => (self.proxy, self.scrolled) = (self.proxy.saturating_sub(1), 0),
            Key::Up | Key::Char('k') => self.scrolled = self.scrolled.saturating_sub(1),
            Key::Down | Key::Char('j') => self.scrolled += 1,
            Key::PageUp => self.scrolled = self.scrolled.saturating_sub(10),
            Key::PageDown => self.scrolled += 10,
            Key::Backspace | Key::Char(_) => {}
        }
        true
    }

    /// The last line of the screen: the current choices and the keys, as many as fit; `?` explains all of them.
    pub(crate) fn status(&self, width: usize) -> String {
        if self.typing {
            return format!("filter: {}_   Enter keeps it, Escape drops it", self.filter);
        }
        let paused = if self.paused { "PAUSED  " } else { "" };
        let mut line = format!("{paused}? help");
        let sort = format!("s sort {}", self.sort.map_or("proxy", table::heading));
        let filter = if self.filter.is_empty() { "/ filter".into() } else { format!("/ filter: {}", self.filter) };
        for part in ["q quit", &filter, &sort, "space pause", "n next", "p servers", "e engine"] {
            if line.chars().count() + 2 + part.chars().count() <= width {
                line.push_str("  ");
                line.push_str(part);
            }
        }
        line
    }
}

/// The next column to sort by; `None` after the last.
fn next(sort: Option<usize>) -> Option<usize> {
    let next = sort.map_or(0, |column| column + 1);
    (next < table::columns()).then_some(next)
}

/// The explanation of the keys.
pub(crate) const HELP: &[&str] = &[
    "q, Escape      quit; Escape first leaves the filter, and then the one proxy",
    "space          pause, or go on",
    "s, S           sort by the next column, the largest first; S by proxy again",
    "r              turn the order round",
    "/, f           show only rows with a text in their names: type it, then Enter",
    "n, N, arrows   show one proxy after the other; all behind the last",
    "p              leave servers out, or show them",
    "e              leave the engine out, or show it",
    "j, k, arrows   scroll; Page Up and Page Down by ten lines",
    "?, h           this help; any key leaves it",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn after(keys: &[Key]) -> (Choices, bool) {
        let mut choices = Choices::default();
        let goes_on = keys.iter().all(|key| choices.press(*key));
        (choices, goes_on)
    }

    fn typed(text: &str) -> Vec<Key> {
        text.chars().map(Key::Char).collect()
    }

    #[test]
    fn keys_that_are_typed_into_the_filter_do_nothing_else() {
        let (mut choices, goes_on) = after(&typed("/quest"));
        assert!(goes_on && choices.typing && choices.filter == "quest" && !choices.help);
        choices.press(Key::Backspace);
        choices.press(Key::Enter);
        assert!(choices.filter == "ques" && !choices.typing);
        choices.press(Key::Char(' '));
        assert!(
            choices.paused && choices.status(80).starts_with("PAUSED") && choices.status(80).contains("filter: ques")
        );
        assert!(choices.press(Key::Escape) && choices.filter.is_empty(), "Escape drops the filter first");
        assert!(!choices.press(Key::Escape));
        assert!(!after(&typed("q")).1 && !after(&[Key::Char('/'), Key::Interrupt]).1);
    }

    #[test]
    fn the_line_of_keys_is_whole_at_eighty_columns_and_ends_with_a_whole_word() {
        let mut choices = Choices::default();
        assert!(choices.status(80).ends_with("n next  p servers  e engine"), "{}", choices.status(80));
        (choices.paused, choices.filter) = (true, "a-name-of-some-length".into());
        for column in [None].into_iter().chain((0..table::columns()).map(Some)) {
            choices.sort = column;
            let line = choices.status(80);
            assert!(line.chars().count() <= 80 && line.contains("/ filter: a-name-of-some-length  s sort "), "{line}");
            assert!(["pause", "next", "servers", "engine"].iter().any(|word| line.ends_with(word)), "{line}");
        }
    }

    #[test]
    fn the_columns_are_gone_through_and_help_is_left_by_any_key() {
        let mut choices = Choices::default();
        for column in 0..table::columns() {
            choices.press(Key::Char('s'));
            assert_eq!(choices.sort, Some(column));
        }
        choices.press(Key::Char('s'));
        assert_eq!(choices.sort, None);
        choices.press(Key::Char('?'));
        assert!(choices.help);
        assert!(choices.press(Key::Char('q')), "it leaves the help, and nothing else");
        assert!(!choices.help);
        let (choices, _) = after(&[Key::Right, Key::Char('n'), Key::Left, Key::Down, Key::PageDown, Key::Up]);
        assert_eq!((choices.proxy, choices.scrolled), (1, 10));
    }
}
