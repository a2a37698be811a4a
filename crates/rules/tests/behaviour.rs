//! What rules do over time: wait for bytes, track, stick, remember; and the errors of wrong ones.

mod support;

use penstock_config::{Severity, model::ProxyId};
use penstock_rules::{ACTIONS, Destination, Kind, Scope, Value, Verdict, Why, table::Data, turn};
use support::{Stage, compile};

const DEFAULTS: &str = "defaults\n  mode http\n  timeout client 1s\n  timeout server 1s\n  timeout connect 1s\n";
const GET: &str = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n";

/// A ClientHello for `name`, in one record.
fn client_hello(name: &str) -> Vec<u8> {
    let vec16 = |body: &[u8]| [&(body.len() as u16).to_be_bytes()[..], body].concat();
    let list = vec16(&[&[0][..], &vec16(name.as_bytes())].concat());
    let extensions = vec16(&[&[0, 0][..], &vec16(&list)].concat());
    let body = [&[3, 3][..], &[7; 32], &[0], &vec16(&[0x13, 1]), &[1, 0], &extensions].concat();
    let message = [&[1, 0][..], &vec16(&body)].concat();
    [&[22, 3, 1][..], &vec16(&message)].concat()
}

#[test]
fn sni_routing_waits_for_the_whole_hello_and_then_decides() {
    let compiled = compile(
        "defaults\n  mode tcp\n  timeout client 1s\n  timeout server 1s\n  timeout connect 1s\nfrontend f\n  bind :9000\n  \
         tcp-request inspect-delay 5s\n  tcp-request content accept if { req.ssl_hello_type 1 }\n  tcp-request content reject\n  \
         use_backend b if { req.ssl_sni -i www.example.com }\n  default_backend c\nbackend b\nbackend c\n",
    )
    .fine();
    let rules = &compiled.rules[ProxyId(0)];
    let hello = client_hello("WWW.example.com");
    let mut stage = Stage::empty();
    stage.complete = false;
    for cut in [0, 1, 4, 9, hello.len() - 1] {
        stage.body = hello[..cut].to_vec();
        let verdict = stage.with(|ctx| rules.tcp_content.run(ctx, 0));
        assert_eq!(verdict, Verdict::WaitMore { next: 0 }, "{cut} bytes");
    }
    stage.body.clone_from(&hello);
    assert_eq!(stage.with(|ctx| rules.tcp_content.run(ctx, 0)), Verdict::Accept);
    let taken = stage.with(|ctx| rules.use_backend[0].condition.holds(ctx));
    assert_eq!(taken, penstock_rules::Answer::Yes);
    assert!(matches!(rules.use_backend[0].to, Destination::Backend(id) if id.0 == 1));
    // The delay is over and it is no hello: the second rule decides.
    stage.body = b"GET / HTTP/1.1\r\n".to_vec();
    assert_eq!(stage.with(|ctx| rules.tcp_content.run(ctx, 0)), Verdict::Reject, "another protocol is not waited for");
    stage.body = hello[..20].to_vec();
    stage.complete = true;
    assert_eq!(stage.with(|ctx| rules.tcp_content.run(ctx, 0)), Verdict::Reject, "half a hello when the delay is over");
}

#[test]
fn a_rule_that_waited_is_not_run_twice() {
    let compiled = compile(
        "defaults\n  mode tcp\n  timeout client 1s\n  timeout server 1s\n  timeout connect 1s\nlisten f\n  bind :9000\n  \
         stick-table type ip size 10 store gpc0\n  tcp-request inspect-delay 5s\n  tcp-request content track-sc0 src\n  \
         tcp-request content sc-inc-gpc0(0)\n  tcp-request content accept if { req.len gt 3 }\n  tcp-request content reject if WAIT_END\n",
    )
    .fine();
    let rules = &compiled.rules[ProxyId(0)].tcp_content;
    let mut stage = Stage::empty();
    stage.complete = false;
    // A length that is not enough may still become so, until the delay is over.
    assert_eq!(stage.with(|ctx| rules.run(ctx, 0)), Verdict::WaitMore { next: 2 });
    stage.complete = true;
    assert_eq!(stage.with(|ctx| rules.run(ctx, 2)), Verdict::Reject);
    let table = compiled.rules[ProxyId(0)].table.as_ref().unwrap();
    let entry = table.lookup(Value::ip([127, 0, 0, 1].into()), 1_000_000).unwrap();
    assert_eq!(table.value(&entry, Data::Gpc0, 0, 0), Some(1));
}

