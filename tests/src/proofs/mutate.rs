//! Takes each row's word out of the scenario that is to prove it: what penstock does must then be something else.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::mutation::mutants;
use super::rows::{Kind, Row, all};
use super::table::{How, Proof, check, in_test, is_measured, occurs, read, write};
use crate::Failure;
use crate::process::Subject;
use crate::run::{Transcript, carry_out};
use crate::scenario::{self, Scenario};

/// How a scenario went without the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Same,
    Refused,
    Changed,
}

/// The scenarios, and what penstock does in each as it stands.
struct Bench {
    root: PathBuf,
    scenarios: Vec<Scenario>,
    bases: Mutex<HashMap<String, Option<Arc<Transcript>>>>,
}

/// Tries every row of the table whose name has one of the words. How many are not as the table says.
pub fn verify(folder: &Path, words: &[String]) -> Result<usize, Failure> {
    let bench = Bench::new(folder)?;
    let proofs = read(&folder.join("proofs.tsv"))?;
    let rows: Vec<(Row, &Proof)> = all()
        .into_iter()
        .filter(|row| row.kind != Kind::Metric && wanted(row, words))
        .filter_map(|row| Some((row, proofs.get(&key(&row)).filter(|p| p.is_scenario())?)))
        .collect();
    let wrong = AtomicUsize::new(0);
    in_parallel(&rows, |(row, proof)| {
        let verdict = bench.judge(row, proof);
        match verdict {
            Ok(()) => println!("{} `{}` in {} ... ok", row.table(), row.name, proof.test),
            Err(why) => {
                wrong.fetch_add(1, Ordering::Relaxed);
                println!("{} `{}` in {} ... FAILED: {why}", row.table(), row.name, proof.test);
            }
        }
    });
    Ok(wrong.into_inner())
}

/// Looks for a scenario that proves each row of which the table says nothing, or nothing true, and writes them into it.
/// How many have none.
pub fn search(folder: &Path, words: &[String]) -> Result<usize, Failure> {
    let bench = Bench::new(folder)?;
    let path = folder.join("proofs.tsv");
    let proofs = Mutex::new(if path.exists() { read(&path)? } else { BTreeMap::new() });
    let root = folder.parent().ok_or("the tests lie in the project's folder")?;
    let rows: Vec<Row> = all().into_iter().filter(|row| wanted(row, words)).collect();
    let missing = AtomicUsize::new(0);
    in_parallel(&rows, |row| {
        let known = proofs.lock().expect("no holder panics").get(&key(row)).cloned();
        let stands = |proof: &Proof| {
            let one = BTreeMap::from([(key(row), proof.clone())]);
            proof.test != "-" && check(root, &[*row], &one, &bench.scenarios).is_empty()
        };
        if known.is_some_and(|proof| stands(&proof)) {
            return;
        }
        let beside = || BESIDE_HAPROXY.iter().find(|test| in_test(root, row, test) == Some(true));
        let found = bench.find(row).or_else(|| Some(Proof { test: (*beside()?).to_owned(), how: How::Changes }));
        let mut proofs = proofs.lock().expect("no holder panics");
        match found {
            Some(proof) => {
                println!("{} `{}` is shown by {} {:?}", row.table(), row.name, proof.test, proof.how);
                proofs.insert(key(row), proof);
            }
            None => {
                missing.fetch_add(1, Ordering::Relaxed);
                let in_vain = bench.scenarios.iter().filter(|s| occurs(row, s)).map(|s| s.name.as_str());
                let in_vain: Vec<&str> = in_vain.collect();
                println!("{} `{}` is shown by nothing; it occurs in {}", row.table(), row.name, in_vain.join(", "));
                proofs.remove(&key(row));
            }
        }
        if let Err(failure) = write(&path, &proofs) {
            eprintln!("{failure}");
        }
    });
    Ok(missing.into_inner())
}

fn key(row: &Row) -> (String, String) {
    (row.table().to_owned(), row.name.to_owned())
}

fn wanted(row: &Row, words: &[String]) -> bool {
    let name = format!("{} {}", row.table(), row.name);
    words.is_empty() || words.iter().any(|w| name.contains(w.as_str()))
}

fn in_parallel<T: Sync>(list: &[T], work: impl Fn(&T) + Sync) {
    let jobs = std::env::var("PENSTOCK_JOBS").ok().and_then(|j| j.parse().ok()).unwrap_or(6);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(item) = list.get(next.fetch_add(1, Ordering::Relaxed)) {
                    work(item);
                }
            });
        }
    });
}

/// Tests that compare with HAProxy without a scenario.
const BESIDE_HAPROXY: &[&str] = &[
    "crates/rules/tests/haproxy.rs",
    "crates/rules/tests/haproxy_actions.rs",
    "crates/rules/tests/tables/fetches",
    "crates/rules/tests/tables/converters",
    "crates/rules/tests/tables/formats",
];

/// How many scenarios are tried for one row before it counts as proved by none.
const TRIES: usize = 10;

