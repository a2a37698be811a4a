//! One scenario through one program: its world (ports, origins, files, logs), and the transcript it leaves.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use crate::Failure;
use crate::certificates::Certificates;
use crate::client;
use crate::message::Inbox;
use crate::nginx;
use crate::normalise::{self, Masks};
use crate::origin::{Agent, Answer, Behaviour, Origin, Recorder};
use crate::port::{BlackHole, Reserved};
use crate::process::{Process, Subject, describe};
use crate::scenario::{Scenario, Section};
use crate::step;
use crate::substitute::substitute;
use crate::syslog::Syslog;
use crate::wire::Verb;

/// The `global` section of a configuration that has none of its own. One thread: the order of servers is then the same
/// in every run.
const GLOBAL: &str = "global\n    nbthread 1\n    log {{syslog}} local0\n";

/// The `defaults` section of a configuration that has none of its own.
const DEFAULTS: &str = "defaults\n    mode http\n    log global\n    option httplog\n    timeout connect 3s\n    \
                        timeout client 10s\n    timeout server 10s\n";

const STATS: &str = "listen stats\n    bind {{bind stats}}\n    mode http\n    no log\n    timeout connect 3s\n    \
                     timeout client 10s\n    timeout server 10s\n    stats enable\n    stats uri /stats\n";

/// What a run showed.
#[derive(Clone, Debug, Default)]
pub struct Transcript {
    /// Every line, in order, with a heading for each step.
    pub lines: Vec<String>,
    /// How many log lines came.
    pub log_count: usize,
    /// How the program ended, if it did before it was told to.
    pub ended: Option<ExitStatus>,
}

/// The world of one run.
pub struct Run<'a> {
    /// The program.
    pub subject: Subject,
    /// The scenario.
    pub scenario: &'a Scenario,
    /// What the origins saw.
    pub recorder: Recorder,
    /// The log receiver.
    pub syslog: Syslog,
    /// The running proxy, once started.
    pub process: Option<Process>,
    /// Connections that a later step goes on with.
    pub kept: HashMap<String, Inbox>,
    folder: tempfile::TempDir,
    reserved: HashMap<String, Reserved>,
    origins: HashMap<String, Origin>,
    black_hole: Option<BlackHole>,
    taken: Option<TcpListener>,
    masks: Masks,
    transcript: Transcript,
}

/// Carries a scenario out. `expected_logs` is how many log lines to wait for, where that is known already.
pub fn carry_out(scenario: &Scenario, subject: Subject, expected_logs: Option<usize>) -> Result<Transcript, Failure> {
    let mut run = Run::prepare(scenario, subject)?;
    run.start()?;
    if run.ended_as_stated() {
        return Ok(run.transcript);
    }
    let mut last = Vec::new();
    for section in &scenario.sections {
        match section.kind.as_str() {
            "config" | "file" | "origin" | "answer" | "options" | "mask" | "reference" => {}
            "expect" => run.expect(section, &last)?,
            _ => {
                let lines = step::perform(&mut run, section).map_err(|e| {
                    let said = run.process.as_ref().map(Process::output).unwrap_or_default();
                    let ended = run.process.as_mut().and_then(|p| p.wait_end(Duration::ZERO)).map(describe);
                    format!("[{}] at line {}: {e}\n{said}{}", section.kind, section.line, ended.unwrap_or_default())
                })?;
                last = run.keep_lines(section, lines);
            }
        }
    }
    run.finish(expected_logs)
}

