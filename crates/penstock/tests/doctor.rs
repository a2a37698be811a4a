//! `penstock doctor` on the real binary: exit statuses, formats, changes to a copy of a host, and nonsense.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// A directory of its own for each test, removed at its end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("penstock-doctor-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Place(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.0.join(name)).ok()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn recorded(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../doctor/tests/hosts").join(format!("{name}.host"));
    path.to_str().unwrap().to_owned()
}

fn doctor(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_penstock"));
    command.arg("doctor").args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn shown(arguments: &[&str], code: i32) -> String {
    let output = doctor(arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(arguments: &[&str]) -> String {
    let output = doctor(arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("penstock: doctor: ") && !said.contains("panicked"), "{said}");
    said
}

const CONFIG: &str = "global\n maxconn 20000\n nbthread 8\n tune.crypto.engine hw\ndefaults\n mode http\n timeout connect 1s\n \
                      timeout client 1s\n timeout server 1s\nfrontend f\n bind :443\n default_backend b\nbackend b\n server s 10.0.0.1:80\n";

#[test]
fn this_machine_can_be_examined_and_its_recording_says_the_same() {
    let place = Place::new("this");
    let code = doctor(&[]).status.code().unwrap();
    assert!([0, 3, 4].contains(&code), "{code}");
    let json: serde_json::Value = serde_json::from_str(&shown(&["--json"], code)).unwrap();
    let recording = place.file("this.host", &shown(&["--record"], 0));
    let again: serde_json::Value = serde_json::from_str(&shown(&["--json", "--host", &recording], code)).unwrap();
    let ids = |json: &serde_json::Value| {
        let list = json["findings"].as_array().unwrap().iter();
        list.map(|f| format!("{} {}", f["id"], f["level"])).collect::<Vec<_>>()
    };
    assert!(!ids(&json).is_empty());
    assert_eq!(ids(&json), ids(&again));
}

#[test]
fn the_exit_status_is_that_of_the_worst_finding() {
    let place = Place::new("status");
    let config = place.file("a.cfg", CONFIG);
    let page = shown(&["--host", &recorded("xeon-qat"), "-f", &config], 4);
    assert!(page.contains("[qat-services]") && page.contains("fix    echo \"sym;asym\" > "), "{page}");
    assert!(!page.contains('\x1b'));
    shown(&["--host", &recorded("laptop"), "-f", &config], 4);
    let one = shown(&["--host", &recorded("laptop"), "--only", "cpu-ifma"], 0);
    assert!(one.contains("[cpu-ifma]") && !one.contains("[qat-device]"), "{one}");
}

#[test]
fn changes_are_shown_made_and_taken_back() {
    let place = Place::new("changes");
    let config = place.file("a.cfg", CONFIG);
    let root = place.0.join("root").to_str().unwrap().to_owned();
    place.file("root/proc/sys/net/core/somaxconn", "128\n");
    place.file("root/proc/sys/net/ipv4/tcp_window_scaling", "0\n");
    let all = ["--host", root.as_str(), "-f", config.as_str()];
    let with = |more: &[&'static str]| [&all[..], more].concat();
    let page = shown(&with(&["--fix"]), 3);
    assert!(
        page.contains("sysctl -w net.core.somaxconn=4096")
            && page.contains("\n/etc/sysctl.d/90-penstock.conf\n    # Written")
            && page.contains("Nothing was changed"),
        "{page}"
    );
    assert_eq!(place.read("root/proc/sys/net/core/somaxconn").as_deref(), Some("128\n"));
    shown(&with(&["--apply"]), 0);
    assert_eq!(place.read("root/proc/sys/net/core/somaxconn").as_deref(), Some("4096"));
    let kept = place.read("root/etc/sysctl.d/90-penstock.conf").unwrap();
    assert!(kept.contains("net.core.somaxconn = 4096\nnet.ipv4.tcp_window_scaling = 1\n"), "{kept}");
    let told = shown(&with(&["--undo"]), 0);
    assert!(told.contains("/proc/sys/net/core/somaxconn: 128 again"), "{told}");
    assert_eq!(place.read("root/proc/sys/net/core/somaxconn").as_deref(), Some("128\n"));
    assert!(place.read("root/etc/sysctl.d/90-penstock.conf").is_none());
    assert!(refused(&with(&["--undo"])).contains("nothing to undo"));
}

#[test]
fn resumption_is_read_from_metrics() {
    let place = Place::new("metrics");
    let metrics =
        place.file("m", "haproxy_process_ssl_cache_lookups_total 10000\nhaproxy_process_ssl_cache_misses_total 9900\n");
    let page = shown(&["--host", &recorded("laptop"), "--metrics", &metrics, "--only", "tls-resumption"], 3);
    assert!(page.contains("1 % of TLS sessions are resumed") && page.contains("100 of 10000"), "{page}");
    // The same from an exporter, which closes after its answer.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/metrics", listener.local_addr().unwrap());
    let body = std::fs::read_to_string(&metrics).unwrap();
    let exporter = std::thread::spawn(move || {
        use std::io::{BufRead, BufReader, Write};
        let (mut stream, _) = listener.accept().unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
        let request: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
        write!(stream, "HTTP/1.0 200 OK\r\n\r\n{body}").unwrap();
        request[0].clone()
    });
    let page = shown(&["--host", &recorded("laptop"), "--metrics", &url, "--only", "tls-resumption"], 3);
    assert!(page.contains("100 of 10000"), "{page}");
    assert_eq!(exporter.join().unwrap(), "GET /metrics HTTP/1.0");
    assert!(refused(&["--metrics", "http://127.0.0.1:1/metrics"]).contains("cannot read http://127.0.0.1:1/metrics"));
    assert!(refused(&["--metrics", "/dev/null"]).contains("has no haproxy_process_ssl_cache_lookups_total"));
}

#[test]
fn devices_are_shown_and_changed_only_when_told_to() {
    let host = recorded("xeon-qat");
    let table = shown(&["qat", "status", "--host", &host], 0);
    assert!(table.contains("0000:e8:00.0") && table.contains("sym;asym"), "{table}");
    let plan = shown(&["qat", "e8:00.0", "restart", "--host", &host], 0);
    assert!(
        plan.contains("echo down > /sys/bus/pci/devices/0000:e8:00.0/qat/state")
            && plan.contains("Nothing was changed")
    );
    let place = Place::new("qat");
    let at = "root/sys/bus/pci/devices/0000:6b:00.0";
    for (file, text) in
        [("vendor", "0x8086"), ("device", "0x4940"), ("qat/state", "up\n"), ("qat/cfg_services", "asym")]
    {
        place.file(&format!("{at}/{file}"), text);
    }
    let root = place.0.join("root").to_str().unwrap().to_owned();
    let done = shown(&["qat", "down", "--apply", "--host", &root], 0);
    assert!(done.contains(" down "), "{done}");
    assert_eq!(place.read(&format!("{at}/qat/state")).as_deref(), Some("down"));
}

#[test]
fn nonsense_is_answered_in_a_sentence() {
    let place = Place::new("nonsense");
    let broken = place.file("broken.cfg", "globall\n");
    let empty = place.file("empty.host", "");
    for (arguments, said) in [
        (&["--fixx"][..], "unknown option '--fixx'"),
        (&["now"], "'now' is not understood"),
        (&["-f", "/nonexistent.cfg"], "cannot open the configuration file /nonexistent.cfg"),
        (&["-f", &broken], "the configuration has errors"),
        (&["--host", "/nonexistent"], "cannot read the host /nonexistent"),
        (&["--host", &empty], "it has no '== /path'"),
        (&["--only", "moon"], "there is no finding 'moon'"),
        (&["--metrics", "/nonexistent"], "cannot read the metrics"),
        (&["--host", &recorded("laptop"), "--apply"], "a recording cannot be changed"),
        (&["--host", &recorded("laptop"), "--undo"], "a recording cannot be changed"),
        (&["qat", "sideways", "now"], "'now' is not one of status, up, down, restart, reset"),
        (&["qat", "up", "--host", &recorded("laptop")], "there is no QuickAssist device"),
        (&["qat", "9", "up", "--host", &recorded("xeon-qat")], "there is no device '9'"),
        (&["qat", "up", "--host", &recorded("container")], "devices are unknown"),
        (&["qat", "0", "up", "--host", &recorded("xeon-qat"), "--apply"], "a recording cannot be changed"),
    ] {
        let all = refused(arguments);
        assert!(all.contains(said), "{arguments:?}: {all}");
    }
}
