//! Changes made at run time outlive reloads, deaths and restarts of the process with `runtime-changes-file`.

mod common;

use common::{
    Place, free_port,
    running::{KILL, Running, TERM, USR2, children, master, said, signal_to, successes, until},
};
use std::{
    io::{Read, Write},
    net::TcpStream,
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::PathBuf,
    sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
};

struct Service {
    place: Place,
    port: u16,
    config: PathBuf,
    map: PathBuf,
    pem: PathBuf,
}

/// A key and a certificate for this name, in PEM.
fn certificate(name: &str) -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new([name.into()]).unwrap().self_signed(&key).unwrap();
    certificate.pem() + &key.serialize_pem()
}

impl Service {
    fn new(name: &str) -> Service {
        let place = Place::new(name);
        let port = free_port();
        let map = place.file("m.map", "/ disk\n");
        let pem = place.file("a.pem", &certificate("disk.example"));
        let text = format!(
            "global\n  nbthread 2\n  stats socket {0}/admin level admin\n  runtime-changes-file {0}/changes\ndefaults\n  mode http\n  \
             timeout client 5s\n  timeout server 5s\n  timeout connect 5s\nfrontend f\n  bind 127.0.0.1:{port}\n  \
             bind 127.0.0.1:{1} ssl crt {2}\n  use_backend b if {{ path /server }}\n  \
             http-request return status 200 hdr x %[path,map({3})] if !{{ path /server }}\nbackend b\n  balance roundrobin\n",
            place.0.display(),
            free_port(),
            pem.display(),
            map.display(),
        );
        let config = place.file("a.cfg", &text);
        Service { place, port, config, map, pem }
    }
    fn start(&self) -> Running {
        let before = std::fs::read_to_string(self.place.0.join("said")).map_or(0, |_| 0);
        let running = master(&self.place, &self.config);
        until("a worker serves", || successes(&self.place) > before);
        running
    }
    fn ask(&self, command: &str) -> String {
        let mut stream = UnixStream::connect(self.place.0.join("admin")).unwrap();
        stream.write_all(format!("{command}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
    fn reload(&self, running: &Running) {
        let before = successes(&self.place);
        let workers = children(running.id());
        running.signal(USR2);
        until("the next worker serves", || successes(&self.place) > before);
        until("the one before has ended", || children(running.id()).iter().all(|pid| !workers.contains(pid)));
    }
    fn change_everything(&self, origin: u16) -> String {
        let pem = self.pem.display();
        let new = certificate("changed.example");
        assert_eq!(self.ask(&format!("set map {} / changed", self.map.display())), "\n");
        assert!(self.ask(&format!("set ssl cert {pem} <<\n{new}\n")).contains("Transaction created"));
        assert!(self.ask(&format!("commit ssl cert {pem}")).contains("Success!"));
        assert!(
            self.ask(&format!("add server b/added 127.0.0.1:{origin} weight 7")).contains("New server registered.")
        );
        assert_eq!(self.ask("enable server b/added"), "\n");
        new
    }
    fn assert_all_changed(&self, when: &str) {
        assert!(self.get("/").contains("x: changed\r\n"), "{when}: {}", said(&self.place));
        let shown = self.ask(&format!("show ssl cert {}", self.pem.display()));
        assert!(shown.contains("changed.example"), "{when}: {shown}");
        assert!(self.get("/server").ends_with("origin"), "{when}: {}", self.get("/server"));
        assert_eq!(self.ask("get weight b/added"), "7 (initial 7)\n\n", "{when}");
    }
}

/// An origin that answers everything; returns its port.
fn origin() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\norigin");
            });
        }
    });
    port
}

