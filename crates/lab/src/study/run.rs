//! Carrying a study out: servers are started side by side and loaded in turn, round after round, so that what else the
//! machine does falls on all of them. After every cell the result is on disk.

use super::{
    catalogue::{Case, Origin, Procedure, Way},
    certificate,
    configuration::{self, Service},
    contestant::{self, Entrants, Surroundings, program},
    facts,
    network::Link,
    orchestration::{self, Inspection},
    perf,
    place::{self, Namespace, Placement, Step},
    result::{Cell, Outcome, Window},
    server::{Helper, Server, free_port},
    setup::{Setup, Wish},
    summary,
    window::{Conditions, Load, Measurement},
};
use crate::{
    LoadReport,
    load::{Doubt, Mode, Stop},
};
use penstock_doctor::{Cpu, Host};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{
    fs::File,
    io::Write,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ops::Range,
    path::{Path, PathBuf},
    time::Duration,
};

/// A unit that takes longer has failed: well above every bound on latency.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long a contestant is loaded before it is measured: a share of the window, within these bounds.
const WARM_UP: (f64, f64, f64) = (0.1, 0.2, 5.0);
/// How long perf watches, seconds: what takes a thousandth of the time is seen in that.
const WATCHED: (f64, f64) = (1.0, 10.0);

/// Servers of one group of cases on one number of cores, all running, with their contestants.
pub(super) struct Field {
    pub servers: Vec<(usize, Server)>,
}

/// A study in progress.
pub(super) struct Bench<'a> {
    pub setup: &'a Setup,
    pub outcome: Outcome,
    pub conditions: Conditions<'a>,
    pub tell: &'a mut dyn FnMut(&str),
    out: &'a Path,
    raw: File,
    /// The backend servers, stopped before their directory goes.
    origin: Option<Origins>,
    directory: tempfile::TempDir,
    server_side: Namespace,
    address: IpAddr,
    perf: bool,
}

/// The backend servers.
struct Origins {
    clear: SocketAddr,
    encrypted: SocketAddr,
    /// The one that has a certificate for every name.
    named: Option<SocketAddr>,
    /// The services that inspect.
    icap: Option<SocketAddr>,
    certificates: certificate::Origins,
    /// Stopped with the study.
    _servers: Vec<Server>,
}

