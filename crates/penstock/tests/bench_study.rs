//! `penstock bench study` and `bench compare` on the real binary, beside the haproxy and nginx that are installed: every study
//! end to end, in windows too short to measure anything.

mod common;

use common::{Place, penstock, run};
use serde_json::Value;
use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

fn skip(why: &str) {
    eprintln!("SKIP: {why}");
    if let Some(path) = std::env::var_os("PENSTOCK_SKIPS") {
        use std::io::Write;
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        writeln!(&file, "SKIP: {why}").unwrap();
    }
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    path.split(':').any(|place| Path::new(place).join(program).is_file())
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// A study in windows of a third of a second, once each; the result.
fn study(place: &Place, name: &str, more: &[&str]) -> Value {
    let out = place.0.join(name);
    let mut command = penstock();
    command
        .args(["bench", "study", name, "--quick", "--duration", "200ms", "--rounds", "1", "--out"])
        .arg(&out)
        .args(more);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{name}: {}", said(&output));
    let result: Value = serde_json::from_slice(&std::fs::read(out.join("result.json")).unwrap()).unwrap();
    for cell in result["cells"].as_array().unwrap() {
        let window = &cell["windows"][0];
        assert!(window["done"].as_u64() > Some(0) && window["cpu_us"].as_f64() > Some(0.0), "{name}: {cell}");
        assert_eq!(
            (window["failed"].as_u64(), window["resumed_handshakes"].as_u64()),
            (Some(0), Some(0)),
            "{name}: {cell}"
        );
    }
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("<svg") && !page.contains("<script") && !page.contains("NaN"), "{name}");
    assert!(
        std::fs::read_to_string(out.join("raw.jsonl")).unwrap().lines().count()
            >= result["cells"].as_array().unwrap().len()
    );
    result
}

fn cells(result: &Value) -> Vec<String> {
    let name = |cell: &Value| format!("{}: {}", cell["contestant"].as_str().unwrap(), cell["case"].as_str().unwrap());
    result["cells"].as_array().unwrap().iter().map(name).collect()
}

#[test]
fn each_study_runs_beside_those_who_are_installed() {
    let place = Place::new("studies");
    let mut beside = vec!["penstock-native"];
    for program in ["haproxy", "nginx"] {
        if is_installed(program) {
            beside.push(program);
        } else {
            skip(&format!("studies beside {program}: it is not installed"));
        }
    }
    let everybody = beside.join(",");
    let result = study(&place, "handshake", &["--contestants", &everybody]);
    assert_eq!(result["cells"].as_array().unwrap().len(), beside.len());
    for cell in result["cells"].as_array().unwrap() {
        let window = &cell["windows"][0];
        assert!(
            window["full_handshakes"].as_u64() >= window["done"].as_u64(),
            "full handshakes, a request each: {cell}"
        );
        assert!(cell["negotiated"][0].as_str().unwrap().starts_with("TLSv1.3 TLS_AES_256_GCM_SHA384"), "{cell}");
    }
    let result = study(&place, "handshake-modes", &["--contestants", &everybody]);
    assert!(result["cells"][0]["negotiated"][0].as_str().unwrap().starts_with("TLSv1.2 "), "{result}");
    let result = study(&place, "cores-saved", &["--contestants", "penstock-native", "--target-rate", "100"]);
    assert_eq!(result["target_rate"].as_f64(), Some(100.0));
    let result =
        study(&place, "max-rate", &["--contestants", "penstock-native", "--cases", "ECDSA", "--connections", "16"]);
    assert!(result["cells"][0]["probes"].as_array().unwrap().len() > 1);
    study(&place, "core-scaling", &["--contestants", "penstock-native", "--connections", "8"]);
    if is_installed("nginx") {
        let result =
            study(&place, "throughput", &["--contestants", &everybody, "--cases", "100KB", "--connections", "8"]);
        assert!(result["cells"][0]["windows"][0]["bytes_a_second"].as_f64() > Some(1e5), "{result}");
        let result = study(&place, "offload", &["--contestants", "penstock-native", "--connections", "8"]);
        assert_eq!(cells(&result).len(), 4, "to clear-text servers and re-encrypted, requests and bytes");
    } else {
        skip("throughput and offload: nginx is not installed, and it is the server behind");
    }
    the_page_is_seen_in_a_browser(&place.0.join("handshake/report.html"));
    results_are_read_again(&place.0.join("handshake/result.json"), &place);
}