#[test]
fn changes_outlive_reloads_under_load_and_the_death_of_a_worker_and_a_restart() {
    let service = Service::new("changes");
    let running = service.start();
    assert!(service.get("/").contains("x: disk\r\n"));
    service.change_everything(origin());
    service.assert_all_changed("at once");
    let mode = std::fs::metadata(service.place.0.join("changes")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "there are keys in it");
    let (over, asked) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for path in ["/", "/server"] {
            let (over, asked, service) = (&over, &asked, &service);
            scope.spawn(move || {
                while !over.load(Relaxed) {
                    let answer = service.get(path);
                    let is_right = answer.contains("x: changed\r\n") || answer.ends_with("origin");
                    if !is_right {
                        over.store(true, Relaxed);
                    }
                    assert!(is_right, "{path}: a worker served without the changes: {answer}");
                    asked.fetch_add(1, Relaxed);
                }
            });
        }
        for _ in 0..5 {
            service.reload(&running);
        }
        over.store(true, Relaxed);
    });
    assert!(asked.load(Relaxed) > 20, "{asked:?}");
    service.assert_all_changed("after reloads");
    let (before, dying) = (successes(&service.place), children(running.id())[0]);
    signal_to(dying, KILL);
    until("it is replaced", || successes(&service.place) > before);
    service.assert_all_changed("after a death");
    running.signal(TERM);
    running.end();
    let running = service.start();
    service.assert_all_changed("after a restart");
    // What is taken back is not kept.
    assert_eq!(service.ask("disable server b/added"), "\n");
    assert!(service.ask("del server b/added").contains("Server deleted."));
    assert_eq!(service.ask(&format!("set map {} / disk", service.map.display())), "\n");
    service.reload(&running);
    assert!(service.ask("get weight b/added").contains("No such server."));
    assert!(service.get("/").contains("x: disk\r\n"));
    running.signal(TERM);
    running.end();
}

#[test]
fn servers_added_at_run_time_have_their_saved_states_and_only_others_are_told_of() {
    let service = Service::new("states");
    let states = service.place.0.join("states");
    let plain = std::fs::read_to_string(&service.config).unwrap();
    let global = format!("global\n  server-state-file {}\n", states.display());
    let loading = plain
        .replacen("global\n", &global, 1)
        .replace("mode http\n", "mode http\n  load-server-state-from-file global\n");
    std::fs::write(&service.config, loading).unwrap();
    std::fs::write(&states, "1\n# be_id\n").unwrap();
    let running = service.start();
    service.change_everything(origin());
    let shown = service.ask("show servers state");
    running.signal(TERM);
    running.end();
    let added = shown.lines().find(|line| line.contains(" b ") && line.contains(" added ")).unwrap();
    let mut words: Vec<&str> = added.split(' ').collect();
    assert_eq!(words[7..9], ["7", "7"], "the weight, and the weight as configured: {shown}");
    words[7] = "9";
    let (lighter, gone) = (words.join(" "), added.replace(" added ", " gone "));
    std::fs::write(&states, shown.trim_end().replace(added, &format!("{lighter}\n{gone}")) + "\n").unwrap();
    let running = service.start();
    assert_eq!(service.ask("get weight b/added"), "9 (initial 7)\n\n", "{}", said(&service.place));
    assert!(service.get("/server").ends_with("origin"));
    let told = said(&service.place);
    assert!(
        told.contains("a server that this configuration does not have: 'b/gone'") && !told.contains("'b/added'"),
        "{told}"
    );
    running.signal(TERM);
    running.end();
}

#[test]
fn a_file_that_has_changed_on_disk_counts_more_than_what_was_changed_before() {
    let service = Service::new("newer");
    let running = service.start();
    service.change_everything(origin());
    std::fs::write(&service.map, "/ newer\n").unwrap();
    std::fs::write(&service.pem, certificate("newer.example")).unwrap();
    let config = std::fs::read_to_string(&service.config).unwrap();
    std::fs::write(&service.config, format!("{config}  server added 127.0.0.1:1 weight 3\n")).unwrap();
    service.reload(&running);
    assert!(service.get("/").contains("x: newer\r\n"));
    assert!(service.ask(&format!("show ssl cert {}", service.pem.display())).contains("newer.example"));
    assert_eq!(service.ask("get weight b/added"), "3 (initial 3)\n\n");
    let said = said(&service.place);
    for file in [&service.map, &service.pem] {
        let sentence = format!("'{}' has changed since it was changed at run time", file.display());
        assert!(said.contains(&sentence), "{said}");
    }
    assert!(said.contains("'add server b/added"), "{said}");
    // What was dropped does not come back.
    std::fs::write(&service.map, "/ disk\n").unwrap();
    service.reload(&running);
    assert!(service.get("/").contains("x: disk\r\n"));
    running.signal(TERM);
    running.end();
}

