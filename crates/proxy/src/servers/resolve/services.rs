//! Servers whose hosts and ports are those of a service: its SRV records (RFC 2782) name them, and each server has one.

use super::{
    Status, addresses, ask,
    counts::{Count, Section},
    distribute::distribute,
    dns::{Kind, Service},
    moved, wish,
};
use crate::{
    server::{Backends, Endpoint, Server, ServerRef},
    servers::question::Question,
    worker::state::Worker,
};
use penstock_config::model::{Resolvers, ServerPort};
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

/// HAProxy's reason for a server that goes down because the service is no longer where it is.
const REMOVED: &str = "entry removed from SRV record";

/// Keeps asking for a service for as long as a server has its name, and for the hosts whose addresses do not come along.
pub(super) async fn resolve(worker: &Worker, section: Resolvers, question: &Question) {
    let counted = &worker.shared.resolving;
    let Some(asked) = counted.sections.iter().find(|counted| counted.name == section.name) else { return };
    let backends = &worker.shared.backends;
    let mut last_valid: Option<Instant> = None;
    let mut hosts_last_valid: HashMap<String, Instant> = HashMap::new();
    loop {
        let status = ask(&worker.shared, &section, asked, &question.name, &[Kind::Services]).await;
        question.servers.borrow_mut().retain(|at| backends.server(*at).is_some());
        let servers = question.servers.borrow().clone();
        if servers.is_empty() {
            return;
        }
        let (kind, default, _) = status.hold();
        let hold = section.hold.get(kind).copied().unwrap_or(Duration::from_secs(default));
        let pause = match status {
            Status::Valid(records, by) => {
                last_valid = Some(Instant::now());
                let wanted = share_out(backends, &servers, records.services, question.prefers_ipv4);
                if wanted.changed {
                    updated(asked, &by);
                }
                hosts_last_valid.retain(|host, _| wanted.unknown.contains(host));
                find(worker, &section, question, &servers, wanted.unknown, &mut hosts_last_valid).await;
                hold
            }
            _ => {
                counted.has_failed();
                if last_valid.is_none_or(|last| last.elapsed() >= hold) {
                    servers.iter().for_each(|at| free(backends, *at));
                }
                section.timeout_resolve
            }
        };
        // A pause of zero would ask continuously.
        tokio::time::sleep(pause.max(Duration::from_millis(100))).await;
    }
}

/// What remains to be done for an answer.
struct Wanted {
    /// The hosts whose addresses did not come along.
    unknown: Vec<String>,
    /// Whether an address has changed.
    changed: bool,
}

/// Gives each server of a backend a place of its own: the current one for as long as the answer includes it.
fn share_out(backends: &Backends, servers: &[ServerRef], mut services: Vec<Service>, prefers_ipv4: bool) -> Wanted {
    services.iter_mut().for_each(|service| service.addresses.sort_by_key(|ip| ip.is_ipv4() != prefers_ipv4));
    let services = places(services);
    let mut wanted = Wanted { unknown: Vec::new(), changed: false };
    for group in servers.chunk_by(|a, b| a.proxy == b.proxy) {
        let Some(backend) = backends.get(group[0].proxy) else { continue };
        let servers: Vec<Arc<Server>> = group.iter().filter_map(|at| backend.get(at.server)).collect();
        let held: Vec<Option<(String, u16)>> = servers.iter().map(|server| held(server)).collect();
        for ((server, held), place) in servers.iter().zip(&held).zip(assign(&held, &services)) {
            let at = server.at;
            let service = place.map(|place| &services[place]);
            if held.as_ref().map(|(host, port)| (host.as_str(), *port)) != service.map(Service::place) {
                free(backends, at);
            }
            let Some(service) = service else { continue };
            if held.is_none() || server.fqdn().is_none() {
                server.set_fqdn(Some(&service.target));
                backends.set_endpoint(at, Endpoint { host: None, port: ServerPort::Fixed(service.port) });
            }
            let weight = weight(service.weight);
            let is_weighed = backend.has_dynamic_weights() && !server.config.settings.resolve_ignore_weight;
            if is_weighed && backends.status(at).is_some_and(|status| status.weight != weight) {
                backends.set_weight(at, weight, Instant::now());
            }
            if !service.addresses.is_empty() {
                wanted.changed |= place_at(backends, server, &service.addresses, "DNS additional record");
            } else if !wanted.unknown.contains(&service.target) {
                wanted.unknown.push(service.target.clone());
            }
        }
    }
    wanted
}

