//! CPU time of a server's processes, as the system accounts for it: theirs, their threads' and their children's.
//!
//! The sum is the scheduler's, in nanoseconds (`/proc/PID/task/*/schedstat`); what share of it was spent in the kernel is
//! from `/proc/PID/stat`, which counts clock ticks. Children that ended in between are in their parent's account; when
//! threads ended, whose scheduler's account went with them, the ticks are the sum as well.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// The processes whose CPU time is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Who {
    /// This process and all that descend from it.
    Pid(u32),
    /// All processes that have this name, and what descends from them.
    Name(String),
}

impl FromStr for Who {
    type Err = std::convert::Infallible;

    /// A number is a process, everything else a name.
    fn from_str(text: &str) -> Result<Who, Self::Err> {
        Ok(text.parse().map_or_else(|_| Who::Name(text.to_owned()), Who::Pid))
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Pid(pid) => write!(f, "process {pid}"),
            Who::Name(name) => write!(f, "'{name}'"),
        }
    }
}

/// CPU time spent between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// CPU time in programs, seconds.
    pub user_seconds: f64,
    /// CPU time in the kernel on their behalf, seconds.
    pub system_seconds: f64,
    /// Time that passed, seconds.
    pub wall_seconds: f64,
    /// Processes that were counted.
    pub processes: usize,
    /// A process ended without being counted: the cost is too low.
    pub incomplete: bool,
}

impl Cost {
    /// CPU time in programs and in the kernel.
    #[must_use]
    pub fn total(&self) -> Duration {
        Duration::from_secs_f64((self.user_seconds + self.system_seconds).max(0.0))
    }

    /// Cores in use on average.
    #[must_use]
    pub fn cores(&self) -> f64 {
        if self.wall_seconds > 0.0 { self.total().as_secs_f64() / self.wall_seconds } else { 0.0 }
    }
}

/// Reads the account of some processes twice.
#[derive(Debug)]
pub struct Meter {
    proc: PathBuf,
    who: Vec<Who>,
    began: Instant,
    first: Reading,
}

/// No process has that name, or the system does not say.
#[derive(Debug, PartialEq, Eq)]
pub struct NotFound(String);

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no process to measure: {} is not running", self.0)
    }
}

impl std::error::Error for NotFound {}

impl Meter {
    /// Takes the first reading.
    ///
    /// # Errors
    /// One of them is not running.
    pub fn start(who: &[Who]) -> Result<Meter, NotFound> {
        Meter::start_in(Path::new("/proc"), who)
    }

    fn start_in(proc: &Path, who: &[Who]) -> Result<Meter, NotFound> {
        let processes = processes(proc);
        if let Some(missing) = who.iter().find(|one| members(&processes, std::slice::from_ref(one)).is_empty()) {
            return Err(NotFound(missing.to_string()));
        }
        let first = Reading::take(proc, who);
        Ok(Meter { proc: proc.to_owned(), who: who.to_vec(), began: Instant::now(), first })
    }

    /// What was spent since [`Meter::start`]; may be asked more than once.
    #[must_use]
    pub fn read(&self) -> Cost {
        let now = Reading::take(&self.proc, &self.who);
        self.first.cost_until(&now, self.began.elapsed())
    }
}

/// A row of `/proc/PID/stat`.
#[derive(Clone, Debug, Default, PartialEq)]
struct Process {
    name: String,
    parent: u32,
    user_ticks: u64,
    system_ticks: u64,
    /// Of children that ended and were waited for.
    ended_user_ticks: u64,
    ended_system_ticks: u64,
    /// When the process began, in clock ticks since boot: another start means another process, even under the same number.
    began: u64,
}

impl Process {
    /// The name stands in parentheses and may hold anything, parentheses too.
    fn parse(stat: &str) -> Option<Process> {
        let (before, after) = stat.rsplit_once(')')?;
        let name = before.split_once('(')?.1.to_owned();
        let fields: Vec<&str> = after.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Process {
            name,
            parent: u32::try_from(field(4)?).ok()?,
            user_ticks: field(14)?,
            system_ticks: field(15)?,
            ended_user_ticks: field(16)?,
            ended_system_ticks: field(17)?,
            began: field(22)?,
        })
    }
}

