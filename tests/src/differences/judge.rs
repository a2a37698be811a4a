//! Runs many cases at a time through both programs and says of each whether anything differs.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::LazyLock;

use regex::Regex;

use super::case::{self, Case, NUMBER};
use super::known::Known;
use super::reference;
use crate::Failure;
use crate::process::{Subject, describe};
use crate::run::{Transcript, carry_out};
use crate::scenario::Scenario;

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing differs.
    Same,
    /// What differs is explained by the table of known differences.
    Explained,
    /// What clients, origins or the log received: lines of HAProxy's alone begin with `- `, of penstock's alone with `+ `.
    Differs(Vec<String>),
}

/// A line of the configuration that HAProxy takes and penstock does not. The other way round is no difference: words of
/// newer releases are taken here too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Which line of the case.
    pub line: usize,
    /// What it says.
    pub says: String,
}

/// Whose line a program refuses (the whole case, where it names no line), and what it says.
type Complaint = ((usize, Option<usize>), String);

/// A case and what became of it.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The case without the lines that a program refuses.
    pub case: Case,
    /// What differs.
    pub verdict: Verdict,
    /// Lines that only penstock refuses; their places are those in the case that was handed in.
    pub refusals: Vec<Refusal>,
}

/// What one program showed of some cases.
pub enum View {
    /// What clients, origins and the log received, for each case.
    Lines(Vec<Vec<String>>),
    /// It ended before it was told to.
    Died(ExitStatus),
    /// It did not start, or a step could not be taken.
    Failed(Failure),
}

impl View {
    fn is_alive(&self) -> bool {
        matches!(self, Self::Lines(_))
    }
}

/// What both programs showed of the same cases.
pub struct Seen {
    /// HAProxy.
    pub theirs: View,
    /// Penstock.
    pub ours: View,
}

/// How many cases share a pair of processes.
const TOGETHER: usize = 10;

/// Who judges.
pub struct Judge {
    folder: tempfile::TempDir,
    known: Known,
    /// Changes what penstock alone is given. It is how a difference is planted.
    plant: Option<fn(&str) -> String>,
    /// Tells what goes on.
    show: bool,
}

impl Judge {
    /// A judge who knows these differences.
    pub fn new(known: Known, plant: Option<fn(&str) -> String>) -> Result<Self, Failure> {
        let folder = tempfile::Builder::new().prefix("penstock-differences-").tempdir().map_err(|e| e.to_string())?;
        for (name, text) in case::FILES {
            std::fs::write(folder.path().join(name), format!("{text}\n")).map_err(|e| e.to_string())?;
        }
        Ok(Self { folder, known, plant, show: std::env::var_os("PENSTOCK_SHOW").is_some() })
    }

    /// Judges all of these, each by itself though they run together.
    pub fn judge(&self, cases: &[Case]) -> Vec<Judged> {
        let mut judged = self.settle(cases);
        // Of a case whose every line is refused there is nothing to run.
        let can_run = |case: &Case| !case.lines.is_empty() && case.blocks.iter().any(|b| b.is_step());
        let ready: Vec<usize> = (0..judged.len()).filter(|i| can_run(&judged[*i].case)).collect();
        let these: Vec<&Case> = ready.iter().map(|i| &judged[*i].case).collect();
        let verdicts = std::thread::scope(|scope| {
            let running: Vec<_> = these.chunks(TOGETHER).map(|part| scope.spawn(|| self.run(part))).collect();
            running.into_iter().flat_map(|r| r.join().expect("the judge does not panic")).collect::<Vec<_>>()
        });
        for (at, verdict) in ready.into_iter().zip(verdicts) {
            judged[at].verdict = verdict;
        }
        judged
    }

