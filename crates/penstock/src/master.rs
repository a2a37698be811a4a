//! `-W`: a master that starts a worker, starts the next one on SIGUSR2 before the last one drains, replaces one that dies, and
//! ends with them. One thread decides; signals, starting workers and clients send it events.

mod patience;
mod worker;

use crate::{
    configuration,
    flags::Flags,
    ready::{self, Reporter},
    say::{alert, notice, warning},
    serve::{self, Side},
    tie::Occasion,
};
use patience::{Patience, Verdict};
use penstock_config::model::{Global, Source};
use penstock_sys::{Signal, Signals, Silence};
use std::{
    fs::File,
    io,
    os::fd::OwnedFd,
    process::ExitCode,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};
use worker::{Former, Launcher, Started, Worker, ended};

/// What happens to a master.
enum Event {
    Signal(Signal),
    /// A worker that was started serves, or will not.
    Started(Started),
}

/// What the configuration says to the master.
#[derive(Clone, Debug, Default)]
struct Settings {
    /// `no-exit-on-failure`.
    outlives_workers: bool,
    /// `mworker-max-reloads`.
    reloads_max: Option<u32>,
}

impl Settings {
    fn of(global: &Global) -> Settings {
        Settings { outlives_workers: global.no_exit_on_failure, reloads_max: global.mworker_max_reloads }
    }
}

/// A worker that does not serve yet.
struct Coming {
    worker: Worker,
    occasion: Occasion,
    settings: Settings,
    configuration: Arc<File>,
    /// It has ended, with this code, while what it said before is still on its way.
    code: Option<i32>,
}

struct Master<'a> {
    flags: &'a Flags,
    launcher: Launcher,
    /// Of the worker that serves: it may end, but who waits in its sockets is still there for the next one, which reads the
    /// same configuration, whatever the files say by then.
    sockets: Arc<Vec<OwnedFd>>,
    configuration: Arc<File>,
    settings: Settings,
    /// The worker that serves, the one that will, and the former ones that still drain.
    current: Option<Worker>,
    coming: Option<Coming>,
    former: Vec<Former>,
    patience: Patience,
    /// When a worker that died is to be replaced.
    due: Option<Instant>,
    /// A reload was asked for while a worker was being started.
    reload_is_wanted: bool,
    /// How many reloads there were, and how many in a row have failed.
    reloads: u32,
    failures: u32,
    leaving: bool,
    /// The status of the last worker that served is the master's, as with HAProxy.
    last: i32,
    /// Whoever started us waits until the first worker serves; then a process in the background falls silent.
    starter: Option<(Reporter, Option<Silence>)>,
}

/// Runs as a master until told to end.
pub fn run(global: &Global, sources: &[Source], flags: &Flags) -> ExitCode {
    let Ok(signals) = Signals::block() else { return serve::fail("cannot block signals") };
    let reporter = match global.daemon.then(serve::detach) {
        None => Reporter::Nobody,
        Some(Ok(Side::Child(reporter))) => reporter,
        Some(Ok(Side::Parent(code))) => return code,
        Some(Err(e)) => return serve::fail(&format!("cannot go to the background: {e}")),
    };
    if let Err(why) = serve::write_pid(global) {
        return serve::fail(&why);
    }
    let silence = match global.daemon.then(Silence::prepare).transpose() {
        Ok(silence) => silence,
        Err(e) => return serve::fail(&format!("cannot open /dev/null: {e}")),
    };
    let (sender, events) = mpsc::channel();
    let prepared = Launcher::new(sender.clone()).and_then(|launcher| Ok((launcher, worker::keep(sources)?)));
    let (launcher, configuration) = match prepared {
        Ok(prepared) => prepared,
        Err(e) => return serve::fail(&format!("cannot start workers: {e}")),
    };
    if let Err(e) = forward(signals, sender) {
        return serve::fail(&format!("cannot wait for signals: {e}"));
    }
    let mut master = Master {
        flags,
        launcher,
        sockets: Arc::default(),
        configuration: configuration.clone(),
        settings: Settings::of(global),
        current: None,
        coming: None,
        former: Vec::new(),
        patience: Patience::default(),
        due: None,
        reload_is_wanted: false,
        reloads: 0,
        failures: 0,
        leaving: false,
        last: 0,
        starter: Some((reporter, silence)),
    };
    let settings = master.settings.clone();
    if let Err(e) = master.start(Occasion::Start, configuration, settings) {
        return serve::fail(&format!("cannot start a worker: {e}"));
    }
    master.live(&events)
}

