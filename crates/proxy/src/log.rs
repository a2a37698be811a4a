//! Logs. Lines are gathered in the worker's memory and sent at the end of its turn, or some milliseconds after the
//! previous ones, with one system call per target. A target that does not keep up loses lines, which are counted;
//! nothing ever waits for it.

pub(crate) mod debug;
pub(crate) mod forward;
mod header;
mod receiver;
pub mod ring;
mod target;

use header::{Clock, Line, Time};
use penstock_config::{
    Config, Diagnostics,
    model::{LogTarget, LogTransport, PerProxy, ProxyId, Ring},
};
use penstock_rules::syslog::{HeaderKind, SyslogMessage};
use penstock_tls::Store;
use receiver::Receiver;
use ring::Sink;
use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Poll, Waker},
    thread::JoinHandle,
    time::Duration,
};
pub(crate) use target::Target;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

/// The log targets of a process: created once, before privileges are given up, and used by every worker.
pub(crate) struct LogTargets {
    /// Every `log` line that some proxy or the process uses.
    targets: Vec<Arc<Target>>,
    /// The indices of the targets of each proxy.
    of_proxy: PerProxy<Vec<usize>>,
    /// The indices of the targets of each agent, by engine.
    of_agent: Vec<Vec<usize>>,
    /// The indices of the targets of the process itself.
    of_process: Vec<usize>,
    /// The indices of the targets of each `log-forward` section.
    of_forward: Vec<Vec<usize>>,
    /// The `log-forward` sections.
    forwards: Vec<forward::Section>,
    /// The `log-tag` of each proxy, if it has one.
    tags: PerProxy<Option<Vec<u8>>>,
    tag: Vec<u8>,
    hostname: Option<Vec<u8>>,
    /// The number of this process.
    pid: Vec<u8>,
    /// The built-in ring, and those of the configuration.
    rings: Vec<Arc<Sink>>,
    /// The servers of all rings.
    receivers: Vec<Receiver>,
    /// Whether there will be no more lines.
    over: watch::Sender<bool>,
    /// The thread that speaks with the rings' servers.
    /// How many messages `log-forward` sections have received.
    received: AtomicU64,
    delivering: Mutex<Option<JoinHandle<()>>>,
}