impl<'a> Run<'a> {
    /// Makes the run's folder, files and log receiver.
    pub fn prepare(scenario: &'a Scenario, subject: Subject) -> Result<Self, Failure> {
        let folder = tempfile::Builder::new().prefix("penstock-run-").tempdir().map_err(|e| e.to_string())?;
        let syslog = Syslog::start(&folder.path().join("log.sock")).map_err(|e| format!("syslog: {e}"))?;
        let masks: Vec<&str> = scenario.sections.iter().filter(|s| s.kind == "mask").map(|s| s.text.as_str()).collect();
        let mut run = Self {
            subject,
            scenario,
            recorder: Recorder::default(),
            syslog,
            process: None,
            kept: HashMap::new(),
            folder,
            reserved: HashMap::new(),
            origins: HashMap::new(),
            black_hole: None,
            taken: None,
            masks: Masks::parse(&masks.join("\n"))?,
            transcript: Transcript::default(),
        };
        for section in scenario.sections.iter().filter(|s| s.kind == "file") {
            let text = run.fill(&section.text)?;
            let name = section.arguments.first().ok_or("a [file] needs a name")?;
            run.write(name, &(text + "\n"))?;
        }
        Ok(run)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Failure> {
        let path = self.folder.path().join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(|e| e.to_string())?;
        }
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// Writes the configuration and starts the program, unless the scenario starts it itself.
    pub fn start(&mut self) -> Result<(), Failure> {
        let Some(section) = self.scenario.sections.iter().find(|s| s.kind == "config") else { return Ok(()) };
        let text = match section.has("whole") {
            true => section.text.clone(),
            false => completed(&section.text),
        };
        let text = self.fill(&(text + "\n"))?;
        self.write("haproxy.cfg", &text)?;
        if section.has("manual") {
            return Ok(());
        }
        let mut arguments = vec!["-db".to_owned(), "-f".to_owned(), "haproxy.cfg".to_owned()];
        arguments.extend(section.option("args").unwrap_or_default().split_whitespace().map(str::to_owned));
        let mut process = Process::start(self.program()?, &arguments, self.folder.path())?;
        let ports: Vec<u16> = match section.option("ready") {
            Some(names) => names.split(',').filter_map(|n| self.reserved.get(n)).map(|r| r.address.port()).collect(),
            None => self.reserved.values().map(|r| r.address.port()).collect(),
        };
        let fails = section.has("fails") || section.option("fails") == Some(self.subject.name());
        let ended = match fails {
            true => process.wait_end(Duration::from_secs(15)),
            false => process.wait_listening(&ports)?,
        };
        match (ended, fails) {
            (None, false) => {}
            (Some(status), true) => self.transcript.lines.push(format!("start: {}", describe(status))),
            (Some(status), false) => {
                return Err(format!("it ended at once, {}: {}", describe(status), process.output()));
            }
            (None, true) => return Err("it started with a configuration that must not start".to_owned()),
        }
        self.process = Some(process);
        Ok(())
    }

    /// Whether the configuration was refused, and the scenario says so: nothing is left to try then.
    fn ended_as_stated(&self) -> bool {
        self.transcript.lines.iter().any(|l| l.starts_with("start: ")) && !self.scenario.has_option("goes-on")
    }

    /// The program under test.
    pub fn program(&self) -> Result<&'static std::path::Path, Failure> {
        self.subject.program().ok_or_else(|| format!("{} is not there", self.subject.name()))
    }

    /// The run's folder, in which the program also runs.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Replaces every `{{name}}`, making what it names.
    pub fn fill(&mut self, text: &str) -> Result<String, Failure> {
        let text = text.replace("{{stats listen}}", STATS);
        substitute(&text, &mut |name| self.lookup(name))
    }

    fn lookup(&mut self, name: &str) -> Result<String, Failure> {
        let path = |p: PathBuf| Ok(p.to_string_lossy().into_owned());
        let certificates = Certificates::shared;
        let (kind, rest) = name.split_once(' ').unwrap_or((name, ""));
        match (kind, rest) {
            ("bind", name) => Ok(self.bind(name)?.to_string()),
            ("port", name) => match self.origins.get(name) {
                Some(origin) => Ok(origin.address.port().to_string()),
                None => Ok(self.bind(name)?.port().to_string()),
            },
            ("origin", name) => Ok(self.origin(name)?.address.to_string()),
            ("nginx", which) => nginx::address(which).map(|a| a.to_string()),
            ("cert", name) => path(certificates().pem(name)),
            ("certs", "") => path(certificates().folder().to_owned()),
            ("ca", "") => path(certificates().folder().join("ca.crt")),
            ("ca", other) => path(certificates().folder().join(format!("{other}-ca.crt"))),
            ("dir", "") => path(self.folder.path().to_owned()),
            ("config", "") => path(self.folder.path().join("haproxy.cfg")),
            ("program", "") => path(self.program()?.to_owned()),
            ("pid", "") => Ok(self.process.as_ref().map_or(0, Process::id).to_string()),
            ("syslog", "") => Ok(self.syslog.address.to_string()),
            ("syslog", "unix") => path(self.folder.path().join("log.sock")),
            ("unix", name) => path(self.folder.path().join(format!("{name}.sock"))),
            ("closed", "") => Ok(self.bind_unlistened()?.to_string()),
            ("blackhole", "") => {
                if self.black_hole.is_none() {
                    let reserved = Reserved::loopback().map_err(|e| e.to_string())?;
                    self.black_hole = Some(reserved.into_black_hole().map_err(|e| e.to_string())?);
                }
                Ok(self.black_hole.as_ref().map(|b| b.address.to_string()).unwrap_or_default())
            }
            ("taken", "") => {
                if self.taken.is_none() {
                    self.taken = Some(TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?);
                }
                let address = self.taken.as_ref().expect("just set").local_addr().map_err(|e| e.to_string())?;
                Ok(address.to_string())
            }
            _ => Err(format!("unknown substitution {{{{{name}}}}}")),
        }
    }

