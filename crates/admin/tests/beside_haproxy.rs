//! The statistics of a running data plane beside those of the real HAProxy with the same configuration; the page, its
//! parameters and its actions.

#[path = "../../../tests/reference.rs"]
mod reference;

use penstock_admin::{Exporter, Stats};
use penstock_config::{Diagnostics, Env, model::Source};
use penstock_proxy::{Handle, Inherited, Runtime, Services};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SECTIONS: &str = "
defaults
    mode http
    timeout client 5s
    timeout server 5s
    timeout connect 1s
frontend site
    bind unix@DIR/site
    option socket-stats
    maxconn 100
    http-request use-service prometheus-exporter if { path /metrics }
    stats enable
    stats uri /stats
    stats show-legends
    stats admin if TRUE
    default_backend web
frontend closed
    bind unix@DIR/closed
    stats enable
    stats uri /
    stats hide-version
    stats auth me:secret
    stats auth you:too
    stats realm A\\ realm
    stats scope .
    stats scope web
backend web
    description the site itself
    balance leastconn
    fullconn 40
    option httpchk GET /
    server first 127.0.0.1:1 check inter 100 weight 10 cookie one maxconn 30 maxqueue 5
    server second 127.0.0.1:2 backup
    server third 127.0.0.1:3 disabled
    server fourth 127.0.0.1:4 track web/first
listen raw
    bind unix@DIR/raw
    mode tcp
    maxconn 50
    fullconn 10
    balance source
    server only 127.0.0.1:1
";

/// A running proxy, ours or HAProxy, on sockets in a directory of its own.
struct Running {
    dir: tempfile::TempDir,
    ours: Option<Handle>,
    theirs: Option<Child>,
}

