//! Variables: the environment's, and those of the process.

use crate::{
    args::{Args, Parsed},
    keyword::{ANYTHING, Keyword, SOME, at_least, exactly},
    model::Global,
    span::Word,
};

type Entry = Keyword<Global>;

pub(super) const KEYWORDS: &[Entry] = &[
    Entry::new("setenv", exactly(2), "Sets an environment variable", |_, a| {
        let name = name(a)?;
        let value = a.take().map(|w| w.text.clone()).unwrap_or_default();
        a.around.variables.insert(name, value);
        Ok(())
    }),
    Entry::new("presetenv", exactly(2), "Sets an environment variable that is not set yet", |_, a| {
        let name = name(a)?;
        let value = a.take().map(|w| w.text.clone()).unwrap_or_default();
        a.around.variables.entry(name).or_insert(value);
        Ok(())
    }),
    Entry::new("unsetenv", SOME, "Removes environment variables", |_, a| {
        while let Some(word) = a.take() {
            a.around.variables.remove(&word.text);
        }
        Ok(())
    }),
    Entry::new("resetenv", ANYTHING, "Removes all environment variables except these", |_, a| {
        let keep = a.rest().words;
        a.around.variables.retain(|name, _| name.starts_with("HAPROXY_") || keep.iter().any(|k| k.text == *name));
        Ok(())
    }),
    Entry::new("set-var", at_least(2), "Sets a variable of the process from an expression", set_var),
    Entry::new("set-var-fmt", at_least(2), "Sets a variable of the process from a format", set_var),
];

fn name(args: &mut Args<'_>) -> Parsed<String> {
    let word = args.word("the name of a variable")?;
    if word.text.contains(['=', '\0']) {
        return args.wrong(word, format!("'{}' cannot name a variable", word.text), "expected letters, digits and '_'");
    }
    Ok(word.text.clone())
}

fn set_var(global: &mut Global, args: &mut Args<'_>) -> Parsed {
    let variable = args.word("the name of a variable")?;
    if !variable.text.starts_with("proc.") {
        return args.wrong(
            variable,
            format!("'{}' is not a variable of the process", variable.text),
            "expected proc.NAME",
        );
    }
    args.next = 0;
    let mut line = args.rest();
    line.words.insert(0, Word { text: args.keyword.to_owned(), span: args.keyword_span });
    global.set_vars.push(line);
    Ok(())
}
