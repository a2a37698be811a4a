//! Resolves the names of servers: by the system at start (`init-addr`), and by `resolvers` sections later.
//!
//! One task on the first worker asks for each name; the answer is distributed among the servers of each backend that
//! have the name, so that no two of them get the same address. A name with an underscore in front is a service's, whose SRV records
//! name hosts and ports (`services.rs`).

pub(crate) mod at_start;
pub mod counts;
mod distribute;
mod dns;
mod services;

use super::question::Question;
use crate::{
    process::shared::Shared,
    server::{Backends, Host, Notice, Server, ServerRef},
    worker::{pulse::Who, state::Worker, task},
};
use counts::{Count, NameServer, Section};
use distribute::{Wish, distribute};
use dns::{Answer, Family, Kind, Records};
use penstock_config::{model::Resolvers, syslog};
use std::cell::RefCell;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Starts to resolve the names that use `resolvers` sections.
pub(crate) fn start(worker: &Rc<Worker>) {
    for backend in worker.shared.backends.iter() {
        backend.servers().iter().for_each(|server| resolve_for(worker, server));
    }
}

/// Starts to resolve the name of a server, if its line has a `resolvers` section. Servers with the same name share
/// answers.
pub(crate) fn resolve_for(worker: &Rc<Worker>, server: &Server) {
    let settings = &server.config.settings;
    let is_service = server.config.srv_record().is_some();
    let name = server.config.srv_record().map(str::to_owned).or_else(|| server.fqdn().map(|name| String::clone(&name)));
    let (Some(resolvers), Some(name)) = (&settings.resolvers, name) else { return };
    let sections = &worker.shared.config.resolvers;
    let Some(section) = sections.iter().find(|section| section.name == resolvers.text) else { return };
    let ipv4 = settings.resolve_prefer_ipv4.unwrap_or(false);
    let key = (section.name.clone(), name.clone(), is_service, ipv4);
    if let Some(question) = worker.questions.borrow().get(&key) {
        let mut servers = question.servers.borrow_mut();
        if !servers.contains(&server.at) {
            servers.push(server.at);
        }
        // The sort is stable: the servers of a backend keep their order.
        servers.sort_by_key(|at| at.proxy);
        return;
    }
    let servers = RefCell::new(vec![server.at]);
    let question = Rc::new(Question { is_service, name, prefers_ipv4: ipv4, servers });
    worker.questions.borrow_mut().insert(key.clone(), question.clone());
    let (worker_, section) = (worker.clone(), section.clone());
    task::spawn(worker, Who::Worker, async move {
        match question.is_service {
            true => services::resolve(&worker_, section, &question).await,
            false => resolve(&worker_, section, &question).await,
        }
        worker_.questions.borrow_mut().remove(&key);
    });
}

/// Whether a name can be asked for.
pub(crate) fn is_name(name: &str) -> bool {
    dns::query(0, name, Kind::Addresses(Family::V4), 512).is_some()
}

/// The result of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Status {
    /// What was asked for, and the name server it came from.
    Valid(Records, String),
    NoSuchName,
    Refused,
    Timeout,
    Other,
}

impl Status {
    /// The word of `hold` for this result, its default time, and the reason shown for a server that goes down because
    /// of it.
    fn hold(&self) -> (&'static str, u64, &'static str) {
        match self {
            Status::Valid(..) => ("valid", 10, ""),
            Status::NoSuchName => ("nx", 30, "DNS NX status"),
            Status::Refused => ("refused", 30, "DNS refused status"),
            Status::Timeout => ("timeout", 30, "DNS timeout status"),
            Status::Other => ("other", 30, "unspecified DNS error"),
        }
    }
}