    /// Takes off what a program refuses, line by line, and says what penstock alone refuses.
    pub fn settle(&self, cases: &[Case]) -> Vec<Judged> {
        let refused: Vec<Vec<(usize, usize, String)>> =
            [reference(), Subject::Penstock].map(|subject| self.refused_by(subject, cases)).into();
        let mut judged = Vec::new();
        for (number, case) in cases.iter().enumerate() {
            let lines = |side: usize| -> Vec<(usize, &str)> {
                let own = refused[side].iter().filter(|(n, ..)| *n == number);
                own.map(|(_, line, says)| (*line, says.as_str())).collect()
            };
            let (theirs, ours) = (lines(0), lines(1));
            let all: BTreeSet<usize> = theirs.iter().chain(&ours).map(|(line, _)| *line).collect();
            let mut refusals = Vec::new();
            for (line, says) in &ours {
                let alone = theirs.iter().all(|(l, _)| l != line);
                if alone && !self.known.refusal(&case.lines[*line].1, says) {
                    refusals.push(Refusal { line: *line, says: (*says).to_owned() });
                }
            }
            let mut case = case.clone();
            let mut at = 0;
            case.lines.retain(|_| {
                at += 1;
                !all.contains(&(at - 1))
            });
            judged.push(Judged { case, verdict: Verdict::Same, refusals });
        }
        // A line may be refused for want of one that only the other program refused.
        if judged.iter().zip(cases).any(|(j, c)| j.case.lines.len() != c.lines.len()) {
            let again: Vec<Case> = judged.iter().map(|j| j.case.clone()).collect();
            for (judged, again) in judged.iter_mut().zip(self.settle(&again)) {
                judged.case = again.case;
            }
        }
        judged
    }

    /// The lines that a program refuses: case, line, what it says.
    fn refused_by(&self, subject: Subject, cases: &[Case]) -> Vec<(usize, usize, String)> {
        let mut left: Vec<Case> = cases.to_vec();
        // Places in what is left are not those in what was given.
        let mut places: Vec<Vec<usize>> = cases.iter().map(|c| (0..c.lines.len()).collect()).collect();
        let mut refused = Vec::new();
        loop {
            let these: Vec<&Case> = left.iter().collect();
            let lines = case::configuration(&these);
            let found = match self.check(subject, &lines) {
                Some(found) => found,
                None if left.len() == 1 => vec![((0, None), "refused without a place".to_owned())],
                None => {
                    // Each half by itself: the one with whatever it is becomes smaller and smaller.
                    let (first, second) = left.split_at(left.len() / 2);
                    let mut halves = self.refused_by(subject, first);
                    let later = self.refused_by(subject, second);
                    halves.extend(later.into_iter().map(|(number, line, says)| (number + first.len(), line, says)));
                    refused.extend(halves.into_iter().map(|(number, line, says)| (number, places[number][line], says)));
                    return refused;
                }
            };
            if found.is_empty() {
                return refused;
            }
            if self.show {
                for (_, says) in &found {
                    println!("refused by {}: {}", subject.name(), says.lines().next().unwrap_or_default());
                }
            }
            let mut gone: BTreeSet<(usize, usize)> = BTreeSet::new();
            for (owner, says) in found {
                let (number, line) = owner;
                match line {
                    Some(line) => {
                        if gone.insert((number, line)) {
                            refused.push((number, places[number][line], says));
                        }
                    }
                    None => {
                        for (line, place) in places[number].iter().enumerate() {
                            if gone.insert((number, line)) {
                                refused.push((number, *place, says.clone()));
                            }
                        }
                    }
                }
            }
            for (number, line) in gone.into_iter().rev() {
                left[number].lines.remove(line);
                places[number].remove(line);
            }
        }
    }

