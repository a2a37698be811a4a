//! Commands that show the inside of the process: workers, descriptors, libraries, name servers, the crypto engine, variables.

use super::{Answer, Executor, Piece, caches, events, peers, taps};
use penstock_config::{Line, Span, Word};
use penstock_control::Inside;
use penstock_engine::{Class, ClassCounters};
use penstock_proxy::{Handle, WorkerView, engine::Report};
use serde_json::{Value as Json, json};
use std::fmt::Write as _;

impl Executor {
    pub(super) fn inside(&self, command: Inside) -> Answer {
        match command {
            Inside::Activity { json } => Answer::data(activity(&self.handle.worker_views(), json)),
            Inside::Threads { json } => Answer::data(threads(&self.handle.worker_views(), json)),
            Inside::Tasks { json } => Answer::data(tasks(&self.handle.worker_views(), json)),
            Inside::Caches { json } => caches::show(&self.handle, json),
            Inside::Descriptors { number, json } => descriptors(number, json),
            Inside::Events { sink, wait, only_new, json } => {
                events::show(&self.handle, sink.as_deref(), wait, only_new, json)
            }
            Inside::Libraries { json } => libraries(json),
            Inside::Peers { section, dictionary, json } => peers::show(&self.handle, section, dictionary, json),
            Inside::Resolvers { name, json } => resolvers(&self.handle, name.as_deref(), json),
            Inside::Engine { json } => Answer::data(engine(&self.handle, json)),
            Inside::Taps { json } => Answer::data(taps::show(&self.handle, json)),
            Inside::Line { json } => Answer::data(line(&self.handle, json)),
            Inside::StartupLogs { json: true } => {
                Answer::data(format!("{}\n", json!(self.facts.startup_log.lines().collect::<Vec<_>>())))
            }
            Inside::StartupLogs { json: false } => Answer::data(self.facts.startup_log.clone()),
            Inside::Variable(name) => {
                let Some(value) = self.handle.shared().program.variables.value(&name) else {
                    return Answer::error("Variable not found.");
                };
                let mut text = Vec::new();
                match value {
                    // As HAProxy writes it.
                    penstock_rules::Value::Bool(on) => text.push(if on { b'1' } else { b'0' }),
                    ref value => value.write_text(&mut text),
                }
                let text = String::from_utf8_lossy(&text).replace(char::is_control, "?");
                Answer::data(format!("{name}: type={} value=<{text}>\n", value.kind().name()))
            }
            Inside::SetVariable(keyword, words) => {
                let word = |text: String| Word { text, span: Span::default() };
                let words = std::iter::once(keyword.to_string()).chain(words).map(word).collect();
                let line = Line { words, ..Line::default() };
                match self.handle.shared().program.set_variable(line) {
                    Ok(()) => Answer::nothing(),
                    Err(sentence) => Answer::error(sentence),
                }
            }
            Inside::DynamicCookie(backend) => match self.handle.backend(&backend) {
                None => Answer::error("No such backend."),
                Some(_) => Answer::error("Cookies of servers are not made up here: give each server its 'cookie'."),
            },
        }
    }
}

/// A counter of a worker: its name, and a function that reads it.
type Counted = (&'static str, fn(&WorkerView) -> u64);

const ACTIVITY: [Counted; 6] = [
    ("turns", |view| view.turns),
    ("turns_spent", |view| view.turns_spent),
    ("connections", |view| u64::from(view.connections)),
    ("cpu_ms", |view| view.cpu.map_or(0, |cpu| cpu.as_millis() as u64)),
    ("engine_ops", |view| Class::ALL.iter().map(|class| view.engine.counters.class(*class).ops).sum()),
    ("engine_batches", |view| Class::ALL.iter().map(|class| view.engine.counters.class(*class).batches).sum()),
];

/// Each counter in HAProxy's format: the sum, then the value of each thread.
fn activity(workers: &[WorkerView], json: bool) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    if json {
        let object =
            |view: &WorkerView| ACTIVITY.iter().map(|(name, value)| ((*name).into(), json!(value(view)))).collect();
        let list: Vec<serde_json::Map<String, Json>> = workers.iter().map(object).collect();
        return format!("{}\n", json!({ "date_now": now.as_secs_f64(), "workers": list }));
    }
    let mut out =
        format!("thread_id: 1 (1..{})\ndate_now: {}.{:06}\n", workers.len(), now.as_secs(), now.subsec_micros());
    for (name, value) in ACTIVITY {
        let parts: Vec<u64> = workers.iter().map(value).collect();
        let shown = parts.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
        let _ = writeln!(out, "{name}: {} [ {shown} ]", parts.iter().sum::<u64>());
    }
    out
}

