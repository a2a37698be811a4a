//! Resolves the names of servers by the system before anything runs (`init-addr`).

use crate::{
    process::states::Saved,
    server::{AgentPlace, Backends, Host, Server},
};
use penstock_config::{
    Config, Diagnostics,
    model::{InitAddr, ServerHost, SourceAddress},
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
            let methods = match (&settings.init_addr[..], &settings.resolvers) {
                ([], None) => &[InitAddr::Last, InitAddr::Libc][..],
                // As in HAProxy, what name servers may find later need not be known now; the system knows no SRV records.
                ([], Some(_)) if name.starts_with('_') => &[InitAddr::Last, InitAddr::None],
                ([], Some(_)) => &[InitAddr::Last, InitAddr::Libc, InitAddr::None],
                (given, _) => given,
            };
            let found = methods.iter().find_map(|method| match method {
                // Which port it had is not known.
                InitAddr::Last if server.config.srv_record().is_some() => None,
                InitAddr::Last => saved.of(&backend.name, &server.name).and_then(|saved| saved.address).map(Some),
                InitAddr::Libc => known.entry(name.clone()).or_insert_with(|| system(name)).map(Some),
                InitAddr::Ip(ip) => Some(Some(*ip)),
                InitAddr::None => Some(None),
            });
            let at = server.at;
            match found {
                Some(Some(ip)) => backends.set_host(at, Some(Host::Ip(ip))),
                Some(None) => {
                    if known.get(name) == Some(&None) {
                        let text = format!(
                            "'server {}' starts without an address: none was found for '{name}'",
                            backends.name(at)
                        );
                        diagnostics.warning(server.config.span, text).hint("its 'resolvers' go on looking");
                    }
                    backends.start_unresolved(at);
                }
                None => {
                    let text = format!("'server {}' : could not resolve address '{name}'", backends.name(at));
                    diagnostics.error(server.config.span, text).hint("'init-addr last,libc,none' starts without it");
                }
            }
        }
    }
}

/// Finds the addresses of mail servers.
pub(crate) fn resolve_mailers(config: &mut Config, diagnostics: &mut Diagnostics) {
    for mailer in config.mailers.iter_mut().flat_map(|section| &mut section.mailers) {
        let ServerHost::Name(name) = &mailer.address.0 else { continue };
        match system(name) {
            Some(ip) => mailer.address.0 = ServerHost::Ip(ip),
            None => {
                let text = format!("the address '{name}' of the mailer '{}' cannot be resolved", mailer.name);
                diagnostics.error(mailer.span, text).hint("write its IP address");
            }
        }
    }
}

/// Finds the addresses of the names that `source` gives for connections to servers.
pub(crate) fn resolve_sources(config: &mut Config, diagnostics: &mut Diagnostics) {
    let mut resolve = |source: Option<&mut SourceAddress>, span| {
        if let Err(message) = source.map_or(Ok(()), resolve_source) {
            diagnostics.error(span, message).hint("write its IP address");
        }
    };
    for proxy in &mut config.proxies {
        resolve(proxy.source.as_mut(), proxy.span);
        for server in &mut proxy.servers {
            if server.settings.source.as_ref().is_some_and(|source| source.name.is_some()) {
                let server = Arc::make_mut(server);
                resolve(Arc::make_mut(&mut server.settings).source.as_mut(), server.span);
            }
        }
    }
}

/// Finds the address of a `source` that is given by name.
pub(crate) fn resolve_source(source: &mut SourceAddress) -> Result<(), String> {
    if let Some(name) = &source.name {
        source.ip =
            Some(system(name).ok_or_else(|| format!("could not resolve '{name}', the 'source' of connections"))?);
    }
    Ok(())
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