/// Keeps asking for one name for as long as a server has it.
async fn resolve(worker: &Worker, section: Resolvers, question: &Question) {
    let counted = &worker.shared.resolving;
    let Some(asked) = counted.sections.iter().find(|counted| counted.name == section.name) else { return };
    let backends = &worker.shared.backends;
    let mut last_valid: Option<Instant> = None;
    loop {
        let status = ask(&worker.shared, &section, asked, &question.name, &addresses(question.prefers_ipv4)).await;
        let servers = {
            let mut servers = question.servers.borrow_mut();
            // An operator may have given a server another name meanwhile.
            let has_the_name = |server: Arc<Server>| server.fqdn().is_some_and(|name| *name == question.name);
            servers.retain(|at| backends.server(*at).is_some_and(has_the_name));
            servers.clone()
        };
        if servers.is_empty() {
            return;
        }
        let (kind, default, reason) = status.hold();
        let hold = section.hold.get(kind).copied().unwrap_or(Duration::from_secs(default));
        let pause = match &status {
            Status::Valid(records, by) => {
                last_valid = Some(Instant::now());
                let changed = share_out(backends, &servers, &records.addresses, &format!("{}/{by}", section.name));
                if let Some(server) = asked.nameservers.iter().find(|server| server.name == *by && changed) {
                    server.count(Count::Update);
                }
                hold
            }
            _ => {
                counted.has_failed();
                if last_valid.is_none_or(|last| last.elapsed() >= hold) {
                    servers.iter().for_each(|at| backends.set_unresolved(*at, reason, Instant::now()));
                }
                section.timeout_resolve
            }
        };
        // A pause of zero would ask continuously.
        tokio::time::sleep(pause.max(Duration::from_millis(100))).await;
    }
}

/// The first address of a name, asked of the name servers of a section (`do-resolve`); an address is its own.
pub(crate) async fn address(shared: &Arc<Shared>, section: usize, name: &str, prefers_ipv4: bool) -> Option<IpAddr> {
    if let Ok(address) = name.trim_matches(['[', ']']).parse() {
        return Some(address);
    }
    let (conf, asked) = (shared.config.resolvers.get(section)?, shared.resolving.sections.get(section)?);
    match ask(shared, conf, asked, name, &addresses(prefers_ipv4)).await {
        Status::Valid(records, _) => records.addresses.first().copied(),
        _ => {
            shared.resolving.has_failed();
            None
        }
    }
}

/// The kinds to ask for to find a host: the preferred family, and the other if the name has no address of that.
fn addresses(prefers_ipv4: bool) -> [Kind; 2] {
    let first = if prefers_ipv4 { Family::V4 } else { Family::V6 };
    [Kind::Addresses(first), Kind::Addresses(first.other())]
}

/// Asks for the first kind of which there is anything. If no answer comes, it asks `resolve_retries` times in all, as HAProxy counts
/// them; an error is an answer.
async fn ask(shared: &Arc<Shared>, section: &Resolvers, asked: &Section, name: &str, kinds: &[Kind]) -> Status {
    for _ in 0..section.resolve_retries.max(1) {
        let mut status = Status::Timeout;
        for &kind in kinds {
            status = ask_once(shared, section, asked, name, kind).await;
            if matches!(status, Status::Valid(..) | Status::Timeout) {
                break;
            }
        }
        if status != Status::Timeout {
            return status;
        }
    }
    Status::Timeout
}

/// Asks all name servers at once: the first that knows anything decides, else the last that answers.
async fn ask_once(shared: &Arc<Shared>, section: &Resolvers, to: &Section, name: &str, kind: Kind) -> Status {
    let mut asked = JoinSet::new();
    let place = shared.resolving.sections.iter().position(|known| known.name == to.name).unwrap_or(0);
    for number in 0..to.nameservers.len() {
        let (name, payload, limit) = (name.to_string(), section.accepted_payload_size, section.timeout_retry);
        let shared = shared.clone();
        asked.spawn_local(async move {
            let server = &shared.resolving.sections[place].nameservers[number];
            let answer = timeout(limit, exchange(server, &name, kind, payload)).await;
            match &answer {
                Ok(Ok(Answer::Found(records))) if !records.is_empty() => server.count(Count::Valid),
                Ok(Ok(Answer::Found(_) | Answer::Failed)) => server.count(Count::Other),
                Ok(Ok(Answer::NoSuchName)) => server.count(Count::NoSuchName),
                Ok(Ok(Answer::Refused)) => server.count(Count::Refused),
                Ok(Err(_)) => server.count(Count::SendError),
                Err(_) => server.count(Count::Timeout),
            }
            if let Ok(Err(_)) = answer {
                tokio::time::sleep(limit).await;
            }
            (answer, server.name.clone())
        });
    }
    let mut status = Status::Timeout;
    while let Some(Ok((answer, by))) = asked.join_next().await {
        status = match answer {
            Ok(Ok(Answer::Found(records))) if !records.is_empty() => return Status::Valid(records, by),
            Ok(Ok(Answer::Found(_) | Answer::Failed)) => Status::Other,
            Ok(Ok(Answer::NoSuchName)) => Status::NoSuchName,
            Ok(Ok(Answer::Refused)) => Status::Refused,
            // Nothing listens there, which counts as no answer, and takes as long.
            Ok(Err(_)) | Err(_) => continue,
        };
    }
    status
}

