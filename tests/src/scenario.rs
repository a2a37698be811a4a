//! A scenario file: a description, then sections, each headed by `[kind arguments]` at the start of a line.

use std::path::{Path, PathBuf};

use crate::Failure;
use crate::process::Subject;

/// One `[kind arguments]` section with its text.
#[derive(Clone, Debug)]
pub struct Section {
    /// The first word of the header.
    pub kind: String,
    /// The other words, split at blanks; double quotes keep blanks together.
    pub arguments: Vec<String>,
    /// The lines up to the next header, without trailing empty lines.
    pub text: String,
    /// Line of the header, for messages.
    pub line: usize,
}

impl Section {
    /// The value of an argument `name=value`.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.arguments.iter().find_map(|a| a.strip_prefix(name)?.strip_prefix('='))
    }

    /// Whether the bare argument `name` is there.
    pub fn has(&self, name: &str) -> bool {
        self.arguments.iter().any(|a| a == name)
    }

    /// The numeric value of an argument, or its placeholder.
    pub fn number(&self, name: &str, otherwise: usize) -> Result<usize, Failure> {
        match self.option(name) {
            None => Ok(otherwise),
            Some(text) => text.parse().map_err(|_| format!("line {}: {name}={text} is not a number", self.line)),
        }
    }
}

/// A scenario as its file states it.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Path below the scenario folder, without its extension: `cookies/insert-indirect`.
    pub name: String,
    /// The comment lines before the first section.
    pub about: String,
    /// The sections in order.
    pub sections: Vec<Section>,
}

/// The kinds a section may have.
const KINDS: &[&str] = &[
    "config",
    "reference",
    "file",
    "origin",
    "answer",
    "options",
    "mask",
    "request",
    "runtime",
    "curl",
    "shell",
    "tcp",
    "wait",
    "signal",
    "expect",
    "stop",
    "start",
];

impl Scenario {
    /// Reads one scenario's text.
    pub fn parse(name: &str, text: &str) -> Result<Self, Failure> {
        let mut about = Vec::new();
        let mut sections: Vec<Section> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            if let Some(header) = section_header(line) {
                let mut words = words(header);
                let kind = if words.is_empty() { String::new() } else { words.remove(0) };
                if !KINDS.contains(&kind.as_str()) {
                    return Err(format!("{name}: line {}: no such section as [{kind}]", index + 1));
                }
                if kind == "reference" && words != ["3.0"] {
                    return Err(format!("{name}: line {}: the other reference is [reference 3.0]", index + 1));
                }
                sections.push(Section { kind, arguments: words, text: String::new(), line: index + 1 });
            } else if let Some(section) = sections.last_mut() {
                section.text.push_str(line);
                section.text.push('\n');
            } else if let Some(comment) = line.strip_prefix('#') {
                about.push(comment.trim());
            } else if !line.trim().is_empty() {
                return Err(format!("{name}: line {}: text before the first section", index + 1));
            }
        }
        for section in &mut sections {
            section.text.truncate(section.text.trim_end_matches('\n').len());
        }
        if about.is_empty() {
            return Err(format!("{name}: the first line must be a comment that says what is proved"));
        }
        Ok(Self { name: name.to_owned(), about: about.join(" "), sections })
    }

    /// The HAProxy whose behaviour the scenario states.
    pub fn reference(&self) -> Subject {
        match self.sections.iter().any(|s| s.kind == "reference") {
            true => Subject::Haproxy30,
            false => Subject::Haproxy,
        }
    }

    /// Whether `[options]` contains this word.
    pub fn has_option(&self, word: &str) -> bool {
        self.sections.iter().any(|s| s.kind == "options" && s.has(word))
    }
}

/// Every scenario below a folder, in the order of their names.
pub fn load_all(folder: &Path) -> Result<Vec<Scenario>, Failure> {
    let mut files = Vec::new();
    collect(folder, &mut files).map_err(|e| format!("{}: {e}", folder.display()))?;
    files.sort();
    let mut scenarios = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let relative = path.strip_prefix(folder).expect("collect only returns paths below folder");
        scenarios.push(Scenario::parse(&relative.with_extension("").to_string_lossy(), &text)?);
    }
    Ok(scenarios)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "scn") {
            files.push(path);
        }
    }
    Ok(())
}

fn section_header(line: &str) -> Option<&str> {
    let inner = line.strip_prefix('[')?.strip_suffix(']')?;
    inner.starts_with(|c: char| c.is_ascii_lowercase()).then_some(inner)
}

fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let (mut quoted, mut open) = (false, false);
    for c in text.chars() {
        match c {
            '"' => (quoted, open) = (!quoted, true),
            ' ' if !quoted => {
                if open {
                    words.push(std::mem::take(&mut word));
                }
                open = false;
            }
            _ => {
                word.push(c);
                open = true;
            }
        }
    }
    if open {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_keep_their_arguments_and_text() {
        let text = "# Proves it\n[config]\nglobal\n\n[request http repeat=2 say=\"a b\"]\nGET / HTTP/1.1\n\nbody\n\n";
        let scenario = Scenario::parse("x", text).expect("well formed");
        assert_eq!(scenario.about, "Proves it");
        assert_eq!(scenario.sections[0].text, "global");
        assert_eq!(scenario.sections[1].number("repeat", 1), Ok(2));
        assert_eq!(scenario.sections[1].option("say"), Some("a b"));
        assert_eq!(scenario.sections[1].text, "GET / HTTP/1.1\n\nbody");
    }

    #[test]
    fn an_unknown_section_or_a_missing_description_is_an_error() {
        assert!(Scenario::parse("x", "# y\n[confg]\n").is_err());
        assert!(Scenario::parse("x", "[config]\n").is_err());
    }

    #[test]
    fn a_scenario_may_state_what_the_newer_haproxy_does() {
        let reference = |text| Scenario::parse("x", text).map(|s| s.reference());
        assert_eq!(reference("# y\n[config]\n"), Ok(Subject::Haproxy));
        assert_eq!(reference("# y\n[reference 3.0]\n[config]\n"), Ok(Subject::Haproxy30));
        assert!(reference("# y\n[reference 2.8]\n[config]\n").is_err());
    }
}
