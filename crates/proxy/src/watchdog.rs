//! Watches the workers: one that has made no turn for a second of CPU time is stuck, and a process with a stuck worker
//! is ended, with a word on what it was doing, so that whoever watches the process can start another.

use crate::{Handle, Shared, handle::State};
use std::{
    fmt::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, Ordering},
    },
    task::Waker,
    time::Duration,
};

/// What a worker shows of itself.
#[derive(Default)]
pub(crate) struct Pulse {
    /// The kernel's number of its thread; 0 before it runs and after it has ended.
    thread: AtomicI32,
    /// What it is doing: a [`Stage`].
    stage: AtomicU8,
    /// It has been asked to make a turn, and has not yet.
    asked: AtomicBool,
    turns: AtomicU64,
    waker: std::sync::Mutex<Option<Waker>>,
}

/// The stages of a connection's life, for the watchdog's last word.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum Stage {
    Idle,
    Accept,
    Handshake,
    Parse,
    Route,
    Forward,
    Log,
}

const STAGES: [&str; 7] = [
    "nothing in particular",
    "accepting a connection",
    "a handshake",
    "reading a request",
    "running rules",
    "forwarding",
    "logging",
];

impl Pulse {
    /// Called by the worker's thread when it begins.
    pub fn begin(&self) {
        self.thread.store(penstock_sys::thread_id(), Ordering::SeqCst);
    }
    /// Called by the worker's thread when it ends.
    pub fn end(&self) {
        self.thread.store(0, Ordering::SeqCst);
    }
    /// Says what the worker does now.
    pub fn enter(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
    }
    /// The worker's own task: answers the watchdog, which takes a turn of the loop.
    pub async fn beat(&self) {
        std::future::poll_fn(|cx| {
            self.waker
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .get_or_insert_with(|| cx.waker().clone());
            if self.asked.swap(false, Ordering::SeqCst) {
                self.turns.fetch_add(1, Ordering::SeqCst);
            }
            self.enter(Stage::Idle);
            std::task::Poll::Pending
        })
        .await
    }
    fn ask(&self) {
        if !self.asked.swap(true, Ordering::SeqCst)
            && let Some(waker) = self.waker.lock().unwrap_or_else(std::sync::PoisonError::into_inner).as_ref()
        {
            waker.wake_by_ref();
        }
    }
}

/// A worker without a turn for so much CPU time is stuck: CPU time, because a machine that was asleep or a thread that
/// was not given a processor is not the worker's fault.
const STUCK: Duration = Duration::from_secs(1);

/// How often the workers are asked.
const INTERVAL: Duration = Duration::from_millis(200);

/// How long a stuck thread has to say where it is.
const ANSWER: Duration = Duration::from_secs(2);

/// Watches until all workers have ended.
pub(crate) fn start(handle: Handle) -> std::io::Result<()> {
    penstock_sys::install_stack_capture()?;
    std::thread::Builder::new().name("watchdog".into()).spawn(move || watch(&handle)).map(drop)
}

fn watch(handle: &Handle) {
    let shared: &Arc<Shared> = handle.shared();
    let mut seen: Vec<(u64, Duration)> = vec![(0, Duration::ZERO); shared.pulses.len()];
    while !(handle.state() != State::Running && handle.is_finished()) {
        for (id, (pulse, (turns, since))) in shared.pulses.iter().zip(&mut seen).enumerate() {
            let thread = pulse.thread.load(Ordering::SeqCst);
            let Some(used) = penstock_sys::thread_cpu_time(thread).filter(|_| thread != 0) else { continue };
            let now = pulse.turns.load(Ordering::SeqCst);
            if now != *turns || !pulse.asked.load(Ordering::SeqCst) {
                (*turns, *since) = (now, used);
                pulse.ask();
            } else if used.saturating_sub(*since) >= STUCK {
                stuck(id, thread, pulse, used - *since);
            }
        }
        std::thread::sleep(INTERVAL);
    }
}

/// Says what a stuck worker does, and ends the process.
fn stuck(id: usize, thread: i32, pulse: &Pulse, spent: Duration) -> ! {
    let stage = STAGES.get(usize::from(pulse.stage.load(Ordering::Relaxed))).unwrap_or(&"something unknown");
    let mut text = format!(
        "worker {} (thread {thread}) has made no turn for {:.1} s of CPU time; it was busy with {stage}:\n",
        id + 1,
        spent.as_secs_f64(),
    );
    describe(&penstock_sys::return_addresses(thread, ANSWER), &mut text);
    eprintln!("[ALERT] {text}");
    std::process::abort()
}

/// Names the functions of return addresses. The watchdog does this, not the stuck thread: it may hold the allocator's
/// lock.
fn describe(addresses: &[usize], text: &mut String) {
    if addresses.is_empty() {
        text.push_str("  it did not answer\n");
    }
    for &address in addresses {
        let mut found = false;
        backtrace::resolve(address as *mut std::ffi::c_void, |symbol| {
            found = true;
            // Writing to a string cannot fail.
            let _ = match symbol.name() {
                Some(name) => write!(text, "  {address:#018x} {name:#}"),
                None => write!(text, "  {address:#018x} ?"),
            };
            if let (Some(file), Some(line)) = (symbol.filename(), symbol.lineno()) {
                let _ = write!(text, " at {}:{line}", file.display());
            }
            text.push('\n');
        });
        if !found {
            let _ = writeln!(text, "  {address:#018x} ?");
        }
    }
}

/// Ends the process because what must always hold does not: going on could corrupt or leak what passes through.
#[cold]
pub(crate) fn broken(invariant: &str) -> ! {
    eprintln!("[ALERT] broken invariant: {invariant}\n{}", std::backtrace::Backtrace::force_capture());
    std::process::abort()
}

/// A fault to plant, named in the environment by tests that prove what happens then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A request for `/planted-fault` never ends its turn.
    Spin,
    /// A request for `/planted-fault` breaks an invariant.
    Invariant,
}

impl Fault {
    /// The one that `PENSTOCK_PLANT_FAULT` names.
    pub fn planted() -> Option<Fault> {
        match std::env::var("PENSTOCK_PLANT_FAULT").ok()?.as_str() {
            "spin" => Some(Fault::Spin),
            "invariant" => Some(Fault::Invariant),
            _ => None,
        }
    }
    /// Lets it happen.
    pub fn strike(self) {
        match self {
            Fault::Spin => spin(),
            Fault::Invariant => broken("a planted fault"),
        }
    }
}

#[inline(never)]
fn spin() {
    loop {
        std::hint::black_box(());
    }
}