    /// Checks a configuration: whose lines are refused, and why. `None` where it is refused without a place.
    fn check(&self, subject: Subject, lines: &[case::Line]) -> Option<Vec<Complaint>> {
        static ADDRESS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\{\{[^}]*\}\}").expect("a constant pattern"));
        static PLACE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"check\.cfg:(\d+)").expect("a constant pattern"));
        static NAME: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\b[dfk](\d+)\b").expect("a constant pattern"));
        let folder = self.folder.path().to_string_lossy().into_owned();
        let name = format!("{}-{:?}-check.cfg", subject.name(), std::thread::current().id()).replace(['(', ')'], "");
        let path: PathBuf = self.folder.path().join(&name);
        let text: String = lines.iter().map(|l| format!("{}\n", l.text.replace("{{dir}}", &folder))).collect();
        let text = ADDRESS.replace_all(&text, "127.0.0.1:9");
        std::fs::write(&path, text.as_bytes()).ok()?;
        let output = Command::new(subject.program()?).arg("-c").arg("-f").arg(&path).output().ok()?;
        // 2: there is nothing to listen on, because those lines were refused before.
        if output.status.success() || output.status.code() == Some(2) {
            return Some(Vec::new());
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        let mut found = Vec::new();
        let mut message = String::new();
        for line in said.lines() {
            let error = match subject {
                // Several errors of one kind stand in indented lines of their own.
                Subject::Haproxy | Subject::Haproxy30 => {
                    (line.contains("[ALERT]") || line.trim_start().starts_with("parsing [")).then_some(line)
                }
                Subject::Penstock => {
                    if line.starts_with("error: ") || line.starts_with("warning: ") || line.starts_with("notice: ") {
                        message = line.to_owned();
                    }
                    (line.trim_start().starts_with("--> ") && message.starts_with("error: ")).then_some(line)
                }
            };
            let Some(error) = error else { continue };
            let says = if subject == Subject::Penstock { message.clone() } else { error.to_owned() };
            let place = PLACE.captures(error).and_then(|c| c[1].parse::<usize>().ok());
            let owner = place.and_then(|n| lines.get(n - 1)).and_then(|l| l.owner);
            let by_name = || NAME.captures(error).and_then(|c| c[1].parse().ok());
            match owner {
                Some((number, line)) => found.push(((number, Some(line)), says)),
                None => {
                    if let Some(number) = by_name() {
                        found.push(((number, None), says));
                    }
                }
            }
        }
        (!found.is_empty()).then_some(found)
    }

    /// Runs settled cases one after the other. Where a program dies, the cases are halved until it is clear at which.
    pub fn run(&self, cases: &[&Case]) -> Vec<Verdict> {
        if cases.is_empty() {
            return Vec::new();
        }
        let seen = self.observe(cases);
        if cases.len() > 1 && !(seen.theirs.is_alive() && seen.ours.is_alive()) {
            let (first, second) = cases.split_at(cases.len() / 2);
            let mut verdicts = self.run(first);
            verdicts.extend(self.run(second));
            return verdicts;
        }
        let verdicts: Vec<_> =
            (0..cases.len()).map(|at| self.compare(cases[at], at, &seen.theirs, &seen.ours)).collect();
        let all = verdicts.into_iter().zip(cases);
        all.map(|(verdict, case)| match verdict {
            Verdict::Differs(lines) => match self.unexplained(case) {
                None => Verdict::Explained,
                Some(less) if less.blocks.len() < case.blocks.len() => self.run(&[&less]).pop().expect("one was run"),
                Some(_) => Verdict::Differs(lines),
            },
            verdict => verdict,
        })
        .collect()
    }

    /// Runs these cases once through both programs.
    pub fn observe(&self, cases: &[&Case]) -> Seen {
        let (text, owners) = case::scenario("Generated cases.", "", cases);
        let view = |text: &str, subject| match transcript(text, subject) {
            Ok(Transcript { ended: Some(status), .. }) => View::Died(status),
            Ok(transcript) => View::Lines(split(&transcript, &owners, cases.len())),
            Err(failure) => View::Failed(failure),
        };
        std::thread::scope(|scope| {
            let theirs = scope.spawn(|| view(&text, reference()));
            let planted = self.plant.map_or_else(|| text.clone(), |plant| plant(&text));
            let ours = view(&planted, Subject::Penstock);
            Seen { theirs: theirs.join().unwrap_or_else(|_| View::Failed("the harness panicked".to_owned())), ours }
        })
    }

    /// What differs for the case at this place between what HAProxy showed and what penstock did, in the same run or not.
    pub fn compare(&self, case: &Case, at: usize, theirs: &View, ours: &View) -> Verdict {
        match (theirs, ours) {
            (View::Lines(theirs), View::Lines(ours)) => self.verdict(case, &theirs[at], &ours[at]),
            _ => of_the_dead(theirs, ours),
        }
    }

    fn verdict(&self, case: &Case, theirs: &[String], ours: &[String]) -> Verdict {
        if theirs == ours {
            return Verdict::Same;
        }
        let lines = difference(theirs, ours);
        if self.known.explains(&text_of(case), &lines) { Verdict::Explained } else { Verdict::Differs(lines) }
    }

    /// A request that one program alone serves changes which server is next, what is counted and which connections are
    /// open: behind a step whose difference is known, others differ as well. The case without such steps, unless it has no
    /// others.
    pub fn unexplained(&self, case: &Case) -> Option<Case> {
        let with = |wanted: &dyn Fn(usize) -> bool| {
            let blocks = case.blocks.iter().enumerate().filter(|(at, block)| !block.is_step() || wanted(*at));
            Case { blocks: blocks.map(|(_, block)| block.clone()).collect(), ..case.clone() }
        };
        let steps: Vec<usize> = (0..case.blocks.len()).filter(|at| case.blocks[*at].is_step()).collect();
        if steps.len() < 2 {
            return Some(case.clone());
        }
        let is_known = |step: &usize| self.run(&[&with(&|at| at == *step)]) == [Verdict::Explained];
        let known: Vec<usize> = steps.iter().copied().filter(is_known).collect();
        (known.len() < steps.len()).then(|| with(&|at| !known.contains(&at)))
    }
}

