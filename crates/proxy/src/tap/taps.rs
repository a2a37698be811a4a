//! All taps of a configuration: opened before the process serves, written to by a thread each, and ended with it.

use super::{
    copied::Due,
    end::End,
    files::Files,
    link::Link,
    queue::{Queue, TapCounts},
    stream::Stream,
    thread::{self, Orders},
};
use penstock_config::{
    Config, Diagnostics, Span,
    model::{ProxyId, TapTarget},
};
use std::{
    fs, io,
    net::{Ipv4Addr, UdpSocket},
    os::unix::fs::FileTypeExt,
    path::Path,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering::Relaxed},
    thread::JoinHandle,
};

/// The taps, in the order of the configuration.
#[derive(Default)]
pub struct Taps {
    list: Vec<Tap>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    orders: Arc<Orders>,
}

struct Tap {
    service: ProxyId,
    name: Arc<str>,
    port: Option<u16>,
    target: TapTarget,
    span: Span,
    queue: Arc<Queue>,
    state: Arc<Mutex<TapState>>,
    /// Until its thread has it.
    end: Mutex<Option<End>>,
}

/// What a tap is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TapState {
    /// It waits for somebody to read.
    #[default]
    Waiting,
    /// It has a reader.
    Writing,
    /// It could not write, and tries again.
    Failed(String),
}

/// A tap as operators see it.
#[derive(Clone, Debug)]
pub struct TapView {
    /// The name of the service.
    pub name: Arc<str>,
    /// Where the copy goes.
    pub target: String,
    /// What it is doing.
    pub state: TapState,
    /// Connections and exchanges whose copy has begun.
    pub begun: u64,
    /// Those that were not copied: nobody read, or there was no room.
    pub missed: u64,
    /// Packets written.
    pub packets: u64,
    /// Bytes of traffic written.
    pub written: u64,
    /// Bytes of traffic that are missing in the copy.
    pub dropped: u64,
    /// How often there was a reader, and how often it was lost or an end could not be opened.
    pub opened: u64,
    /// See `opened`.
    pub failed: u64,
    /// Bytes of memory that wait to be written.
    pub used: u64,
    /// `tap-buffer`.
    pub limit: u64,
}

impl Taps {
    /// The taps of a configuration, not open yet. What can be seen to be wrong is reported; paths are looked at from where the
    /// process will be.
    pub(crate) fn build(config: &Config, diagnostics: &mut Diagnostics) -> Taps {
        let mut list = Vec::new();
        for (service, proxy) in config.proxies.entries() {
            let Some(settings) = &proxy.service else { continue };
            let Some(tap) = &settings.tap else { continue };
            if config.global.chroot.is_none()
                && let Err((what, hint)) = look(&tap.value)
            {
                diagnostics.error(tap.span, what).hint(hint);
            }
            list.push(Tap {
                service,
                name: proxy.name.as_str().into(),
                port: settings.tap_port,
                target: tap.value.clone(),
                span: tap.span,
                queue: Arc::new(Queue::new(usize::try_from(settings.tap_buffer).unwrap_or(usize::MAX))),
                state: Arc::default(),
                end: Mutex::default(),
            });
        }
        Taps { list, ..Taps::default() }
    }
    /// Opens network interfaces, which takes privileges; what fails, with its place in the configuration.
    pub(crate) fn open_interfaces(&self) -> Vec<(Span, String)> {
        self.open_those(|target| matches!(target, TapTarget::Interface { .. }))
    }
    /// Opens files and listening sockets; what fails, with its place in the configuration.
    pub(crate) fn open(&self) -> Vec<(Span, String)> {
        self.open_those(|target| !matches!(target, TapTarget::Interface { .. }))
    }
    fn open_those(&self, are: impl Fn(&TapTarget) -> bool) -> Vec<(Span, String)> {
        let mut failed = Vec::new();
        for tap in self.list.iter().filter(|tap| are(&tap.target)) {
            match begin(&tap.target) {
                Ok(end) => *tap.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(end),
                Err(e) => failed.push((tap.span, format!("cannot write the copy to {}: {e}", told(&tap.target)))),
            }
        }
        failed
    }
    /// Starts a thread for each tap. `tell` writes a line about the process to its log, with a syslog severity.
    pub(crate) fn start(&self, tell: impl Fn(u8, String) + Clone + Send + 'static) -> io::Result<()> {
        for tap in &self.list {
            let Some(mut end) = tap.end.lock().unwrap_or_else(PoisonError::into_inner).take() else { continue };
            let mut head = Vec::new();
            end.format().begin(&tap.name, &mut head);
            let is_open = end.check().is_ok();
            let mut writer = thread::Writer {
                head,
                name: tap.name.clone(),
                target: told(&tap.target),
                end,
                queue: tap.queue.clone(),
                state: tap.state.clone(),
                orders: self.orders.clone(),
            };
            // A file is ready before the first connection is. If it cannot be written, the thread says so.
            if is_open {
                let _ = writer.begin();
            }
            let tell = tell.clone();
            let thread = std::thread::Builder::new().name("tap".into()).spawn(move || writer.run(&tell))?;
            self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        Ok(())
    }
    /// The tap of a service, for a copy that begins.
    pub(crate) fn due(&self, service: ProxyId) -> Option<Due> {
        let tap = self.list.iter().find(|tap| tap.service == service)?;
        Some(Due { queue: tap.queue.clone(), port: tap.port })
    }
    /// The process accepts no more connections: the next one has the readers that come.
    pub(crate) fn drain(&self) {
        self.orders.drains.store(true, Relaxed);
    }
    /// Writes what waits, as far as readers take it in time, and ends the threads.
    pub(crate) fn end(&self) {
        self.list.iter().for_each(|tap| tap.queue.end());
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // The panic hook has reported it already.
            let _ = thread.join();
        }
    }
    /// The taps as they are now.
    pub fn view(&self) -> Vec<TapView> {
        self.list.iter().map(view).collect()
    }
}