#[test]
fn a_rate_limit_lets_through_what_it_says_and_then_denies() {
    let text = format!(
        "{DEFAULTS}frontend f\n  bind :9000\n  stick-table type ip size 1k expire 30s store http_req_rate(10s),http_req_cnt\n  \
         http-request track-sc0 src\n  http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt 3 }}\n"
    );
    let compiled = compile(&text).fine();
    let mut verdicts = Vec::new();
    let mut stage = Stage::request(GET);
    for _ in 0..5 {
        let mut next = Stage::request(GET);
        next.session = std::mem::take(&mut stage.session);
        stage = next;
        verdicts.push(stage.http_request(&compiled));
        stage.now.mono += 10;
    }
    assert_eq!(verdicts[..3], [Verdict::Continue, Verdict::Continue, Verdict::Continue]);
    for verdict in &verdicts[3..] {
        assert!(matches!(verdict, Verdict::Respond(Why::Deny, reply) if reply.status == 429), "{verdict:?}");
    }
    // Two periods later nothing is left of it.
    let mut later = Stage::request(GET);
    later.now.mono += 25_000;
    assert_eq!(later.http_request(&compiled), Verdict::Continue);
}

#[test]
fn connections_are_counted_while_they_last() {
    let text = "defaults\n  mode tcp\n  timeout client 1s\n  timeout server 1s\n  timeout connect 1s\nlisten f\n  bind :9000\n  \
                stick-table type ip size 1k store conn_cur,conn_cnt\n  tcp-request connection track-sc0 src\n  \
                tcp-request connection reject if { src_conn_cur gt 2 }\n";
    let compiled = compile(text).fine();
    let rules = &compiled.rules[ProxyId(0)].tcp_connection;
    let mut open: Vec<Stage> = Vec::new();
    for n in 0..2 {
        let mut stage = Stage::empty();
        assert_eq!(stage.with(|ctx| rules.run(ctx, 0)), Verdict::Continue, "connection {n}");
        open.push(stage);
    }
    let mut third = Stage::empty();
    assert_eq!(third.with(|ctx| rules.run(ctx, 0)), Verdict::Reject);
    drop(third);
    open.pop();
    assert_eq!(Stage::empty().with(|ctx| rules.run(ctx, 0)), Verdict::Continue, "one has left");
    let table = compiled.rules[ProxyId(0)].table.as_ref().unwrap();
    let entry = table.lookup(Value::ip([127, 0, 0, 1].into()), 1_000_000).unwrap();
    assert_eq!(table.value(&entry, Data::ConnCur, 0, 0), Some(1));
    assert_eq!(table.value(&entry, Data::ConnCnt, 0, 0), Some(4));
}

#[test]
fn a_request_sticks_to_the_server_it_was_given() {
    let text = format!(
        "{DEFAULTS}listen f\n  bind :9000\n  stick-table type string len 32 size 1k expire 1m\n  stick on req.cook(id)\n  \
         stick store-response res.cook(id)\n  server a 127.0.0.1:1\n  server b 127.0.0.1:2\n"
    );
    let compiled = compile(&text).fine();
    let [on, store] = &compiled.rules[ProxyId(0)].stick[..] else { panic!("two rules") };
    assert!(on.matches && on.stores_request && store.stores_response && !store.matches);
    let mut stage = Stage::request("GET / HTTP/1.1\r\nHost: h\r\nCookie: id=x\r\n\r\n");
    assert_eq!(stage.with(|ctx| on.find(ctx)).map(|stuck| stuck.id), None);
    let key = stage.with(|ctx| on.key(ctx)).unwrap();
    on.store(&key, stage.now.mono, 2, "s2", || None);
    assert_eq!(stage.with(|ctx| on.find(ctx)).map(|stuck| stuck.id), Some(2));
    let mut other = Stage::request("GET / HTTP/1.1\r\nHost: h\r\nCookie: id=y\r\n\r\n");
    assert_eq!(other.with(|ctx| on.find(ctx)).map(|stuck| stuck.id), None);
    stage.now.mono += 60_000;
    assert_eq!(stage.with(|ctx| on.find(ctx)).map(|stuck| stuck.id), None, "expired");
}