/// What is said where a program did not start or did not live to the end. There is nothing to compare with a HAProxy
/// that died of a case.
fn of_the_dead(theirs: &View, ours: &View) -> Verdict {
    let differs = |line: String| Verdict::Differs(vec![line]);
    match (theirs, ours) {
        // There is nothing to listen on.
        (View::Died(theirs), View::Died(ours)) if theirs == ours => Verdict::Same,
        (_, View::Died(status)) => differs(format!("+ {}", describe(*status))),
        (View::Died(_), _) | (View::Failed(_), View::Failed(_)) | (View::Lines(_), View::Lines(_)) => Verdict::Same,
        (View::Failed(theirs), _) if theirs.contains("killed by signal") => Verdict::Same,
        (View::Failed(theirs), _) => differs(format!("- {theirs}")),
        (_, View::Failed(ours)) => differs(format!("+ {ours}")),
    }
}

/// A case as rows of known differences look at it: its lines, the case's number left out. What a script sends is taken
/// apart into lines.
pub fn text_of(case: &Case) -> String {
    let text = case::scenario("", "", &[case]).0.replace(NUMBER, "");
    let unfold = |line: &str| match line.strip_prefix("send ") {
        Some(sent) => sent.replace("\\r\\n", "\n"),
        None => line.to_owned(),
    };
    text.lines().map(|line| unfold(line) + "\n").collect()
}

fn transcript(text: &str, subject: Subject) -> Result<Transcript, Failure> {
    carry_out(&Scenario::parse("generated", text)?, subject, None)
}

