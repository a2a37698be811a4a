//! `penstock bench study` and `bench compare` on the real binary, beside the haproxy and nginx that are installed: every study
//! end to end, in windows too short to measure anything.

mod common;

use common::{
    Place, penstock, run,
    study::{
        cells, everybody, has_namespaces, is_installed, is_seen_in_a_browser, is_squid_without_a_processor, said, skip,
        study,
    },
};
use penstock_qat_double::Double;
use serde_json::Value;
use std::{
    path::Path,
    process::{Command, Stdio},
};

/// One test a study, so that they run side by side: its arguments make it shorter still, and its page has at least so many figures, the
/// drawing of who ran where among them.
macro_rules! studies {
    ($($test:ident: $name:literal, $more:expr, $figures:literal;)*) => {$(
        #[test]
        fn $test() {
            runs_beside_those_who_are_installed_and_its_page_is_seen($name, &$more, $figures);
        }
    )*};
}

studies! {
    handshake_modes: "handshake-modes", [], 4;
    cores_saved: "cores-saved", ["--target-rate", "100"], 5;
    max_rate: "max-rate", ["--cases", "ECDSA", "--connections", "8"], 5;
    core_scaling: "core-scaling", ["--connections", "8"], 5;
    handshake: "handshake", [], 4;
    throughput: "throughput", ["--cases", "100KB", "--connections", "8"], 4;
    offload: "offload", ["--connections", "8"], 6;
    orchestration: "orchestration", ["--connections", "8", "--cases", "GET: clear,GET: one,GET: three,GET: new,GET: passed,1 MB: two"], 6;
    cpu_against_rate: "cpu-against-rate", ["--rates", "20", "--connections", "50", "--loss", "0", "--duration", "1500ms"], 3;
}

fn runs_beside_those_who_are_installed_and_its_page_is_seen(name: &str, more: &[&str], figures: usize) {
    let has_origin = ["throughput", "offload", "orchestration", "cpu-against-rate"].contains(&name);
    if has_origin && !is_installed("nginx") {
        skip(&format!("{name}: nginx is not installed, and it is the server behind"));
        return;
    }
    if name == "cpu-against-rate" && !has_namespaces() {
        skip("cpu-against-rate: it needs root and iproute2");
        return;
    }
    let place = Place::new(&format!("study-{name}"));
    let mut contestants = everybody();
    if name == "orchestration" {
        if !is_installed("c-icap") {
            return skip("orchestration: c-icap is not installed, and it is what inspects");
        }
        contestants.push("penstock-tcp");
        if is_installed("squid") {
            contestants.push("squid");
        } else {
            skip("orchestration beside Squid: it is not installed (squid-openssl)");
        }
        if is_installed("sslsplit") {
            contestants.push("sslsplit");
        } else {
            skip("orchestration beside SSLsplit: it is not installed");
        }
    }
    let result = study(&place, name, &[&["--contestants", &contestants.join(",")], more].concat());
    assert_eq!(result["partial"].to_string(), "[]", "{name}");
    for contestant in &contestants {
        assert!(cells(&result).iter().any(|cell| cell["contestant"] == *contestant), "{name}: {contestant}");
    }
    is_what_it_should_be(name, &result);
    is_seen_in_a_browser(&place.0.join(name).join("report.html"), figures);
    if name == "handshake" {
        results_are_read_again(&place.0.join("handshake/result.json"), &place);
    }
}

/// What is each study's own.
fn is_what_it_should_be(name: &str, result: &Value) {
    let all = cells(result);
    let first = &all[0]["windows"][0];
    let agreed = all[0]["negotiated"][0].as_str().unwrap();
    match name {
        "handshake" => {
            for cell in all {
                let window = &cell["windows"][0];
                assert!(window["full_handshakes"].as_u64() >= window["done"].as_u64(), "a full handshake each: {cell}");
                let agreed = cell["negotiated"][0].as_str().unwrap();
                assert!(agreed.starts_with("TLSv1.3 TLS_AES_256_GCM_SHA384"), "{cell}");
            }
        }
        "handshake-modes" => {
            assert!(agreed.starts_with("TLSv1.2 ") && agreed.contains("AES_256_GCM_SHA384"), "{agreed}");
        }
        "cores-saved" => assert_eq!(result["target_rate"].as_f64(), Some(100.0)),
        "max-rate" | "core-scaling" => assert!(all[0]["probes"].as_array().unwrap().len() > 1, "{}", all[0]),
        "throughput" => assert!(first["bytes_a_second"].as_f64() > Some(1e5), "{first}"),
        "offload" => assert_eq!(all.len(), 4 * everybody().len(), "clear and re-encrypted, requests and bytes"),
        "orchestration" => orchestrates(result),
        "cpu-against-rate" => {
            assert!(result["notes"].to_string().contains("Delay, jitter and loss are made by"), "{}", result["notes"]);
            // A connection, a handshake of two round trips and a request: four times 50 ms, less the jitter.
            let p50 = first["latency"]["p50_us"].as_u64().unwrap();
            assert!(p50 > 180_000, "{p50} µs");
            let named = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("penstock-bench");
            let left =
                std::fs::read_dir("/run/netns").map_or(0, |all| all.flatten().map(named).filter(|own| *own).count());
            assert_eq!(left, 0, "namespaces stay behind");
        }
        other => panic!("{other} is not looked at"),
    }
}

