//! Runs all scenarios, several at a time, and reports like cargo's own test harness.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::Failure;
use crate::certificates::Certificates;
use crate::examples;
use crate::nginx;
use crate::probes::Probe;
use crate::process::Subject;
use crate::proofs;
use crate::run::{Transcript, carry_out};
use crate::scenario::{self, Scenario};
use crate::tables;

/// How one test came out.
enum Verdict {
    Passed,
    Skipped(String),
    Failed(Failure),
}

struct Suite {
    folder: PathBuf,
    differences: BTreeMap<String, String>,
    known_failures: BTreeMap<String, String>,
    /// The haproxys that are here, and run; for the others what was recorded serves.
    references: Vec<Subject>,
    /// Every scenario is run beside HAProxy 3.0: where does it differ from 2.6?
    newer: bool,
    /// Why penstock is not run, if it is not.
    without_penstock: Option<String>,
}

enum Test {
    Scenario(Box<Scenario>),
    Probe(Probe),
}

impl Test {
    fn name(&self) -> &str {
        match self {
            Test::Scenario(s) => &s.name,
            Test::Probe(p) => &p.name,
        }
    }
}

/// Runs every scenario below `folder/scenarios` and every probe, filtered by the command line's words. The exit code.
pub fn main(folder: &Path, probes: Vec<Probe>) -> i32 {
    let started = Instant::now();
    if let Some(code) = proofs_alone(folder) {
        return code;
    }
    let (suite, tests) = match prepare(folder, probes) {
        Ok(ready) => ready,
        Err(failure) => {
            eprintln!("{failure}");
            return 2;
        }
    };
    let filters: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let exact = std::env::args().any(|a| a == "--exact");
    let wanted = |name: &str| {
        filters.is_empty() || filters.iter().any(|f| if exact { name == f } else { name.contains(f.as_str()) })
    };
    let chosen: Vec<&Test> = tests.iter().filter(|t| wanted(t.name())).collect();
    if std::env::args().any(|a| a == "--list") {
        chosen.iter().for_each(|t| println!("{}: test", t.name()));
        return 0;
    }
    let chosen_names: Vec<&str> = chosen.iter().map(|t| t.name()).collect();
    println!("\nrunning {} tests", chosen.len());
    let Outcomes { passed, failures, skipped, .. } = run_all(&suite, &chosen);
    nginx::stop();
    Certificates::clean_up();

    if std::env::var("PENSTOCK_TESTS").is_ok_and(|v| v == "update")
        && let Err(failure) = tables::write_known_failures(&folder.join("KNOWN_FAILURES.md"), &failures, &chosen_names)
    {
        eprintln!("{failure}");
    }
    if !failures.is_empty() {
        println!("\nfailures:");
        for (name, failure) in &failures {
            println!("\n---- {name} ----\n{failure}");
        }
        println!("\nfailures:");
        failures.iter().for_each(|(name, _)| println!("    {name}"));
    }
    let word = if failures.is_empty() { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {word}. {passed} passed; {} failed; 0 ignored; 0 measured; {} filtered out; finished in {:.2}s\n",
        failures.len(),
        tests.len() - chosen.len(),
        started.elapsed().as_secs_f32()
    );
    report_skips(&skipped);
    i32::from(!failures.is_empty())
}

/// With `PENSTOCK_TESTS=mutate` or `prove` nothing is compared with HAProxy: words are taken out of scenarios.
fn proofs_alone(folder: &Path) -> Option<i32> {
    let words: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let found = match std::env::var("PENSTOCK_TESTS").ok()?.as_str() {
        "mutate" => proofs::verify(folder, &words),
        "prove" => proofs::search(folder, &words),
        _ => return None,
    };
    nginx::stop();
    Certificates::clean_up();
    match found {
        Ok(0) => Some(0),
        Ok(wrong) => {
            println!("{wrong} rows are not shown to do what they claim");
            Some(1)
        }
        Err(failure) => {
            eprintln!("{failure}");
            Some(2)
        }
    }
}

