//! The runtime API of a running process, over its sockets.

mod common;

use common::{
    Place, free_port,
    running::{CONT, KILL, Running, STOP, TERM, USR1, exhaust, until},
};
use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::PermissionsExt,
            net::{SocketAddr, UnixStream},
        },
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// A process that answers commands at `PLACE/admin` and wherever else `global` says.
struct Served {
    place: Place,
    process: Option<Running>,
    file: PathBuf,
}

impl Served {
    fn start(name: &str, global: &str) -> Served {
        let place = Place::new(name);
        let port = free_port();
        let text = format!(
            "global\n  nbthread 1\n  stats socket {0}/admin level admin\n  {global}\ndefaults\n  mode http\n  timeout client 5s\n  \
             timeout server 5s\n  timeout connect 5s\nlisten a\n  bind 127.0.0.1:{port}\n  server s 127.0.0.1:1\n",
            place.0.display()
        );
        let text = text.replace("PLACE", &place.0.display().to_string());
        let file = place.file("a.cfg", &text);
        let process = Some(Running::start(&[&"-db", &"-f", &file]));
        let served = Served { place, process, file };
        until("it answers", || {
            UnixStream::connect(served.path("admin")).is_ok_and(|stream| !ask(stream, "show version\n").is_empty())
        });
        served
    }
    fn path(&self, name: &str) -> PathBuf {
        self.place.0.join(name)
    }
    fn ask(&self, commands: &str) -> String {
        ask(UnixStream::connect(self.path("admin")).unwrap(), commands)
    }
}

