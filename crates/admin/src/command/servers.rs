//! Commands about servers: their states in the form that survives a reload, their connections, and changes by an
//! operator.

use super::{Answer, Executor, Piece};
use penstock_config::model::ServerPort;
use penstock_control::{Change, Health, Servers, Severity, address_of};
use penstock_proxy::{
    Handle,
    server::{
        Admin, AgentPlace, Backends, Check, Command, Endpoint, FIXED_WEIGHTS, Host, Operational, Server, Status,
        maxconn_of, weight_of,
    },
    snapshot::{Kind, Row},
};
use serde_json::{Map, Value as Json, json};
use std::{
    net::{IpAddr, ToSocketAddrs as _},
    sync::Arc,
    time::Instant,
};

/// The version of the format, and its fields: those of `server-state-file`.
const STATE_VERSION: &str = "1";
const STATE: [&str; 25] = [
    "be_id",
    "be_name",
    "srv_id",
    "srv_name",
    "srv_addr",
    "srv_op_state",
    "srv_admin_state",
    "srv_uweight",
    "srv_iweight",
    "srv_time_since_last_change",
    "srv_check_status",
    "srv_check_result",
    "srv_check_health",
    "srv_check_state",
    "srv_agent_state",
    "bk_f_forced_id",
    "srv_f_forced_id",
    "srv_fqdn",
    "srv_port",
    "srvrecord",
    "srv_use_ssl",
    "srv_check_port",
    "srv_check_addr",
    "srv_agent_addr",
    "srv_agent_port",
];

/// How logs describe the origin of a change of health.
const CLI: &str = "changed from CLI";

/// How answers describe the origin of a change of address.
const BY: &str = "stats socket command";

impl Executor {
    pub(super) fn servers(&self, command: Servers) -> Answer {
        let shared = self.handle.shared();
        match command {
            Servers::Backends { json } => {
                let backends = shared.backends.iter().map(|backend| backend.name.as_str());
                if json {
                    return Answer::data(json!(backends.collect::<Vec<_>>()).to_string());
                }
                let lines = backends.map(|name| format!("{name}\n")).collect::<String>();
                Answer::data(format!("# name\n{lines}"))
            }
            Servers::State { backend, json } => match self.rows(backend.as_deref()) {
                Ok(rows) => states(self.handle.clone(), rows, json),
                Err(answer) => answer,
            },
            Servers::Connections { backend, json } => match self.rows(backend.as_deref()) {
                Ok(rows) => connections(self.handle.clone(), rows, json),
                Err(answer) => answer,
            },
            Servers::Weight(name) => match self.server(&name) {
                Ok(server) => {
                    let weight = shared.backends.status(server.at).map_or(0, |status| status.weight);
                    Answer::data(format!("{weight} (initial {})\n", server.config.settings.weight))
                }
                Err(sentence) => Answer::error(sentence),
            },
            Servers::Set(name, change) => match (self.server(&name), change) {
                (Err(sentence), _) => Answer::error(sentence),
                (Ok(_), Err(refusal)) => Answer::error(refusal.0),
                (Ok(server), Ok(change)) => self.change(&server, change),
            },
        }
    }

    /// The servers of one backend, or of all.
    fn rows(&self, backend: Option<&str>) -> Result<Vec<Row>, Answer> {
        let only = match backend {
            None => None,
            Some(word) => match self.handle.backend(word) {
                Some(backend) => Some(backend.proxy),
                None => return Err(Answer::error("Can't find backend.")),
            },
        };
        let mut rows = self.handle.snapshot().rows;
        rows.retain(|row| row.kind == Kind::Server && only.is_none_or(|proxy| row.proxy == proxy));
        Ok(rows)
    }

