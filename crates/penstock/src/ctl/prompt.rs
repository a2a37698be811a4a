//! The prompt of `penstock ctl`: its lines are edited, remembered until it ends, and completed.
//!
//! Lines may contain secrets (`set ssl tls-key`), so that they are not kept in a file.

use rustyline::{
    CompletionType, Config, Context, Editor, Helper,
    completion::{Completer, Pair},
    error::ReadlineError,
    highlight::Highlighter,
    hint::Hinter,
    history::MemHistory,
    validate::Validator,
};

/// What completes a command: the commands' names, and the names in the process.
pub struct Completion<A> {
    /// Every command.
    pub commands: Vec<&'static str>,
    /// Sends a command; returns its answer, which is empty if there is none.
    pub ask: A,
}

/// The first argument of commands, by the last word of their names: what lists the names it may be, and how each line of that list has
/// one.
type Argument = (&'static [&'static str], &'static str, fn(&str) -> Option<&str>);

const ARGUMENTS: &[Argument] = &[
    (&["server", "agent", "health", "weight"], "show servers conn", first_word),
    (&["map"], "show map", file),
    (&["acl"], "show acl", file),
    (&["cert"], "show ssl cert", first_word),
    (&["ca-file"], "show ssl ca-file", first_word),
    (&["crl-file"], "show ssl crl-file", first_word),
    (&["crt-list"], "show ssl crt-list", first_word),
    (&["table"], "show table", table),
    (&["backend", "conn", "state"], "show backend", first_word),
    (&["frontend"], "show stat -1 1 -1", proxy),
];

/// Commands whose first argument is a new name.
const NEW: [&str; 4] = ["add server", "new ssl ca-file", "new ssl cert", "new ssl crl-file"];

fn first_word(line: &str) -> Option<&str> {
    let word = line.split(' ').next()?;
    // A star marks a certificate of which another version is being made.
    (!line.starts_with('#')).then(|| word.trim_start_matches('*'))
}

/// The file of a map or a list. One without a file has a number only.
fn file(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once(" (").filter(|_| !line.starts_with('#'))?;
    rest.split_once(')').map(|(file, _)| file).filter(|file| !file.is_empty())
}

fn table(line: &str) -> Option<&str> {
    line.strip_prefix("# table: ")?.split(',').next()
}

fn proxy(line: &str) -> Option<&str> {
    line.split(',').next().filter(|_| !line.starts_with('#'))
}

/// The whole words of the command that is being typed, and where in `line` its last word begins.
fn words(line: &str) -> (Vec<&str>, usize) {
    let (mut words, mut start, mut is_escaped) = (Vec::new(), 0, false);
    for (at, c) in line.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            ';' => (words, start) = (Vec::new(), at + 1),
            ' ' | '\t' => {
                words.extend(Some(&line[start..at]).filter(|word| !word.is_empty()));
                start = at + 1;
            }
            _ => {}
        }
    }
    // `@1` in front of a command for a master's socket says which process it is for.
    words.retain(|word| !word.starts_with('@'));
    (words, start)
}

impl<A: Fn(&str) -> String> Completion<A> {
    /// What the last word of `line` may be, in order, and where it begins.
    fn offers(&self, line: &str) -> (usize, Vec<String>) {
        let (words, start) = words(line);
        // The argument of `help` is a command.
        let words = words.strip_prefix(&["help"]).unwrap_or(&words);
        let begins = |word: &String| word.starts_with(&line[start..]) && !word.is_empty();
        let names = self.commands.iter().map(|name| name.split(' ').collect::<Vec<_>>());
        let next = names.filter_map(|name| name.strip_prefix(words)?.first().map(|word| (*word).to_owned()));
        let mut offers: Vec<String> = next.chain(self.arguments(words)).filter(begins).collect();
        offers.sort_unstable();
        offers.dedup();
        (start, offers)
    }

    /// The names that may follow these words.
    fn arguments(&self, words: &[&str]) -> Vec<String> {
        let command = words.join(" ");
        let is_named = self.commands.contains(&command.as_str()) && !NEW.contains(&command.as_str());
        let last = words.last().filter(|_| is_named);
        let argument = last.and_then(|last| ARGUMENTS.iter().find(|(lasts, ..)| lasts.contains(last)));
        let Some((_, question, read)) = argument else { return Vec::new() };
        (self.ask)(question).lines().filter_map(read).map(super::escaped).collect()
    }
}

