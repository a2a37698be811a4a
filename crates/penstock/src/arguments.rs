//! Arguments of subcommands: `--name value`, `--name` and words, each subcommand from one table.

use std::{ffi::OsString, fmt::Write, process::ExitCode};

/// A subcommand, or a subcommand of one. Dispatch, help, manual and completion come from tables of these.
pub struct Command {
    /// The word that selects the command.
    pub name: &'static str,
    /// What may follow the name, as the manual shows it.
    pub usage: &'static str,
    /// One line for the help.
    pub help: &'static str,
    /// The options of this subcommand.
    pub options: fn() -> Vec<Opt>,
    /// Words that may follow the command.
    pub words: fn() -> Vec<&'static str>,
    /// The command's own subcommands, if it has any.
    pub below: &'static [Command],
    /// Runs the command with the arguments after its name.
    pub run: fn(&[OsString]) -> ExitCode,
}

impl Command {
    /// A subcommand without options and words.
    pub const fn new(
        name: &'static str,
        usage: &'static str,
        help: &'static str,
        run: fn(&[OsString]) -> ExitCode,
    ) -> Command {
        Command { name, usage, help, options: Vec::new, words: Vec::new, below: &[], run }
    }

    /// Runs it with the arguments after its name. `parents` are the names before its own. One that has neither options nor subcommands, whose
    /// help says more, shows its line of help.
    pub fn start(&self, parents: &str, arguments: &[OsString]) -> ExitCode {
        let asks = matches!(arguments, [only] if only == "--help" || only == "-h");
        if asks && (self.options)().is_empty() && self.below.is_empty() {
            println!("Usage: {parents} {} {}\n\n{}", self.name, self.usage, self.help);
            return ExitCode::SUCCESS;
        }
        (self.run)(arguments)
    }

    /// Sets its options.
    pub const fn options(self, options: fn() -> Vec<Opt>) -> Command {
        Command { options, ..self }
    }

    /// Sets the words that may follow it.
    pub const fn words(self, words: fn() -> Vec<&'static str>) -> Command {
        Command { words, ..self }
    }

    /// Sets its subcommands.
    pub const fn below(self, below: &'static [Command]) -> Command {
        Command { below, ..self }
    }
}

/// An option of a subcommand.
#[derive(Clone, Debug)]
pub struct Opt {
    /// The option's name, including its dashes.
    pub name: String,
    /// The name of the option's value; `None` for a switch.
    pub takes: Option<&'static str>,
    /// One line for the help.
    pub help: String,
}

/// A switch.
pub fn switch(name: &str, help: &str) -> Opt {
    Opt { name: name.into(), takes: None, help: help.into() }
}

/// An option with a value.
pub fn value(name: &str, what: &'static str, help: &str) -> Opt {
    Opt { name: name.into(), takes: Some(what), help: help.into() }
}

/// Parsed arguments.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    /// Options in order, with their values.
    options: Vec<(String, String)>,
    /// Everything that does not start with a dash.
    pub words: Vec<String>,
}

impl Arguments {
    /// Parses arguments.
    ///
    /// # Errors
    ///
    /// A sentence: an option does not exist, or lacks its value.
    pub fn parse(options: &[Opt], arguments: &[OsString]) -> Result<Arguments, String> {
        let mut found = Arguments::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let text = argument.to_str().ok_or_else(|| format!("'{}' is not UTF-8", argument.display()))?;
            if !text.starts_with('-') || text == "-" {
                found.words.push(text.to_owned());
                continue;
            }
            let (name, glued) = match text.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (text, None),
            };
            let option = options.iter().find(|o| o.name == name).ok_or_else(|| format!("unknown option '{name}'"))?;
            let value = match (option.takes, glued) {
                (None, None) => String::new(),
                (None, Some(_)) => return Err(format!("{name} takes no value")),
                (Some(_), Some(value)) => value,
                (Some(what), None) => {
                    let next = rest.next().ok_or_else(|| format!("{name} needs <{what}> after it"))?;
                    next.to_str().ok_or_else(|| format!("the value of {name} is not UTF-8"))?.to_owned()
                }
            };
            found.options.push((option.name.clone(), value));
        }
        Ok(found)
    }

    /// Whether an option was given.
    pub fn has(&self, name: &str) -> bool {
        self.options.iter().any(|(n, _)| n == name)
    }

    /// The value of an option; the last one if it was given several times.
    pub fn one(&self, name: &str) -> Option<&str> {
        self.options.iter().rev().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The values of an option, in order.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.options.iter().filter(move |(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

/// The options, one per line.
pub fn help(options: &[Opt]) -> String {
    let mut page = String::new();
    for option in options {
        let typed = match option.takes {
            Some(what) => format!("{} <{what}>", option.name),
            None => option.name.clone(),
        };
        // Writing to a String does not fail.
        let _ = writeln!(page, "  {typed:<28} {}", option.help);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, String> {
        let options = [switch("--json", ""), value("--level", "TPS", "")];
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        Arguments::parse(&options, &words)
    }

    #[test]
    fn options_values_and_words_are_told_apart() {
        let found = parse("up --level 5 --json --level=-3 now").unwrap();
        assert_eq!(found.words, ["up", "now"]);
        assert_eq!(found.all("--level").collect::<Vec<_>>(), ["5", "-3"]);
        assert!(found.has("--json") && !found.has("--csv"));
    }

    #[test]
    fn what_is_missing_or_unknown_is_said() {
        assert_eq!(parse("--levle 5").unwrap_err(), "unknown option '--levle'");
        assert_eq!(parse("--level").unwrap_err(), "--level needs <TPS> after it");
        assert_eq!(parse("--json=1").unwrap_err(), "--json takes no value");
    }
}
