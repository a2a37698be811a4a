//! What single lines become.

use penstock_config::{
    Config, Env, Severity, Source, Word, load,
    model::{
        Balance, BalanceKey, Bind, CheckKind, ConnectionMode, CookieMode, HashFunction, InitAddr, ListenAddress,
        LogAddress, LogTransport, Proxy, ProxyId, Server, ServerHost, ServerPort, TlsVersion, Verify,
    },
};
use std::{path::Path, time::Duration};

fn valid(text: &str) -> Config {
    let (config, diagnostics) = load([Source::new("v.cfg", text.as_bytes())], &Env::default());
    assert!(!diagnostics.has_errors(), "{text}\n{}", diagnostics.render(&config.files, Severity::Error, false));
    config
}

fn global(lines: &str) -> penstock_config::model::Global {
    valid(&format!("global\n{lines}\n")).global
}

fn listen(lines: &str) -> Proxy {
    valid(&format!("listen l\n mode http\n{lines}\n")).proxies.into_iter().next().expect("a proxy")
}

fn bind(line: &str) -> Bind {
    listen(&format!("bind {line}")).binds.remove(0)
}

fn server(line: &str) -> Server {
    let config = valid(&format!("backend b\n mode http\n server s {line}\n"));
    Server::clone(&config.proxies.iter().next().expect("a proxy").servers[0])
}

#[test]
fn addresses_to_listen_on() {
    let ip = |ip: &str, first, last| ListenAddress::Ip { ip: ip.parse().unwrap(), first, last };
    for (text, address) in [
        (":80", ip("0.0.0.0", 80, 80)),
        ("*:80", ip("0.0.0.0", 80, 80)),
        ("192.0.2.1:80-90", ip("192.0.2.1", 80, 90)),
        (":::443", ip("::", 443, 443)),
        ("[::]:443", ip("::", 443, 443)),
        ("2001:db8::1:443", ip("2001:db8::1", 443, 443)),
        ("ipv6@:443", ip("::", 443, 443)),
        ("ipv4@*:443", ip("0.0.0.0", 443, 443)),
        ("tcp@192.0.2.1:80", ip("192.0.2.1", 80, 80)),
        ("localhost:80", ListenAddress::Host { host: "localhost".into(), first: 80, last: 80 }),
        ("unix@/run/a.sock", ListenAddress::Unix("/run/a.sock".into())),
        ("/run/a.sock", ListenAddress::Unix("/run/a.sock".into())),
        ("abns@name", ListenAddress::Abstract(format!("{:\0<107}", "name"))),
        ("fd@3", ListenAddress::Fd(3)),
    ] {
        assert_eq!(bind(text).addresses[0].value, address, "{text}");
    }
    assert_eq!(bind(":80,:81,/a").addresses.len(), 3);
}

#[test]
fn addresses_of_servers() {
    let ip = |ip: &str| ServerHost::Ip(ip.parse().unwrap());
    for (text, host, port) in [
        ("192.0.2.1:80", ip("192.0.2.1"), ServerPort::Fixed(80)),
        ("192.0.2.1", ip("192.0.2.1"), ServerPort::Offset(0)),
        ("192.0.2.1:+1000", ip("192.0.2.1"), ServerPort::Offset(1000)),
        ("192.0.2.1:-10", ip("192.0.2.1"), ServerPort::Offset(-10)),
        ("[2001:db8::1]:80", ip("2001:db8::1"), ServerPort::Fixed(80)),
        ("*:80", ip("0.0.0.0"), ServerPort::Fixed(80)),
        ("www.example.com:80", ServerHost::Name("www.example.com".into()), ServerPort::Fixed(80)),
        ("unix@/run/a.sock", ServerHost::Unix("/run/a.sock".into()), ServerPort::Offset(0)),
        ("abns@a", ServerHost::Abstract(format!("{:\0<107}", "a")), ServerPort::Offset(0)),
    ] {
        let server = server(text);
        assert_eq!((server.host, server.port), (host, port), "{text}");
    }
}

