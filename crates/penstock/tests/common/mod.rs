//! What tests of the real binary share.
#![allow(dead_code, reason = "each test binary uses its part")]

pub mod browser;
pub mod crowd;
pub mod doubled;
pub mod running;
pub mod study;

use std::{
    net::TcpListener,
    path::PathBuf,
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

/// A directory of its own for each test, removed at its end.
pub struct Place(pub PathBuf);

impl Place {
    pub fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("penstock-cli-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Place(path)
    }
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.0.join(name), text).unwrap();
        self.0.join(name)
    }
    /// A file with a certificate for localhost and its key, made when it is first asked for.
    pub fn certificate(&self) -> PathBuf {
        let [key, certificate, both] = ["key.pem", "cert.pem", "site.pem"].map(|name| self.0.join(name));
        if !both.exists() {
            let made = Command::new("openssl")
                .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
                .args(["-subj", "/CN=localhost", "-keyout"])
                .arg(&key)
                .arg("-out")
                .arg(&certificate)
                .output()
                .expect("openssl runs");
            assert!(made.status.success());
            let parts = [certificate, key].map(|part| std::fs::read(part).unwrap());
            std::fs::write(&both, parts.concat()).unwrap();
        }
        both
    }
    /// A configuration that answers every request on the port by itself.
    pub fn config(&self, port: u16) -> PathBuf {
        self.file(
            "ok.cfg",
            &format!(
                "global\n  maxconn 100\n  nbthread 1\ndefaults\n  mode http\n  timeout client 5s\n  timeout server 5s\n  \
                 timeout connect 5s\nfrontend a\n  bind 127.0.0.1:{port}\n  monitor-uri /alive\n"
            ),
        )
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn penstock() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_penstock"));
    command.stdin(Stdio::null());
    command
}

pub fn run(arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> Output {
    penstock().args(arguments.iter().map(|a| a.as_ref())).output().unwrap()
}

/// Bytes that differ from place to place.
pub fn bytes(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at * 31 % 251 + at / 4096) as u8).collect()
}

/// A port below the kernel's ephemeral range, so that no connection gets it before it is bound; never the same one twice.
pub fn free_port() -> u16 {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    loop {
        let given = GIVEN.fetch_add(1, Ordering::Relaxed);
        let port = 20_000 + ((std::process::id().wrapping_mul(61) + given) % 12_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
