//! Generates the manual pages from the tables of options and commands.

use crate::{
    arguments::{Command, Opt},
    flags, version,
};
use penstock_control::{Level, Mode, TABLE};
use std::fmt::Write;

/// The pages: name and section.
pub const PAGES: [(&str, u8); 3] = [("penstock", 8), ("penstock-ctl", 1), ("penstock.cfg", 5)];

/// The page with this name, for troff with the man macros.
pub fn page(commands: &[Command], name: &str) -> Option<String> {
    match name {
        "penstock" => Some(penstock(commands)),
        "penstock-ctl" => commands.iter().find(|command| command.name == "ctl").map(ctl),
        "penstock.cfg" => Some(configuration()),
        _ => None,
    }
}

/// A page being written.
struct Page(String);

impl Page {
    fn new(name: &str, section: u8, what: &str) -> Page {
        let mut page = Page(String::from(".\\\" Made by `penstock man`: change the tables that it is made from.\n"));
        let title = name.to_uppercase();
        page.line(&format!(".TH {title} {section} \"\" \"penstock {}\" \"penstock\"", version::NUMBER));
        page.head("NAME");
        page.line(&format!("{} \\- {}", escaped(name), escaped(what)));
        page
    }

    fn line(&mut self, line: &str) {
        self.0.push_str(line);
        self.0.push('\n');
    }

    fn head(&mut self, title: &str) {
        self.line(&format!(".SH {title}"));
    }

    /// Adds a paragraph.
    fn say(&mut self, text: &str) {
        self.line(".PP");
        self.line(&escaped(text));
    }

    /// Adds a term and its meaning.
    fn item(&mut self, typed: &str, help: &str) {
        self.line(".TP");
        self.line(&format!("\\fB{}\\fR", escaped(typed)));
        self.line(&escaped(&sentence(help)));
    }

    /// Adds the options of a subcommand.
    fn options(&mut self, options: &[Opt]) {
        for option in options.iter().filter(|option| !option.help.is_empty()) {
            let typed = match option.takes {
                Some(what) => format!("{} {what}", option.name),
                None => option.name.clone(),
            };
            self.item(&typed, &option.help);
        }
    }
}

/// Escapes text for troff: backslashes, dashes that would become hyphens, lines that start with a dot or a quote.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for line in text.split('\n') {
        if !escaped.is_empty() {
            escaped.push('\n');
        }
        if line.starts_with(['.', '\'']) {
            escaped.push_str("\\&");
        }
        for c in line.chars() {
            match c {
                '\\' => escaped.push_str("\\e"),
                '-' => escaped.push_str("\\-"),
                '\'' => escaped.push_str("\\(aq"),
                '^' => escaped.push_str("\\(ha"),
                '~' => escaped.push_str("\\(ti"),
                '`' => escaped.push_str("\\(ga"),
                'µ' => escaped.push_str("\\(mc"),
                c => escaped.push(c),
            }
        }
    }
    escaped
}

/// Turns a line of help into a sentence. A first word that is typed as it stands, such as a name or a value of a list, keeps its letters.
fn sentence(help: &str) -> String {
    let help = help.trim_end_matches('.');
    let first = help.split(' ').next().unwrap_or_default();
    let is_plain = first.chars().all(|c| c.is_ascii_lowercase());
    let mut characters = help.chars();
    match characters.next().filter(|_| is_plain) {
        Some(c) => format!("{}{}.", c.to_ascii_uppercase(), characters.as_str()),
        None => format!("{help}."),
    }
}