    /// The listening address of this name, reserved at its first use.
    pub fn bind(&mut self, name: &str) -> Result<SocketAddr, Failure> {
        if !self.reserved.contains_key(name) {
            self.reserved.insert(name.to_owned(), Reserved::loopback().map_err(|e| e.to_string())?);
        }
        Ok(self.reserved[name].address)
    }

    /// An address where connecting is refused. It is an origin that never listens, so that nothing waits for it.
    fn bind_unlistened(&mut self) -> Result<SocketAddr, Failure> {
        let origin = self.origin(".closed")?;
        origin.stop();
        Ok(origin.address)
    }

    /// The origin of this name, started at its first use.
    pub fn origin(&mut self, name: &str) -> Result<&Origin, Failure> {
        if !self.origins.contains_key(name) {
            let behaviour = self.behaviour(name)?;
            let origin = Origin::start(name, behaviour, self.recorder.clone())?;
            self.origins.insert(name.to_owned(), origin);
        }
        Ok(&self.origins[name])
    }

    fn behaviour(&mut self, name: &str) -> Result<Behaviour, Failure> {
        let mut behaviour = Behaviour::default();
        let scenario = self.scenario;
        for section in scenario.sections.iter().filter(|s| s.arguments.first().is_some_and(|a| a == name)) {
            if section.kind == "answer" {
                behaviour.answers.push(Answer::parse(section, &section.text)?);
            } else if section.kind == "origin" {
                behaviour.verbose = section.has("verbose");
                if section.has("spop") {
                    behaviour.agent = Some(Agent::parse(&section.text)?);
                } else if section.has("raw") {
                    behaviour.raw = Some(Verb::script(&section.text)?);
                }
                if let Some(certificate) = section.option("tls") {
                    let alpn: Vec<&str> = section.option("alpn").map(|a| a.split(',').collect()).unwrap_or_default();
                    behaviour.tls = Some(client::server_config(certificate, &alpn)?);
                }
            }
        }
        Ok(behaviour)
    }

    /// The names that stand in transcripts for this run's addresses and folders.
    fn known(&self) -> Vec<(String, String)> {
        let mut known: Vec<(String, String)> = Vec::new();
        for (name, reserved) in &self.reserved {
            known.push((reserved.address.to_string(), format!("{{{{bind {name}}}}}")));
        }
        for (name, origin) in &self.origins {
            known.push((origin.address.to_string(), format!("{{{{origin {name}}}}}")));
        }
        known.push((self.folder.path().to_string_lossy().into_owned(), "{{dir}}".to_owned()));
        known.push((Certificates::shared().folder().to_string_lossy().into_owned(), "{{certs}}".to_owned()));
        known
    }

    fn keep_lines(&mut self, section: &Section, lines: Vec<String>) -> Vec<String> {
        let known = self.known();
        let lines: Vec<String> = self.masks.apply_all(lines.iter().map(|l| normalise::line(l, &known)));
        self.transcript.lines.push(format!("[{}]", section.kind));
        self.transcript.lines.extend(lines.iter().cloned());
        lines
    }

    /// Checks an `[expect]` section against the step before it; those about logs wait for the end.
    fn expect(&mut self, section: &Section, last: &[String]) -> Result<(), Failure> {
        if section.has("log") || section.has("origins") || !self.is_meant(section) {
            return Ok(());
        }
        let mut all = last.to_vec();
        if section.has("start") {
            all = self.transcript.lines.clone();
        }
        let text = self.fill(&section.text)?;
        check(&text, &all).map_err(|e| format!("[expect] at line {}: {e}", section.line))
    }

