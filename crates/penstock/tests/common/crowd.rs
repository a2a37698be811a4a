//! Clients of `monitor-uri /alive`, one at a time and in crowds.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::TcpStream,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixStream},
    },
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

pub trait Client: Read + Write + Send {}
impl<T: Read + Write + Send> Client for T {}

/// A connection to `ADDRESS:PORT`, `/PATH` or `abns@NAME`.
pub fn dial(address: &str) -> io::Result<Box<dyn Client>> {
    let patience = Some(Duration::from_secs(10));
    if let Some(name) = address.strip_prefix("abns@") {
        let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(format!("{name:\0<107}"))?)?;
        stream.set_read_timeout(patience)?;
        return Ok(Box::new(stream));
    }
    if address.starts_with('/') {
        let stream = UnixStream::connect(address)?;
        stream.set_read_timeout(patience)?;
        return Ok(Box::new(stream));
    }
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(patience)?;
    Ok(Box::new(stream))
}

/// Connected, with its request on the way.
pub fn asking(address: &str) -> io::Result<Box<dyn Client>> {
    let mut stream = dial(address)?;
    stream.write_all(b"GET /alive HTTP/1.0\r\n\r\n")?;
    Ok(stream)
}

/// Waits for the answer, which must be 200.
pub fn answer(mut stream: Box<dyn Client>) -> io::Result<()> {
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if answer.contains(" 200 ") { Ok(()) } else { Err(io::Error::other(format!("closed after {:?}", answer))) }
}

/// Whether a connection to the port is made and its request answered.
pub fn is_alive(port: u16) -> bool {
    asking(&format!("127.0.0.1:{port}")).and_then(answer).is_ok()
}

/// Stops the threads when it is dropped, so also when a test fails; otherwise they could not be joined.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Clients that connect as fast as they can, and what became of them.
pub struct Crowd {
    pub answered: usize,
    pub lost: BTreeMap<String, usize>,
}

impl Crowd {
    /// Keeps `clients` of them busy on the addresses while `act` runs.
    pub fn around(clients: usize, addresses: &[String], act: impl FnOnce()) -> Crowd {
        let enough = AtomicBool::new(false);
        let client = |number: usize| {
            let mut crowd = Crowd { answered: 0, lost: BTreeMap::new() };
            let address = &addresses[number % addresses.len()];
            while !enough.load(Relaxed) {
                match asking(address).and_then(answer) {
                    Ok(()) => crowd.answered += 1,
                    Err(e) => *crowd.lost.entry(format!("{address}: {e}")).or_default() += 1,
                }
            }
            crowd
        };
        std::thread::scope(|scope| {
            let end = AtEnd(&enough);
            let clients: Vec<_> = (0..clients).map(|number| scope.spawn(move || client(number))).collect();
            act();
            drop(end);
            let mut all = Crowd { answered: 0, lost: BTreeMap::new() };
            for client in clients {
                let one = client.join().unwrap();
                all.answered += one.answered;
                one.lost.into_iter().for_each(|(why, n)| *all.lost.entry(why).or_default() += n);
            }
            all
        })
    }
    pub fn lost_nobody(&self) {
        eprintln!("{} answered, lost: {:?}", self.answered, self.lost);
        assert!(self.answered > 100 && self.lost.is_empty(), "{} answered, lost: {:?}", self.answered, self.lost);
    }
}