fn processes(proc: &Path) -> BTreeMap<u32, Process> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers
        .filter_map(|pid| Some((pid, Process::parse(&fs::read_to_string(proc.join(format!("{pid}/stat"))).ok()?)?)))
        .collect()
}

/// The processes asked for and their descendants.
fn members(processes: &BTreeMap<u32, Process>, who: &[Who]) -> BTreeSet<u32> {
    let asked = |pid: u32, process: &Process| {
        who.iter().any(|one| match one {
            Who::Pid(wanted) => *wanted == pid,
            // The kernel keeps fifteen bytes of a name.
            Who::Name(name) => process.name == name.get(..name.len().min(15)).unwrap_or(name),
        })
    };
    let mut found: BTreeSet<u32> = processes.iter().filter(|(pid, p)| asked(**pid, p)).map(|(pid, _)| *pid).collect();
    loop {
        let children: Vec<u32> = processes
            .iter()
            .filter(|(pid, process)| found.contains(&process.parent) && !found.contains(*pid))
            .map(|(pid, _)| *pid)
            .collect();
        if children.is_empty() {
            return found;
        }
        found.extend(children);
    }
}

/// The processes of these names and numbers, and what descends from them.
pub(crate) fn processes_of(who: &[Who]) -> BTreeSet<u32> {
    members(&processes(Path::new("/proc")), who)
}

/// The state of all accounts at one moment.
#[derive(Debug, Default)]
struct Reading {
    processes: BTreeMap<(u32, u64), Process>,
    /// Nanoseconds by process and thread.
    threads: BTreeMap<(u32, u32), u64>,
}

impl Reading {
    fn take(proc: &Path, who: &[Who]) -> Reading {
        let all = processes(proc);
        let mut reading = Reading::default();
        for pid in members(&all, who) {
            for task in fs::read_dir(proc.join(format!("{pid}/task"))).into_iter().flatten().flatten() {
                let thread = task.file_name().to_str().and_then(|name| name.parse().ok());
                let spent = fs::read_to_string(task.path().join("schedstat")).ok();
                let ns = spent.and_then(|text| text.split_whitespace().next()?.parse().ok());
                if let (Some(thread), Some(ns)) = (thread, ns) {
                    reading.threads.insert((pid, thread), ns);
                }
            }
            let process = all[&pid].clone();
            reading.processes.insert((pid, process.began), process);
        }
        reading
    }

