//! From paths on the command line to a checked configuration: reads files, and shows findings.

use crate::{
    flags::Flags,
    name::{NAME, Name},
    say::{self, Weight, alert},
};
use penstock_config::{Config, Diagnostics, Env, Severity, model::Source};
use std::{
    collections::BTreeMap,
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Reads every file and directory named, in order; a directory stands for its `*.cfg` files, sorted by name.
///
/// # Errors
///
/// A sentence that names the path which cannot be read, or the directories in which there is no file.
pub fn sources(paths: &[PathBuf]) -> Result<Vec<Source>, String> {
    let mut sources = Vec::new();
    for path in paths {
        if path.is_dir() {
            for file in directory(path)? {
                sources.push(source(&file)?);
            }
        } else {
            sources.push(source(path)?);
        }
    }
    if sources.is_empty() {
        let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
        return Err(format!("no configuration: there is no *.cfg file in {}", paths.join(", ")));
    }
    Ok(sources)
}

fn directory(path: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(path).map_err(|e| format!("cannot open the directory {}: {e}", path.display()))?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|file| {
            let hidden = file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            !hidden && file.extension().is_some_and(|e| e == "cfg") && file.is_file()
        })
        .collect();
    files.sort();
    Ok(files)
}

fn source(path: &Path) -> Result<Source, String> {
    let cannot = |why: String| format!("cannot open the configuration file {}: {why}", path.display());
    let bytes = penstock_sys::read_file(path).map_err(|e| cannot(e.to_string()))?;
    Ok(Source::new(path.display().to_string(), &bytes))
}

/// The parser's access to this process: its environment, its files, its name.
pub fn environment(flags: &Flags) -> Env<'static> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let local_peer = flags.local_peer.clone().unwrap_or(host);
    let mut variables: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    variables.insert("HAPROXY_LOCALPEER".into(), local_peer.clone());
    let names: Vec<String> = flags.files.iter().map(|f| f.display().to_string()).collect();
    variables.insert("HAPROXY_CFGFILES".into(), names.join(";"));
    if flags.master {
        variables.insert("HAPROXY_MWORKER".into(), "1".into());
    }
    Env {
        variables,
        files: &read_file,
        local_peer,
        names_peer: flags.local_peer.is_some(),
        diagnostic_mode: flags.diagnostic_mode,
    }
}

fn read_file(path: &Path) -> std::io::Result<Vec<u8>> {
    penstock_sys::read_file(path)
}

/// Parses the sources; settings on the command line override those of the files.
pub fn load(sources: Vec<Source>, flags: &Flags) -> (Config, Diagnostics) {
    let (mut config, mut diagnostics) = penstock_config::load(sources, &environment(flags));
    let global = &mut config.global;
    global.maxconn = flags.maxconn.or(global.maxconn);
    global.daemon = flags.daemon || global.daemon && !flags.foreground && !flags.service;
    global.master_worker |= flags.master;
    global.debug |= flags.debug;
    global.may_start_programs |= flags.may_start_programs;
    global.zero_warning |= flags.warnings_are_errors;
    global.pidfile = flags.pidfile.clone().or(global.pidfile.take());
    if flags.no_server_verify {
        global.ssl_server_verify = Some(penstock_config::model::Verify::None);
    }
    for proxy in &mut config.proxies {
        if proxy.kind.has_frontend() {
            proxy.maxconn = proxy.maxconn.or(flags.proxy_maxconn);
        }
        if flags.ignore_unresolved {
            for server in &mut proxy.servers {
                let settings = &mut Arc::make_mut(server).settings;
                Arc::make_mut(settings).init_addr.push(penstock_config::model::InitAddr::None);
            }
        }
    }
    for option in &flags.without_effect {
        diagnostics.notice(None, format!("option {} has no effect: {}", option.name(), option.help));
    }
    (config, diagnostics)
}

