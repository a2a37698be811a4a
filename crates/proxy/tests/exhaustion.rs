//! A process that has run out of descriptors still tells an operator about it. It is another process: this test binary,
//! told by the environment to be the victim, with few descriptors.

mod common;

use common::{Client, PATIENCE, port};
use penstock_proxy::{Service, ServiceRequest, ServiceResponse, Services};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::{
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

const VICTIM: &str = "PENSTOCK_TEST_PORTS";

struct Page;

impl Service for Page {
    fn log_name(&self) -> &'static str {
        "<PAGE>"
    }
    fn answer(&self, _: ServiceRequest<'_>) -> ServiceResponse {
        ServiceResponse { status: 200, fields: Vec::new(), body: b"statistics".to_vec(), stream: None }
    }
}

/// Not a test of its own: what the other one runs in another process.
#[test]
fn victim() {
    let Ok(ports) = std::env::var(VICTIM) else { return };
    let (web, admin) = ports.split_once(',').unwrap();
    setrlimit(Resource::Nofile, Rlimit { current: Some(60), maximum: Some(60) }).unwrap();
    let services = Services { stats: Some(Arc::new(Page)), named: Vec::new() };
    let _proxy = common::Proxy::start_with(
        &format!(
            "global\n nbthread 1\ndefaults\n mode http\n timeout client 20s\n timeout server 20s\n timeout connect 5s\n\
             frontend web\n bind 127.0.0.1:{web}\n http-request return status 200\n\
             frontend admin\n bind 127.0.0.1:{admin}\n stats enable\n stats uri /stats\n"
        ),
        services,
    );
    std::thread::sleep(PATIENCE * 3);
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn without_descriptors_the_statistics_still_answer_and_the_rest_recovers() {
    let (web, admin) = (port(), port());
    let _victim = Killed(
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "victim", "--nocapture"])
            .env(VICTIM, format!("{web},{admin}"))
            .stdout(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let begin = Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", admin)).is_err() {
        assert!(begin.elapsed() < PATIENCE, "the victim does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut crowd: Vec<Client> = (0..100).map(|_| Client::connect(web)).collect();
    std::thread::sleep(Duration::from_millis(500));
    for _ in 0..3 {
        let response = Client::connect(admin).send("GET /stats HTTP/1.1\r\nhost: x\r\n\r\n").response();
        assert!(response.ends_with("statistics"), "{response}");
    }
    // Those that were let in are served all the while, and the others once those have left.
    let mut last = crowd.pop().unwrap();
    assert!(crowd[0].send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").response().starts_with("HTTP/1.1 200"));
    drop(crowd);
    assert!(last.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").response().starts_with("HTTP/1.1 200"));
}
