//! Studies on the real binary, and their pages in a real browser.

use super::{Place, penstock};
use serde_json::Value;
use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

/// Says aloud what is left out.
pub fn skip(why: &str) {
    eprintln!("SKIP: {why}");
    if let Some(path) = std::env::var_os("PENSTOCK_SKIPS") {
        use std::io::Write;
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        writeln!(&file, "SKIP: {why}").unwrap();
    }
}

pub fn is_installed(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    path.split(':').any(|place| Path::new(place).join(program).is_file())
}

/// Whether network namespaces, which only root may make, can be had.
pub fn has_namespaces() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    String::from_utf8_lossy(&id.stdout).trim() == "0" && is_installed("ip")
}

pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// penstock, and those of the others that are installed.
pub fn everybody() -> Vec<&'static str> {
    let mut all = vec!["penstock-native"];
    for program in ["haproxy", "nginx"] {
        if is_installed(program) {
            all.push(program);
        } else {
            skip(&format!("studies beside {program}: it is not installed"));
        }
    }
    all
}

/// A study in its short form, in windows of a fifth of a second unless told otherwise, once each; the result. Where the machine
/// was so busy that some window ended before anything was done, in windows of some seconds.
pub fn study(place: &Place, name: &str, more: &[&str]) -> Value {
    let out = place.0.join(name);
    let run = |last: &[&str]| -> Value {
        let mut command = penstock();
        command.args(["bench", "study", name, "--quick", "--duration", "200ms", "--rounds", "1", "--out"]);
        let output = command.arg(&out).args(more).args(last).output().unwrap();
        assert!(output.status.success(), "{name}: {}", said(&output));
        serde_json::from_slice(&std::fs::read(out.join("result.json")).unwrap()).unwrap()
    };
    let mut result = run(&[]);
    if cells(&result).iter().any(|cell| cell["windows"][0]["done"] == 0) {
        result = run(&["--duration", "4s"]);
    }
    for cell in cells(&result) {
        let window = &cell["windows"][0];
        let worked = window["done"].as_u64() > Some(0) && window["cpu_us"].as_f64() > Some(0.0);
        assert!(worked || is_squid_without_a_processor(cell), "{name}: {cell}");
        // Squid loses a request now and then while the machine is busy.
        let failed = window["failed"].as_u64().filter(|_| cell["contestant"] != "squid");
        assert_eq!((failed.unwrap_or(0), window["resumed_handshakes"].as_u64()), (0, Some(0)), "{name}: {cell}");
    }
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("<svg") && !page.contains("<script") && !page.contains("NaN"), "{name}");
    let raw = std::fs::read_to_string(out.join("raw.jsonl")).unwrap();
    assert!(raw.lines().count() >= cells(&result).len(), "{name}");
    result
}

/// Whether this is Squid, and other programs had its processor: large bodies cost it so much that even a long window may then end before
/// it has sent one.
pub fn is_squid_without_a_processor(cell: &Value) -> bool {
    let doubts = cell["windows"][0]["doubts"].as_array().unwrap();
    cell["contestant"] == "squid" && doubts.iter().any(|doubt| doubt["kind"] == "neighbours")
}

pub fn cells(result: &Value) -> &Vec<Value> {
    result["cells"].as_array().unwrap()
}

/// Rendered, no complaint on the console, this many figures in the document and ink on the page.
pub fn is_seen_in_a_browser(page: &Path, figures: usize) {
    let browsers = ["chromium", "chromium-browser", "google-chrome"];
    let Some(browser) = browsers.into_iter().find(|name| is_installed(name)) else {
        return skip("reports in a browser: none is installed (chromium)");
    };
    let picture = page.with_extension("png");
    let profile = page.with_file_name("browser");
    let look = |dark: bool, wanted: &str| {
        let mut command = Command::new(browser);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr"]);
        command.arg("--window-size=1280,1800").args(dark.then_some("--force-dark-mode"));
        command.arg(format!("--user-data-dir={}", profile.display())).arg(wanted);
        command.arg(format!("file://{}", page.display())).stdin(Stdio::null()).output().unwrap()
    };
    let output = look(false, "--dump-dom");
    let document = String::from_utf8_lossy(&output.stdout);
    if document.is_empty() {
        return skip(&format!("reports in a browser: {browser} does not start here"));
    }
    let of = page.display();
    assert!(!String::from_utf8_lossy(&output.stderr).contains("CONSOLE"), "{of}: {}", said(&output));
    assert!(document.matches("<svg").count() >= figures, "{of}: {document}");
    assert!(["<rect class=\"c0\"", "<polyline class=\"l0\""].iter().any(|drawn| document.contains(drawn)), "{of}");
    for dark in [false, true] {
        look(dark, &format!("--screenshot={}", picture.display()));
        // An empty page of this size is some 8 kB of PNG.
        let bytes = std::fs::read(&picture).unwrap();
        assert!(bytes.starts_with(b"\x89PNG") && bytes.len() > 60_000, "{of}: {} bytes", bytes.len());
        std::fs::remove_file(&picture).unwrap();
    }
}