#[test]
fn variables_live_as_long_as_their_scope() {
    let text = format!(
        "{DEFAULTS}frontend f\n  bind :9000\n  http-request set-var(sess.s) str(s)\n  http-request set-var(txn.t) str(t)\n  \
         http-request set-var(req.r) str(r)\n  http-request set-var(proc.p) str(p)\n  \
         http-request set-header x %[var(sess.s)]%[var(txn.t)]%[var(req.r)]%[var(proc.p)]\n  \
         http-response set-header x <%[var(sess.s)]%[var(txn.t)]%[var(req.r)]%[var(proc.p)]>\n"
    );
    let compiled = compile(&text).fine();
    let mut stage = Stage::request(GET);
    stage.http_request(&compiled);
    assert_eq!(stage.request.as_ref().unwrap().fields.get(b"x"), Some(&b"strp"[..]));
    stage.txn.response_begins();
    stage.request = None;
    stage.response = Some(penstock_http::ResponseHead::from_status(200));
    stage.with(|ctx| compiled.rules[ProxyId(0)].http_response.run(ctx, 0));
    assert_eq!(stage.response.as_ref().unwrap().fields.get(b"x"), Some(&b"<stp>"[..]));
    let _ = Scope::Txn;
}

#[test]
fn a_login_is_asked_for_until_it_is_right() {
    let text = format!(
        "userlist u\n  user tiger insecure-password s3cret groups cats\n  group cats\n{DEFAULTS}frontend f\n  bind :9000\n  \
         acl in http_auth(u)\n  acl cat http_auth_group(u) cats\n  http-request auth realm Zoo unless in\n  \
         http-request set-header x-cat yes if cat\n"
    );
    let compiled = compile(&text).fine();
    let verdict = Stage::request(GET).http_request(&compiled);
    let Verdict::Respond(Why::Auth, reply) = verdict else { panic!("{verdict:?}") };
    assert_eq!(reply.fields, [(b"www-authenticate".to_vec(), b"Basic realm=\"Zoo\"".to_vec())]);
    let mut stage = Stage::request("GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Basic dGlnZXI6czNjcmV0\r\n\r\n");
    assert_eq!(stage.http_request(&compiled), Verdict::Continue);
    assert_eq!(stage.request.as_ref().unwrap().fields.get(b"x-cat"), Some(&b"yes"[..]));
    let mut wrong = Stage::request("GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Basic dGlnZXI6eA==\r\n\r\n");
    assert!(matches!(wrong.http_request(&compiled), Verdict::Respond(Why::Auth, _)));
}

#[test]
fn a_rule_that_needs_a_slow_password_checked_waits_for_it_and_is_run_again() {
    let text = format!(
        "userlist u\n  user tiger password $5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5\n{DEFAULTS}frontend f\n  \
         bind :9000\n  http-request deny if {{ path /denied }} {{ http_auth(u) }}\n  \
         http-request add-header x-in %[http_auth(u)]\n  http-request auth unless {{ http_auth(u) }}\n"
    );
    let compiled = compile(&text).fine();
    for (login, right) in [("dGlnZXI6SGVsbG8gd29ybGQh", true), ("dGlnZXI6d3Jvbmc=", false)] {
        let mut stage = Stage::request(&format!("GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Basic {login}\r\n\r\n"));
        // The first rule's condition is settled by its path.
        assert_eq!(stage.http_request(&compiled), Verdict::Verify { next: 1 });
        let known = stage.txn.logins.take_claim().unwrap().check(&|| false).unwrap();
        stage.txn.logins.learn(known);
        let verdict = stage.http_request(&compiled);
        assert_eq!(verdict == Verdict::Continue, right, "{verdict:?}");
        let added: Vec<_> = stage.request.as_ref().unwrap().fields.get_all(b"x-in").map(<[u8]>::to_vec).collect();
        assert_eq!(added, [if right { &b"1"[..] } else { b"0" }], "it was added once");
    }
}

