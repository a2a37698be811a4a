//! Reads files as sections of keywords, using the keyword tables.

use crate::{
    args::expected,
    check, condition,
    diagnostic::{Diagnostics, Severity},
    env::Env,
    model::{Config, Source},
    sections,
    span::{FileId, Span, Word},
    spoe,
    surroundings::Surroundings,
    words::{self, Variables},
};

/// Reads a configuration from its files, in the order of `-f`. All problems are in the diagnostics; if there are errors
/// among them, the configuration must not be used.
pub fn load(sources: impl IntoIterator<Item = Source>, env: &Env<'_>) -> (Config, Diagnostics) {
    let files: Vec<Source> = sources.into_iter().collect();
    let mut reading = Reading::new(&files, env);
    for (id, source) in files.iter().enumerate() {
        reading.file(FileId(id as u32), source);
    }
    let Reading { mut sections, around, .. } = reading;
    let mut around = around;
    let mut config = sections.finish(&mut around, env.files);
    config.files = files;
    spoe::read(&mut config, &mut around, env.files);
    config.environment = std::mem::take(&mut around.variables);
    let mut diagnostics = std::mem::take(&mut around.diagnostics);
    check::references(&config, &mut diagnostics);
    // Problems found at the end of a section are sorted in among those found earlier, by their position.
    diagnostics.list.sort_by_key(|d| d.span.map_or((true, Span::default()), |span| (false, span)));
    (config, diagnostics)
}

/// Evaluates the condition of `-cc`, after resolving quotes and variables like in a file.
///
/// # Errors
///
/// The condition is malformed: the error says what is wrong, and where.
pub fn evaluate_condition(text: &str, env: &Env<'_>) -> Result<bool, condition::BadCondition> {
    let around = Surroundings::new(&[], env);
    let mut split = Vec::new();
    words::split(text, FileId(0), 1, &around, &mut split).map_err(|bad| condition::BadCondition {
        at: bad.start,
        message: bad.message,
        hint: Some(bad.hint.to_owned()),
    })?;
    let merged: Vec<&str> = split.iter().map(|w| w.text.as_str()).collect();
    condition::evaluate(&merged.join(" "), &|name| around.variable(name).is_some())
}

/// Errors after which reading stops: more would not be read by anyone, and each costs a search for suggestions.
const ERRORS_MAX: usize = 1000;

struct Reading {
    around: Surroundings,
    sections: sections::Sections,
    conditions: Vec<Block>,
    words: Vec<Word>,
    /// The findings counted so far, and how many of them are errors.
    counted: usize,
    errors: usize,
}

/// One level of `.if`.
struct Block {
    opened: Span,
    /// Whether a branch was taken, so that later ones are skipped.
    taken: bool,
    /// Whether the current branch is active.
    active: bool,
    /// Whether the lines around the block are active.
    outer: bool,
    /// Whether the block's `.else` has been seen.
    otherwise: bool,
}

impl Reading {
    fn new(files: &[Source], env: &Env<'_>) -> Self {
        Reading {
            around: Surroundings::new(files, env),
            sections: sections::Sections::new(env),
            conditions: Vec::new(),
            words: Vec::new(),
            counted: 0,
            errors: 0,
        }
    }

    fn file(&mut self, file: FileId, source: &Source) {
        if self.errors >= ERRORS_MAX {
            return;
        }
        self.around.file_name.clone_from(&source.name);
        self.around.section.clear();
        self.around.line = 0;
        for line in source.text.split_inclusive('\n') {
            self.around.line += 1;
            self.line(file, line);
            if self.too_many_errors() {
                self.around.diagnostics.error(None, format!("reading stops after {ERRORS_MAX} errors"));
                break;
            }
            if !line.ends_with('\n') {
                self.around
                    .diagnostics
                    .error(
                        Span { file, line: self.around.line, start: line.len() as u32, end: line.len() as u32 + 1 },
                        "the last line does not end in a line feed: the file may have been truncated",
                    )
                    .hint("end the file with a line feed if it is complete");
            }
        }
        for block in self.conditions.drain(..) {
            self.around
                .diagnostics
                .error(block.opened, "this '.if' has no '.endif' in the same file")
                .hint("end the block with '.endif'");
        }
        self.sections.end_section(&mut self.around);
    }

    fn too_many_errors(&mut self) -> bool {
        let list = &self.around.diagnostics.list;
        self.errors += list[self.counted..].iter().filter(|d| d.severity == Severity::Error).count();
        self.counted = list.len();
        self.errors >= ERRORS_MAX
    }