/// What is answered until the connection closes.
fn ask(mut stream: impl Read + Write, commands: &str) -> String {
    stream.write_all(commands.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn patient(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream
}

#[test]
fn every_kind_of_address_answers_with_the_rights_of_its_line() {
    let port = free_port();
    let served = Served::start(
        "addresses",
        &format!(
            "stats socket PLACE/user mode 640 level user severity-output number\n  stats socket ipv4@127.0.0.1:{port}\n  \
             stats socket ipv6@[::1]:{port} level admin\n  stats socket abns@penstock-api-{port} level operator severity-output string"
        ),
    );
    let level = "show cli level\nset timeout x\n";
    assert_eq!(served.ask(level), "admin\n\n'set timeout' only supports 'cli'.\n\n");
    let user = UnixStream::connect(served.path("user")).unwrap();
    assert_eq!(ask(user, level), "[6]: user\n\n[3]: 'set timeout' only supports 'cli'.\n\n");
    let mode = std::fs::metadata(served.path("user")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    for (host, wanted) in [("127.0.0.1", "operator\n\n"), ("::1", "admin\n\n")] {
        assert_eq!(ask(TcpStream::connect((host, port)).unwrap(), "show cli level\n"), wanted);
    }
    let name = SocketAddr::from_abstract_name(format!("{:\0<107}", format!("penstock-api-{port}"))).unwrap();
    assert_eq!(ask(UnixStream::connect_addr(&name).unwrap(), "show cli level\n"), "[info]: operator\n\n");
    let sockets = served.ask("show cli sockets\n");
    let place = served.place.0.display();
    assert_eq!(
        sockets,
        format!(
            "# socket lvl processes\nunix@{place}/admin admin all\nunix@{place}/user user all\nipv4@127.0.0.1:{port} operator all\n\
             ipv6@[::1]:{port} admin all\nabns@penstock-api-{port} operator all\n\n"
        )
    );
}

#[test]
fn one_who_is_silent_or_does_not_read_is_left() {
    let served = Served::start("silence", "stats timeout 300ms");
    let mut silent = patient(&served.path("admin"));
    let begun = Instant::now();
    assert_eq!(silent.read(&mut [0; 16]).unwrap(), 0);
    assert!(begun.elapsed() >= Duration::from_millis(250), "{:?}", begun.elapsed());
    // Thousands of pages that are not read: no more of them is produced than fits the socket.
    let mut deaf = patient(&served.path("admin"));
    deaf.write_all(format!("prompt\n{}\n", "help;".repeat(2000)).as_bytes()).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let mut received = Vec::new();
    match deaf.read_to_end(&mut received) {
        Ok(_) => {}
        Err(e) => assert_eq!(e.kind(), ErrorKind::ConnectionReset),
    }
    let whole = 2000 * served.ask("help\n").len();
    assert!(received.len() < whole / 2, "{} of {whole}", received.len());
    // And its own setting counts for one who has asked for it.
    let mut slow = patient(&served.path("admin"));
    slow.write_all(b"prompt\nset timeout cli 5\n").unwrap();
    std::thread::sleep(Duration::from_millis(800));
    assert_eq!(ask(slow, "prompt;show cli level\n"), "\n> \n> \nadmin\n\n");
}

#[test]
fn so_many_clients_at_a_time_as_stats_maxconn_says() {
    let served = Served::start("places", "stats maxconn 2\n  stats timeout 20s");
    let [mut first, mut second, mut third] = [(); 3].map(|()| patient(&served.path("admin")));
    for stream in [&mut first, &mut second] {
        stream.write_all(b"prompt\n").unwrap();
        let mut prompt = [0; 3];
        stream.read_exact(&mut prompt).unwrap();
        assert_eq!(&prompt, b"\n> ");
    }
    third.write_all(b"show cli level\n").unwrap();
    third.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert_eq!(third.read(&mut [0; 16]).unwrap_err().kind(), ErrorKind::WouldBlock);
    drop(first);
    third.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut answer = String::new();
    third.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "admin\n\n");
}

#[test]
fn a_process_without_descriptors_still_answers_and_recovers() {
    let served = Served::start("exhausted", "maxconn 1000");
    let process = served.process.as_ref().unwrap();
    let config = std::fs::read_to_string(&served.file).unwrap();
    let port = config.split("bind 127.0.0.1:").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap();
    let crowd = exhaust(process.id(), 20, port);
    let mut stays = patient(&served.path("admin"));
    stays.write_all(b"prompt\nshow info\n").unwrap();
    for _ in 0..5 {
        let info = served.ask("show info\n");
        assert!(info.contains("\nPid: "), "{info}");
    }
    stays.write_all(b"quit\n").unwrap();
    let mut info = String::new();
    stays.read_to_string(&mut info).unwrap();
    assert!(info.contains("\nPid: "), "{info}");
    drop(crowd);
    let request = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    assert!(ask(&mut client, std::str::from_utf8(request).unwrap()).starts_with("HTTP/1.1 503"));
}

#[test]
fn who_has_gone_is_shown_nothing_more() {
    let served = Served::start("gone", "maxconn 100");
    let process = served.process.as_ref().unwrap();
    // It cannot look before the client has sent everything and gone.
    let leave = |commands: &str| {
        process.signal(STOP);
        UnixStream::connect(served.path("admin")).unwrap().write_all(commands.as_bytes()).unwrap();
        process.signal(CONT);
        // A client that comes later is answered later.
        served.ask("show version\n");
    };
    leave("set weight a/s 7;show info;set weight a/s 9\n");
    let weight = served.ask("get weight a/s\n");
    assert!(weight.starts_with("7 "), "what came before was carried out, and nothing behind: {weight}");
}

#[test]
fn every_line_that_was_sent_at_once_is_answered() {
    let served = Served::start("lines", "maxconn 100");
    let process = served.process.as_ref().unwrap();
    process.signal(STOP);
    let mut client = patient(&served.path("admin"));
    client.write_all("prompt\n".repeat(8000).as_bytes()).unwrap();
    process.signal(CONT);
    let mut answers = String::new();
    client.read_to_string(&mut answers).unwrap();
    // Every other one is answered with a prompt as well.
    assert_eq!(answers, "\n> \n".repeat(4000));
}

#[test]
fn a_payload_is_at_most_as_long_as_the_configuration_says() {
    let served = Served::start("payload", "tune.cli.max-payload-size 1000");
    let payload = |length| format!("show cli level <<\n{}\n\n", "x".repeat(length));
    assert_eq!(served.ask(&payload(999)), "admin\n\n");
    let refused = "A payload may have 1000 bytes, as tune.cli.max-payload-size says.\n\n";
    assert_eq!(served.ask(&payload(1001)), refused);
    assert_eq!(served.ask(&payload(300_000)), refused, "whoever still sends hears why");
}

#[test]
fn a_socket_that_answers_is_not_taken_and_one_left_over_is() {
    let mut served = Served::start("taken", "maxconn 100");
    let second = common::run(&[&"-db", &"-f", &served.file]);
    let said = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1), "{said}");
    assert!(said.contains("Starting frontend GLOBAL: cannot bind socket (Address already in use"), "{said}");
    assert_eq!(served.ask("show cli level\n"), "admin\n\n", "the first one has not lost it");
    let killed = served.process.take().unwrap();
    killed.signal(KILL);
    killed.end();
    assert!(served.path("admin").exists());
    served.process = Some(Running::start(&[&"-db", &"-f", &served.file]));
    until("it answers", || UnixStream::connect(served.path("admin")).is_ok());
    assert_eq!(served.ask("show cli level\n"), "admin\n\n");
    // A process that is started to replace it may.
    let old = served.process.take().unwrap();
    let new = Running::start(&[&"-db", &"-f", &served.file, &"-sf", &old.id().to_string()]);
    assert_eq!(old.end(), 0);
    let pid = new.id();
    assert!(served.ask("show info\n").contains(&format!("\nPid: {pid}\n")));
    served.process = Some(new);
}