#[test]
fn settings_of_bind_lines() {
    let socket =
        bind(":80 name a id 7 interface eth0 backlog 10 maxconn 5 v6only tfo mss 1400 tcp-ut 5s proto h2 accept-proxy");
    assert_eq!((socket.name.as_deref(), socket.id, socket.interface.as_deref()), (Some("a"), Some(7), Some("eth0")));
    assert_eq!((socket.backlog, socket.maxconn, socket.mss), (Some(10), Some(5), Some(1400)));
    assert!(socket.v6only && socket.tfo && socket.accept_proxy && socket.tls.is_none());
    let tls = bind(
        ":443 ssl crt a.pem crt b/ crt-list l.txt verify required ca-file @system-ca crl-file c.pem alpn h2 strict-sni",
    );
    let tls = tls.tls.expect("ssl");
    assert_eq!((tls.crt.len(), tls.crt_list.len(), tls.conf.verify), (2, 1, Some(Verify::Required)));
    assert_eq!(tls.conf.ca_file.unwrap().value, Path::new("@system-ca"));
    assert!(tls.strict_sni);
    let range = |settings: &str| {
        let conf = bind(&format!(":443 ssl crt a.pem {settings}")).tls.expect("ssl").conf;
        (conf.min_ver, conf.max_ver)
    };
    use TlsVersion::{Tls10, Tls12, Tls13};
    assert_eq!(range("ssl-min-ver TLSv1.2 ssl-max-ver TLSv1.3"), (Some(Tls12), Some(Tls13)));
    assert_eq!(range("force-tlsv12"), (Some(Tls12), Some(Tls12)));
    assert_eq!(range("no-sslv3 no-tlsv10 no-tlsv11"), (Some(Tls12), None));
    assert_eq!(range("no-tlsv11 no-tlsv10 no-sslv3"), (Some(Tls12), None));
    assert_eq!(range("no-sslv3 no-tlsv13"), (Some(Tls10), Some(Tls12)));
    assert_eq!(range("no-tlsv13"), (None, Some(Tls12)));
}

#[test]
fn bases_lead_relative_paths() {
    let config = valid(
        "global\n crt-base /crt\n ca-base /ca\nlisten l\n bind :1 ssl crt a.pem crt /b.pem ca-file c.pem ca-verify-file /d.pem\n \
         server s 192.0.2.1:1 ssl crt e.pem ca-file f.pem crl-file g.pem\n",
    );
    let tls = config.proxies[ProxyId(0)].binds[0].tls.as_ref().expect("ssl");
    let paths: Vec<_> = tls.crt.iter().map(|p| p.value.to_str().unwrap()).collect();
    assert_eq!(paths, ["/crt/a.pem", "/b.pem"]);
    assert_eq!(tls.conf.ca_file.as_ref().unwrap().value, Path::new("/ca/c.pem"));
    assert_eq!(tls.conf.ca_verify_file.as_ref().unwrap().value, Path::new("/d.pem"));
    let tls = config.proxies[ProxyId(0)].servers[0].settings.tls.as_ref().expect("ssl");
    assert_eq!(tls.crt.as_ref().unwrap().value, Path::new("/crt/e.pem"));
    assert_eq!(tls.conf.ca_file.as_ref().unwrap().value, Path::new("/ca/f.pem"));
    assert_eq!(tls.conf.crl_file.as_ref().unwrap().value, Path::new("/ca/g.pem"));
    let config = valid("global\n default-path origin /etc/lb\nlisten l\n bind :1 ssl crt a.pem\n");
    assert_eq!(config.proxies[ProxyId(0)].binds[0].tls.as_ref().unwrap().crt[0].value, Path::new("/etc/lb/a.pem"));
}

