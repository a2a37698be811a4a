//! The side that runs the test: gives each agent its share, starts them in step, hears what comes.

use super::channel::{Channel, Identity};
use super::protocol::Message;
use super::{Address, Error, merge};
use crate::cost::{Cost, Meter};
use crate::load::{Arrivals, LoadPlan, LoadReport, Second, Stop};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// The longest time for an agent to say hello, and to try the server on top of the plan's time-out.
const PATIENCE: Duration = Duration::from_secs(10);
/// An agent that has been silent for this long is lost; it sends a message each second.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// The time between the start message and the start: enough for the message to reach every agent.
const LEAD: Duration = Duration::from_millis(300);
/// Number of messages for finding out how long one takes.
const PINGS: usize = 5;

/// What an agent did.
pub(super) struct Done {
    pub report: Box<LoadReport>,
    /// How long after the others it began, seconds.
    pub late_by: f64,
}

/// What became of one agent's share.
pub(super) struct Outcome {
    pub name: String,
    /// The agent's share, or why there is none.
    pub share: Result<Done, String>,
}

enum Event {
    Second(Second),
    Ended(usize, Result<Done, String>),
}

/// Carries out the plan by these agents: connections, rate and count are shared out, threads and cores are those of each.
///
/// # Errors
/// An agent cannot be reached, is of another version, or cannot do its share; nothing was measured then.
pub fn run(
    plan: &LoadPlan,
    agents: &[Address],
    identity: Option<&Identity>,
    stop: &Stop,
    observe: &mut dyn FnMut(&Second),
) -> Result<LoadReport, Error> {
    if plan.connections < agents.len() * plan.threads {
        return Err(Error::Setup(format!(
            "{} connections are too few for {} agents of {} threads",
            plan.connections,
            agents.len(),
            plan.threads
        )));
    }
    let tls = identity.map(Identity::client).transpose()?;
    let mut lines = Vec::new();
    for (number, address) in agents.iter().enumerate() {
        let failed = |why| Error::Agent(address.to_string(), why);
        let mut line = Channel::connect(address, tls.as_ref()).map_err(failed)?;
        line.send(&Message::hello()).map_err(failed)?;
        match expect(&mut line, PATIENCE).map_err(failed)? {
            Message::Hello { protocol, version } => {
                Message::refusal(protocol, &version).map_or(Ok(()), |why| Err(failed(why)))?;
            }
            _ => return Err(failed("it did not say who it is".into())),
        }
        let share = share(plan, number, agents.len());
        line.send(&Message::Prepare(Box::new(share))).map_err(failed)?;
        lines.push(line);
    }
    let mut delays = Vec::new();
    for (line, address) in lines.iter_mut().zip(agents) {
        let failed = |why| Error::Agent(address.to_string(), why);
        match expect(line, PATIENCE + plan.timeout).map_err(failed)? {
            Message::Prepared => {}
            Message::Failed(why) => return Err(failed(why)),
            _ => return Err(failed("it said something out of turn".into())),
        }
        delays.push(delay(line).map_err(failed)?);
    }
    let start = Instant::now() + LEAD + delays.iter().max().copied().unwrap_or_default();
    for ((line, address), delay) in lines.iter_mut().zip(agents).zip(&delays) {
        let after = start.saturating_duration_since(Instant::now() + *delay);
        let after_us = u64::try_from(after.as_micros()).unwrap_or(u64::MAX);
        line.send(&Message::Start { after_us }).map_err(|why| Error::Agent(address.to_string(), why))?;
    }
    let (sender, events) = channel();
    std::thread::scope(|scope| {
        for (number, line) in lines.into_iter().enumerate() {
            let sender: Sender<Event> = sender.clone();
            scope.spawn(move || {
                let outcome = hear(line, plan, stop, &sender);
                let _ = sender.send(Event::Ended(number, outcome));
            });
        }
        drop(sender);
        let meter = scope.spawn(move || measure(plan, start, stop));
        let mut outcomes = gather(&events, agents.len(), observe);
        outcomes.sort_by_key(|(number, _)| *number);
        let outcomes =
            outcomes.into_iter().map(|(number, share)| Outcome { name: agents[number].to_string(), share }).collect();
        let server = meter.join().unwrap_or(Ok(None)).map_err(Error::Setup)?;
        Ok(merge::merge(plan, outcomes, server, stop.is_stopped()))
    })
}

/// One agent's part of a plan: what does not divide evenly goes to the first ones. Units of an open loop fall due at each agent in
/// turn, not at all of them at once.
fn share(plan: &LoadPlan, number: usize, agents: usize) -> LoadPlan {
    let part = |whole: u64| whole / agents as u64 + u64::from((number as u64) < whole % agents as u64);
    let (arrivals, phase) = match plan.arrivals {
        Arrivals::Open(rate) => {
            (Arrivals::Open(rate / agents as f64), plan.phase + Duration::from_secs_f64(number as f64 / rate))
        }
        Arrivals::Closed => (Arrivals::Closed, plan.phase),
    };
    LoadPlan {
        connections: part(plan.connections as u64) as usize,
        count: plan.count.map(part),
        arrivals,
        phase,
        // Read here: the server's processes are not the agents'.
        watch: Vec::new(),
        ..plan.clone()
    }
}