fn penstock(commands: &[Command]) -> String {
    let mut page = Page::new("penstock", 8, "a TLS-terminating load balancer that reads haproxy.cfg");
    page.head("SYNOPSIS");
    page.line(".B penstock");
    page.line("\\fB\\-f\\fR \\fIfile|dir\\fR... [\\fIoptions\\fR]");
    for command in commands {
        page.line(".br");
        page.line(&format!(".B penstock {}", escaped(command.name)));
        if !command.usage.is_empty() {
            page.line(&escaped(command.usage));
        }
    }
    page.head("DESCRIPTION");
    page.say(
        "penstock reads the configuration language of HAProxy and serves it: HTTP/1.1, HTTP/2 and TCP, over TLS or not. It takes \
         HAProxy's options and signals. Started under the name haproxy, by a link, it calls itself haproxy in its log lines, its \
         messages and the list of processes.",
    );
    page.head("OPTIONS");
    for option in flags::listed(true).iter().filter(|option| option.name != "--help") {
        page.item(&flags::typed(&option.name), &option.help);
    }
    page.say("These are accepted without effect; each says why it is not needed:");
    for option in flags::listed(false) {
        page.item(&flags::typed(&option.name), &option.help);
    }
    page.head("COMMANDS");
    for command in commands {
        page.line(&format!(".SS penstock {} {}", escaped(command.name), escaped(command.usage)));
        page.line(&escaped(&sentence(command.help)));
        page.options(&(command.options)());
        for below in command.below {
            page.line(&format!(".SS penstock {} {} {}", command.name, escaped(below.name), escaped(below.usage)));
            page.line(&escaped(&sentence(below.help)));
            page.options(&(below.options)());
        }
    }
    page.head("SIGNALS");
    for (signals, meaning) in [
        (
            "SIGUSR2, SIGHUP",
            "to a master (-W): reads the configuration again and starts a worker with it, which takes over the listening sockets and the connections waiting in them; the old worker drains. If the new one cannot start, nothing changes",
        ),
        ("SIGUSR1", "takes no new connections, and ends when those that are there have ended"),
        ("SIGTERM, SIGINT", "ends at once"),
        (
            "SIGTTOU, SIGTTIN",
            "pauses the frontends, or resumes them; a master passes it on to its worker. The sockets for commands go on answering",
        ),
        (
            "SIGHUP, SIGQUIT",
            "to a process without a master, or to a worker: writes the state of its servers and proxies (SIGHUP), or its memory use (SIGQUIT), to standard error",
        ),
    ] {
        page.item(signals, meaning);
    }
    page.head("EXIT STATUS");
    page.item("0", "it ended as it was told to, or the configuration is valid (-c)");
    page.item("1", "it could not start, or the configuration has errors");
    page.item("2", "the configuration has no errors, but nothing would listen (-c); the condition is not valid (-cc)");
    page.say("A master ends with the status of its last worker.");
    page.head("ENVIRONMENT");
    page.item("PENSTOCK_SOCKET", "the stats socket that 'penstock ctl' speaks to");
    page.item("NO_COLOR", "if set to anything, messages have no colours");
    page.item("NOTIFY_SOCKET", "the socket on which systemd is told that penstock is ready, reloading or stopping");
    page.head("FILES");
    page.item("/etc/penstock/penstock.cfg", "the configuration of the service penstock.service");
    page.item("/etc/haproxy/haproxy.cfg", "that of haproxy.service, where penstock replaces haproxy");
    page.head("SEE ALSO");
    page.line(".BR penstock\\-ctl (1),");
    page.line(".BR penstock.cfg (5)");
    page.0
}

fn ctl(command: &Command) -> String {
    let mut page = Page::new("penstock-ctl", 1, "gives commands to a running penstock");
    page.head("SYNOPSIS");
    page.line(".B penstock ctl");
    page.line(&escaped(command.usage));
    page.line(".br");
    page.line(".B penstock ctl");
    page.line(&escaped("[options]"));
    page.line(".br");
    page.line(".B penstock ctl");
    page.line(&escaped("[options] watch COMMAND..."));
    page.head("DESCRIPTION");
    page.say(
        "Sends a command to the stats socket of a running process and shows the answer: lists as tables where there is a terminal. \
         Without a command it reads commands from standard input, a line each. With 'watch' it gives the command again and again. A \
         command that ends with << has its payload from standard input. A payload of 'add map' or 'add acl' may be larger than the \
         process takes at once (tune.cli.max-payload-size, 128 KiB by default): it is sent in pieces.",
    );
    page.say(
        "To replace the whole contents of a map, without a moment in which requests find half of it: 'prepare map FILE' says a \
         version, 'add map @VERSION FILE <<' fills that, and 'commit map @VERSION FILE' puts it in place of the current one.",
    );
    page.head("OPTIONS");
    page.options(&(command.options)());
    page.head("COMMANDS");
    page.say("The level that the 'stats socket' line must grant, if it is higher than user, and the mode that the command needs are in parentheses.");
    let mut entries: Vec<_> = TABLE.entries().filter(|entry| !entry.usage.is_empty()).collect();
    entries.sort_by_key(|entry| entry.usage);
    for entry in entries {
        let mut needs = Vec::new();
        if entry.level != Level::User {
            needs.push(entry.level.word());
        }
        match entry.mode {
            Mode::Always => {}
            Mode::Expert => needs.push("expert mode"),
            Mode::Experimental => needs.push("experimental mode"),
        }
        let mut help = entry.help.to_owned();
        if !needs.is_empty() {
            // Writing to a String does not fail.
            let _ = write!(help, " ({})", needs.join(", "));
        }
        page.item(&entry.usage.split_whitespace().collect::<Vec<_>>().join(" "), &help);
    }
    page.head("EXIT STATUS");
    page.item("0", "everything was carried out");
    page.item("1", "a command was refused, or there was no answer");
    page.head("ENVIRONMENT");
    page.item("PENSTOCK_SOCKET", "the stats socket, where neither -s nor -f says it");
    page.head("SEE ALSO");
    page.line(".BR penstock (8),");
    page.line(".BR penstock.cfg (5)");
    page.0
}

