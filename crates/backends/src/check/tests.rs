//! Configurations, a server's answers, and the result HAProxy 2.6 showed for them (recorded from its statistics).

use super::{
    Outcome, Verdict,
    compile::compile,
    run::{About, ConnectError, Next, Run},
    schedule::{Conclusion, interval},
    script::Standing,
};
use crate::server::Check;
use penstock_config::{
    Files,
    model::{ProxyId, ServerCheck, Source},
};
use penstock_rules::{Compiler, NoWorld, Now, ProxyFacts, ServerConnFacts, ServerFacts};
use std::io;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// What the server does after the connection is made, in order.
#[derive(Clone, Copy, Debug)]
enum Peer {
    Says(&'static str),
    Closes,
    Hangs,
}
use Peer::{Closes, Hangs, Says};

fn script_of(lines: &str) -> Arc<super::script::Script> {
    let mode = if lines.contains("httpchk") { "http" } else { "tcp" };
    let text = format!("backend b\n mode {mode}\n {lines}\n server s 127.0.0.1:80 check\n");
    let sources = [Source { name: "test.cfg".into(), text }];
    let (config, mut diagnostics) = penstock_config::load(sources, &penstock_config::Env::default());
    let mut compiler = Compiler::new(&config, &NoFiles, &mut diagnostics);
    let script = compile(&config.proxies[ProxyId(0)], ProxyId(0), &mut compiler);
    assert!(!diagnostics.has_errors(), "{lines}: {:?}", diagnostics.list);
    Arc::new(script)
}

struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }
}

static BACKEND: LazyLock<ProxyFacts> = LazyLock::new(|| ProxyFacts { name: "b".into(), ..ProxyFacts::default() });
static SERVER: LazyLock<ServerFacts> = LazyLock::new(|| ServerFacts { name: "s".into(), id: 1 });

fn about(down: bool) -> About<'static> {
    About {
        backend: (ProxyId(0), &BACKEND),
        server: &SERVER,
        world: &NoWorld,
        now: Now::default(),
        standing: Standing { state: "UP 1/3; ...".into(), down },
    }
}

/// Runs one check; returns its outcome and what was sent.
fn play(lines: &str, peer: &[Peer]) -> (Outcome, Vec<u8>) {
    let mut run = Run::new(script_of(lines), about(false));
    let mut peer = peer.iter();
    let mut sent = Vec::new();
    loop {
        match run.step() {
            Next::Done(outcome) => return (outcome, sent),
            Next::Connect(connect) => {
                if connect.port == Some(1) {
                    return (run.connect_failed(ConnectError::Refused("Connection refused".into())), sent);
                }
                run.connected(ServerConnFacts::default());
            }
            Next::Send(bytes) => sent.extend(bytes),
            Next::Receive => match peer.next() {
                Some(Says(text)) => run.received(text.as_bytes()),
                Some(Closes) | None => run.ended(),
                Some(Hangs) => return (run.timed_out(), sent),
            },
        }
    }
}

const OK: &str = "HTTP/1.1 200 Some Reason\r\nContent-Length: 11\r\nX-Foo: bar\r\n\r\nhello world";
const FOUND: &str = "HTTP/1.1 302 Some Reason\r\nContent-Length: 0\r\n\r\n";
const MISSING: &str = "HTTP/1.1 404 Some Reason\r\nContent-Length: 0\r\n\r\n";
const BROKEN: &str = "HTTP/1.1 500 Some Reason\r\nContent-Length: 0\r\n\r\n";

/// Lines of a backend, what its server does, and the status, code and text that HAProxy shows.
type Case = (&'static str, &'static [Peer], (&'static str, Option<u32>, &'static str));