    /// Finds a server by `backend/server`; either may be `#` and a number.
    fn server(&self, name: &str) -> Result<Arc<Server>, &'static str> {
        let (backend, server) = name.split_once('/').ok_or("Require 'backend/server'.")?;
        let backend = self.handle.backend(backend).ok_or("No such backend.")?;
        backend.server_called(server).ok_or("No such server.")
    }

    fn change(&self, server: &Arc<Server>, change: Change) -> Answer {
        let (at, settings) = (server.at, &server.config.settings);
        let backends = &self.handle.shared().backends;
        let command = |command| {
            backends.command(at, command, CLI, Instant::now());
            Answer::nothing()
        };
        let Some(status) = backends.status(at) else { return Answer::error("No such server.") };
        let unchecked = || Answer::say(Severity::Warning, "health checks are not enabled on this server");
        match change {
            Change::Ready => command(Command::Ready),
            Change::Drain => command(Command::Drain),
            Change::Maint => {
                let answer = command(Command::Maint);
                backends.set_admin(at, Admin::FORCED_DRAIN, false, backends.started().elapsed());
                answer
            }
            Change::ShutdownSessions => command(Command::ShutdownSessions),
            Change::Weight(written) => {
                let initial = settings.weight;
                let is_dynamic = backends.get(at.proxy).is_some_and(|backend| backend.has_dynamic_weights());
                match weight_of(&written, initial) {
                    Ok(weight) if weight != 0 && weight != initial && !is_dynamic => Answer::error(FIXED_WEIGHTS),
                    Ok(weight) => command(Command::Weight(weight)),
                    Err(sentence) => Answer::error(sentence),
                }
            }
            Change::Health(_) if backends.tracked_by(at).is_some() => {
                Answer::error("cannot change health on a tracking server.")
            }
            Change::Health(Health::Up) => command(Command::HealthUp),
            Change::Health(Health::Stopping) => command(Command::HealthStopping),
            Change::Health(Health::Down) => command(Command::HealthDown),
            Change::Agent(_) | Change::AgentSend(_) if status.live_agent().is_none() => {
                Answer::error("agent checks are not enabled on this server.")
            }
            Change::Agent(None) => Answer::error("'set server <srv> agent' expects 'up' or 'down'."),
            Change::Agent(Some(true)) => command(Command::AgentUp),
            Change::Agent(Some(false)) => command(Command::AgentDown),
            Change::AgentAddress(..) | Change::AgentPort(_) if status.live_agent().is_none() => {
                Answer::say(Severity::Warning, "agent checks are not enabled on this server")
            }
            Change::AgentAddress(address, port) => move_agent(server, Some(&address), port.as_deref()),
            Change::AgentPort(port) => move_agent(server, None, Some(&port)),
            Change::AgentSend(send) => {
                let place = AgentPlace { send, ..AgentPlace::clone(&server.agent_place.load()) };
                server.agent_place.store(Arc::new(place));
                Answer::nothing()
            }
            Change::AgentAsked(true) if status.agent.is_none() => {
                Answer::error("Agent was not configured on this server, cannot enable.")
            }
            Change::AgentAsked(on) => {
                backends.set_asked(at, on);
                Answer::nothing()
            }
            Change::Checked(true) if status.check.is_none() => {
                Answer::error("Health check was not configured on this server, cannot enable.")
            }
            Change::Checked(false) if status.check.is_none() => Answer::nothing(),
            Change::Checked(on) => {
                backends.set_checked(at, on);
                Answer::nothing()
            }
            Change::CheckPort(_) | Change::CheckAddress(..) if status.live_check().is_none() => unchecked(),
            Change::CheckPort(port) => move_check(server, None, Some(&port)),
            Change::CheckAddress(address, port) => move_check(server, Some(&address), port.as_deref()),
            Change::Address { address, port } => move_server(backends, server, &address, port.as_deref()),
            Change::Tls(_) if server.dynamic => {
                Answer::error("'set server <srv> ssl' not supported on dynamic servers")
            }
            Change::Tls(_) if settings.prepared_tls().is_none() => {
                Answer::error("'set server <srv> ssl' cannot be set.  default-server should define ssl settings")
            }
            Change::Tls(None) => Answer::error("'set server <srv> ssl' expects 'on' or 'off'."),
            Change::Tls(Some(on)) => {
                server.set_encrypted(on);
                Answer::say(Severity::Notice, "server ssl setting updated.")
            }
            Change::Fqdn(_) if settings.resolvers.is_none() => {
                Answer::error("set server <b>/<s> fqdn failed because no resolution is configured.")
            }
            Change::Fqdn(_) if server.config.srv_record().is_some() => {
                Answer::error("set server <b>/<s> fqdn failed because SRV resolution is configured.")
            }
            Change::Fqdn(name) => self.rename(server, &name),
            Change::MaxConn(written) => match maxconn_of(&written) {
                Ok(maxconn) => {
                    backends.set_maxconn(at, maxconn);
                    Answer::nothing()
                }
                Err(sentence) => Answer::error(sentence),
            },
        }
    }

    /// `set server B/S fqdn NAME`: the name is asked for at once, and the server keeps its address until there is an answer.
    fn rename(&self, server: &Server, name: &str) -> Answer {
        let of = self.handle.shared().backends.name(server.at);
        let before = server.fqdn();
        let text = if before.as_deref().is_some_and(|before| before == name) {
            // HAProxy's spelling.
            "no need to change the FDQN".to_string()
        } else if self.handle.set_fqdn(server.at, name) {
            let before = before.as_deref().map_or("(null)", String::as_str);
            format!("{of} changed its FQDN from {before} to {name}")
        } else {
            format!("could not update {of} FQDN")
        };
        Answer::say(Severity::Warning, format!("{text} by '{BY}'"))
    }
}

