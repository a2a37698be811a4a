//! Where the next attempt goes, as a table.

use super::*;
use penstock_config::model::ProxyId;

fn proxy(lines: &str) -> Proxy {
    let text = format!("backend b\n mode http\n {lines}\n server s 127.0.0.1:1\n");
    let sources = [penstock_config::model::Source { name: "test.cfg".into(), text }];
    let (config, diagnostics) = penstock_config::load(sources, &penstock_config::Env::default());
    assert!(!diagnostics.has_errors(), "{lines}: {:?}", diagnostics.list);
    config.proxies[ProxyId(0)].clone()
}

/// Simulates a request whose attempts all fail. Each attempt is a letter: `=` must go to the same server, `~` should go
/// to another; a dot after it means that there is a pause before it.
fn course(lines: &str, bound: bool, forced: bool, active: u32) -> String {
    let proxy = proxy(lines);
    let mut want = Want { persistent: bound.then_some(ServerId::configured(0)), ..Want::default() };
    let mut attempts = Attempts::new(&want, forced);
    let mut course = String::new();
    let mut server = ServerId::configured(0);
    assert_eq!(attempts.assigned(server), Attempt::First);
    while attempts.are_left(&proxy) {
        let pause = attempts.failed(&proxy, active, &mut want);
        course.push(if want.persistent == Some(server) { '=' } else { '~' });
        if let Some(pause) = pause {
            assert!(pause <= Duration::from_secs(1));
            course.push('.');
        }
        let next = want.persistent.unwrap_or(ServerId::configured((server.index() + 1) % active.max(1) as usize));
        let expected = if next == server { Attempt::Repeated } else { Attempt::Moved(server) };
        assert_eq!(attempts.assigned(next), expected);
        server = next;
    }
    assert_eq!(attempts.failures(), proxy.retries);
    course
}

#[test]
fn redispatch_says_when_a_request_leaves_its_server() {
    // Lines, whether persistence applies, whether `force-persist` does, the number of active servers, and where the
    // attempts after the first go.
    let cases: &[(&str, bool, bool, u32, &str)] = &[
        ("retries 3", false, false, 3, "=.=.=."),
        ("retries 0", false, false, 3, ""),
        ("retries 3\n option redispatch", true, false, 3, "=.=.~"),
        ("retries 3\n option redispatch", false, false, 3, "~~~"),
        ("retries 3\n option redispatch", false, true, 3, "=.=.=."),
        ("retries 3\n option redispatch", false, false, 1, "=.=.~."),
        ("retries 3\n option redispatch 1", true, false, 3, "~~~"),
        ("retries 4\n option redispatch 2", true, false, 3, "=.~~~"),
        ("retries 4\n option redispatch -2", true, false, 3, "=.=.~~"),
        ("retries 3\n option redispatch\n balance source", false, false, 3, "=.=.~"),
        ("retries 3\n option redispatch\n balance random", false, false, 3, "~~~"),
    ];
    for &(lines, bound, forced, active, expected) in cases {
        assert_eq!(
            course(lines, bound, forced, active),
            expected,
            "{lines} bound={bound} forced={forced} active={active}"
        );
    }
}

#[test]
fn the_pause_is_a_second_or_the_connect_timeout() {
    let mut want = Want::default();
    let mut pause = |lines| Attempts::new(&want, false).failed(&proxy(lines), 1, &mut want);
    assert_eq!(pause("timeout connect 5s"), Some(Duration::from_secs(1)));
    assert_eq!(pause("timeout connect 200ms"), Some(Duration::from_millis(200)));
}

#[test]
fn retry_on_names_the_failures_that_are_repeated() {
    use Reason::{Connect, Empty, Junk, Stale, Status, Timeout};
    let all = [Stale, Connect, Empty, Junk, Timeout, Status];
    let named = |lines: &str| {
        let proxy = proxy(lines);
        all.into_iter().filter(|&reason| retries_on(&proxy, reason)).collect::<Vec<_>>()
    };
    assert_eq!(named(""), [Connect]);
    assert_eq!(named("retry-on none"), [Status]);
    assert_eq!(named("retry-on conn-failure empty-response"), [Stale, Connect, Empty, Status]);
    assert_eq!(named("retry-on response-timeout junk-response"), [Junk, Timeout, Status]);
    assert_eq!(named("retry-on all-retryable-errors"), all);
    let statuses = |lines: &str| {
        let proxy = proxy(lines);
        [404, 500, 503].into_iter().filter(|&status| retries_on_status(&proxy, status)).collect::<Vec<_>>()
    };
    assert_eq!(statuses(""), [0; 0]);
    assert_eq!(statuses("retry-on 404 503"), [404, 503]);
    assert_eq!(statuses("retry-on all-retryable-errors"), [500, 503]);
    assert!(!may_repeat_body(&proxy("retry-on none")) && !may_repeat_body(&proxy("")));
    assert!(!may_repeat_body(&proxy("retry-on conn-failure")) && may_repeat_body(&proxy("retry-on 503")));
}

#[test]
fn each_reason_has_its_answer() {
    let status = [Reason::Stale, Reason::Connect, Reason::Empty, Reason::Junk, Reason::Timeout, Reason::Status];
    assert_eq!(status.map(Reason::status), [Some(503), Some(503), Some(502), Some(502), Some(504), None]);
}
