//! Processes that run until they are stopped.

use super::{Place, penstock};
use std::{
    ffi::OsStr,
    path::Path,
    process::Child,
    time::{Duration, Instant},
};

/// Nothing here takes this long; past it, a test fails rather than hangs.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub const INT: i32 = 2;
pub const KILL: i32 = 9;
pub const USR1: i32 = 10;
pub const USR2: i32 = 12;
pub const TERM: i32 = 15;
pub const CONT: i32 = 18;
pub const STOP: i32 = 19;

pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A child that is killed when a test fails half-way.
pub struct Running(pub Child);

impl Running {
    pub fn start(arguments: &[&dyn AsRef<OsStr>]) -> Running {
        Running(penstock().args(arguments.iter().map(|a| a.as_ref())).spawn().unwrap())
    }
    pub fn id(&self) -> u32 {
        self.0.id()
    }
    pub fn signal(&self, signal: i32) {
        signal_to(self.id(), signal);
    }
    /// What a shell would show in `$?`.
    pub fn end(mut self) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        let mut status = None;
        until("the process ends", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        let status = status.expect("`until` returned");
        status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in children(self.id()) {
            let _ = penstock_sys::kill(child as i32, KILL);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A master whose lines are kept in a file.
pub fn master(place: &Place, config: &Path) -> Running {
    let said = std::fs::File::create(place.0.join("said")).unwrap();
    Running(penstock().arg("-W").arg("-f").arg(config).stderr(said).spawn().unwrap())
}

/// What the [`master`] of this place has said.
pub fn said(place: &Place) -> String {
    std::fs::read_to_string(place.0.join("said")).unwrap()
}

/// How often the [`master`] has said that a worker serves.
pub fn successes(place: &Place) -> usize {
    said(place).matches("Loading success.").count()
}

pub fn signal_to(pid: u32, signal: i32) {
    penstock_sys::kill(pid as i32, signal).unwrap();
}

/// Stops a process, and waits until none of its threads does anything.
pub fn freeze(pid: u32) {
    signal_to(pid, STOP);
    let is_still = |task: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    };
    until("its threads stand still", || {
        std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten().all(is_still)
    });
}

/// The processes whose parent this is, zombies left out.
pub fn children(parent: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
        let Ok(stat) = std::fs::read_to_string(Path::new("/proc").join(entry.file_name()).join("stat")) else {
            continue;
        };
        let Some((_, rest)) = stat.rsplit_once(") ") else { continue };
        let mut fields = rest.split(' ');
        if fields.next() != Some("Z") && fields.next() == Some(&parent.to_string()) {
            found.push(pid);
        }
    }
    found
}

/// Leaves the process no descriptor: its limit sinks to what it has and `more`, and the connections take the rest. They
/// are those to hold.
pub fn exhaust(pid: u32, more: u64, port: u16) -> Vec<std::net::TcpStream> {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let open = || std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count() as u64;
    let limit = Some(open() + more);
    let process = Pid::from_raw(pid as i32);
    prlimit(process, Resource::Nofile, Rlimit { current: limit, maximum: limit }).unwrap();
    let connect = || std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut crowd: Vec<_> = (0..more + 20).map(|_| connect()).collect();
    // A process that has just started may have had some for a moment, and closed them since.
    until("no descriptor is left", || {
        let is_full = Some(open()) >= limit;
        if !is_full && crowd.len() < 500 {
            crowd.push(connect());
        }
        is_full
    });
    crowd
}
