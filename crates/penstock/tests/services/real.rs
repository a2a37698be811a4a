//! Services as they are installed: c-icap with its examples, and with clamd as a scanner of viruses.

use super::{CHUNKED, Front, Got, bytes, fake};
use crate::common::{
    Place, free_port,
    running::{Running, until},
    study::{is_installed, skip},
};
use std::{
    net::{Ipv4Addr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
};

/// A process that is killed at the end.
pub struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn daemon(place: &Place, program: &str, arguments: &[&str]) -> Daemon {
    let said = || std::fs::File::create(place.0.join(program)).unwrap();
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(said()).stderr(said());
    Daemon(command.spawn().unwrap_or_else(|e| panic!("{program}: {e}")))
}

/// The file that every scanner takes for a virus, in two parts, so that no scanner takes this source for one.
fn eicar() -> Vec<u8> {
    [r"X5O!P%@AP[4\PZX54(P^)7CC)7}$EICAR-STANDARD-", "ANTIVIRUS-TEST-FILE!$H+H*"].concat().into_bytes()
}

const MODULES: &str = "/usr/lib/x86_64-linux-gnu/c_icap";

/// c-icap with its examples and a scanner; the port.
fn services(place: &Place) -> (u16, [Daemon; 2]) {
    let (port, here) = (free_port(), place.0.display().to_string());
    std::fs::create_dir_all(place.0.join("db")).unwrap();
    place.file("db/local.hdb", "44d88612fea8a8f36de82e1278abb02f:68:Eicar-Test\n");
    place.file(
        "clamd.conf",
        &format!("LocalSocket {here}/clamd.sock\nDatabaseDirectory {here}/db\nForeground yes\nTemporaryDirectory {here}\nMaxThreads 2\n"),
    );
    let clamd = daemon(place, "clamd", &["-c", &format!("{here}/clamd.conf")]);
    until("clamd listens", || Path::new(&format!("{here}/clamd.sock")).exists());
    place.file(
        "c-icap.conf",
        &format!(
            "PidFile {here}/pid\nCommandsSocket {here}/ctl\nStartServers 1\nMaxServers 1\nMinSpareThreads 5\nMaxSpareThreads 20\n\
             ThreadsPerChild 20\nMaxRequestsPerChild 0\nPort 127.0.0.1:{port}\nTmpDir {here}\nMaxMemObject 131072\nDebugLevel 0\n\
             ModulesDir {MODULES}\nServicesDir {MODULES}\nTemplateDir /usr/share/c_icap/templates/\nTemplateDefaultLanguage en\n\
             LoadMagicFile /etc/c-icap/c-icap.magic\nServerLog {here}/server.log\nAccessLog {here}/access.log\n\
             Service echo srv_echo.so\nService ex206 srv_ex206.so\nService antivirus_module virus_scan.so\n\
             ServiceAlias avscan virus_scan?allow204=on&sizelimit=off&mode=simple\n\
             virus_scan.ScanFileTypes TEXT DATA EXECUTABLE ARCHIVE GIF JPEG MSOFFICE\nvirus_scan.SendPercentData 5\n\
             virus_scan.StartSendPercentDataAfter 20M\nvirus_scan.MaxObjectSize 50M\nvirus_scan.DefaultEngine clamd\n\
             Module common clamd_mod.so\nclamd_mod.ClamdSocket {here}/clamd.sock\n"
        ),
    );
    let icap = daemon(place, "c-icap", &["-N", "-f", &format!("{here}/c-icap.conf")]);
    until("c-icap listens", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
    (port, [clamd, icap])
}

fn are_missing(what: &str) -> bool {
    let missing: Vec<&str> = ["c-icap", "clamd"].into_iter().filter(|program| !is_installed(program)).collect();
    if !missing.is_empty() {
        skip(&format!(
            "{what}: {} not installed (c-icap, libc-icap-mod-virus-scan, clamav-daemon)",
            missing.join(", ")
        ));
    }
    !missing.is_empty()
}

fn sections(port: u16) -> String {
    let of = |name: &str| {
        format!(
            "service {name}\n  mode icap\n  reqmod /{name}\n  respmod /{name}\n  max-body 8m\n  server s 127.0.0.1:{port} check\n\
             service-chain {name}\n  inspect {name}\n"
        )
    };
    ["echo", "ex206", "avscan"].map(of).concat()
        + "service-chain all\n  inspect echo\n  inspect ex206\n  inspect avscan\n"
}

const CHAINS: &[&str] = &["echo", "ex206", "avscan", "all"];

#[test]
fn a_virus_is_blocked_in_both_directions() {
    if are_missing("a virus through a scanner") {
        return;
    }
    let place = Place::new("services-virus");
    let (port, _daemons) = services(&place);
    let front = Front::start("services-virus-front", &sections(port), CHAINS, fake::origin());
    let eicar = eicar();
    assert_eq!(eicar.len(), 68);
    for chain in ["avscan", "all"] {
        for http2 in [false, true] {
            for more in [&[][..], CHUNKED] {
                let got = front.ask(http2, &format!("/{chain}/"), Some(&eicar), more);
                assert!(got.status == 403 && !got.body.windows(8).any(|part| part == b"STANDARD"), "{got:?}");
                assert!(String::from_utf8_lossy(&got.body).contains("VIRUS FOUND"), "the scanner's own page");
                let line = front.logged("chain=");
                assert!(line.contains("avscan.request=blocked:") && line.contains("threat=Eicar-Test"), "{line}");
            }
        }
    }
    // Downloaded: the request is not looked at, so that the response is.
    let only = sections(port).replace("  reqmod /avscan\n", "");
    let front = Front::start("services-virus-down", &only, CHAINS, fake::origin());
    for http2 in [false, true] {
        for more in [&[][..], CHUNKED] {
            let got = front.ask(http2, "/avscan/", Some(&eicar), more);
            assert!(got.status == 403 && !got.body.windows(8).any(|part| part == b"STANDARD"), "{got:?}");
            let line = front.logged("chain=");
            assert!(line.contains("avscan.response=blocked:") && line.contains("threat=Eicar-Test"), "{line}");
        }
    }
}

#[test]
fn clean_bodies_are_the_same_behind_real_services() {
    if are_missing("clean bodies through real services") {
        return;
    }
    let place = Place::new("services-clean");
    let (port, _daemons) = services(&place);
    let front = Front::start("services-clean-front", &sections(port), CHAINS, fake::origin());
    let (mut seen, mut size) = ((0, 0), 0usize);
    for chain in CHAINS {
        for turn in 0..24 {
            let body = bytes(size);
            let more = if turn % 3 == 0 { CHUNKED } else { &[] };
            let got = front.ask(turn % 2 == 0, &format!("/{chain}/"), Some(&body), more);
            assert!(got == Got { status: 200, body }, "{chain}, {size} bytes up: {}", got.status);
            let line = front.logged("chain=");
            seen = (seen.0 + line.matches("=unmodified").count(), seen.1 + line.matches("=modified").count());
            let got = front.ask(turn % 2 == 1, &format!("/{chain}/?bytes={size}"), None, &[]);
            assert!(got == Got { status: 200, body: bytes(size) }, "{chain}, {size} bytes down: {}", got.status);
            // Sizes around those of previews, buffers and pieces, and some large ones.
            size = match turn {
                0..8 => [1, 1023, 1024, 1025, 16_383, 16_384, 16_385, 0][turn],
                _ => (size * 7919 + 10_007) % 700_001,
            };
        }
    }
    assert!(seen.0 > 20 && seen.1 > 20, "answers that change something, and that do not: {seen:?}");
}

#[test]
fn the_example_does_what_it_says() {
    if are_missing("the example of a scanner") {
        return;
    }
    let place = Place::new("services-example");
    let (port, _daemons) = services(&place);
    let (front, origin) = (free_port(), fake::origin());
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let text = std::fs::read_to_string(examples.join("inspection.cfg")).unwrap();
    let site = place.certificate().display().to_string();
    let text = text
        .replace("\"${CERTIFICATES-/etc/penstock}\"/site.pem", &site)
        .replace("127.0.0.1:1344", &format!("127.0.0.1:{port}"))
        .replace("127.0.0.1:8443", &format!("127.0.0.1:{front}"))
        .replace("127.0.0.1:9001", &format!("127.0.0.1:{origin}"));
    let _running = Running::start(&[&"-f", &place.file("inspection.cfg", &text)]);
    until("it listens", || TcpStream::connect((Ipv4Addr::LOCALHOST, front)).is_ok());
    let mut tried = 0;
    for command in text.lines().filter_map(|line| line.strip_prefix("# Try:")) {
        let done = Command::new("sh").args(["-c", command.trim()]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&done.stdout), "200\n", "{command}");
        tried += 1;
    }
    assert_eq!(tried, 2);
    std::fs::write(place.0.join("virus"), eicar()).unwrap();
    let upload = format!("@{}", place.0.join("virus").display());
    let url = format!("https://127.0.0.1:{front}/");
    let done = Command::new("curl")
        .args(["-sk", "-o", "/dev/null", "-w", "%{http_code}", "--data-binary", &upload, &url])
        .output();
    assert_eq!(String::from_utf8_lossy(&done.unwrap().stdout), "403");
}
