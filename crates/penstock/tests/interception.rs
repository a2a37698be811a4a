//! Outbound interception: clients of a proxy whose servers are validated before the clients are answered. curl and a browser, through
//! penstock, to nginx.

mod common;
#[allow(dead_code, reason = "the servers in it are for other tests")]
#[path = "services/fake.rs"]
mod fake;

use common::{
    Place,
    browser::Browser,
    free_port,
    running::{Running, until},
    study::{is_installed, skip},
};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd};
use serde_json::json;
use std::{
    net::{Ipv4Addr, TcpStream, UdpSocket},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

/// An authority, in a file with its key, and its certificate alone in another.
fn authority(place: &Place, name: &str) -> Issuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, format!("{name} authority"));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    place.file(&format!("{name}.crt"), &pem);
    place.file(&format!("{name}.pem"), &(pem + &key.serialize_pem()));
    Issuer::new(params, key)
}

/// A certificate of nginx for `name`, which is valid for `host`, in these years.
fn certificate(place: &Place, by: Option<&Issuer<'_, KeyPair>>, name: &str, host: &str, years: [i32; 2]) {
    let mut params = CertificateParams::new([host.to_owned(), "*.more.test".to_owned()]).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, host);
    (params.not_before, params.not_after) = (date_time_ymd(years[0], 2, 3), date_time_ymd(years[1], 4, 5));
    let key = KeyPair::generate().unwrap();
    let made = by.map_or_else(|| params.self_signed(&key).unwrap(), |by| params.signed_by(&key, by).unwrap());
    place.file(&format!("{name}.pem"), &(made.pem() + &key.serialize_pem()));
}

/// nginx with a server for each certificate, and one in clear text.
struct Nginx {
    child: Child,
    tls: u16,
    clear: u16,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

const SERVERS: [&str; 4] = ["good", "expired", "selfsigned", "wrong"];

fn nginx(place: &Place) -> Nginx {
    let origins = authority(place, "origins");
    certificate(place, Some(&origins), "good", "good.test", [2024, 2040]);
    certificate(place, Some(&origins), "expired", "expired.test", [2020, 2021]);
    certificate(place, Some(&origins), "wrong", "elsewhere.test", [2024, 2040]);
    certificate(place, None, "selfsigned", "selfsigned.test", [2024, 2040]);
    let (tls, clear, here) = (free_port(), free_port(), place.0.display());
    let servers = SERVERS.map(|name| {
        format!(
            "server {{ listen 127.0.0.1:{tls} ssl http2; server_name {name}.test; ssl_certificate {here}/{name}.pem; \
             ssl_certificate_key {here}/{name}.pem; add_header Set-Cookie \"origin=$server_protocol\"; \
             location / {{ default_type text/html; return 200 \"{name} $server_protocol $request_uri\\n\"; }} }}\n"
        )
    });
    let temporary =
        ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|kind| format!("{kind}_temp_path {here}/{kind};"));
    let text = format!(
        "daemon off; master_process off; pid {here}/nginx.pid; error_log {here}/nginx.log; events {{}} http {{ access_log off; {}\n{}\
         server {{ listen 127.0.0.1:{clear}; location / {{ return 200 \"clear $request_uri\\n\"; }} }} }}\n",
        temporary.concat(),
        servers.concat()
    );
    let file = place.file("nginx.conf", &text);
    let child = Command::new("nginx")
        .args(["-e", "/dev/null", "-c"])
        .arg(file)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("nginx listens", || TcpStream::connect((Ipv4Addr::LOCALHOST, clear)).is_ok());
    Nginx { child, tls, clear }
}