#[test]
fn settings_of_servers_and_their_defaults() {
    let s =
        server("192.0.2.1:80 check inter 1s fastinter 2s downinter 3s rise 4 fall 5 port 6 addr 192.0.2.2").settings;
    let s = &s.check;
    assert!(s.enabled && s.rise == 4 && s.fall == 5 && s.port == Some(6));
    assert_eq!(
        (s.inter, s.fastinter, s.downinter),
        (Duration::from_secs(1), Some(Duration::from_secs(2)), Some(Duration::from_secs(3)))
    );
    let s = server(
        "192.0.2.1:80 ssl verify none sni str(a) alpn h2,http/1.1 no-ssl-reuse init-addr last,libc,none,192.0.2.3",
    )
    .settings;
    let tls = s.tls.as_ref().expect("ssl");
    assert_eq!(
        (tls.conf.verify, tls.no_ssl_reuse, tls.sni.as_ref().unwrap().words[0].text.as_str()),
        (Some(Verify::None), true, "str(a)")
    );
    assert_eq!(
        s.init_addr,
        [InitAddr::Last, InitAddr::Libc, InitAddr::None, InitAddr::Ip("192.0.2.3".parse().unwrap())]
    );
    assert!(server("192.0.2.1:80 verify none").settings.tls.is_none());
    assert_eq!(server("192.0.2.1:80 send-proxy").settings.proxy_header_version(), Some(1));
    assert_eq!(server("192.0.2.1:80 send-proxy-v2-ssl-cn").settings.proxy_v2_options, ["ssl", "cert-cn"]);
    assert_eq!(server("192.0.2.1:80 send-proxy no-send-proxy").settings.proxy_header_version(), None);
    assert_eq!(
        server("192.0.2.1:80 source 192.0.2.7:1000-2000 interface eth1").settings.source.as_ref().unwrap().ports,
        Some((1000, 2000))
    );
    let config = valid(
        "defaults\n default-server maxconn 10 check\nbackend b\n default-server maxconn 20 ssl verify none\n \
         server a 192.0.2.1:1\n server b 192.0.2.1:2 no-check no-ssl maxconn 5\n server-template t 2-3 192.0.2.1:3 id 9\n",
    );
    let [a, b, t2, t3] = config.proxies[ProxyId(0)].servers.as_slice() else { panic!("four servers") };
    assert!(a.settings.check.enabled && a.settings.maxconn == 20 && a.settings.tls.is_some());
    assert!(!b.settings.check.enabled && b.settings.maxconn == 5 && b.settings.tls.is_none());
    assert_eq!((t2.name.as_str(), t2.template, t2.settings.id), ("t2", Some(2), Some(9)));
    assert_eq!((t3.name.as_str(), t3.template, t3.settings.id), ("t3", Some(3), Some(10)));
}

#[test]
fn ways_to_balance_and_to_hash() {
    let balance = |text: &str| listen(&format!("bind :1\n balance {text}")).balance.unwrap();
    assert_eq!(balance("static-rr"), Balance::plain("static-rr"));
    assert_eq!(balance("random"), Balance { draws: 2, ..Balance::plain("random") });
    assert_eq!(balance("random(5)"), Balance { draws: 5, ..Balance::plain("random") });
    assert_eq!(
        balance("uri len 3 path-only"),
        Balance::by("uri", BalanceKey::Uri { whole: false, path_only: true, len: Some(3), depth: None })
    );
    assert_eq!(
        balance("url_param id check_post"),
        Balance::by("url_param", BalanceKey::UrlParam { name: "id".into(), check_post: Some(48) })
    );
    assert_eq!(
        balance("hdr(Host) use_domain_only"),
        Balance::by("hdr", BalanceKey::Hdr { name: "Host".into(), use_domain_only: true })
    );
    let Some(BalanceKey::Sample(line)) = balance("rdp-cookie").key else { panic!("it is an expression") };
    assert_eq!(line.words[0].text, "rdp_cookie(mstshash)");
    let hash = |text: &str| {
        let hash = listen(&format!("bind :1\n hash-type {text}")).hash_type;
        (hash.consistent, hash.function, hash.avalanche)
    };
    // Consistent hashing alone implies the avalanche modifier; with a function named, it does not.
    assert_eq!(hash("consistent"), (true, HashFunction::Sdbm, true));
    assert_eq!(hash("consistent djb2"), (true, HashFunction::Djb2, false));
    assert_eq!(hash("map-based crc32 avalanche"), (false, HashFunction::Crc32, true));
}