/// Shows the findings on standard error; returns whether the configuration may be started.
pub fn accepted(config: &Config, diagnostics: &Diagnostics, flags: &Flags) -> bool {
    let fatal = |severity| severity == Severity::Error || (config.global.zero_warning && severity == Severity::Warning);
    if !flags.quiet {
        announce(config, diagnostics);
        let color = crate::tie::is_on_terminal() && std::env::var_os("NO_COLOR").is_none();
        // A reader that has seen enough closes the pipe.
        let _ = write!(std::io::stderr(), "{}", diagnostics.render(&config.files, Severity::Notice, color));
    }
    let errors = diagnostics.list.iter().filter(|d| fatal(d.severity)).count();
    if errors > 0 && !flags.quiet {
        let (noun, verb) = if errors == 1 { ("error", "is") } else { ("errors", "are") };
        let because = if diagnostics.has_errors() { "" } else { " (warnings count as errors here)" };
        if announces(Severity::Error) {
            alert("config : Fatal errors found in configuration.");
        }
        let _ = writeln!(
            std::io::stderr(),
            "penstock: there {verb} {errors} {noun} in the configuration{because}; nothing was started"
        );
    }
    errors == 0
}

/// Whether findings of this severity are also shown as a line in HAProxy's form, for programs: all of them when started
/// as haproxy, and errors if standard error is not a terminal.
fn announces(severity: Severity) -> bool {
    *NAME == Name::Haproxy || (severity == Severity::Error && !crate::tie::is_on_terminal())
}

/// Prints a line for each finding; all of them are then shown in detail for people.
fn announce(config: &Config, diagnostics: &Diagnostics) {
    lines(config, diagnostics, announces).for_each(|line| say::show(&line));
}

/// What was found, a line each, as `show startup-logs` tells it.
pub fn told(config: &Config, diagnostics: &Diagnostics) -> String {
    lines(config, diagnostics, |_| true).collect()
}

fn lines(config: &Config, diagnostics: &Diagnostics, chosen: fn(Severity) -> bool) -> impl Iterator<Item = String> {
    diagnostics.list.iter().filter(move |found| chosen(found.severity)).map(|found| {
        let weight = match found.severity {
            Severity::Error => Weight::Alert,
            Severity::Warning => Weight::Warning,
            Severity::Notice => Weight::Notice,
        };
        let place = found.span.and_then(|span| Some((&config.source(span.file)?.name, span.line)));
        let place = place.map_or_else(String::new, |(file, line)| format!("parsing [{file}:{line}] : "));
        say::line(weight, format_args!("config : {place}{}", found.message))
    })
}

/// Whether there is any listener: a proxy that is not disabled, a stats socket, a `log-forward` section, or this peer of a `peers` section. The
/// last three count as listeners in HAProxy, which starts with only one of them.
pub fn has_listener(config: &Config) -> bool {
    config.proxies.iter().any(|p| !p.disabled && !p.binds.is_empty())
        || !config.global.stats_sockets.is_empty()
        || config.log_forwards.iter().any(|section| !section.binds.is_empty() || !section.datagrams.is_empty())
        || config.peers.iter().any(|section| !section.disabled && !section.binds.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_stands_for_its_cfg_files_in_order() {
        let dir = std::env::temp_dir().join(format!("penstock-sources-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("z.cfg")).unwrap();
        for name in ["b.cfg", "a.cfg", ".hidden.cfg", "notes.txt"] {
            std::fs::write(dir.join(name), format!("# {name}\n")).unwrap();
        }
        let names: Vec<_> = sources(std::slice::from_ref(&dir)).unwrap().into_iter().map(|s| s.text).collect();
        assert_eq!(names, ["# a.cfg\n", "# b.cfg\n"]);
        std::fs::write(dir.join("a.cfg"), b"fine\n\xff\n").unwrap();
        assert_eq!(sources(&[dir.join("a.cfg")]).unwrap()[0].text, penstock_config::text_of(b"fine\n\xff\n"));
        assert!(sources(&[dir.join("none.cfg")]).unwrap_err().contains("none.cfg"));
        std::fs::remove_dir_all(dir).unwrap();
    }
}
