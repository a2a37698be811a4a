//! `penstock bench study --perf` with the real perf: one study of each procedure, and each contestant's stacks.

mod common;

use common::{
    Place, penstock,
    study::{cells, everybody, has_namespaces, is_installed, is_seen_in_a_browser, said, skip, study},
};
use std::process::Command;

/// Whether perf may look at a program of ours.
fn perf_is_allowed(place: &Place) -> bool {
    if !is_installed("perf") {
        skip("call stacks: perf is not installed (linux-perf)");
        return false;
    }
    let data = place.0.join("tried.data");
    let tried =
        Command::new("perf").args(["record", "-q", "-g", "-o"]).arg(data).args(["--", "true"]).output().unwrap();
    if !tried.status.success() {
        skip(&format!("call stacks: perf may not watch here: {}", said(&tried).lines().next().unwrap_or_default()));
    }
    tried.status.success()
}

#[test]
fn stacks_of_handshakes() {
    shows_where_each_contestant_spends_its_time("handshake", &[]);
}

#[test]
fn stacks_of_the_largest_rate() {
    shows_where_each_contestant_spends_its_time("max-rate", &["--cases", "ECDSA", "--connections", "8"]);
}

#[test]
fn stacks_of_cpu_against_rate() {
    if has_namespaces() && is_installed("nginx") {
        let more = &["--rates", "40", "--connections", "100", "--loss", "0", "--duration", "1500ms"];
        shows_where_each_contestant_spends_its_time("cpu-against-rate", more);
    } else {
        skip("call stacks of cpu-against-rate: it needs root, iproute2 and nginx");
    }
}

fn shows_where_each_contestant_spends_its_time(name: &str, more: &[&str]) {
    let place = Place::new(&format!("study-perf-{name}"));
    if !perf_is_allowed(&place) {
        return;
    }
    let all = everybody().join(",");
    let result = study(&place, name, &[&["--perf", "--contestants", &all], more].concat());
    assert!(cells(&result).len() >= everybody().len(), "{name}");
    for contestant in everybody() {
        let stacks = &result["stacks"][contestant];
        assert!(stacks["samples"].as_u64() > Some(0), "{name}, {contestant}: {stacks}");
        assert!(!stacks["tree"][0]["calls"].as_array().unwrap().is_empty(), "{name}, {contestant}: {stacks}");
        assert!(stacks["hottest"][0][0].as_f64() > Some(0.0), "{name}, {contestant}: {stacks}");
        let folded = place.0.join(name).join(format!("stacks-{contestant}.txt"));
        let folded = std::fs::read_to_string(folded).unwrap();
        let counted = |line: &str| line.rsplit_once(' ').and_then(|(_, count)| count.parse::<u64>().ok());
        let samples = stacks["samples"].as_u64().unwrap();
        assert_eq!(folded.lines().filter_map(counted).sum::<u64>(), samples, "{folded}");
        // Not the workers' idle parent, and not a list of numbers: functions by their names.
        let known = if contestant == "penstock-native" { "penstock" } else { contestant };
        assert!(folded.contains(known) && folded.contains("sys_"), "{name}: {folded}");
    }
    let page = place.0.join(name).join("report.html");
    let text = std::fs::read_to_string(&page).unwrap();
    assert_eq!(text.matches("class=\"flames\"").count(), everybody().len(), "{name}");
    is_seen_in_a_browser(&page, 4);
}

#[test]
fn where_perf_may_not_watch_the_result_says_so_and_keeps_its_figures() {
    let place = Place::new("studies-no-perf");
    let refusing = place.file("perf", "#!/bin/sh\necho 'Error:' >&2\necho 'Access is limited.' >&2\nexit 255\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&refusing, mode).unwrap();
    let mut command = penstock();
    let path = format!("{}:{}", place.0.display(), std::env::var("PATH").unwrap_or_default());
    command.env("PATH", path).args(["bench", "study", "handshake", "--quick", "--duration", "200ms", "--rounds", "1"]);
    let output = command.args(["--contestants", "penstock-native", "--perf", "--out"]).arg(&place.0).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("PARTIAL: --perf: perf may not watch: Access is limited."), "{}", said(&output));
    assert!(said(&output).contains("penstock-native does "), "{}", said(&output));
}