#[test]
fn a_file_that_is_cut_or_grows_is_read_and_written_anew_and_another_file_is_refused() {
    let service = Service::new("cut");
    let running = service.start();
    let changes = service.place.0.join("changes");
    for _ in 0..40 {
        let payload: String = (0..600).map(|n| format!("/{n} {}\n", "x".repeat(80))).collect();
        let map = service.map.display();
        let version = service.ask(&format!("prepare map {map}")).split(": ").nth(1).unwrap().trim().to_owned();
        assert_eq!(service.ask(&format!("add map @{version} {map} <<\n/ grown\n{payload}")), "\n");
        assert_eq!(service.ask(&format!("commit map @{version} {map}")), "\n");
    }
    let length = std::fs::metadata(&changes).unwrap().len();
    assert!(length < 2 << 20, "40 versions of 50 KB are {length} bytes");
    let kept = std::fs::read_to_string(&changes).unwrap();
    std::fs::write(&changes, format!("{kept}{{\"words\":[\"set\",\"map")).unwrap();
    service.reload(&running);
    assert!(service.get("/").contains("x: grown\r\n"), "{}", said(&service.place));
    assert_eq!(service.ask(&format!("set map {} / more", service.map.display())), "\n");
    service.reload(&running);
    assert!(service.get("/").contains("x: more\r\n"), "{}", said(&service.place));
    running.signal(TERM);
    running.end();
    std::fs::write(&changes, "frontend f\n").unwrap();
    let refused = Running::start(&[&"-db", &"-f", &service.config]);
    assert_ne!(refused.end(), 0);
    assert_eq!(std::fs::read_to_string(&changes).unwrap(), "frontend f\n");
}

#[test]
fn a_file_that_another_program_has_cut_is_written_again() {
    let service = Service::new("cut-by-another");
    let running = service.start();
    let changes = service.place.0.join("changes");
    assert_eq!(service.ask(&format!("set map {} / kept", service.map.display())), "\n");
    for left in [30, 0, 70] {
        std::fs::OpenOptions::new().write(true).open(&changes).unwrap().set_len(left).unwrap();
        assert_eq!(service.ask(&format!("add map {} /{left} v", service.map.display())), "\n", "{left} bytes left");
    }
    assert!(
        said(&service.place).contains("another program has cut the runtime-changes-file"),
        "{}",
        said(&service.place)
    );
    service.reload(&running);
    for (path, value) in [("/", "kept"), ("/30", "v"), ("/0", "v"), ("/70", "v")] {
        assert!(service.get(path).contains(&format!("x: {value}\r\n")), "{path}: {}", said(&service.place));
    }
}

/// Starts a process that is to refuse its runtime-changes-file; returns what it says.
fn refused(service: &Service) -> String {
    let mut program = common::penstock();
    let started = program.arg("-db").arg("-f").arg(&service.config).stderr(std::process::Stdio::piped()).spawn();
    let mut running = Running(started.unwrap());
    let mut stderr = running.0.stderr.take().unwrap();
    let said = std::thread::spawn(move || {
        let mut said = String::new();
        let _ = stderr.read_to_string(&mut said);
        said
    });
    assert_ne!(running.end(), 0);
    said.join().unwrap()
}

#[test]
fn what_is_no_file_of_changes_is_neither_waited_for_nor_read_to_its_end_nor_written_to() {
    let service = Service::new("no-file");
    let changes = service.place.0.join("changes");
    let fifo = || {
        let made = std::process::Command::new("mkfifo").arg(&changes).status().unwrap();
        assert!(made.success());
    };
    let device = || std::os::unix::fs::symlink("/dev/zero", &changes).unwrap();
    let folder = || std::fs::create_dir(&changes).unwrap();
    let sparse = || std::fs::File::create_new(&changes).unwrap().set_len(10 << 30).unwrap();
    let open = |mode| std::fs::set_permissions(&changes, std::fs::Permissions::from_mode(mode)).unwrap();
    let named = || std::fs::write(&changes, "a name").unwrap();
    let cases: [(&str, &dyn Fn(), &str); 6] = [
        ("a FIFO", &fifo, "is not a regular file"),
        ("a device", &device, "is not a regular file"),
        ("a folder", &folder, "Is a directory"),
        ("10 GB", &|| (sparse(), open(0o600)).1, "it is longer than 256 MiB"),
        ("something without a line", &|| (named(), open(0o600)).1, "is something else"),
        ("open to everybody", &|| (named(), open(0o644)).1, "is open to everybody (mode 0644)"),
    ];
    for (what, make, sentence) in cases {
        make();
        let said = refused(&service);
        assert!(said.contains(sentence), "{what}: {said}");
        match changes.is_dir() {
            true => std::fs::remove_dir(&changes).unwrap(),
            false => std::fs::remove_file(&changes).unwrap(),
        }
    }
}