fn prepare(folder: &Path, probes: Vec<Probe>) -> Result<(Suite, Vec<Test>), Failure> {
    let mut scenarios = scenario::load_all(&folder.join("scenarios"))?;
    scenarios.extend(examples::load_all(&folder.join("../examples"))?);
    let mut tests: Vec<Test> = scenarios.into_iter().map(|s| Test::Scenario(Box::new(s))).collect();
    tests.extend(probes.into_iter().map(Test::Probe));
    let suite = Suite {
        folder: folder.to_owned(),
        differences: tables::read(&folder.join("DIFFERENCES.md"))?,
        known_failures: tables::read(&folder.join("KNOWN_FAILURES.md"))?,
        references: references(),
        newer: std::env::var("PENSTOCK_TESTS").is_ok_and(|v| v == "newer"),
        without_penstock: why_without_penstock()?,
    };
    for name in suite.differences.keys().chain(suite.known_failures.keys()) {
        if !tests.iter().any(|t| t.name() == name) {
            return Err(format!("`{name}` is listed as a difference or a known failure, but there is no such test"));
        }
    }
    Ok((suite, tests))
}

/// The HAProxys of the branches that scenarios describe, Debian 12's and 13's, as far as they are here.
fn references() -> Vec<Subject> {
    let mut here = vec![Subject::Haproxy, Subject::Haproxy30];
    let replayed = std::env::var("PENSTOCK_TESTS").is_ok_and(|v| v == "replay");
    here.retain(|subject| !replayed && subject.is_reference());
    here
}

/// Why penstock is not run, if that was asked for. A binary that is missing or stale is an error: the run would say nothing of the tree.
fn why_without_penstock() -> Result<Option<String>, Failure> {
    if std::env::var("PENSTOCK_TESTS").is_ok_and(|v| ["haproxy", "record", "newer"].contains(&v.as_str())) {
        return Ok(Some("PENSTOCK_TESTS asks for haproxy alone".to_owned()));
    }
    let Some(program) = Subject::Penstock.program() else {
        return Err(
            "there is no penstock binary: run `cargo build --workspace`, or name one in PENSTOCK_BIN".to_owned()
        );
    };
    let output = std::process::Command::new(program).arg("-v").output();
    if !output.is_ok_and(|o| o.status.success() && !o.stdout.is_empty()) {
        return Err(format!("{} does not run", program.display()));
    }
    if std::env::var_os("PENSTOCK_BIN").is_none()
        && let Some(source) = newer_source(program)
    {
        return Err(format!("the penstock binary is older than {}: run `cargo build --workspace`", source.display()));
    }
    Ok(None)
}

/// A source file of the crates that was changed after the program was built.
fn newer_source(program: &Path) -> Option<PathBuf> {
    let modified = |path: &Path| path.metadata().and_then(|m| m.modified()).ok();
    let built = modified(program)?;
    let mut folders: Vec<PathBuf> =
        std::fs::read_dir("../crates").ok()?.flatten().map(|e| e.path().join("src")).collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") && modified(&path) > Some(built) {
                return Some(path);
            }
        }
    }
    None
}

/// How often a test is tried while others run beside it, and how often on its own after that. A machine under load
/// delays a datagram or a timer; what is wrong each time is wrong.
const ATTEMPTS: usize = 2;

/// A test that takes longer is named with its time: the whole suite must stay short.
const SLOW_S: u64 = 5;

/// How the tests came out.
#[derive(Default)]
struct Outcomes {
    passed: usize,
    failures: Vec<(String, Failure)>,
    skipped: Vec<String>,
    /// Those that failed while others ran beside them.
    again: Vec<(usize, Failure)>,
}