fn threads(workers: &[WorkerView], json: bool) -> String {
    if json {
        let object = |view: &WorkerView| {
            json!({
                "thread": view.thread,
                "working": view.working,
                "cpu_ns": view.cpu.map(|cpu| cpu.as_nanos() as u64),
                "whose": view.whose,
                "doing": view.doing,
            })
        };
        return format!("{}\n", workers.iter().map(object).collect::<Json>());
    }
    let mut out = String::new();
    for (number, view) in (1..).zip(workers) {
        let cpu = view.cpu.map_or_else(|| "?".into(), |cpu| cpu.as_nanos().to_string());
        let _ =
            writeln!(out, "  Thread {number} : id={} act={} cpu_ns: now={cpu}", view.thread, u8::from(view.working));
        let when = if view.working { "in" } else { "last in" };
        let _ = writeln!(out, "             {when} a turn of {}, busy with {}", view.whose, view.doing);
    }
    out
}

fn tasks(workers: &[WorkerView], json: bool) -> String {
    let running = workers.iter().filter(|view| view.working).count();
    let connections: u32 = workers.iter().map(|view| view.connections).sum();
    if json {
        return format!("{}\n", json!({ "running": running, "workers": workers.len(), "connections": connections }));
    }
    format!("Running tasks: {running} ({} threads)\n  connections: {connections}\n", workers.len())
}

/// The open descriptors as `/proc` shows them. Read on a thread of its own, because this may take long.
fn descriptors(number: Option<u32>, json: bool) -> Answer {
    Answer::beside("descriptors", move |pieces| {
        let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
            pieces.say(penstock_control::Severity::Error, "/proc cannot be read here.");
            return;
        };
        let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let mut numbers: Vec<u32> = numbers.filter(|open| number.is_none_or(|wanted| wanted == *open)).collect();
        numbers.sort_unstable();
        let named = numbers.into_iter().filter_map(|open| {
            let target = std::fs::read_link(format!("/proc/self/fd/{open}")).ok()?;
            Some((open, target.display().to_string().replace(char::is_control, "?")))
        });
        let named: Vec<(u32, String)> = named.collect();
        if json {
            let list: Json = named.iter().map(|(open, target)| json!({ "fd": open, "what": target })).collect();
            pieces.give(Piece::Data(format!("{list}\n").into_bytes()));
            return;
        }
        for some in named.chunks(128) {
            let lines: String = some.iter().map(|(open, target)| format!("{open:7} : {target}\n")).collect();
            if !pieces.give(Piece::Data(lines.into_bytes())) {
                return;
            }
        }
    })
}

fn libraries(json: bool) -> Answer {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else {
        return Answer::error("/proc cannot be read here.");
    };
    let found = loaded(&maps);
    if json {
        let list: Json =
            found.iter().map(|(start, end, path)| json!({ "start": start, "end": end, "path": path })).collect();
        return Answer::data(format!("{list}\n"));
    }
    let line = |(start, end, path): (u64, u64, String)| {
        format!("{start:#014x}-{:#014x} (0x{:07x}) {path}\n", end - 1, end - start)
    };
    Answer::lines(found.into_iter().map(line).collect::<Vec<_>>().into_iter())
}

/// The mapped files, each with its start and end address.
fn loaded(maps: &str) -> Vec<(u64, u64, String)> {
    let mut found: Vec<(u64, u64, String)> = Vec::new();
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (Some(range), Some(path)) = (words.next(), words.nth(4)) else { continue };
        let Some((start, end)) = range.split_once('-') else { continue };
        let (Ok(start), Ok(end)) = (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16)) else { continue };
        if !path.starts_with('/') {
            continue;
        }
        match found.iter_mut().find(|(.., known)| known == path) {
            Some(known) => known.1 = known.1.max(end),
            None => found.push((start, end, path.to_string())),
        }
    }
    found
}

fn resolvers(handle: &Handle, name: Option<&str>, json: bool) -> Answer {
    let sections = &handle.shared().resolving.sections;
    let chosen: Vec<_> = sections.iter().filter(|section| name.is_none_or(|name| section.name == name)).collect();
    if let (Some(_), true) = (name, chosen.is_empty()) {
        return Answer::error("Can't find that resolvers section\n");
    }
    if json {
        let section = |section: &&penstock_proxy::resolving::Section| {
            let servers = section.nameservers.iter().map(|server| {
                let counts: serde_json::Map<_, _> =
                    server.counts().map(|(word, count)| (word.to_string(), json!(count))).collect();
                json!({ "name": server.name, "address": server.address.to_string(), "counts": counts })
            });
            json!({ "name": section.name, "nameservers": servers.collect::<Json>() })
        };
        return Answer::data(format!("{}\n", chosen.iter().map(section).collect::<Json>()));
    }
    let mut out = String::new();
    for section in chosen {
        let _ = writeln!(out, "Resolvers section {}", section.name);
        for server in &section.nameservers {
            let _ = writeln!(out, " nameserver {}:", server.name);
            for (word, count) in server.counts() {
                let _ = writeln!(out, "  {:<12} {count}", format!("{word}:"));
            }
        }
    }
    Answer::data(out)
}

