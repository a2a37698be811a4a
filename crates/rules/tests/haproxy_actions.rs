//! Actions beside the real haproxy: what rules do to a request and to a response, and what they answer.
//!
//! haproxy is its own origin: a second frontend answers with what it received. Skipped, and said so, where there is no
//! haproxy.

#[path = "../../../tests/reference.rs"]
mod reference;

mod support;

use penstock_config::model::ProxyId;
use penstock_http::ResponseHead;
use penstock_rules::{By, During, Termination};
use penstock_rules::{ReplyBody, Verdict};
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use support::{Stage, compile};

struct Haproxy(Child);

impl Drop for Haproxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts haproxy and returns what it writes to standard output when it is stopped.
fn start(config: &str, port: u16) -> Option<Haproxy> {
    let program = reference::haproxy_30()?;
    let path = std::env::temp_dir().join(format!("rules-actions-{}-{port}.cfg", std::process::id()));
    std::fs::write(&path, config).expect("the temporary directory takes files");
    let child =
        Command::new(program).arg("-db").arg("-f").arg(&path).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(child) = child else {
        eprintln!("SKIPPED: haproxy is not installed");
        return None;
    };
    let mut haproxy = Haproxy(child);
    let deadline = Instant::now() + Duration::from_secs(10);
    // While nobody listens, a connection may get this very port for its own end, and so reach itself.
    let is_itself = |stream: TcpStream| stream.local_addr().ok() == stream.peer_addr().ok();
    while TcpStream::connect(("127.0.0.1", port)).map_or(true, is_itself) {
        if let Ok(Some(status)) = haproxy.0.try_wait() {
            let mut why = String::new();
            let _ = haproxy.0.stderr.take().expect("piped").read_to_string(&mut why);
            panic!("haproxy ended with {status}: {why}\n{config}");
        }
        assert!(Instant::now() < deadline, "haproxy did not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = std::fs::remove_file(path);
    Some(haproxy)
}

/// Head and body of the answer; `None` where the connection was closed without one.
fn ask(port: u16, request: &str) -> Option<(String, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("haproxy listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let mut part = [0; 65536];
    loop {
        let n = stream.read(&mut part).unwrap_or(0);
        if n == 0 {
            assert!(answer.is_empty(), "cut: {}", String::from_utf8_lossy(&answer));
            return None;
        }
        answer.extend_from_slice(&part[..n]);
        let Some(end) = answer.windows(4).position(|w| w == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&answer[..end]).into_owned();
        let len = head.to_ascii_lowercase();
        let len =
            len.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok()).unwrap_or(0);
        if answer.len() - end - 4 >= len {
            return Some((head, String::from_utf8_lossy(&answer[end + 4..]).into_owned()));
        }
    }
}

const REQUEST: &str = "GET /a//b/./c/../%7euser?z=1&a=2 HTTP/1.1\r\n\
    Host: www.example.com\r\n\
    X-List: one, two, three\r\n\
    X-List: four\r\n\
    X-Foo-A: 1\r\n\
    X-Foo-B: 2\r\n\
    X-Bar: old\r\n\
    Cookie: session=abc; lang=en\r\n\
    \r\n";

const DEFAULTS: &str = "global\n  expose-experimental-directives\ndefaults\n  mode http\n  timeout client 5s\n  timeout server 5s\n  \
    timeout connect 5s\n  timeout tarpit 10ms\n";

#[test]
fn requests_are_changed_as_haproxy_changes_them() {
    // Each group is a frontend of its own; the origin answers with what it got.
    let groups: &[&[&str]] = &[
        &["add-header x-new '%[path]'", "set-header x-bar new", "del-header x-list"],
        &["del-header x-foo -m beg", "del-header 'b$' -m reg"],
        &["del-header -a -m end", "del-header oo -m sub"],
        &["replace-header x-list '(.*), two(.*)' '\\2<\\1>'", "replace-header cookie 'lang=([a-z]*)' 'L=\\1'"],
        &["replace-value x-list '^t(.*)$' 'T\\1'", "replace-value x-bar 'o(.*)' '\\0-\\1-%[method]'"],
        &["set-path /new/path", "set-method PUT"],
        &["set-query x=y"],
        &["set-pathq /p?q=r"],
        &["set-uri /only/this?one=1"],
        &["replace-path '/a(.*)' '/b\\1'"],
        &["replace-path '^/nomatch(.*)' '/b\\1'"],
        &["replace-pathq '([^?]*)(\\?(.*))?' '\\1/x\\2'"],
        &["replace-uri '^/a' '/q'"],
        &["normalize-uri path-merge-slashes"],
        &["normalize-uri path-strip-dot"],
        &["normalize-uri path-strip-dotdot"],
        &["normalize-uri percent-to-uppercase", "normalize-uri percent-decode-unreserved"],
        &["normalize-uri query-sort-by-name"],
        &["set-var(txn.a) path,lower", "set-header x-a '%[var(txn.a)]'"],
        &[
            "set-var-fmt(txn.a) '%[method]-%[path,length]'",
            "set-header x-a '%[var(txn.a)]'",
            "unset-var(txn.a)",
            "set-header x-b '<%[var(txn.a)]>'",
        ],
        &[
            "set-var(txn.a) str(1)",
            "set-var(txn.a,ifnotexists) str(2)",
            "set-var(txn.b,ifexists) str(3)",
            "set-header x '%[var(txn.a)]%[var(txn.b)]'",
        ],
        &["set-header x-q '%{+Q}[path]'", "set-header x-e '%{+E,+Q}[str(\"a\\\"b\")]'", "set-header x-p '100%%'"],
        &[
            "set-header x-ip %ci",
            "set-header x-hex %{+X}ci",
            "set-header x-fe %f",
            "set-header x-m %HM",
            "set-header x-u %HU",
            "set-header x-v %HV",
        ],
        &[
            "set-header x-hp %HP",
            "set-header x-hpo %HPO",
            "set-header x-hq %HQ",
            "set-header x-r '%r'",
            "set-header x-b %b",
            "set-header x-s %s",
        ],
        &[
            "set-header x-a one if { path_beg /a }",
            "set-header x-b two unless { path_beg /a }",
            "set-header x-c three if { path_beg /x } || METH_GET !HTTP_1.0",
        ],
        &["set-header x-a one if METH_GET { req.hdr(x-bar) old } or FALSE", "allow if TRUE", "set-header x-b never"],
        // White space at a value's ends does not survive the second haproxy: a scenario shows it.
        &["set-header x-c 'a%[str(\"x\\ny\")]b'"],
        &["set-header Host other.example", "set-header x-h %[req.hdr(host)]"],
    ];
    let base = 22_300;
    let mut text = format!(
        "{DEFAULTS}frontend origin\n  bind 127.0.0.1:{}\n  http-request return status 200 content-type text/plain lf-string \"%[method] %[url] %[req.ver]\\n%[req.hdrs]\"\n",
        base + 99
    );
    for (at, group) in groups.iter().enumerate() {
        text += &format!("frontend f{at}\n  bind 127.0.0.1:{}\n", base + at);
        for rule in *group {
            text += &format!("  http-request {rule}\n");
        }
        text += "  default_backend b\n";
    }
    text += &format!("backend b\n  server s 127.0.0.1:{}\n", base + 99);
    let compiled = compile(&text).fine();
    let Some(haproxy) = start(&text, base as u16 + 99) else { return };
    let mut differences = Vec::new();
    for (at, group) in groups.iter().enumerate() {
        let (_, theirs) = ask((base + at) as u16, REQUEST).expect("an answer");
        let mut stage = Stage::request(REQUEST);
        stage.frontend.name = format!("f{at}");
        let rules = &compiled.rules[compiled.proxy(&format!("f{at}"))];
        stage.with(|ctx| rules.http_request.run(ctx, 0));
        // The origin's own rule writes what it received.
        let sent = stage.request.clone().expect("a request");
        stage.txn.received.keep(&sent, 1024);
        let origin = &compiled.rules[ProxyId(0)];
        let Verdict::Respond(_, reply) = stage.with(|ctx| origin.http_request.run(ctx, 0)) else { panic!("an answer") };
        let ReplyBody::Bytes(ours) = reply.body else { panic!("bytes") };
        let ours = String::from_utf8_lossy(&ours).into_owned();
        if ours != theirs {
            differences.push(format!("{group:?}\n  haproxy {theirs:?}\n  ours    {ours:?}"));
        }
    }
    drop(haproxy);
    assert!(differences.is_empty(), "{} differ\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn answers_are_those_of_haproxy() {
    let rules: &[&str] = &[
        "http-request redirect location /x",
        "http-request redirect location /x code 301",
        "http-request redirect location /x code 303",
        "http-request redirect location /x code 307",
        "http-request redirect location /x code 308",
        "http-request redirect location 'http://%[req.hdr(host)]%[path]' code 301",
        "http-request redirect prefix https://other.example",
        "http-request redirect prefix https://other.example drop-query",
        "http-request redirect prefix https://other.example drop-query append-slash",
        "http-request redirect prefix https://other.example append-slash",
        "http-request redirect prefix /",
        "http-request redirect prefix /sub code 301",
        "http-request redirect scheme https",
        "http-request redirect scheme https code 301 drop-query",
        "http-request redirect location /x set-cookie SEEN=1",
        "http-request redirect location /x set-cookie SEEN=1;secure code 301",
        "http-request redirect location /x clear-cookie SEEN=",
        "http-request redirect location %[var(txn.none)] ignore-empty",
        "redirect location /y if { path_beg /a }",
        "redirect scheme https code 301 if !{ ssl_fc }",
        "http-request return status 200",
        "http-request return",
        "http-request return status 404",
        "http-request return status 200 content-type text/plain string hello",
        "http-request return status 201 content-type text/plain lf-string 'm=%[method] p=%[path]'",
        "http-request return status 200 content-type application/json string '{}' hdr x-a one hdr x-b '%[path]'",
        "http-request return status 204 hdr x-a one",
        "http-request deny status 429 content-type text/plain string slow hdr retry-after 5",
        "http-request deny",
        "http-request deny deny_status 429",
        "http-request deny deny_status 503",
        "http-request auth realm Secret",
        "http-request auth",
        "http-request tarpit deny_status 429 content-type text/plain string stuck",
        "http-request reject",
        "http-request silent-drop if FALSE",
    ];
    let base = 22_400;
    let mut text = format!(
        "{DEFAULTS}frontend origin\n  bind 127.0.0.1:{}\n  http-request return status 200 content-type text/plain string origin\n",
        base + 99
    );
    for (at, rule) in rules.iter().enumerate() {
        text += &format!("frontend f{at}\n  bind 127.0.0.1:{}\n  {rule}\n  default_backend b\n", base + at);
    }
    text += &format!("backend b\n  server s 127.0.0.1:{}\n", base + 99);
    let compiled = compile(&text).fine();
    let Some(haproxy) = start(&text, base as u16 + 99) else { return };
    let mut differences = Vec::new();
    for (at, rule) in rules.iter().enumerate() {
        let theirs = ask((base + at) as u16, REQUEST);
        let mut stage = Stage::request(REQUEST);
        let compiled = &compiled.rules[compiled.proxy(&format!("f{at}"))];
        let verdict = stage.with(|ctx| match compiled.http_request.run(ctx, 0) {
            Verdict::Continue => compiled.redirects.run(ctx, 0),
            verdict => verdict,
        });
        let (ours, theirs) = match (&verdict, theirs) {
            (Verdict::Respond(_, reply), Some((head, body))) => {
                let mut lines: Vec<&str> = head.lines().collect();
                let status = lines.remove(0).split(' ').nth(1).unwrap_or_default().to_owned();
                // The sender's business, and that of the error pages, which are the proxy's.
                lines.retain(|line| !line.starts_with("content-length") && !line.starts_with("connection"));
                let page = reply.body == ReplyBody::ErrorPage;
                if page {
                    lines.retain(|line| line.starts_with("www-authenticate"));
                }
                let fields = |fields: &[(Vec<u8>, Vec<u8>)]| {
                    let line = |(name, value): &(Vec<u8>, Vec<u8>)| {
                        format!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
                    };
                    fields.iter().filter(|(name, _)| name != b"content-length").map(line).collect::<Vec<_>>()
                };
                let ours = match &reply.body {
                    ReplyBody::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                    _ => String::new(),
                };
                let theirs = if page { String::new() } else { body };
                (format!("{} {:?} {ours}", reply.status, fields(&reply.fields)), format!("{status} {lines:?} {theirs}"))
            }
            (Verdict::Reject, None) => continue,
            (Verdict::Continue, Some((_, body))) if body == "origin" => continue,
            (verdict, theirs) => (format!("{verdict:?}"), format!("{theirs:?}")),
        };
        if ours != theirs {
            differences.push(format!("{rule}\n  haproxy {theirs}\n  ours    {ours}"));
        }
    }
    drop(haproxy);
    assert!(differences.is_empty(), "{} differ\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn responses_are_changed_as_haproxy_changes_them() {
    let groups: &[&[&str]] = &[
        &["http-response set-header x-a '%[res.hdr(server)]'", "http-response del-header server"],
        &["http-response add-header x-a '%[status]-%[res.ver]'", "http-response set-status 404"],
        &["http-response set-status 418 reason 'I am a teapot'"],
        &["http-response replace-header set-cookie '(.*)' '\\1; Secure'"],
        &["http-response replace-value cache-control '^no-(.*)' 'NO\\1'"],
        &["http-response set-header x-c '%[res.cook(b)]/%[res.cook_cnt]/%[res.hdr_cnt(set-cookie)]'"],
        &["http-response set-header x-c '%[capture.req.method] %[capture.req.uri]'"],
        &["http-request set-var(txn.p) path", "http-response set-header x-p '%[var(txn.p)]' if { status 200 }"],
        &["http-request set-var(req.p) path", "http-response set-header x-p '<%[var(req.p)]>'"],
        &["http-after-response set-header x-after yes", "http-after-response del-header server"],
        &["http-response set-header strict-transport-security max-age=1 if { res.hdr(server) -m sub gin }"],
        &["http-response deny if { status 200 }"],
        &["http-response return status 200 content-type text/plain string replaced"],
    ];
    let base = 22_500;
    let fields = [
        ("server", "nginx"),
        ("set-cookie", "a=1; Path=/"),
        ("set-cookie", "b=2"),
        ("cache-control", "no-cache, no-store"),
        ("x-z", "last"),
    ];
    let mut text = format!(
        "{DEFAULTS}frontend origin\n  bind 127.0.0.1:{}\n  http-request return status 200 content-type text/plain string origin",
        base + 99
    );
    for (name, value) in fields {
        text += &format!(" hdr {name} '{value}'");
    }
    text += "\n";
    for (at, group) in groups.iter().enumerate() {
        text += &format!("frontend f{at}\n  bind 127.0.0.1:{}\n", base + at);
        for rule in *group {
            text += &format!("  {rule}\n");
        }
        text += "  default_backend b\n";
    }
    text += &format!("backend b\n  server s 127.0.0.1:{}\n", base + 99);
    let compiled = compile(&text).fine();
    let Some(haproxy) = start(&text, base as u16 + 99) else { return };
    let mut differences = Vec::new();
    for (at, group) in groups.iter().enumerate() {
        let (theirs, _) = ask((base + at) as u16, REQUEST).expect("an answer");
        let mut stage = Stage::request(REQUEST);
        let rules = &compiled.rules[compiled.proxy(&format!("f{at}"))];
        stage.with(|ctx| rules.http_request.run(ctx, 0));
        stage.txn.response_begins();
        stage.request = None;
        let mut head = ResponseHead::from_status(200);
        head.fields.append(b"content-length", b"6").unwrap();
        for (name, value) in fields {
            head.fields.append(name.as_bytes(), value.as_bytes()).unwrap();
        }
        head.fields.append(b"content-type", b"text/plain").unwrap();
        stage.response = Some(head);
        let verdict = stage.with(|ctx| match rules.http_response.run(ctx, 0) {
            Verdict::Continue => rules.http_after_response.run(ctx, 0),
            verdict => verdict,
        });
        let ours = match verdict {
            Verdict::Continue => {
                let mut out = Vec::new();
                stage.response.as_ref().unwrap().write_to(&mut out);
                String::from_utf8_lossy(&out).trim_end().to_owned()
            }
            Verdict::Respond(_, reply) => format!("HTTP/1.1 {}", reply.status),
            verdict => panic!("{verdict:?}"),
        };
        let sort = |head: &str| {
            // Where the origin's length and type stand among the fields is its sender's business.
            let mut lines: Vec<String> = head.lines().map(str::to_owned).collect();
            lines[1..].sort();
            lines
        };
        let same = if ours.contains('\n') { sort(&ours) == sort(&theirs) } else { theirs.starts_with(&ours) };
        if !same {
            differences.push(format!("{group:?}\n  haproxy {theirs:?}\n  ours    {ours:?}"));
        }
    }
    drop(haproxy);
    assert!(differences.is_empty(), "{} differ\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn log_lines_are_those_of_haproxy() {
    let formats: &[&str] = &[
        "%ci %f %ft %b %s %ST %ts %tsc %CC %CS %rc %sq %bq %sc %bc",
        "%hr %hs %hrl %hsl",
        "%{+Q}hr %{+Q}hrl",
        "%r",
        "%{+Q}r",
        "%HM %HP %HPO %HQ %HU %HV",
        "%{+Q}HM %{+Q}HU",
        "%{+Q}o %ci %r %hr %s %{-Q}r %ST %sslc",
        "%{+X}ci %{+X}fi %{+X}ms",
        "%sslc|%sslv|%{+Q}sslc|%{+Q,+E}sslv",
        "a   b %[capture.req.uri] %[capture.req.hdr(0)] %[capture.req.hdr(1)] %[capture.req.hdr(9)]",
        "%{+Q}[capture.req.hdr(1)] %{+Q,+E}[capture.req.hdr(1)] %{+E}[capture.req.hdr(1)]",
        "%[var(txn.none)] %{+Q}[var(txn.none)] %[str()] 100%%",
        "%{+Q}[int(5)] %[int(5)] %[src] %{+Q}[src]",
        "%[var(txn.kept)] %[method] %[fc_http_major] %[ssl_fc]",
        "%bi %bp %si %sp %ID",
        "%[capture.req.hdr(1),json(utf8s)] [%[capture.req.method]]",
        "{\\\"ua\\\":\\\"%[capture.req.hdr(1),lower]\\\"}",
        "%Tq %Tw",
        "%[unique-id] %H",
    ];
    let base = 22_600;
    let mut text = format!("{DEFAULTS}  log stdout format raw local0\n");
    for (at, format) in formats.iter().enumerate() {
        text += &format!(
            "frontend f{at}\n  bind 127.0.0.1:{}\n  capture request header Host len 7\n  capture request header User-Agent len 64\n  \
             capture cookie session len 40\n  unique-id-format id-%[path]\n  log-format \"{at} {format}\"\n  http-request set-var(txn.kept) path\n  \
             http-request set-path /changed\n  http-request return status 200 content-type text/plain string x\n",
            base + at
        );
    }
    let request = "GET /logged/path?a=b&c=%22 HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: Very \"Ugly\" {UA|#]\\\r\n\
                   Cookie: session=abc\r\n\r\n";
    let compiled = compile(&text).fine();
    let Some(mut haproxy) = start(&text, base as u16) else { return };
    let stdout = haproxy.0.stdout.take().expect("piped");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stdout));
    let mut differences = Vec::new();
    for (at, format) in formats.iter().enumerate() {
        ask((base + at) as u16, request).expect("an answer");
        let prefix = format!("{at} ");
        // The probe that waited for the port leaves a line of its own.
        let theirs = loop {
            let line = lines.next().expect("a log line").expect("text");
            if line.starts_with(&prefix) && !line.contains(" CR ") {
                break line;
            }
        };
        let rules = &compiled.rules[compiled.proxy(&format!("f{at}"))];
        let mut stage = Stage::request(request);
        stage.frontend.name = format!("f{at}");
        stage.frontend.unique_id_format = rules.unique_id_format.clone();
        stage.conn.dst = Some(std::net::SocketAddr::from(([127, 0, 0, 1], (base + at) as u16)));
        stage.world = Box::new(Named(hostname()));
        let fields = stage.request.as_ref().unwrap().fields.clone();
        rules.capture_request(&fields, &mut stage.txn);
        stage.with(|ctx| rules.http_request.run(ctx, 0));
        stage.txn.status = Some(200);
        // When the line is written the request is gone.
        stage.request = None;
        stage.log.termination = Termination(By::Ourselves, During::Request);
        stage.log.TR = 0;
        stage.log.Th = 0;
        stage.log.Ti = 0;
        let mut ours = Vec::new();
        stage.with(|ctx| rules.log_format.render(ctx, &mut ours));
        let ours = String::from_utf8_lossy(&ours).into_owned();
        // Milliseconds differ, hexadecimal or not.
        let theirs_shape =
            if format.contains("ms") { theirs.rsplit_once(' ').map(|(head, _)| head.to_owned()) } else { None };
        let ours_shape =
            if format.contains("ms") { ours.rsplit_once(' ').map(|(head, _)| head.to_owned()) } else { None };
        if theirs_shape.as_ref().unwrap_or(&theirs) != ours_shape.as_ref().unwrap_or(&ours) {
            differences.push(format!("{format}\n  haproxy {theirs}\n  ours    {ours}"));
        }
    }
    drop(haproxy);
    assert!(differences.is_empty(), "{} differ\n{}", differences.len(), differences.join("\n"));
}

struct Named(String);

impl penstock_rules::World for Named {
    fn hostname(&self) -> &str {
        &self.0
    }
}

fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}