#[test]
fn changes_that_belong_together_and_were_written_in_part_are_not_made() {
    let service = Service::new("torn");
    let running = service.start();
    let map = service.map.display();
    assert_eq!(service.ask(&format!("set map {map} / whole")), "\n");
    let version = service.ask(&format!("prepare map {map}")).split(": ").nth(1).unwrap().trim().to_owned();
    assert_eq!(service.ask(&format!("add map @{version} {map} / torn")), "\n");
    assert_eq!(service.ask(&format!("commit map @{version} {map}")), "\n");
    let changes = service.place.0.join("changes");
    let written = std::fs::read_to_string(&changes).unwrap();
    let lines: Vec<&str> = written.split_inclusive('\n').collect();
    assert_eq!(lines.len(), 4, "the mark, `set`, `clear` and `add`: {written}");
    for end in [lines[..3].concat(), lines[..3].concat() + &lines[3][..lines[3].len() - 1]] {
        std::fs::write(&changes, end).unwrap();
        service.reload(&running);
        assert!(service.get("/").contains("x: whole\r\n"), "{}", said(&service.place));
        assert!(said(&service.place).contains("ends within a change, which is not made"), "{}", said(&service.place));
    }
    assert_eq!(service.ask(&format!("set map {map} / more")), "\n");
    service.reload(&running);
    assert!(service.get("/").contains("x: more\r\n"), "{}", said(&service.place));
    running.signal(TERM);
    running.end();
}

/// A service whose file of changes is on a disk of 64 KiB that no other process sees, and the way to it; `prepare` is carried out there before the
/// start. `None` where mounting is not permitted.
fn on_a_small_disk(name: &str, prepare: &str) -> Option<(Service, Running, PathBuf)> {
    let probe = std::process::Command::new("unshare").args(["--mount", "true"]).status();
    if !probe.is_ok_and(|status| status.success()) {
        eprintln!("not tried: mounting a small disk is not permitted here");
        return None;
    }
    let service = Service::new(name);
    let small = service.place.0.join("small");
    std::fs::create_dir(&small).unwrap();
    let config = std::fs::read_to_string(&service.config).unwrap();
    let moved = config.replace("/changes\n", "/small/changes\n");
    std::fs::write(&service.config, moved).unwrap();
    let log = std::fs::File::create(service.place.0.join("said")).unwrap();
    let mounted =
        format!("mount -t tmpfs -o size=64k tmpfs {0} && (cd {0}; {prepare}) && exec \"$@\"", small.display());
    let started = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-c", &mounted, "sh", env!("CARGO_BIN_EXE_penstock"), "-W", "-f"])
        .arg(&service.config)
        .stderr(log)
        .spawn();
    let running = Running(started.unwrap());
    until("a worker serves", || successes(&service.place) > 0);
    let inside = PathBuf::from(format!("/proc/{}/root{}", running.id(), small.display()));
    Some((service, running, inside))
}

#[test]
fn a_full_disk_loses_nothing_that_was_kept_and_what_it_refused_is_written_when_there_is_room() {
    let Some((service, running, inside)) = on_a_small_disk("full", "true") else { return };
    let map = service.map.display();
    assert_eq!(service.ask(&format!("set map {map} / kept")), "\n");
    std::fs::write(inside.join("ballast"), vec![0; 48 << 10]).unwrap();
    let long: String = (0..600).map(|n| format!("/{n} {}\n", "x".repeat(40))).collect();
    let answer = service.ask(&format!("add map {map} <<\n{long}"));
    assert!(answer.contains("The change is made, but not kept:") && answer.contains("No space left"), "{answer}");
    service.reload(&running);
    assert!(service.get("/").contains("x: kept\r\n"), "{}", said(&service.place));
    assert!(service.ask(&format!("get map {map} /599")).contains("found=no"));
    let answer = service.ask(&format!("add map {map} <<\n{long}"));
    assert!(answer.contains("No space left"), "{answer}");
    std::fs::remove_file(inside.join("ballast")).unwrap();
    assert_eq!(service.ask(&format!("set map {map} / more")), "\n");
    service.reload(&running);
    assert!(service.get("/").contains("x: more\r\n"), "{}", said(&service.place));
    assert!(service.ask(&format!("get map {map} /599")).contains("found=yes"));
    running.signal(TERM);
    running.end();
}