/// `set server B/S addr ADDRESS [port PORT]`: nothing changes unless both can be used.
fn move_server(backends: &Backends, server: &Server, address: &str, port: Option<&str>) -> Answer {
    let say = |text: String| Answer::say(Severity::Warning, text);
    let Some(ip) = address_of(address) else { return say(format!("Invalid addr '{address}'")) };
    let before = server.endpoint.load_full();
    let check = &server.config.settings.check;
    let mut moved = Endpoint { host: Some(Host::Ip(ip)), port: before.port };
    if let Some(written) = port {
        moved.port = match port_of(written) {
            None => return say(format!("problem converting port '{written}' to an int")),
            // Checks would have no port to go to.
            Some(ServerPort::Offset(_)) if check.enabled && check.port.is_none() => {
                return say(format!("port '{written}' is relative to the client's: the server's checks need a 'port'"));
            }
            Some(port) => port,
        };
    }
    let mut changes = Vec::new();
    if moved.host != before.host {
        changes.push(format!("IP changed from '{}' to '{ip}'", host(before.host.as_ref())));
    }
    if moved.port != before.port {
        let written = |port| match port {
            ServerPort::Fixed(port) => port.to_string(),
            ServerPort::Offset(offset) => format!("{offset:+}"),
        };
        changes.push(format!("port changed from '{}' to '{}'", written(before.port), written(moved.port)));
    }
    if changes.is_empty() {
        return say("nothing changed".into());
    }
    backends.set_endpoint(server.at, moved);
    say(format!("{} by '{BY}'", changes.join(", ")))
}

/// `set server B/S check-addr ADDRESS [port PORT]`, and `check-port`.
fn move_check(server: &Server, address: Option<&str>, port: Option<&str>) -> Answer {
    let refused = |text: String| Answer::say(Severity::Warning, text);
    let mut place = **server.check_place.load();
    if let Some(written) = address {
        let Some(ip) = address_of(written) else { return refused(format!("invalid addr '{written}'")) };
        place.addr = Some(ip);
    }
    if let Some(written) = port {
        let Ok(number) = written.parse::<i64>() else { return refused("provided port is not an integer".into()) };
        let Ok(port) = u16::try_from(number) else { return refused("provided port is invalid".into()) };
        // 0 stands for the server's own.
        place.port = Some(port).filter(|port| *port > 0);
    }
    server.check_place.store(Arc::new(place));
    Answer::nothing()
}

/// `set server B/S agent-addr ADDRESS [port PORT]`, and `agent-port`. A name is resolved by the system, beside everything else.
fn move_agent(server: &Arc<Server>, address: Option<&str>, port: Option<&str>) -> Answer {
    if let Some(name) = address.filter(|written| address_of(written).is_none()) {
        let (server, name, port) = (server.clone(), name.to_owned(), port.map(str::to_owned));
        return Answer::beside("resolve", move |pieces| {
            let found = (name.as_str(), 0).to_socket_addrs().ok().and_then(|mut found| found.next());
            let sentence = match found {
                Some(found) => place_agent(&server, Some(found.ip()), port.as_deref()),
                None => Err(format!("invalid addr '{name}'")),
            };
            if let Err(sentence) = sentence {
                pieces.give(Piece::Say(Severity::Warning, sentence));
            }
        });
    }
    match place_agent(server, address.and_then(address_of), port) {
        Ok(()) => Answer::nothing(),
        Err(sentence) => Answer::say(Severity::Warning, sentence),
    }
}

fn place_agent(server: &Server, address: Option<IpAddr>, port: Option<&str>) -> Result<(), String> {
    let mut place = AgentPlace::clone(&server.agent_place.load());
    place.addr = address.or(place.addr);
    if let Some(written) = port {
        let number = written.parse::<i64>().map_err(|_| "provided port is not an integer")?;
        place.port = u16::try_from(number).map_err(|_| "provided port is invalid")?;
    }
    server.agent_place.store(Arc::new(place));
    Ok(())
}