/// Asks for the addresses of hosts, all at a time, and gives them to the servers that are there.
async fn find(
    worker: &Worker,
    section: &Resolvers,
    question: &Question,
    servers: &[ServerRef],
    hosts: Vec<String>,
    last_valid: &mut HashMap<String, Instant>,
) {
    let backends = &worker.shared.backends;
    let kinds = addresses(question.prefers_ipv4);
    let mut asking = JoinSet::new();
    for host in hosts {
        let (shared, section) = (worker.shared.clone(), section.clone());
        asking.spawn_local(async move {
            let asked = shared.resolving.sections.iter().find(|counted| counted.name == section.name)?;
            Some((ask(&shared, &section, asked, &host, &kinds).await, host))
        });
    }
    while let Some(Ok(Some((status, host)))) = asking.join_next().await {
        let of_the_host =
            |at: &ServerRef| backends.server(*at).filter(|server| server.fqdn().is_some_and(|name| *name == host));
        let servers = servers.iter().filter_map(of_the_host);
        let (kind, default, reason) = status.hold();
        let hold = section.hold.get(kind).copied().unwrap_or(Duration::from_secs(default));
        match status {
            Status::Valid(records, by) => {
                last_valid.insert(host.clone(), Instant::now());
                let from = format!("{}/{by}", section.name);
                let changed =
                    servers.fold(false, |any, server| place_at(backends, &server, &records.addresses, &from) | any);
                let counted = &worker.shared.resolving.sections;
                if let Some(asked) = counted.iter().find(|counted| counted.name == section.name && changed) {
                    updated(asked, &by);
                }
            }
            _ => {
                worker.shared.resolving.has_failed();
                if last_valid.get(&host).is_none_or(|last| last.elapsed() >= hold) {
                    servers.for_each(|server| backends.set_unresolved(server.at, reason, Instant::now()));
                }
            }
        }
    }
}

fn updated(asked: &Section, by: &str) {
    if let Some(server) = asked.nameservers.iter().find(|server| server.name == by) {
        server.count(Count::Update);
    }
}

/// Gives a server an address of its host. Servers with different ports may share one, since they are different places.
fn place_at(backends: &Backends, server: &Server, addresses: &[IpAddr], by: &str) -> bool {
    let wish = wish(server);
    let Some(ip) = distribute(std::slice::from_ref(&wish), addresses)[0] else { return false };
    if wish.current != Some(ip) {
        moved(backends, server.at, wish.current, ip, by);
    }
    backends.set_resolved(server.at, Instant::now());
    wish.current != Some(ip)
}

/// Takes a server's place away.
fn free(backends: &Backends, at: ServerRef) {
    let Some(server) = backends.server(at).filter(|server| server.fqdn().is_some()) else { return };
    backends.set_unresolved(at, REMOVED, Instant::now());
    server.set_fqdn(None);
    backends.set_endpoint(at, Endpoint { host: None, port: ServerPort::Fixed(0) });
}

/// The place that a server has.
fn held(server: &Server) -> Option<(String, u16)> {
    match (server.fqdn(), server.endpoint.load().port) {
        (Some(host), ServerPort::Fixed(port)) => Some((String::clone(&host), port)),
        _ => None,
    }
}

impl Service {
    fn place(&self) -> (&str, u16) {
        (&self.target, self.port)
    }
}

/// Each place once; those of the lowest priority first, which is the order in which they are to be used (RFC 2782).
fn places(mut services: Vec<Service>) -> Vec<Service> {
    services.sort_by_key(|service| service.priority);
    let mut places: Vec<Service> = Vec::new();
    for service in services {
        if places.iter().all(|known| known.place() != service.place()) {
            places.push(service);
        }
    }
    places
}

/// The number of the place of each server, in the order of the servers: the one it holds, or the first that none has.
fn assign(held: &[Option<(String, u16)>], places: &[Service]) -> Vec<Option<usize>> {
    let mut free = vec![true; places.len()];
    let mut given: Vec<Option<usize>> = Vec::with_capacity(held.len());
    for held in held {
        let held = held.as_ref().map(|(host, port)| (host.as_str(), *port));
        let place = places.iter().position(|service| Some(service.place()) == held).filter(|place| free[*place]);
        if let Some(place) = place {
            free[place] = false;
        }
        given.push(place);
    }
    let mut rest = (0..places.len()).filter(|place| free[*place]);
    given.into_iter().map(|place| place.or_else(|| rest.next())).collect()
}

/// The weight of a server: HAProxy's, from 0 to 256 as the record's is from 0 to 65535.
fn weight(of_record: u16) -> u32 {
    u32::from(of_record).div_ceil(256)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(priority: u16, target: &str, port: u16) -> Service {
        Service { priority, weight: 0, port, target: target.into(), addresses: Vec::new() }
    }

    #[test]
    fn servers_keep_their_places_and_share_the_rest() {
        let places = places(vec![at(5, "c", 1), at(1, "a", 1), at(1, "a", 2), at(1, "a", 1), at(2, "b", 1)]);
        let order: Vec<_> = places.iter().map(Service::place).collect();
        assert_eq!(order, [("a", 1), ("a", 2), ("b", 1), ("c", 1)]);
        assert_eq!(assign(&[None, None], &places), [Some(0), Some(1)]);
        let held = |host: &str, port| Some((host.to_owned(), port));
        assert_eq!(assign(&[None, held("c", 1), held("a", 3), None, None], &places)[..3], [Some(0), Some(3), Some(1)]);
        assert_eq!(assign(&[held("b", 1), held("b", 1)], &places), [Some(2), Some(0)]);
        assert_eq!(assign(&[held("b", 1), None], &places[..1]), [Some(0), None]);
        assert_eq!(assign(&[held("b", 1)], &[]), [None]);
    }

    #[test]
    fn weights_are_haproxys() {
        assert_eq!([0, 1, 100, 256, 257, 65535].map(weight), [0, 1, 1, 1, 2, 256]);
    }
}