/// A name server that says 127.0.0.1 for every name, except 10.1.2.3 for those that begin with `inner`, and nothing for `nowhere`; its port.
fn name_server() -> u16 {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = socket.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut query = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut query) {
            let mut end = 12;
            while query[end] != 0 {
                end += usize::from(query[end]) + 1;
            }
            let is_known = query[end + 2] == 1 && !query[..length].windows(7).any(|part| part == b"nowhere");
            let mut answer = [&query[..2], &[0x81, 0x80, 0, 1, 0, u8::from(is_known), 0, 0, 0, 0]].concat();
            answer.extend_from_slice(&query[12..end + 5]);
            if is_known {
                // The name of the question, A, IN, 60 s, four bytes.
                answer.extend_from_slice(&[0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
                let is_inner = query[..length].windows(5).any(|part| part == b"inner");
                answer.extend_from_slice(if is_inner { &[10, 1, 2, 3] } else { &[127, 0, 0, 1] });
            }
            let _ = socket.send_to(&answer, from);
        }
    });
    port
}

/// What a configuration is made of: the directory of files, the ports of the proxy's frontends, and those of others.
struct Around {
    here: String,
    port: u16,
    tcp: u16,
    log: u16,
    dns: u16,
    tls: u16,
    clear: u16,
}

/// A proxy that intercepts.
struct Front {
    port: u16,
    /// Of the frontend in mode tcp.
    tcp: u16,
    nginx: Nginx,
    log: UdpSocket,
    place: Place,
    _running: Running,
}

impl Front {
    /// Starts it, or reports what is missing. `more` stands at the end of its `bind` lines, with HERE for the directory of files, and
    /// `rules` among its rules; what follows `@sections` in them are sections.
    fn start(name: &str, more: &str, rules: &str) -> Option<Front> {
        let (rules, sections) = rules.split_once("@sections\n").unwrap_or((rules, ""));
        Front::start_with(name, |Around { here, port, tcp, log, dns, tls, .. }| {
            let more = more.replace("HERE", here);
            let signed = format!("crt {here}/own.pem generate-certificates ca-sign-file {here}/proxy.pem {more}");
            format!(
                "global\n  nbthread 1\n  log 127.0.0.1:{log} local0\nresolvers dns\n  nameserver a 127.0.0.1:{dns}\n\
                 defaults\n  mode http\n  timeout client 10s\n  timeout server 10s\n  timeout connect 5s\n  log global\n  retries 0\n\
                 frontend proxy\n  bind 127.0.0.1:{port} ssl-on-connect alpn h2,http/1.1 {signed}\n\
                   log-format \"%HM %ST %ts to=%b/%s origin=%[origin_error] sni=%[ssl_fc_sni] host=%[var(sess.host)]\"\n\
                   tcp-request client-hello bypass direct if {{ var(sess.host) -m end .bank.test }}\n\
                   tcp-request client-hello intercept origin\n\
                   http-request set-var(sess.host) hdr(host),host_only if METH_CONNECT\n\
                   http-request do-resolve(txn.ip,dns,ipv4) hdr(host),host_only unless {{ ssl_fc }}\n\
                   http-request deny status 502 if !{{ ssl_fc }} !{{ var(txn.ip) -m found }}\n\
                   http-request set-dst var(txn.ip) unless {{ ssl_fc }}\n\
                   http-request set-dst-port hdr(host),port_only unless {{ ssl_fc }}\n{rules}\
                   use_backend origin if {{ ssl_fc }}\n  default_backend clear\n\
                 frontend tcp\n  mode tcp\n  bind 127.0.0.1:{tcp} ssl alpn h2,http/1.1 {signed}\n\
                   tcp-request client-hello intercept origin-tcp\n  default_backend origin-tcp\n\
                 backend origin\n\
                   server o 0.0.0.0:0 ssl verify required ca-file {here}/origins.crt sni ssl_fc_sni alpn h2,http/1.1\n\
                 backend origin-tcp\n  mode tcp\n\
                   server o 127.0.0.1:{tls} ssl verify required ca-file {here}/origins.crt sni ssl_fc_sni alpn h2,http/1.1\n\
                 backend clear\n  server c 0.0.0.0:0\n\
                 backend direct\n  mode tcp\n  server d 0.0.0.0:0\n{sections}"
            )
        })
    }

