//! The connection between a worker and its master, on the worker's side: a socket that transfers listening sockets,
//! then clients of the master's command socket, and whose end tells the worker that the master is gone. The master's
//! side is `master::worker`.

use crate::version;
use penstock_config::model::Source;
use penstock_proxy::{Namespaces, handover};
use penstock_sys::{Signal, Spares};
use rustix::{
    event::{PollFd, PollFlags, poll},
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
        recvmsg, sendmsg,
    },
};
use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut, IsTerminal, Read, Seek, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// The environment variable that marks a worker: the numbers of its descriptors and a word of [`Occasion`], separated
/// by colons.
pub const VARIABLE: &str = "PENSTOCK_WORKER";

/// The word in [`VARIABLE`] that says that the original standard error is a terminal.
pub const TERMINAL: &str = "terminal";

/// Why a worker is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// The master starts, and the worker with it.
    Start,
    /// For another configuration; the previous worker serves until this one does, and then finishes.
    Reload,
    /// To replace a worker that is gone.
    Replacement,
}

impl Occasion {
    /// The occasion's word in the environment variable.
    pub fn word(self) -> &'static str {
        match self {
            Occasion::Start => "start",
            Occasion::Reload => "reload",
            Occasion::Replacement => "replacement",
        }
    }
}

/// Whether this process was started by a master.
pub fn is_worker() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// Whether standard error is read on a terminal. Until it serves, a worker writes through its master.
pub fn is_on_terminal() -> bool {
    match std::env::var(VARIABLE) {
        Ok(told) => told.ends_with(TERMINAL),
        Err(_) => io::stderr().is_terminal(),
    }
}

pub use penstock_config::model::StatsLevel as Level;
pub use penstock_control::SeverityOutput;

/// The word for a level in configurations.
pub fn word(level: Level) -> &'static str {
    match level {
        Level::User => "user",
        Level::Operator => "operator",
        Level::Admin => "admin",
    }
}

/// What a client of the master may do on a worker, and the format of answers to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    pub level: Level,
    pub severity: SeverityOutput,
    pub expert: bool,
    pub experimental: bool,
}

impl Rights {
    const LEVELS: [Level; 3] = [Level::User, Level::Operator, Level::Admin];
    const SEVERITIES: [SeverityOutput; 3] = [SeverityOutput::None, SeverityOutput::Number, SeverityOutput::Text];

    /// The initial rights of a session with this level.
    pub fn new(level: Level) -> Rights {
        Rights { level, severity: SeverityOutput::None, expert: false, experimental: false }
    }

    /// The form in which they are sent over the socket.
    fn to_bytes(self) -> [u8; 4] {
        [self.level as u8, self.severity as u8, self.expert.into(), self.experimental.into()]
    }

    fn from_bytes([level, severity, expert, experimental]: [u8; 4]) -> Option<Rights> {
        let level = Rights::LEVELS.into_iter().find(|known| *known as u8 == level)?;
        let severity = Rights::SEVERITIES.into_iter().find(|known| *known as u8 == severity)?;
        Some(Rights { level, severity, expert: expert != 0, experimental: experimental != 0 })
    }
}

/// Passes a new client to the worker behind `socket`; returns the socket to that client's conversation.
///
/// # Errors
///
/// If the worker is gone.
pub fn introduce(socket: &UnixStream, rights: Rights) -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    let descriptors = [theirs.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let bytes = rights.to_bytes();
    // A worker that does not read must not block the client for ever.
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::io::retry_on_intr(|| sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, flags))?;
    Ok(ours)
}

/// The worker's side.
#[derive(Debug)]
pub struct Tie {
    socket: UnixStream,
    occasion: Occasion,
    /// The master's standard error, until this worker serves.
    stderr: Option<OwnedFd>,
    configuration: File,
    /// The file in which the previous worker keeps its counters, and the file for those of this one.
    counters: Option<(File, File)>,
}

impl Tie {
    /// Takes what the master left in the environment.
    ///
    /// # Errors
    ///
    /// If it is not there.
    pub fn received() -> io::Result<Tie> {
        let told = std::env::var(VARIABLE).map_err(|_| io::ErrorKind::NotFound)?;
        let mut words = told.split(':');
        let mut descriptor = || {
            let number = words.next().and_then(|n| n.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
            let descriptor = penstock_sys::adopt(number)?;
            rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC)?;
            io::Result::Ok(descriptor)
        };
        let (socket, stderr, configuration) = (descriptor()?, descriptor()?, descriptor()?);
        let counters = (descriptor()?.into(), descriptor()?.into());
        let occasion = [Occasion::Start, Occasion::Reload, Occasion::Replacement]
            .into_iter()
            .find(|occasion| words.clone().next() == Some(occasion.word()));
        let occasion = occasion.ok_or(io::ErrorKind::InvalidData)?;
        Ok(Tie {
            socket: socket.into(),
            occasion,
            stderr: Some(stderr),
            configuration: configuration.into(),
            counters: Some(counters),
        })
    }

    /// Takes the file in which the previous worker keeps its counters, and the file for those of this one.
    pub fn counters(&mut self) -> Option<(File, File)> {
        self.counters.take()
    }

    /// Why this worker was started.
    pub fn occasion(&self) -> Occasion {
        self.occasion
    }