#[test]
fn a_process_that_finishes_closes_its_sockets_and_keeps_its_clients() {
    let mut served = Served::start("finishes", "stats timeout 20s");
    let mut client = patient(&served.path("admin"));
    client.write_all(b"prompt i\n").unwrap();
    assert_eq!(client.read(&mut [0; 16]).unwrap(), 1);
    let process = served.process.take().unwrap();
    process.signal(USR1);
    assert_eq!(process.end(), 0, "a client of the runtime API does not hold it up");
    assert!(UnixStream::connect(served.path("admin")).is_err());
}

#[test]
fn a_process_ends_at_once_whatever_its_clients_do() {
    let mut served = Served::start("ends", "stats timeout 20s");
    let _silent = patient(&served.path("admin"));
    let process = served.process.take().unwrap();
    process.signal(TERM);
    assert_eq!(process.end(), 128 + TERM);
}

#[test]
fn a_person_gives_commands_with_ctl() {
    let served = Served::start("ctl", "maxconn 100");
    let socket = served.path("admin");
    let ctl = |arguments: &[&str]| {
        let output = common::penstock().args(["ctl", "-s"]).arg(&socket).args(arguments).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.success(), text(output.stdout), text(output.stderr))
    };
    assert_eq!(ctl(&["show", "backend"]), (true, "# name\na\n".into(), String::new()));
    assert_eq!(ctl(&["set", "weight", "a/s", "7"]), (true, String::new(), String::new()));
    assert_eq!(
        ctl(&["get weight a/s;get weight a/nope"]),
        (false, "7 (initial 1)\n".into(), "No such server.\n".into())
    );
    let (_, states, _) = ctl(&["--json", "show", "servers", "state"]);
    let states: serde_json::Value = serde_json::from_str(&states).unwrap();
    assert_eq!(states[0]["srv_uweight"], 7);
    let by_file = common::run(&[&"ctl", &"-f", &served.file, &"show", &"cli", &"level"]);
    assert_eq!(by_file.stdout, b"admin\n");
    let nowhere = common::run(&[&"ctl", &"-s", &served.path("nothing"), &"show", &"info"]);
    assert!(!nowhere.status.success() && String::from_utf8_lossy(&nowhere.stderr).contains("No such file"));
}

