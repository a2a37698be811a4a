//! HAProxy's command line: one table of options, parsed by hand because `-Ws`, `-dM50` and `-sf 1 2 3` follow no library's
//! rules (management guide, section 3).

use crate::{arguments, name::NAME};
use std::{
    ffi::OsString,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// The parsed command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// `-f` and the arguments after `--`: files and directories in order.
    pub files: Vec<PathBuf>,
    /// `-c`.
    pub check: bool,
    /// `-cc CONDITION`.
    pub condition: Option<String>,
    /// `-v` gives 1, `-vv` 2.
    pub version: u8,
    /// `-h`.
    pub help: bool,
    /// `--help`: as `-h`, but to the standard output, as success.
    pub help_page: bool,
    /// `-D`.
    pub daemon: bool,
    /// `-W`, or `-Ws`: systemd is notified whenever it listens.
    pub master: bool,
    /// `-Ws`: ignores `daemon` in the file, since systemd waits for the process it started.
    pub service: bool,
    /// `-db`, and `-d`, which implies it: `daemon` in the file does not count. `-D` does, and there is a master all the same.
    pub foreground: bool,
    /// `-dI`.
    pub may_start_programs: bool,
    /// `-d`.
    pub debug: bool,
    /// `-q`.
    pub quiet: bool,
    /// `-V`.
    pub verbose: bool,
    /// `-n N`; HAProxy reads anything but a number as 0, which means no limit.
    pub maxconn: Option<u32>,
    /// `-m`: how many MiB the process may take.
    pub memory_mib: Option<u32>,
    /// `-N N`.
    pub proxy_maxconn: Option<u32>,
    /// `-p FILE`.
    pub pidfile: Option<PathBuf>,
    /// `-C DIR`.
    pub directory: Option<PathBuf>,
    /// `-L NAME`.
    pub local_peer: Option<String>,
    /// `-dM[BYTE]`.
    pub poison: Option<u8>,
    /// `-dW`.
    pub warnings_are_errors: bool,
    /// `-dD`.
    pub diagnostic_mode: bool,
    /// `-dV`.
    pub no_server_verify: bool,
    /// `-dr`.
    pub ignore_unresolved: bool,
    /// `-sf PID...`.
    pub finish: Vec<i32>,
    /// `-st PID...`.
    pub terminate: Vec<i32>,
    /// `-x SOCKET`; /dev/null means none.
    pub heir_of: Option<PathBuf>,
    /// `-S ADDRESS[,WORD...]`.
    pub master_sockets: Vec<String>,
    /// HAProxy's options that have no effect here; each gets a notice.
    pub without_effect: Vec<&'static Opt>,
}

