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

A `stats socket` answers these commands, and so does `penstock ctl`, which sends them. Without a command it has
a prompt, where Tab completes commands and the names of what there is:

```sh
echo 'show info; show stat' | socat - /run/penstock/admin.sock
penstock ctl -s /run/penstock/admin.sock show stat
```

One line is read, its commands, separated by `;`, are carried out in order, and the connection closes. Every answer ends with an empty
line and contains none before it. `prompt` keeps the connection. A backslash takes away the meaning of a `;`, a blank or a backslash. A command whose
last word is `<<` is followed by lines up to an empty one, `<<WORD` by lines up to one that is WORD. Messages begin with `[3]: ` for an
error, `[5]: ` and `[6]: ` otherwise, after `set severity-output number`. The level is the one that the `stats socket` line must grant; each
change is logged. Every `show` that is not refused also takes `json` as its last word. Commands with a mode need `expert-mode on` or
`experimental-mode on` earlier on the same connection.

## Changes that outlive the process

With `runtime-changes-file PATH` in `global`, changes made by commands are also there after a reload, a restart or the death of a worker:

- certificates: `new`, `set`, `commit` and `del ssl cert`, also `ssl ca-file` and `ssl crl-file`, and lines of crt-lists. A transaction is
  kept once it is committed;
- OCSP responses, of `set ssl ocsp-response` and `update ssl ocsp-response`, until they expire or a newer file `<certfile>.ocsp` is there;
- ticket keys, of `set ssl tls-key`: the three of a file that are in use;
- maps and ACLs that have a file: `add`, `set`, `del`, `clear`, and versions once they are committed. An entry that a command names by its
  number (`#0x...`), and what rules change (`set-map` and others), is not kept;
- servers added and removed, and what was set of added servers. For the others there is `server-state-file`.

The change is in the file before its command is answered, and the next process makes it before it accepts its first connection. The file
holds private keys: it is made with mode 0600, by the user that starts the process. It is written anew once most of it is out of date; if
`user` may not write to its directory, only at the start of a process that may. A process does not start with one that others than its owner and
group may open, that is no regular file, or that is longer than 256 MiB; a change that would make it longer is made, but not kept, and the
answer says so. So it is when the disk is full: then it is written together with the next change. Where there is no room already when the
process starts, nothing is changed until there is, as the answer says. Changes that belong together (the entries of a
version, the parts of a certificate) are made together or not at all, even if the process was killed while it wrote them. Each service needs a file of
its own: one that starts with another's warns of it, takes the file over, and drops what does not belong to its configuration.

**Ticket keys on disk.** Whoever has a ticket key can decrypt recorded connections of TLS 1.2 that were resumed with a ticket under it. A key that the third one after it has displaced is taken out of the file at
once, by writing the file anew; where `user` may not write to the directory, only at the next start of a process that may. The blocks of the old
file are not overwritten on the disk. If your ticket keys are on no disk, put this file on a tmpfs as well.

The name of an added server may have 1,024 bytes, so that lines of `show servers state` stay short enough for HAProxy to read.

If the configuration or a file on disk has changed as well: a change to a certificate, a list or a crt-list is dropped if the
file that it was made to is no longer the one that the process had read (compared by its content); a change that can no longer be
made (a server of that name is configured now, a backend is gone) is dropped. A warning reports both cases. While a new process is
starting, such a command waits for it, and is then refused by the process before it: send it again, to the new one.

## Replacing a large map

A payload may have `tune.cli.max-payload-size` bytes, 128 KiB by default. A map or an ACL of any size is replaced in steps, and requests see
the old contents until the last one:

```sh
penstock ctl -s S 'prepare map /etc/penstock/hosts.map'                     # New version created: 1
penstock ctl -s S 'add map @1 /etc/penstock/hosts.map <<' < new-hosts.map
penstock ctl -s S 'commit map @1 /etc/penstock/hosts.map'
```

`penstock ctl` cuts the payload of `add map` and `add acl` at ends of lines, and sends it in pieces that are small enough for the default; other
clients have to do so themselves. If a line is refused, it says how many lines were taken before the piece that has it: prepare a new version, and the
unfinished one is dropped.

## The commands

";