#[test]
fn the_prompt_of_ctl_completes_remembers_and_takes_payloads() {
    use std::{
        process::{Command, Stdio},
        sync::{Arc, Mutex},
    };
    let served = Served::start("prompt", "maxconn 100");
    let socket = served.path("admin");
    // In a terminal, by `script`, which every Debian has.
    let line = format!("stty cols 100 rows 30; exec {} ctl -s {}", env!("CARGO_BIN_EXE_penstock"), socket.display());
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut terminal = terminal.spawn().unwrap();
    let (mut keys, mut out) = (terminal.stdin.take().unwrap(), terminal.stdout.take().unwrap());
    let seen: Arc<Mutex<Vec<u8>>> = Arc::default();
    let shown = seen.clone();
    let reader = std::thread::spawn(move || {
        let mut chunk = [0; 4096];
        while let Ok(count @ 1..) = out.read(&mut chunk) {
            shown.lock().unwrap().extend_from_slice(&chunk[..count]);
        }
    });
    let times = |text: &str| String::from_utf8_lossy(&seen.lock().unwrap()).matches(text).count();
    let mut press = |typed: &str| keys.write_all(typed.as_bytes()).unwrap();
    until("it asks", || times("> ") > 0);
    press("get wei\ta/\t\r");
    until("the command and the server are completed", || times("\n1 (initial 1)") == 1);
    press("show se\t\t");
    until("what may follow is listed", || times("servers") > 0 && times("sess") > 0);
    press("\x03");
    // The terminal is told when a line begins and ends.
    let asks = || times("\x1b[?2004h") == times("\x1b[?2004l") + 1;
    until("the line is dropped", || times("\x1b[?2004l") == 2 && asks());
    press("set weight a/s 7\r");
    until("it is done", || times("\x1b[?2004l") == 3 && asks());
    press("\x1b[A\x1b[A\r");
    until("the command before the last is repeated", || times("\n7 (initial 1)") == 1);
    press("\x04");
    assert!(terminal.wait().unwrap().success());
    reader.join().unwrap();
    // From a pipe, and with a payload.
    let mut piped = common::penstock();
    piped.args(["ctl", "-s"]).arg(&socket).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut piped = piped.spawn().unwrap();
    piped.stdin.take().unwrap().write_all(b"set ssl cert /none <<\na payload\n\nget weight a/s\n").unwrap();
    let output = piped.wait_with_output().unwrap();
    let (out, refused) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!output.status.success() && refused.contains("not referenced by the configuration"), "{refused}");
    assert_eq!(out, "7 (initial 1)\n");
}

#[test]
fn what_goes_on_inside_is_told_as_text_and_as_json() {
    let served = Served::start("inside", "stats socket PLACE/user level user name x nice 3\n  maxpipes 7");
    let json = |command: &str| -> serde_json::Value {
        let answer = served.ask(&format!("{command} json\n"));
        serde_json::from_str(answer.trim()).unwrap_or_else(|e| panic!("{command}: {e}: {answer}"))
    };
    assert!(served.ask("show activity\n").contains("\nturns: "));
    assert!(json("show activity")["workers"][0]["turns"].as_u64().unwrap() > 0);
    assert!(served.ask("show threads\n").starts_with("  Thread 1 : id="));
    assert_ne!(json("show threads")[0]["thread"], 0);
    assert!(served.ask("show tasks\n").starts_with("Running tasks: "));
    assert_eq!(json("show tasks")["workers"], 1);
    assert!(served.ask("show libs\n").contains("/penstock"));
    assert!(
        json("show libs").as_array().unwrap().iter().any(|file| file["path"].as_str().unwrap().ends_with("/penstock"))
    );
    let descriptors = json("show fd");
    let socket =
        descriptors.as_array().unwrap().iter().find(|open| open["what"].as_str().unwrap().starts_with("socket:"));
    let number = &socket.unwrap()["fd"];
    assert!(served.ask(&format!("show fd {number}\n")).contains(&format!("{number} : socket:[")));
    assert_eq!(served.ask("show fd 999999\n"), "\n");
    assert!(served.ask("show engine\n").starts_with("engine: "));
    assert_eq!(json("show engine")["workers"].as_array().unwrap().len(), 1);
    // The system's, where it names any.
    assert!(json("show resolvers").as_array().unwrap().iter().all(|section| section["name"] == "default"));
    assert_eq!(json("show cache"), serde_json::json!([]));
    assert_eq!(json("show errors"), serde_json::json!({"count": 0, "last": []}));
    assert_eq!(json("show sess"), serde_json::json!([]));
    // What was said at the start is still told, of words without effect too.
    let log = served.ask("show startup-logs\n");
    assert!(log.contains("[NOTICE]") && log.contains("maxpipes"), "{log}");
    for word in ["name", "nice"] {
        assert!(log.contains(&format!("'{word}' has no effect on a stats socket")), "{log}");
    }
    let user = |command: &str| ask(UnixStream::connect(served.path("user")).unwrap(), &format!("{command}\n"));
    for command in ["show fd", "show libs", "show errors", "show sess", "get var proc.x", "shutdown session 0x1"] {
        assert_eq!(user(command), "Permission denied\n\n", "{command}");
    }
}