/// Carries out what is wished for, telling how it goes on, until it ends or `stop` says so.
///
/// # Errors
/// A sentence: nothing could be measured at all. What was measured before something failed is in the outcome, which says why
/// it is partial.
pub fn run(wish: &Wish, stop: &Stop, tell: &mut dyn FnMut(&str)) -> Result<Outcome, String> {
    let mut setup = Setup::new(wish)?;
    more_descriptors()?;
    let host = Host::at("/");
    let has_origin = setup.cases.iter().any(|case| case.origin != Origin::None);
    // One core of each socket is where this begins.
    let begins_with_all = setup.study.across_sockets && wish.steps.is_empty() && !wish.quick;
    let sockets = [Cpu::of(&host).socket_count()];
    let asked = place::Asked {
        steps: if begins_with_all { &sockets } else { &setup.steps },
        across_sockets: setup.study.across_sockets,
        threads_per_core: setup.study.threads_per_core,
        server: &wish.server_cores,
        clients: &wish.client_cores,
        origin: &wish.origin_cores,
        has_origin,
        has_agents: !wish.agents.is_empty(),
    };
    let (mut placement, mut partial) = place::place(&host, &asked)?;
    let c_icap = inspectors(wish, &mut setup, &mut partial)?;
    placement.agents = wish.agents.iter().map(ToString::to_string).collect();
    let around = Surroundings {
        host: &host,
        penstock: wish.penstock.clone(),
        haproxy: wish.haproxy.clone(),
        nginx: wish.nginx.clone(),
        squid: wish.squid.clone(),
        sslsplit: wish.sslsplit.clone(),
        qat_libraries: wish.qat_libraries.clone(),
    };
    let entrants = contestant::choose(setup.study.name, &wish.contestants, &around)?;
    let nginx = if has_origin {
        Some(program("nginx", wish.nginx.as_deref()).map_err(|why| format!("{why}: the backend servers are nginx"))?)
    } else {
        None
    };
    let absences = || entrants.absent.iter().map(|(name, why)| format!("{name}: {why}"));
    if !wish.contestants.is_empty() {
        partial.extend(absences());
    }
    if entrants.present.is_empty() {
        return Err(format!("no contestant can take part: {}", absences().collect::<Vec<_>>().join("; ")));
    }
    std::fs::create_dir_all(&wish.out).map_err(|e| format!("{}: {e}", wish.out.display()))?;
    let raw_path = wish.out.join("raw.jsonl");
    let raw = File::create(&raw_path).map_err(|e| format!("{}: {e}", raw_path.display()))?;
    let directory = tempfile::Builder::new()
        .prefix("penstock-bench-")
        .tempdir()
        .map_err(|e| format!("no directory for servers: {e}"))?;
    let link = setup.network.map(|network| Link::new(&network, &placement)).transpose()?;
    let mut outcome = begin(wish, &setup, &host, &placement, entrants, link.as_ref());
    outcome.partial = partial;
    let (server_side, clients, address) = match &link {
        Some(link) => (link.server(), link.client(), link.address()),
        None => (None, None, wish.listen.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))),
    };
    let conditions = Conditions {
        placement: &placement,
        client_threads: setup.client_threads,
        clients,
        agents: &wish.agents,
        identity: wish.identity.as_ref(),
        stop,
    };
    let out = wish.out.as_path();
    let perf = wish.perf;
    let mut bench = Bench {
        setup: &setup,
        outcome,
        conditions,
        tell,
        out,
        raw,
        directory,
        server_side,
        address,
        origin: None,
        perf,
    };
    let done = bench.all(nginx.as_deref(), &wish.penstock, c_icap.as_deref());
    if let Err(why) = done {
        bench.outcome.partial.push(why);
    }
    if stop.is_stopped() {
        bench.outcome.partial.push("it was stopped by hand".into());
    }
    bench.save()?;
    let outcome = bench.outcome;
    if outcome.cells.iter().all(|cell| cell.windows.is_empty()) {
        return Err(format!("nothing was measured: {}", outcome.partial.join("; ")));
    }
    Ok(outcome)
}

/// The program of the services that inspect, where some case needs it. Where it is not there, such cases are left out.
fn inspectors(wish: &Wish, setup: &mut Setup, partial: &mut Vec<String>) -> Result<Option<PathBuf>, String> {
    if setup.cases.iter().all(|case| case.way.services() == 0) {
        return Ok(None);
    }
    let missing = match program("c-icap", wish.c_icap.as_deref()) {
        Ok(found) => return Ok(Some(found)),
        Err(why) => format!("{why}: nothing is inspected"),
    };
    setup.cases.retain(|case| case.way.services() == 0);
    if setup.cases.is_empty() {
        return Err(missing);
    }
    partial.push(missing);
    Ok(None)
}

/// As many descriptors as are allowed, for us and the servers that inherit it: a connection takes one on each side.
fn more_descriptors() -> Result<(), String> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
        .map_err(|e| format!("more descriptors cannot be had: {e}"))
}

/// The outcome of a study before anything is measured: its conditions, and what makes them doubtful.
fn begin(
    wish: &Wish,
    setup: &Setup,
    host: &Host,
    placement: &Placement,
    entrants: Entrants,
    link: Option<&Link>,
) -> Outcome {
    let Entrants { present: contestants, absent: left_out } = entrants;
    let study = setup.study;
    let date = summary::date_now();
    let machine = facts::facts(host, &contestants, &setup.cases, &date);
    let cpu = machine.iter().flat_map(|group| &group.facts).find(|(name, _)| name == "CPU").map_or("", |(_, cpu)| cpu);
    let mut notes: Vec<String> = Some(study.note.to_owned()).filter(|note| !note.is_empty()).into_iter().collect();
    let mut parameters = setup.parameters();
    if let Some(link) = link {
        parameters.extend(link.parameters());
        notes.push(link.how().to_owned());
    }
    let mut doubts: Vec<Doubt> = Vec::new();
    for overlap in placement.overlaps() {
        doubts.push(Doubt { kind: "shared-processors".into(), says: overlap });
    }
    if wish.quick {
        let says = "this is the short form: it shows that everything works, not what the machine can do".into();
        doubts.push(Doubt { kind: "quick".into(), says });
    }
    let doubles: Vec<&str> = contestants.iter().filter(|one| one.double).map(|one| one.name.as_str()).collect();
    if !doubles.is_empty() {
        let says = format!(
            "the device of {} is a double of one, which computes on this machine's processors: these figures are the double's, and say \
             nothing of a card",
            doubles.join(" and ")
        );
        doubts.push(Doubt { kind: "double".into(), says });
    }
    Outcome {
        format: Outcome::format(),
        study: study.name.into(),
        doc: study.doc.into(),
        source: format!("penstock bench study {}, {date}, {cpu}", study.name),
        command: wish.command.clone(),
        began: date,
        quick: wish.quick,
        partial: Vec::new(),
        measure: study.measure,
        parameters,
        notes,
        machine,
        contestants,
        left_out,
        placement: placement.clone(),
        commands: Vec::new(),
        cells: Vec::new(),
        doubts,
        stacks: std::collections::BTreeMap::new(),
        target_rate: setup.target_rate,
        modes: std::collections::BTreeMap::new(),
    }
}