    fn line(&mut self, file: FileId, line: &str) {
        // Even a comment: what one reader takes for the end of the text, another reads on behind.
        if let Some(at) = line.find('\0') {
            let span = Span { file, line: self.around.line, start: at as u32, end: at as u32 + 1 };
            self.around
                .diagnostics
                .error(span, "there is a NUL character in this line")
                .hint("remove it; the file may be damaged");
            return;
        }
        let mut split = std::mem::take(&mut self.words);
        split.clear();
        let number = self.around.line;
        match words::split(line, file, number, &self.around, &mut split) {
            Ok(()) if split.is_empty() => {}
            Ok(()) if split[0].text.starts_with('.') => self.directive(&split),
            Ok(()) if self.conditions.last().is_none_or(|block| block.active) => {
                self.statement(&split);
            }
            Ok(()) => {}
            Err(bad) => {
                let span = Span { file, line: number, start: bad.start as u32, end: bad.end as u32 };
                self.around.diagnostics.error(span, bad.message).hint(bad.hint);
            }
        }
        self.words = split;
    }

    fn statement(&mut self, words: &[Word]) {
        if sections::is_section(&words[0].text) {
            self.sections.end_section(&mut self.around);
            self.around.section.clone_from(&words.get(1).unwrap_or(&words[0]).text);
            self.around.section_kind = sections::kind(&words[0].text);
            self.sections.begin(words, &mut self.around);
        } else {
            // The error is already among the diagnostics; reading continues with the next line.
            let _reported = self.sections.keyword(words, &mut self.around);
        }
    }

    /// Handles `.if`, `.notice` and the other directives of manual section 2.4.
    fn directive(&mut self, words: &[Word]) {
        let (name, arguments) = (&words[0], &words[1..]);
        let outer = self.conditions.last().is_none_or(|block| block.active);
        let too_many = |from: usize| arguments.get(from).map(|w| w.span);
        let diagnostics = &mut self.around.diagnostics;
        match name.text.as_str() {
            ".if" => {
                let active = outer && self.condition(name, arguments);
                self.conditions.push(Block { opened: name.span, taken: active, active, outer, otherwise: false });
            }
            ".elif" | ".else" | ".endif" if self.conditions.is_empty() => {
                diagnostics.error(name.span, format!("'{}' has no '.if' before it", name.text));
            }
            ".elif" | ".else" if self.conditions.last().is_some_and(|block| block.otherwise) => {
                diagnostics
                    .error(name.span, format!("'{}' after '.else' is not permitted", name.text))
                    .hint("'.else' is the last branch of a block");
            }
            ".elif" => {
                let ask = self.conditions.last().is_some_and(|block| block.outer && !block.taken);
                let active = ask && self.condition(name, arguments);
                if let Some(block) = self.conditions.last_mut() {
                    block.active = active;
                    block.taken |= active;
                }
            }
            ".else" | ".endif" if !arguments.is_empty() => {
                diagnostics.error(too_many(0), format!("'{}' takes no argument", name.text));
                self.end_branch(&name.text);
            }
            ".else" | ".endif" => self.end_branch(&name.text),
            ".notice" | ".warning" | ".alert" | ".diag" if outer => {
                if let Some(extra) = too_many(1) {
                    diagnostics
                        .error(extra, format!("'{}' takes one message", name.text))
                        .hint("put a message that holds spaces in quotes");
                    return;
                }
                let text = arguments.first().map(|w| w.text.clone()).unwrap_or_default();
                match name.text.as_str() {
                    ".notice" => diagnostics.notice(name.span, text),
                    ".diag" if self.around.diagnostic_mode => diagnostics.notice(name.span, text),
                    ".diag" => return,
                    ".warning" => diagnostics.warning(name.span, text),
                    _ => diagnostics.error(name.span, text),
                };
            }
            ".notice" | ".warning" | ".alert" | ".diag" => {}
            _ if outer => {
                let known = [".if", ".elif", ".else", ".endif", ".diag", ".notice", ".warning", ".alert"];
                let hint = expected(&name.text, known.into_iter());
                diagnostics.error(name.span, format!("unknown directive '{}'", name.text)).hint(hint);
            }
            _ => {}
        }
    }

    fn end_branch(&mut self, name: &str) {
        if name == ".endif" {
            self.conditions.pop();
        } else if let Some(block) = self.conditions.last_mut() {
            block.active = block.outer && !block.taken;
            block.otherwise = true;
        }
    }

    /// Evaluates a condition. Its words are joined again, like in HAProxy, so that it may be written with spaces.
    fn condition(&mut self, name: &Word, arguments: &[Word]) -> bool {
        let joined: Vec<&str> = arguments.iter().map(|w| w.text.as_str()).collect();
        let around = &self.around;
        match condition::evaluate(&joined.join(" "), &|variable| around.variable(variable).is_some()) {
            Ok(value) => value,
            Err(bad) => {
                // Finds the word that contains the position, to underline it.
                let mut before = 0;
                let word = arguments.iter().find(|w| {
                    before += w.text.len() + 1;
                    bad.at < before
                });
                let span = match word {
                    Some(word) => word.part(bad.at + 1 + word.text.len() - before..word.text.len()),
                    None => arguments.last().unwrap_or(name).span,
                };
                let finding = self.around.diagnostics.error(span, bad.message);
                finding.hint = bad.hint;
                false
            }
        }
    }
}