/// Every command of `help` that shows something is asked for JSON, and each that takes an argument is asked for one thing too.
#[test]
fn whatever_is_shown_is_shown_as_json() {
    let place = Place::new("json");
    let [map, acl] = [place.file("m.map", "a b\nc d\n"), place.file("m.acl", "192.0.2.1\n")];
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(["a.example".into()]).unwrap().self_signed(&key).unwrap();
    let pem = place.file("a.pem", &(certificate.pem() + &key.serialize_pem()));
    let text = format!(
        "global\n  nbthread 1\n  stats socket {0}/admin level admin\nresolvers r\n  nameserver n 127.0.0.1:9\ndefaults\n  mode http\n  \
         timeout client 5s\n  timeout server 5s\n  timeout connect 5s\nlisten a\n  bind 127.0.0.1:{1} ssl crt {2}\n  \
         stick-table type string size 9 store http_req_rate(10s),gpc0\n  http-request track-sc0 path\n  \
         http-request set-header x %[path,map({3})]\n  http-request deny if {{ src -f {4} }}\n  server s 127.0.0.1:1\n",
        place.0.display(),
        free_port(),
        pem.display(),
        map.display(),
        acl.display(),
    );
    let file = place.file("a.cfg", &text);
    let _process = Running::start(&[&"-db", &"-f", &file]);
    let socket = place.0.join("admin");
    until("it answers", || UnixStream::connect(&socket).is_ok());
    let say = |command: &str| ask(UnixStream::connect(&socket).unwrap(), &format!("{command}\n"));
    let one_of = |command: &str| match command {
        "show acl" => Some(acl.display().to_string()),
        "show map" => Some(map.display().to_string()),
        "show ssl cert" => Some(pem.display().to_string()),
        "show env" => Some("PATH".into()),
        "show fd" => Some("0".into()),
        "show resolvers" => Some("r".into()),
        "show servers conn" | "show servers state" | "show table" => Some("a".into()),
        "show sess" => Some("all".into()),
        "show errors" => Some("a request".into()),
        "show ssl sni" => Some("-f a".into()),
        _ => None,
    };
    assert_eq!(say("set table a key json data.http_req_rate 7 data.gpc0 1"), "\n");
    let help = say("help");
    let shown = help.lines().map(str::trim).filter(|line| line.starts_with("show ") && !line.ends_with(": refused"));
    let mut asked = 0;
    for line in shown {
        let is_name = |word: &&str| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
        let words: Vec<&str> = line.split(' ').take_while(is_name).take_while(|word| !word.is_empty()).collect();
        let command = words.join(" ");
        let command = command.strip_suffix(" json").unwrap_or(&command);
        for command in [Some(command.to_owned()), one_of(command).map(|one| format!("{command} {one}"))] {
            let Some(command) = command else { continue };
            let answer = say(&format!("{command} json"));
            let parsed = serde_json::from_str::<serde_json::Value>(&answer);
            assert!(parsed.is_ok(), "{command}: {parsed:?}: {answer}");
            asked += 1;
        }
    }
    assert!(asked > 35, "only {asked} commands were found in {help}");
    let table: serde_json::Value = serde_json::from_str(&say("show table a key json json")).unwrap();
    assert_eq!((&table["used"], &table["entries"][0]["key"]), (&1.into(), &"json".into()), "{table}");
    assert_eq!(table["entries"][0]["http_req_rate"], 7, "{table}");
    let list: serde_json::Value = serde_json::from_str(&say(&format!("show map {} json", map.display()))).unwrap();
    assert_eq!((&list[1]["key"], &list[1]["value"]), (&"c".into(), &"d".into()), "{list}");
    assert!(say("show line").starts_with("# thread waiting most turned_away left\n1 0 0 0 0\nall 0 0 0 0\n"));
}