fn view(tap: &Tap) -> TapView {
    let TapCounts { begun, missed, written, packets, dropped, opened, failed } = &tap.queue.counts;
    TapView {
        name: tap.name.clone(),
        target: told(&tap.target),
        state: tap.state.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        begun: begun.load(Relaxed),
        missed: missed.load(Relaxed),
        packets: packets.load(Relaxed),
        written: written.load(Relaxed),
        dropped: dropped.load(Relaxed),
        opened: opened.load(Relaxed),
        failed: failed.load(Relaxed),
        used: tap.queue.used() as u64,
        limit: tap.queue.limit as u64,
    }
}

/// What is wrong with a path, and what to do about it.
fn look(target: &TapTarget) -> Result<(), (String, &'static str)> {
    match target {
        TapTarget::File { path, .. } => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            match fs::metadata(folder) {
                Ok(found) if found.is_dir() => Ok(()),
                Ok(_) => Err((format!("'{}' is not a folder", folder.display()), "name a file in one")),
                Err(e) => Err((
                    format!("cannot write into the folder '{}': {e}", folder.display()),
                    "make it, or name another",
                )),
            }
        }
        TapTarget::Fifo(path) => match fs::metadata(path) {
            Ok(found) if found.file_type().is_fifo() => Ok(()),
            Ok(_) => Err((format!("'{}' is not a named pipe", path.display()), "for a file, write 'tap file'")),
            Err(e) => Err((format!("cannot open the named pipe '{}': {e}", path.display()), "make it with mkfifo")),
        },
        TapTarget::Connect(_) | TapTarget::Listen(_) => Ok(()),
        TapTarget::Interface { name, .. } => match has_interface(name) {
            Ok(()) => Ok(()),
            Err(e) => Err((format!("cannot use the network interface '{name}': {e}"), "'ip link' lists them")),
        },
    }
}

fn has_interface(name: &str) -> io::Result<()> {
    let any = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    rustix::net::netdevice::name_to_index(any, name)?;
    Ok(())
}

fn begin(target: &TapTarget) -> io::Result<End> {
    Ok(match target {
        TapTarget::File { path, rotate, keep } => {
            let mut files = Files::new(path, *rotate, *keep);
            files.open()?;
            End::Files(files)
        }
        TapTarget::Fifo(path) => End::Stream(Stream::fifo(path.clone())),
        TapTarget::Connect(address) => End::Stream(Stream::connect(*address)),
        TapTarget::Listen(address) => End::Stream(Stream::listen(*address)?),
        TapTarget::Interface { name, to } => End::Link(Link::new(name, *to)?),
    })
}

/// Where a copy goes, as its line says it.
fn told(target: &TapTarget) -> String {
    match target {
        TapTarget::File { path, .. } => format!("file {}", path.display()),
        TapTarget::Fifo(path) => format!("fifo {}", path.display()),
        TapTarget::Connect(address) => format!("pcap-over-ip connect {address}"),
        TapTarget::Listen(address) => format!("pcap-over-ip listen {address}"),
        TapTarget::Interface { name, to } => {
            let [a, b, c, d, e, f] = to;
            format!("interface {name} mac {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
        }
    }
}