const CASES: &[Case] = &[
    (
        "option tcp-check\n tcp-check expect rbinary ^3232(30|31)",
        &[Says("220 ready\r\n")],
        ("L7OK", Some(0), "(tcp-check)"),
    ),
    ("option httpchk", &[Says(OK)], ("L7OK", Some(200), "")),
    ("option httpchk", &[Says(FOUND)], ("L7OK", Some(302), "")),
    ("option httpchk", &[Says(MISSING)], ("L7STS", Some(404), "Some Reason")),
    ("option httpchk", &[Says(BROKEN)], ("L7STS", Some(500), "Some Reason")),
    ("option httpchk\n http-check disable-on-404", &[Says(MISSING)], ("L7OKC", Some(404), "")),
    ("option httpchk", &[Says("nonsense here\r\nmore\r\n")], ("L7RSP", None, "")),
    ("option httpchk", &[Hangs], ("L7TOUT", None, "")),
    ("option httpchk", &[Closes], ("L7RSP", None, "")),
    ("option httpchk", &[Says("HTTP/1.1 200 OK\r\nContent-Len"), Closes], ("L7RSP", None, "")),
    ("option httpchk", &[Says("HTTP/1.1 200 O"), Says("K\r\n\r\n")], ("L7OK", Some(200), "")),
    ("option httpchk\n http-check expect status 200-299", &[Says(OK)], ("L7OK", Some(200), "")),
    ("option httpchk\n http-check expect status 200,204", &[Says(BROKEN)], ("L7STS", Some(500), "Some Reason")),
    ("option httpchk\n http-check expect ! status 200", &[Says(OK)], ("L7STS", Some(200), "Some Reason")),
    ("option httpchk\n http-check expect ! status 200", &[Says(BROKEN)], ("L7OK", Some(500), "")),
    ("option httpchk\n http-check expect rstatus ^2", &[Says(BROKEN)], ("L7STS", Some(500), "Some Reason")),
    ("option httpchk\n http-check expect string hello", &[Says(OK)], ("L7OK", Some(200), "")),
    (
        "option httpchk\n http-check expect string absent",
        &[Says(OK)],
        ("L7RSP", None, "HTTP content check did not match"),
    ),
    (
        "option httpchk\n http-check expect ! string hello",
        &[Says(OK)],
        ("L7RSP", None, "HTTP check matched unwanted content"),
    ),
    ("option httpchk\n http-check expect ! string absent", &[Says(OK)], ("L7OK", Some(200), "")),
    (
        "option httpchk\n http-check expect rstring ^ab+sent",
        &[Says(OK)],
        ("L7RSP", None, "HTTP content check did not match"),
    ),
    ("option httpchk\n http-check expect hdr name X-Foo value bar", &[Says(OK)], ("L7OK", Some(200), "")),
    ("option httpchk\n http-check expect hdr name X-Foo value baz", &[Says(OK)], ("L7STS", Some(200), "Some Reason")),
    ("option httpchk\n http-check expect fhdr name -m beg x- value -m reg b.r", &[Says(OK)], ("L7OK", Some(200), "")),
    (
        "option httpchk\n http-check expect status 201 error-status L7RSP on-error oops",
        &[Says(OK)],
        ("L7RSP", None, "oops"),
    ),
    (
        "option httpchk\n http-check connect comment dialing\n http-check send meth GET uri /x comment sending\n http-check expect comment wanting status 201",
        &[Says(OK)],
        ("L7STS", Some(200), "Some Reason comment: wanting"),
    ),
    ("", &[], ("L4OK", None, "")),
    ("option tcp-check", &[], ("L4OK", None, "")),
    ("option tcp-check\n tcp-check expect string 220", &[Says("220 ready\r\n")], ("L7OK", Some(0), "(tcp-check)")),
    (
        "option tcp-check\n tcp-check expect string 999",
        &[Says("220 ready\r\n"), Hangs],
        ("L7TOUT", None, " at step 1 of tcp-check (expect string '999')"),
    ),
    (
        "option tcp-check\n tcp-check expect ! string 220",
        &[Says("220 ready\r\n")],
        ("L7RSP", None, "TCPCHK matched unwanted content '220' at step 1"),
    ),
    (
        "option tcp-check\n tcp-check expect rstring ^9+",
        &[Says("220 ready\r\n"), Hangs],
        ("L7TOUT", None, " at step 1 of tcp-check (expect regex)"),
    ),
    ("option tcp-check\n tcp-check expect binary 323230", &[Says("220 ready\r\n")], ("L7OK", Some(0), "(tcp-check)")),
    (
        "option tcp-check\n tcp-check send PING\\r\\n\n tcp-check expect string +PONG",
        &[Hangs],
        ("L7TOUT", None, " at step 2 of tcp-check (expect string '+PONG')"),
    ),
    (
        "option tcp-check\n tcp-check send PING\\r\\n\n tcp-check expect string +PONG",
        &[Closes],
        ("L7RSP", None, "TCPCHK got an empty response at step 2"),
    ),
    (
        "option tcp-check\n tcp-check send PING\\r\\n\n tcp-check expect string +PONG",
        &[Says("+PO"), Says("NG\r\n")],
        ("L7OK", Some(0), "(tcp-check)"),
    ),
    (
        "option tcp-check\n tcp-check connect\n tcp-check send PING\\r\\n comment pinging\n tcp-check expect string +PANG comment \"pong please\"",
        &[Says("+PONG\r\n"), Closes],
        ("L7RSP", None, "TCPCHK did not match content '+PANG' at step 3 comment: pong please"),
    ),
    (
        "option tcp-check\n tcp-check comment one\n tcp-check connect port 1\n tcp-check expect string +PANG",
        &[],
        ("L4CON", None, "Connection refused at step 2 of tcp-check (connect port 1) comment: 'one'"),
    ),
    (
        "option smtpchk",
        &[Says("220 me ESMTP\r\n"), Says("250 hi\r\n"), Says("221 bye\r\n")],
        ("L7OK", Some(221), "bye"),
    ),
    ("option smtpchk", &[Says("554 go away\r\n")], ("L7STS", Some(554), "go away")),
    ("option smtpchk", &[Closes], ("L7RSP", None, "TCPCHK got an empty response at step 2")),
    ("option redis-check", &[Says("+PONG\r\n")], ("L7OK", Some(0), "Redis server is ok")),
    ("option redis-check", &[Says("-ERR no\r\n")], ("L7STS", Some(0), "-ERR no")),
    ("option redis-check", &[Closes], ("L7STS", Some(0), "TCPCHK got an empty response at step 2")),
    ("option pgsql-check user me", &[Says("R\0\0\0\x08\0\0\0\0")], ("L7OK", Some(0), "PostgreSQL server is ok")),
    ("option pgsql-check user me", &[Says("E\0\0\0\x08abcd")], ("L7RSP", None, "bcd")),
    ("option ldap-check", &[Says("0\x0c\x02\x01\x01a\x07\x0a\x01\0\x04\0\x04\0")], ("L7OK", Some(0), "Success")),
    ("option ldap-check", &[Says("nonsense here\r\n")], ("L7RSP", None, "Not LDAPv3 protocol")),
    ("option mysql-check", &[Says("\x0b\0\0\0\x0a5.7.1-log\0")], ("L7OK", Some(0), "5.7.1-log")),
    ("option ssl-hello-chk", &[Says("\x15\x03\x00")], ("L6OK", None, "")),
    ("option ssl-hello-chk", &[Says("nonsense here\r\n")], ("L6RSP", None, "")),
    ("option ssl-hello-chk", &[Hangs], ("L6TOUT", None, "")),
];

