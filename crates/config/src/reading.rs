//! Reads files as sections of keywords, using the keyword tables.

use crate::{
    args::{Args, Parsed, Reported, expected},
    check, condition,
    diagnostic::{Diagnostics, Severity},
    env::{Env, SPEAKS_HAPROXY},
    keyword::{Keyword, Support, Table},
    model::{Config, Source},
    sections,
    span::{FileId, Span, Word},
    words::{self, Variables},
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
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

/// The state that keyword parsers share.
pub(crate) struct Surroundings {
    pub(crate) diagnostics: Diagnostics,
    /// The environment, as modified by `setenv` and similar directives.
    pub(crate) variables: BTreeMap<String, String>,
    pub(crate) crt_base: Option<PathBuf>,
    pub(crate) ca_base: Option<PathBuf>,
    pub(crate) default_path: DefaultPath,
    pub(crate) file_name: String,
    pub(crate) section: String,
    /// The word that started the section.
    pub(crate) section_kind: &'static str,
    pub(crate) line: u32,
    /// Whether a `bind` line is being parsed.
    pub(crate) on_bind: bool,
    diagnostic_mode: bool,
}

/// `default-path`: the directory that relative paths are relative to.
#[derive(Clone, Debug, Default)]
pub(crate) enum DefaultPath {
    /// The working directory.
    #[default]
    Current,
    /// The directory of the file that is being read.
    Config,
    /// The parent of the directory of the file that is being read.
    Parent,
    /// This directory.
    Origin(PathBuf),
}

impl Variables for Surroundings {
    fn variable(&self, name: &str) -> Option<String> {
        match name {
            ".FILE" => Some(self.file_name.clone()),
            ".LINE" => Some(self.line.to_string()),
            ".SECTION" => Some(self.section.clone()),
            name => self.variables.get(name).cloned(),
        }
    }
}

impl Surroundings {
    /// The state for parsing words that arrive at run time.
    pub(crate) fn of_command(config: &Config) -> Self {
        let around = Surroundings::new(&[], &Env::default());
        let (crt_base, ca_base) = (config.global.crt_base.clone(), config.global.ca_base.clone());
        Surroundings { crt_base, ca_base, ..around }
    }

    fn new(files: &[Source], env: &Env<'_>) -> Self {
        let mut variables = env.variables.clone();
        let names: Vec<&str> = files.iter().map(|f| f.name.as_str()).collect();
        variables.insert("HAPROXY_CFGFILES".into(), names.join(";"));
        variables.insert("HAPROXY_LOCALPEER".into(), env.local_peer.clone());
        variables.insert("HAPROXY_STARTUP_VERSION".into(), SPEAKS_HAPROXY.into());
        Surroundings {
            diagnostics: Diagnostics::default(),
            variables,
            crt_base: None,
            ca_base: None,
            default_path: DefaultPath::Current,
            file_name: String::new(),
            section: String::new(),
            section_kind: "",
            line: 0,
            on_bind: false,
            diagnostic_mode: env.diagnostic_mode,
        }
    }

    /// Makes a relative path relative to the directory that `default-path` selects.
    pub(crate) fn default_path(&self, path: &str) -> PathBuf {
        let folder = || Path::new(&self.file_name).parent().unwrap_or(Path::new(""));
        match &self.default_path {
            DefaultPath::Current => PathBuf::from(path),
            // join() keeps an absolute path as it is.
            DefaultPath::Config => folder().join(path),
            DefaultPath::Parent => folder().join("..").join(path),
            DefaultPath::Origin(origin) => origin.join(path),
        }
    }
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
    /// Whether its `.else` has been seen.
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

/// Finds the keyword at the start of `words` in `table`, and runs its parser on the rest.
pub(crate) fn dispatch<T>(
    table: &'static Table<T>,
    target: &mut T,
    words: &[Word],
    around: &mut Surroundings,
    allowed: impl FnOnce(&mut T, &'static Keyword<T>, Span, &mut Surroundings) -> Parsed,
) -> Parsed {
    let (prefix, words) = match words[0].text.as_str() {
        "no" | "default" if words.len() > 1 => (Some(&words[0]), &words[1..]),
        _ => (None, words),
    };
    let Some((keyword, count)) = table.find(words) else {
        return Err(unknown(table, words, around));
    };
    let keyword_span = words[0].span.to(words[count - 1].span);
    let span = prefix.unwrap_or(&words[0]).span.to(words[words.len() - 1].span);
    if let Some(prefix) = prefix.filter(|_| !keyword.negatable) {
        around
            .diagnostics
            .error(prefix.span, format!("'{}' cannot stand before '{}'", prefix.text, keyword.name))
            .hint("only options, 'log' and a few settings of 'global' can be negated");
        return Err(Reported);
    }
    if let Support::Refused { why, instead } = keyword.support {
        around.diagnostics.error(keyword_span, format!("'{}' is refused: {why}", keyword.name)).hint(instead);
        return Err(Reported);
    }
    allowed(target, keyword, keyword_span, around)?;
    let mut args = Args {
        keyword: keyword.name,
        keyword_span,
        verb: &words[count - 1].text,
        span,
        negated: prefix.is_some(),
        words: &words[count..],
        around,
        next: 0,
    };
    if prefix.is_none() {
        arity(keyword, &mut args)?;
    }
    // `default option X` restores the initial value, which is off for most options.
    (keyword.parse)(target, &mut args)?;
    if let Support::Accepted(why) = keyword.support
        && prefix.is_none()
    {
        around.diagnostics.notice(keyword_span, format!("'{}' has no effect: {why}", keyword.name));
    }
    Ok(())
}

fn arity<T>(keyword: &Keyword<T>, args: &mut Args<'_>) -> Parsed {
    let (min, max) = (usize::from(keyword.arity.min), usize::from(keyword.arity.max));
    let name = keyword.name;
    if args.words.len() < min {
        let end = args.end();
        let needs = if min == 1 { "an argument".to_owned() } else { format!("{min} arguments") };
        args.diagnostics().error(end, format!("'{name}' needs {needs}")).hint(format!("{name}: {}", keyword.doc));
        return Err(Reported);
    }
    if args.words.len() > max && keyword.arity.max != u8::MAX {
        let extra = &args.words[max];
        if keyword.spare {
            args.diagnostics()
                .warning(extra.span, format!("'{}' and what follows is not read by '{name}'", extra.text))
                .hint("remove it, or protect the spaces of one argument with quotes");
            args.words = &args.words[..max];
            return Ok(());
        }
        let takes = match max {
            0 => "no argument".to_owned(),
            1 => "one argument".to_owned(),
            n => format!("at most {n} arguments"),
        };
        return args.wrong(
            extra,
            format!("'{name}' takes {takes}, but '{}' follows", extra.text),
            format!("{name}: {}", keyword.doc),
        );
    }
    Ok(())
}

fn unknown<T>(table: &'static Table<T>, words: &[Word], around: &mut Surroundings) -> Reported {
    let first = &words[0];
    let family = table.family(&first.text);
    if !family.is_empty() {
        match words.get(1) {
            Some(second) => {
                let hint = expected(&second.text, family.into_iter());
                around
                    .diagnostics
                    .error(second.span, format!("unknown '{}' setting '{}'", first.text, second.text))
                    .hint(hint);
            }
            None => {
                let hint = expected("", family.into_iter());
                around.diagnostics.error(first.span, format!("'{}' needs an argument", first.text)).hint(hint);
            }
        }
        return Reported;
    }
    let section = around.section_kind;
    let finding = around.diagnostics.error(first.span, format!("unknown keyword '{}' in '{section}'", first.text));
    let names = table.keywords().map(|k| k.name).chain(sections::names());
    // A keyword of another section is not taken for a misspelt one of this section.
    if let Some(places) = sections::places_of(&first.text) {
        finding.hint(places);
    } else if let Some(near) = crate::units::nearest(&first.text, names) {
        finding.hint(format!("did you mean '{near}'?"));
    }
    Reported
}