impl Bench<'_> {
    fn all(&mut self, nginx: Option<&Path>, penstock: &Path, c_icap: Option<&Path>) -> Result<(), String> {
        if let Some(nginx) = nginx {
            self.start_origins(nginx, penstock, c_icap)?;
        }
        let setup = self.setup;
        for step in self.conditions.placement.steps.clone() {
            // Cases that the same servers can serve follow each other.
            let serving = |case: &Case| (case.key, case.origin, case.mode.keeps(), case.way);
            for cases in setup.cases.chunk_by(|a, b| serving(a) == serving(b)) {
                if !self.outcome.contestants.iter().any(|one| orchestration::serves(one, cases[0].way)) {
                    continue;
                }
                let field = self.start(&cases[0], &step)?;
                for case in cases {
                    match setup.study.procedure {
                        Procedure::Connections => self.rounds(&field, case, &step)?,
                        Procedure::Search => self.highest(&field, case, &step)?,
                        Procedure::Rates => self.rising(&field, case, &step)?,
                    }
                    self.save()?;
                    if self.conditions.stop.is_stopped() {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    fn start_origins(&mut self, nginx: &Path, penstock: &Path, c_icap: Option<&Path>) -> Result<(), String> {
        let home = self.directory.path().to_owned();
        let directory = home.join("origin");
        configuration::write_files(&directory)?;
        let cpus = self.conditions.placement.origin.clone();
        let port = || free_port(self.address, &self.server_side);
        let (clear, encrypted) = (port()?, port()?);
        let certificates = certificate::origins(&home)?;
        let connections = self.setup.connections;
        // Where TLS to the servers is what is measured, none of it is spared.
        let fresh = self.setup.cases.iter().any(|case| case.way != Way::Server);
        let text =
            configuration::origin(clear, encrypted, &certificates.certificate, &cpus, connections, &directory, fresh);
        let helper = Helper { name: "origin", program: nginx, before: &["-c"], text };
        let mut servers = vec![Server::helper(&helper, clear, &cpus, &directory, &self.server_side)?];
        let mut named = None;
        if self.setup.cases.iter().any(|case| case.origin == Origin::Named) {
            let (listen, authority) = (port()?, &certificates.authority);
            let own = &certificates.certificate;
            let helper = orchestration::for_every_name(penstock, listen, own, authority, clear, &cpus);
            servers.push(Server::helper(&helper, listen, &cpus, &home.join("names"), &self.server_side)?);
            named = Some(listen);
        }
        let mut icap = None;
        if let Some(program) = c_icap {
            let (listen, directory) = (port()?, home.join("services"));
            let helper = orchestration::services(program, listen, connections, &directory)?;
            servers.push(Server::helper(&helper, listen, &cpus, &directory, &self.server_side)?);
            icap = Some(listen);
        }
        for server in &servers {
            self.note_command(server);
        }
        self.origin = Some(Origins { clear, encrypted, named, icap, certificates, _servers: servers });
        Ok(())
    }

    fn note_command(&mut self, server: &Server) {
        let command = format!("{}: {}", server.name, server.command);
        if !self.outcome.commands.contains(&command) {
            self.outcome.commands.push(command);
        }
    }

    /// Starts everybody for a case. Who does not start is left out, and the result is partial.
    fn start(&mut self, case: &Case, step: &Step) -> Result<Field, String> {
        let certificate = certificate::file(self.directory.path(), case.key)?;
        let origin = self.origin.as_ref().and_then(|origins| match case.origin {
            Origin::None => None,
            Origin::Clear => Some((Origin::Clear, origins.clear)),
            Origin::Encrypted => Some((Origin::Encrypted, origins.encrypted)),
            Origin::Named => Some((Origin::Named, origins.named?)),
        });
        let inspection = match &self.origin {
            Some(origins) if case.way != Way::Server => Some(Inspection {
                authority: certificate::authority(self.directory.path(), case.key)?,
                roots: origins.certificates.roots.clone(),
                icap: origins.icap,
            }),
            _ => None,
        };
        let mut servers = Vec::new();
        for at in 0..self.outcome.contestants.len() {
            if !orchestration::serves(&self.outcome.contestants[at], case.way) {
                continue;
            }
            let service = Service {
                listen: free_port(self.address, &self.server_side)?,
                certificate: certificate.clone(),
                cpus: step.cpus.clone(),
                connections: self.setup.connections,
                origin,
                keep_alive: case.mode.keeps(),
                way: case.way,
                inspection: inspection.clone(),
            };
            let contestant = &mut self.outcome.contestants[at];
            match Server::start(contestant, &service, self.directory.path(), &self.server_side) {
                Ok(server) => {
                    self.note_command(&server);
                    servers.push((at, server));
                }
                Err(why) => {
                    (self.tell)(&why);
                    self.outcome.partial.push(why);
                }
            }
        }
        if servers.is_empty() {
            return Err("no contestant started".into());
        }
        Ok(Field { servers })
    }

    /// An empty cell.
    pub(super) fn cell(&self, at: usize, case: &Case, step: &Step, offered: Option<f64>) -> Cell {
        Cell {
            contestant: self.outcome.contestants[at].name.clone(),
            case: case.name.clone(),
            units: case.mode.units().into(),
            origin: case.origin,
            cores: step.cores,
            threads: step.cpus.len(),
            offered,
            negotiated: Vec::new(),
            windows: Vec::new(),
            probes: Vec::new(),
            remarks: Vec::new(),
        }
    }

    /// Puts a cell among the results; its place there.
    pub(super) fn add(&mut self, cell: Cell) -> usize {
        self.outcome.cells.push(cell);
        self.outcome.cells.len() - 1
    }

    /// Measures every cell in turn, as often as there are rounds. A server that fails is left out from then on.
    pub(super) fn in_turns(
        &mut self,
        field: &Field,
        case: &Case,
        step: &Step,
        turns: &[Measurement],
        rounds: Range<usize>,
    ) -> Result<(), String> {
        let mut failed = vec![false; turns.len()];
        for round in rounds {
            // The first of a round meets the other's leftovers in the caches: they take turns at being first.
            let forward: Vec<usize> = (0..turns.len()).collect();
            let order = if round % 2 == 0 { forward } else { forward.into_iter().rev().collect() };
            for at in order {
                if failed[at] || self.conditions.stop.is_stopped() {
                    continue;
                }
                let turn = turns[at];
                let server = &field.servers[turn.place].1;
                match self.conditions.measure(server, case, step, turn.load, round) {
                    Ok((window, report)) => self.keep(turn.cell, window, &report)?,
                    Err(why) => {
                        failed[at] = true;
                        self.failed(turn.cell, &why);
                    }
                }
            }
        }
        Ok(())
    }

    /// Says why a cell is not measured any further.
    pub(super) fn failed(&mut self, cell: usize, why: &str) {
        let cell = &self.outcome.cells[cell];
        let why = format!("{}, {}: {why}", cell.contestant, cell.case);
        (self.tell)(&why);
        self.outcome.partial.push(why);
    }

    /// Takes a window into its cell, and the whole report into the raw data.
    pub(super) fn keep(&mut self, at: usize, window: Window, report: &LoadReport) -> Result<(), String> {
        let cell = &mut self.outcome.cells[at];
        let line = serde_json::json!({ "contestant": cell.contestant, "case": cell.case, "cores": cell.cores,
            "offered": cell.offered, "round": window.round, "report": report });
        writeln!(self.raw, "{line}").map_err(|e| format!("cannot write the raw data: {e}"))?;
        cell.negotiated = summary::negotiated(report);
        (self.tell)(&summary::line(cell, &window));
        if window.done > 0 || !report.partial {
            cell.windows.push(window);
        }
        Ok(())
    }

    /// A load before the first measurement: caches, pools and tables are filled.
    pub(super) fn warm_up(
        &mut self,
        server: &Server,
        case: &Case,
        step: &Step,
        connections: usize,
    ) -> Result<(), String> {
        let (share, least, most) = WARM_UP;
        let seconds = (self.setup.seconds * share).clamp(least, most);
        let load = Load { connections, offered: None, seconds, timeout: self.timeout() };
        self.conditions.measure(server, case, step, load, 0).map(|_| ())
    }

    pub(super) fn timeout(&self) -> Duration {
        TIMEOUT.max(self.setup.bound * 2)
    }

    /// A fixed number of connections, each beginning again when it has finished.
    fn rounds(&mut self, field: &Field, case: &Case, step: &Step) -> Result<(), String> {
        let connections = self.setup.connections;
        let load = Load { connections, offered: None, seconds: self.setup.seconds, timeout: self.timeout() };
        let mut turns = Vec::new();
        for (place, (at, server)) in field.servers.iter().enumerate() {
            if self.conditions.stop.is_stopped() {
                return Ok(());
            }
            let cell = self.cell(*at, case, step, None);
            match self.warm_up(server, case, step, connections.min(64 * step.cpus.len())) {
                Ok(()) => turns.push(Measurement { place, cell: self.add(cell), load }),
                Err(why) => self.outcome.partial.push(format!("{}, {}: {why}", cell.contestant, case.name)),
            }
        }
        self.in_turns(field, case, step, &turns, 0..self.setup.rounds)?;
        self.stacks(field, case, step, &turns);
        Ok(())
    }

    /// With `--perf` one more load of each that has not been watched yet; its figures do not count.
    pub(super) fn stacks(&mut self, field: &Field, case: &Case, step: &Step, turns: &[Measurement]) {
        for Measurement { place, load, .. } in turns {
            let (at, server) = &field.servers[*place];
            let contestant = &self.outcome.contestants[*at];
            if !self.perf || self.outcome.stacks.contains_key(&contestant.name) || self.conditions.stop.is_stopped() {
                continue;
            }
            let (name, program) = (contestant.name.clone(), contestant.path.clone());
            let load = Load { seconds: load.seconds.clamp(WATCHED.0, WATCHED.1), ..*load };
            let threads = step.cpus.len();
            let recording = match perf::Recording::start(server.pid(), threads, load.seconds, self.directory.path()) {
                Ok(recording) => recording,
                Err(why) => {
                    self.outcome.partial.push(format!("--perf: {why}"));
                    self.perf = false;
                    return;
                }
            };
            (self.tell)(&format!("{name}: perf watches for {} s", load.seconds));
            let loaded = self.conditions.measure(server, case, step, load, 0);
            let seen = loaded.and_then(|_| recording.finish(&program)).and_then(|folded| {
                let path = self.out.join(format!("stacks-{name}.txt"));
                std::fs::write(&path, folded.lines()).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
                folded.stacks(format!("{}, {}", case.name, step.name())).ok_or_else(|| "perf saw nothing".to_owned())
            });
            match seen {
                Ok(stacks) => drop(self.outcome.stacks.insert(name, stacks)),
                Err(why) => self.outcome.partial.push(format!("--perf, {name}: {why}")),
            }
        }
    }

    /// Puts what there is on disk.
    fn save(&mut self) -> Result<(), String> {
        self.outcome.conclude();
        self.outcome.write(&self.out.join("result.json"))?;
        let page = crate::report::page(&self.outcome);
        let path = self.out.join("report.html");
        std::fs::write(&path, page).map_err(|e| format!("cannot write {}: {e}", path.display()))
    }
}

impl Mode {
    /// Whether connections are kept after a response.
    fn keeps(self) -> bool {
        matches!(self, Mode::KeepAlive | Mode::Download | Mode::Idle)
    }
}
