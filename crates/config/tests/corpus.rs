//! The corpus, read by us and by the real HAProxy: both accept, or both refuse, but for the differences that
//! [`INTENDED`] gives a reason for. Without HAProxy the folder's name is the expected answer.

#[path = "../../../tests/reference.rs"]
mod reference;

use penstock_config::{Env, Severity, Source, load};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Configurations on which we differ from HAProxy 2.6 on purpose: what we do, and why.
const INTENDED: &[(&str, bool, &str)] = &[
    ("paper-engine", true, "Debian's build knows no engines; ours are built in, and the directives select them"),
    ("newer-keywords", true, "keywords of HAProxy 2.7 to 3.2 are read as well"),
    ("variable-default", true, "the manual's \"${NAME-default}\" works; 2.6.12 misreads it"),
    ("many-words", true, "a line may have more than 64 words"),
    ("atoi-maxconn", false, "'many' is not a number; HAProxy reads it as 0"),
    ("atoi-retries", false, "'-1' is no number of tries; HAProxy reads it as some"),
    ("atoi-fullconn", false, "'10k' is not a number; HAProxy reads it as 10"),
    ("extra-after-balance", false, "words that nothing reads are mistakes"),
    ("default-server-id", false, "HAProxy prints an alert and starts all the same"),
    ("listen-with-address", false, "HAProxy prints an alert and starts without the address"),
    ("defaults-odd-name", false, "names have the same characters in all sections"),
    ("peers-same-table", false, "two tables of one name are a mistake; HAProxy keeps one of them"),
    ("peers-unix", false, "peers are connected to over TCP"),
    ("peers-without-port", false, "HAProxy connects to port 0, in vain"),
    ("fcgi-app-section", false, "FastCGI is not spoken"),
    ("socks4", false, "SOCKS proxies are not spoken to"),
    ("resolvers-over-tcp", false, "name servers are asked over UDP only"),
];

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

fn configurations() -> Vec<(bool, PathBuf)> {
    let mut all = Vec::new();
    for (folder, valid) in [("valid", true), ("broken", false)] {
        for entry in fs::read_dir(corpus().join(folder)).expect("the corpus is in the tree") {
            all.push((valid, entry.expect("a readable folder").path()));
        }
    }
    all.sort();
    all
}

/// A configuration with every example that the table of balance algorithms gives.
fn every_balance() -> String {
    let backend = |(n, example)| format!("backend b{n}\n    balance {example}\n    server s 127.0.0.1:20001\n");
    let backends: String = penstock_config::balance_examples().enumerate().map(backend).collect();
    format!(
        "defaults\n    mode http\n    timeout connect 5s\n    timeout client 30s\n    timeout server 30s\n{backends}"
    )
}

/// The certificates and other files that the corpus refers to.
fn files(folder: &Path) {
    let files = folder.join("files");
    // A certificate directory holds nothing else.
    fs::create_dir_all(files.join("certs")).expect("a fresh folder");
    let pem = include_str!("www.example.com.pem");
    let list = format!("{} [alpn h2 verify none] www.example.com\n", files.join("site.pem").display());
    let response = "HTTP/1.0 503 Service Unavailable\r\nConnection: close\r\n\r\nNo\r\n";
    fs::write(files.join("site.pem"), pem).expect("written");
    fs::write(files.join("certs/other.pem"), pem).expect("written");
    fs::write(files.join("list.txt"), list).expect("written");
    fs::write(files.join("hosts.map"), "www.example.com web\n").expect("written");
    // Three keys of 48 bytes, in base64.
    fs::write(files.join("ticket.keys"), format!("{}\n", "QUJD".repeat(16)).repeat(3)).expect("written");
    fs::write(files.join("page.html"), "<html>\n\n").expect("written");
    fs::write(files.join("lf.http"), "HTTP/1.0 503 No\n\nNo\n").expect("written");
    fs::write(files.join("short.http"), "HTTP/1.0 503 No\r\nContent-Length: 9\r\n\r\nNo\r\n").expect("written");
    for code in ["400", "404", "503"] {
        fs::write(files.join(format!("{code}.http")), response).expect("written");
    }
}

/// Whether HAProxy takes it; exit status 2 means that it is valid but has nothing to listen on.
fn haproxy(binary: &str, path: &Path, folder: &Path) -> (bool, String) {
    let output = Command::new(binary)
        .args(["-c", "-L", "lb-1", "-f"])
        .arg(path)
        .current_dir(folder)
        .output()
        .expect("haproxy was found a moment ago");
    let code = output.status.code();
    (matches!(code, Some(0 | 2)), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn ours(path: &Path, folder: &Path) -> (bool, String) {
    let read = |file: &Path| fs::read(folder.join(file));
    let env = Env { files: &read, local_peer: "lb-1".into(), ..Env::default() };
    let text = fs::read(path).expect("a file of the corpus");
    let name = path.file_name().expect("a file").to_string_lossy().into_owned();
    let (config, diagnostics) = load([Source::new(name, &text)], &env);
    (!diagnostics.has_errors(), diagnostics.render(&config.files, Severity::Notice, false))
}

#[test]
fn accepts_and_refuses_what_haproxy_does() {
    let binary = reference::haproxy();
    if binary.is_none() {
        eprintln!(
            "SKIPPED: no haproxy here (apt-get install haproxy): the corpus is compared with its folders' names only"
        );
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    files(folder.path());
    let mut wrong = Vec::new();
    let mut all = configurations();
    let balance = folder.path().join("balance-all.cfg");
    fs::write(&balance, every_balance()).expect("written");
    all.push((true, balance));
    assert!(all.len() >= 60, "the corpus has {} configurations", all.len());
    for (valid, path) in &all {
        let name = path.file_stem().expect("a file").to_string_lossy().into_owned();
        let (accepted, text) = ours(path, folder.path());
        let (expected, theirs) = match binary {
            Some(binary) => haproxy(binary, path, folder.path()),
            None => (*valid, String::new()),
        };
        if expected != *valid && !INTENDED.iter().any(|(n, ..)| *n == name) {
            wrong.push(format!("{name}: HAProxy {}s it\n{theirs}", verb(expected)));
            continue;
        }
        let wanted = INTENDED.iter().find(|(n, ..)| *n == name).map_or(expected, |(_, wanted, _)| *wanted);
        if accepted != wanted {
            wrong.push(format!("{name}: we {} it, HAProxy {}s it\n{text}{theirs}", verb(accepted), verb(expected)));
        }
    }
    assert!(wrong.is_empty(), "{}\n{} of {} differ", wrong.join("\n"), wrong.len(), all.len());
    for (name, _, reason) in INTENDED {
        assert!(all.iter().any(|(_, p)| p.file_stem().is_some_and(|s| s == *name)), "{name} is gone: {reason}");
    }
}

fn verb(accepts: bool) -> &'static str {
    if accepts { "accept" } else { "refuse" }
}
