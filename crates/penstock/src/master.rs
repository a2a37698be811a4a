//! `-W`: a master that starts a worker, starts the next one on SIGUSR2 before the last one drains, and ends with them.

use crate::{
    flags::Flags,
    ready::{self, Reporter},
    serve::{self, Side},
};
use penstock_config::{Config, Diagnostics};
use penstock_proxy::handover;
use penstock_sys::{Signal, Signals, Silence};
use std::{
    io,
    os::fd::OwnedFd,
    path::PathBuf,
    process::{Command, ExitCode},
    time::Duration,
};

/// Tells it that another worker serves, and drains once it does.
const SUCCESSOR: &str = "PENSTOCK_SUCCESSOR";

/// Whether another worker of this one's master serves until this one does.
pub fn is_successor() -> bool {
    std::env::var_os(SUCCESSOR).is_some()
}

struct Master {
    program: PathBuf,
    /// Worker that serves, and the former ones that still drain.
    current: Option<i32>,
    former: Vec<i32>,
    /// The listening sockets of the worker that serves: it may end, but who waits in them is still there for the next one.
    sockets: Vec<OwnedFd>,
    /// `no-exit-on-failure`.
    outlives_workers: bool,
}

/// Runs as a master until told to end.
pub fn run((config, mut diagnostics): (Config, Diagnostics), flags: &Flags) -> ExitCode {
    // The worker reads everything again; the master does so only to refuse a broken configuration before it forks.
    let Some(runtime) = serve::build(config, flags, &mut diagnostics) else { return ExitCode::FAILURE };
    let global = runtime.shared().config.global.clone();
    drop(runtime);
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(e) => return serve::fail(&format!("cannot find this program's own file: {e}")),
    };
    let Ok(signals) = Signals::block() else { return serve::fail("cannot block signals") };
    let reporter = match global.daemon.then(serve::detach) {
        None => Reporter::Nobody,
        Some(Ok(Side::Child(reporter))) => reporter,
        Some(Ok(Side::Parent(code))) => return code,
        Some(Err(e)) => return serve::fail(&format!("cannot go to the background: {e}")),
    };
    if let Err(why) = serve::write_pid(&global) {
        return serve::fail(&why);
    }
    let silence = match global.daemon.then(Silence::prepare).transpose() {
        Ok(silence) => silence,
        Err(e) => return serve::fail(&format!("cannot open /dev/null: {e}")),
    };
    let outlives_workers = global.no_exit_on_failure;
    let mut master = Master { program, current: None, former: Vec::new(), sockets: Vec::new(), outlives_workers };
    if !master.start_worker() {
        return serve::fail("the worker did not start");
    }
    // A parent that has gone does not matter.
    let _ = reporter.ready(&[]);
    ready::notify("READY=1");
    let _ = silence.map(Silence::begin);
    master.obey(&signals)
}

impl Master {
    /// Starts this program again as a worker, with the listening sockets of the one before it, and waits until it serves;
    /// the one before it then drains.
    fn start_worker(&mut self) -> bool {
        let mut command = Command::new(&self.program);
        command.args(std::env::args_os().skip(1));
        if self.current.is_some() {
            command.env(SUCCESSOR, "1");
        }
        let started = ready::worker_socket(&mut command).and_then(|(ours, theirs)| {
            let child = command.spawn();
            drop(theirs);
            Ok((child?.id() as i32, ours))
        });
        let (pid, socket) = match started {
            Ok(started) => started,
            Err(e) => {
                eprintln!("penstock: cannot start {}: {e}", self.program.display());
                return false;
            }
        };
        match handover::give(&socket, &self.sockets).and_then(|()| handover::take(&socket)) {
            // Those that it has not kept are from here on the former worker's alone, and close with it.
            Ok(sockets) => self.sockets = sockets,
            Err(e) => {
                // One that has ended has said why.
                if e.kind() == io::ErrorKind::InvalidData {
                    eprintln!("penstock: cannot hand listening sockets over: {e}");
                }
                return false;
            }
        }
        eprintln!("penstock: new worker ({pid}) started");
        if let Some(old) = self.current.replace(pid) {
            let _ = penstock_sys::kill(old, Signal::Usr1.number());
            self.former.push(old);
        }
        true
    }

    fn reload(&mut self) {
        ready::notify("RELOADING=1");
        eprintln!("penstock: reloading");
        if !self.start_worker() {
            eprintln!("penstock: the new worker did not start; the current one goes on");
        }
        ready::notify("READY=1");
    }

    /// Ends the service: nobody is to wait for a worker that does not come.
    fn leave(&mut self, signal: Signal) {
        self.sockets.clear();
        ready::notify("STOPPING=1");
        for pid in self.current.iter().chain(&self.former) {
            let _ = penstock_sys::kill(*pid, signal.number());
        }
    }

    fn obey(&mut self, signals: &Signals) -> ExitCode {
        let mut leaving = false;
        // The status of the last worker that served is the master's, as with HAProxy.
        let mut last = 0;
        loop {
            match signals.wait(Duration::from_millis(200)) {
                Some(Signal::Usr2 | Signal::Hup) if !leaving => self.reload(),
                Some(signal @ (Signal::Term | Signal::Int)) => {
                    leaving = true;
                    self.leave(signal);
                }
                Some(Signal::Usr1) => {
                    leaving = true;
                    self.leave(Signal::Usr1);
                }
                _ => {}
            }
            while let Some((pid, code)) = penstock_sys::reap() {
                if let Some(at) = self.former.iter().position(|former| *former == pid) {
                    self.former.swap_remove(at);
                    eprintln!("penstock: former worker ({pid}) ended with code {code}");
                } else if self.current == Some(pid) {
                    self.current = None;
                    last = code;
                    eprintln!("penstock: worker ({pid}) ended with code {code}");
                    if !leaving && self.outlives_workers {
                        eprintln!("penstock: clients wait for the worker of the next reload (SIGUSR2)");
                    } else if !leaving {
                        // As HAProxy does: a service without its worker is no service, and the service manager restarts us.
                        self.leave(Signal::Term);
                        return ExitCode::from(u8::try_from(last).unwrap_or(1).max(1));
                    }
                }
            }
            if leaving && self.current.is_none() && self.former.is_empty() {
                eprintln!("penstock: all workers ended");
                return ExitCode::from(u8::try_from(last).unwrap_or(1));
            }
        }
    }
}