/// What belongs to each case: by the step for what clients received, by name for origins and logs.
fn split(transcript: &Transcript, owners: &[usize], count: usize) -> Vec<Vec<String>> {
    static ORIGIN: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^o(\d*)(#\d+)?> ").expect("a constant pattern"));
    static PROXY: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\b[fk](\d+)\b").expect("a constant pattern"));
    // An address may come from a rule, its port does not.
    static CLIENT: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"PID\]: (\S+):\d{4,5} ").expect("a constant pattern"));
    // `option logasap`: what has come by then is a matter of luck.
    static SO_FAR: LazyLock<Regex> = LazyLock::new(|| Regex::new(r" \+\d+( |$)").expect("a constant pattern"));
    // How many connections the process and the frontend have: those of the step before may not have ended yet.
    static CONNECTIONS: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r" \d+/\d+(/\d+/\d+/\+?\d+ \d+/\d+)\b").expect("a constant pattern"));
    let mut clients: Vec<Vec<String>> = vec![Vec::new(); count];
    let mut origins: Vec<Vec<String>> = vec![Vec::new(); count];
    let mut logs: Vec<Vec<String>> = vec![Vec::new(); count];
    let (mut step, mut part) = (0, "");
    for line in &transcript.lines {
        match line.as_str() {
            "[log]" => part = "log",
            "[origins]" => part = "origins",
            heading if heading.starts_with('[') && heading.ends_with(']') => {
                part = "step";
                if let Some(&owner) = owners.get(step) {
                    clients[owner].push(heading.to_owned());
                }
                step += 1;
            }
            line => {
                let owned_origin = ORIGIN.captures(line).map(|c| c[1].parse().unwrap_or(0)).filter(|n| *n < count);
                match (part, owned_origin) {
                    ("log", _) => {
                        let owner = PROXY.captures(line).and_then(|c| c[1].parse().ok()).unwrap_or(0).min(count - 1);
                        let line = &CLIENT.replace(line, "PID]: $1:PORT ");
                        let line = SO_FAR.replace(line, " +#$1").into_owned();
                        let line = clf(&line);
                        logs[owner].push(CONNECTIONS.replace(&line, " #/#$1").into_owned());
                    }
                    (_, Some(owner)) => origins[owner].push(without_ports(line)),
                    ("step", None) => {
                        if let Some(&owner) = step.checked_sub(1).and_then(|s| owners.get(s)) {
                            clients[owner].push(received(line.trim_end()));
                        }
                    }
                    _ => {}
                }
            }
        }
    }
    let all = clients.into_iter().zip(origins).zip(logs);
    all.map(|((mut lines, origins), logs)| {
        lines.extend(origins);
        lines.extend(logs);
        lines
    })
    .collect()
}

/// What an origin received: in a PROXY header of version 2 over IPv4, the ports differ from run to run, and so does a checksum.
fn without_ports(line: &str) -> String {
    const BYTE: &str = r"(?:\\x[0-9a-f]{2}|\\.|[^\\])";
    static PORTS: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(&format!(r"(QUIT\\n{BYTE}\\x11{BYTE}{{10}}){BYTE}{{4}}")).expect("a constant pattern")
    });
    static CRC: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(&format!(r"(QUIT\\n.*?\\x03\\x00\\x04){BYTE}{{4}}")).expect("a constant pattern"));
    let line = PORTS.replace(line, "${1}PORTS");
    CRC.replace(&line, "${1}CRC").into_owned()
}

/// What a client received. HTTP/2 has no blanks around a value (RFC 9113, 8.2.1), and HTTP/1 cannot tell. To a script the
/// order of fields and the capitals of their names say nothing, and so a checksum of all of it does not either. That a response over HTTP/2 ended early
/// curl says in several ways, by what it had read before.
fn received(line: &str) -> String {
    static CHECKSUM: LazyLock<Regex> = LazyLock::new(|| Regex::new("checksum [0-9a-f]+").expect("a constant pattern"));
    static BLANKS: LazyLock<Regex> = LazyLock::new(|| Regex::new("^(< [^ :]+: ) +").expect("a constant pattern"));
    if matches!(line, "exit 18" | "exit 56" | "exit 92") {
        return "cut".to_owned();
    }
    if let Some(coded) = line.strip_prefix("< coded as ") {
        // Encoders differ in what they make of a few bytes.
        return format!("< coded as {}", coded.trim_end_matches(", smaller"));
    }
    if !line.starts_with("< recv ") {
        return BLANKS.replace(line, "$1").into_owned();
    }
    let mut parts = CHECKSUM.replace(line, "checksum").split("\\r\\n").map(str::to_owned).collect::<Vec<_>>();
    let is_field = |part: &String| part.split_once(": ").is_some_and(|(name, _)| !name.contains(' '));
    // HAProxy's own pages have other capitals where a connection's later request cannot be read.
    for part in parts.iter_mut().filter(|part| is_field(part)) {
        if let Some((name, value)) = part.split_once(": ") {
            *part = format!("{}: {value}", name.to_ascii_lowercase());
        }
    }
    parts.chunk_by_mut(|a, b| is_field(a) && is_field(b)).for_each(<[String]>::sort);
    parts.join("\\r\\n")
}