    fn is_meant(&self, section: &Section) -> bool {
        let other = match self.subject {
            Subject::Haproxy | Subject::Haproxy30 => Subject::Penstock,
            Subject::Penstock => Subject::Haproxy,
        };
        !section.has(other.name()) || section.has(self.subject.name())
    }

    /// Collects the logs, checks what is expected of them, and ends the program.
    fn finish(mut self, expected_logs: Option<usize>) -> Result<Transcript, Failure> {
        self.kept.clear();
        // One that has just crashed is not gone at once.
        self.transcript.ended = self.process.as_mut().and_then(|p| p.wait_end(Duration::from_millis(20)));
        let scenario = self.scenario;
        if !scenario.has_option("no-logs") && self.process.is_some() {
            let expected: Vec<&Section> =
                scenario.sections.iter().filter(|s| s.kind == "expect" && s.has("log") && self.is_meant(s)).collect();
            let stated: usize = expected.iter().flat_map(|s| s.text.lines()).filter(|l| is_positive(l)).count();
            let wanted = expected_logs.unwrap_or(0).max(stated);
            self.syslog.wait_for(wanted, Duration::from_secs(3));
            // A line too many shows only if it is given the time to come.
            if let Some(process) = &self.process {
                process.wait_idle();
            }
            let known = self.known();
            let raw = self.syslog.settled();
            let lines: Vec<String> = self.masks.apply_all(raw.iter().map(|l| normalise::log_line(l, &known)));
            for section in expected {
                check(&section.text, &lines).map_err(|e| format!("[expect log] at line {}: {e}", section.line))?;
            }
            self.transcript.log_count = lines.len();
            self.transcript.lines.push("[log]".to_owned());
            self.transcript.lines.extend(lines);
        }
        let mut late = self.recorder.drain();
        late.extend(self.recorder.scripted(Duration::from_secs(3)));
        let known = self.known();
        let late: Vec<String> = self.masks.apply_all(late.iter().map(|l| normalise::line(l, &known)));
        for section in scenario.sections.iter().filter(|s| s.kind == "expect" && s.has("origins") && self.is_meant(s)) {
            check(&section.text, &late).map_err(|e| format!("[expect origins] at line {}: {e}", section.line))?;
        }
        if !late.is_empty() {
            self.transcript.lines.push("[origins]".to_owned());
            self.transcript.lines.extend(late);
        }
        Ok(self.transcript)
    }
}

/// The configuration with the suite's `global` and `defaults` where it has none: the one first, the other before the
/// first proxy, because `log global` refers to what is above it.
fn completed(text: &str) -> String {
    let is = |line: &str, words: &[&str]| line.split_whitespace().next().is_some_and(|w| words.contains(&w));
    let mut done = String::new();
    if !text.lines().any(|l| is(l, &["global"])) {
        done.push_str(GLOBAL);
    }
    let mut defaults = (!text.lines().any(|l| is(l, &["defaults"]))).then_some(DEFAULTS);
    for line in text.lines() {
        if is(line, &["frontend", "backend", "listen"]) || line.starts_with("{{stats") {
            done.push_str(defaults.take().unwrap_or_default());
        }
        done.push_str(line);
        done.push('\n');
    }
    done.push_str(defaults.unwrap_or_default());
    done
}

fn is_positive(line: &str) -> bool {
    !line.trim().is_empty() && !line.starts_with("! ")
}

/// Each pattern must match a line of its own; a pattern after `! ` must match none.
fn check(patterns: &str, lines: &[String]) -> Result<(), Failure> {
    let mut left: Vec<&String> = lines.iter().collect();
    for pattern in patterns.lines().filter(|l| !l.trim().is_empty()) {
        let found = |pattern: &str, lines: &[&String]| lines.iter().position(|l| normalise::matches(pattern, l));
        match pattern.strip_prefix("! ") {
            Some(forbidden) => {
                if let Some(at) = found(forbidden, &left) {
                    return Err(format!("`{forbidden}` must not be there, but: {}", left[at]));
                }
            }
            None => match found(pattern, &left) {
                Some(at) => {
                    left.remove(at);
                }
                None => return Err(format!("nothing matches `{pattern}` in:\n    {}", lines.join("\n    "))),
            },
        }
    }
    Ok(())
}
