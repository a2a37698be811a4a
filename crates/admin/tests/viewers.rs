//! The stream of the statistics page: how many may look, and what becomes of one who does not read.

use penstock_admin::Stats;
use penstock_config::{
    Diagnostics, Env,
    model::{ProxyId, Source},
};
use penstock_proxy::{Handle, Inherited, Runtime, Service, ServiceRequest, ServiceResponse, Services};
use std::time::{Duration, Instant};

fn served(dir: &str) -> Handle {
    let text = format!(
        "global\n nbthread 1\n maxconn 10\ndefaults\n mode http\n timeout client 5s\n timeout server 5s\n timeout connect 1s\n\
         listen page\n bind unix@{dir}/page\n stats enable\n stats uri /\n stats auth me:secret\n server s1 127.0.0.1:1\n"
    );
    let (config, found) = penstock_config::load([Source { name: "test.cfg".into(), text }], &Env::default());
    assert!(!found.has_errors(), "{found:#?}");
    let mut diagnostics = Diagnostics::default();
    let runtime = Runtime::build(config, Services::default(), &mut diagnostics).expect("a valid configuration");
    let listeners = runtime.listen(Inherited::default()).expect("its socket can be made");
    runtime.start(listeners).expect("its workers start")
}

fn ask(stats: &Stats, handle: &Handle, method: &[u8], fields: &[(&[u8], &[u8])]) -> ServiceResponse {
    let proxy = &handle.shared().config.proxies[ProxyId(0)];
    stats.answer(ServiceRequest { method, target: b"/;stream", fields, body: b"", proxy, admin: false, handle })
}

const ME: &[(&[u8], &[u8])] = &[(b"authorization", b"Basic bWU6c2VjcmV0")];

#[test]
fn viewers_are_counted_and_one_who_does_not_read_is_let_go() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let handle = served(&dir.path().display().to_string());
    let stats = Stats::new("0".into());
    assert_eq!(ask(&stats, &handle, b"GET", &[]).status, 401, "the stream has the page's password");
    assert_eq!(ask(&stats, &handle, b"HEAD", ME).status, 405);
    let mut viewers: Vec<_> = (0..16).map(|_| ask(&stats, &handle, b"GET", ME)).collect();
    assert!(viewers.iter().all(|viewer| viewer.status == 200 && viewer.body.starts_with(b"data: {")));
    assert_eq!(ask(&stats, &handle, b"GET", ME).status, 503);
    viewers.pop();
    let replaced = ask(&stats, &handle, b"GET", ME);
    assert_eq!(replaced.status, 200, "one who leaves makes room");
    // The events are never read.
    let mut stream = viewers.remove(0).stream.expect("a stream");
    let patience = Instant::now() + Duration::from_secs(60);
    while !stream.is_closed() {
        assert!(Instant::now() < patience, "it is kept although it does not read");
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut events = 0;
    while let Ok(event) = stream.try_recv() {
        assert!(event.starts_with(b"data: {") && event.ends_with(b"\n\n"));
        events += 1;
    }
    assert_eq!(events, 4, "what was kept for it");
    assert_eq!(ask(&stats, &handle, b"GET", ME).status, 200, "and there is room again");
    handle.stop();
    handle.wait();
    assert_eq!(ask(&stats, &handle, b"GET", ME).status, 503, "a process that ends has no viewers");
}