/// Sends one question to one name server. The socket is new each time and connected, and the id random, so that a
/// forged answer has to guess both.
async fn exchange(server: &NameServer, name: &str, kind: Kind, payload: u16) -> io::Result<Answer> {
    let to = server.address;
    let local: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((local, 0)).await?;
    socket.connect(to).await?;
    let id = RandomState::new().build_hasher().finish() as u16;
    let query = dns::query(id, name, kind, payload).ok_or(io::ErrorKind::InvalidInput)?;
    socket.send(&query).await?;
    server.count(Count::Sent);
    // One byte more than is accepted: of a longer message the socket gives only the beginning, whose addresses are not
    // all there are.
    let accepted = usize::from(payload.max(512));
    let mut buffer = vec![0; accepted + 1];
    loop {
        let length = socket.recv(&mut buffer).await?;
        if length > accepted {
            server.count(Count::TooBig);
            continue;
        }
        match dns::answer(&buffer[..length], id, name, kind) {
            Some(answer) => return Ok(answer),
            None => server.count(Count::Invalid),
        }
    }
}

/// Gives each server of a backend an address of its own: the current one for as long as the answer includes it. Returns whether an
/// address has changed.
fn share_out(backends: &Backends, servers: &[ServerRef], addresses: &[IpAddr], by: &str) -> bool {
    let (mut by, mut changed) = (by, false);
    for group in servers.chunk_by(|a, b| a.proxy == b.proxy) {
        let Some(backend) = backends.get(group[0].proxy) else { continue };
        let servers: Vec<(ServerRef, Arc<Server>)> =
            group.iter().filter_map(|at| Some((*at, backend.get(at.server)?))).collect();
        let wishes: Vec<Wish<'_>> = servers.iter().map(|(_, server)| wish(server)).collect();
        for (((at, _), wish), is) in servers.iter().zip(&wishes).zip(distribute(&wishes, addresses)) {
            let was = wish.current;
            let Some(ip) = is else {
                backends.set_unresolved(*at, "No IP for server ", Instant::now());
                continue;
            };
            if was != Some(ip) {
                moved(backends, *at, was, ip, by);
                // The other servers' addresses come from the same answer.
                (by, changed) = ("DNS cache", true);
            }
            backends.set_resolved(*at, Instant::now());
        }
    }
    changed
}

/// Gives a server another address, and says so.
fn moved(backends: &Backends, at: ServerRef, was: Option<IpAddr>, ip: IpAddr, by: &str) {
    let was = was.map_or("(none)".to_string(), |was| was.to_string());
    let text = format!("{} changed its IP from {was} to {ip} by {by}.", backends.name(at));
    backends.announce(&Notice { proxy: at.proxy, severity: syslog::NOTICE, text, mailed: None });
    backends.set_host(at, Some(Host::Ip(ip)));
}

fn wish(server: &Server) -> Wish<'_> {
    let current = match server.endpoint.load().host {
        Some(Host::Ip(ip)) => Some(ip),
        _ => None,
    };
    let settings = &server.config.settings;
    Wish { current, networks: &settings.resolve_net, may_share: settings.resolve_allow_dup_ip }
}
