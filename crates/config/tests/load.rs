//! Ordinary configurations become the typed one that the rest of the program reads.

use penstock_config::{
    Config, Diagnostics, Env, Severity, Source, load,
    model::{
        Balance, BalanceKey, ListenAddress, LogAddress, LogFormat, Mode, ProxyId, ProxyKind, ServerHost, ServerPort,
        TlsVersion, Verify,
    },
};
use std::{collections::BTreeMap, io, path::Path, time::Duration};

fn read(text: &str) -> (Config, Diagnostics) {
    load([Source::new("haproxy.cfg", text.as_bytes())], &Env::default())
}

fn valid(text: &str) -> Config {
    let (config, diagnostics) = read(text);
    assert!(!diagnostics.has_errors(), "{:#?}", diagnostics.list);
    config
}

fn errors(text: &str) -> Vec<String> {
    let (_, diagnostics) = read(text);
    diagnostics.list.into_iter().filter(|d| d.severity == Severity::Error).map(|d| d.message).collect()
}

const SITE: &str = r#"
global
    log /dev/log local0
    log 127.0.0.1:5140 len 2048 format rfc5424 local1 notice
    chroot /var/lib/haproxy
    user haproxy
    group haproxy
    daemon
    maxconn 20000
    nbthread 4
    cpu-map auto:1/1-4 0-3
    stats socket /run/haproxy/admin.sock mode 660 level admin expose-fd listeners
    stats timeout 30s
    crt-base /etc/ssl/private
    ca-base /etc/ssl/certs
    ssl-default-bind-ciphersuites TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384
    ssl-default-bind-options prefer-client-ciphers no-sslv3 no-tlsv10 no-tlsv11 no-tls-tickets
    tune.ssl.default-dh-param 2048

defaults
    log global
    mode http
    option httplog
    option dontlognull
    timeout connect 5000
    timeout client 50s
    timeout server 50s
    errorfile 503 /etc/haproxy/errors/503.http

frontend www
    bind *:80
    bind :::443,0.0.0.0:8443-8445 v6only name tls ssl crt site.pem alpn h2,http/1.1 verify optional ca-file clients.pem
    acl is_api path_beg /api /v1
    http-request redirect scheme https unless { ssl_fc }
    http-request set-header X-Forwarded-Proto https if { ssl_fc }
    use_backend api if is_api
    default_backend app

backend app
    balance leastconn
    cookie SRV insert indirect nocache httponly secure
    option httpchk GET /health
    http-check expect status 200
    default-server inter 3s fall 5 check
    server a 10.0.0.1:8080 cookie a
    server b app.example.com:8080 cookie b weight 50 backup no-check
    server c [2001:db8::1]:8443 ssl verify required ca-file upstream.pem sni req.hdr(host) alpn h2

backend api
    mode http
    balance uri whole depth 3
    retries 2
    server-template api 1-3 10.0.1.1:9000 maxconn 100 check inter 1s

listen stats
    bind 127.0.0.1:8404
    stats enable
    stats uri /stats
    stats auth admin:secret

listen mysql
    mode tcp
    option tcplog
    bind unix@/run/mysql.sock mode 600
    server db1 /run/db.sock check
    timeout client 1h
"#;

