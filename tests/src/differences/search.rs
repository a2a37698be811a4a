//! The search itself: batches until the time is over, what differs once more alone, and then made small.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::case::{self, Case};
use super::judge::{self, Judge, Judged, Seen, Verdict};
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

/// How often a case is tried alone, one after the other. In all runs the same line must differ.
const CONFIRMATIONS: usize = 3;

/// How often it is then tried at the same time, so that what depends on who is faster shows itself.
const CROWD: usize = 4;

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
                match again(self.judge, &judged.case).first() {
                    Some(line) => self.found.push((number, Find::Behaviour(judged.case.clone(), shape(line)))),
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
                        let less = match &find {
                            Find::Behaviour(case, of) => smallest(self.judge, case, of),
                            Find::Refusal(case, judged) => smallest_refused(self.judge, case, judged),
                        };
                        small.lock().expect("no holder of this lock panics").push((number, find, less));
                    }
                });
            }
        });
        let mut passing = self.passing;
        let mut differences = BTreeMap::new();
        for (number, find, less) in small.into_inner().expect("no holder of this lock panics") {
            let about = format!("Found by the search from seed {}, batch {number}.", self.search.seed);
            let report = match &find {
                // What differs only among others is handed over as it was.
                Find::Behaviour(case, _) => {
                    [&less, case].into_iter().find_map(|case| behaviour(self.judge, case, &about))
                }
                Find::Refusal(..) => acceptance(self.judge, &less, &about),
            };
            match report {
                Some((scenario, what)) => _ = differences.insert(scenario, what),
                None => passing.push(format!("batch {number}: nothing once it was made small")),
            }
        }
        (passing, differences)
    }
}

/// Tries a case again, and nothing else at the time. The lines that differ whichever run of HAProxy's is compared with
/// whichever of ours: where HAProxy answers now this and now that, a race decides, and nothing is to be found.
fn again(judge: &Judge, case: &Case) -> Vec<String> {
    let Some(case) = judge.unexplained(case) else { return Vec::new() };
    let mut seen = Vec::new();
    for _ in 0..CONFIRMATIONS {
        seen.push(judge.observe(&[&case]));
        if common(judge, &case, &seen).is_empty() {
            return Vec::new();
        }
    }
    seen.extend(std::thread::scope(|scope| {
        let running: Vec<_> = (0..CROWD).map(|_| scope.spawn(|| judge.observe(&[&case]))).collect();
        running.into_iter().map(|r| r.join().expect("the judge does not panic")).collect::<Vec<_>>()
    }));
    let lines = common(judge, &case, &seen);
    if shows() {
        println!("{}\n~~\n{}\n", judge::text_of(&case), lines.join("\n"));
    }
    lines
}

/// The lines that differ between each run of HAProxy's and each of ours.
fn common(judge: &Judge, case: &Case, seen: &[Seen]) -> Vec<String> {
    let pairs = seen.iter().flat_map(|theirs| seen.iter().map(|ours| (&theirs.theirs, &ours.ours)));
    let mut all = pairs.map(|(theirs, ours)| differing(judge.compare(case, 0, theirs, ours)).unwrap_or_default());
    let first = all.next().unwrap_or_default();
    all.fold(first, |mut common, lines| {
        common.retain(|line| lines.contains(line));
        common
    })
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

/// The smallest case reached that differs in lines of this shape.
pub fn smallest(judge: &Judge, case: &Case, of: &str) -> Case {
    let differs = |verdict| differing(verdict).is_some_and(|lines| has(&lines, of));
    let holds = |cases: &[Case]| {
        let judged = judge.judge(cases).into_iter();
        judged.map(|j| differs(j.verdict).then_some(j.case)).collect()
    };
    shrink::shrink(case.clone(), &holds)
}

/// A case as a scenario, and what differs in it each time.
pub fn behaviour(judge: &Judge, case: &Case, about: &str) -> Option<(String, String)> {
    let lines = again(judge, case);
    (!lines.is_empty()).then(|| (case::scenario(about, "", &[case]).0, lines.join("\n")))
}

/// The smallest case reached with a line that penstock alone refuses.
fn smallest_refused(judge: &Judge, case: &Case, judged: &Judged) -> Case {
    let first = judged.refusals.first().map(|r| kind_of(&r.says));
    let holds = |cases: &[Case]| {
        let judged = judge.settle(cases).into_iter().zip(cases);
        let same = |judged: &Judged| judged.refusals.iter().any(|r| Some(kind_of(&r.says)) == first);
        judged.map(|(j, c)| same(&j).then(|| c.clone())).collect()
    };
    shrink::shrink(Case { blocks: Vec::new(), ..case.clone() }, &holds)
}

/// A case with a line that penstock alone refuses, as a scenario, and what it says.
fn acceptance(judge: &Judge, case: &Case, about: &str) -> Option<(String, String)> {
    let says = judge.settle(std::slice::from_ref(case)).pop()?.refusals.pop()?.says;
    Some((case::scenario(about, "fails=penstock", &[case]).0, format!("penstock alone refuses it: {says}")))
}

/// What a complaint is about, without the words it quotes.
fn kind_of(says: &str) -> String {
    says.split(['`', '\'']).step_by(2).collect()
}
