//! The programs under test, started alike.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::Failure;

/// Which program a run is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// Debian 12's haproxy, 2.6: the reference of scenarios that name no other.
    Haproxy,
    /// Debian 13's haproxy, 3.0, as `scripts/haproxy-3.0.sh` unpacks it.
    Haproxy30,
    /// Ours.
    Penstock,
}

impl Subject {
    /// As files and messages name it.
    pub fn name(self) -> &'static str {
        match self {
            Subject::Haproxy | Subject::Haproxy30 => "haproxy",
            Subject::Penstock => "penstock",
        }
    }

    /// Whether the program is there, and is the HAProxy of this branch.
    pub fn is_reference(self) -> bool {
        let version = match self {
            Subject::Haproxy => "HAProxy version 2.6.",
            Subject::Haproxy30 => "HAProxy version 3.0.",
            Subject::Penstock => return false,
        };
        let Some(program) = self.program() else { return false };
        let output = Command::new(program).arg("-v").output();
        output.is_ok_and(|o| o.stdout.starts_with(version.as_bytes()))
    }

    /// Where the program is, if it is there.
    pub fn program(self) -> Option<&'static Path> {
        static HAPROXY: OnceLock<Option<PathBuf>> = OnceLock::new();
        static HAPROXY_30: OnceLock<Option<PathBuf>> = OnceLock::new();
        static PENSTOCK: OnceLock<Option<PathBuf>> = OnceLock::new();
        match self {
            Subject::Haproxy => HAPROXY.get_or_init(|| first_file(&["/usr/sbin/haproxy", "/usr/local/sbin/haproxy"])),
            Subject::Haproxy30 => HAPROXY_30.get_or_init(|| first_file(&["../target/haproxy-3.0/haproxy"])),
            Subject::Penstock => PENSTOCK.get_or_init(|| match std::env::var("PENSTOCK_BIN") {
                // A test's working folder is its package's, the variable is written by people at the tree's root.
                Ok(path) => first_file(&[&path, &format!("../{path}")]),
                Err(_) => built_beside_this_test(),
            }),
        }
        .as_deref()
    }
}

fn first_file(paths: &[&str]) -> Option<PathBuf> {
    paths.iter().map(PathBuf::from).find(|p| p.is_file()).and_then(|p| p.canonicalize().ok())
}

/// Tests run from `target/PROFILE/deps`; the binary of the same build is one folder up.
fn built_beside_this_test() -> Option<PathBuf> {
    let test = std::env::current_exe().ok()?;
    let path = test.parent()?.parent()?.join("penstock");
    path.is_file().then_some(path)
}

/// A running proxy.
pub struct Process {
    child: Child,
    errors: PathBuf,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts `program` in the foreground with these arguments; what it says goes to a file in `folder`.
    pub fn start(program: &Path, arguments: &[String], folder: &Path) -> Result<Self, Failure> {
        let errors = folder.join("output.txt");
        let file = File::create(&errors).map_err(|e| format!("{}: {e}", errors.display()))?;
        let copy = file.try_clone().map_err(|e| e.to_string())?;
        let child = Command::new(program)
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(copy)
            .spawn()
            .map_err(|e| format!("{}: {e}", program.display()))?;
        Ok(Self { child, errors, ended: None })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until every port is listened on. The exit status, if the process ended instead.
    pub fn wait_listening(&mut self, ports: &[u16]) -> Result<Option<ExitStatus>, Failure> {
        let end = Instant::now() + Duration::from_secs(15);
        let mut waiting = ports.to_vec();
        loop {
            if let Some(status) = self.child.try_wait().map_err(|e| e.to_string())? {
                self.ended = Some(status);
                return Ok(Some(status));
            }
            let listening = crate::port::listening();
            waiting.retain(|port| !listening.contains(port));
            if waiting.is_empty() {
                return Ok(None);
            }
            if Instant::now() > end {
                return Err(format!("it does not listen on {waiting:?}; it said: {}", self.output()));
            }
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        if self.ended.is_none()
            && let Some(pid) = Pid::from_raw(self.child.id().cast_signed())
        {
            let _ = kill_process(pid, signal);
        }
    }

    /// Waits for the end, at most this long.
    pub fn wait_end(&mut self, patience: Duration) -> Option<ExitStatus> {
        let end = Instant::now() + patience;
        while self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
            if Instant::now() > end {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.ended
    }

    /// Waits until the process has nothing left to do: all its threads sleep, and used no CPU time for a while. What
    /// it wanted to log has then been sent, however busy the machine is.
    pub fn wait_idle(&self) {
        let end = Instant::now() + Duration::from_secs(5);
        let mut quiet = 0;
        let mut before = self.activity();
        while quiet < 2 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(15));
            let now = self.activity();
            quiet = if now.is_some() && now == before { quiet + 1 } else { 0 };
            before = now;
        }
    }

    /// CPU time of all threads in nanoseconds, or nothing while one of them runs or waits for a CPU.
    fn activity(&self) -> Option<u64> {
        let mut total = 0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.child.id())).ok()?.flatten() {
            let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
            if stat.rsplit(')').next()?.trim_start().starts_with('R') {
                return None;
            }
            let schedstat = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            total += schedstat.split(' ').next()?.parse::<u64>().ok()?;
        }
        Some(total)
    }

    /// What it wrote on standard output and error.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.errors).unwrap_or_default()).into_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::TERM);
        if self.wait_end(Duration::from_secs(2)).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// An exit status in the words of a transcript.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, signal) => format!("killed by signal {}", signal.unwrap_or(0)),
    }
}