/// Mean number of operations in a batch.
fn mean_fill(class: &ClassCounters) -> f64 {
    let batches: u64 = class.fill.iter().sum();
    let ops: u64 = class.fill.iter().zip(1..).map(|(batches, fill): (_, u64)| batches * fill).sum();
    if batches == 0 { 0.0 } else { ops as f64 / batches as f64 }
}

/// Mean time of an operation from its submission to its answer, in µs.
fn mean_wait(class: &ClassCounters) -> f64 {
    let waited: u64 = class.wait.iter().sum();
    if waited == 0 { 0.0 } else { class.wait_us as f64 / waited as f64 }
}

/// The line of handshakes that wait because a worker has as many under way as it can compute in time.
fn line(handle: &Handle, json: bool) -> String {
    let workers = handle.worker_views();
    let object = |report: &Report| {
        let line = &report.line;
        json!({ "waiting": line.waiting, "most": line.most, "turned_away": line.turned_away, "left": line.left })
    };
    let sum = handle.shared().engines.sum();
    if json {
        let each: Json = workers.iter().map(|view| object(&view.engine)).collect();
        return format!("{}\n", json!({ "all": object(&sum), "workers": each }));
    }
    let mut out = "# thread waiting most turned_away left\n".to_string();
    let mut row = |who: &str, report: &Report| {
        let line = &report.line;
        let _ = writeln!(out, "{who} {} {} {} {}", line.waiting, line.most, line.turned_away, line.left);
    };
    for (number, view) in (1..).zip(&workers) {
        row(&number.to_string(), &view.engine);
    }
    row("all", &sum);
    out
}

fn engine(handle: &Handle, json: bool) -> String {
    let sum = handle.shared().engines.sum();
    let workers = handle.worker_views();
    let used = |report: &Report| -> Vec<(Class, ClassCounters)> {
        let classes = Class::ALL.iter().map(|class| (*class, *report.counters.class(*class)));
        classes.filter(|(_, counters)| counters.ops > 0).collect()
    };
    if json {
        let class = |(class, counters): (Class, ClassCounters)| {
            json!({
                "class": class.name(),
                "operations": counters.ops,
                "inline": counters.inline,
                "batches": counters.batches,
                "fill": mean_fill(&counters),
                "wait_us": mean_wait(&counters),
                "failed": counters.failed + counters.wrong + counters.late,
            })
        };
        let report = |report: &Report| {
            json!({
                "engine": report.engine,
                "benched": report.counters.is_benched,
                "line": { "waiting": report.line.waiting, "most": report.line.most, "turned_away": report.line.turned_away },
                "stacks": { "used": report.stacks.used, "most": report.stacks.most },
                "closed": { "full": report.counters.closed_full, "age": report.counters.closed_age, "idle": report.counters.closed_idle },
                "classes": used(report).into_iter().map(class).collect::<Json>(),
            })
        };
        let each: Json = workers.iter().map(|view| report(&view.engine)).collect();
        return format!("{}\n", json!({ "all": report(&sum), "workers": each }));
    }
    let mut out = format!("engine: {}{}\n", sum.engine, if sum.counters.is_benched { " (benched)" } else { "" });
    let (line, stacks) = (&sum.line, &sum.stacks);
    let _ = writeln!(
        out,
        "line: waiting={} most={} turned_away={} left={}",
        line.waiting, line.most, line.turned_away, line.left
    );
    let _ = writeln!(out, "stacks: used={} kept={} most={}", stacks.used, stacks.kept, stacks.most);
    let counters = &sum.counters;
    let _ = writeln!(
        out,
        "closed: full={} age={} idle={}",
        counters.closed_full, counters.closed_age, counters.closed_idle
    );
    let _ = writeln!(out, "# class operations inline batches mean_fill mean_wait_us failed");
    for (class, counters) in used(&sum) {
        let _ = writeln!(
            out,
            "{} {} {} {} {:.2} {:.1} {}",
            class.name(),
            counters.ops,
            counters.inline,
            counters.batches,
            mean_fill(&counters),
            mean_wait(&counters),
            counters.failed + counters.wrong + counters.late,
        );
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_library_is_one_however_often_it_is_mapped() {
        let maps = "00400000-00401000 r--p 00000000 08:01 12 /usr/bin/x\n00401000-00500000 r-xp 00001000 08:01 12 /usr/bin/x\n\
                    7f00-7f01 rw-p 00000000 00:00 0\n7fff-8000 r-xp 00000000 00:00 0 [vdso]\n";
        assert_eq!(super::loaded(maps), [(0x40_0000, 0x50_0000, "/usr/bin/x".to_string())]);
    }
}