#[test]
fn cookies_options_and_checks() {
    let cookie =
        listen("bind :1\n cookie A insert indirect nocache httponly secure domain .a maxidle 30m maxlife 8h attr X=Y")
            .cookie
            .unwrap();
    assert_eq!((cookie.name.as_str(), cookie.mode), ("A", CookieMode::Insert));
    assert!(cookie.indirect && cookie.nocache && cookie.httponly && cookie.secure);
    assert_eq!((cookie.maxidle, cookie.maxlife), (Some(Duration::from_secs(1800)), Some(Duration::from_secs(28800))));
    // A bare number of seconds.
    assert_eq!(listen("bind :1\n cookie A maxidle 90").cookie.unwrap().maxidle, Some(Duration::from_secs(90)));
    let mode = |text: &str| listen(&format!("bind :1\n{text}")).options.connection;
    assert_eq!(mode("option httpclose"), ConnectionMode::Close);
    assert_eq!(mode("option httpclose\n option http-server-close"), ConnectionMode::ServerClose);
    assert_eq!(mode("option http-server-close\n no option http-server-close"), ConnectionMode::KeepAlive);
    let redispatch = |text: &str| listen(&format!("bind :1\n{text}")).options.redispatch;
    // Without a number: with the last retry.
    assert_eq!(redispatch("option redispatch"), Some(-1));
    assert_eq!(redispatch("option redispatch -2"), Some(-2));
    assert_eq!(redispatch("option redispatch\n no option redispatch"), None);
    let CheckKind::Http { method, uri, version } =
        listen("bind :1\n option httpchk HEAD /a HTTP/1.1\\r\\nHost:\\ b").check
    else {
        panic!("an HTTP check")
    };
    assert_eq!(
        (method.as_deref(), uri.as_deref(), version.as_deref()),
        (Some("HEAD"), Some("/a"), Some("HTTP/1.1\r\nHost: b"))
    );
}

#[test]
fn logs_sizes_and_the_environment() {
    let g = global(
        " log stdout format raw local0\n log ring-less.example.com:1514 len 200 format iso sample 1:2 daemon err crit\n \
         tune.bufsize 32k\n tune.ssl.lifetime 600\n stats timeout 1m\n h1-case-adjust host Host\n set-var proc.a int(1)",
    );
    assert_eq!((g.logs[0].address.clone(), g.logs[0].format), (LogAddress::Fd(1), LogTransport::Raw));
    let log = &g.logs[1];
    assert_eq!(log.address, LogAddress::Udp("ring-less.example.com".into(), 1514));
    assert_eq!((log.len, log.sample.as_deref(), log.facility, log.level, log.minlevel), (200, Some("1:2"), 3, 3, 2));
    assert_eq!((g.tune.bufsize, g.tune.ssl_lifetime), (32768, Duration::from_secs(600)));
    assert_eq!(g.set_vars[0].words[0].text, "set-var");
    assert!(g.strict_limits && !global(" no strict-limits").strict_limits);
    let config = valid(
        "global\n setenv A 1\n presetenv A 2\n presetenv B 3\n setenv C 4\n unsetenv C\n setenv D \"$A$B$C\"\n \
         resetenv D\n presetenv E \"${A-gone}\"\n",
    );
    let names: Vec<_> = config.environment.iter().filter(|(k, _)| !k.starts_with("HAPROXY_")).collect();
    assert_eq!(names, [(&"D".to_owned(), &"13".to_owned()), (&"E".to_owned(), &"gone".to_owned())]);
}

#[test]
fn users_and_groups_say_the_same() {
    let config = valid(
        "userlist l\n group admins users alice\n group readers\n user alice insecure-password a groups readers\n user bob password $5$x$y groups readers\n",
    );
    let list = &config.userlists[0];
    let names = |words: &[Word]| words.iter().map(|word| word.text.clone()).collect::<Vec<_>>();
    assert_eq!(names(&list.groups["readers"]), ["alice", "bob"]);
    assert_eq!(names(&list.users[0].groups), ["readers", "admins"]);
    assert!(list.users[0].insecure && !list.users[1].insecure);
}

#[test]
fn several_files_are_one_configuration_and_each_ends_its_section() {
    let first = Source::new("1.cfg", b"defaults\n mode http\n retries 9\n");
    let second = Source::new("2.cfg", b" maxconn 3\nfrontend f\n bind :1\n default_backend nowhere\n");
    let (config, diagnostics) = load([first, second], &Env::default());
    assert_eq!((config.proxies[ProxyId(0)].retries, config.proxies[ProxyId(0)].maxconn), (9, None));
    let places = diagnostics.list.iter().filter(|d| d.severity == Severity::Error).map(|d| {
        let span = d.span.unwrap();
        (span.file.0, span.line)
    });
    assert_eq!(places.collect::<Vec<_>>(), [(1, 1), (1, 4)]);
}

#[test]
fn a_section_behind_a_refused_line_is_read_on() {
    let config = load([Source::new("v.cfg", b"frontend f\n bind :1\n mode nonsense\n maxconn 7\n")], &Env::default()).0;
    assert_eq!(config.proxies[ProxyId(0)].maxconn, Some(7));
}