/// How long a message takes, one way: half of the quickest answer.
fn delay(line: &mut Channel) -> Result<Duration, String> {
    let mut quickest = Duration::MAX;
    for _ in 0..PINGS {
        let began = Instant::now();
        line.send(&Message::Ping)?;
        match expect(line, SILENCE_MAX)? {
            Message::Ping => quickest = quickest.min(began.elapsed()),
            _ => return Err("it said something out of turn".into()),
        }
    }
    Ok(quickest / 2)
}

fn expect(line: &mut Channel, patience: Duration) -> Result<Message, String> {
    line.receive(patience)?.ok_or_else(|| format!("it said nothing for {} s", patience.as_secs()))
}

/// Listens to one agent until its report.
fn hear(mut line: Channel, plan: &LoadPlan, stop: &Stop, events: &Sender<Event>) -> Result<Done, String> {
    let mut heard = Instant::now();
    let mut told = false;
    let began = Instant::now();
    loop {
        if stop.is_stopped() && !told {
            told = true;
            line.send(&Message::Stop)?;
        }
        // After its last second an agent waits for units that have begun.
        let last = began.elapsed() + Duration::from_secs(1) >= plan.warm_up + plan.duration;
        let silent = !last && began.elapsed() < plan.warm_up;
        let allowed = SILENCE_MAX
            + if last {
                plan.timeout
            } else if silent {
                plan.warm_up
            } else {
                Duration::ZERO
            };
        match line.receive(Duration::from_millis(100)).map_err(|why| lost(began, &why))? {
            Some(Message::Second(second)) => {
                let _ = events.send(Event::Second(second));
            }
            Some(Message::Report { report, late_by }) => return Ok(Done { report, late_by }),
            Some(Message::Failed(why)) => return Err(why),
            Some(_) => return Err("it said something out of turn".into()),
            None if heard.elapsed() > allowed => {
                return Err(lost(began, &format!("it said nothing for {} s", allowed.as_secs())));
            }
            None => continue,
        }
        heard = Instant::now();
    }
}

fn lost(began: Instant, why: &str) -> String {
    format!("lost after {:.0} s: {why}", began.elapsed().as_secs_f64())
}

/// Sums the seconds of those who take part, and collects their reports.
fn gather(
    events: &Receiver<Event>,
    agents: usize,
    observe: &mut dyn FnMut(&Second),
) -> Vec<(usize, Result<Done, String>)> {
    let mut outcomes = Vec::new();
    let mut seconds: BTreeMap<u64, (usize, Second)> = BTreeMap::new();
    loop {
        match events.recv_timeout(Duration::from_millis(200)) {
            Ok(Event::Second(second)) => {
                let (heard, sum) = seconds.entry(second.at.round() as u64).or_default();
                *heard += 1;
                merge::add(sum, &second);
                if *heard == agents - outcomes.len() {
                    observe(sum);
                }
            }
            Ok(Event::Ended(number, outcome)) => outcomes.push((number, outcome)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return outcomes,
        }
    }
}

/// The server's cost, over the time that is measured.
fn measure(plan: &LoadPlan, start: Instant, stop: &Stop) -> Result<Option<Cost>, String> {
    if plan.watch.is_empty() {
        return Ok(None);
    }
    let sleep_until = |until: Instant| {
        while Instant::now() < until && !stop.is_stopped() {
            std::thread::sleep(Duration::from_millis(20).min(until.saturating_duration_since(Instant::now())));
        }
    };
    sleep_until(start + plan.warm_up);
    let meter = Meter::start(&plan.watch).map_err(|e| e.to_string())?;
    sleep_until(start + plan.warm_up + plan.duration);
    Ok(Some(meter.read()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Scheme, Target};

    #[test]
    fn units_are_due_at_each_agent_in_turn() {
        let target = Target { scheme: Scheme::Https, host: "a".into(), port: 1, path: "/".into() };
        let plan = LoadPlan { arrivals: Arrivals::Open(300.0), threads: 2, connections: 10, ..LoadPlan::new(target) };
        let mut due = Vec::new();
        for agent in 0..3 {
            let share = share(&plan, agent, 3);
            assert_eq!(share.arrivals, Arrivals::Open(100.0));
            for thread in 0..2 {
                // As Pace::open has it.
                let first = share.phase.as_secs_f64() + f64::from(thread) / 100.0;
                due.extend((0..50).map(|unit| first + f64::from(unit) * 2.0 / 100.0));
            }
        }
        due.sort_by(f64::total_cmp);
        for (number, due) in due.iter().enumerate() {
            assert!((due - number as f64 / 300.0).abs() < 1e-6, "unit {number} is due at {due}");
        }
    }
}