    fn cost_until(&self, later: &Reading, wall: Duration) -> Cost {
        let tick = 1.0 / rustix::param::clock_ticks_per_second() as f64;
        let (mut user, mut system) = (0, 0);
        for (key, after) in &later.processes {
            let before = self.processes.get(key).cloned().unwrap_or_default();
            user += after.user_ticks + after.ended_user_ticks;
            user = user.saturating_sub(before.user_ticks + before.ended_user_ticks);
            system += after.system_ticks + after.ended_system_ticks;
            system = system.saturating_sub(before.system_ticks + before.ended_system_ticks);
        }
        // What a process had spent before the first reading comes to its parent when it ends.
        let mut incomplete = false;
        for (_, gone) in self.processes.iter().filter(|(key, _)| !later.processes.contains_key(key)) {
            if later.processes.keys().any(|(parent, _)| *parent == gone.parent) {
                user = user.saturating_sub(gone.user_ticks + gone.ended_user_ticks);
                system = system.saturating_sub(gone.system_ticks + gone.ended_system_ticks);
            } else {
                incomplete = true;
            }
        }
        let ticks = (user + system) as f64;
        let whole = !self.threads.is_empty() && self.threads.keys().all(|key| later.threads.contains_key(key));
        let ns: u64 =
            later.threads.iter().map(|(key, ns)| ns.saturating_sub(self.threads.get(key).copied().unwrap_or(0))).sum();
        let total = if whole { ns as f64 / 1e9 } else { ticks * tick };
        let in_kernel = if ticks > 0.0 { system as f64 / ticks } else { 0.0 };
        Cost {
            user_seconds: total * (1.0 - in_kernel),
            system_seconds: total * in_kernel,
            wall_seconds: wall.as_secs_f64(),
            processes: later.processes.len(),
            incomplete,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `/proc` with these processes: number, name, parent, ticks in user and system, of ended children; nanoseconds of
    /// the threads.
    type Row<'a> = (u32, &'a str, u32, [u64; 4], &'a [(u32, u64)]);

    fn write(proc: &Path, rows: &[Row<'_>]) {
        let _ = fs::remove_dir_all(proc);
        for (pid, name, parent, [user, system, ended_user, ended_system], threads) in rows {
            let folder = proc.join(pid.to_string());
            for (thread, ns) in *threads {
                fs::create_dir_all(folder.join(format!("task/{thread}"))).unwrap();
                fs::write(folder.join(format!("task/{thread}/schedstat")), format!("{ns} 5 7\n")).unwrap();
            }
            let zeros = "0 ".repeat(9);
            let stat = format!(
                "{pid} ({name}) S {parent} {zeros}{user} {system} {ended_user} {ended_system} 20 0 1 0 {pid}77 0 0\n"
            );
            fs::write(folder.join("stat"), stat).unwrap();
        }
    }

    #[test]
    fn children_and_threads_count_and_the_kernels_share_is_from_the_ticks() {
        let folder = tempfile::tempdir().unwrap();
        let proc = folder.path().join("proc");
        write(
            &proc,
            &[
                (10, "web) x (y", 1, [100, 100, 0, 0], &[(10, 1_000_000_000)]),
                (11, "worker", 10, [0, 0, 0, 0], &[(11, 0), (12, 5)]),
                (20, "other", 1, [0, 0, 0, 0], &[(20, 0)]),
            ],
        );
        let meter = Meter::start_in(&proc, &[Who::Name("web) x (y".into())]).unwrap();
        write(
            &proc,
            &[
                (10, "web) x (y", 1, [130, 110, 0, 0], &[(10, 1_400_000_000)]),
                (11, "worker", 10, [30, 10, 0, 0], &[(11, 300_000_000), (12, 100_000_005)]),
                (20, "other", 1, [500, 500, 0, 0], &[(20, 9_000_000_000)]),
            ],
        );
        let cost = meter.read();
        assert!((cost.user_seconds - 0.6).abs() < 1e-9 && (cost.system_seconds - 0.2).abs() < 1e-9, "{cost:?}");
        assert_eq!((cost.processes, cost.incomplete), (2, false));
    }

    #[test]
    fn a_child_that_ended_is_in_its_parents_account() {
        let folder = tempfile::tempdir().unwrap();
        let proc = folder.path().join("proc");
        write(&proc, &[(10, "m", 1, [10, 0, 0, 0], &[(10, 0)]), (11, "w", 10, [50, 0, 0, 0], &[(11, 0)])]);
        let meter = Meter::start_in(&proc, &[Who::Pid(10)]).unwrap();
        // The child spent 20 ticks more and ended; 70 in all came to the parent, which spent 5 itself.
        write(&proc, &[(10, "m", 1, [15, 0, 70, 0], &[(10, 50_000_000)])]);
        let cost = meter.read();
        let tick = 1.0 / rustix::param::clock_ticks_per_second() as f64;
        assert!((cost.user_seconds - 25.0 * tick).abs() < 1e-9, "{cost:?}");
        // This cannot be known without its parent.
        write(&proc, &[]);
        assert!(meter.read().incomplete);
    }

    #[test]
    fn what_is_not_running_is_said() {
        let missing = Meter::start(&[Who::Name("no such program".into())]).unwrap_err();
        assert_eq!(missing.to_string(), "no process to measure: 'no such program' is not running");
    }

    #[test]
    fn this_process_is_seen_spending() {
        let meter = Meter::start(&[Who::Pid(std::process::id())]).unwrap();
        let began = Instant::now();
        // Other processes may have the core for most of any time; a meter that sees nothing never comes to an end.
        while meter.read().total() < Duration::from_millis(10) {
            assert!(began.elapsed() < Duration::from_secs(60));
        }
    }
}