/// Signals become events, one at a time.
fn forward(signals: Signals, events: mpsc::Sender<Event>) -> io::Result<()> {
    let name = std::thread::Builder::new().name("signals".into());
    name.spawn(move || {
        loop {
            let signal = signals.wait(Duration::from_secs(3600));
            if signal.is_some_and(|signal| events.send(Event::Signal(signal)).is_err()) {
                return;
            }
        }
    })?;
    Ok(())
}

impl Master<'_> {
    fn live(&mut self, events: &mpsc::Receiver<Event>) -> ExitCode {
        loop {
            let event = match self.due {
                Some(due) => match events.recv_timeout(due.saturating_duration_since(Instant::now())) {
                    Ok(event) => Some(event),
                    Err(_) => {
                        self.due = None;
                        self.replace();
                        None
                    }
                },
                None => Some(events.recv().expect("this thread holds a sender, in the launcher")),
            };
            match event {
                Some(Event::Signal(signal)) => self.obey(signal),
                Some(Event::Started(started)) => {
                    if let Some(code) = self.started(started) {
                        return code;
                    }
                }
                None => {}
            }
            if self.leaving && self.current.is_none() && self.coming.is_none() && self.former.is_empty() {
                warning(format_args!("All workers exited. Exiting... ({})", self.last));
                return ExitCode::from(u8::try_from(self.last).unwrap_or(1));
            }
        }
    }

    fn obey(&mut self, signal: Signal) {
        match signal {
            Signal::Usr2 | Signal::Hup if !self.leaving => self.reload(),
            Signal::Term | Signal::Int | Signal::Usr1 => self.leave(signal),
            Signal::Chld => {
                while let Some((pid, code)) = penstock_sys::reap() {
                    self.reaped(pid, code);
                }
            }
            _ => {}
        }
    }

    /// Starts a worker with the sockets of the one before it.
    fn start(&mut self, occasion: Occasion, configuration: Arc<File>, settings: Settings) -> io::Result<()> {
        let worker = self.launcher.launch(occasion, &configuration, self.sockets.clone())?;
        notice(format_args!("New worker ({}) forked", worker.pid));
        self.coming = Some(Coming { worker, occasion, settings, configuration, code: None });
        Ok(())
    }

    /// Starts a worker for the configuration as it is now.
    fn reload(&mut self) {
        if self.coming.is_some() {
            self.reload_is_wanted = true;
            return;
        }
        self.due = None;
        ready::reloading();
        notice(format_args!("Reloading {}", crate::name::NAME.title()));
        self.reloads += 1;
        let read = configuration::sources(&self.flags.files).and_then(|sources| {
            let configuration = worker::keep(&sources).map_err(|e| format!("cannot keep the configuration: {e}"))?;
            Ok((configuration, Settings::of(&configuration::load(sources, self.flags).0.global)))
        });
        let occasion = if self.current.is_some() { Occasion::Reload } else { Occasion::Replacement };
        let started = read.and_then(|(configuration, settings)| {
            self.start(occasion, configuration, settings).map_err(|e| format!("cannot start a worker: {e}"))
        });
        if let Err(why) = started {
            alert(&why);
            self.reload_failed();
        }
    }

    fn reload_failed(&mut self) {
        self.failures += 1;
        match self.current.is_some() {
            true => warning("Loading failure! The worker that serves goes on with the configuration it has"),
            false => warning("Loading failure! There is no worker"),
        }
        ready::notify("READY=1\nSTATUS=Reload failed!\n");
        if self.current.is_none() && !self.leaving {
            self.worker_is_missing(None);
        }
    }

    /// A worker serves, or will not; the master's status if it is to end.
    fn started(&mut self, started: Started) -> Option<ExitCode> {
        let mut coming = self.coming.take_if(|coming| coming.worker.pid == started.pid)?;
        match started.result {
            Ok((sockets, version)) => {
                // Those that it has not kept are from here on the former worker's alone, and close with it.
                self.sockets = Arc::new(if self.leaving { Vec::new() } else { sockets });
                coming.worker.serves(version);
                self.settings = coming.settings;
                self.configuration = coming.configuration;
                self.succeed(coming.worker, coming.occasion);
                if let Some(code) = coming.code {
                    let pid = started.pid;
                    self.reaped(pid, code);
                }
            }
            Err(e) => {
                // One that has ended has said why.
                if e.kind() == io::ErrorKind::InvalidData {
                    alert(format_args!("cannot hand listening sockets over: {e}"));
                }
                if let Some(code) = coming.code {
                    warning(format_args!("New worker ({}) exited with code {}", started.pid, ended(code)));
                } else {
                    // It may have closed its socket and live on: without a master it would end by itself, but later.
                    let _ = penstock_sys::kill(coming.worker.pid, Signal::Term.number());
                    self.former.push(coming.worker.into());
                }
                if self.leaving {
                    return None;
                }
                match coming.occasion {
                    Occasion::Start => return Some(serve::fail("the worker did not start")),
                    Occasion::Reload => self.reload_failed(),
                    Occasion::Replacement => self.worker_is_missing(None),
                }
            }
        }
        if std::mem::take(&mut self.reload_is_wanted) && !self.leaving {
            self.reload();
        }
        None
    }

    /// The worker serves: the one before it drains.
    fn succeed(&mut self, worker: Worker, occasion: Occasion) {
        notice("Loading success.");
        if occasion == Occasion::Reload {
            self.failures = 0;
            self.patience.renew();
            for former in &mut self.former {
                former.reloads += 1;
                if self.settings.reloads_max.is_some_and(|max| former.reloads > max) {
                    let _ = penstock_sys::kill(former.pid, Signal::Term.number());
                }
            }
        }
        if let Some(mut old) = self.current.replace(worker) {
            let _ = penstock_sys::kill(old.pid, Signal::Usr1.number());
            old.reloads += 1;
            self.former.push(old.into());
        }
        ready::notify("READY=1\nSTATUS=Ready.\n");
        if let Some((reporter, silence)) = self.starter.take() {
            // A parent that has gone does not matter.
            let _ = reporter.ready(&[]);
            let _ = silence.map(Silence::begin);
        }
    }

    fn reaped(&mut self, pid: i32, code: i32) {
        if let Some(at) = self.former.iter().position(|former| former.pid == pid) {
            let which = if self.former.swap_remove(at).served().is_some() { "Former" } else { "New" };
            warning(format_args!("{which} worker ({pid}) exited with code {}", ended(code)));
        } else if let Some(coming) = self.coming.as_mut().filter(|coming| coming.worker.pid == pid) {
            coming.code = Some(code);
        } else if let Some(worker) = self.current.take_if(|worker| worker.pid == pid) {
            self.last = code;
            alert(format_args!("Current worker ({pid}) exited with code {}", ended(code)));
            // The one that is coming takes its place; if it fails, it is seen then that nobody serves.
            if !self.leaving && self.coming.is_none() {
                self.worker_is_missing(worker.served());
            }
        }
    }

    /// Nobody serves: there is to be another worker, unless those before it have shown that it would fail as well.
    fn worker_is_missing(&mut self, served: Option<Duration>) {
        match self.patience.after(served) {
            Verdict::Replace(Duration::ZERO) => self.replace(),
            Verdict::Replace(pause) => {
                warning(format_args!("Clients wait: the next worker is started in {} ms", pause.as_millis()));
                self.due = Some(Instant::now() + pause);
            }
            Verdict::GiveUp(failures) if self.settings.outlives_workers => {
                alert(format_args!("{failures} workers in a row have failed: clients wait for a reload (SIGUSR2)"));
            }
            Verdict::GiveUp(failures) => {
                alert(format_args!("{failures} workers in a row have failed: the service ends"));
                self.last = self.last.max(1);
                self.leave(Signal::Term);
            }
        }
    }

    /// Starts a worker in the place of one that is gone.
    fn replace(&mut self) {
        if let Err(e) = self.start(Occasion::Replacement, self.configuration.clone(), self.settings.clone()) {
            alert(format_args!("cannot start a worker: {e}"));
            self.worker_is_missing(None);
        }
    }

    /// Ends the service: nobody is to wait for a worker that does not come.
    fn leave(&mut self, signal: Signal) {
        self.leaving = true;
        self.due = None;
        self.sockets = Arc::default();
        ready::notify("STOPPING=1");
        warning("Exiting Master process...");
        let coming = self.coming.iter().map(|coming| coming.worker.pid);
        let pids = self.current.iter().map(|worker| worker.pid).chain(coming);
        for pid in pids.chain(self.former.iter().map(|former| former.pid)) {
            let _ = penstock_sys::kill(pid, signal.number());
        }
    }
}