fn port_of(written: &str) -> Option<ServerPort> {
    match written.strip_prefix(['+', '-']) {
        Some(_) => written.parse().ok().filter(|offset: &i32| offset.abs() <= 65_535).map(ServerPort::Offset),
        None => written.parse().ok().map(ServerPort::Fixed),
    }
}

fn host(host: Option<&Host>) -> String {
    match host {
        Some(Host::Ip(ip)) => ip.to_string(),
        Some(Host::Unix(path)) => path.display().to_string(),
        Some(Host::Abstract(name)) => penstock_config::model::shown_abstract(name),
        None => "-".into(),
    }
}

/// A line of names followed by a line of values per entry; or JSON objects.
fn table(
    head: String,
    names: Vec<&'static str>,
    rows: impl Iterator<Item = Vec<Json>> + 'static,
    json: bool,
) -> Answer {
    let rows = rows.filter(|values| !values.is_empty());
    if json {
        let mut begun = false;
        let objects = rows.map(move |values| {
            let object: Map<String, Json> = names.iter().map(|name| name.to_string()).zip(values).collect();
            format!("{}{}", if std::mem::replace(&mut begun, true) { "," } else { "" }, Json::Object(object))
        });
        return Answer::lines(std::iter::once("[".into()).chain(objects).chain(std::iter::once("]\n".into())));
    }
    let word = |value: &Json| value.as_str().map_or_else(|| value.to_string(), str::to_string);
    let lines = rows.map(move |values| values.iter().map(word).collect::<Vec<_>>().join(" ") + "\n");
    Answer::lines(std::iter::once(head).chain(lines))
}

fn states(handle: Handle, rows: Vec<Row>, json: bool) -> Answer {
    let head = format!("{STATE_VERSION}\n# {}\n", STATE.join(" "));
    let rows = rows.into_iter().map(move |row| state(&handle, &row));
    table(head, STATE.to_vec(), rows, json)
}

fn state(handle: &Handle, row: &Row) -> Vec<Json> {
    let shared = handle.shared();
    let proxy = &shared.config.proxies[row.proxy];
    // If it was removed meanwhile, there is nothing more to show.
    let Some(server) = row.at.and_then(|at| shared.backends.server(at)) else { return Vec::new() };
    let (settings, endpoint) = (&server.config.settings, server.endpoint.load_full());
    let status = row.server.as_ref().map(|server| &server.status);
    let check = status.and_then(|status| status.check.as_ref());
    let agent = status.and_then(|status| status.agent.as_ref());
    let (place, agent_place) = (**server.check_place.load(), server.agent_place.load_full());
    let fqdn = server.fqdn().map_or_else(|| "-".into(), |name| String::clone(&name));
    // HAProxy's -1: switched off from the start.
    let tls = match server.is_encrypted() {
        true => 1,
        false if settings.no_ssl && !server.is_encryption_decided() => -1,
        false => 0,
    };
    let port = match endpoint.port {
        ServerPort::Fixed(port) => i32::from(port),
        ServerPort::Offset(offset) => offset,
    };
    let paused = status.is_some_and(|status| status.admin.maint());
    // The check of a server that was added is off, and not paused, until it is switched on.
    let is_paused =
        paused && check.map_or(settings.disabled && !server.dynamic, |check| check.enabled || !server.dynamic);
    // HAProxy's flags: 1 in progress, 2 configured, 4 switched on, 8 paused, 16 an agent.
    let state_of = |check: Option<&Check>| {
        check.map_or(0, |check| u32::from(check.running) | 2 | if check.enabled { 4 } else { 0 })
    };
    vec![
        json!(row.iid),
        json!(row.proxy_name),
        json!(row.sid),
        json!(row.name),
        json!(host(endpoint.host.as_ref())),
        json!(status.map_or(0, |status| operational(status.state))),
        json!(status.map_or(0, |status| admin(status, settings.disabled && !server.dynamic))),
        json!(status.map_or(0, |status| status.weight)),
        json!(settings.weight),
        json!(row.upstream.as_ref().map_or(0, |upstream| upstream.since.as_secs())),
        json!(check.map_or(1, check_number)),
        json!(check.map_or(0, check_result)),
        json!(if paused { 0 } else { check.map_or(settings.check.rise, |check| check.health) }),
        // Agents are not paused.
        json!(state_of(check) | if is_paused { 8 } else { 0 }),
        json!(state_of(agent) | if agent.is_some() { 16 } else { 0 }),
        json!(u32::from(proxy.id.is_some())),
        json!(u32::from(settings.id.is_some())),
        json!(fqdn),
        json!(port),
        json!(server.config.srv_record().unwrap_or("-")),
        json!(tls),
        json!(place.port.unwrap_or(0)),
        json!(place.addr.map_or_else(|| "-".to_string(), |ip| ip.to_string())),
        json!(agent_place.addr.map_or_else(|| "-".to_string(), |ip| ip.to_string())),
        json!(agent_place.port),
    ]
}