impl LogTargets {
    /// Prepares the targets of `config`; `None` if that has errors, which are added to `diagnostics`.
    pub fn build(config: &Config, certificates: &Store, diagnostics: &mut Diagnostics) -> Option<Self> {
        let rings: Vec<_> = [Ring::built_in()].iter().chain(&config.rings).map(Sink::new).collect();
        let receivers = Receiver::all(config, &rings, certificates, diagnostics)?;
        let forwards = forward::Section::all(config, certificates, diagnostics)?;
        let mut targets = Vec::new();
        let mut add = |lines: &[LogTarget]| -> Vec<usize> {
            lines
                .iter()
                .map(|line| {
                    targets.push(Arc::new(Target::new(line, &rings, diagnostics)));
                    targets.len() - 1
                })
                .collect()
        };
        let global = add(&config.global.logs);
        let of = |log_global: bool, own: Vec<usize>| {
            let mut all = if log_global { global.clone() } else { Vec::new() };
            all.extend(own);
            all
        };
        let of_proxy = config.proxies.iter().map(|proxy| of(proxy.log_global, add(&proxy.logs))).collect();
        let agents = config.spoe.iter().map(|engine| &engine.agent);
        let of_agent = agents.map(|agent| of(agent.log_global, add(&agent.logs))).collect();
        let of_forward = config.log_forwards.iter().map(|section| of(section.log_global, add(&section.logs))).collect();
        if diagnostics.has_errors() {
            return None;
        }
        let hostname = config.global.log_send_hostname.as_ref().map(|name| match name {
            Some(name) => name.clone().into_bytes(),
            None => rustix::system::uname().nodename().to_bytes().to_vec(),
        });
        Some(LogTargets {
            targets,
            of_proxy,
            of_agent,
            of_process: global,
            of_forward,
            forwards,
            tags: config.proxies.iter().map(|p| p.log_tag.as_ref().map(|tag| tag.clone().into_bytes())).collect(),
            tag: config.global.log_tag.clone().unwrap_or_else(program_name).into_bytes(),
            hostname,
            pid: std::process::id().to_string().into_bytes(),
            rings,
            receivers,
            over: watch::Sender::new(false),
            delivering: Mutex::default(),
            received: AtomicU64::new(0),
        })
    }
    /// Whether the proxy logs at all; if not, its lines need not be formatted.
    pub fn logs(&self, proxy: ProxyId) -> bool {
        !self.of_proxy[proxy].is_empty()
    }
    /// A line of this process.
    fn line<'a>(&'a self, severity: u8, tag: &'a [u8], message: &'a [u8]) -> Line<'a> {
        Line {
            usual: LogTransport::Usual,
            facility: None,
            severity,
            time: Time::Now,
            hostname: self.hostname.as_deref(),
            tag,
            pid: &self.pid,
            message_id: b"",
            structured: b"",
            message,
        }
    }
    /// The rings, the built-in one first.
    pub fn rings(&self) -> &[Arc<Sink>] {
        &self.rings
    }
    /// How many lines for a descriptor were lost because nobody read them in time.
    pub fn dropped_by(&self, descriptor: i32) -> u64 {
        let to_it = self.targets.iter().filter(|target| target.descriptor() == Some(descriptor));
        to_it.map(|target| target.dropped.load(Ordering::Relaxed)).sum()
    }
    /// The servers of all rings.
    pub fn receivers(&self) -> &[Receiver] {
        &self.receivers
    }
    /// Whether there will be no more lines.
    pub fn over(&self) -> watch::Receiver<bool> {
        self.over.subscribe()
    }
    /// Notes the thread that [`LogTargets::end`] waits for.
    pub fn delivered_by(&self, thread: JoinHandle<()>) {
        *self.delivering.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
    }
    /// Says that there will be no more lines, and lets the rings' servers receive the last ones, within a second.
    pub fn end(&self) {
        self.rings.iter().for_each(|ring| ring.close());
        self.over.send_replace(true);
        let thread = self.delivering.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The panic hook has reported it already.
        let _ = thread.map(JoinHandle::join);
    }
    /// How many messages `log-forward` sections have received.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
    /// How many lines were lost because a target could not take them.
    pub fn dropped(&self) -> u64 {
        self.targets.iter().map(|target| target.dropped.load(Ordering::Relaxed)).sum()
    }
}

