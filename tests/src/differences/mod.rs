//! A machine that looks for differences. It makes cases from the rows of the tables (rules, fetches, converters,
//! keywords), requests and answers, runs many at a time through HAProxy and penstock, makes what differs small, and
//! writes it down as a scenario. All of it follows from a seed.

mod case;
pub mod dice;
mod generate;
mod grammar;
mod judge;
mod known;
mod lines;
mod search;
mod shrink;
mod speech;
mod traffic;

use std::path::Path;
use std::time::{Duration, Instant};

use search::{Search, search};

use crate::Failure;
use crate::process::Subject;

/// The HAProxy that is compared with: 2.6, unless PENSTOCK_REFERENCE is `3.0`.
pub fn reference() -> Subject {
    match std::env::var("PENSTOCK_REFERENCE") {
        Ok(version) if version == "3.0" => Subject::Haproxy30,
        _ => Subject::Haproxy,
    }
}

/// The search as a test of its own. The exit code.
pub fn main(tests: &Path) -> i32 {
    let started = Instant::now();
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let skip = |why: &str| {
        println!(
            "\nrunning 1 test\ntest differences ... ignored, {why}\n\ntest result: ok. 0 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n"
        );
        0
    };
    if std::env::args().any(|a| a == "--list") {
        println!("differences: test");
        return 0;
    }
    if !reference().is_reference() {
        return skip("the haproxy to compare with is not there, or of another version");
    }
    if Subject::Penstock.program().is_none() {
        return skip("the penstock binary is not built");
    }
    println!("\nrunning 2 tests");
    let mut failures = Vec::new();
    let planted = "a_planted_difference_is_found_and_made_small";
    match plant::is_found(tests) {
        Ok(()) => println!("test {planted} ... ok"),
        Err(failure) => {
            println!("test {planted} ... FAILED");
            failures.push(failure);
        }
    }
    let seconds = number("PENSTOCK_SECONDS");
    let settings = Search {
        seed: number("PENSTOCK_SEED").unwrap_or(SEED),
        time: Duration::from_secs(seconds.unwrap_or(MINUTE)),
        batches: number("PENSTOCK_BATCHES").unwrap_or(if seconds.is_none() { BATCHES } else { u64::MAX }),
        jobs: number("PENSTOCK_JOBS").unwrap_or(4) as usize,
        refusals: number("PENSTOCK_REFUSALS").is_some_and(|n| n > 0),
        enough: number("PENSTOCK_ENOUGH").unwrap_or(10) as usize,
        folder: tests.join("../target/differences"),
    };
    println!("seed {}, {} s", settings.seed, settings.time.as_secs());
    match search(tests, &settings) {
        Ok(found) if found.differences.is_empty() => {
            print_passing(&found.passing);
            println!("test differences ... ok, {} cases", found.cases);
        }
        Ok(found) => {
            print_passing(&found.passing);
            println!("test differences ... FAILED");
            let paths = found.differences.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
            failures.push(format!("in {} cases {} differences:\n{}", found.cases, paths.len(), paths.join("\n")));
        }
        Err(failure) => {
            println!("test differences ... FAILED");
            failures.push(failure);
        }
    }
    conclude(&failures, 2, started)
}

/// Cases that differed, but not each time they were tried alone. They are reported, and do not fail the test.
fn print_passing(passing: &[String]) {
    for what in passing {
        println!("differed, and not each time alone: {what}");
    }
}

/// The last lines of a test's output, as cargo's own harness writes them. The exit code.
fn conclude(failures: &[Failure], ran: usize, started: Instant) -> i32 {
    for failure in failures {
        println!("\n{failure}");
    }
    let failed = failures.len().min(ran);
    println!(
        "\ntest result: {}. {} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out; finished in {:.2}s\n",
        if failed == 0 { "ok" } else { "FAILED" },
        ran - failed,
        started.elapsed().as_secs_f32()
    );
    i32::from(failed > 0)
}

/// The seed that the search uses by default: the same in every run, so that a failure is caused by a change.
const SEED: u64 = 18;

/// Seconds after which a search of which nothing was said begins no new batch.
const MINUTE: u64 = 60;

/// How many batches such a search looks at, so that all machines look at the same.
const BATCHES: u64 = 12;

/// A difference that is known to be there, because the suite puts it there.
mod plant {
    use std::path::Path;

    use super::generate;
    use super::judge::{Judge, Verdict};
    use super::known::Known;
    use super::search::{behaviour, shape, smallest};
    use crate::Failure;

    const RULE: &str = "http-response set-header x-1 ";

    /// Only penstock is configured to name a header differently.
    fn alter(text: &str) -> String {
        text.replace(RULE, "http-response set-header x-planted ")
    }

    /// It must be found, and its scenario must have little else in it.
    pub fn is_found(tests: &Path) -> Result<(), Failure> {
        let judge = Judge::new(Known::read(&tests.join("DIFFERENCES.md"))?, Some(alter))?;
        let all = (0..40).flat_map(|number| generate::batch(1, number));
        let cases: Vec<_> = all
            .filter(|c| c.lines.iter().any(|(_, l)| l.starts_with(RULE)))
            .filter(|c| c.blocks.iter().any(|b| b.head.starts_with("request")))
            // As many as chance needs: the rule has to run for a response that is like HAProxy's otherwise.
            .take(24)
            .collect();
        let of = shape("+ < x-planted: ");
        let seen = |lines: &[String]| lines.iter().any(|l| shape(l) == of);
        let judged = judge.judge(&cases);
        let found = judged.iter().filter(|j| matches!(&j.verdict, Verdict::Differs(lines) if seen(lines)));
        // The smallest of them, since each look at a large one, which may wait for timeouts, takes seconds.
        let Some(found) = found.min_by_key(|j| j.case.lines.len() + j.case.blocks.len()) else {
            return Err(format!("a planted difference was not found in {} cases", cases.len()));
        };
        let Some((small, _)) = behaviour(&judge, &smallest(&judge, &found.case, &of), "Planted.") else {
            return Err("a planted difference came and went".to_owned());
        };
        let rules = small.lines().filter(|l| l.starts_with("    http-")).count();
        let steps = ["[request", "[curl", "[tcp"].iter().map(|kind| small.matches(kind).count()).sum::<usize>();
        if !small.contains(RULE) || rules != 1 || steps != 1 {
            return Err(format!("a planted difference was found, but not made small:\n{small}"));
        }
        Ok(())
    }
}
