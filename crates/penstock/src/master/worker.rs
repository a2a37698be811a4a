//! Starts a worker: what it is given, and waiting until it serves.

use super::Event;
use crate::{
    flags::Flags,
    tie::{self, Occasion},
};
use penstock_config::model::Source;
use penstock_proxy::{Namespaces, handover};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    path::PathBuf,
    process::Command,
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// How much of a worker's output until it serves is kept.
const LOG_MAX: usize = 64 << 10;

/// How long the client who asked for a reload waits for the former worker to close its sockets for commands.
const CLOSE_PATIENCE: Duration = Duration::from_millis(500);

/// A worker, with the master's end of its socket.
pub struct Worker {
    pub pid: i32,
    /// How many reloads the worker has survived.
    pub reloads: u32,
    pub started: Instant,
    pub version: String,
    pub tie: Arc<UnixStream>,
    /// The file in which the worker keeps its counters.
    pub counters: Arc<File>,
    serves_since: Option<Instant>,
}

/// A worker that is draining.
pub type Former = Worker;

/// The event that a worker is serving with these sockets and this version, or has failed.
pub struct Started {
    pub pid: i32,
    pub result: io::Result<(Vec<OwnedFd>, String)>,
    /// The worker's output until then.
    pub log: String,
}

impl Worker {
    /// Records that the worker serves from now on.
    pub fn serves(&mut self, version: String) {
        self.serves_since = Some(Instant::now());
        self.version = version;
    }

    /// Waits until the worker has closed its sockets for commands, after it was told to end; not for long, as it may be busy.
    pub fn let_close(&self) {
        let mut said = [PollFd::new(&self.tie, PollFlags::IN)];
        let patience = Timespec { tv_sec: 0, tv_nsec: CLOSE_PATIENCE.subsec_nanos().into() };
        let _ = rustix::io::retry_on_intr(|| poll(&mut said, Some(&patience)));
    }

    /// How long the worker has served; `None` if it does not serve yet.
    pub fn served(&self) -> Option<Duration> {
        self.serves_since.map(|since| since.elapsed())
    }
}

/// What all workers of a master have in common.
pub struct Launcher {
    program: PathBuf,
    arguments: Vec<OsString>,
    /// Environment variables for workers and programs.
    pub variables: Vec<(&'static str, String)>,
    events: mpsc::Sender<Event>,
}

impl Launcher {
    /// A launcher for this program with its own arguments; `sockets` are the addresses for commands to the master.
    ///
    /// # Errors
    ///
    /// If the program's file cannot be found.
    pub fn new(events: mpsc::Sender<Event>, flags: &Flags, sockets: &str) -> io::Result<Launcher> {
        let files: Vec<String> = flags.files.iter().map(|file| file.display().to_string()).collect();
        let mut variables = vec![("HAPROXY_MWORKER", "1".to_owned()), ("HAPROXY_CFGFILES", files.join(";"))];
        if !sockets.is_empty() {
            variables.push(("HAPROXY_MASTER_CLI", sockets.to_owned()));
        }
        let arguments = std::env::args_os().collect();
        Ok(Launcher { program: std::env::current_exe()?, arguments, variables, events })
    }

