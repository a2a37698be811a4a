//! One measurement: a load on one server, what it cost the server, and what else the machine did meanwhile.

use super::{
    catalogue::Case,
    place::{Namespace, Placement, Step, inside},
    result::Window,
    server::Server,
    vitals::{Passed, Vitals},
};
use crate::{
    LoadPlan, LoadReport,
    agents::{self, Address, Identity},
    cost::{Cost, Meter, Who},
    load::{self, Arrivals, Doubt, Scheme, Stop, Target},
};
use std::time::Duration;

/// Share of the server's processors' time that may be stolen before it is worth a word.
const STEAL_MAX: f64 = 0.02;
/// Share of the server's processors that other processes may use before the report mentions it.
const OTHERS_MAX: f64 = 0.05;
/// A server that uses less than this share of its cores was not what set the rate.
const LIMIT_MIN: f64 = 0.9;

/// How much load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// The most connections at once.
    pub connections: usize,
    /// Arrivals a second; `None`: as many as it takes.
    pub offered: Option<f64>,
    /// How long, seconds.
    pub seconds: f64,
    /// A unit that takes longer has failed.
    pub timeout: Duration,
}

/// A cell that is measured once a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measurement {
    /// The server's place in the field.
    pub place: usize,
    /// The cell's place among the results.
    pub cell: usize,
    /// The load that the cell is measured under.
    pub load: Load,
}

/// What is the same for all windows of a study.
pub(super) struct Conditions<'a> {
    pub placement: &'a Placement,
    pub client_threads: usize,
    pub clients: Namespace,
    /// Machines that make the load, instead of this one, and who we are to them.
    pub agents: &'a [Address],
    pub identity: Option<&'a Identity>,
    pub stop: &'a Stop,
}

impl Conditions<'_> {
    /// The plan of a load.
    pub(super) fn plan(&self, server: &Server, case: &Case, load: Load) -> LoadPlan {
        let to = server.leads_to.unwrap_or(server.address);
        let (host, port) = (to.ip().to_string(), to.port());
        let target = Target { scheme: Scheme::Https, host, port, path: case.path.clone() };
        let name = case.way.name();
        let mut tls = case.tls.clone();
        tls.server_name = Some(name.into());
        let proxy = server.leads_to.map(|_| server.address);
        // Squid compares the field with the server's certificate, and with where the tunnel leads.
        let headers = proxy.map(|_| ("Host".to_owned(), format!("{name}:{port}"))).into_iter().collect();
        LoadPlan {
            proxy,
            headers,
            mode: case.mode,
            arrivals: load.offered.map_or(Arrivals::Closed, Arrivals::Open),
            connections: load.connections.max(self.agents.len()),
            threads: self.threads(load.connections),
            cores: self.placement.clients.iter().map(|number| *number as usize).collect(),
            duration: Duration::from_secs_f64(load.seconds),
            timeout: load.timeout,
            tls,
            ..LoadPlan::new(target)
        }
    }

    /// The threads of each machine: at most one for each processor, and none without a connection.
    fn threads(&self, connections: usize) -> usize {
        let processors = if self.agents.is_empty() { self.placement.clients.len() } else { self.client_threads };
        self.client_threads.min(processors).min(connections / self.agents.len().max(1)).max(1)
    }

    /// Measures the window; also returns the generator's whole report.
    ///
    /// # Errors
    ///
    /// A sentence, if the server does not answer as expected.
    pub(super) fn measure(
        &self,
        server: &Server,
        case: &Case,
        step: &Step,
        load: Load,
        round: usize,
    ) -> Result<(Window, LoadReport), String> {
        let plan = self.plan(server, case, load);
        let meter = Meter::start(&[Who::Pid(server.pid())]).map_err(|e| e.to_string())?;
        let vitals = Vitals::now();
        let done = inside(&[], &self.clients, || match self.agents {
            [] => load::run_with(&plan, self.stop, &mut |_| {}).map_err(|e| e.to_string()),
            agents => agents::run(&plan, agents, self.identity, self.stop, &mut |_| {}).map_err(|e| e.to_string()),
        });
        let mut report = done.map_err(|e| format!("cannot start the clients: {e}"))??;
        let passed = vitals.passed(&step.cpus);
        // The last connections are still being closed.
        std::thread::sleep(Duration::from_millis(50));
        let cost = meter.read();
        report.server = Some(cost);
        let window = self.window(&report, &cost, passed, step, load, round);
        Ok((window, report))
    }

    fn window(
        &self,
        report: &LoadReport,
        cost: &Cost,
        passed: Passed,
        step: &Step,
        load: Load,
        round: usize,
    ) -> Window {
        // Units that ended after the window were paid for like the others.
        let paid = (report.totals.done + report.totals.late).max(1) as f64;
        let cpu = cost.total().as_secs_f64();
        let shares = step
            .cpus
            .iter()
            .any(|number| self.placement.clients.contains(number) || self.placement.origin.contains(number));
        let others = if shares { 0.0 } else { (passed.busy_cores - cost.cores()).max(0.0) };
        let mut window = Window {
            round,
            connections: load.connections,
            seconds: report.seconds,
            done: report.totals.done,
            rate: report.rate(),
            bytes_a_second: if report.seconds > 0.0 { report.totals.body_bytes as f64 / report.seconds } else { 0.0 },
            cpu_us: cpu * 1e6 / paid,
            cpu_system: if cpu > 0.0 { cost.system_seconds / cpu } else { 0.0 },
            server_cores: cost.cores(),
            full_handshakes: report.totals.full_handshakes,
            resumed_handshakes: report.totals.resumed_handshakes,
            failed: report.failed() + unsuccessful(report),
            latency: report.latency.total.clone(),
            client_busy: report.client.busiest_thread,
            client_us: report.client.cpu_us_per_unit,
            steal: passed.steal,
            others,
            doubts: report.doubts.clone(),
        };
        let own = doubts(&window, step, load, report.client.bottleneck);
        window.doubts.extend(own);
        let unsuccessful = unsuccessful(report);
        if unsuccessful > 0 {
            let says = format!("{unsuccessful} responses were not those that were asked for, by their status");
            window.doubts.push(Doubt { kind: "statuses".into(), says });
        }
        window
    }
}

