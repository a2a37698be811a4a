//! The Grafana dashboard: its expressions are PromQL, and of metrics that there are.

use penstock_admin::{metrics::METRICS, prometheus};
use penstock_proxy::Snapshot;
use serde_json::Value;
use std::{collections::BTreeSet, process::Command};

const DASHBOARD: &str = include_str!("../../../packaging/grafana/penstock.json");

/// The expressions of all panels, with something in the place of Grafana's variables.
fn expressions() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("the dashboard is JSON");
    let panels = dashboard["panels"].as_array().expect("it has panels");
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let plain = |target: &Value| {
        let expression = target["expr"].as_str().expect("a target has an expression");
        let plain = expression.replace("$__rate_interval", "5m").replace("$instance", ".+").replace("$proxy", ".+");
        assert!(!plain.contains('$'), "a variable that nothing sets: {expression}");
        plain
    };
    targets.map(plain).collect()
}

/// Names of metrics in an expression: those of PromQL's own words have no such beginning.
fn names(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("haproxy_") || word.starts_with("penstock_"))
}

/// All names that the exporter may write.
fn known() -> BTreeSet<String> {
    let all = prometheus::Scope::parse("").expect("everything");
    let all = (all, &prometheus::MetricNames::default());
    let page = prometheus::render(&Snapshot::default(), &[], &[], all, "0");
    let mut known = BTreeSet::new();
    for (name, kind) in page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')) {
        match kind {
            "histogram" => known.extend(["bucket", "sum", "count"].map(|part| format!("{name}_{part}"))),
            _ => drop(known.insert(name.to_owned())),
        }
    }
    let kinds = [('F', "frontend"), ('L', "listener"), ('B', "backend"), ('S', "server")];
    for (letter, kind) in kinds {
        let own = METRICS.iter().filter(|metric| metric.kinds.contains(letter));
        known.extend(own.map(|metric| format!("haproxy_{kind}_{}", metric.name)));
    }
    known
}

#[test]
fn every_metric_of_the_dashboard_is_one_that_the_exporter_has() {
    let (known, expressions) = (known(), expressions());
    assert!(expressions.len() >= 40, "{}", expressions.len());
    let mut strangers = BTreeSet::new();
    for expression in &expressions {
        assert!(names(expression).count() > 0, "no metric in {expression}");
        strangers.extend(names(expression).filter(|name| !known.contains(*name)));
    }
    assert!(strangers.is_empty(), "no such metrics: {strangers:?}");
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("the dashboard is JSON");
    let variables = dashboard["templating"]["list"].to_string();
    assert!(names(&variables).all(|name| known.contains(name) || name == "haproxy_"), "{variables}");
}

#[test]
fn promtool_reads_every_expression() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut rules = "groups:\n- name: dashboard\n  rules:\n".to_owned();
    for (number, expression) in expressions().iter().enumerate() {
        rules.push_str(&format!("  - record: panel:{number}\n    expr: '{}'\n", expression.replace('\'', "''")));
    }
    let check = |rules: &str| {
        let file = dir.path().join("rules.yml");
        std::fs::write(&file, rules).expect("a writable directory");
        Command::new("promtool").args(["check", "rules"]).arg(file).output()
    };
    let Ok(found) = check(&rules) else {
        eprintln!("SKIP: expressions of the dashboard: promtool is not installed (prometheus)");
        if let Some(path) = std::env::var_os("PENSTOCK_SKIPS") {
            use std::io::Write;
            let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).expect("a writable file");
            writeln!(file, "SKIP: expressions of the dashboard: promtool is not installed (prometheus)").expect("room");
        }
        return;
    };
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    // The check can fail.
    let broken = check(&rules.replacen("sum(", "sum((", 1)).expect("promtool ran before");
    assert!(!broken.status.success());
}
