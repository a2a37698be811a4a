//! The search itself: batches until the time is over, what differs once more alone, and then made small.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
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
    /// Where scenarios of what is found are written.
    pub folder: PathBuf,
}

/// What a search came to.
#[derive(Default)]
pub struct Found {
    /// Cases tried.
    pub cases: usize,
    /// What differed among others and not each time alone: printed, and no failure.
    pub passing: Vec<String>,
    /// The files of their scenarios, each printed when it was found.
    pub differences: Vec<PathBuf>,
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

/// Looks for differences: as many batches at a time as there are jobs, then what differed in them alone. What is found is
/// made small, written and printed before the next batches, so that a search that is ended has shown what it found.
pub fn search(tests: &Path, search: &Search) -> Result<Found, Failure> {
    std::fs::create_dir_all(&search.folder).map_err(|e| format!("{}: {e}", search.folder.display()))?;
    let judge = Judge::new(Known::read(&tests.join("DIFFERENCES.md"))?, None)?;
    let mut finds = Finds { judge: &judge, search, scenarios: BTreeSet::new(), found: Found::default() };
    let end = Instant::now() + search.time;
    let mut next = 0;
    while Instant::now() < end && finds.found.differences.len() < search.enough && next < search.batches {
        let numbers = next..(next + search.jobs as u64).min(search.batches);
        next = numbers.end;
        let mut round = Vec::new();
        for (number, judged) in looked_at(&judge, search.seed, numbers) {
            finds.found.cases += judged.len();
            round.extend(finds.kept(judged, number).into_iter().map(|find| (number, find)));
        }
        finds.make_small(round)?;
        println!("{} cases, {} differences", finds.found.cases, finds.found.differences.len());
    }
    Ok(finds.found)
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
    /// Two cases may become the same once they are small.
    scenarios: BTreeSet<String>,
    found: Found,
}

impl Finds<'_> {
    /// What of a batch differs again alone.
    fn kept(&mut self, judged: Vec<(Case, Judged)>, number: u64) -> Vec<Find> {
        let mut finds = Vec::new();
        for (given, judged) in judged {
            if let Verdict::Differs(lines) = &judged.verdict {
                match again(self.judge, &judged.case).first() {
                    Some(line) => finds.push(Find::Behaviour(judged.case.clone(), shape(line))),
                    None => self.found.passing.push(format!("batch {number}: {}", lines.join("\n    "))),
                }
            }
            if self.search.refusals && !judged.refusals.is_empty() {
                finds.push(Find::Refusal(given, judged));
            }
        }
        finds
    }

    /// Writes these finds as scenarios, and prints them. What was made small by several at a time is tried again alone, so
    /// that the machine's load is not taken for a difference.
    fn make_small(&mut self, finds: Vec<(u64, Find)>) -> Result<(), Failure> {
        let left = Mutex::new(finds);
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
                Some((scenario, what)) => self.keep(scenario, &what)?,
                None => self.found.passing.push(format!("batch {number}: nothing once it was made small")),
            }
        }
        Ok(())
    }

    fn keep(&mut self, scenario: String, what: &str) -> Result<(), Failure> {
        if self.scenarios.contains(&scenario) {
            return Ok(());
        }
        let path = self.search.folder.join(format!("{}-{}.scn", self.search.seed, self.scenarios.len()));
        println!("---- {}\n{scenario}\nhaproxy (-) and penstock (+):\n{what}\n", path.display());
        std::fs::write(&path, &scenario).map_err(|e| format!("{}: {e}", path.display()))?;
        self.scenarios.insert(scenario);
        self.found.differences.push(path);
        Ok(())
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
