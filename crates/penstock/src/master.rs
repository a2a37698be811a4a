//! `-W`: a master that starts a worker, starts the next one on SIGUSR2 before the previous one drains, replaces a
//! worker that dies, and ends with its workers. One thread makes all decisions; signals, the starting of workers and
//! clients send it events.

mod clients;
mod commands;
mod patience;
mod processes;
mod programs;
mod session;
mod worker;

use crate::{
    configuration,
    flags::Flags,
    ready::{self, Reporter},
    say::{self, Weight, alert, warning},
    serve::{self, Side},
    tie::Occasion,
};
use clients::{Crowd, Desk, Doors};
use patience::{Patience, Verdict};
use penstock_config::{
    Config,
    model::{ExternalProgram, Source, StatsSocket},
};
use penstock_sys::{Signal, Signals, Silence};
use processes::{Processes, Row};
use programs::Programs;
use session::Target;
use std::{
    fs::File,
    io,
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::ExitCode,
    sync::{Arc, atomic::Ordering, mpsc},
    time::{Duration, Instant},
};
use worker::{Former, Launcher, Started, Worker, ended};

/// An event for the master.
enum Event {
    Signal(Signal),
    /// A new worker is serving, or has failed to start.
    Started(Started),
    /// A client of the master's socket has a request.
    Do(Box<dyn for<'a> FnOnce(&mut Master<'a>) + Send>),
}

/// The result of a reload, for the client that requested it.
struct Reloaded {
    success: bool,
    log: String,
}

/// A reload that was requested or is in progress.
#[derive(Default)]
struct Wish {
    /// Whether previous workers are stopped instead of drained.
    hard: bool,
    waiting: Vec<mpsc::Sender<Reloaded>>,
}

/// Messages while a worker is started: those of the last start, and those of the current one.
#[derive(Default)]
struct Log {
    last: String,
    current: Option<String>,
}

impl Log {
    fn begin(&mut self) {
        self.current = Some(String::new());
    }

    fn say(&mut self, weight: Weight, text: impl std::fmt::Display) {
        let line = say::line(weight, text);
        say::show(&line);
        self.add(&line);
    }

    fn add(&mut self, lines: &str) {
        if let Some(current) = &mut self.current {
            current.push_str(lines);
        }
    }

    fn end(&mut self) {
        if let Some(current) = self.current.take() {
            self.last = current;
        }
    }
}

/// The settings that concern the master.
#[derive(Clone, Debug, Default)]
struct Settings {
    /// `no-exit-on-failure`.
    outlives_workers: bool,
    /// `mworker-max-reloads`.
    reloads_max: Option<u32>,
    /// `program` sections.
    programs: Vec<ExternalProgram>,
}

impl Settings {
    fn of(config: &Config) -> Settings {
        let global = &config.global;
        Settings {
            outlives_workers: global.no_exit_on_failure,
            reloads_max: global.mworker_max_reloads,
            programs: config.programs.clone(),
        }
    }
}

/// A worker that is not serving yet.
struct Coming {
    worker: Worker,
    occasion: Occasion,
    settings: Settings,
    configuration: Arc<File>,
    /// The request, if it was started for a reload.
    wish: Option<Wish>,
    /// The worker's exit code, if it has ended and its output is still being read.
    code: Option<i32>,
}

struct Master<'a> {
    flags: &'a Flags,
    launcher: Launcher,
    /// The sockets of the worker that serves. If it dies, the connections waiting in them are still there for the next
    /// one, which gets the same configuration even if the files have changed.
    sockets: Arc<Vec<OwnedFd>>,
    configuration: Arc<File>,
    /// The counters of the worker that served last.
    counters: Arc<File>,
    settings: Settings,
    /// The worker that serves, the next one, and previous ones that are still draining.
    current: Option<Worker>,
    coming: Option<Coming>,
    former: Vec<Former>,
    programs: Programs,
    patience: Patience,
    /// When a worker that died is to be replaced.
    due: Option<Instant>,
    /// A reload that was requested while a worker was being started.
    wanted: Option<Wish>,
    log: Log,
    crowd: Arc<Crowd>,
    /// The sockets for commands, and what their clients share.
    doors: (Vec<StatsSocket>, Desk),
    begun: Instant,
    /// The number of reloads, and how many of the latest in a row have failed.
    reloads: u32,
    failures: u32,
    leaving: bool,
    /// The exit status of the last worker that served, which becomes the master's, as in HAProxy.
    last: i32,
    /// The process that started us waits until the first worker serves; then a background process stops writing to the
    /// terminal.
    starter: Option<(Reporter, Option<Silence>)>,
}