#[test]
fn outcomes_are_worded_as_haproxy_words_them() {
    for (lines, peer, (status, code, info)) in CASES {
        let (outcome, _) = play(lines, peer);
        let found = (outcome.verdict.short(), outcome.code, outcome.info.as_str());
        assert_eq!(found, (*status, *code, *info), "{lines} with {peer:?}");
    }
}

#[test]
fn what_is_sent_is_what_haproxy_sends() {
    let cases: &[(&str, &[Peer], &str)] = &[
        ("option httpchk", &[Closes], "OPTIONS / HTTP/1.0\r\n\r\n"),
        ("option httpchk GET /foo HTTP/1.1", &[Closes], "GET /foo HTTP/1.1\r\nconnection: close\r\n\r\n"),
        (
            "option httpchk GET /foo HTTP/1.1\\r\\nHost:\\ www.x",
            &[Closes],
            "GET /foo HTTP/1.1\r\nhost: www.x\r\nconnection: close\r\n\r\n",
        ),
        (
            "option httpchk\n http-check send meth POST uri /x ver HTTP/1.1 hdr Host a.b hdr X-Y \"z z\" body hello",
            &[Closes],
            "POST /x HTTP/1.1\r\nhost: a.b\r\nx-y: z z\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello",
        ),
        ("option httpchk\n http-check send uri-lf /%[srv_name]", &[Closes], "OPTIONS /s HTTP/1.0\r\n\r\n"),
        (
            "option httpchk\n http-check send-state",
            &[Closes],
            "OPTIONS / HTTP/1.0\r\nx-haproxy-server-state: UP 1/3; ...\r\n\r\n",
        ),
        ("option tcp-check\n tcp-check send-binary 50494e47\n tcp-check send-lf %[srv_name]", &[], "PINGs"),
        (
            "option smtpchk EHLO me.org",
            &[Says("220 hi\r\n"), Says("250-a\r\n250 b\r\n"), Closes],
            "EHLO me.org\r\nQUIT\r\n",
        ),
        ("option pgsql-check user me", &[Closes], "\0\0\0\x11\0\x03\0\0user\0me\0\0"),
        ("option redis-check", &[Closes], "*1\r\n$4\r\nPING\r\n"),
    ];
    for (lines, peer, want) in cases {
        let (_, sent) = play(lines, peer);
        assert_eq!(String::from_utf8_lossy(&sent), *want, "{lines}");
    }
}

