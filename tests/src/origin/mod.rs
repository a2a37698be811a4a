//! Origins: servers behind the proxy that write down the bytes they receive and answer as told.

mod answer;
mod spop;

use std::collections::HashMap;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use socket2::{Domain, Socket, Type};

pub use answer::{Answer, default_answer, pattern, raw_message};
pub use spop::Agent;

use crate::Failure;
use crate::message::{Inbox, Message, Outcome};
use crate::wire::{Ending, Verb, Wire, play, quote};

/// What the origins of one run received.
#[derive(Clone, Default)]
pub struct Recorder {
    inner: Arc<Mutex<Record>>,
}

#[derive(Default)]
struct Record {
    lines: Vec<String>,
    scripted: Vec<String>,
    scripts_running: usize,
    raw: Vec<Arc<Mutex<Vec<u8>>>>,
}

impl Recorder {
    fn note(&self, line: String) {
        self.inner.lock().expect("no holder of this lock panics").lines.push(line);
    }

    fn notes(&self, lines: Vec<String>) {
        self.inner.lock().expect("no holder of this lock panics").lines.extend(lines);
    }

    /// A script's own lines: they come when the connection ends, whichever step that falls into.
    fn note_scripted(&self, line: String) {
        self.inner.lock().expect("no holder of this lock panics").scripted.push(line);
    }

    fn count_scripts(&self, change: isize) {
        let mut record = self.inner.lock().expect("no holder of this lock panics");
        record.scripts_running = record.scripts_running.saturating_add_signed(change);
    }

    /// What scripted origins wrote down, once their scripts have ended or `patience` is over.
    pub fn scripted(&self, patience: Duration) -> Vec<String> {
        let end = Instant::now() + patience;
        loop {
            let record = self.inner.lock().expect("no holder of this lock panics");
            if record.scripts_running == 0 || Instant::now() > end {
                return record.scripted.clone();
            }
            drop(record);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// A new connection's place for its raw bytes, and its number from 1.
    fn connection(&self) -> (Arc<Mutex<Vec<u8>>>, usize) {
        let mut record = self.inner.lock().expect("no holder of this lock panics");
        let bytes = Arc::new(Mutex::new(Vec::new()));
        record.raw.push(Arc::clone(&bytes));
        (bytes, record.raw.len())
    }

    /// The transcript lines since the last call.
    pub fn drain(&self) -> Vec<String> {
        std::mem::take(&mut self.inner.lock().expect("no holder of this lock panics").lines)
    }

    /// The bytes of every connection so far, undecoded.
    pub fn raw(&self) -> Vec<Vec<u8>> {
        let record = self.inner.lock().expect("no holder of this lock panics");
        record.raw.iter().map(|c| c.lock().expect("no holder of this lock panics").clone()).collect()
    }
}

/// How an origin behaves.
#[derive(Default)]
pub struct Behaviour {
    /// Answers told by the scenario, in order; several for one target are given in turn, the last one from then on.
    pub answers: Vec<Answer>,
    /// Speaks TLS with this configuration.
    pub tls: Option<Arc<ServerConfig>>,
    /// Plays this script on each connection instead of speaking HTTP.
    pub raw: Option<Vec<Verb>>,
    /// Is an agent that speaks SPOP.
    pub agent: Option<Agent>,
    /// Writes down health checks too, and on which connection each request came.
    pub verbose: bool,
}

/// A running origin.
pub struct Origin {
    /// Its name, which it also sends as `X-Origin`.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
    hold: Socket,
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    behaviour: Behaviour,
    recorder: Recorder,
    stopping: AtomicBool,
    /// Second handles of the connections that [`Origin::stop`] ends. A connection that ends itself leaves first: its
    /// FIN or RST goes out with its last handle.
    open: Mutex<HashMap<RawFd, TcpStream>>,
    hits: Mutex<HashMap<String, usize>>,
}

impl Origin {
    /// Starts an origin on a free loopback port.
    pub fn start(name: &str, behaviour: Behaviour, recorder: Recorder) -> Result<Self, Failure> {
        let failed = |e: std::io::Error| format!("origin {name}: {e}");
        let reserved = crate::port::Reserved::loopback().map_err(failed)?;
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            behaviour,
            recorder,
            stopping: AtomicBool::new(true),
            open: Mutex::default(),
            hits: Mutex::default(),
        });
        let origin = Self { name: name.to_owned(), address: reserved.address, hold: reserved.into_socket(), shared };
        origin.listen().map_err(failed)?;
        Ok(origin)
    }

    /// Listens again after [`Origin::stop`].
    pub fn listen(&self) -> std::io::Result<()> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        socket.bind(&self.address.into())?;
        socket.listen(1024)?;
        let listener: std::net::TcpListener = socket.into();
        self.shared.stopping.store(false, Ordering::SeqCst);
        let shared = Arc::clone(&self.shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.stopping.load(Ordering::SeqCst) {
                    return;
                }
                if let Ok(stream) = stream {
                    let shared = Arc::clone(&shared);
                    std::thread::spawn(move || shared.serve(stream));
                }
            }
        });
        Ok(())
    }

    /// Stops listening, so that connecting is refused, and ends its connections.
    pub fn stop(&self) {
        if self.shared.stopping.swap(true, Ordering::SeqCst) {
            return;
        }
        // The accepting thread sits in accept(2): one connection lets it see the flag and drop the listener.
        let _ = TcpStream::connect(self.address);
        for (_, stream) in self.shared.open.lock().expect("no holder of this lock panics").drain() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        while crate::port::is_listening(self.address.port()) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.stop();
        let _ = &self.hold;
    }
}

