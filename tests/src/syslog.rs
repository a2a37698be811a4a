//! A syslog receiver, over UDP and over a unix datagram socket.

use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// Keeps every line the proxy logs, in order of arrival.
pub struct Syslog {
    /// Where the UDP side listens.
    pub address: SocketAddr,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Syslog {
    /// Starts both receivers. Their threads end with the process: a scenario's few datagrams cost nothing.
    pub fn start(unix_path: &Path) -> std::io::Result<Self> {
        let udp = UdpSocket::bind("127.0.0.1:0")?;
        let unix = UnixDatagram::bind(unix_path)?;
        let address = udp.local_addr()?;
        let lines = Arc::new(Mutex::new(Vec::new()));
        receive_into(Arc::downgrade(&lines), move |buffer| udp.recv(buffer));
        receive_into(Arc::downgrade(&lines), move |buffer| unix.recv(buffer));
        Ok(Self { address, lines })
    }

    /// Everything received so far.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().expect("no holder of this lock panics").clone()
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
        while let (Ok(n), Some(lines)) = (receive(&mut buffer), lines.upgrade()) {
            let text = String::from_utf8_lossy(&buffer[..n]).trim_end().to_owned();
            lines.lock().expect("no holder of this lock panics").push(text);
        }
    });
}