impl<A: Fn(&str) -> String> Completer for Completion<A> {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (start, offers) = self.offers(&line[..at]);
        let pair = |word: String| Pair { replacement: format!("{word} "), display: word };
        Ok((start, offers.into_iter().map(pair).collect()))
    }
}

impl<A> Hinter for Completion<A> {
    type Hint = String;
}
impl<A> Highlighter for Completion<A> {}
impl<A> Validator for Completion<A> {}
impl<A: Fn(&str) -> String> Helper for Completion<A> {}

/// A terminal in which commands are typed.
pub struct Prompt<A: Fn(&str) -> String>(Editor<Completion<A>, MemHistory>);

impl<A: Fn(&str) -> String> Prompt<A> {
    /// Begins to use the terminal.
    ///
    /// # Errors
    /// A sentence that says why that is not possible.
    pub fn open(completion: Completion<A>) -> Result<Prompt<A>, String> {
        let config = Config::builder().completion_type(CompletionType::List).auto_add_history(true).build();
        let history = MemHistory::with_config(&config);
        let editor = Editor::with_history(config, history);
        let mut editor = editor.map_err(|e| format!("cannot use the terminal: {e}"))?;
        editor.set_helper(Some(completion));
        Ok(Prompt(editor))
    }

    /// The next line, without its end; `None` at the end. Ctrl-C begins a new line.
    ///
    /// # Errors
    /// A sentence that says why no line can be read.
    pub fn line(&mut self, prompt: &str) -> Result<Option<String>, String> {
        loop {
            match self.0.readline(prompt) {
                Ok(line) => return Ok(Some(line)),
                Err(ReadlineError::Eof) => return Ok(None),
                Err(ReadlineError::Interrupted) => {}
                Err(e) => return Err(format!("cannot read a command: {e}")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(command: &str) -> String {
        match command {
            "show servers conn" => "# bkname/svname bkid/svid addr\napp/one 3/1 127.0.0.1\napp/two;x 3/2 127.0.0.1\n",
            "show map" => "# id (file) description\n0 (/etc/a b.map) pattern loaded\n1 () x\n",
            "show ssl cert" => "# transaction\n*/etc/a.pem\n# filename\n/etc/a.pem\n/etc/b.pem\n",
            "show table" => "# table: www, type: ip, size:9, used:0\n# table: api, type: ip, size:9, used:0\n",
            "show stat -1 1 -1" => "# pxname,svname,\nwww,FRONTEND,\n",
            other => panic!("{other}"),
        }
        .to_owned()
    }

    #[test]
    fn commands_and_names_in_the_process_are_offered() {
        let completion = Completion { commands: super::super::words(), ask: answer };
        let all = |line: &str| completion.offers(line);
        let offers = |line: &str| all(line).1;
        assert_eq!(all("show serv"), (5, vec!["servers".to_owned()]));
        assert_eq!(offers("show servers "), ["conn", "state"]);
        assert_eq!(all("show info; @1  show  tab"), (21, vec!["table".to_owned()]));
        assert!(offers("sh").contains(&"show".to_owned()) && offers("").len() > 20);
        assert_eq!(offers("help show serv"), ["servers"]);
        assert_eq!(offers("enable server "), ["app/one", r"app/two\;x"]);
        assert_eq!(offers("get weight app/t"), [r"app/two\;x"]);
        assert_eq!(offers(r"set map /etc/a\ b"), [r"/etc/a\ b.map"]);
        assert_eq!(offers("commit map @3 "), [r"/etc/a\ b.map"]);
        assert_eq!(offers("commit ssl cert /e"), ["/etc/a.pem", "/etc/b.pem"]);
        assert_eq!(offers("clear table "), ["api", "www"]);
        assert_eq!(offers("set maxconn frontend "), ["www"]);
        assert_eq!(offers("new ssl cert "), [""; 0], "a new name is nobody's yet");
        assert_eq!(offers("set map /etc/a key "), [""; 0]);
        assert_eq!(offers("nonsense "), [""; 0]);
    }

    #[test]
    fn every_command_that_names_something_is_known_to_the_table_of_arguments() {
        let lasts: Vec<&str> = super::super::words().iter().filter_map(|name| name.split(' ').next_back()).collect();
        for (words, ..) in ARGUMENTS {
            assert!(words.iter().all(|word| lasts.contains(word)), "{words:?}");
        }
        assert!(NEW.iter().all(|name| super::super::words().contains(name)));
    }
}