/// Runs as a master until told to end.
pub fn run(config: &Config, sources: &[Source], flags: &Flags) -> ExitCode {
    let global = &config.global;
    let commands = clients::parse(&flags.master_sockets).and_then(|sockets| {
        let replaces = !flags.finish.is_empty() || !flags.terminate.is_empty() || flags.heir_of.is_some();
        Ok((Doors::open(&sockets, replaces)?, sockets))
    });
    let (doors, sockets) = match commands {
        Ok(commands) => commands,
        Err(why) => return serve::fail(&why),
    };
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
    let crowd = Arc::new(Crowd::default());
    let desk = Desk::new(sender.clone(), &sockets, crowd.clone());
    let names: Vec<String> = sockets.iter().map(|socket| clients::name(&socket.address)).collect();
    let prepared = Launcher::new(sender.clone(), flags, &names.join(";"))
        .and_then(|launcher| Ok((launcher, worker::keep(sources)?, worker::counters()?)));
    let (launcher, configuration, counters) = match prepared {
        Ok(prepared) => prepared,
        Err(e) => return serve::fail(&format!("cannot start workers: {e}")),
    };
    if let Err(e) = forward(signals, sender) {
        return serve::fail(&format!("cannot wait for signals: {e}"));
    }
    let mut master = Master {
        flags,
        programs: Programs::new(launcher.variables.clone()),
        launcher,
        sockets: Arc::default(),
        configuration: configuration.clone(),
        counters,
        settings: Settings::of(config),
        current: None,
        coming: None,
        former: Vec::new(),
        patience: Patience::default(),
        due: None,
        wanted: None,
        log: Log::default(),
        crowd,
        doors: (sockets, desk.clone()),
        begun: Instant::now(),
        reloads: 0,
        failures: 0,
        leaving: false,
        last: 0,
        starter: Some((reporter, silence)),
    };
    let settings = master.settings.clone();
    master.log.begin();
    if let Err(e) = master.start(Occasion::Start, configuration, settings, None) {
        return serve::fail(&format!("cannot start a worker: {e}"));
    }
    if let Err(e) = doors.answer(desk) {
        master.leave(Signal::Term);
        return serve::fail(&format!("cannot answer on the master's sockets: {e}"));
    }
    master.live(&events)
}

/// Turns signals into events, one at a time.
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

/// The exit code of a process that a SIGTERM has ended, as a shell shows it.
const TERMINATED: i32 = 128 + 15;

