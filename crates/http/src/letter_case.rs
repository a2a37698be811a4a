//! The letter case of field names, for peers that wrongly depend on it (manual, `h1-case-adjust`).

use std::collections::{HashMap, hash_map::Entry};

/// Names of header fields in lower case, each with the form in which it is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LetterCase {
    names: HashMap<Box<[u8]>, Box<[u8]>>,
}

impl LetterCase {
    /// Adds a name and its form; returns whether it was not there before. The first form given stays.
    ///
    /// # Panics
    /// If they differ in more than their case: other lines would change as well.
    pub fn add(&mut self, from: &str, to: &str) -> bool {
        assert!(from.eq_ignore_ascii_case(to), "only the case may differ");
        let place = self.names.entry(from.as_bytes().into());
        let is_new = matches!(place, Entry::Vacant(_));
        place.or_insert_with(|| to.as_bytes().into());
        is_new
    }

    /// Changes the names in the lines of a head or of a trailer section; the first line is not a field and stays as it is.
    pub fn apply(&self, lines: &mut [u8]) {
        for line in lines.split_mut(|byte| *byte == b'\n').skip(1) {
            let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
            let name = &mut line[..colon];
            if let Some(form) = self.names.get(&*name) {
                name.copy_from_slice(form);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_are_listed_change() {
        let mut case = LetterCase::default();
        assert!(case.add("host", "HOST") && case.add("x-a", "X-a"));
        assert!(!case.add("host", "Host"));
        let mut head = *b"GET host:80 HTTP/1.1\r\nhost: host\r\nhostname: a\r\nx-a: x-a: host: b\r\n\r\n";
        case.apply(&mut head);
        let expected = b"GET host:80 HTTP/1.1\r\nHOST: host\r\nhostname: a\r\nX-a: x-a: host: b\r\n\r\n";
        assert_eq!(head.escape_ascii().to_string(), expected.escape_ascii().to_string());
        case.apply(&mut []);
    }
}
