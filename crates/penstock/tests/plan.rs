//! `penstock plan` on the real binary: what it prints, and what it says to nonsense.

use std::process::{Command, Output, Stdio};

fn plan(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_penstock"));
    command.arg("plan").args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn shown(arguments: &[&str]) -> String {
    let output = plan(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty());
    String::from_utf8(output.stdout).unwrap()
}

/// What is said on standard error by a run that fails.
fn refused(arguments: &[&str]) -> String {
    let output = plan(arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("penstock: plan: ") && !said.contains("panicked"), "{said}");
    said
}

#[test]
fn the_published_model_is_planned_and_its_18k_rows_are_said_not_to_derive() {
    let page = shown(&["--published"]);
    assert!(!page.contains('\x1b'), "no colours into a pipe");
    assert_eq!(page.matches('≠').count(), 2, "{page}");
    assert!(page.contains("0.0 % idle follow from 26 of 26 cores, 8 % were printed"));
    assert!(page.contains("9.6 times is 9.606: energy per TPS"));
    for constant in [
        "server-usd            11289",
        "card-usd                748",
        "months                   36 months     NOT PUBLISHED",
    ] {
        assert!(page.contains(constant), "{constant}: {page}");
    }
}

#[test]
fn every_format_says_the_same() {
    let json: serde_json::Value = serde_json::from_str(&shown(&["--published", "--json", "--level", "9K"])).unwrap();
    let native = &json["plans"][0];
    assert_eq!((native["engine"].as_str(), native["cores"].as_f64()), (Some("native"), Some(12.0)));
    let csv = shown(&["--published", "--csv", "--level", "9000"]);
    let (head, row) = (csv.lines().next().unwrap(), csv.lines().nth(1).unwrap());
    assert_eq!(head.split(',').count(), row.split(',').count());
    assert!(row.starts_with("9000,native,1,12,12,0.5385,0,"), "{row}");
    for view in ["rack", "edge", "cost", "inputs"] {
        let csv = shown(&["--published", "--csv", "--view", view]);
        let columns: std::collections::BTreeSet<usize> = csv.lines().map(|line| line.split(',').count()).collect();
        assert!(columns.len() == 1 && csv.lines().count() > 10, "{view}: {csv}");
    }
    let page = shown(&["--published", "--html", "-"]);
    assert!(page.contains("<svg") && page.ends_with("</html>\n") && !page.contains("NaN"));
}

#[test]
fn what_a_plan_writes_as_json_is_a_study_for_the_next() {
    let file = std::env::temp_dir().join(format!("penstock-plan-{}.json", std::process::id()));
    let json: serde_json::Value = serde_json::from_str(&shown(&["--native", "8:5000,12:9000", "--json"])).unwrap();
    std::fs::write(&file, json["rates"].to_string()).unwrap();
    let page = shown(&["--study", file.to_str().unwrap(), "--level", "7000"]);
    let study = json["rates"].to_string().replace("typed in", "<script>alert(1)</script>");
    std::fs::write(&file, study).unwrap();
    let html = shown(&["--study", file.to_str().unwrap(), "--html", "-"]);
    assert!(!html.contains("<script") && html.contains("&lt;script"), "a study's words are no markup");
    std::fs::remove_file(&file).unwrap();
    assert!(page.contains("Rates: typed in") && page.contains(" 10   62 %"), "{page}");
}

#[test]
fn a_cap_is_kept_and_a_card_is_not_planned_past_its_peak() {
    let page =
        shown(&["--hw", "2:9000,4:30000", "--device-peak", "30000", "--level", "24001", "--max-utilisation", "80%"]);
    assert!(page.contains("above 24,000 TPS a server"), "{page}");
    assert!(page.lines().any(|l| l.contains("24,001  hw ") && l.contains("  2      8 ")), "{page}");
}

/// A few tenths of a second say little about the machine, and enough about the arithmetic.
#[test]
fn this_machine_is_measured_and_planned_with() {
    let study: serde_json::Value = serde_json::from_str(&shown(&["--measure", "--seconds", "0.3", "--json"])).unwrap();
    let answers = study["answers"].as_array().unwrap();
    let find = |id: &str| answers.iter().find(|a| a["id"] == id).unwrap_or_else(|| panic!("{id}: {study:#}"));
    let whole = |id: &str| find(id)["whole"].as_f64().unwrap();
    assert!(answers.iter().all(|a| a["us"].as_f64().unwrap() > 1.0 && a["whole"].as_f64().unwrap() > 1.0), "{study:#}");
    // An RSA-2048 signature is most of a handshake on every machine there is.
    assert!(whole("ecdsa") > whole("now") && whole("resumption") > whole("now"), "{study:#}");
    assert!(find("quickassist")["note"].as_str().unwrap().contains("no card was measured"));
    assert_eq!(find("now")["basis"], "measured here");
    let plan = shown(&["--measure", "--seconds", "0.3", "--tls", "1.2", "--level", "100"]);
    assert!(
        plan.contains("handshakes a second is what this machine can do") && plan.contains("\nRates: measured on "),
        "{plan}"
    );
}

/// On a processor without IFMA nothing is measured in lanes, and whose ratios are used is said.
#[test]
fn without_ifma_the_gain_is_said_to_be_another_machines() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_penstock"));
    command.args(["plan", "--measure", "--seconds", "0.2", "--json"]).env("PENSTOCK_LANES", "portable");
    let output = command.stdin(Stdio::null()).output().unwrap();
    let study: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(study["sign"]["lanes8"].is_null(), "{study:#}");
    let lanes = study["answers"].as_array().unwrap().iter().find(|a| a["id"] == "ifma").unwrap();
    assert_eq!(lanes["basis"], "computed with ratios from another machine");
    assert!(lanes["what"].as_str().unwrap().contains("on a processor with AVX-512 IFMA"));
}