fn operational(state: Operational) -> u32 {
    match state {
        Operational::Stopped => 0,
        Operational::Starting => 1,
        Operational::Running => 2,
        Operational::Stopping => 3,
    }
}

/// HAProxy's flags.
fn admin(status: &Status, is_disabled_in_file: bool) -> u32 {
    let flags = [
        (Admin::FORCED_MAINT, 1),
        (Admin::INHERITED_MAINT, 2),
        (Admin::FORCED_DRAIN, 8),
        (Admin::INHERITED_DRAIN, 16),
        (Admin::UNRESOLVED, 32),
    ];
    let flags: u32 = flags.iter().filter(|(flag, _)| status.admin.has(*flag)).map(|(_, bit)| bit).sum();
    flags | if is_disabled_in_file { 4 } else { 0 }
}

/// HAProxy's number for a check's last result; 1 if there is none yet.
fn check_number(check: &Check) -> u32 {
    let numbers = [
        ("HANA", 4),
        ("SOCKERR", 5),
        ("L4OK", 6),
        ("L4TOUT", 7),
        ("L4CON", 8),
        ("L6OK", 9),
        ("L6TOUT", 10),
        ("L6RSP", 11),
        ("L7TOUT", 12),
        ("L7RSP", 13),
        ("L7OK", 15),
        ("L7OKC", 16),
        ("L7STS", 17),
        ("PROCERR", 18),
        ("PROCTOUT", 19),
        ("PROCOK", 20),
    ];
    numbers.iter().find(|(word, _)| *word == check.status).map_or(1, |(_, number)| *number)
}

/// 0 unknown, 2 failed, 3 passed, 4 conditionally passed.
fn check_result(check: &Check) -> u32 {
    match check.status {
        "" => 0,
        "L7OKC" => 4,
        "L4OK" | "L6OK" | "L7OK" | "PROCOK" => 3,
        _ => 2,
    }
}

fn connections(handle: Handle, rows: Vec<Row>, json: bool) -> Answer {
    const NAMES: [&str; 13] = [
        "bkname/svname",
        "bkid/svid",
        "addr",
        "port",
        "-",
        "purge_delay",
        "used_cur",
        "used_max",
        "need_est",
        "unsafe_nb",
        "safe_nb",
        "idle_lim",
        "idle_cur",
    ];
    let workers = handle.workers();
    let head = format!("# {} idle_per_thr[{workers}]\n", NAMES.join(" "));
    let mut names = NAMES.to_vec();
    names.push("idle_per_thr");
    let rows = rows.into_iter().map(move |row| {
        let totals = &row.totals;
        let shared = handle.shared();
        let Some(server) = row.at.and_then(|at| shared.backends.server(at)) else { return Vec::new() };
        let (settings, endpoint) = (&server.config.settings, server.endpoint.load_full());
        let port = match endpoint.port {
            ServerPort::Fixed(port) => i32::from(port),
            ServerPort::Offset(offset) => offset,
        };
        let idle = server.with.idle_by_worker();
        let per_worker =
            if json { json!(idle) } else { json!(idle.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")) };
        vec![
            json!(format!("{}/{}", row.proxy_name, row.name)),
            json!(format!("{}/{}", row.iid, row.sid)),
            json!(host(endpoint.host.as_ref())),
            json!(port),
            json!("-"),
            json!(settings.pool_purge_delay.as_millis() as u64),
            json!(totals.used_connections),
            json!(totals.needed_connections),
            json!(totals.needed_connections),
            json!(totals.idle_connections.saturating_sub(totals.safe_idle_connections)),
            json!(totals.safe_idle_connections),
            json!(settings.pool_max_conn),
            json!(totals.idle_connections),
            per_worker,
        ]
    });
    table(head, names, rows, json)
}