impl Running {
    fn dir() -> (tempfile::TempDir, String) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let at = dir.path().display().to_string();
        (dir, at)
    }

    fn ours() -> Running {
        let (dir, at) = Running::dir();
        let text =
            format!("global\n nbthread 1\n maxconn 200\n stats socket {at}/admin\n{}", SECTIONS.replace("DIR", &at));
        let (config, found) = penstock_config::load([Source { name: "test.cfg".into(), text }], &Env::default());
        assert!(!found.has_errors(), "{found:#?}");
        let version = || "0.0.0-test".to_string();
        let services = Services {
            stats: Some(Arc::new(Stats::new(version()))),
            named: vec![("prometheus-exporter", Arc::new(Exporter { version: version() }))],
        };
        let mut diagnostics = Diagnostics::default();
        let runtime = Runtime::build(config, services, &mut diagnostics).unwrap_or_else(|| panic!("{diagnostics:#?}"));
        let listeners = runtime.listen(Inherited::default()).expect("its sockets can be made");
        let handle = runtime.start(listeners).expect("its workers start");
        Running { dir, ours: Some(handle), theirs: None }.settled()
    }

    /// `None`, said aloud, where HAProxy is not installed.
    fn theirs() -> Option<Running> {
        reference::haproxy()?;
        let (dir, at) = Running::dir();
        let text =
            format!("global\n nbthread 1\n maxconn 200\n stats socket {at}/admin\n{}", SECTIONS.replace("DIR", &at));
        std::fs::write(dir.path().join("haproxy.cfg"), text).expect("a writable directory");
        let mut command = Command::new("haproxy");
        let command = command.arg("-db").arg("-f").arg(dir.path().join("haproxy.cfg"));
        let Ok(child) = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
            eprintln!("skipped: haproxy is not installed");
            return None;
        };
        Some(Running { dir, ours: None, theirs: Some(child) }.settled())
    }

    /// Waits until the check has failed.
    fn settled(self) -> Running {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if UnixStream::connect(self.socket("site")).is_ok() {
                let csv = self.get("site", "/stats;csv", "");
                if csv.contains("web,first") && csv.contains(",DOWN,") && csv.contains("L4CON") {
                    return self;
                }
            }
            assert!(Instant::now() < deadline, "the first server does not go down");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A whole answer, head and body.
    fn ask(&self, socket: &str, request: &str) -> String {
        let mut stream = UnixStream::connect(self.socket(socket)).expect("the frontend listens");
        stream.write_all(request.as_bytes()).expect("a request fits the socket");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        String::from_utf8(answer).expect("an answer in text")
    }

    fn get(&self, socket: &str, target: &str, fields: &str) -> String {
        self.ask(socket, &format!("GET {target} HTTP/1.0\r\nHost: x\r\n{fields}\r\n"))
    }

    fn post(&self, target: &str, body: &str) -> String {
        let length = body.len();
        self.ask("site", &format!("POST {target} HTTP/1.0\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(handle) = &self.ours {
            handle.stop();
            assert!(handle.wait_for(Duration::from_secs(10)), "workers do not end");
        }
        if let Some(child) = &mut self.theirs {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The body, its chunks put together.
fn body(answer: &str) -> String {
    let (head, mut rest) = answer.split_once("\r\n\r\n").expect("a head and a body");
    if !head.to_lowercase().contains("transfer-encoding: chunked") {
        return rest.to_string();
    }
    let mut body = String::new();
    while let Some((size, data)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a chunk's size");
        body.push_str(&data[..size]);
        rest = data[size..].trim_start_matches("\r\n");
    }
    body
}

/// Fields by row and column.
fn table(csv: &str) -> Vec<Vec<&str>> {
    csv.lines().map(|line| line.split(',').collect()).collect()
}

/// What depends on the moment, on the traffic that asks for it, or on this machine.
const FLEETING: [&str; 13] = [
    "lastchg",
    "downtime",
    "lastsess",
    "check_duration",
    "qtime",
    "ctime",
    "rtime",
    "ttime",
    "need_conn_est",
    "bin",
    "bout",
    "check_status",
    "hanafail",
];

#[test]
fn the_csv_has_the_same_columns_rows_and_values() {
    let Some(theirs) = Running::theirs() else { return };
    let ours = Running::ours();
    let (theirs, ours) = (theirs.get("site", "/stats;csv", ""), ours.get("site", "/stats;csv", ""));
    let (theirs, ours) = (body(&theirs), body(&ours));
    let (theirs, ours) = (table(&theirs), table(&ours));
    assert_eq!(ours[0], theirs[0]);
    assert_eq!(ours.len(), theirs.len());
    let mut compared = 0;
    for (our, their) in ours.iter().zip(&theirs).skip(1) {
        // What the frontend counts of our own requests may differ by those that waited.
        let busy = our[1] == "FRONTEND" && our[0] == "site" || our[1] == "sock-1";
        for (column, name) in theirs[0].iter().enumerate() {
            let empty = (our[column].is_empty(), their[column].is_empty());
            assert_eq!(empty.0, empty.1, "{} {} {name}: {:?}, theirs {:?}", our[0], our[1], our[column], their[column]);
            if !FLEETING.contains(name) && !busy && !name.starts_with("h1_") {
                assert_eq!(our[column], their[column], "{} {} {name}", our[0], our[1]);
                compared += 1;
            }
        }
    }
    assert!(compared > 900, "{compared}");
}

#[test]
fn the_json_has_the_same_fields_tags_and_types() {
    let Some(theirs) = Running::theirs() else { return };
    let ours = Running::ours();
    let shape = |answer: &str| -> Vec<String> {
        let json: serde_json::Value = serde_json::from_str(&body(answer)).expect("JSON");
        let rows = json.as_array().expect("an array of rows").iter();
        let fields = rows.flat_map(|row| row.as_array().expect("an array of fields").clone());
        fields
            .map(|field| {
                let value = &field["value"];
                format!("{} {} {} {} {}", field["objType"], field["id"], field["field"], field["tags"], value["type"])
            })
            // HAProxy gives one column two tags, by the kind of row.
            .filter(|field| !field.contains("\"rate"))
            .collect()
    };
    let (theirs, ours) = (shape(&theirs.get("site", "/stats;json", "")), shape(&ours.get("site", "/stats;json", "")));
    for (our, their) in ours.iter().zip(&theirs) {
        assert_eq!(our, their);
    }
    assert_eq!(ours.len(), theirs.len());
}

#[test]
fn the_exporter_has_the_same_metrics_types_and_labels() {
    let Some(theirs) = Running::theirs() else { return };
    let ours = Running::ours();
    let series =
        |answer: &str| -> BTreeSet<String> {
            let text = body(answer);
            // Metrics of our own have names of our own. Those of the system's resolvers, and two of servers, are shown since
            // HAProxy 3.0.
            let own = |line: &str| {
                let name = line.trim_start_matches("# TYPE ").split(['{', ' ']).next().unwrap_or_default();
                name.starts_with("penstock_")
                    || name.starts_with("haproxy_resolver_")
                    || ["haproxy_server_active", "haproxy_server_backup"].contains(&name)
            };
            let lines = text.lines().filter(|line| !line.starts_with("# HELP") && !line.contains("build_info{"));
            let lines = lines.filter(|line| !own(line));
            lines
                .map(|line| {
                    if line.starts_with('#') {
                        line.into()
                    } else {
                        line.rsplit_once(' ').unwrap_or((line, "")).0.into()
                    }
                })
                .collect()
        };
    for query in ["", "?scope=server&no-maint", "?scope=frontend&scope=backend", "?scope=global"] {
        let target = format!("/metrics{query}");
        let (theirs, ours) = (series(&theirs.get("site", &target, "")), series(&ours.get("site", &target, "")));
        let odd: Vec<_> = theirs.symmetric_difference(&ours).collect();
        assert!(odd.is_empty(), "{query}: {odd:?}");
        assert!(!ours.is_empty());
    }
    assert!(ours.get("site", "/metrics?scope=nothing", "").starts_with("HTTP/1.1 400 "));
}

#[test]
fn the_page_shows_what_was_configured_and_no_more() {
    let ours = Running::ours();
    let page = ours.get("site", "/stats", "");
    for part in ["Content-Type: text/html".to_lowercase().as_str(), "0.0.0-test", ">web<", "the first"] {
        let found = page.to_lowercase().contains(&part.to_lowercase());
        assert_eq!(found, part != "the first", "{part}");
    }
    assert!(page.contains("L4CON") && page.contains("MAINT") && page.contains("balance leastconn"));
    assert!(page.contains("name=\"action\""), "this page may act");
    assert!(!page.to_lowercase().contains("\r\nrefresh:"), "nothing asks it to come again");
    let up = ours.get("site", "/stats;up", "");
    assert!(!up.contains("value=\"first\"") && up.contains("value=\"second\""));
    let scoped = ours.get("site", "/stats?scope=ra", "");
    assert!(scoped.contains(">raw<") && !scoped.contains(">web<"));
}

#[test]
fn credentials_are_asked_for() {
    let ours = Running::ours();
    let refused = ours.get("closed", "/", "");
    assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
    assert!(refused.to_lowercase().contains("www-authenticate: basic realm=\"a realm\""), "{refused}");
    // me:wrong, me:secret, you:too
    for (token, status) in [("bWU6d3Jvbmc=", "401"), ("bWU6c2VjcmV0", "200"), ("eW91OnRvbw==", "200"), ("%%", "401")] {
        let answer = ours.get("closed", "/;csv", &format!("Authorization: Basic {token}\r\n"));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{token}: {answer}");
    }
    let page = ours.get("closed", "/", "Authorization: Basic bWU6c2VjcmV0\r\n");
    assert!(!page.contains("0.0.0-test"), "the version is hidden");
    assert!(page.contains(">web<") && page.contains(">closed<") && !page.contains(">raw<"), "only what is in scope");
    assert!(!page.contains("name=\"action\""), "this page may not act");
}

#[test]
fn actions_change_servers_and_say_what_became_of_them() {
    let ours = Running::ours();
    let status = |server: &str| {
        let csv = body(&ours.get("site", "/stats;csv", ""));
        let row = table(&csv).into_iter().find(|row| row[1] == server).map(|row| row[17].to_string());
        row.expect("the server has a row")
    };
    let location = |answer: &str| {
        assert!(answer.starts_with("HTTP/1.1 303 "), "{answer}");
        answer.lines().find_map(|line| line.to_lowercase().strip_prefix("location: ").map(str::to_string))
    };
    let post = |body: &str| location(&ours.post("/stats;up", body)).expect("a location");
    assert_eq!(post("s=second&action=maint&b=web"), "/stats;st=done;up");
    assert_eq!(status("second"), "MAINT");
    assert_eq!(post("s=second&s=third&action=ready&b=web"), "/stats;st=done;up");
    assert_eq!((status("second"), status("third")), ("no check".into(), "no check".into()));
    assert_eq!(post("s=second&s=nobody&action=drain&b=web"), "/stats;st=part;up");
    assert_eq!(status("second"), "DRAIN");
    assert_eq!(post("s=&action=drain&b=web"), "/stats;st=errp;up");
    assert_eq!(post("s=second&action=explode&b=web"), "/stats;st=errp;up");
    assert_eq!(post("nonsense"), "/stats;st=none;up");
}

/// What operators do, one after the other: backend, server, action.
const OPERATIONS: &[(&str, &str, &str)] = &[
    ("web", "second", "drain"),
    ("web", "second", "maint"),
    ("web", "second", "ready"),
    ("web", "third", "drain"),
    ("web", "third", "ready"),
    ("web", "first", "maint"),
    ("web", "third", "maint"),
    ("web", "second", "maint"),
    ("raw", "only", "maint"),
    ("raw", "only", "drain"),
    ("raw", "only", "ready"),
    ("web", "third", "ready"),
];

#[test]
fn operations_lead_to_the_same_states_and_weights() {
    let Some(theirs) = Running::theirs() else { return };
    let ours = Running::ours();
    const SHOWN: [&str; 8] = ["svname", "status", "weight", "act", "bck", "chkdown", "uweight", "tracked"];
    let states = |running: &Running| -> Vec<String> {
        let csv = body(&running.get("site", "/stats;csv", ""));
        let rows = table(&csv);
        let columns: Vec<usize> =
            SHOWN.iter().filter_map(|name| rows[0].iter().position(|column| column == name)).collect();
        let rows = rows.iter().skip(1).filter(|row| row[1] != "FRONTEND" && row[1] != "sock-1");
        rows.map(|row| columns.iter().map(|&column| row[column]).collect::<Vec<_>>().join(" ")).collect()
    };
    for (backend, server, action) in OPERATIONS {
        for running in [&theirs, &ours] {
            running.post("/stats", &format!("s={server}&action={action}&b={backend}"));
        }
        assert_eq!(states(&ours), states(&theirs), "after {action} of {backend}/{server}");
    }
}