    /// Starts it with this configuration, or reports what is missing.
    fn start_with(name: &str, config: impl FnOnce(&Around) -> String) -> Option<Front> {
        if !is_installed("nginx") {
            skip(&format!("{name}: nginx is not installed"));
            return None;
        }
        let place = Place::new(name);
        let nginx = nginx(&place);
        for name in ["proxy", "untrusted"] {
            authority(&place, name);
        }
        certificate(&place, None, "own", "own.test", [2024, 2040]);
        let log = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        log.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let around = Around {
            here: place.0.display().to_string(),
            port: free_port(),
            tcp: free_port(),
            log: log.local_addr().unwrap().port(),
            dns: name_server(),
            tls: nginx.tls,
            clear: nginx.clear,
        };
        let file = place.file("test.cfg", &config(&around));
        let running = Running::start(&[&"-f", &file]);
        let Around { port, tcp, .. } = around;
        until("it listens", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
        Some(Front { port, tcp, nginx, log, place, _running: running })
    }

    /// What curl gets through the proxy: the text, and in the last line what `-w` says.
    fn curl(&self, urls: &[&str], more: &[&str]) -> String {
        let done = Command::new("curl")
            .args(["-s", "--max-time", "20", "-x", &format!("http://127.0.0.1:{}", self.port), "--cacert"])
            .arg(self.place.0.join("proxy.crt"))
            .args(["-w", "%{http_code} %{http_version} %{errormsg}\n"])
            .args(more)
            .args(urls)
            .output()
            .expect("curl runs");
        String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr)
    }
    /// What curl gets from the frontend in mode tcp, which has TLS from the first byte, and what it says about that.
    fn curl_tcp(&self, name: &str, more: &[&str]) -> (String, String) {
        let (to, url) = (format!("{name}:{}:127.0.0.1", self.tcp), format!("https://{name}:{}/x", self.tcp));
        let mut command = Command::new("curl");
        command.args(["-sS", "--max-time", "20", "--resolve", &to, "--cacert"]).arg(self.place.0.join("proxy.crt"));
        let done = command.args(more).arg(url).output().expect("curl runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&done.stdout), text(&done.stderr))
    }
    fn url(&self, name: &str) -> String {
        format!("https://{name}.test:{}/path", self.nginx.tls)
    }
    /// The next log line that contains `word`.
    fn logged(&self, word: &str) -> String {
        let mut buffer = [0; 4096];
        loop {
            let length = self.log.recv(&mut buffer).unwrap_or_else(|e| panic!("no line with {word}: {e}"));
            let line = String::from_utf8_lossy(&buffer[..length]).trim_end().to_owned();
            if line.contains(word) {
                return line;
            }
        }
    }
}

#[test]
fn a_server_that_validates_is_reached_through_a_certificate_that_says_the_same() {
    let Some(front) = Front::start("intercept-good", "", "") else { return };
    let url = front.url("good");
    assert_eq!(front.curl(&[&url], &[]), "good HTTP/2.0 /path\n200 2 \n");
    let line = front.logged("GET");
    assert!(line.ends_with("GET 200 -- to=origin/o origin=- sni=good.test host=good.test"), "{line}");
    // Protocols are the server's answer to what the client offers; a kept connection serves the next request.
    let twice = front.curl(&[&url, &url], &["--http1.1"]);
    assert_eq!(twice, "good HTTP/1.1 /path\n200 1.1 \ngood HTTP/1.1 /path\n200 1.1 \n");
    assert_eq!(front.curl(&[&url], &["--tls-max", "1.2"]), "good HTTP/2.0 /path\n200 2 \n");
    let said = front.curl(&[&url], &["-v"]);
    for part in ["CN=good.test", "start date: Feb  3 00:00:00 2024 GMT", "expire date: Apr  5 00:00:00 2040 GMT"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // Requests in clear text with the whole URL go to their server too.
    let clear = front.curl(&[&format!("http://good.test:{}/x", front.nginx.clear)], &[]);
    assert_eq!(clear, "clear /x\n200 1.1 \n");
    // Those on the list are not decrypted: the client sees the server's own certificate.
    let bypassed = front.curl(&[&front.url("a.bank")], &[]);
    assert!(bypassed.starts_with("000 0 SSL certificate problem"), "{bypassed}");
    assert!(front.logged("to=direct/").ends_with("to=direct/d origin=- sni=- host=a.bank.test"));
    // A name that does not exist, and a port where nobody listens.
    assert!(front.curl(&[&front.url("nowhere")], &[]).contains("CONNECT tunnel failed, response 502"));
    let nobody = front.curl(&[&format!("https://good.test:{}/", free_port())], &[]);
    assert!(nobody.contains("503") && nobody.contains("Server could not be reached."), "{nobody}");
}

/// The configuration in the manual, with the addresses and files of this test. The servers are on this machine, so its network is allowed.
#[test]
fn the_example_of_the_manual_does_what_is_said_there() {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/orchestration.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    let (_, section) = manual.split_once("\n## Outbound: a proxy for clients\n").expect("the section is there");
    let example =
        section.split("```").nth(1).and_then(|block| block.strip_prefix("haproxy\n")).expect("it has an example");
    let icap = fake::service(Arc::default());
    let started = Front::start_with("intercept-manual", |Around { here, port, dns, tls, clear, .. }| {
        let categories = format!("{here}/categories.map");
        std::fs::write(&categories, ".bank.test finance\n").unwrap();
        let mut text = example.to_owned();
        for (from, to) in [
            ("192.0.2.53:53", format!("127.0.0.1:{dns}")),
            ("bind :3128 ", format!("bind 127.0.0.1:{port} ")),
            ("crt own.pem", format!("crt {here}/own.pem")),
            ("ca-sign-file authority.pem", format!("ca-sign-file {here}/proxy.pem")),
            ("map_end(categories.map)", format!("map_end({categories})")),
            ("@system-ca", format!("{here}/origins.crt")),
            (" 127.0.0.0/8 ", " ".to_owned()),
            ("port_only 443", format!("port_only {tls}")),
            ("0.0.0.0:80", format!("0.0.0.0:{clear}")),
        ] {
            assert_eq!(text.matches(from).count(), 1, "{from}: {text}");
            text = text.replace(from, &to);
        }
        let settings = "defaults\n  mode http\n  timeout client 10s\n  timeout server 10s\n  timeout connect 5s\n";
        let service = format!("service echo\n  mode icap\n  reqmod /echo\n  server s 127.0.0.1:{icap}\n");
        format!("{settings}{text}{service}service-chain inspect\n  inspect echo\n")
    });
    let Some(front) = started else { return };
    for version in ["--http2", "--http1.1"] {
        let got = front.curl(&[&front.url("good")], &[version]);
        assert!(got.starts_with("good HTTP/") && got.contains("\n200 "), "{got}");
        let got = front.curl(&[&front.url("expired")], &[version]);
        assert!(got.contains("503") && got.contains("Server certificate has expired"), "{got}");
    }
    let clear = front.curl(&["http://good.test/x"], &[]);
    assert_eq!(clear, "clear /x\n200 1.1 \n");
    for name in ["a.bank", "bank"] {
        let bypassed = front.curl(&[&front.url(name)], &[]);
        assert!(bypassed.starts_with("000 0 SSL certificate problem"), "{name}: {bypassed}");
    }
    let not_a_bank = front.curl(&[&front.url("evilbank")], &[]);
    assert!(not_a_bank.contains("503"), "{not_a_bank}");
    // Another site of the same server, by a request in the tunnel and by the ClientHello.
    let got = front.curl(&[&front.url("good")], &["-H", "Host: x.more.test"]);
    assert!(got.contains("421 2"), "{got}");
    let to = format!("x.more.test:{}:good.test:{}", front.nginx.tls, front.nginx.tls);
    let got = front.curl(&[&front.url("x.more")], &["--connect-to", &to]);
    assert!(got.starts_with("000 0 "), "{got}");
    // Another port than that of HTTPS, and addresses that are not for clients.
    for refused in ["https://good.test:22/".to_owned(), front.url("inner")] {
        let got = front.curl(&[&refused], &[]);
        assert!(got.contains("CONNECT tunnel failed, response 403"), "{refused}: {got}");
    }
    let got = front.curl(&["http://inner.test/"], &[]);
    assert!(got.contains("403 1.1"), "{got}");
}

#[test]
fn a_server_that_does_not_validate_is_refused_and_the_reason_told() {
    let Some(front) = Front::start("intercept-refused", "", "") else { return };
    for (name, reason) in [
        ("expired", "Server certificate has expired"),
        ("selfsigned", "Server certificate is self-signed"),
        ("wrong", "Server certificate is for another name"),
    ] {
        for more in [&[][..], &["--http1.1"]] {
            let got = front.curl(&[&front.url(name), &front.url(name)], more);
            assert_eq!(got.matches(reason).count(), 2, "{name}: {got}");
            assert!(got.contains("503") && !got.contains(&format!("{name} HTTP")), "{name}: {got}");
            assert!(front.logged("proxy/1: ").ends_with(reason));
            let line = front.logged("GET");
            assert!(line.contains(&format!("GET 503 SC to=origin/<NOSRV> origin={reason} sni={name}.test")), "{line}");
        }
        // Where there is no HTTP to say it in, the alert says it.
        let (_, said) = front.curl_tcp(&format!("{name}.test"), &["-v"]);
        let alert = match name {
            "expired" => "alert, certificate expired",
            "selfsigned" => "alert, unknown ca",
            _ => "alert, bad certificate",
        };
        assert!(said.to_lowercase().contains(alert), "{name}: {said}");
        assert!(front.logged("tcp/1: ").ends_with(reason));
    }
    for (more, got) in [("--http2", "good HTTP/2.0 /x\n"), ("--http1.1", "good HTTP/1.1 /x\n")] {
        let said = front.curl_tcp("good.test", &[more]);
        assert_eq!(said.0, got, "in mode tcp, {more}: {}", said.1);
    }
}

#[test]
fn a_server_whose_key_is_too_weak_is_not_said_to_be_out_of_reach() {
    let Some(front) = Front::start("intercept-weak", "", "") else { return };
    let (here, port) = (front.place.0.display(), free_port());
    for command in [
        format!(
            "req -new -newkey rsa:1024 -nodes -subj /CN=weak.test -addext subjectAltName=DNS:weak.test \
             -keyout {here}/weak.key -out {here}/weak.csr"
        ),
        format!(
            "x509 -req -in {here}/weak.csr -CA {here}/origins.crt -CAkey {here}/origins.pem -copy_extensions copy \
             -days 30 -out {here}/weak.pem"
        ),
    ] {
        let made = Command::new("openssl").args(command.split(' ')).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
    let server = format!("s_server -www -quiet -accept {port} -cert {here}/weak.pem -key {here}/weak.key -cipher");
    let server = Command::new("openssl")
        .args(server.split(' '))
        .arg("ALL:@SECLEVEL=0")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _server = Running(server);
    until("it listens", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
    let got = front.curl(&[&format!("https://weak.test:{port}/")], &[]);
    assert!(got.contains("Server does not speak TLS as it has to: "), "{got}");
    assert!(front.logged("proxy/1: ").contains("Server does not speak TLS as it has to: "));
}

#[test]
fn a_second_authority_shows_clients_that_a_server_does_not_validate() {
    let Some(front) = Front::start("intercept-untrusted", "ca-sign-untrusted HERE/untrusted.pem", "") else { return };
    assert_eq!(front.curl(&[&front.url("good")], &[]), "good HTTP/2.0 /path\n200 2 \n");
    for (name, reason) in
        [("expired", "has expired"), ("selfsigned", "is self-signed"), ("wrong", "is for another name")]
    {
        let refused = front.curl(&[&front.url(name)], &[]);
        assert!(refused.starts_with("000 0 SSL"), "{name}: {refused}");
        // Whoever goes on all the same reaches that server and no other, with every request.
        for more in ["--http2", "--http1.1"] {
            let twice = front.curl(&[&front.url(name), &front.url(name)], &["-k", more]);
            assert_eq!(twice.matches(&format!("{name} HTTP/")).count(), 2, "{name} {more}: {twice}");
            let line = front.logged(&format!("sni={name}.test"));
            assert!(
                line.contains(&format!("to=origin/o origin=Server certificate {reason} sni={name}.test")),
                "{line}"
            );
        }
        let said = front.curl(&[&front.url(name)], &["-kv"]);
        let until =
            if name == "expired" { "expire date: Apr  5 00:00:00 2021" } else { "expire date: Apr  5 00:00:00 2040" };
        assert!(said.contains("issuer: CN=untrusted authority") && said.contains(until), "{name}: {said}");
    }
}

#[test]
fn what_is_decrypted_passes_the_services_and_what_is_not_does_not() {
    let port = fake::service(Arc::default());
    let service = |name: &str| {
        format!(
            "service {name}\n  mode icap\n  reqmod /{name}\n  respmod /{name}\n  server s 127.0.0.1:{port}\n\
             service-chain {name}\n  inspect {name}\n"
        )
    };
    let rules = format!(
        "  http-request service-chain echo if {{ ssl_fc }}\n\
           http-request service-chain early if {{ ssl_fc }} {{ req.hdr(x-bad) -m found }}\n\
           http-response set-header said %[inspection_verdicts]\n  @sections\n{}{}",
        service("echo"),
        service("early")
    );
    let Some(front) = Front::start("intercept-services", "", &rules) else { return };
    for version in ["--http2", "--http1.1"] {
        let got = front.curl(&[&front.url("good")], &["-i", version]);
        assert!(got.contains(" 200") && got.contains("\r\n\r\ngood HTTP/"), "{got}");
        assert!(got.contains("said: echo.request=modified:"), "{got}");
        let got = front.curl(&[&front.url("good")], &["-H", "X-Bad: 1", version]);
        assert!(got.contains("blocked") && !got.contains("good HTTP/"), "{got}");
    }
    // The client sees the server's own certificate of what is passed on as it is.
    let bypassed = front.curl(&[&front.url("a.bank")], &["-H", "X-Bad: 1"]);
    assert!(bypassed.starts_with("000 0 SSL certificate problem"), "{bypassed}");
}

#[test]
fn a_browser_goes_through_the_proxy() {
    let Some(front) = Front::start("intercept-browser", "ca-sign-use-chain", "") else { return };
    let hash = "openssl x509 -pubkey -noout -in \"$0\" | openssl pkey -pubin -outform der | openssl dgst -sha256 -binary | base64";
    let hash = Command::new("sh").args(["-c", hash]).arg(front.place.0.join("proxy.crt")).output().unwrap().stdout;
    // The browser trusts whatever has the authority's key in its chain.
    let trusts = format!("--ignore-certificate-errors-spki-list={}", String::from_utf8_lossy(&hash).trim());
    let proxy = format!("--proxy-server=http://127.0.0.1:{}", front.port);
    let Some(mut browser) = Browser::start_with(&front.place, "interception", &[&proxy, &trusts]) else { return };
    browser.open(&front.url("good"), 1000, false);
    browser.until("document.body.innerText.startsWith('good HTTP/2.0 /path')");
    assert_eq!(browser.value("document.cookie"), json!("origin=HTTP/2.0"));
    browser.open(&front.url("expired"), 1000, false);
    browser.until("document.body.innerText.includes('Server certificate has expired.')");
}
