//! One load by several agents.

mod support;

use penstock_lab::agents::{self, Address, Agent, Identity};
use penstock_lab::load::{Arrivals, LoadPlan, LoadReport, Mode, Stop};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;
use support::{Behaviour, Server};

fn plan(server: &Server) -> LoadPlan {
    let mut plan = LoadPlan::new(server.url().parse().unwrap());
    plan.address = Some(server.address);
    plan.mode = Mode::KeepAlive;
    plan.duration = Duration::from_secs(2);
    plan.timeout = Duration::from_secs(2);
    plan
}

fn run(plan: &LoadPlan, addresses: &[Address], identity: Option<&Identity>) -> Result<LoadReport, agents::Error> {
    agents::run(plan, addresses, identity, &Stop::default(), &mut |_| {})
}

/// Runs an agent until the test's process ends.
fn start(agent: Agent) -> Address {
    let address = agent.address().clone();
    std::thread::spawn(move || agent.run(&Stop::default(), &mut |_| {}));
    address
}

fn unix(folder: &Path, name: &str) -> Address {
    start(agents::serve(&Address::Unix(folder.join(name)), None, Vec::new()).unwrap())
}

const AT_ONCE: Behaviour = Behaviour::Answer(Duration::ZERO);

#[test]
fn shares_are_given_out_and_added_up_exactly() {
    let server = Server::start(AT_ONCE);
    let folder = tempfile::tempdir().unwrap();
    let both = [unix(folder.path(), "a"), unix(folder.path(), "b")];
    let plan = LoadPlan { connections: 5, count: Some(301), ..plan(&server) };
    let report = run(&plan, &both, None).unwrap();
    assert_eq!(
        (report.totals.done, report.totals.full_handshakes, report.failed()),
        (301, 5, 0),
        "{:?}",
        report.errors
    );
    assert_eq!((report.latency.total.count(), report.latency.handshake.count()), (301, 5));
    let shares: Vec<_> = report.agents.iter().map(|share| share.done).collect();
    assert_eq!(shares, [Some(151), Some(150)]);
    assert_eq!(report.series.iter().map(|second| second.done).sum::<u64>(), 301);
    assert!(!report.partial);
}

#[test]
fn a_rate_is_shared() {
    let server = Server::start(AT_ONCE);
    let folder = tempfile::tempdir().unwrap();
    let both = [unix(folder.path(), "a"), unix(folder.path(), "b")];
    let plan = LoadPlan { arrivals: Arrivals::Open(100.0), connections: 4, ..plan(&server) };
    let report = run(&plan, &both, None).unwrap();
    assert!((report.rate() - 100.0).abs() < 6.0, "{}", report.rate());
    assert_eq!(report.series.len(), 2);
    assert!(report.agents.iter().all(|share| share.late_by < 0.1));
}

/// An agent that behaves until it is asked to start, reports one second, and disconnects.
fn vanishing(path: &Path) -> Address {
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        let (mut line, _) = listener.accept().unwrap();
        let hello = receive(&mut line);
        send(&mut line, &hello);
        receive(&mut line);
        send(&mut line, "\"prepared\"");
        while receive(&mut line) == "\"ping\"" {
            send(&mut line, "\"ping\"");
        }
        std::thread::sleep(Duration::from_millis(500));
        send(&mut line, r#"{"second":{"at":1.0,"seconds":1.0,"done":7000,"failed":0,"body_bytes":0,"open":1}}"#);
    });
    Address::Unix(path.to_owned())
}

fn receive(line: &mut UnixStream) -> String {
    let mut length = [0; 4];
    line.read_exact(&mut length).unwrap();
    let mut text = vec![0; u32::from_be_bytes(length) as usize];
    line.read_exact(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

fn send(line: &mut UnixStream, text: &str) {
    line.write_all(&(text.len() as u32).to_be_bytes()).unwrap();
    line.write_all(text.as_bytes()).unwrap();
}

#[test]
fn what_a_lost_agent_would_have_done_is_not_invented() {
    let server = Server::start(AT_ONCE);
    let folder = tempfile::tempdir().unwrap();
    let both = [unix(folder.path(), "a"), vanishing(&folder.path().join("b"))];
    let plan = LoadPlan { arrivals: Arrivals::Open(100.0), connections: 4, ..plan(&server) };
    let report = run(&plan, &both, None).unwrap();
    assert!(report.partial);
    assert!((report.rate() - 50.0).abs() < 6.0, "{}", report.rate());
    assert!(report.agents[0].done.is_some());
    assert_eq!(report.agents[1].done, None);
    let why = report.agents[1].trouble.as_ref().unwrap();
    assert!(why.contains("lost after") && why.contains("it closed the connection"), "{why}");
    let said = report.doubts.iter().any(|doubt| doubt.says.ends_with("its share is missing from this result"));
    assert!(said, "{:?}", report.doubts);
}

#[test]
fn another_version_is_refused_by_name() {
    let server = Server::start(AT_ONCE);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("old");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        let (mut line, _) = listener.accept().unwrap();
        send(&mut line, r#"{"hello":{"protocol":1,"version":"0.0.1"}}"#);
        let _ = line.read(&mut [0; 1]);
    });
    let why = run(&plan(&server), &[Address::Unix(path)], None).unwrap_err().to_string();
    assert!(why.contains("it is penstock 0.0.1") && why.contains("install the same version"), "{why}");
}

#[test]
fn what_an_agent_cannot_do_is_its_own_sentence() {
    let server = Server::start(AT_ONCE);
    let folder = tempfile::tempdir().unwrap();
    let one = [unix(folder.path(), "a")];
    let gone = LoadPlan { address: Some("127.0.0.1:1".parse().unwrap()), ..plan(&server) };
    let why = run(&gone, &one, None).unwrap_err().to_string();
    assert!(why.starts_with("agent unix:") && why.contains("the server refused the connection"), "{why}");
    let nobody = Address::Unix(folder.path().join("nobody"));
    let why = run(&plan(&server), &[nobody], None).unwrap_err().to_string();
    assert!(why.contains("there is no agent at"), "{why}");
}

#[test]
fn over_the_network_both_sides_show_certificates_of_one_authority() {
    let server = Server::start(AT_ONCE);
    let folder = tempfile::tempdir().unwrap();
    let identity = |folder: &Path, name: &str| Identity {
        ca: folder.join("ca.pem"),
        cert: folder.join(format!("{name}.pem")),
        key: folder.join(format!("{name}.key")),
    };
    let (ours, others) = (folder.path().join("ours"), folder.path().join("others"));
    for one in [&ours, &others] {
        agents::write_certificates(one, &["127.0.0.1".to_owned()]).unwrap();
    }
    let any: Address = "127.0.0.1:0".parse().unwrap();
    let address = start(agents::serve(&any, Some(&identity(&ours, "127.0.0.1")), Vec::new()).unwrap());
    let plan = LoadPlan { count: Some(50), ..plan(&server) };
    let one = [address];
    // A stranger is turned away, as is a peer without a certificate; the agent is there for the next.
    assert!(run(&plan, &one, Some(&identity(&others, "controller"))).is_err());
    assert!(run(&plan, &one, None).is_err());
    assert_eq!(run(&plan, &one, Some(&identity(&ours, "controller"))).unwrap().totals.done, 50);
    let open = agents::serve(&"0.0.0.0:0".parse().unwrap(), None, Vec::new());
    let why = open.err().unwrap().to_string();
    assert!(why.contains("can be reached from other machines"), "{why}");
}
