//! A penstock that drives the double of a QuickAssist device.

use super::{Place, penstock, running::TERM};
use penstock_qat_double::Double;
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

pub struct Doubled {
    child: Child,
    _place: Place,
    metrics: u16,
}

impl Doubled {
    /// Starts with this configuration, and waits until it listens on the port. It shows its metrics on the other one.
    pub fn start(double: &Double, place: Place, config: &Path, [port, metrics]: [u16; 2], flags: &[&str]) -> Doubled {
        let mut command = penstock();
        command.env("LD_LIBRARY_PATH", double.path()).args(flags).arg("-f").arg(config);
        let child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut server = Doubled::of(child, place, metrics);
        let until = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < until, "it does not listen: {}", server.said());
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    /// That of a process which was started otherwise.
    pub fn of(child: Child, place: Place, metrics: u16) -> Doubled {
        Doubled { child, _place: place, metrics }
    }

    /// Ends the server and returns what it has written to standard error.
    pub fn said(&mut self) -> String {
        let _ = self.child.kill();
        let mut said = String::new();
        let _ = self.child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut said));
        said
    }

    /// The page of its metrics.
    pub fn metrics(&self) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.metrics)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        page
    }

    pub fn signal(&self, signal: i32) {
        penstock_sys::kill(self.child.id() as i32, signal).unwrap();
    }

    /// Waits for its end, which it has been told to come to.
    pub fn ends_within(&mut self, longest: Duration) -> String {
        let until = Instant::now() + longest;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
        self.said()
    }
}

impl Drop for Doubled {
    fn drop(&mut self) {
        // A master that is killed leaves its worker behind.
        let _ = penstock_sys::kill(self.child.id() as i32, TERM);
        std::thread::sleep(Duration::from_millis(if std::thread::panicking() { 1000 } else { 0 }));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What each process that used the double has left behind: nothing.
#[track_caller]
pub fn ended_well(double: &Double, processes: usize) {
    assert_eq!(double.violations(), [""; 0]);
    let log = double.log();
    let count = |start: &str| log.iter().filter(|line| line.starts_with(start)).count();
    assert_eq!((count("start"), count("stop")), (processes, processes), "{log:?}");
    assert_eq!(double.pinned(), Some(0), "{log:?}");
}