fn site() -> (Config, Diagnostics) {
    let files = |path: &Path| match path.to_str() {
        Some("/etc/haproxy/errors/503.http") => Ok(b"HTTP/1.0 503 No\r\n\r\n".to_vec()),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    load([Source::new("haproxy.cfg", SITE.as_bytes())], &Env { files: &files, ..Env::default() })
}

#[test]
fn a_whole_site_is_read() {
    let (config, diagnostics) = site();
    assert!(!diagnostics.has_errors(), "{:#?}", diagnostics.list);
    let global = &config.global;
    assert_eq!((global.maxconn, global.nbthread, global.daemon), (Some(20000), Some(4), true));
    assert_eq!(global.cpu_map, BTreeMap::from([(1, vec![0]), (2, vec![1]), (3, vec![2]), (4, vec![3])]));
    assert_eq!(global.logs[0].address, LogAddress::Unix("/dev/log".into()));
    assert_eq!(global.logs[1].address, LogAddress::Udp("127.0.0.1".into(), 5140));
    assert_eq!((global.logs[1].facility, global.logs[1].level, global.logs[1].len), (17, 5, 2048));
    assert_eq!(global.tls_bind.min_ver, Some(TlsVersion::Tls12));
    assert!(global.tls_bind.no_tls_tickets && global.tls_bind.prefer_client_ciphers);
    assert_eq!(global.stats_sockets[0].mode, Some(0o660));

    let names: Vec<_> = config.proxies.iter().map(|p| (p.name.as_str(), p.kind)).collect();
    let (front, back, listen) = (ProxyKind::Frontend, ProxyKind::Backend, ProxyKind::Listen);
    assert_eq!(names, [("www", front), ("app", back), ("api", back), ("stats", listen), ("mysql", listen)]);

    let www = &config.proxies[ProxyId(0)];
    assert_eq!((www.mode, www.log_global, www.options.log), (Mode::Http, true, LogFormat::Http));
    assert_eq!(www.timeouts.connect, Some(Duration::from_secs(5)));
    assert_eq!(www.timeouts.client, Some(Duration::from_secs(50)));
    assert_eq!(www.errorfiles[&503].content, b"HTTP/1.0 503 No\r\n\r\n");
    let any = |first, last| ListenAddress::Ip { ip: "0.0.0.0".parse().unwrap(), first, last };
    assert_eq!(www.binds[0].addresses[0].value, any(80, 80));
    let v6 = ListenAddress::Ip { ip: "::".parse().unwrap(), first: 443, last: 443 };
    assert_eq!(www.binds[1].addresses.iter().map(|a| a.value.clone()).collect::<Vec<_>>(), [v6, any(8443, 8445)]);
    let tls = www.binds[1].tls.as_ref().expect("the bind line says ssl");
    assert_eq!(tls.crt[0].value, Path::new("/etc/ssl/private/site.pem"));
    assert_eq!(tls.conf.ca_file.as_ref().unwrap().value, Path::new("/etc/ssl/certs/clients.pem"));
    assert_eq!(
        (tls.conf.verify, tls.conf.alpn.clone()),
        (Some(Verify::Optional), Some(vec!["h2".into(), "http/1.1".into()]))
    );
    let words = |line: &penstock_config::Line| line.words.iter().map(|w| w.text.clone()).collect::<Vec<_>>();
    assert_eq!(words(&www.acls[0]), ["is_api", "path_beg", "/api", "/v1"]);
    assert_eq!(words(&www.http_request[0]), ["redirect", "scheme", "https", "unless", "{", "ssl_fc", "}"]);
    assert_eq!(words(&www.use_backend[0]), ["api", "if", "is_api"]);
    assert_eq!(www.default_backend.as_ref().unwrap().text, "app");

    let app = &config.proxies[ProxyId(1)];
    assert_eq!(app.balance, Some(Balance::plain("leastconn")));
    assert_eq!(words(&app.http_check[0]), ["expect", "status", "200"]);
    let [a, b, c] = app.servers.as_slice() else { panic!("three servers") };
    assert_eq!((&a.host, a.port), (&ServerHost::Ip("10.0.0.1".parse().unwrap()), ServerPort::Fixed(8080)));
    assert!(a.settings.check.enabled && a.settings.check.inter == Duration::from_secs(3) && a.settings.check.fall == 5);
    assert_eq!(b.host, ServerHost::Name("app.example.com".into()));
    assert!(b.settings.backup && !b.settings.check.enabled && b.settings.weight == 50);
    let tls = c.settings.tls.as_ref().expect("the server line says ssl");
    assert_eq!(tls.conf.ca_file.as_ref().unwrap().value, Path::new("/etc/ssl/certs/upstream.pem"));
    assert_eq!(words(tls.sni.as_ref().unwrap()), ["req.hdr(host)"]);

    let api = &config.proxies[ProxyId(2)];
    assert_eq!(
        api.balance,
        Some(Balance::by("uri", BalanceKey::Uri { whole: true, path_only: false, len: None, depth: Some(3) }))
    );
    assert_eq!(api.servers.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["api1", "api2", "api3"]);
    assert_eq!(config.proxies[ProxyId(3)].stats.as_ref().unwrap().auth, [("admin".into(), "secret".into())]);
    let mysql = &config.proxies[ProxyId(4)];
    assert_eq!((mysql.mode, mysql.timeouts.client), (Mode::Tcp, Some(Duration::from_secs(3600))));
    assert_eq!(mysql.servers[0].host, ServerHost::Unix("/run/db.sock".into()));
}

#[test]
fn defaults_are_anonymous_named_or_inherited() {
    let config = valid(
        "defaults plain\n mode http\n retries 7\n timeout client 1s\n\
         defaults base from plain\n http-request deny if { path /a }\n\
         defaults more from plain\n timeout client 2s\n option forwardfor except 127.0.0.0/8 header X-F\n\
         frontend f from base\n bind :1\n\
         frontend g\n bind :2\n\
         defaults\n timeout client 0\n\
         listen h\n bind :3\n",
    );
    let [f, g, h] = &config.proxies.iter().collect::<Vec<_>>()[..] else { panic!("three proxies") };
    assert_eq!((f.mode, f.retries, f.timeouts.client), (Mode::Http, 7, Some(Duration::from_secs(1))));
    assert_eq!(f.http_request.len(), 1);
    assert!(f.options.forwardfor.is_none());
    assert_eq!((g.mode, g.retries, g.timeouts.client), (Mode::Http, 7, Some(Duration::from_secs(2))));
    let forward = g.options.forwardfor.as_ref().expect("inherited");
    assert_eq!((forward.except, forward.header.as_deref()), (Some(("127.0.0.0".parse().unwrap(), 8)), Some("X-F")));
    assert_eq!((h.mode, h.retries, h.timeouts.client), (Mode::Tcp, 3, None));
}

#[test]
fn all_errors_are_reported_at_once() {
    let found = errors("global\n maxcon 10\n nbproc 4\nfrontend f\n bind :80x\n mode htp\n use_backend nowhere\n");
    assert_eq!(found.len(), 5, "{found:#?}");
    assert!(found.last().unwrap().contains("no backend is called 'nowhere'"));
}

#[test]
fn a_guid_names_one_thing_only() {
    let config = |listener: &str, backend: &str, server: &str| {
        format!(
            "frontend f\n  bind :80 guid-prefix {listener}\nbackend b\n  guid {backend}\n  server s 127.0.0.1:1 guid {server}\n"
        )
    };
    valid(&config("a-0", "a", "b.:_-9"));
    assert_eq!(errors(&config("a", "b", "b")), ["the guid 'b' is already used"]);
    // The line's first socket is called by this.
    assert_eq!(errors(&config("a", "a-0", "b")), ["the guid 'a-0' is already used"]);
    assert_eq!(errors(&config("a", "a", "b@c")), ["'@' cannot be in a guid"]);
    assert_eq!(errors(&config("a", &"x".repeat(128), "b")), ["a guid has 1 to 127 characters"]);
    assert!(errors("backend b\n  default-server guid x\n")[0].contains("'guid' cannot be a default"));
}

#[test]
fn a_checked_server_needs_a_port_unless_its_address_is_a_placeholder() {
    let config = |address: &str| format!("backend b\n  server s {address} check\n");
    for address in ["0.0.0.0", ":", "*:", "[::]", "127.0.0.1:80"] {
        valid(&config(address));
    }
    for address in ["127.0.0.1", "127.0.0.1:", "[::1]"] {
        assert_eq!(errors(&config(address)), ["server 's' is checked, but no port says where"], "{address}");
    }
}