/// What converters do with long values is paid for, or a few hundred such rules would be one turn.
#[test]
fn rules_that_convert_much_go_on_in_the_next_turn() {
    let rules = "  http-request set-header x-digest %[req.hdr(x),sha2(512),hex,sha2(512),hex]\n".repeat(100);
    let compiled = compile(&format!("{DEFAULTS}frontend f\n  bind :9000\n{rules}")).fine();
    for (length, is_cut) in [(10, false), (8000, true)] {
        let mut stage = Stage::request(&format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n", "a".repeat(length)));
        turn::begin(2500);
        let verdict = stage.http_request(&compiled);
        turn::end();
        assert_eq!(matches!(verdict, Verdict::Rest { next: 10..60 }), is_cut, "{length} bytes: {verdict:?}");
    }
}

#[test]
fn a_map_routes_by_host_and_changes_while_it_runs() {
    let path = std::env::temp_dir().join(format!("rules-map-{}.map", std::process::id()));
    std::fs::write(&path, "a.example  bk_a\nb.example  bk_b\n").unwrap();
    let file = path.display();
    let text = format!(
        "{DEFAULTS}frontend f\n  bind :9000\n  http-request set-header x-bk %[req.hdr(host),lower,map({file},none)]\n  \
         http-request set-map({file}) %[req.hdr(x-key)] %[req.hdr(x-value)] if {{ req.hdr(x-key) -m found }}\n  \
         use_backend %[req.hdr(host),lower,map({file},bk_default)]\n"
    );
    let compiled = compile(&text).fine();
    let bk = |host: &str, more: &str| {
        let mut stage = Stage::request(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n{more}\r\n"));
        stage.http_request(&compiled);
        let Destination::Named(name) = &compiled.rules[ProxyId(0)].use_backend[0].to else { panic!("a format") };
        let name = stage.with(|ctx| name.to_bytes(ctx));
        let header = stage.request.as_ref().unwrap().fields.get(b"x-bk").unwrap_or_default().to_vec();
        (String::from_utf8(header).unwrap(), String::from_utf8(name).unwrap())
    };
    assert_eq!(bk("A.example", ""), ("bk_a".into(), "bk_a".into()));
    assert_eq!(bk("c.example", ""), ("none".into(), "bk_default".into()));
    assert_eq!(bk("b.example", "X-Key: c.example\r\nX-Value: bk_c\r\n").0, "bk_b");
    assert_eq!(bk("c.example", ""), ("bk_c".into(), "bk_c".into()));
    std::fs::remove_file(path).unwrap();
}

/// What is said about a line, and what is underlined.
fn finding(line: &str) -> (String, String, String) {
    let text = format!(
        "{DEFAULTS}listen web\n  bind :9000\n  log 127.0.0.1:514 local0\n  stick-table type ip size 9 store gpc0\n  {line}\n  server one 127.0.0.1:1\n"
    );
    let compiled = compile(&text);
    let found: Vec<_> = compiled.diagnostics.list.iter().filter(|d| d.severity != Severity::Notice).collect();
    let [one] = found[..] else { panic!("{line}: {found:#?}") };
    let span = one.span.expect("a place");
    let source = text.lines().nth(span.line as usize - 1).unwrap();
    let underlined = source.as_bytes()[span.start as usize..span.end as usize].to_vec();
    (one.message.clone(), String::from_utf8(underlined).unwrap(), one.hint.clone().unwrap_or_default())
}

/// Words in an old encoding are the bytes that they were, whether they stand in the file or are spelled.
#[test]
fn bytes_that_are_not_utf8_are_kept() {
    let text =
        b"defaults\n  mode http\n  timeout client 5s\nfrontend f\n  bind :1\n  http-request set-header x-a caf\xe9\n  \
        http-request set-header x-b yes if { req.hdr(x-a) caf\\xe9 } { req.hdr(x-a) -m reg ^caf\xe9$ }\n";
    let source = penstock_config::Source::new("test.cfg", text);
    let compiled = support::compile_source(source).fine();
    let mut stage = Stage::request("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    stage.http_request(&compiled);
    let fields = &stage.request.as_ref().expect("it is there").fields;
    assert_eq!(fields.get(b"x-a"), Some(&b"caf\xe9"[..]));
    assert_eq!(fields.get(b"x-b"), Some(&b"yes"[..]));
}

#[test]
fn what_is_wrong_is_underlined_and_what_was_meant_is_named() {
    let mut wrong = Vec::new();
    for (line, message, underlined, hint) in [
        ("acl a path_bge /x", "unknown sample fetch 'path_bge'", "path_bge", "did you mean 'path_beg'?"),
        ("acl a hdr(host),lowre x", "unknown converter 'lowre'", "lowre", "did you mean 'lower'?"),
        ("http-request deny if { src 10.0.0.0/33 }", "neither an address nor a network", "10.0.0.0/33", ""),
        ("http-request deny if nosuch", "there is no ACL 'nosuch'", "nosuch", "there are no ACLs of this section"),
        ("http-request deny if METH_GTE", "there is no ACL 'METH_GTE'", "METH_GTE", "did you mean 'METH_GET'?"),
        ("http-request deny if { path -m bge /x }", "unknown matching method 'bge'", "bge", "did you mean 'beg'?"),
        ("http-request set-headre a b", "unknown action 'set-headre'", "set-headre", "did you mean 'set-header'?"),
        (
            "http-response set-path /x",
            "'set-path' is not an action of 'http-response'",
            "set-path",
            "it may stand in http-request",
        ),
        ("http-request set-header a %[hdr(x),upperr]", "unknown converter 'upperr'", "upperr", "did you mean 'upper'?"),
        ("http-request set-header a %[req.hdr(x)", "']' is expected", "%[req.hdr(x)", ""),
        ("http-request set-header a %hm", "unknown log-format alias '%hm'", "%hm", "did you mean '%HM'?"),
        ("http-request set-header a %[status]", "not here (request)", "status", ""),
        (
            "http-request set-var(tnx.a) path",
            "'tnx' is not a scope",
            "tnx.a",
            "the scopes are proc, sess, txn, req, res, check",
        ),
        (
            "http-request set-var(a) path",
            "its scope is missing",
            "a",
            "write txn.a; the scopes are proc, sess, txn, req, res, check",
        ),
        ("http-request track-sc7 src", "there is no counter", "track-sc7", "sc0 is the first"),
        ("http-request track-sc0 src table other", "there is no stick table 'other'", "other", ""),
        (
            "http-request redirect location /x code 300",
            "is not a redirect status",
            "300",
            "one of 301, 302, 303, 307, 308",
        ),
        (
            "http-request replace-path (?!x)a b",
            "negative look-ahead",
            "(?!x)a",
            "write the exclusion as an ACL of its own, and negate it with '!'",
        ),
        (
            "http-request return status 200 string x",
            "needs a 'content-type'",
            "return",
            "such as content-type text/plain",
        ),
        ("http-request lua.x", "unknown action", "lua.x", ""),
        (
            "http-request do-resolve(txn.a,r) src",
            "there is no resolvers section 'r'",
            "do-resolve(txn.a,r)",
            "do-resolve(VARIABLE,RESOLVERS) EXPRESSION",
        ),
        ("http-request send-spoe-group e g", "has no 'filter spoe' with the engine 'e'", "e", ""),
        ("acl a http_auth(nobody)", "there is no userlist 'nobody'", "nobody", ""),
        ("acl a int(5) gt x", "neither a number nor a range", "x", ""),
        ("acl a req.body x", "has no usual way of matching", "req.body", "say how with -m, such as -m str"),
        ("acl a path,word(1)", "needs delimiters (non-empty string) as argument 2", "word", ""),
        ("acl a path,field(x,/)", "'x' is not a valid integer other than 0", "x", ""),
        ("http-request deny if { path", "'{' is not closed", "{", "spaces stand before and after each brace"),
        ("http-request deny iff { path /x }", "unknown argument 'iff'", "iff", "did you mean 'if'?"),
        ("stick on nothing", "unknown sample fetch 'nothing'", "nothing", ""),
        ("log-format %[nothing]", "unknown sample fetch 'nothing'", "nothing", ""),
    ] {
        let (said, under, hinted) = finding(line);
        if !said.contains(message) || (under.as_str(), hinted.as_str()) != (underlined, hint) {
            wrong.push(format!("{line}: {said:?}, {under:?} underlined, hint {hinted:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_predefined_log_lines_are_the_manuals() {
    let text = format!(
        "{DEFAULTS}frontend http-in\n  bind :9000\n  option httplog\nfrontend fnt\n  bind :9001\n  mode tcp\n  option tcplog\n"
    );
    let compiled = compile(&text).fine();
    let mut stage = Stage::request("GET /index.html HTTP/1.1\r\nHost: h\r\n\r\n");
    stage.frontend.name = "http-in".into();
    stage.conn.src = Some("10.0.1.2:33317".parse().unwrap());
    stage.txn.status = Some(200);
    stage.txn.request_captures = vec![Some(b"1wt.eu".to_vec())];
    stage.txn.response_captures = vec![None];
    let log = &mut stage.log;
    (log.TR, log.Tw, log.Tc, log.Tr, log.Ta, log.Tt) = (10, 0, 30, 69, 109, 109);
    (log.actconn, log.feconn, log.beconn, log.srv_conn) = (1, 1, 1, 1);
    log.bytes_read = 2750;
    log.request_unix_us = 1_233_922_454_655_000;
    log.accept_unix_us = 1_233_922_451_443_000;
    let mut line = Vec::new();
    stage.with(|ctx| compiled.rules[ProxyId(0)].log_format.render(ctx, &mut line));
    assert_eq!(
        String::from_utf8(line).unwrap(),
        "10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in http-in/<NOSRV> 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 \
         {1wt.eu} {} \"GET /index.html HTTP/1.1\""
    );
    stage.frontend.name = "fnt".into();
    (stage.log.Tw, stage.log.Tc, stage.log.Tt, stage.log.retries, stage.log.bytes_read) = (0, 0, 5007, 3, 212);
    stage.log.redispatched = true;
    stage.log.as_soon_as = true;
    let mut line = Vec::new();
    stage.with(|ctx| compiled.rules[ProxyId(1)].log_format.render(ctx, &mut line));
    assert_eq!(
        String::from_utf8(line).unwrap(),
        "10.0.1.2:33317 [06/Feb/2009:12:14:11.443] fnt fnt/<NOSRV> 0/0/+5007 +212 -- 1/1/1/1/+3 0/0"
    );
}

#[test]
fn actions_without_effect_say_so() {
    let idle = ACTIONS.iter().filter(|action| action.refusal().is_none() && !action.is_implemented());
    let mut count = 0;
    for (action, kind) in idle.flat_map(|a| Kind::ALL.iter().filter(|k| a.allowed_in(**k)).map(move |k| (a, k))) {
        let section = if kind.name().starts_with("tcp-response") { "backend b" } else { "frontend b" };
        let text = format!("{section}\n mode http\n {} {} 1\n", kind.name(), action.name);
        let notice = format!("'{}' has no effect", action.name);
        let found = compile(&text).fine().diagnostics;
        assert!(found.list.iter().any(|d| d.message.starts_with(&notice)), "{text}{:?}", found.list);
        count += 1;
    }
    assert!(count > 0, "{count} rows");
}

#[test]
fn a_file_without_a_public_key_is_said_and_a_secret_is_not_looked_for() {
    let text = "frontend f
  mode http
  acl signed req.hdr(x),jwt_verify(ES256,/nowhere/key.pem) 1
  http-request deny unless { req.hdr(x),jwt_verify(HS256,/nowhere/secret) 1 }
  http-request set-header y %[req.hdr(x),jwt_verify(txn.algorithm,/nowhere/other)]
  http-request set-var(txn.a) req.hdr(x),jwt_verify(RS256,/dev/null) if signed
";
    let compiled = compile(text).fine();
    let found: Vec<_> = compiled
        .diagnostics
        .list
        .iter()
        .filter(|d| d.message.contains("no token is verified"))
        .map(|d| (d.severity, d.span.map(|span| span.line), d.hint.is_some()))
        .collect();
    assert_eq!(found, [(Severity::Warning, Some(3), false), (Severity::Warning, Some(6), true)]);
}
