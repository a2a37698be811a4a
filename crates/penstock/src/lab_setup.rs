//! `penstock lab-setup`: sets up a server or a client for measurements, and restores everything afterwards.

use crate::{
    arguments::{Arguments, Opt, help, switch, value},
    serve,
};
use penstock_doctor::{
    Changes, Host,
    lab::{CERTIFICATES, Lab, Mode, Role, cores},
};
use std::{
    ffi::OsString,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

/// The default directory.
const DIRECTORY: &str = "/var/lib/penstock/lab";

/// The options of this subcommand.
pub fn options() -> Vec<Opt> {
    vec![
        value("--role", "server|client", "which side this host is"),
        value("--mode", "native|sw|hw", "which engine the server uses [native]; run again to switch"),
        value("--proxy", "penstock|haproxy", "the proxy to set up [penstock]"),
        value("--haproxy-cores", "LIST", "processors of the proxy, or of the load generator, as in 0-7"),
        value("--nbthread", "N", "number of its threads [one for each processor]"),
        value("--backend-cores", "LIST", "processors of the backend"),
        value("--backend-workers", "N", "number of its workers [one for each processor]"),
        value("--keep-alive", "on|off", "whether clients' connections are kept [on]"),
        value("--certificate", "KIND", "rsa2048, rsa4096 or ecdsa [rsa2048]"),
        value("--port", "N", "where the proxy listens [8443]"),
        value("--backend-port", "N", "where the backend listens [8180]"),
        value("--bind-irq-devices", "NAMES", "network devices whose interrupts go to --haproxy-cores"),
        value("--freq", "MHZ", "core frequency"),
        value("--uncore", "MHZ", "uncore frequency"),
        value("--governor", "NAME", "frequency governor"),
        value("--dir", "DIR", "where the files go [/var/lib/penstock/lab]"),
        switch("--only-files", "leaves the host's settings alone"),
        switch("-y", "makes the changes; without it they are only shown"),
        switch("--undo", "puts everything back to before the first run"),
        switch("--force", "with --undo: also what someone else has changed since"),
        value("--host", "DIR", "the host below this directory instead of this one"),
        switch("--help", "shows this help"),
    ]
}

/// Runs `penstock lab-setup`.
pub fn run(arguments: &[OsString]) -> ExitCode {
    let done = Arguments::parse(&options(), arguments).and_then(|arguments| {
        if arguments.has("--help") {
            print(&format!("Usage: penstock lab-setup --role server|client [options] [-y]\n\n{}", help(&options())));
            return Ok(());
        }
        setup(&arguments)
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => serve::fail(&format!("lab-setup: {why}")),
    }
}

/// Prints text; a reader that has seen enough closes the pipe.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn setup(arguments: &Arguments) -> Result<(), String> {
    if let Some(word) = arguments.words.first() {
        return Err(format!("'{word}' is not understood; 'penstock lab-setup --help' lists the options"));
    }
    let root = PathBuf::from(arguments.one("--host").unwrap_or("/"));
    let directory = arguments.one("--dir").unwrap_or(DIRECTORY);
    let changes = Changes::new(&root, &format!("{directory}/undo.json"));
    if arguments.has("--undo") {
        return undo(arguments, &changes, &root, directory);
    }
    let lab = lab(arguments, directory)?;
    let host = Host::at(&root);
    let plan = lab.plan(&host)?;
    let install = installer(&host, &plan.packages);
    let steps = changes.steps_of(&plan.changes);
    for note in &plan.notes {
        print(&format!("note: {note}\n"));
    }
    if !arguments.has("-y") {
        if let Some(line) = &install {
            print(&format!("{line}\n"));
        }
        for change in &plan.changes {
            print(&format!("{change}\n"));
        }
        print("\nNothing was changed: -y does it, --undo takes it back.\n");
        return Ok(());
    }
    if let Some(line) = install {
        if !host.is_this() {
            return Err(format!("missing: {line}"));
        }
        print(&format!("{line}\n"));
        let mut words = line.split(' ');
        let status = Command::new(words.next().unwrap_or_default()).args(words).stdin(Stdio::null()).status();
        if !status.is_ok_and(|status| status.success()) {
            return Err(format!("'{line}' failed: install {} yourself", plan.packages.join(", ")));
        }
    }
    changes.apply(&steps)?;
    for step in &steps {
        print(&format!("{}{}\n", step.path, if step.is_value { format!(": {}", step.text) } else { String::new() }));
    }
    print(&match lab.role {
        Role::Server => format!("\nStart it: sh {directory}/start.sh\nStop it:  sh {directory}/stop.sh\n"),
        Role::Client => format!("\nLoad: sh {directory}/load.sh SERVER handshake\n"),
    });
    print("Take everything back: penstock lab-setup --undo\n");
    Ok(())
}

/// The command that installs missing packages.
fn installer(host: &Host, packages: &[&str]) -> Option<String> {
    if packages.is_empty() {
        return None;
    }
    let tool =
        if host.exists("/usr/bin/dnf") { "dnf install -y" } else { "apt-get install -y --no-install-recommends" };
    Some(format!("{tool} {}", packages.join(" ")))
}

fn lab(arguments: &Arguments, directory: &str) -> Result<Lab, String> {
    fn chosen<T: Copy>(
        arguments: &Arguments,
        name: &str,
        choices: &[(&str, T)],
        default: Option<T>,
    ) -> Result<T, String> {
        let names = || choices.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        match arguments.one(name) {
            None => default.ok_or_else(|| format!("say {name}: {}", names())),
            Some(word) => {
                let found = choices.iter().find(|(own, _)| *own == word).map(|(_, choice)| *choice);
                found.ok_or_else(|| format!("{name} cannot be '{word}': {} can", names()))
            }
        }
    }
    fn number<T: std::str::FromStr>(
        arguments: &Arguments,
        name: &str,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<Option<T>, String> {
        let Some(text) = arguments.one(name) else { return Ok(None) };
        let fits = text.parse::<u64>().ok().filter(|n| range.contains(n)).and_then(|_| text.parse::<T>().ok());
        fits.map(Some)
            .ok_or_else(|| format!("{name} cannot be '{text}': expected {} to {}", range.start(), range.end()))
    }
    let list = |name: &'static str| arguments.one(name).map_or(Ok(Vec::new()), |text| cores(name, text));
    let role = chosen(arguments, "--role", &[("server", Role::Server), ("client", Role::Client)], None)?;
    let is_haproxy = chosen(arguments, "--proxy", &[("penstock", false), ("haproxy", true)], Some(false))?;
    let own = std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
    let own = own.to_str().ok_or("this program's path is not UTF-8")?.to_owned();
    let kinds = CERTIFICATES.map(|(name, _)| (name, name));
    Ok(Lab {
        role,
        mode: chosen(
            arguments,
            "--mode",
            &[("native", Mode::Native), ("sw", Mode::Sw), ("hw", Mode::Hw)],
            Some(Mode::Native),
        )?,
        dir: directory.trim_end_matches('/').to_owned(),
        proxy: if is_haproxy { "haproxy".into() } else { format!("\"{own}\"") },
        is_haproxy,
        cores: list("--haproxy-cores")?,
        nbthread: number(arguments, "--nbthread", 1..=256)?,
        backend_cores: list("--backend-cores")?,
        backend_workers: number(arguments, "--backend-workers", 1..=1024)?,
        keep_alive: chosen(arguments, "--keep-alive", &[("on", true), ("off", false)], Some(true))?,
        certificate: chosen(arguments, "--certificate", &kinds, Some("rsa2048"))?,
        ports: (
            number(arguments, "--port", 1..=65_535)?.unwrap_or(8443),
            number(arguments, "--backend-port", 1..=65_535)?.unwrap_or(8180),
        ),
        irq_devices: arguments.all("--bind-irq-devices").flat_map(|list| list.split(',')).map(str::to_owned).collect(),
        mhz: number(arguments, "--freq", 100..=20_000)?,
        uncore_mhz: number(arguments, "--uncore", 100..=20_000)?,
        governor: arguments.one("--governor").map(str::to_owned),
        only_files: arguments.has("--only-files"),
    })
}

fn undo(arguments: &Arguments, changes: &Changes, root: &Path, directory: &str) -> Result<(), String> {
    let at = root.join(directory.trim_start_matches('/'));
    for name in ["proxy.pid", "nginx.pid"] {
        let pid = std::fs::read_to_string(at.join("run").join(name)).unwrap_or_default();
        let pid = pid.split_whitespace().next().unwrap_or_default();
        if !pid.is_empty() && Path::new("/proc").join(pid).exists() {
            return Err(format!("process {pid} of the lab is running: sh {directory}/stop.sh first"));
        }
    }
    let told = changes.undo(arguments.has("--force"))?;
    print(&(told.join("\n") + "\n"));
    // Removes what start.sh created, and then the directory if it is empty.
    let run = at.join("run");
    if run.is_dir() {
        std::fs::remove_dir_all(&run).map_err(|e| format!("cannot remove {}: {e}", run.display()))?;
    }
    let _ = std::fs::remove_dir(&at);
    print("Packages that were installed stay.\n");
    Ok(())
}