/// Responses that say that something is wrong: they are cheaper than what was asked for.
fn unsuccessful(report: &LoadReport) -> u64 {
    report.statuses.iter().filter(|(class, _)| *class != "2xx").map(|(_, n)| n).sum()
}

fn doubts(window: &Window, step: &Step, load: Load, client_is_bottleneck: bool) -> Vec<Doubt> {
    let mut found = Vec::new();
    let mut doubt = |kind: &str, says: String| found.push(Doubt { kind: kind.into(), says });
    let given = step.cpus.len() as f64;
    if window.steal > STEAL_MAX {
        let share = window.steal * 100.0;
        doubt("steal", format!("the hypervisor gave {share:.0} % of the server's processors to other machines"));
    }
    if window.others > OTHERS_MAX * given {
        let cores = window.others;
        doubt("neighbours", format!("other programs used {cores:.2} of the server's {given:.0} processors"));
    }
    if load.offered.is_none() && !client_is_bottleneck && window.server_cores + window.others < LIMIT_MIN * given {
        let used = window.server_cores;
        doubt(
            "not-at-its-limit",
            format!("the server used {used:.2} of its {given:.0} processors: something else set the rate"),
        );
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Histogram;

    fn window() -> Window {
        Window {
            round: 0,
            connections: 64,
            seconds: 30.0,
            done: 30_000,
            rate: 1000.0,
            bytes_a_second: 0.0,
            cpu_us: 950.0,
            cpu_system: 0.2,
            server_cores: 0.97,
            full_handshakes: 30_000,
            resumed_handshakes: 0,
            failed: 0,
            latency: Histogram::default(),
            client_busy: 0.3,
            client_us: 150.0,
            steal: 0.0,
            others: 0.0,
            doubts: Vec::new(),
        }
    }

    #[test]
    fn what_the_machine_did_besides_is_said() {
        let step = Step { cores: 1, cpus: vec![0] };
        let load = Load { connections: 64, offered: None, seconds: 30.0, timeout: Duration::from_secs(10) };
        let kinds = |window: Window, load: Load, bottleneck: bool| -> Vec<String> {
            doubts(&window, &step, load, bottleneck).into_iter().map(|doubt| doubt.kind).collect()
        };
        assert!(kinds(window(), load, false).is_empty());
        assert_eq!(kinds(Window { steal: 0.1, ..window() }, load, false), ["steal"]);
        assert_eq!(kinds(Window { others: 0.2, ..window() }, load, false), ["neighbours"]);
        let idle = || Window { server_cores: 0.5, ..window() };
        assert_eq!(kinds(idle(), load, false), ["not-at-its-limit"]);
        // What others used, it could not have.
        assert_eq!(kinds(Window { others: 0.45, ..idle() }, load, false), ["neighbours"]);
        // The generator says so itself, and at a fixed rate no side is expected to be at its limit.
        assert!(kinds(idle(), load, true).is_empty());
        assert!(kinds(idle(), Load { offered: Some(500.0), ..load }, false).is_empty());
    }
}