    /// Starts a worker, whose counters continue from those in `before`. Whether it serves or fails is reported as an event.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn launch(
        &self,
        occasion: Occasion,
        configuration: &File,
        before: &File,
        sockets: Arc<Vec<OwnedFd>>,
    ) -> io::Result<Worker> {
        let (ours, theirs) = UnixStream::pair()?;
        let (said, says) = io::pipe()?;
        // Copies for the new process; ours are closed when this returns.
        let counters = counters()?;
        let stderr = io::stderr();
        let given = [theirs.as_fd(), stderr.as_fd(), configuration.as_fd(), before.as_fd(), counters.as_fd()];
        let given = given.into_iter().map(rustix::io::dup).collect::<Result<Vec<_>, _>>()?;
        let numbers: Vec<String> = given.iter().map(|descriptor| descriptor.as_raw_fd().to_string()).collect();
        let terminal = if tie::is_on_terminal() { tie::TERMINAL } else { "" };
        let mut command = Command::new(&self.program);
        if let Some((name, arguments)) = self.arguments.split_first() {
            command.arg0(name).args(arguments);
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.env(tie::VARIABLE, format!("{}:{}:{terminal}", numbers.join(":"), occasion.word())).stderr(says);
        let pid = command.spawn()?.id() as i32;
        // Otherwise our end of the pipe would keep it open.
        drop(command);
        let tie = Arc::new(ours);
        let (socket, events) = (tie.clone(), self.events.clone());
        let log = std::thread::Builder::new().name("log".into()).spawn(move || pass_on(said))?;
        std::thread::Builder::new().name("start".into()).spawn(move || {
            let result = meet(&socket, &sockets);
            drop(sockets);
            // If the master is ending, there is nothing to tell it.
            let _ = events.send(Event::Started(Started { pid, result, log: finished(log) }));
        })?;
        let now = Instant::now();
        Ok(Worker { pid, reloads: 0, started: now, version: String::new(), tie, counters, serves_since: None })
    }
}

/// Passes the sockets of the previous worker to the new one, and waits until it serves.
fn meet(mut socket: &UnixStream, sockets: &[OwnedFd]) -> io::Result<(Vec<OwnedFd>, String)> {
    // The next worker knows namespaces by their numbers.
    handover::give(socket, sockets, &Namespaces::default())?;
    let kept = handover::take(socket)?;
    let mut length = [0];
    socket.read_exact(&mut length)?;
    let mut version = vec![0; length[0].into()];
    socket.read_exact(&mut version)?;
    Ok((kept, String::from_utf8_lossy(&version).into_owned()))
}

/// Copies a worker's output to standard error, and keeps it.
fn pass_on(mut said: io::PipeReader) -> Vec<u8> {
    let (mut kept, mut bytes) = (Vec::new(), [0; 4096]);
    while let Ok(received @ 1..) = said.read(&mut bytes) {
        // If there is no reader, that does not matter.
        let _ = io::stderr().write_all(&bytes[..received]);
        kept.extend_from_slice(&bytes[..received.min(LOG_MAX - kept.len())]);
    }
    kept
}

/// The output so far. A worker that serves or has ended has closed its end; a program that it started may not have.
fn finished(log: JoinHandle<Vec<u8>>) -> String {
    let end = Instant::now() + Duration::from_secs(1);
    while !log.is_finished() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    let kept = if log.is_finished() { log.join().unwrap_or_default() } else { Vec::new() };
    String::from_utf8_lossy(&kept).into_owned()
}

/// Stores a configuration as it was read, for later workers.
///
/// # Errors
///
/// If there is no memory for it.
pub fn keep(sources: &[Source]) -> io::Result<Arc<File>> {
    let mut file = File::from(rustix::fs::memfd_create("configuration", rustix::fs::MemfdFlags::CLOEXEC)?);
    file.write_all(&tie::pack(sources))?;
    Ok(Arc::new(file))
}

/// An empty file in memory, for the counters of one worker.
///
/// # Errors
/// If there is no memory for it.
pub fn counters() -> io::Result<Arc<File>> {
    Ok(Arc::new(File::from(rustix::fs::memfd_create("counters", rustix::fs::MemfdFlags::CLOEXEC)?)))
}

/// An exit status as HAProxy shows it: `0 (Exit)`, `137 (Killed)`.
pub fn ended(code: i32) -> String {
    let how = match code - 128 {
        ..=0 => "Exit",
        1 => "Hangup",
        2 => "Interrupt",
        3 => "Quit",
        4 => "Illegal instruction",
        6 => "Aborted",
        7 => "Bus error",
        8 => "Floating point exception",
        9 => "Killed",
        10 => "User defined signal 1",
        11 => "Segmentation fault",
        12 => "User defined signal 2",
        15 => "Terminated",
        _ => "Signal",
    };
    format!("{code} ({how})")
}
