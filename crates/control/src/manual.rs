//! Generates the page that documents the commands.

use crate::{
    commands::{SESSION, Table},
    table::{About, Mode},
};

/// The text of `docs/runtime-api.md`.
pub fn page(table: &Table) -> String {
    let mut page = String::from(INTRODUCTION);
    let own = SESSION.iter().map(|entry| &entry.about);
    let mut entries: Vec<&About> = table.entries().chain(own).filter(|entry| !entry.usage.is_empty()).collect();
    entries.sort_by_key(|entry| entry.usage);
    page.push_str("| command | level | mode | what it does |\n|---|---|---|---|\n");
    for entry in entries {
        let mode = match entry.mode {
            Mode::Always => "",
            Mode::Expert => "expert",
            Mode::Experimental => "experimental",
        };
        let usage = entry.usage.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
        page.push_str(&format!("| `{usage}` | {} | {mode} | {} |\n", entry.level.word(), entry.help));
    }
    page
}

const INTRODUCTION: &str = "\
# The runtime API

Generated from the table of commands by `make generate`.

A `stats socket` answers these commands, and so does `penstock ctl`, which sends them:

```sh
echo 'show info; show stat' | socat - /run/penstock.sock
penstock ctl -s /run/penstock.sock show stat
```

One line is read, its commands parted by `;` are carried out in order, and the connection closes. Every answer ends with an empty
line and has no other. `prompt` keeps the connection. A backslash takes away the meaning of a `;`, a blank or a backslash. A command whose
last word is `<<` is followed by lines up to an empty one, `<<WORD` by lines up to one that is WORD. Sentences begin with `[3]: ` for an
error, `[5]: ` and `[6]: ` otherwise, after `set severity-output number`. The level is what the `stats socket` line must give; what changes
something is told by a line in the process's log.

";
