//! One process that serves: build, listen, go to the background, give up privileges, start, and obey signals.

use crate::{
    accounts, configuration,
    control::{Changes, Control, Material},
    device::{self, Awaited, Opened},
    engine,
    flags::Flags,
    heritage::{self, inherit},
    limits, machine,
    name::{NAME, Name},
    ready,
    ready::Reporter,
    say::{alert, warning},
    services, strangers,
    tie::Occasion,
    told,
};
use penstock_config::{Config, Diagnostics, Span, model::Global};
use penstock_engine::plan::Kind;
use penstock_proxy::{Before, Handle, ListenError, Listening, Predecessor, Runtime, stats_file::Past};
use penstock_sys::{Forked, Signal, Signals, Silence};
use std::{
    io,
    os::fd::OwnedFd,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// How a process that served has ended.
#[must_use]
pub enum Ended {
    /// The process ended by itself, or before it started to serve.
    Exit(ExitCode),
    /// A signal ended the process; it is still blocked.
    Signalled(Signals, Signal),
}

impl From<ExitCode> for Ended {
    fn from(code: ExitCode) -> Self {
        Ended::Exit(code)
    }
}

impl Ended {
    /// Ends the process as the signal would have, which service managers expect.
    pub fn code(self) -> ExitCode {
        match self {
            Ended::Exit(code) => code,
            Ended::Signalled(signals, signal) => {
                signals.unblock();
                // This does not return, unless the signal is ignored, like SIGINT in a shell's background job.
                let _ = penstock_sys::kill(std::process::id() as i32, signal.number());
                ExitCode::from(128 + signal.number() as u8)
            }
        }
    }
}

/// When to save the counters for the next worker, in addition to each time they are read.
struct Keeping {
    due: Instant,
}

impl Default for Keeping {
    fn default() -> Self {
        Keeping { due: Instant::now() + Keeping::INTERVAL }
    }
}

impl Keeping {
    const INTERVAL: Duration = Duration::from_secs(1);
    /// The reciprocal of the share of this thread's time that saving may take.
    const SHARE: u32 = 100;

    /// How long nothing has to be kept; at most a second.
    fn pause(&self) -> Duration {
        self.due.saturating_duration_since(Instant::now()).min(Keeping::INTERVAL)
    }

    fn keep_if_due(&mut self, handle: &Handle) {
        let now = Instant::now();
        if now >= self.due {
            handle.keep_counters();
            self.due = now + Keeping::INTERVAL.max(now.elapsed() * Keeping::SHARE);
        }
    }
}

/// How often a process that has been told to finish checks whether its workers have ended.
const LOOK: Duration = Duration::from_millis(50);

/// Serves the configuration until told to end. `started` is called once connections are accepted.
pub fn serve(loaded: (Config, Diagnostics), flags: &Flags, reporter: Reporter, started: impl FnOnce(&Handle)) -> Ended {
    start(loaded, flags, reporter, started).unwrap_or_else(|why| fail(&why).into())
}

/// As [`serve`], but returns what went wrong.
///
/// # Errors
///
/// A sentence that says why nothing is served. What is wrong with the configuration has been shown instead.
fn start(
    (config, mut diagnostics): (Config, Diagnostics),
    flags: &Flags,
    reporter: Reporter,
    started: impl FnOnce(&Handle),
) -> Result<Ended, String> {
    let Some((mut runtime, past)) = build(config, flags, &mut diagnostics) else { return Ok(ExitCode::FAILURE.into()) };
    let shared = Arc::clone(runtime.shared());
    let config = &shared.config;
    if !configuration::has_listener(config) {
        return Err("no proxy listens anywhere: write a 'bind' line".into());
    }
    let mut listeners = match runtime.listen(inherit(&reporter, flags)?) {
        Ok(listeners) => listeners,
        Err(errors) => {
            show_unopened(config, flags, &errors);
            return Ok(ExitCode::FAILURE.into());
        }
    };
    limits::cover(config, runtime.workers(), listeners.list.len());
    // Before the first thread, so that signals are only delivered to this one.
    let signals = Signals::block().map_err(|e| format!("cannot block signals: {e}"))?;
    let background = config.global.daemon && !config.global.master_worker;
    let mut reporter = match background.then(detach) {
        None => reporter,
        Some(Ok(Side::Child(reporter))) => reporter,
        Some(Ok(Side::Parent(code))) => return Ok(code.into()),
        Some(Err(e)) => return Err(format!("cannot go to the background: {e}")),
    };
    if !config.global.master_worker {
        write_pid(&config.global)?;
    }
    // After the last fork, which an open device does not survive, and before the privilege to open it is given up.
    let awaited = open_device(&mut runtime, flags, &reporter)?;
    let between = || end_if_told(&signals);
    let mut changes = Changes::open(&config.global, runtime.shared(), &between)?;
    // Later workers of a master have the same arguments, and by then other processes may have the ids in them.
    let is_first = matches!(reporter.occasion(), None | Some(Occasion::Start));
    if let Some(changes) = &changes
        && is_first
        && !replaces_others(flags)
        && flags.heir_of.is_none()
    {
        changes.warn_of_owner();
    }
    // Errors are reported to the terminal until the process serves; only then does a background process stop writing to
    // it.
    let silence = config.global.daemon.then(Silence::prepare).transpose();
    let silence = silence.map_err(|e| format!("cannot open /dev/null: {e}"))?;
    runtime.set_memory_gauge(limits::memory(flags.memory_mib)?);
    let mut unwritable = runtime.open_tap_interfaces();
    accounts::give_up_privileges(&config.global)?;
    unwritable.extend(runtime.open_taps());
    if !unwritable.is_empty() {
        let mut found = Diagnostics::default();
        for (place, why) in unwritable {
            found.error(place, why);
        }
        configuration::accepted(config, &found, flags);
        return Ok(ExitCode::FAILURE.into());
    }
    let copies = heritage::copies(&listeners, config, &reporter);
    let copies = copies.map_err(|e| format!("cannot copy the listening sockets: {e}"))?;
    let stats = std::mem::take(&mut listeners.stats);
    let change = |handle: &Handle| {
        if let Some(changes) = &mut changes {
            changes.make(handle, &between);
            handle.drop_unused_states().into_iter().for_each(warning);
        }
    };
    let handle = runtime.start_after(listeners, change).map_err(|e| format!("cannot start the workers: {e}"))?;
    if is_first {
        end_the_replaced(flags);
    }
    if let Some(awaited) = awaited {
        awaited.in_background(handle.clone());
    }
    carry_counters(&handle, past, &mut reporter);
    started(&handle);
    let startup_log = configuration::told(config, &diagnostics);
    let control = control(stats, copies, startup_log, &handle, reporter, changes).inspect_err(|_| {
        handle.stop();
        handle.wait();
    })?;
    if !config.global.master_worker {
        ready::notify("READY=1");
    }
    // dup2(2) on open descriptors does not fail.
    let _ = silence.map(Silence::begin);
    Ok(obey(&handle, signals, &config.global, control))
}

/// Shows why addresses could not be opened, each at its place.
fn show_unopened(config: &Config, flags: &Flags, errors: &[ListenError]) {
    let mut found = Diagnostics::default();
    for error in errors {
        let place = (error.span != Span::default()).then_some(error.span);
        let shown = found.error(place, error.to_string());
        if let Some((pid, name)) = taken_by(error) {
            shown.hint(format!("process {pid} ({name}) listens there: stop it, or take over from it with -sf {pid}"));
        }
    }
    configuration::accepted(config, &found, flags);
}

/// Whether this process was told to replace others.
fn replaces_others(flags: &Flags) -> bool {
    !flags.finish.is_empty() || !flags.terminate.is_empty()
}

/// Opens the device that the engine may use, if any. Also returns what is to be waited for if that takes longer.
fn open_device(runtime: &mut Runtime, flags: &Flags, reporter: &Reporter) -> Result<Option<Awaited>, String> {
    let mut wanted = runtime.engine().clone();
    if !runtime.has_tls() {
        if wanted.deflation.is_none() {
            return Ok(None);
        }
        wanted.kind = Kind::Native;
    }
    let is_successor = match reporter.occasion() {
        Some(Occasion::Reload) => true,
        Some(Occasion::Replacement) => false,
        Some(Occasion::Start) | None => replaces_others(flags),
    };
    let Opened { plan, later } = device::open(&wanted, runtime.workers(), is_successor)?;
    runtime.set_engine(plan);
    Ok(later)
}

/// Tells the processes of `-sf` and `-st` to finish or to end. If one has already gone, that is fine.
fn end_the_replaced(flags: &Flags) {
    for (pids, signal) in [(&flags.finish, Signal::Usr1), (&flags.terminate, Signal::Term)] {
        for pid in pids {
            let _ = penstock_sys::kill(*pid, signal.number());
        }
    }
}

/// Ends a process that does not serve yet, if a signal has told it to: what it is doing may take a minute. Other signals wait.
fn end_if_told(signals: &Signals) {
    if let Some(signal) = signals.wait(Duration::ZERO) {
        if matches!(signal, Signal::Term | Signal::Int) {
            signals.unblock();
        }
        let _ = penstock_sys::kill(std::process::id() as i32, signal.number());
    }
}

/// Lets counters continue from those of the previous worker, which already include `stats-file`, or else from that file.
fn carry_counters(handle: &Handle, past: Before, reporter: &mut Reporter) {
    let is_first = matches!(reporter.occasion(), None | Some(Occasion::Start));
    let (before, ledger) = reporter.counters().unzip();
    let before = before.filter(|_| !is_first).map_or(past, |before| Before::Worker(Predecessor::new(before)));
    handle.carry_counters(before, ledger);
}

/// Reads `stats-file`. Errors are reported, and do not prevent the process from serving.
fn stats_file(global: &Global, diagnostics: &mut Diagnostics) -> Before {
    let Some(file) = &global.stats_file else { return Before::Nothing };
    let text = match penstock_proxy::read_saved(&file.value) {
        Ok(text) => text,
        Err(e) => {
            diagnostics.warning(file.span, format!("cannot read the stats file: {e}")).hint("counters begin at 0");
            return Before::Nothing;
        }
    };
    let (past, bad) = Past::read(&text);
    if let Some(first) = bad.first() {
        let what = match bad.len() {
            1 => "a line of the stats file cannot be read and is passed over".to_owned(),
            lines => format!("{lines} lines of the stats file cannot be read and are passed over; the first"),
        };
        diagnostics.warning(file.span, format!("{what}: {first}"));
    }
    Before::Past(past)
}

/// Reports that this process serves, and starts answering commands on its sockets and from clients that its master
/// passes on. Also returns the flag that tells that the master is gone.
fn control(
    stats: Vec<(usize, OwnedFd)>,
    copies: Vec<OwnedFd>,
    startup_log: String,
    handle: &Handle,
    reporter: Reporter,
    mut changes: Option<Changes>,
) -> Result<(Option<Control>, Option<Arc<AtomicBool>>), String> {
    let is_needed = !stats.is_empty() || reporter.occasion().is_some();
    let control = is_needed.then(|| Control::start(stats)).transpose();
    let control = control.map_err(|e| format!("cannot answer commands: {e}"))?;
    let tie = reporter.ready(&copies).map_err(|e| format!("the master is gone: {e}"))?;
    if let Some(changes) = &mut changes {
        changes.take_over();
    }
    let Some(mut control) = control else { return Ok((None, None)) };
    if let Some(tie) = &tie {
        control.tell(tie.socket().try_clone().map_err(|e| format!("cannot speak to the master: {e}"))?);
    }
    control.begin(Material { copies, startup_log, handle: handle.clone(), changes });
    let orphaned = tie.map(|tie| tie.watch(control.spares(), control.introductions())).transpose();
    Ok((Some(control), orphaned.map_err(|e| format!("cannot listen to the master: {e}"))?))
}

/// The id and name of the process that listens on the address, if that is why it could not be opened.
fn taken_by(error: &ListenError) -> Option<(i32, String)> {
    let is_taken = error.source.kind() == io::ErrorKind::AddrInUse;
    is_taken.then(|| strangers::owner(&error.address)).flatten()
}

/// Compiles and checks everything that can be checked without opening a socket, and shows what was found. Also returns the
/// values that counters start from.
pub fn build(mut config: Config, flags: &Flags, diagnostics: &mut Diagnostics) -> Option<(Runtime, Before)> {
    let workers = config
        .global
        .nbthread
        .map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), |n| n as usize);
    // A check may run on a different machine from the service, with different limits.
    if !flags.check {
        limits::apply(&mut config, workers, diagnostics);
    }
    machine::check(&config, flags.check, diagnostics);
    let mut engine = engine::plan(&config.global, engine::lanes(), engine::probe, diagnostics);
    engine.deflation = engine::deflation(&config, engine::probe, diagnostics);
    let past = stats_file(&config.global, diagnostics);
    // `Runtime::build` consumes the configuration; its findings are shown with a copy of the files.
    let mut shown = Config { files: config.files.clone(), ..Config::default() };
    shown.global.zero_warning = config.global.zero_warning;
    let runtime = Runtime::build(config, services::all(), diagnostics);
    if !configuration::accepted(&shown, diagnostics, flags) {
        return None;
    }
    let mut runtime = runtime?;
    let computes = runtime.has_tls() && !flags.check;
    runtime.set_engine(if computes { engine::measured(engine) } else { engine });
    Some((runtime, past))
}