/// Rendered, no complaint on the console, figures in the document and ink on the page.
fn the_page_is_seen_in_a_browser(page: &Path) {
    let browsers = ["chromium", "chromium-browser", "google-chrome"];
    let Some(browser) = browsers.into_iter().find(|name| is_installed(name)) else {
        return skip("the report in a browser: none is installed (chromium)");
    };
    let picture = page.with_extension("png");
    let profile = page.with_file_name("browser");
    let look = |dark: bool, wanted: &str| {
        let mut command = Command::new(browser);
        command.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--enable-logging=stderr",
            "--window-size=1280,1800",
        ]);
        if dark {
            command.arg("--force-dark-mode");
        }
        command.arg(format!("--user-data-dir={}", profile.display())).arg(wanted);
        command.arg(format!("file://{}", page.display())).stdin(Stdio::null()).output().unwrap()
    };
    let output = look(false, "--dump-dom");
    let document = String::from_utf8_lossy(&output.stdout);
    if document.is_empty() {
        return skip(&format!("the report in a browser: {browser} does not start here"));
    }
    assert!(!String::from_utf8_lossy(&output.stderr).contains("CONSOLE"), "{}", said(&output));
    assert!(document.matches("<svg").count() >= 4 && document.contains("<rect class=\"c0\""), "{document}");
    for dark in [false, true] {
        look(dark, &format!("--screenshot={}", picture.display()));
        // An empty page of this size is some 8 kB of PNG.
        let bytes = std::fs::read(&picture).unwrap();
        assert!(bytes.starts_with(b"\x89PNG") && bytes.len() > 60_000, "{} bytes", bytes.len());
        std::fs::remove_file(&picture).unwrap();
    }
}

/// By compare, which has no verdict to give, and by the planner.
fn results_are_read_again(result: &Path, place: &Place) {
    let page = place.0.join("compare.html");
    let output = run(&[&"bench", &"compare", &result, &result, &"--html", &page]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("none: the short form measures nothing"), "{}", said(&output));
    assert!(std::fs::read_to_string(&page).unwrap().contains("<svg"));
    let output = run(&[&"plan", &"--study", &result, &"--level", &"1K"]);
    assert!(output.status.success() && said(&output).contains("penstock bench study handshake"), "{}", said(&output));
    let broken = place.file("broken.json", "{\"format\": 1}");
    let output = run(&[&"bench", &"compare", &result, &broken]);
    assert!(!output.status.success() && said(&output).contains("is not the result of a study"), "{}", said(&output));
}

#[test]
fn a_way_with_delay_lies_between_client_and_server() {
    let id = Command::new("id").arg("-u").output().unwrap();
    if String::from_utf8_lossy(&id.stdout).trim() != "0" || !is_installed("ip") || !is_installed("nginx") {
        return skip("cpu-against-rate: it needs root, iproute2 and nginx");
    }
    let place = Place::new("studies-far");
    let more = [
        "--contestants",
        "penstock-native",
        "--rates",
        "20",
        "--connections",
        "50",
        "--loss",
        "0",
        "--duration",
        "1500ms",
    ];
    let result = study(&place, "cpu-against-rate", &more);
    assert!(result["notes"].to_string().contains("Delay, jitter and loss are made by"), "{}", result["notes"]);
    // A connection, a handshake of two round trips and a request: four times 50 ms, less the jitter.
    let p50 = result["cells"][0]["windows"][0]["latency"]["p50_us"].as_u64().unwrap();
    assert!(p50 > 180_000, "{p50} µs");
    let left = std::fs::read_dir("/run/netns").map_or(0, |entries| {
        entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("penstock-bench")).count()
    });
    assert_eq!(left, 0, "namespaces stay behind");
}