/// The name that the program was started by, with which HAProxy tags lines unless `log-tag` is set.
fn program_name() -> String {
    let name = std::env::args_os().next();
    let name = name.as_deref().and_then(|name| std::path::Path::new(name).file_name());
    name.map_or_else(|| "penstock".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// The lines of one worker that have not been sent yet.
pub(crate) struct Logger {
    targets: Arc<LogTargets>,
    outlets: RefCell<Vec<target::Outlet>>,
    clock: RefCell<Clock>,
    /// Whether lines are waiting.
    waiting: Cell<bool>,
    /// The time, in microseconds since 1970, from which lines are sent at the end of their turn again.
    next_us: Cell<u64>,
    flusher: RefCell<Option<Waker>>,
}

impl Logger {
    pub fn new(targets: Arc<LogTargets>) -> Self {
        Logger {
            outlets: RefCell::new(targets.targets.iter().map(|target| target::Outlet::new(target.clone())).collect()),
            targets,
            clock: RefCell::default(),
            waiting: Cell::new(false),
            next_us: Cell::new(0),
            flusher: RefCell::default(),
        }
    }
    /// Whether the proxy logs at all.
    pub fn logs(&self, proxy: ProxyId) -> bool {
        self.targets.logs(proxy)
    }
    /// Sends one line, dated in microseconds since 1970, to the targets of `proxy`, now or with the others of this
    /// turn.
    pub fn send(&self, proxy: ProxyId, unix_us: u64, severity: u8, structured: &[u8], message: &[u8]) {
        let targets = &self.targets;
        let tag = targets.tags[proxy].as_ref().unwrap_or(&targets.tag);
        let line = Line { structured, ..targets.line(severity, tag, message) };
        self.send_to(&targets.of_proxy[proxy], unix_us, line);
    }
    /// Whether the agent of an engine logs at all.
    pub fn logs_agent(&self, engine: usize) -> bool {
        !self.targets.of_agent[engine].is_empty()
    }
    /// Sends a line about what an agent was told.
    pub fn send_agent(&self, engine: usize, unix_us: u64, severity: u8, message: &[u8]) {
        let line = self.targets.line(severity, &self.targets.tag, message);
        self.send_to(&self.targets.of_agent[engine], unix_us, line);
    }
    /// Sends a line about the process itself.
    pub fn send_process(&self, unix_us: u64, severity: u8, message: &[u8]) {
        let line = self.targets.line(severity, &self.targets.tag, message);
        self.send_to(&self.targets.of_process, unix_us, line);
    }
    /// Sends the message of another program to the targets of a `log-forward` section.
    pub fn forward(&self, section: usize, unix_us: u64, message: &SyslogMessage<'_>) {
        let time = match (message.header, message.time) {
            (HeaderKind::None, _) => Time::Now,
            (_, None) => Time::Unknown,
            (HeaderKind::Bsd, Some(time)) => Time::Bsd(time),
            (HeaderKind::Ietf, Some(time)) => Time::Ietf(time),
        };
        // Without a format of its own, a target gets what the message has.
        let usual = match message {
            SyslogMessage { priority: None, .. } => LogTransport::Raw,
            SyslogMessage { host: Some(_), header: HeaderKind::Ietf, .. } => LogTransport::Rfc5424,
            SyslogMessage { host: Some(_), .. } => LogTransport::Rfc3164,
            SyslogMessage { tag: Some(_), .. } => LogTransport::Local,
            _ => LogTransport::Priority,
        };
        let line = Line {
            usual,
            facility: message.priority.map(|priority| priority / 8),
            severity: (message.priority.unwrap_or_default() % 8) as u8,
            time,
            hostname: message.host,
            tag: message.tag.unwrap_or_default(),
            pid: message.pid.unwrap_or_default(),
            message_id: message.message_id.unwrap_or_default(),
            structured: message.structured.unwrap_or_default(),
            message: message.text,
        };
        self.send_to(&self.targets.of_forward[section], unix_us, line);
    }
    fn send_to(&self, used: &[usize], unix_us: u64, line: Line<'_>) {
        if used.is_empty() {
            return;
        }
        let mut clock = self.clock.borrow_mut();
        clock.set(unix_us, penstock_sys::local_offset);
        let mut outlets = self.outlets.borrow_mut();
        for &index in used {
            let outlet = &mut outlets[index];
            if let Some(severity) = outlet.target.severity(line.severity) {
                outlet.add(&clock, Line { severity, ..line });
            }
        }
        let first = !self.waiting.replace(true);
        if (first || unix_us >= self.next_us.get())
            && let Some(waker) = self.flusher.borrow().as_ref()
        {
            waker.wake_by_ref();
        }
    }
    /// Sends everything gathered.
    pub fn flush(&self) {
        self.waiting.set(false);
        self.outlets.borrow_mut().iter_mut().for_each(target::Outlet::flush);
    }
    /// The worker's flusher: runs once after all tasks that were runnable when a line became due.
    pub async fn run(&self, clock: &crate::worker::clock::Clock) {
        let mut latest = pin!(sleep(HELD_MAX));
        let (mut held, mut yielded) = (false, false);
        poll_fn(|cx| {
            self.flusher.borrow_mut().get_or_insert_with(|| cx.waker().clone());
            if !self.waiting.get() {
                return Poll::Pending;
            }
            if yielded {
                (held, yielded) = (false, false);
                self.flush();
                self.next_us.set(clock.unix_us() + GATHERED_US);
            } else if clock.unix_us() >= self.next_us.get() || (held && latest.as_mut().poll(cx).is_ready()) {
                yielded = true;
                cx.waker().wake_by_ref();
            } else if !held {
                held = true;
                latest.as_mut().reset(Instant::now() + HELD_MAX);
                // It has just been set; polling it only registers the waker.
                let _ = latest.as_mut().poll(cx);
            }
            Poll::Pending
        })
        .await
    }
}

/// How long lines are gathered while they arrive turn after turn: a system call for the few lines of each turn would be
/// expensive.
const GATHERED_US: u64 = 4_000;

/// How long a line may wait for the next one. Longer than a tick of the kernel's, since an earlier timer would cost
/// each wait an interrupt.
const HELD_MAX: Duration = Duration::from_millis(10);