/// Which process of a fork this is.
pub enum Side {
    /// The one in the background, which reports once it serves.
    Child(Reporter),
    /// The one that was started, which ends with this code.
    Parent(ExitCode),
}

/// Forks: the parent waits until the child serves or has failed, and ends with its result.
///
/// # Errors
/// If the process cannot fork.
pub fn detach() -> std::io::Result<Side> {
    let (reporter, waiter) = ready::pipe()?;
    match penstock_sys::fork()? {
        Forked::Child => {
            drop(waiter);
            penstock_sys::new_session()?;
            Ok(Side::Child(reporter))
        }
        Forked::Parent(_) => {
            drop(reporter);
            Ok(Side::Parent(if waiter.wait() { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
        }
    }
}

/// How long clients have to read that `hard-stop-after` ended their sessions.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long a process whose workers have ended lets clients of its stats sockets read the answers that they are getting.
const ANSWERS_MAX: Duration = Duration::from_secs(30);

/// Handles signals until the workers have ended.
fn obey(
    handle: &Handle,
    signals: Signals,
    global: &Global,
    (control, mut orphaned): (Option<Control>, Option<Arc<AtomicBool>>),
) -> Ended {
    let (mut asked, mut draining, mut cut) = (None::<Instant>, false, false);
    let mut finished = None::<Instant>;
    let mut keeping = Keeping::default();
    loop {
        keeping.keep_if_due(handle);
        // The next master would start workers of its own beside this one, perhaps with a different configuration.
        if orphaned.take_if(|gone| gone.load(Ordering::Acquire)).is_some() {
            warning("The master is gone: finishing as after SIGUSR1");
            asked.get_or_insert_with(Instant::now);
        }
        // Signals wake this thread, and nothing else is urgent before one has come.
        match signals.wait(if asked.is_some() { LOOK } else { keeping.pause().max(LOOK) }) {
            Some(signal @ (Signal::Term | Signal::Int)) => {
                handle.stop();
                handle.wait();
                handle.keep_counters();
                return Ended::Signalled(signals, signal);
            }
            Some(Signal::Usr1) => {
                asked.get_or_insert_with(Instant::now);
            }
            Some(Signal::Ttou) => told::pause(handle, Listening::Open, Listening::Paused),
            Some(Signal::Ttin) => told::pause(handle, Listening::Paused, Listening::Open),
            Some(Signal::Hup) => told::states(handle),
            Some(Signal::Quit) => told::memory(handle),
            // SIGUSR2 is for a master, SIGCHLD for a parent; SIGALRM means nothing, and must not end the process.
            Some(Signal::Usr2 | Signal::Chld | Signal::Alrm) | None => {}
        }
        // `grace` comes before the soft stop, and `hard-stop-after` counts from its start (configuration manual, 3.1).
        let grace = global.grace.unwrap_or_default();
        if let Some(since) = asked.and_then(|asked| asked.elapsed().checked_sub(grace)) {
            if !std::mem::replace(&mut draining, true) {
                // Workers must own the last copies of the sockets, because they serve the connections waiting in those
                // that close.
                if let Some(control) = &control {
                    control.close();
                }
                handle.drain();
            }
            if let Some(over) = global.hard_stop_after.and_then(|longest| since.checked_sub(longest)) {
                if !std::mem::replace(&mut cut, true) {
                    handle.end_sessions();
                }
                if over >= LAST_WORDS {
                    handle.stop();
                }
            }
        }
        if handle.is_finished() {
            let finished = *finished.get_or_insert_with(|| {
                handle.end_logs();
                Instant::now()
            });
            let is_answering = control.as_ref().is_some_and(Control::is_answering);
            if is_answering && !cut && finished.elapsed() < ANSWERS_MAX {
                continue;
            }
            handle.wait();
            handle.keep_counters();
            return ExitCode::SUCCESS.into();
        }
    }
}

/// Reports why nothing was started.
pub fn fail(why: &str) -> ExitCode {
    match *NAME {
        Name::Haproxy => alert(why),
        Name::Penstock => eprintln!("penstock: {why}"),
    }
    ExitCode::FAILURE
}

/// Writes this process's id to the file of `pidfile` or `-p`.
///
/// # Errors
/// If the file cannot be written.
pub fn write_pid(global: &Global) -> Result<(), String> {
    let Some(pidfile) = &global.pidfile else { return Ok(()) };
    std::fs::write(pidfile, format!("{}\n", std::process::id()))
        .map_err(|e| format!("cannot write the pidfile {}: {e}", pidfile.display()))
}