impl Outcomes {
    fn keep(&mut self, name: &str, verdict: Verdict, began: Instant) {
        let word = match verdict {
            Verdict::Passed => {
                self.passed += 1;
                "ok".to_owned()
            }
            Verdict::Skipped(reason) => {
                let word = format!("ignored, {reason}");
                self.skipped.push(reason);
                word
            }
            Verdict::Failed(failure) => {
                self.failures.push((name.to_owned(), failure));
                "FAILED".to_owned()
            }
        };
        println!("test {name} ... {word}");
        if began.elapsed().as_secs() >= SLOW_S {
            println!("    {name} took {:.1} s", began.elapsed().as_secs_f32());
        }
    }
}

/// Runs the tests several at a time, and those that fail once more on their own.
fn run_all(suite: &Suite, tests: &[&Test]) -> Outcomes {
    // Scenarios mostly wait for processes to start and timers to run out, hence more of them than cores.
    let jobs = std::env::var("PENSTOCK_JOBS").ok().and_then(|j| j.parse().ok()).unwrap_or(6);
    let next = AtomicUsize::new(0);
    let outcomes: Mutex<Outcomes> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(test) = tests.get(at) else { return };
                    let began = Instant::now();
                    let verdict = suite.judge(test);
                    let mut outcomes = outcomes.lock().expect("no holder of this lock panics");
                    match verdict {
                        Verdict::Failed(failure) => outcomes.again.push((at, failure)),
                        verdict => outcomes.keep(test.name(), verdict, began),
                    }
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner().expect("no holder of this lock panics");
    for (at, first) in std::mem::take(&mut outcomes.again) {
        let (test, began) = (tests[at], Instant::now());
        let verdict = suite.judge(test);
        if !matches!(verdict, Verdict::Failed(_)) {
            println!("    {} failed beside others, and came right on its own: {first}", test.name());
        }
        outcomes.keep(test.name(), verdict, began);
    }
    outcomes
}

impl Suite {
    fn judge(&self, test: &Test) -> Verdict {
        let name = test.name();
        let updating = std::env::var("PENSTOCK_TESTS").is_ok_and(|v| v == "update");
        let known = self.known_failures.get(name).filter(|_| !updating && self.without_penstock.is_none());
        let mut outcome = self.attempt(test);
        for _ in 1..ATTEMPTS {
            if outcome.is_err() && known.is_none() {
                outcome = self.attempt(test);
            }
        }
        match (outcome, known) {
            (Ok(Some(reason)), _) => Verdict::Skipped(reason),
            (Ok(None), None) => Verdict::Passed,
            (Ok(None), Some(_)) if std::env::var_os("PENSTOCK_STRICT").is_some() => {
                Verdict::Failed("it passes: take it off KNOWN_FAILURES.md".to_owned())
            }
            // Some fail only now and then: one good run is no proof, and a run that was good must not fail for it.
            (Ok(None), Some(_)) => {
                println!("    {name} passes: is it still one for KNOWN_FAILURES.md?");
                Verdict::Passed
            }
            (Err(Wrong::Reference(failure)), _) => Verdict::Failed(format!("haproxy: {failure}")),
            (Err(Wrong::Ours(failure)), None) => Verdict::Failed(failure),
            (Err(Wrong::Ours(_)), Some(reason)) => Verdict::Skipped(format!("{name} is known to fail: {reason}")),
        }
    }

    /// `Ok(Some(reason))` when there was nothing to compare.
    fn attempt(&self, test: &Test) -> Result<Option<String>, Wrong> {
        match test {
            Test::Probe(probe) => match &self.without_penstock {
                Some(reason) => Ok(Some(reason.clone())),
                None => (probe.run)().map(|()| None).map_err(Wrong::Ours),
            },
            Test::Scenario(scenario) => self.compare(scenario),
        }
    }