    /// The socket over which listening sockets are transferred.
    pub fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// The configuration as the master has read it.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub fn sources(&self) -> io::Result<Vec<Source>> {
        let mut bytes = Vec::new();
        let mut file = &self.configuration;
        // All workers with this configuration share the file's position.
        file.rewind()?;
        file.read_to_end(&mut bytes)?;
        unpack(&bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Tells the master that this worker serves, and with which sockets; from here on its messages go where the
    /// master's go.
    ///
    /// # Errors
    ///
    /// If the master is gone.
    pub fn report(&mut self, sockets: &[OwnedFd]) -> io::Result<()> {
        if let Some(stderr) = self.stderr.take() {
            rustix::stdio::dup2_stderr(&stderr)?;
        }
        handover::give(&self.socket, sockets, &Namespaces::default())?;
        let version = version::reported();
        let version = version.as_bytes();
        self.socket.write_all(&[u8::try_from(version.len()).expect("a version is short")])?;
        self.socket.write_all(version)
    }

    /// Starts a thread that receives what the master sends: clients of its command socket, for `serve`. The returned
    /// flag becomes true once the master is gone. A client for whom the process has no descriptor takes a spare one.
    ///
    /// # Errors
    ///
    /// If there is no thread for it.
    pub fn watch(
        self,
        spares: Arc<Spares>,
        mut serve: impl FnMut(UnixStream, Rights) + Send + 'static,
    ) -> io::Result<Arc<AtomicBool>> {
        let gone = Arc::new(AtomicBool::new(false));
        let flag = gone.clone();
        std::thread::Builder::new().name("master".into()).spawn(move || {
            while let Ok(Some((client, rights))) = next_client(&self.socket, &spares) {
                serve(client, rights);
            }
            flag.store(true, Ordering::Release);
            // The main thread waits for signals, and may not look at the flag for a second.
            let _ = penstock_sys::kill(std::process::id() as i32, Signal::Usr1.number());
        })?;
        Ok(gone)
    }
}

/// The next client; `None` at the end, and for anything that a master does not send.
fn next_client(socket: &UnixStream, spares: &Spares) -> io::Result<Option<(UnixStream, Rights)>> {
    loop {
        let mut waiting = [PollFd::new(socket, PollFlags::IN)];
        rustix::io::retry_on_intr(|| poll(&mut waiting, None))?;
        let client = peek(socket, spares)?;
        let rights = receive(socket)?;
        spares.refill();
        match (rights, client) {
            (Some(rights), Some(client)) => return Ok(Some((client, rights))),
            // There was no descriptor for it. The client sees its connection closed; the master is still there.
            (Some(_), None) => {}
            (None, _) => return Ok(None),
        }
    }
}

/// The client's socket, out of an announcement that stays in the queue: the kernel leaves out a descriptor for which the
/// process has no room, and between giving up a spare one and the call another thread may take that.
fn peek(socket: &UnixStream, spares: &Spares) -> io::Result<Option<UnixStream>> {
    loop {
        let has_room = spares.spend();
        let mut byte = [0];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::PEEK;
        rustix::io::retry_on_intr(|| recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, flags))?;
        let client = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        if client.is_some() || !has_room {
            return Ok(client.map(UnixStream::from));
        }
    }
}

/// Takes the announcement of a client out of the queue, without the client's socket.
fn receive(mut socket: &UnixStream) -> io::Result<Option<Rights>> {
    let mut bytes = [0; 4];
    match socket.read_exact(&mut bytes) {
        Ok(()) => Ok(Rights::from_bytes(bytes)),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(e) => Err(e),
    }
}

/// Encodes names and texts, each after its length.
pub fn pack(sources: &[Source]) -> Vec<u8> {
    let texts = sources.iter().flat_map(|source| [&source.name, &source.text]);
    texts.flat_map(|text| [&(text.len() as u64).to_ne_bytes()[..], text.as_bytes()].concat()).collect()
}

/// Decodes the output of [`pack`].
fn unpack(mut bytes: &[u8]) -> Option<Vec<Source>> {
    let mut text = || {
        let (length, rest) = bytes.split_first_chunk()?;
        let (text, rest) = rest.split_at_checked(u64::from_ne_bytes(*length).try_into().ok()?)?;
        bytes = rest;
        String::from_utf8(text.to_vec()).ok()
    };
    let mut sources = Vec::new();
    while let Some(name) = text() {
        sources.push(Source { name, text: text()? });
    }
    bytes.is_empty().then_some(sources)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_arrives_with_its_rights() {
        let (master, worker) = UnixStream::pair().unwrap();
        let rights = Rights { level: Level::User, severity: SeverityOutput::Text, expert: true, experimental: false };
        // A client whose descriptor was lost on the way does not end it.
        (&master).write_all(&rights.to_bytes()).unwrap();
        let mut ours = introduce(&master, rights).unwrap();
        let spares = Spares::new(1);
        let (mut theirs, arrived) = next_client(&worker, &spares).unwrap().unwrap();
        assert_eq!(arrived, rights);
        ours.write_all(b"help").unwrap();
        drop(ours);
        let mut said = String::new();
        theirs.read_to_string(&mut said).unwrap();
        assert_eq!(said, "help");
        for bytes in [&b""[..], b"\0", b"\x09\0\0\0"] {
            let (mut master, worker) = UnixStream::pair().unwrap();
            master.write_all(bytes).unwrap();
            drop(master);
            assert!(next_client(&worker, &spares).unwrap().is_none());
        }
    }

    #[test]
    fn a_configuration_arrives_as_it_was_read() {
        let source = |name: &str, text: &[u8]| Source::new(name, text);
        let sources = [source("a.cfg", b"global\n\xff\n"), source("", b""), source("c", "ü".as_bytes())];
        let packed = pack(&sources);
        let unpacked = unpack(&packed).unwrap();
        let texts = |sources: &[Source]| sources.iter().map(|s| (s.name.clone(), s.text.clone())).collect::<Vec<_>>();
        assert_eq!(texts(&unpacked), texts(&sources));
        assert!((1..packed.len()).filter_map(|end| unpack(&packed[..end])).all(|some| some.len() < sources.len()));
    }
}