fn configuration() -> String {
    let mut page = Page::new("penstock.cfg", 5, "the configuration of penstock");
    page.head("DESCRIPTION");
    page.say(
        "penstock.cfg is written in the language of HAProxy's haproxy.cfg: sections, each with its name on a line of its own, and \
         below it a keyword with its arguments on each line. What follows a # is a comment; a backslash before a blank, and quotes, keep \
         words together; \"$NAME\" and \"${NAME}\" within double quotes stand for a variable of the environment. Several files, \
         or a directory of them, are read as one.",
    );
    page.head("SECTIONS");
    page.item("global", "settings of the process");
    page.item("defaults, frontend, backend, listen", "the proxies: who is served, and by which servers");
    let mut names: Vec<&str> = penstock_config::manual::keywords().iter().map(|entry| entry.section).collect();
    names.dedup();
    // The lines of proxies are not sections.
    names.retain(|name| !["global", "proxy", "bind", "server"].contains(name));
    names.iter().filter_map(|name| Some((name, section(name)?))).for_each(|(name, what)| page.item(name, what));
    let others: Vec<&str> = names.into_iter().filter(|name| section(name).is_none()).collect();
    page.item(
        &others.join(", "),
        "as in HAProxy's manual; 'penstock keywords' says which of their keywords are supported",
    );
    page.head("EXAMPLE");
    page.line(".nf");
    page.line(&escaped(EXAMPLE));
    page.line(".fi");
    page.head("KEYWORDS");
    page.say(
        "'penstock keywords' lists every keyword with a line on what it does, and whether it is implemented, accepted without effect, \
         or refused. The same with more stands in keywords.md, rules and sample expressions in rules.md, below \
         /usr/share/doc/penstock or /usr/share/doc/penstock-haproxy. HAProxy's configuration manual describes each in full.",
    );
    page.say("'penstock -c -f FILE' shows everything that is wrong with a configuration at once.");
    page.head("SEE ALSO");
    page.line(".BR penstock (8),");
    page.line(".BR penstock\\-ctl (1)");
    page.0
}

/// The purpose of a section; `None` if the page describes it together with others.
fn section(name: &str) -> Option<&'static str> {
    Some(match name {
        "userlist" => "users and groups for http-request auth",
        "program" => "a program that the master runs beside the workers",
        "resolvers" => "name servers, and how their answers are kept",
        "peers" => "processes that share stick tables",
        "crt-store" => "certificates and their keys, by name",
        "http-errors" => "error pages that proxies share",
        _ => return None,
    })
}

const EXAMPLE: &str = "\
global
    maxconn 10000
defaults
    mode http
    timeout connect 2s
    timeout client 30s
    timeout server 30s
listen site
    bind :443 ssl crt /etc/ssl/site.pem alpn h2,http/1.1
    option httpchk GET /healthz
    server a 10.0.0.1:8080 check
    server b 10.0.0.2:8080 check";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_something_to_troff_is_escaped() {
        assert_eq!(escaped(".a -b\n'c' \\d"), "\\&.a \\-b\n\\&\\(aqc\\(aq \\ed");
    }

    #[test]
    fn every_page_of_the_list_is_there() {
        for (name, section) in PAGES {
            let text = page(crate::commands::COMMANDS, name).expect("it is listed");
            assert!(text.contains(&format!(".TH {} {section} ", name.to_uppercase())), "{name}");
        }
        assert_eq!(page(crate::commands::COMMANDS, "haproxy"), None);
    }
}