impl Bench {
    fn new(folder: &Path) -> Result<Self, Failure> {
        let root = folder.parent().ok_or("the tests lie in the project's folder")?.to_owned();
        Ok(Self { root, scenarios: scenario::load_all(&folder.join("scenarios"))?, bases: Mutex::default() })
    }

    /// What penstock does in a scenario as it stands; nothing where that differs from run to run.
    fn base(&self, scenario: &Scenario) -> Option<Arc<Transcript>> {
        if let Some(known) = self.bases.lock().expect("no holder panics").get(&scenario.name) {
            return known.clone();
        }
        let run = |logs| carry_out(scenario, Subject::Penstock, logs).ok();
        // How many log lines there are is known only after a run: the first may have missed one.
        let first = run(None);
        let second = first.as_ref().and_then(|f| run(Some(f.log_count)));
        let base = match (first, second) {
            (Some(first), Some(second)) if first.lines == second.lines => Some(second),
            (_, Some(second)) => run(Some(second.log_count)).filter(|third| third.lines == second.lines),
            (first, None) => first.filter(|f| run(Some(f.log_count)).is_some_and(|again| again.lines == f.lines)),
        }
        .map(Arc::new);
        if base.is_none() {
            println!("{} does not end alike twice", scenario.name);
        }
        self.bases.lock().expect("no holder panics").entry(scenario.name.clone()).or_insert(base).clone()
    }

    fn outcome(scenario: &Scenario, base: &Transcript) -> Outcome {
        match carry_out(scenario, Subject::Penstock, Some(base.log_count)) {
            Ok(transcript) if transcript.lines == base.lines => Outcome::Same,
            Err(why) if why.starts_with("it ended at once") || why.starts_with("it does not listen") => {
                Outcome::Refused
            }
            _ => Outcome::Changed,
        }
    }

    /// The furthest that taking the row's word out of a scenario brings.
    fn best(&self, row: &Row, scenario: &Scenario) -> Outcome {
        let Some(base) = self.base(scenario) else { return Outcome::Same };
        let mut best = Outcome::Same;
        for mutant in without(row, scenario) {
            best = best.max(Self::outcome(&mutant, &base));
            // Another value of the same type is as good as any other.
            if best == Outcome::Changed {
                break;
            }
        }
        best
    }

    fn judge(&self, row: &Row, proof: &Proof) -> Result<(), Failure> {
        let scenario = self.scenarios.iter().find(|s| s.name == proof.test).ok_or("there is no such scenario")?;
        let best = match &proof.how {
            How::Unseen(_) => return Ok(()),
            How::Replaced(from, to) => {
                let base = self.base(scenario).ok_or("it does not end alike twice")?;
                let mutant = changed(scenario, |text| text.replace(from, to));
                Self::outcome(&mutant, &base)
            }
            How::Changes | How::Refused => self.best(row, scenario),
        };
        match (best, &proof.how) {
            (Outcome::Changed, _) | (Outcome::Refused, How::Refused) => Ok(()),
            (Outcome::Refused, _) => Err("without it, the configuration does not start".to_owned()),
            (Outcome::Same, _) => Err("without it, nothing is different".to_owned()),
        }
    }

    /// The scenario that proves a row best: one that is about it, else a short one.
    fn find(&self, row: &Row) -> Option<Proof> {
        let last = row.name.rsplit(' ').next().unwrap_or_default();
        let mut candidates: Vec<&Scenario> = self.scenarios.iter().filter(|s| occurs(row, s)).collect();
        candidates.sort_by_key(|s| {
            let about = s.name.contains(last) || s.about.contains(last);
            let size: usize = s.sections.iter().map(|s| s.text.len()).sum();
            (!about, size)
        });
        if row.kind == Kind::Metric {
            let measured = |s: &&Scenario| is_measured(&self.root, row, &s.name) == Some(true);
            let scenario = self.scenarios.iter().find(measured)?;
            return Some(Proof { test: scenario.name.clone(), how: How::Changes });
        }
        let mut refused = None;
        for scenario in candidates.into_iter().take(TRIES) {
            let mut best = self.best(row, scenario);
            if best == Outcome::Changed {
                // Once more: what differs from run to run is no proof.
                best = self.best(row, scenario);
            }
            let proof = |how| Proof { test: scenario.name.clone(), how };
            match best {
                Outcome::Changed => return Some(proof(How::Changes)),
                Outcome::Refused => refused = refused.or(Some(proof(How::Refused))),
                Outcome::Same => {}
            }
        }
        refused
    }
}

/// The scenario without the row's word, in each of the ways there are.
fn without(row: &Row, scenario: &Scenario) -> Vec<Scenario> {
    let count = mutants(row, "").len();
    let all = (0..count).map(|i| changed(scenario, |text| mutants(row, text).remove(i)));
    all.collect()
}

fn changed(scenario: &Scenario, change: impl Fn(&str) -> String) -> Scenario {
    let mut scenario = scenario.clone();
    for section in scenario.sections.iter_mut().filter(|s| matches!(s.kind.as_str(), "config" | "file")) {
        section.text = change(&section.text);
    }
    scenario
}
