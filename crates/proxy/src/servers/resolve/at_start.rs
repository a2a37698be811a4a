//! Resolves the names of servers by the system before anything runs (`init-addr`).

use crate::{
    process::states::Saved,
    server::{AgentPlace, Backends, Host, Server},
};
use penstock_config::{
    Diagnostics,
    model::{InitAddr, ServerHost},
};
use std::{
    collections::BTreeMap,
    net::{IpAddr, ToSocketAddrs as _},
    sync::Arc,
};

/// Finds an address for every server whose line gives a name, by the methods of its `init-addr` in order.
pub(crate) fn resolve(backends: &Backends, saved: &Saved, diagnostics: &mut Diagnostics) {
    let mut known: BTreeMap<String, Option<IpAddr>> = BTreeMap::new();
    for backend in backends.iter() {
        for server in backend.servers().iter() {
            let settings = &server.config.settings;
            let agent = settings.agent.as_ref().and_then(|agent| agent.addr.as_ref());
            for (word, host) in [("addr", settings.check.addr.as_ref()), ("agent-addr", agent)] {
                let Some(ServerHost::Name(name)) = host else { continue };
                match known.entry(name.clone()).or_insert_with(|| system(name)) {
                    Some(ip) if word == "addr" => place_check(server, *ip),
                    Some(ip) => place_agent(server, *ip),
                    None => {
                        let text = format!("could not resolve '{name}', the '{word}' of {}", backends.name(server.at));
                        diagnostics.error(server.config.span, text).hint("write its IP address");
                    }
                }
            }
            let ServerHost::Name(name) = &server.config.host else { continue };
            let methods = match &server.config.settings.init_addr[..] {
                [] => &[InitAddr::Last, InitAddr::Libc][..],
                given => given,
            };
            let found = methods.iter().find_map(|method| match method {
                InitAddr::Last => saved.of(&backend.name, &server.name).and_then(|saved| saved.address).map(Some),
                InitAddr::Libc => known.entry(name.clone()).or_insert_with(|| system(name)).map(Some),
                InitAddr::Ip(ip) => Some(Some(*ip)),
                InitAddr::None => Some(None),
            });
            let at = server.at;
            match found {
                Some(Some(ip)) => backends.set_host(at, Some(Host::Ip(ip))),
                Some(None) => backends.start_unresolved(at),
                None => {
                    let text = format!("'server {}' : could not resolve address '{name}'", backends.name(at));
                    diagnostics.error(server.config.span, text).hint("'init-addr last,libc,none' starts without it");
                }
            }
        }
    }
}

/// Has a server checked at the address that the name in its `addr` has.
pub(crate) fn place_check(server: &Server, ip: IpAddr) {
    let mut place = **server.check_place.load();
    place.addr = Some(ip);
    server.check_place.store(Arc::new(place));
}

/// Gives the agent of a server the address that its name has.
pub(crate) fn place_agent(server: &Server, ip: IpAddr) {
    let place = AgentPlace { addr: Some(ip), ..AgentPlace::clone(&server.agent_place.load()) };
    server.agent_place.store(Arc::new(place));
}

/// The first address that the system finds for a name.
pub(crate) fn system(name: &str) -> Option<IpAddr> {
    (name, 0).to_socket_addrs().ok()?.next().map(|address| address.ip())
}