/// `option httplog clf`: its port, milliseconds, timers and number of connections are named.
fn clf(line: &str) -> String {
    static LINE: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r#" "" "" \d+ \d+ ("f\S*" "\S*" "\S*") (\S+ \S+ \S+ \S+) \S+ (\S+) \d+ "#)
            .expect("a constant pattern")
    });
    static TIMER: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\b\d+").expect("a constant pattern"));
    let named = |found: &regex::Captures<'_>| {
        let timers =
            found[2].replace("-1", "-").split(' ').map(|t| TIMER.replace(t, "#").into_owned()).collect::<Vec<_>>();
        format!(r#" "" "" PORT MS {} {} # {} # "#, &found[1], timers.join(" "), &found[3])
    };
    LINE.replace(line, named).into_owned()
}

/// The lines of each side alone, by the longest common sequence.
fn difference(theirs: &[String], ours: &[String]) -> Vec<String> {
    let (n, m) = (theirs.len(), ours.len());
    let mut best = vec![vec![0_u32; m + 1]; n + 1];
    for i in (0..n).rev() {
        for j in (0..m).rev() {
            best[i][j] = match theirs[i] == ours[j] {
                true => best[i + 1][j + 1] + 1,
                false => best[i + 1][j].max(best[i][j + 1]),
            };
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    while i < n || j < m {
        if i < n && j < m && theirs[i] == ours[j] {
            (i, j) = (i + 1, j + 1);
        } else if j == m || i < n && best[i + 1][j] >= best[i][j + 1] {
            lines.push(format!("- {}", theirs[i]));
            i += 1;
        } else {
            lines.push(format!("+ {}", ours[j]));
            j += 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_one_side_alone_are_marked() {
        let lines = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(difference(&lines("a b c d"), &lines("a x c d e")), ["- b", "+ x", "+ e"]);
    }

    #[test]
    fn ports_of_a_binary_proxy_header_are_masked() {
        let header = |ports: &str, crc: &str| {
            without_ports(&format!(
                r#"o0> recv "\r\n\r\n\x00\r\nQUIT\n!\x11\x00\x13\x7f\x00\x00\x01\x7f\x00\x00\x01{ports}\x03\x00\x04{crc}GET / "#
            ))
        };
        assert_eq!(header(r"\xb8\x1c\xe5\xcf", r"abc\n"), header(r"\xaf\x98\x9cw", r"\\\x01\x02q"));
        assert!(header(r"\xb8\x1c\xe5\xcf", "abcd").ends_with(r"PORTS\x03\x00\x04CRCGET / "));
    }

    #[test]
    fn a_transcript_is_split_by_step_and_by_name() {
        let lines =
            ["[request]", "< one", "o1> late", "o0> early", "[request]", "< two", "[log]", "x f1 y", "x k0/s z"];
        let transcript = Transcript { lines: lines.map(str::to_owned).to_vec(), log_count: 2, ended: None };
        let parts = split(&transcript, &[0, 1], 2);
        assert_eq!(parts[0], ["[request]", "< one", "o0> early", "x k0/s z"]);
        assert_eq!(parts[1], ["[request]", "< two", "o1> late", "x f1 y"]);
    }
}