#[test]
fn other_processes_can_be_the_clients() {
    let place = Place::new("studies-agents");
    let names = ["a", "b"].map(|name| format!("unix:{}", place.0.join(name).display()));
    let mut agents: Vec<_> = names
        .iter()
        .map(|name| penstock().args(["bench", "agent", "--listen", name]).stdout(Stdio::null()).spawn().unwrap())
        .collect();
    let began = std::time::Instant::now();
    while !["a", "b"].iter().all(|name| place.0.join(name).exists()) && began.elapsed().as_secs() < 20 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let more = ["--contestants", "penstock-native", "--agents", &names.join(","), "--connections", "64"];
    let result = study(&place, "handshake", &more);
    for agent in &mut agents {
        agent.kill().unwrap();
        agent.wait().unwrap();
    }
    assert_eq!(result["placement"]["agents"].as_array().unwrap().len(), 2);
    let raw = std::fs::read_to_string(place.0.join("handshake/raw.jsonl")).unwrap();
    assert!(raw.contains("\"agents\":[{"), "each agent's share is in the raw data");
}

#[test]
fn what_cannot_be_measured_is_said_and_what_can_is_kept() {
    let place = Place::new("studies-bad");
    let refused = |more: &[&str], why: &str| {
        let mut command = penstock();
        let output =
            command.args(["bench", "study"]).args(more).arg("--out").arg(place.0.join("bad")).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{more:?}: {}", said(&output));
        assert!(said(&output).contains(why) && !said(&output).contains("panicked"), "{more:?}: {}", said(&output));
    };
    refused(&["handshakes"], "there is no study 'handshakes'");
    refused(&["handshake", "--steps", "4096"], "4096 cores for the server: there ");
    refused(&["handshake", "--quick", "--contestants", "envoy"], "there is no contestant 'envoy'");
    refused(&["handshake", "--server-cores", "4095"], "there is no processor 4095 here");
    refused(&["handshake", "--duration", "0s"], "nothing can be measured with 0");
    refused(&["throughput", "--quick", "--nginx", "/nowhere/nginx"], "/nowhere/nginx is not a file");
    refused(
        &["handshake", "--quick", "--penstock", "/bin/false", "--contestants", "penstock-native"],
        "nobody can take part",
    );
    // One of two is missing: the other's figures are kept, and the result says that it is partial.
    let out = place.0.join("partial");
    let output = penstock()
        .args([
            "bench",
            "study",
            "handshake",
            "--quick",
            "--duration",
            "200ms",
            "--rounds",
            "1",
            "--contestants",
            "penstock-native,haproxy",
        ])
        .args(["--haproxy", "/nowhere/haproxy", "--out"])
        .arg(&out)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let result: Value = serde_json::from_slice(&std::fs::read(out.join("result.json")).unwrap()).unwrap();
    assert_eq!(cells(&result).len(), 1);
    assert_eq!(result["partial"][0], "haproxy: /nowhere/haproxy is not a file");
    assert!(std::fs::read_to_string(out.join("report.html")).unwrap().contains("This result is partial"));
}

#[test]
fn ctrl_c_keeps_what_was_measured_and_stops_the_servers() {
    let place = Place::new("studies-stop");
    let out = place.0.join("stopped");
    let mut command = penstock();
    command.args([
        "bench",
        "study",
        "handshake",
        "--quick",
        "--duration",
        "500ms",
        "--rounds",
        "1000",
        "--contestants",
        "penstock-native",
        "--out",
    ]);
    let child = command.arg(&out).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(4));
    let pid = child.id().to_string();
    // The fourth word of a process's line is its parent's number; the second, its name, may hold spaces.
    let is_child = |number: &String| {
        let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
        stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)) == Some(&pid)
    };
    let processes =
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let servers: Vec<String> = processes.filter(|name| name.parse::<u32>().is_ok()).filter(is_child).collect();
    assert!(!servers.is_empty(), "the server is a child of the study");
    assert!(Command::new("sh").args(["-c", &format!("kill -INT {pid}")]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let result: Value = serde_json::from_slice(&std::fs::read(out.join("result.json")).unwrap()).unwrap();
    assert_eq!(result["partial"][0], "it was stopped by hand");
    assert!(!result["cells"][0]["windows"].as_array().unwrap().is_empty());
    for server in servers {
        assert!(!Path::new("/proc").join(&server).exists(), "{server} still runs");
    }
}
