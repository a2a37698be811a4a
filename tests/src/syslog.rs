//! A syslog receiver, over UDP and over a unix datagram socket.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// Keeps every line the proxy logs, in order of arrival.
pub struct Syslog {
    /// Where the UDP side listens.
    pub address: SocketAddr,
    unix_path: PathBuf,
    lines: Arc<Mutex<Vec<String>>>,
}

/// How often a receiver looks whether it still has an owner.
const LOOK: Duration = Duration::from_secs(1);

/// What no proxy logs.
const MARK: &[u8] = b"mark of the suite";

impl Syslog {
    /// Starts both receivers. Their threads end a second after their owner: a long search has tens of thousands of owners.
    pub fn start(unix_path: &Path) -> std::io::Result<Self> {
        let udp = UdpSocket::bind("127.0.0.1:0")?;
        let unix = UnixDatagram::bind(unix_path)?;
        udp.set_read_timeout(Some(LOOK))?;
        unix.set_read_timeout(Some(LOOK))?;
        let address = udp.local_addr()?;
        let lines = Arc::new(Mutex::new(Vec::new()));
        receive_into(Arc::downgrade(&lines), move |buffer| udp.recv(buffer));
        receive_into(Arc::downgrade(&lines), move |buffer| unix.recv(buffer));
        Ok(Self { address, unix_path: unix_path.to_owned(), lines })
    }

    /// Everything received so far.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().expect("no holder of this lock panics").clone()
    }

    /// Everything that was sent before this call: a datagram of our own behind it shows that it has been read.
    pub fn settled(&self) -> Vec<String> {
        let sent = UdpSocket::bind("127.0.0.1:0").and_then(|s| s.send_to(MARK, self.address)).is_ok();
        let sent_unix = UnixDatagram::unbound().and_then(|s| s.send_to(MARK, &self.unix_path)).is_ok();
        let marks = usize::from(sent) + usize::from(sent_unix);
        let is_mark = |line: &String| line.as_bytes() == MARK;
        let end = Instant::now() + Duration::from_secs(5);
        while self.lines().iter().filter(|l| is_mark(l)).count() < marks && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.lines().into_iter().filter(|l| !is_mark(l)).collect()
    }

    /// Waits until `count` lines have come, or `patience` is over; then gives what has come.
    pub fn wait_for(&self, count: usize, patience: Duration) -> Vec<String> {
        let end = Instant::now() + patience;
        loop {
            let lines = self.lines();
            if lines.len() >= count || Instant::now() >= end {
                return lines;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Appends each datagram to the lines until their owner is gone.
fn receive_into(
    lines: Weak<Mutex<Vec<String>>>,
    receive: impl Fn(&mut [u8]) -> std::io::Result<usize> + Send + 'static,
) {
    std::thread::spawn(move || {
        let mut buffer = vec![0; 65536];
        loop {
            let received = receive(&mut buffer);
            let Some(lines) = lines.upgrade() else { return };
            let length = match received {
                Ok(length) => length,
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => continue,
                Err(_) => return,
            };
            let text = String::from_utf8_lossy(&buffer[..length]).trim_end().to_owned();
            lines.lock().expect("no holder of this lock panics").push(text);
        }
    });
}