#[test]
fn a_disk_that_is_full_at_the_start_is_named_until_there_is_room() {
    let fill = "head -c 65536 /dev/zero > ballast";
    let Some((service, running, inside)) = on_a_small_disk("full-at-start", fill) else { return };
    let change = format!("set map {} / changed", service.map.display());
    let answer = service.ask(&change);
    assert!(answer.contains("Nothing is changed:") && answer.contains("No space left"), "{answer}");
    std::fs::remove_file(inside.join("ballast")).unwrap();
    assert_eq!(service.ask(&change), "\n");
    running.signal(TERM);
    running.end();
}

/// Makes an authority, a certificate of it, a place for its OCSP response, and two responses: `one` and `two`.
const RESPONDER: &str = r"
set -e
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj '/CN=CA' -keyout ca.key -out ca.crt
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj '/CN=stapled.example' -keyout site.key -out site.csr
openssl x509 -req -in site.csr -CA ca.crt -CAkey ca.key -set_serial 4096 -days 30 -out site.crt
cat site.crt site.key > site.pem; cp ca.crt site.pem.issuer; : > site.pem.ocsp
printf 'V\t440101000000Z\t\t1000\tunknown\t/CN=stapled.example\n' > index
for days in 10 20; do
  openssl ocsp -index index -rsigner ca.crt -rkey ca.key -CA ca.crt -issuer ca.crt -cert site.crt -ndays $days -respout $days.der -no_nonce
done";

#[test]
fn ocsp_responses_and_ticket_keys_outlive_the_process_and_old_keys_leave_the_file() {
    let service = Service::new("tickets");
    let place = &service.place.0;
    let made = std::process::Command::new("sh").args(["-c", RESPONDER]).current_dir(place).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let base64 = |file: &str| {
        let coded = std::process::Command::new("base64").arg("-w0").arg(place.join(file)).output().unwrap();
        String::from_utf8(coded.stdout).unwrap()
    };
    // 48 bytes each.
    let key = |letter: &str| letter.repeat(64);
    service.place.file("keys", &["A", "B", "C"].map(|letter| key(letter) + "\n").concat());
    let (pem, keys) = (place.join("site.pem"), place.join("keys"));
    let config = std::fs::read_to_string(&service.config).unwrap();
    let tls =
        format!("  bind 127.0.0.1:{} ssl crt {} tls-ticket-keys {}\n", free_port(), pem.display(), keys.display());
    std::fs::write(&service.config, config.replace("  use_backend", &(tls + "  use_backend"))).unwrap();
    let running = service.start();
    let (one, two) = (base64("10.der"), base64("20.der"));
    let update = |response: &str| service.ask(&format!("set ssl ocsp-response <<\n{response}\n"));
    let shown = || service.ask(&format!("show ssl ocsp-response base64 {}", pem.display()));
    assert!(update(&one).contains("OCSP Response updated!"));
    assert!(update(&two).contains("OCSP Response updated!"));
    for letter in ["D", "E"] {
        assert!(service.ask(&format!("set ssl tls-key #0 {}", key(letter))).contains("TLS ticket key updated!"));
    }
    let in_use = |letters: [&str; 3]| {
        let shown = service.ask(&format!("show tls-keys {}", keys.display()));
        let lines = shown.lines().filter_map(|line| line.split(' ').nth(1));
        let found: Vec<&str> = lines.filter(|key| key.len() == 64).collect();
        assert_eq!(found, letters.map(key), "{shown}");
    };
    in_use(["C", "D", "E"]);
    service.reload(&running);
    in_use(["C", "D", "E"]);
    assert_eq!(shown().trim(), two, "{}", said(&service.place));
    for letter in ["F", "G"] {
        assert!(service.ask(&format!("set ssl tls-key {} {}", keys.display(), key(letter))).contains("updated!"));
    }
    let changes = || std::fs::read_to_string(place.join("changes")).unwrap();
    assert!(!changes().contains(&key("D")), "a key that is no longer in use is still in the file");
    assert!(changes().contains(&key("E")));
    let (before, dying) = (successes(&service.place), children(running.id())[0]);
    signal_to(dying, KILL);
    until("it is replaced", || successes(&service.place) > before);
    in_use(["E", "F", "G"]);
    // What is on disk counts more.
    std::fs::write(&keys, ["H", "I", "K"].map(|letter| key(letter) + "\n").concat()).unwrap();
    std::fs::copy(place.join("10.der"), place.join("site.pem.ocsp")).unwrap();
    service.reload(&running);
    in_use(["H", "I", "K"]);
    assert_eq!(shown().trim(), one);
    assert!(!changes().contains(&key("G")) && !changes().contains(&two));
    running.signal(TERM);
    running.end();
}