#[test]
fn a_404_does_not_bring_up_a_server_that_is_down() {
    let script = script_of("option httpchk\n http-check disable-on-404");
    let mut run = Run::new(script, about(true));
    loop {
        match run.step() {
            Next::Connect(_) => run.connected(ServerConnFacts::default()),
            Next::Send(_) => {}
            Next::Receive => run.received(MISSING.as_bytes()),
            Next::Done(outcome) => break assert_eq!(outcome.verdict, Verdict::L7Status),
        }
    }
}

#[test]
fn rise_and_fall_count_results_in_a_row() {
    let mut check = Check::new(2, 3);
    let mut record = |verdict| check.record(&Outcome::new(verdict, ""), None).0;
    let (pass, fail) = (Verdict::L7Ok, Verdict::L4Connection);
    // A server starts one failure away from being down.
    assert_eq!(record(fail), Conclusion::Down);
    assert_eq!(record(pass), Conclusion::Steady);
    // Counting restarts; a server that is down cannot go down again.
    assert_eq!(record(fail), Conclusion::Down);
    assert_eq!([record(pass), record(pass)], [Conclusion::Steady, Conclusion::Up]);
    assert_eq!([record(fail), record(fail), record(pass)], [Conclusion::Steady, Conclusion::Steady, Conclusion::Up]);
    assert_eq!([record(fail), record(fail), record(fail)], [Conclusion::Steady, Conclusion::Steady, Conclusion::Down]);
    assert_eq!(
        [record(Verdict::L7Conditional), record(Verdict::L7Conditional)],
        [Conclusion::Steady, Conclusion::Stopping]
    );
}

#[test]
fn intervals_follow_the_health() {
    let seconds = Duration::from_secs;
    let settings = ServerCheck {
        inter: seconds(2),
        fastinter: Some(seconds(1)),
        downinter: Some(seconds(5)),
        ..ServerCheck::default()
    };
    let at = |health| interval(&settings, &Check { health, ..Check::new(2, 3) });
    assert_eq!([at(0), at(1), at(2), at(3), at(4)], [5, 1, 1, 1, 2].map(seconds));
}
