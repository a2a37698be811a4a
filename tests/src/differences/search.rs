//! The search itself: batches until the time is over, what differs once more alone, and then made small.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::case::{self, Case};
use super::judge::{self, Judge, Judged, Verdict};
use super::known::Known;
use super::{generate, shrink};
use crate::Failure;

/// What is looked for, and for how long.
pub struct Search {
    /// All follows from it.
    pub seed: u64,
    /// After this no new batch begins.
    pub time: Duration,
    /// How many batches are looked at, if the time allows.
    pub batches: u64,
    /// How many pairs of processes run at a time.
    pub jobs: usize,
    /// Whether a line that penstock alone refuses counts.
    pub refusals: bool,
    /// The search ends once this many differences were found.
    pub enough: usize,
}

/// What a search came to.
#[derive(Default)]
pub struct Found {
    /// Cases tried.
    pub cases: usize,
    /// What differed among others and not each time alone: printed, and no failure.
    pub passing: Vec<String>,
    /// Text of a scenario, and what differs in it.
    pub differences: BTreeMap<String, String>,
}

/// A case of which something was found.
enum Find {
    /// It differs in lines of this shape.
    Behaviour(Case, String),
    /// Penstock alone refuses one of its lines.
    Refusal(Case, Judged),
}

/// How often in a row a case must differ alone, in the same line: what a busy machine delays is no difference.
const CONFIRMATIONS: usize = 3;

/// Looks for differences: as many batches at a time as there are jobs, then what differed in them alone.
pub fn search(tests: &Path, search: &Search) -> Result<Found, Failure> {
    let judge = Judge::new(Known::read(&tests.join("DIFFERENCES.md"))?, None)?;
    let mut finds = Finds { judge: &judge, search, found: Vec::new(), passing: Vec::new() };
    let mut cases = 0;
    let end = Instant::now() + search.time;
    let mut next = 0;
    while Instant::now() < end && finds.found.len() < search.enough && next < search.batches {
        let numbers = next..(next + search.jobs as u64).min(search.batches);
        next = numbers.end;
        for (number, judged) in looked_at(&judge, search.seed, numbers) {
            cases += judged.len();
            finds.keep(judged, number);
        }
    }
    let (passing, differences) = finds.made_small();
    Ok(Found { cases, passing, differences })
}

/// Judges these batches at the same time.
fn looked_at(judge: &Judge, seed: u64, numbers: Range<u64>) -> Vec<(u64, Vec<(Case, Judged)>)> {
    let look = |number| {
        let began = Instant::now();
        let batch = generate::batch(seed, number);
        let judged = judge.judge(&batch);
        if shows() {
            let differ = judged.iter().filter(|j| matches!(j.verdict, Verdict::Differs(_))).count();
            let refused = judged.iter().filter(|j| !j.refusals.is_empty()).count();
            println!("batch {number}: {differ} differ, {refused} refused, {:.1?}", began.elapsed());
        }
        (number, batch.into_iter().zip(judged).collect())
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = numbers.map(|number| scope.spawn(move || look(number))).collect();
        running.into_iter().map(|r| r.join().expect("the judge does not panic")).collect()
    })
}

/// What was found so far.
struct Finds<'a> {
    judge: &'a Judge,
    search: &'a Search,
    /// Each with the number of its batch.
    found: Vec<(u64, Find)>,
    /// What did not differ again.
    passing: Vec<String>,
}