#[test]
fn a_file_that_is_gone_or_another_service_uses_is_told_of() {
    let service = Service::new("shared");
    let running = service.start();
    let map = service.map.display().to_string();
    assert_eq!(service.ask(&format!("set map {map} / one")), "\n");
    // Another service with the same file.
    let config = std::fs::read_to_string(&service.config).unwrap();
    let place = service.place.0.display().to_string();
    let config = config.replace(&format!(":{}\n", service.port), &format!(":{}\n", free_port()));
    let config: String = config.split_inclusive('\n').filter(|line| !line.contains(" ssl ")).collect();
    let other = service.place.file("other.cfg", &config.replace(&format!("{place}/admin"), &format!("{place}/other")));
    let log = service.place.0.join("other-said");
    let stderr = std::fs::File::create(&log).unwrap();
    let second = Running(common::penstock().args(["-db", "-f"]).arg(other).stderr(stderr).spawn().unwrap());
    until("the other service has taken the file", || {
        service.ask(&format!("set map {map} / two")).contains("Another process has taken over")
    });
    let told = std::fs::read_to_string(&log).unwrap();
    let owner = children(running.id())[0];
    assert!(told.contains(&format!("process {owner} uses the runtime-changes-file")), "{told}");
    second.signal(TERM);
    second.end();
    // A reload has the file again, and says nothing about the process that it replaces.
    service.reload(&running);
    assert_eq!(service.ask(&format!("set map {map} / three")), "\n");
    assert!(!said(&service.place).contains("uses the runtime-changes-file"), "{}", said(&service.place));
    let changes = service.place.0.join("changes");
    std::fs::rename(&changes, service.place.0.join("moved")).unwrap();
    let gone = service.ask(&format!("set map {map} / four"));
    assert!(gone.contains("Nothing is changed:") && gone.contains("is gone, or is another file"), "{gone}");
    std::fs::write(&changes, "").unwrap();
    assert_eq!(service.ask(&format!("set map {map} / five")), gone);
    assert!(service.get("/").contains("x: three\r\n"));
    running.signal(TERM);
    running.end();
}

#[test]
fn a_process_that_reads_many_changes_ends_when_it_is_told_to() {
    let service = Service::new("many");
    let running = service.start();
    assert_eq!(service.ask(&format!("set map {} / one", service.map.display())), "\n");
    running.signal(TERM);
    running.end();
    let changes = service.place.0.join("changes");
    let kept = std::fs::read_to_string(&changes).unwrap();
    let (mark, line) = kept.split_once('\n').unwrap();
    std::fs::write(&changes, format!("{mark}\n{}", line.repeat(400_000))).unwrap();
    let log = std::fs::File::create(service.place.0.join("said")).unwrap();
    let started = common::penstock().args(["-db", "-f"]).arg(&service.config).stderr(log).spawn();
    let running = Running(started.unwrap());
    // Unoptimised, it reads for ten seconds.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let told = std::time::Instant::now();
    running.signal(TERM);
    running.end();
    let took = told.elapsed();
    assert!(took < std::time::Duration::from_millis(1500), "{took:?}");
    assert!(std::fs::metadata(&changes).unwrap().len() > 30 << 20, "the file is as it was");
}