#[test]
fn an_operators_certificate_is_measured_or_said_to_be_unusable() {
    let directory = std::env::temp_dir().join(format!("penstock-measure-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = |name: &str| directory.join(name).to_str().unwrap().to_owned();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(path("crt"), made.cert.pem()).unwrap();
    std::fs::write(path("key"), made.signing_key.serialize_pem()).unwrap();
    let page = shown(&["--measure", "--seconds", "0.2", "--crt", &path("crt"), "--key", &path("key")]);
    assert!(page.contains("certificate ECDSA P-256") && !page.contains("with an ECDSA"), "{page}");
    let refusals = [
        (vec!["--crt", "/nonexistent.pem"], "cannot read /nonexistent.pem"),
        (vec!["--crt", "/dev/null"], "/dev/null holds no certificate"),
        (vec!["--key", "/dev/null"], "--key needs --crt"),
        (vec!["--seconds", "0"], "--seconds cannot be '0'"),
        (vec!["--seconds", "NaN"], "--seconds cannot be 'NaN'"),
        (vec!["--seconds", "-1"], "--seconds cannot be '-1'"),
        (vec!["--tls", "1.1"], "--tls cannot be '1.1'"),
        (vec!["--resumption", "120%"], "resumption cannot be"),
        (vec!["--resumption", "x"], "--resumption cannot be 'x'"),
        (vec!["--cards", "0"], "cards cannot be '0'"),
        (vec!["--published"], "--measure finds the rates itself"),
    ];
    for (more, said) in refusals {
        let all = refused(&[&["--measure"], &more[..]].concat());
        assert!(all.contains(said), "{more:?}: {all}");
    }
    let without = refused(&["--measure", "--crt", &path("crt")]);
    assert!(without.contains("holds no private key"), "{without}");
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(path("other"), other.signing_key.serialize_pem()).unwrap();
    let foreign = refused(&["--measure", "--seconds", "0.2", "--crt", &path("crt"), "--key", &path("other")]);
    assert!(foreign.contains("certificate cannot be used"), "{foreign}");
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn nonsense_is_answered_in_a_sentence() {
    for (arguments, said) in [
        (&[][..], "there are no rates"),
        (&["--published", "--level", "0"], "--level cannot be '0'"),
        (&["--published", "--level", "-5"], "--level cannot be '-5'"),
        (&["--published", "--level", "NaN"], "--level cannot be 'NaN'"),
        (&["--published", "--level", "1e30"], "--level cannot be '1e30'"),
        (&["--published", "--level", "1e9", "--cores-per-server", "1"], "one server reaches"),
        (&["--published", "--pue", "0.5"], "pue cannot be '0.5': expected a number from 1 to 10"),
        (&["--published", "--months", "0"], "months cannot be '0'"),
        (&["--published", "--server-usd", "NaN"], "server-usd cannot be 'NaN'"),
        (&["--published", "--max-utilisation", "120%"], "max-utilisation cannot be '120%'"),
        (&["--published", "--native", "5"], "--published brings its own rates"),
        (&["--native", "-1600"], "the rate of native cannot be '-1600'"),
        (&["--native", "8:5000,4:9000"], "cores and rates must rise"),
        (&["--hw", "100", "--device-peak", "50"], "above the peak of 50"),
        (&["--native", "1", "--device-peak", "5"], "--device-peak needs the rates of --hw"),
        (&["--study", "/nonexistent.json"], "cannot read the study /nonexistent.json"),
        (&["--study", "/dev/null"], "it is not JSON"),
        (&["--published", "--view", "moon"], "unknown view 'moon'"),
        (&["--published", "--csv", "--view", "all"], "--csv writes one table"),
        (&["--publish"], "unknown option '--publish'"),
        (&["--level"], "--level needs <TPS>"),
        (&["now"], "'now' is not understood"),
        (&["--published", "--html", "/nonexistent/page.html"], "cannot write /nonexistent/page.html"),
    ] {
        let all = refused(arguments);
        assert!(all.contains(said), "{arguments:?}: {all}");
    }
}