impl Shared {
    fn serve(&self, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let id = stream.as_raw_fd();
        if self.behaviour.raw.is_none()
            && let Ok(clone) = stream.try_clone()
        {
            self.open.lock().expect("no holder of this lock panics").insert(id, clone);
        }
        let wire = match &self.behaviour.tls {
            None => Wire::Plain(stream),
            Some(config) => match ServerConnection::new(Arc::clone(config)) {
                Ok(connection) => Wire::TlsServer(Box::new(StreamOwned::new(connection, stream))),
                Err(_) => return,
            },
        };
        let _ = wire.set_read_timeout(Duration::from_secs(15));
        if let Some(agent) = &self.behaviour.agent {
            let mut wire = wire;
            let name = &self.name;
            // HAProxy may close it whenever it likes.
            agent.serve(&mut wire, &mut |line| self.recorder.note(format!("{name}> {line}")));
            self.open.lock().expect("no holder of this lock panics").remove(&id);
            return;
        }
        match &self.behaviour.raw {
            Some(script) => {
                let name = &self.name;
                self.recorder.count_scripts(1);
                play(wire, script, &mut |line| self.recorder.note_scripted(format!("{name}> {line}")));
                self.recorder.count_scripts(-1);
            }
            None => {
                let (wire, last) = self.serve_http(wire);
                self.open.lock().expect("no holder of this lock panics").remove(&id);
                let name = &self.name;
                play(wire, &last, &mut |line| self.recorder.note_scripted(format!("{name}> {line}")));
            }
        }
    }

    /// Serves requests until the connection has no further use; gives it back with what is left to do on it.
    fn serve_http(&self, wire: Wire) -> (Wire, Vec<Verb>) {
        let (raw, number) = self.recorder.connection();
        let mut inbox = Inbox::new(wire, Some(raw));
        let prefix =
            if self.behaviour.verbose { format!("{}#{number}> ", self.name) } else { format!("{}> ", self.name) };
        if let Some(header) = take_proxy_header(&mut inbox) {
            self.recorder.note(format!("{prefix}{header}"));
        }
        loop {
            let mut request = match inbox.head() {
                Ok(request) => request,
                Err(Outcome::Nothing(bytes, Ending::Closed)) if bytes.is_empty() => break,
                Err(Outcome::Nothing(bytes, ending)) => {
                    if !bytes.is_empty() {
                        self.recorder.note(format!("{prefix}incomplete {}, {}", quote(&bytes), ending.word()));
                    }
                    break;
                }
                Err(Outcome::Message(_)) => unreachable!("head() gives a message only as Ok"),
            };
            if request.has_token("expect", "100-continue") {
                let _ = inbox.wire.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").and_then(|()| inbox.wire.flush());
            }
            inbox.body(&mut request, false);
            if self.behaviour.verbose || !is_check(&request) {
                self.recorder.notes(request.lines(&prefix));
            }
            if request.cut.is_some() {
                break;
            }
            let answer = self.answer(&request);
            let keep = answer.keep_open(&request);
            if !answer.give(&mut inbox, &request) {
                break;
            }
            if !answer.then().is_empty() {
                return (inbox.wire, answer.then().to_vec());
            }
            if !keep {
                break;
            }
        }
        (inbox.wire, Vec::new())
    }

    /// The told answer for this target, else the built-in one.
    fn answer(&self, request: &Message) -> Answer {
        let target = request.start.split(' ').nth(1).unwrap_or_default();
        let told: Vec<&Answer> = self.behaviour.answers.iter().filter(|a| a.is_for(target)).collect();
        if told.is_empty() {
            return default_answer(&self.name, request);
        }
        let mut hits = self.hits.lock().expect("no holder of this lock panics");
        let hit = hits.entry(target.to_owned()).or_default();
        *hit += 1;
        told[(*hit - 1).min(told.len() - 1)].clone()
    }
}

/// Health checks come when they come; writing them down would make transcripts differ from run to run.
fn is_check(request: &Message) -> bool {
    request.start.starts_with("OPTIONS ") || request.start.contains(" /health")
}

/// Consumes a PROXY protocol header if the connection starts with one, and describes it.
fn take_proxy_header(inbox: &mut Inbox) -> Option<String> {
    const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
    // Only a P or CR can begin one: anything else must not wait for more bytes than a request may have.
    let first = inbox.peek(1).first().copied();
    match first {
        Some(b'P') if inbox.peek(6) == b"PROXY " => {
            let line = inbox.take_line().ok()?;
            Some(format!("proxy v1 {}", String::from_utf8_lossy(&line)))
        }
        Some(b'\r') if inbox.peek(12) == V2 => {
            let (head, _) = inbox.take(16);
            let length = usize::from(u16::from_be_bytes([head[14], head[15]]));
            let (rest, _) = inbox.take(length);
            let command = if head[12] & 0xf == 0 { "LOCAL" } else { "PROXY" };
            let (addresses, tlvs) = match head[13] {
                0x11 if rest.len() >= 12 => {
                    let port = |at: usize| u16::from_be_bytes([rest[at], rest[at + 1]]);
                    let address =
                        |at: usize| std::net::Ipv4Addr::new(rest[at], rest[at + 1], rest[at + 2], rest[at + 3]);
                    (format!(" {} {} {} {}", address(0), address(4), port(8), port(10)), &rest[12..])
                }
                _ => (String::new(), &rest[..]),
            };
            Some(format!("proxy v2 {command} family {:02x}{addresses} tlv {}", head[13], quote(tlvs)))
        }
        _ => None,
    }
}
