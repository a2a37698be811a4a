//! A data plane in this process, raw origins that record what they are sent, and raw clients.
#![allow(dead_code, reason = "each test file uses its part")]

use penstock_config::{Diagnostics, Env, model::Source};
use penstock_proxy::{Handle, Inherited, Runtime, Services};
use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream, UdpSocket},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU16, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Nothing in these tests takes longer unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(10);

static NEXT_PORT: AtomicU16 = AtomicU16::new(0);

/// A port of this process's own.
pub fn port() -> u16 {
    // Test binaries run one after the other, tests of one binary at once.
    let base = 24_000 + (std::process::id() % 8) as u16 * 100;
    loop {
        let port = base + NEXT_PORT.fetch_add(1, Ordering::Relaxed) % 100;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A running proxy; stopped when dropped.
pub struct Proxy {
    pub handle: Handle,
}

impl Proxy {
    /// Starts with a configuration, which must be right.
    pub fn start(text: &str) -> Proxy {
        Proxy::start_with(text, Services::default())
    }
    /// Starts with a configuration, which must be right, and with these services.
    pub fn start_with(text: &str, services: Services) -> Proxy {
        let mut diagnostics = Diagnostics::default();
        let read = |path: &std::path::Path| std::fs::read(path);
        let source = Source { name: "test.cfg".into(), text: text.into() };
        let (config, found) = penstock_config::load([source], &Env { files: &read, ..Env::default() });
        assert!(!found.has_errors(), "{found:#?}");
        let runtime = Runtime::build(config, services, &mut diagnostics);
        let runtime = runtime.unwrap_or_else(|| panic!("{diagnostics:#?}"));
        let listeners = runtime.listen(Inherited::default()).unwrap();
        Proxy { handle: runtime.start(listeners).unwrap() }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.handle.stop();
        assert!(self.handle.wait_for(PATIENCE), "workers do not end");
    }
}

/// What an origin does with a connection.
pub type Behaviour = dyn Fn(&mut TcpStream, usize) + Send + Sync;

/// A server made of a function; counts its connections and keeps what it was sent.
pub struct Origin {
    pub port: u16,
    pub connections: Arc<AtomicUsize>,
    pub received: Arc<Mutex<Vec<u8>>>,
}

impl Origin {
    /// Runs `behave` for each connection, with the connection's number from 0.
    pub fn start(behave: impl Fn(&mut Recorder, usize) + Send + Sync + 'static) -> Origin {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let origin = Origin {
            port: listener.local_addr().unwrap().port(),
            connections: Arc::default(),
            received: Arc::default(),
        };
        let (connections, received) = (origin.connections.clone(), origin.received.clone());
        let behave = Arc::new(behave);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                let number = connections.fetch_add(1, Ordering::SeqCst);
                let (behave, received) = (behave.clone(), received.clone());
                std::thread::spawn(move || {
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    behave(&mut Recorder { stream, received }, number);
                });
            }
        });
        origin
    }
    /// Answers every request head with the same bytes, on connections that stay.
    pub fn fixed(response: &'static [u8]) -> Origin {
        Origin::start(move |recorder, _| {
            while recorder.head().is_some() {
                recorder.stream.write_all(response).unwrap();
            }
        })
    }
    pub fn seen(&self) -> String {
        String::from_utf8_lossy(&self.received.lock().unwrap()).into_owned()
    }
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// An origin's side of a connection.
pub struct Recorder {
    pub stream: TcpStream,
    received: Arc<Mutex<Vec<u8>>>,
}

impl Recorder {
    /// Reads a request head; `None` at the end.
    pub fn head(&mut self) -> Option<String> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.bytes(1)?[0]);
        }
        Some(String::from_utf8(head).unwrap())
    }
    /// Reads this many bytes; `None` at the end.
    pub fn bytes(&mut self, n: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; n];
        self.stream.read_exact(&mut bytes).ok()?;
        self.received.lock().unwrap().extend_from_slice(&bytes);
        Some(bytes)
    }
    /// Closes with a reset.
    pub fn reset(&self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
}

/// A raw client.
pub struct Client(pub TcpStream);

impl Client {
    pub fn connect(port: u16) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client(stream)
    }
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.0.write_all(bytes.as_ref()).unwrap();
        self
    }
    /// Reads to the end of a head and as much body as its length says.
    pub fn response(&mut self) -> String {
        let mut bytes = Vec::new();
        let mut byte = [0];
        while !bytes.ends_with(b"\r\n\r\n") {
            match self.0.read(&mut byte) {
                Ok(1) => bytes.push(byte[0]),
                other => panic!("{other:?} after {:?}", String::from_utf8_lossy(&bytes)),
            }
        }
        let head = String::from_utf8_lossy(&bytes).into_owned();
        let length = head.lines().find_map(|l| l.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        head + &String::from_utf8_lossy(&body)
    }
    /// Reads to the end, and says how it ended.
    pub fn rest(&mut self) -> (String, std::io::Result<()>) {
        let mut bytes = Vec::new();
        let result = self.0.read_to_end(&mut bytes).map(drop);
        (String::from_utf8_lossy(&bytes).into_owned(), result)
    }
    pub fn shut(&mut self) {
        self.0.shutdown(Shutdown::Write).unwrap();
    }
}

/// A syslog server.
pub struct Logs(UdpSocket);

impl Logs {
    pub fn start() -> Logs {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Logs(socket)
    }
    pub fn port(&self) -> u16 {
        self.0.local_addr().unwrap().port()
    }
    pub fn line(&self) -> String {
        let mut bytes = [0; 4096];
        let n = self.0.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..n]).into_owned()
    }
}