#[test]
fn what_was_changed_of_servers_outlives_a_restart() {
    let place = Place::new("states");
    let origin = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let ports = [free_port(), origin.local_addr().unwrap().port()];
    let text = format!(
        "global\n  nbthread 1\n  stats socket {0}/admin level admin\n  server-state-file {0}/state\ndefaults\n  mode http\n  \
         load-server-state-from-file global\n  timeout client 5s\n  timeout server 5s\n  timeout connect 5s\nlisten a\n  \
         bind 127.0.0.1:{1}\n  server s1 127.0.0.1:{2} weight 10\n  server s2 127.0.0.1:{2} weight 10\n  server s3 127.0.0.1:{2} check inter 60s\n",
        place.0.display(),
        ports[0],
        ports[1]
    );
    let file = place.file("a.cfg", &text);
    let (socket, state) = (place.0.join("admin"), place.0.join("state"));
    let start = || {
        let process = Running::start(&[&"-db", &"-f", &file]);
        until("it answers", || UnixStream::connect(&socket).is_ok());
        process
    };
    let say = |command: &str| ask(UnixStream::connect(&socket).unwrap(), &format!("{command}\n"));
    // While no check is running: the lowest bit of a check's state says that one is.
    let settled = || {
        let mut answer = String::new();
        until("no check is running", || {
            answer = say("show servers state");
            let state = |line: &str| line.split(' ').nth(13).and_then(|state| state.parse::<u8>().ok());
            answer.lines().filter_map(state).all(|state| state & 1 == 0)
        });
        answer
    };
    // Without the times and the last results of checks, which are not kept.
    let states = || -> Vec<String> {
        let answer = settled();
        let kept = |(place, _): &(usize, &str)| !matches!(place, 9..=12);
        let line =
            |line: &str| line.split(' ').enumerate().filter(kept).map(|(_, word)| word).collect::<Vec<_>>().join(" ");
        answer.lines().map(line).collect()
    };
    let process = start();
    let fresh = states();
    for command in [
        "set server a/s1 weight 3",
        "set server a/s1 state drain",
        "set server a/s2 state maint",
        "disable health a/s3",
    ] {
        assert_eq!(say(command), "\n", "{command}");
    }
    say("set server a/s2 addr 127.0.0.1 port 99");
    let changed = states();
    assert_ne!(changed, fresh);
    std::fs::write(&state, settled()).unwrap();
    process.signal(TERM);
    drop(process);
    let process = start();
    assert_eq!(states(), changed);
    process.signal(TERM);
    drop(process);
    // A file that is not valid changes nothing, and is reported.
    std::fs::write(&state, "garbage\n").unwrap();
    let process = start();
    assert_eq!(states(), fresh);
    assert!(say("show startup-logs").contains("it does not begin with the version 1"));
    process.signal(TERM);
    drop(process);
    // Nor does one of another configuration.
    std::fs::write(&state, "1\n2 b 1 s1 127.0.0.1 0 1 3 10 1 1 0 2 0 0 0 0 - 99 - 0 0 - - 0\n").unwrap();
    let _process = start();
    assert_eq!(states(), fresh);
    assert!(say("show startup-logs").contains("does not have: 'b/s1'"));
}