/// The argument of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    /// Nothing.
    Nothing,
    /// The next argument, by its name in the help.
    Next(&'static str),
    /// Text attached to the option.
    Glued(&'static str),
    /// Numbers, up to an argument that starts with `-`.
    Pids,
    /// All remaining arguments.
    Rest,
}

/// One option.
pub struct Opt {
    name: &'static str,
    takes: Takes,
    /// One line for the help; for an option without effect, the reason.
    pub help: &'static str,
    /// `None` if it is accepted but has no effect here.
    apply: Option<Apply>,
}

/// Applies an option: gets the text attached to it or after it, both as text and as the system passed it.
type Apply = fn(&mut Flags, &str, &OsString) -> Result<(), String>;

impl std::fmt::Debug for Opt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Opt {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Opt {}

impl Opt {
    /// The option as typed.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

const fn opt(name: &'static str, takes: Takes, help: &'static str, apply: Apply) -> Opt {
    Opt { name, takes, help, apply: Some(apply) }
}

const fn without_effect(name: &'static str, takes: Takes, reason: &'static str) -> Opt {
    Opt { name, takes, help: reason, apply: None }
}

/// Parses a number like HAProxy's command line: the leading digits, or 0 if there are none.
fn number(text: &str) -> u32 {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    text[..digits].parse().unwrap_or(if digits == 0 { 0 } else { u32::MAX })
}

fn pid(text: &str) -> Result<i32, String> {
    text.parse().ok().filter(|p| *p > 0).ok_or_else(|| format!("'{text}' is not a process id"))
}

use Takes::{Glued, Next, Nothing, Pids, Rest};

/// All options; within a family, the longest names come first, because some take attached text.
#[rustfmt::skip]
const OPTIONS: &[Opt] = &[
    opt("-f", Next("file|dir"), "reads a configuration file, or the *.cfg files of a directory in order; may be repeated", |f, _, path| { f.files.push(path.into()); Ok(()) }),
    opt("--", Rest, "every argument after it is a configuration file", |f, _, path| { f.files.push(path.into()); Ok(()) }),
    opt("-cc", Next("condition"), "evaluates a condition of .if: exits with 0 when true, 1 when false, 2 on an error", |f, text, _| { f.condition = Some(text.into()); Ok(()) }),
    opt("-c", Nothing, "checks the configuration and exits: 0 when it can start, 1 on errors, 2 without a listener", |f, _, _| { f.check = true; Ok(()) }),
    opt("-C", Next("dir"), "changes to this directory first", |f, _, path| { f.directory = Some(path.into()); Ok(()) }),
    opt("-vv", Nothing, "shows version, features, libraries and the crypto engine of this machine", |f, _, _| { f.version = 2; Ok(()) }),
    opt("-v", Nothing, "shows the version", |f, _, _| { f.version = f.version.max(1); Ok(()) }),
    opt("-V", Nothing, "shows messages again, after -q", |f, _, _| { f.verbose = true; f.quiet = false; Ok(()) }),
    opt("-q", Nothing, "shows no messages, only sets the exit status", |f, _, _| { f.quiet = true; Ok(()) }),
    opt("-h", Nothing, "shows this help", |f, _, _| { f.help = true; Ok(()) }),
    opt("--help", Nothing, "shows this help", |f, _, _| { f.help_page = true; Ok(()) }),
    opt("--version", Nothing, "shows the version", |f, _, _| { f.version = f.version.max(1); Ok(()) }),
    opt("-D", Nothing, "runs in the background", |f, _, _| { f.daemon = true; Ok(()) }),
    opt("-Ws", Nothing, "like -W, for a systemd service of type notify: 'daemon' in the configuration is ignored", |f, _, _| { f.master = true; f.service = true; Ok(()) }),
    opt("-W", Nothing, "master and worker: SIGUSR2 reloads, SIGUSR1 drains, SIGTERM stops", |f, _, _| { f.master = true; Ok(()) }),
    opt("-db", Nothing, "stays in the foreground, even where the file says 'daemon'", |f, _, _| { f.foreground = true; Ok(()) }),
    opt("-dW", Nothing, "does not start when there is a warning", |f, _, _| { f.warnings_are_errors = true; Ok(()) }),
    opt("-dD", Nothing, "reports suspicious statements too", |f, _, _| { f.diagnostic_mode = true; Ok(()) }),
    opt("-dV", Nothing, "does not verify the certificates of servers", |f, _, _| { f.no_server_verify = true; Ok(()) }),
    opt("-dr", Nothing, "starts even when a server's name does not resolve", |f, _, _| { f.ignore_unresolved = true; Ok(()) }),
    opt("-dM", Glued("byte"), "fills memory with this byte (0x50) before use", |f, text, _| { f.poison = Some(poison(text)?); Ok(()) }),
    opt("-dI", Nothing, "lets the process start programs, as 'insecure-fork-wanted' does", |f, _, _| { f.may_start_programs = true; Ok(()) }),
    without_effect("-dC", Glued("key"), "the configuration is checked, not written out"),
    without_effect("-dF", Nothing, "there is no fast forwarding to switch off"),
    without_effect("-dG", Nothing, "names are resolved by the system's resolver or by a resolvers section"),
    without_effect("-dR", Nothing, "every worker has its own listening sockets, which needs SO_REUSEPORT"),
    without_effect("-dS", Nothing, "splice() is not used"),
    without_effect("-de", Nothing, "epoll is the only poller"),
    without_effect("-dp", Nothing, "epoll is the only poller"),
    without_effect("-dt", Glued("source"), "there are no traces; '-d' shows requests and responses"),
    without_effect("-dZ", Nothing, "there is no zero-copy forwarding to switch off"),
    without_effect("-dL", Nothing, "the binary loads no libraries of its own but the system's C library"),
    without_effect("-dK", Glued("class"), "'penstock keywords' lists the keywords"),
    opt("-d", Nothing, "stays in the foreground and shows requests and responses", |f, _, _| { f.debug = true; f.foreground = true; Ok(()) }),
    opt("-n", Next("maxconn"), "limits the connections of the process, whatever 'maxconn' says", |f, text, _| { f.maxconn = Some(number(text)).filter(|n| *n > 0); Ok(()) }),
    opt("-N", Next("maxconn"), "default limit of each proxy", |f, text, _| { f.proxy_maxconn = Some(number(text)).filter(|n| *n > 0); Ok(()) }),
    opt("-m", Next("megabytes"), "limits the memory of each process (RLIMIT_DATA)", |f, text, _| { f.memory_mib = Some(number(text)).filter(|n| *n > 0); Ok(()) }),
    opt("-L", Next("name"), "name of this peer, the host name by default", |f, text, _| { f.local_peer = Some(text.into()); Ok(()) }),
    opt("-p", Next("file"), "writes the process ids to this file", |f, _, path| { f.pidfile = Some(path.into()); Ok(()) }),
    opt("-sf", Pids, "once started, tells these processes to finish (SIGUSR1)", |f, text, _| { f.finish.push(pid(text)?); Ok(()) }),
    opt("-st", Pids, "once started, tells these processes to stop (SIGTERM)", |f, text, _| { f.terminate.push(pid(text)?); Ok(()) }),
    opt("-x", Next("socket"), "takes listening sockets over from the process behind this stats socket (expose-fd listeners)", |f, _, path| { f.heir_of = Some(path.into()).filter(|path: &PathBuf| path != Path::new("/dev/null")); Ok(()) }),
    opt("-S", Next("bind"), "answers commands to the master on this address; ADDRESS[,mode,600,level,operator]", |f, text, _| { f.master_sockets.push(text.into()); Ok(()) }),
];

/// The words of `-dM`, each of which `no-` may precede or not. They tune HAProxy's memory pools, which do not exist here.
const POOL_WORDS: &[&str] =
    &["fail", "merge", "cold-first", "hot-first", "integrity", "global", "cache", "caller", "tag", "poison"];

/// Parses `-dM`, `-dM50`, `-dM0x50,no-merge`: returns the byte.
fn poison(text: &str) -> Result<u8, String> {
    let mut words = text.split(',').peekable();
    let number = words.next_if(|first| first.starts_with(|c: char| c.is_ascii_digit()));
    for word in words.filter(|word| !word.is_empty()) {
        if !POOL_WORDS.contains(&word.strip_prefix("no-").unwrap_or(word)) {
            return Err(format!("-dM: unknown pool debugging feature <{word}>"));
        }
    }
    match number.map(|number| (number, number.strip_prefix("0x"))) {
        None => Ok(0x50),
        Some((_, Some(hex))) => u8::from_str_radix(hex, 16).map_err(|_| number),
        Some((decimal, None)) => decimal.parse().map_err(|_| number),
    }
    .map_err(|number| format!("-dM takes a byte such as -dM0x50, not '{}'", number.unwrap_or_default()))
}

impl Flags {
    /// Parses the arguments after the program's name.
    ///
    /// # Errors
    ///
    /// A sentence for the user.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Flags, String> {
        let mut flags = Flags::default();
        let mut arguments = arguments.into_iter().peekable();
        while let Some(argument) = arguments.next() {
            let text = argument.to_string_lossy().into_owned();
            let found = OPTIONS.iter().find_map(|o| match o.takes {
                Glued(_) => text.strip_prefix(o.name).map(|rest| (o, rest)),
                // Like HAProxy, which looks at the first letters only: '-dfoo' is '-d'.
                Nothing if !o.name.starts_with("--") => text.starts_with(o.name).then_some((o, "")),
                _ => (text == o.name).then_some((o, "")),
            });
            let Some((option, glued)) = found else {
                return Err(match text.starts_with('-') {
                    true => format!("unknown option '{text}'"),
                    false => format!("unknown command '{text}'; a configuration file is given with -f"),
                });
            };
            let apply = option.apply.unwrap_or(|_, _, _| Ok(()));
            if option.apply.is_none() {
                flags.without_effect.push(option);
            }
            match option.takes {
                Nothing => apply(&mut flags, "", &argument)?,
                Glued(_) => apply(&mut flags, glued, &argument)?,
                Next(what) => {
                    let value = arguments
                        .next_if(|v| {
                            matches!(option.name, "-f" | "-cc") || !v.as_bytes().starts_with(b"-") || v.len() == 1
                        })
                        .ok_or_else(|| format!("{} needs <{what}> after it", option.name))?;
                    apply(&mut flags, &value.to_string_lossy(), &value)?;
                }
                Pids => {
                    while let Some(value) = arguments.next_if(|v| !v.as_bytes().starts_with(b"-")) {
                        apply(&mut flags, &value.to_string_lossy(), &value)?;
                    }
                }
                Rest => {
                    for value in arguments.by_ref() {
                        apply(&mut flags, "", &value)?;
                    }
                }
            }
        }
        Ok(flags)
    }
}

/// The options that have an effect, or those without effect, with the reason.
pub fn listed(has_effect: bool) -> Vec<arguments::Opt> {
    let of_kind = OPTIONS.iter().filter(|o| o.apply.is_some() == has_effect);
    let listed = of_kind.map(|o| arguments::Opt {
        name: o.name.into(),
        takes: match o.takes {
            Nothing | Glued(_) => None,
            Next(what) => Some(what),
            Pids => Some("pid..."),
            Rest => Some("file..."),
        },
        help: o.help.into(),
    });
    listed.collect()
}

/// The syntax of the option with this name.
pub fn typed(name: &str) -> String {
    match OPTIONS.iter().find(|o| o.name == name).map(|o| o.takes) {
        Some(Next(what)) => format!("{name} <{what}>"),
        Some(Glued(what)) => format!("{name}[{what}]"),
        Some(Pids) => format!("{name} <pid>..."),
        Some(Rest) => format!("{name} <file>..."),
        Some(Nothing) | None => name.to_owned(),
    }
}

/// The help page.
pub fn usage(commands: &[arguments::Command]) -> String {
    use std::fmt::Write;
    let name = NAME.command();
    let mut page = format!("Usage: {name} -f <file|dir>... [options]\n       {name} COMMAND ...\n\n");
    let mut list = |title: &str, options: Vec<arguments::Opt>| {
        let _ = writeln!(page, "{title}");
        for option in options.iter().filter(|o| !o.name.starts_with("--")) {
            let _ = writeln!(page, "  {:<16} {}", typed(&option.name), option.help);
        }
    };
    list("HAProxy's options:", listed(true));
    list("\nAccepted without effect:", listed(false));
    let _ = writeln!(page, "\nCommands; each has its own --help if it has options:");
    for command in commands {
        let _ = writeln!(page, "  {:<16} {}", command.name, command.help);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Flags, String> {
        Flags::parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn the_line_of_an_init_script_is_understood() {
        let flags = parse("-f a.cfg -f d -D -p /run/p.pid -n 2000 -sf 12 34 -L me -C /etc").unwrap();
        assert_eq!(flags.files, [PathBuf::from("a.cfg"), "d".into()]);
        assert_eq!((flags.daemon, flags.maxconn, flags.finish.as_slice()), (true, Some(2000), &[12, 34][..]));
        assert_eq!((flags.pidfile, flags.directory), (Some("/run/p.pid".into()), Some("/etc".into())));
        assert_eq!(flags.local_peer.as_deref(), Some("me"));
    }

    #[test]
    fn options_that_begin_alike_are_told_apart() {
        let flags = parse("-Ws -db -dW -d -vv").unwrap();
        assert!(flags.master && flags.foreground && flags.debug && flags.warnings_are_errors);
        assert_eq!(flags.version, 2);
        assert_eq!(parse("-dM").unwrap().poison, Some(0x50));
        assert_eq!(parse("-dM0").unwrap().poison, Some(0));
        assert_eq!(parse("-dM0xab,no-merge").unwrap().poison, Some(0xab));
        assert_eq!(parse("-dMfail").unwrap().poison, Some(0x50));
        assert!(parse("-dM0xzz").is_err());
        assert_eq!(parse("-dMfoo").unwrap_err(), "-dM: unknown pool debugging feature <foo>");
        assert_eq!(parse("-dM0,no-merge,foo").unwrap_err(), "-dM: unknown pool debugging feature <foo>");
        assert_eq!(parse("-dfoo").unwrap(), parse("-d").unwrap());
        assert!(["-dC7", "-dF", "-dt", "-dZ"].iter().all(|option| !parse(option).unwrap().debug));
        assert_eq!(parse("-dbfoo -dWx -cx").unwrap(), parse("-db -dW -c").unwrap());
        assert!(parse("--helpx").is_err());
        assert_eq!(parse("-c -- a b -c").unwrap().files.len(), 3);
    }

    #[test]
    fn what_is_missing_or_unknown_is_said() {
        assert_eq!(parse("-Z").unwrap_err(), "unknown option '-Z'");
        assert_eq!(parse("-c -f").unwrap_err(), "-f needs <file|dir> after it");
        assert_eq!(parse("-p -c").unwrap_err(), "-p needs <file> after it");
        assert_eq!(parse("-sf x").unwrap_err(), "'x' is not a process id");
        assert_eq!(parse("-extra").unwrap_err(), "unknown option '-extra'");
        assert_eq!(parse("extra").unwrap_err(), "unknown command 'extra'; a configuration file is given with -f");
        assert_eq!(parse("-n abc -c").unwrap().maxconn, None);
    }

    #[test]
    fn every_option_is_in_the_help_once() {
        let page = usage(crate::commands::COMMANDS);
        for option in OPTIONS.iter().filter(|o| !o.name.starts_with("--")) {
            let at_line_start = |l: &&str| l.trim_start().split([' ', '[']).next() == Some(option.name);
            assert_eq!(page.lines().filter(at_line_start).count(), 1, "{}", option.name);
        }
    }
}