impl Master<'_> {
    fn live(&mut self, events: &mpsc::Receiver<Event>) -> ExitCode {
        loop {
            let event = match self.due.into_iter().chain(self.programs.due()).min() {
                // This thread holds a sender (in the launcher), so an error means that the time has come.
                Some(due) => events.recv_timeout(due.saturating_duration_since(Instant::now())).ok(),
                None => Some(events.recv().expect("as above")),
            };
            if self.due.take_if(|due| *due <= Instant::now()).is_some() {
                self.replace();
            }
            self.programs.start_due();
            match event {
                Some(Event::Signal(signal)) => self.obey(signal),
                Some(Event::Started(started)) => {
                    if let Some(code) = self.started(started) {
                        return code;
                    }
                }
                Some(Event::Do(ask)) => ask(self),
                None => {}
            }
            let workers_have_ended = self.current.is_none() && self.coming.is_none() && self.former.is_empty();
            if self.leaving && workers_have_ended && self.programs.have_ended() {
                warning(format_args!("All workers exited. Exiting... ({})", self.last));
                return ExitCode::from(u8::try_from(self.last).unwrap_or(1));
            }
        }
    }

    fn obey(&mut self, signal: Signal) {
        match signal {
            Signal::Usr2 | Signal::Hup => self.reload(false, None),
            Signal::Term | Signal::Int | Signal::Usr1 => self.leave(signal),
            // Listeners are the worker's to pause and resume.
            Signal::Ttou | Signal::Ttin => {
                if let Some(worker) = &self.current {
                    let _ = penstock_sys::kill(worker.pid, signal.number());
                }
            }
            Signal::Chld => {
                while let Some((pid, code)) = penstock_sys::reap() {
                    self.reaped(pid, code);
                }
            }
            _ => {}
        }
    }

    /// Starts a worker with the sockets of the previous one.
    fn start(
        &mut self,
        occasion: Occasion,
        configuration: Arc<File>,
        settings: Settings,
        wish: Option<Wish>,
    ) -> io::Result<()> {
        let worker = self.launcher.launch(occasion, &configuration, &self.counters, self.sockets.clone())?;
        self.log.say(Weight::Notice, format_args!("New worker ({}) forked", worker.pid));
        self.coming = Some(Coming { worker, occasion, settings, configuration, wish, code: None });
        Ok(())
    }

    /// Starts a worker with the current configuration; `waiting` gets the result.
    fn reload(&mut self, hard: bool, waiting: Option<mpsc::Sender<Reloaded>>) {
        let mut wish = self.wanted.take().unwrap_or_default();
        wish.hard |= hard;
        wish.waiting.extend(waiting);
        if self.leaving {
            // Those who wait see their channels close.
            return;
        }
        if self.coming.is_some() {
            self.wanted = Some(wish);
            return;
        }
        self.due = None;
        ready::reloading();
        self.crowd.dismiss();
        self.log.begin();
        self.log.say(Weight::Notice, format_args!("Reloading {}", crate::name::NAME.title()));
        if let Err(why) = Doors::reopen(&self.doors.0, &self.doors.1) {
            self.log.say(Weight::Warning, why);
        }
        self.reloads += 1;
        self.former.iter_mut().chain(&mut self.current).for_each(|worker| worker.reloads += 1);
        self.programs.count_reload();
        let read = configuration::sources(&self.flags.files).and_then(|sources| {
            let configuration = worker::keep(&sources).map_err(|e| format!("cannot keep the configuration: {e}"))?;
            Ok((configuration, Settings::of(&configuration::load(sources, self.flags).0)))
        });
        let occasion = if self.current.is_some() { Occasion::Reload } else { Occasion::Replacement };
        let mut wish = Some(wish);
        let started = read.and_then(|(configuration, settings)| {
            let started = self.start(occasion, configuration, settings, wish.take());
            started.map_err(|e| format!("cannot start a worker: {e}"))
        });
        if let Err(why) = started {
            self.log.say(Weight::Alert, why);
            self.reload_failed(wish.unwrap_or_default());
        }
    }

    fn reload_failed(&mut self, wish: Wish) {
        self.failures += 1;
        self.crowd.reload_failed.store(true, Ordering::Relaxed);
        self.log.say(Weight::Warning, "Loading failure!");
        self.log.end();
        self.tell(wish, false);
        ready::notify("READY=1\nSTATUS=Reload failed!");
        if self.current.is_none() && !self.leaving {
            self.worker_is_missing(None);
        }
    }

    fn tell(&self, wish: Wish, success: bool) {
        for waiting in wish.waiting {
            // If the client has gone, there is nothing to tell it.
            let _ = waiting.send(Reloaded { success, log: self.log.last.clone() });
        }
    }

    /// Handles a worker that is serving or has failed to start; returns the master's exit status if it is to end.
    fn started(&mut self, started: Started) -> Option<ExitCode> {
        let mut coming = self.coming.take_if(|coming| coming.worker.pid == started.pid)?;
        self.log.add(&started.log);
        match started.result {
            Ok((sockets, version)) => {
                // Sockets that the new worker did not keep now belong to the previous one only, and close with it.
                self.sockets = Arc::new(if self.leaving { Vec::new() } else { sockets });
                coming.worker.serves(version);
                self.settings = coming.settings;
                self.configuration = coming.configuration;
                self.counters = coming.worker.counters.clone();
                self.succeed(coming.worker, coming.wish);
                if let Some(code) = coming.code {
                    let pid = started.pid;
                    self.reaped(pid, code);
                }
            }
            Err(e) => {
                // A worker that has ended has reported why.
                if e.kind() == io::ErrorKind::InvalidData {
                    self.log.say(Weight::Alert, format_args!("cannot hand listening sockets over: {e}"));
                }
                if let Some(code) = coming.code {
                    let text = format_args!("New worker ({}) exited with code {}", started.pid, ended(code));
                    self.log.say(Weight::Warning, text);
                } else {
                    // It may have closed its socket but still run; without a master it would end by itself, but later.
                    let _ = penstock_sys::kill(coming.worker.pid, Signal::Term.number());
                    self.former.push(coming.worker);
                }
                if self.leaving {
                    return None;
                }
                match (coming.occasion, coming.wish) {
                    (Occasion::Start, _) => return Some(serve::fail("the worker did not start")),
                    (_, Some(wish)) => self.reload_failed(wish),
                    (_, None) => self.worker_is_missing(None),
                }
            }
        }
        if self.wanted.is_some() {
            self.reload(false, None);
        }
        None
    }

    /// Makes a worker that serves the current one; the previous one drains.
    fn succeed(&mut self, worker: Worker, wish: Option<Wish>) {
        self.log.say(Weight::Notice, "Loading success.");
        self.log.end();
        if wish.is_some() || self.starter.is_some() {
            self.programs.renew(&self.settings.programs);
        }
        let mut end = Signal::Usr1;
        if let Some(wish) = &wish {
            self.failures = 0;
            self.crowd.reload_failed.store(false, Ordering::Relaxed);
            self.patience.renew();
            if wish.hard {
                end = Signal::Term;
            }
        }
        if let Some(old) = self.current.replace(worker) {
            let _ = penstock_sys::kill(old.pid, end.number());
            if wish.as_ref().is_some_and(|wish| !wish.waiting.is_empty()) {
                // What the client sends next is for the new worker, and must not reach this one.
                old.let_close();
            }
            self.former.push(old);
        }
        if let Some(wish) = wish {
            self.tell(wish, true);
        }
        let is_to_end =
            |former: &&Former| end == Signal::Term || self.settings.reloads_max.is_some_and(|max| former.reloads > max);
        for former in self.former.iter().filter(is_to_end) {
            let _ = penstock_sys::kill(former.pid, Signal::Term.number());
        }
        ready::notify("READY=1\nSTATUS=Ready.");
        if let Some((reporter, silence)) = self.starter.take() {
            // If the parent has gone, that does not matter.
            let _ = reporter.ready(&[]);
            let _ = silence.map(Silence::begin);
        }
    }

    fn reaped(&mut self, pid: i32, code: i32) {
        if self.programs.reaped(pid, code, self.leaving) {
            return;
        }
        if let Some(at) = self.former.iter().position(|former| former.pid == pid) {
            let which = if self.former.swap_remove(at).served().is_some() { "Former" } else { "New" };
            warning(format_args!("{which} worker ({pid}) exited with code {}", ended(code)));
        } else if let Some(coming) = self.coming.as_mut().filter(|coming| coming.worker.pid == pid) {
            coming.code = Some(code);
        } else if let Some(worker) = self.current.take_if(|worker| worker.pid == pid) {
            // A worker that ends after a SIGUSR1 or a SIGTERM has done what it was told.
            let was_told = code == 0 || code == TERMINATED;
            self.last = if was_told { 0 } else { code };
            let text = format!("Current worker ({pid}) exited with code {}", ended(code));
            if code == 0 {
                warning(text)
            } else {
                alert(text)
            }
            // The next worker will take its place; if that fails, this is handled then.
            if !self.leaving && self.coming.is_none() {
                if was_told {
                    self.replace();
                } else {
                    self.worker_is_missing(worker.served());
                }
            }
        }
    }

    /// Called when no worker serves: schedules another one, unless the previous ones have shown that it would fail too.
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

    /// Starts a worker to replace one that is gone.
    fn replace(&mut self) {
        if let Err(e) = self.start(Occasion::Replacement, self.configuration.clone(), self.settings.clone(), None) {
            alert(format_args!("cannot start a worker: {e}"));
            self.worker_is_missing(None);
        }
    }

    /// The worker that a client names, and the socket to it.
    fn find(&self, target: &Target) -> Option<(i32, Arc<UnixStream>)> {
        let mut workers = self.current.iter().chain(&self.former);
        let worker = match target {
            Target::Current => self.current.as_ref(),
            Target::Pid(pid) => workers.find(|worker| worker.pid == *pid),
            Target::Nobody(_) => None,
        }?;
        Some((worker.pid, worker.tie.clone()))
    }

    /// Whether a worker is being started and none serves.
    fn awaits_first_worker(&self) -> bool {
        self.current.is_none() && self.coming.is_some()
    }

    /// `show proc`.
    fn processes(&self) -> Processes {
        let row = |worker: &Worker| Row {
            pid: worker.pid.unsigned_abs(),
            kind: "worker".into(),
            reloads: worker.reloads.to_string(),
            uptime: worker.started.elapsed(),
            version: worker.version.clone(),
        };
        let (programs, old_programs) = self.programs.rows();
        Processes {
            master: Row {
                pid: std::process::id(),
                kind: "master".into(),
                reloads: format!("{} [failed: {}]", self.reloads, self.failures),
                uptime: self.begun.elapsed(),
                version: crate::version::reported(),
            },
            workers: self.current.iter().map(row).collect(),
            old_workers: self.former.iter().map(row).collect(),
            programs,
            old_programs,
        }
    }

    /// `show startup-logs`.
    fn startup_log(&self) -> String {
        self.log.last.clone()
    }

    /// Ends the service; no client may be left waiting for a worker that will not come.
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
        self.programs.end(signal);
    }
}