/// Who did what: ending TLS is everybody's, decrypting in tunnels penstock's and Squid's, forging
/// SSLsplit's too, and passing bytes on penstock's alone.
fn orchestrates(result: &Value) {
    let all = cells(result);
    let who = |case: &str| -> Vec<&str> {
        let mut names: Vec<&str> =
            all.iter().filter(|cell| cell["case"] == case).map(|cell| cell["contestant"].as_str().unwrap()).collect();
        names.sort_unstable();
        names
    };
    let mut decrypt = vec!["penstock-native"];
    decrypt.extend(is_installed("squid").then_some("squid"));
    let mut forge = decrypt.clone();
    forge.extend(is_installed("sslsplit").then_some("sslsplit"));
    let mut end = [everybody(), decrypt.clone()].concat();
    end.sort_unstable();
    end.dedup();
    for (case, expected) in [
        ("GET: clear", &end),
        ("GET: one service", &decrypt),
        ("GET: three services", &decrypt),
        ("GET: new names, RSA-2048", &forge),
        ("GET: new names, ECDSA P-256", &forge),
        ("1 MB: two services", &decrypt),
        ("GET: passed on", &vec!["penstock-native", "penstock-tcp"]),
    ] {
        assert_eq!(who(case), *expected, "{case}");
    }
    assert_eq!(all.len(), end.len() + 3 * decrypt.len() + 2 * forge.len() + 2, "7 kinds of work");
    for cell in all {
        let (case, window) = (cell["case"].as_str().unwrap(), &cell["windows"][0]);
        let agreed = cell["negotiated"][0].as_str().unwrap();
        assert!(agreed.starts_with("TLSv1.3 TLS_AES_128_GCM_SHA256"), "{cell}");
        if case.starts_with("GET") {
            assert!(window["full_handshakes"].as_u64() >= window["done"].as_u64(), "a full handshake each: {cell}");
        } else {
            let moved = window["bytes_a_second"].as_f64() > Some(1e5);
            assert!(moved || is_squid_without_a_processor(cell), "{cell}");
        }
    }
    // What inspects, and is asked as often by both.
    let configuration = |name: &str| -> &str {
        let all = result["contestants"].as_array().unwrap();
        all.iter().find(|one| one["name"] == name).unwrap()["configuration"].as_str().unwrap()
    };
    assert!(configuration("penstock-tcp").contains("mode tcp"), "{}", configuration("penstock-tcp"));
    assert!(result["commands"].to_string().contains("services: taskset"), "{}", result["commands"]);
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
fn a_device_double_takes_part_and_every_figure_says_whose_it_is() {
    let place = Place::new("studies-double");
    let double = Double::new("service_us 100");
    let libraries = double.path().display().to_string();
    let more = ["--contestants", "penstock-native,penstock-hw,penstock-hw+sw", "--qat-libraries", &libraries];
    let result = study(&place, "handshake", &more);
    let names: Vec<&str> = cells(&result).iter().map(|cell| cell["contestant"].as_str().unwrap()).collect();
    assert_eq!(names, ["penstock-native", "penstock-hw-double", "penstock-hw+sw-double"]);
    // Nothing is planned with it, and the doubt is beside every figure.
    assert_eq!(result["modes"].as_object().unwrap().keys().collect::<Vec<_>>(), ["native"]);
    assert!(result["doubts"].to_string().contains("these figures are the double's"), "{}", result["doubts"]);
    let page = std::fs::read_to_string(place.0.join("handshake/report.html")).unwrap();
    assert!(page.contains("no figure of it is a card's") && page.contains("LD_LIBRARY_PATH="), "{page}");
    let log = double.log();
    assert!(log.iter().any(|line| line.starts_with("start")), "the double was driven: {log:?}");
    assert_eq!(double.violations(), [""; 0]);
    // Without one the reason is penstock's own.
    let nowhere =
        ["bench", "study", "handshake", "--quick", "--contestants", "penstock-hw", "--qat-libraries", "/nowhere"];
    let output = penstock().args(nowhere).arg("--out").arg(place.0.join("none")).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("no contestant can take part: penstock-hw: "), "{}", said(&output));
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
        "no contestant can take part",
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
fn a_server_that_dies_in_the_middle_is_said_and_the_others_go_on() {
    if !is_installed("haproxy") {
        return skip("a contestant that dies: haproxy is not installed");
    }
    let place = Place::new("studies-dies");
    let mortal = place.file(
        "haproxy",
        "#!/bin/sh\nPATH=$PATH:/usr/sbin\n[ \"$1\" = -vv ] && exec haproxy -vv\nhaproxy \"$@\" & pid=$!\nsleep 2\nkill -9 $pid\n",
    );
    std::fs::set_permissions(&mortal, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let out = place.0.join("out");
    let mut command = penstock();
    command
        .args(["bench", "study", "handshake", "--quick", "--duration", "500ms", "--rounds", "6", "--haproxy"])
        .arg(mortal);
    let output = command.args(["--contestants", "haproxy,penstock-native", "--out"]).arg(&out).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let result: Value = serde_json::from_slice(&std::fs::read(out.join("result.json")).unwrap()).unwrap();
    let windows = |at: usize| cells(&result)[at]["windows"].as_array().unwrap().len();
    assert!((1..6).contains(&windows(0)) && windows(1) == 6, "{} and {}", windows(0), windows(1));
    let why = result["partial"][0].as_str().unwrap();
    assert!(why.starts_with("haproxy, TLS 1.3 AES-256-GCM, RSA-2048: "), "{why}");
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