    fn compare(&self, scenario: &Scenario) -> Result<Option<String>, Wrong> {
        let recorded = self.folder.join("recorded").join(format!("{}.txt", scenario.name));
        if self.newer {
            return self.beside_the_newer(scenario, &recorded);
        }
        let reference = if self.references.contains(&scenario.reference()) {
            let transcript = carry_out(scenario, scenario.reference(), None).map_err(Wrong::Reference)?;
            if std::env::var("PENSTOCK_TESTS").is_ok_and(|v| v == "record") {
                record(&recorded, &transcript).map_err(Wrong::Reference)?;
            }
            transcript
        } else {
            replay(&recorded).map_err(Wrong::Reference)?
        };
        if std::env::var_os("PENSTOCK_SHOW").is_some() {
            println!("==== {}\n{}", scenario.name, reference.lines.join("\n"));
        }
        if self.without_penstock.is_some() {
            return Ok(None);
        }
        let differs = self.differences.get(&scenario.name);
        let logs = differs.is_none().then_some(reference.log_count);
        let ours = carry_out(scenario, Subject::Penstock, logs).map_err(Wrong::Ours)?;
        match (reference.lines == ours.lines, differs) {
            (true, None) | (false, Some(_)) => Ok(None),
            (true, Some(_)) => Err(Wrong::Ours("it does as haproxy does: take it off DIFFERENCES.md".to_owned())),
            (false, None) => Err(Wrong::Ours(difference(["haproxy", "penstock"], &reference.lines, &ours.lines))),
        }
    }

    /// Whether HAProxy 3.0 does what was recorded from 2.6, or what DIFFERENCES.md says of the two.
    fn beside_the_newer(&self, scenario: &Scenario, recorded: &Path) -> Result<Option<String>, Wrong> {
        if scenario.reference() == Subject::Haproxy30 {
            return Ok(Some(format!("{} states what HAProxy 3.0 does", scenario.name)));
        }
        let older = replay(recorded).map_err(Wrong::Reference)?;
        let logs = Some(older.log_count);
        let newer = carry_out(scenario, Subject::Haproxy30, logs).map_err(Wrong::Reference)?;
        match older.lines == newer.lines {
            true => Ok(None),
            false => Err(Wrong::Reference(difference(["2.6", "3.0"], &older.lines, &newer.lines))),
        }
    }
}

/// Whose failure it is.
enum Wrong {
    /// HAProxy does not do what the scenario states: the scenario is wrong.
    Reference(Failure),
    /// Penstock differs.
    Ours(Failure),
}

/// The two transcripts' differing lines, `-` for the first and `+` for the second, with the lines around them.
fn difference([first, second]: [&str; 2], reference: &[String], ours: &[String]) -> String {
    let common = |a: &[String], b: &[String]| a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let head = common(reference, ours);
    let (left, right) = (&reference[head..], &ours[head..]);
    let tail = left.iter().rev().zip(right.iter().rev()).take_while(|(x, y)| x == y).count();
    let mut lines: Vec<String> = reference[head.saturating_sub(4)..head].iter().map(|l| format!("  {l}")).collect();
    lines.extend(left[..left.len() - tail].iter().map(|l| format!("- {l}")));
    lines.extend(right[..right.len() - tail].iter().map(|l| format!("+ {l}")));
    lines.extend(left[left.len() - tail..].iter().take(2).map(|l| format!("  {l}")));
    format!("{first} (-) and {second} (+) differ:\n{}", lines.join("\n"))
}

fn record(path: &Path, transcript: &Transcript) -> Result<(), Failure> {
    let parent = path.parent().expect("a recording lies in a folder");
    std::fs::create_dir_all(parent)
        .and_then(|()| std::fs::write(path, transcript.lines.join("\n") + "\n"))
        .map_err(|e| format!("{}: {e}", path.display()))
}

fn replay(path: &Path) -> Result<Transcript, Failure> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let log_count = lines.iter().skip_while(|l| *l != "[log]").skip(1).take_while(|l| !l.starts_with('[')).count();
    Ok(Transcript { lines, log_count, ended: None })
}

/// `make test` collects these lines and shows them at its end.
fn report_skips(skipped: &[String]) {
    let Ok(path) = std::env::var("PENSTOCK_SKIPS") else { return };
    let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(path) else { return };
    for reason in skipped {
        let _ = writeln!(file, "SKIP: {reason}");
    }
}
