//! What rules cost a request: `cargo run --release -p penstock-rules --example rules_speed`.
//!
//! Ten usual rules and a log line, on one request, over and over; the median of nine rounds of each.

use penstock_config::{
    Diagnostics, Env, NoFiles,
    model::{ProxyId, Source},
};
use penstock_http::{Limits, Parse, RequestHead};
use penstock_rules::{
    Answer, Buffered, Compiler, ConnFacts, Context, LogFacts, NoWorld, Now, Phase, ProxyFacts, Session, Txn, Verdict,
};
use std::{hint::black_box, time::Instant};

const CONFIG: &str = "\
defaults
  mode http
  option httplog
  timeout client 1s
  timeout server 1s
  timeout connect 1s
frontend f
  bind :9000
  acl blocked src 10.0.0.0/8 172.16.0.0/12
  acl api path_beg /api/ /v1/ /v2/
  acl static path_end .css .js .png .jpg
  acl host hdr(host) -i www.example.com example.com
  http-request deny if blocked
  http-request deny if { path_sub ../ }
  http-request deny if METH_TRACE
  http-request deny unless host
  http-request return status 404 if { path_reg ^/(wp-admin|phpmyadmin) }
  http-request deny if { req.hdr_cnt(content-length) gt 1 }
  http-request deny if { req.hdr(user-agent) -m sub sqlmap nikto }
  http-request deny if api !METH_GET !METH_POST
  http-request redirect scheme https if !{ ssl_fc } { path_beg /secure }
  http-request deny if { req.fhdr(x-forwarded-for) -m found } blocked
  use_backend api if api
  use_backend static if static
  default_backend api
backend api
backend static
";

const REQUEST: &str = "GET /shop/items?id=42 HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\n\
    Accept: text/html\r\nAccept-Encoding: gzip\r\nCookie: session=0123456789abcdef\r\n\r\n";

fn main() {
    let (config, mut diagnostics) =
        penstock_config::load([Source { name: "speed.cfg".into(), text: CONFIG.into() }], &Env::default());
    let rules = Compiler::new(&config, &NoFiles, &mut diagnostics).proxies();
    report(&diagnostics);
    let mut head = RequestHead::new();
    assert!(matches!(head.parse(REQUEST.as_bytes(), &Limits::default()), Ok(Parse::Complete { .. })));
    let conn = ConnFacts {
        src: Some("192.0.2.7:40000".parse().expect("an address")),
        dst: Some("192.0.2.1:443".parse().expect("an address")),
        ..ConnFacts::default()
    };
    let frontend = ProxyFacts { name: "f".into(), http: true, ..ProxyFacts::default() };
    let (mut session, mut txn, log) = (Session::default(), Txn::default(), LogFacts::default());
    txn.received.keep(&head, 1024);
    txn.status = Some(200);
    let mut ctx = Context {
        now: Now::default(),
        phase: Phase::During,
        conn: &conn,
        frontend: (ProxyId(0), &frontend),
        backend: None,
        server: None,
        server_conn: None,
        request: Some(&mut head),
        response: None,
        input: Buffered { complete: true, ..Buffered::default() },
        output: Buffered::default(),
        session: &mut session,
        txn: &mut txn,
        log: &log,
        world: &NoWorld,
    };
    measure("ten http-request rules and two use_backend", || {
        assert_eq!(black_box(rules[ProxyId(0)].http_request.run(&mut ctx, 0)), Verdict::Continue);
        let taken = rules[ProxyId(0)].use_backend.iter().position(|switch| switch.condition.holds(&ctx) == Answer::Yes);
        assert_eq!(black_box(taken), None);
    });
    let mut line = Vec::with_capacity(512);
    measure("a line of option httplog", || {
        line.clear();
        rules[ProxyId(0)].log_format.render(&ctx, &mut line);
        black_box(&line);
    });
}

fn report(diagnostics: &Diagnostics) {
    for finding in &diagnostics.list {
        eprintln!("{:?}: {}", finding.severity, finding.message);
    }
    assert!(!diagnostics.has_errors());
}

fn measure(what: &str, mut turn: impl FnMut()) {
    const TURNS: u32 = 200_000;
    let mut rounds: Vec<f64> = (0..9)
        .map(|_| {
            let start = Instant::now();
            (0..TURNS).for_each(|_| turn());
            start.elapsed().as_nanos() as f64 / f64::from(TURNS)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("{what}: {:.0} ns (from {:.0} to {:.0})", rounds[4], rounds[0], rounds[8]);
}