impl Finds<'_> {
    /// Keeps what of a batch differs again alone.
    fn keep(&mut self, judged: Vec<(Case, Judged)>, number: u64) {
        for (given, judged) in judged {
            if let Verdict::Differs(lines) = &judged.verdict {
                match again(self.judge, &judged.case) {
                    Some(line) => self.found.push((number, Find::Behaviour(judged.case.clone(), shape(&line)))),
                    None => self.passing.push(format!("batch {number}: {}", lines.join("\n    "))),
                }
            }
            if self.search.refusals && !judged.refusals.is_empty() {
                self.found.push((number, Find::Refusal(given, judged)));
            }
        }
    }

    /// What passed, and all finds as scenarios, with what differs in each. What was made small by several at a time is
    /// tried again alone, so that the machine's load is not taken for a difference.
    fn made_small(self) -> (Vec<String>, BTreeMap<String, String>) {
        let left = Mutex::new(self.found);
        let small = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..self.search.jobs {
                scope.spawn(|| {
                    loop {
                        let taken = left.lock().expect("no holder of this lock panics").pop();
                        let Some((number, find)) = taken else { return };
                        let about = format!("Found by the search from seed {}, batch {number}.", self.search.seed);
                        let report = match &find {
                            Find::Behaviour(case, of) => behaviour(self.judge, case, of, &about),
                            Find::Refusal(case, judged) => acceptance(self.judge, case, judged, &about),
                        };
                        small.lock().expect("no holder of this lock panics").push((number, find, report));
                    }
                });
            }
        });
        let mut passing = self.passing;
        let mut differences = BTreeMap::new();
        for (number, find, report) in small.into_inner().expect("no holder of this lock panics") {
            let stays = match &find {
                Find::Behaviour(case, _) => again(self.judge, case).is_some(),
                Find::Refusal(..) => true,
            };
            match report {
                Some((scenario, what)) if stays => _ = differences.insert(scenario, what),
                Some((_, what)) => passing.push(format!("batch {number}: {what}")),
                None => passing.push(format!("batch {number}: nothing while it was made small")),
            }
        }
        (passing, differences)
    }
}

/// Tries a case again, and nothing else at the time. A line that differs each time.
fn again(judge: &Judge, case: &Case) -> Option<String> {
    let mut all: Vec<Vec<String>> = Vec::new();
    for _ in 0..CONFIRMATIONS {
        all.push(differing(judge.run(&[case]).pop()?)?);
    }
    let lines = all.pop()?;
    let line = lines.iter().find(|line| all.iter().all(|other| other.contains(line)))?;
    if shows() {
        println!("{}\n~~\n{}\n", judge::text_of(case), lines.join("\n"));
    }
    Some(line.clone())
}

fn shows() -> bool {
    std::env::var_os("PENSTOCK_SHOW").is_some()
}

fn differing(verdict: Verdict) -> Option<Vec<String>> {
    match verdict {
        Verdict::Differs(lines) => Some(lines),
        Verdict::Same | Verdict::Explained => None,
    }
}

/// What a line that differs is about: its side, and its words up to the first value. While a case is made small it goes
/// on differing in this, so that one difference does not hide another.
pub fn shape(line: &str) -> String {
    line.split([':', '"']).next().unwrap_or_default().chars().filter(|c| !c.is_ascii_digit()).collect()
}

fn has(lines: &[String], of: &str) -> bool {
    lines.iter().any(|l| shape(l) == of)
}

/// A case that differs in lines of this shape, as a small scenario, and what differs in it.
pub fn behaviour(judge: &Judge, case: &Case, of: &str, about: &str) -> Option<(String, String)> {
    let differs = |verdict| differing(verdict).filter(|lines| has(lines, of));
    let holds = |cases: &[Case]| {
        let judged = judge.judge(cases).into_iter();
        judged.map(|j| differs(j.verdict).map(|_| j.case)).collect()
    };
    let small = shrink::shrink(case.clone(), &holds);
    let lines = |case: &Case| differs(judge.judge(std::slice::from_ref(case)).pop()?.verdict);
    // What differs only among others is handed over as it was.
    [&small, case].into_iter().find_map(|case| Some((case::scenario(about, "", &[case]).0, lines(case)?.join("\n"))))
}

/// A line that penstock alone refuses, as a small scenario.
fn acceptance(judge: &Judge, case: &Case, judged: &Judged, about: &str) -> Option<(String, String)> {
    let first = judged.refusals.first()?.says.clone();
    let holds = |cases: &[Case]| {
        let judged = judge.settle(cases).into_iter().zip(cases);
        judged.map(|(j, c)| j.refusals.iter().any(|r| kind_of(&r.says) == kind_of(&first)).then(|| c.clone())).collect()
    };
    let mut case = case.clone();
    case.blocks.clear();
    let small = shrink::shrink(case, &holds);
    let says = judge.settle(std::slice::from_ref(&small)).pop()?.refusals.pop()?.says;
    Some((case::scenario(about, "fails=penstock", &[&small]).0, format!("penstock alone refuses it: {says}")))
}

/// What a complaint is about, without the words it quotes.
fn kind_of(says: &str) -> String {
    says.split(['`', '\'']).step_by(2).collect()
}
