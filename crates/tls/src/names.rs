//! Which certificates answer for a name. Pure.

use std::collections::{BTreeSet, HashMap};

/// Names and wildcards, each with the contexts that serve it, in the order they were added.
#[derive(Debug, Default)]
pub(crate) struct Names {
    exact: HashMap<String, Vec<usize>>,
    /// Keyed by what follows the star, dot included.
    wildcard: HashMap<String, Vec<usize>>,
    /// Names that a context's filters exclude from its wildcards.
    excluded: BTreeSet<(String, usize)>,
}

impl Names {
    /// Lets `context` answer for `pattern`: a name, or one whose first label is a star.
    pub fn add(&mut self, pattern: &str, context: usize) {
        let pattern = pattern.to_ascii_lowercase();
        let contexts = match pattern.strip_prefix('*') {
            Some(suffix) => self.wildcard.entry(suffix.to_owned()).or_default(),
            None => self.exact.entry(pattern).or_default(),
        };
        if !contexts.contains(&context) {
            contexts.push(context);
        }
    }

    /// Keeps `context` from answering for `name` by a wildcard.
    pub fn exclude(&mut self, name: &str, context: usize) {
        self.excluded.insert((name.to_ascii_lowercase(), context));
    }

    /// The contexts for `name`, which is lower case: those of the name itself, else those of the wildcard one label up.
    pub fn find(&self, name: &str) -> Vec<usize> {
        if let Some(contexts) = self.exact.get(name) {
            return contexts.clone();
        }
        let Some(dot) = name.find('.') else { return Vec::new() };
        let Some(contexts) = self.wildcard.get(&name[dot..]) else { return Vec::new() };
        if self.excluded.is_empty() {
            return contexts.clone();
        }
        contexts.iter().copied().filter(|context| !self.excluded.contains(&(name.to_owned(), *context))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_beats_a_wildcard_and_a_wildcard_covers_one_label() {
        let mut names = Names::default();
        names.add("*.Example.org", 0);
        names.add("www.example.org", 1);
        names.add("www.example.org", 2);
        names.exclude("secret.example.org", 0);
        assert_eq!(names.find("www.example.org"), [1, 2]);
        assert_eq!(names.find("mail.example.org"), [0]);
        assert_eq!(names.find("a.b.example.org"), [0usize; 0]);
        assert_eq!(names.find("example.org"), [0usize; 0]);
        assert_eq!(names.find("secret.example.org"), [0usize; 0]);
    }
}
