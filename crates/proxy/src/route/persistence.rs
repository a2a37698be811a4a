//! What ties a request to a server (`use-server`, stick tables), and what is asked of its backend, such as the hash of
//! `balance`.

use crate::{
    connection::Conn,
    exchange::state::Exchange,
    rules::context::{self, Readable},
    server::{Backend, Server, ServerId, Target, Want},
};
use penstock_backends::{balance::Subject, queue::Priority};
use penstock_config::model::{BalanceKey, Proxy};
use penstock_rules::{Answer, Condition, ServerOf, Value};
use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

/// Applies what takes precedence over the balance algorithm: `use-server`; and finds whether persistence applies.
pub(crate) fn bind(conn: &mut Conn<'_>, x: &mut Exchange, pool: &Backend, stage: Readable) -> ForcedOrIgnored {
    let worker = conn.worker;
    let rules = worker.shared.program.of(pool.proxy);
    let mut persistence = ForcedOrIgnored::default();
    if rules.persist.is_empty() && rules.use_server.is_empty() {
        return persistence;
    }
    let context = context::context(conn, x, stage);
    let holds = |condition: &Condition| condition.holds(&context) == Answer::Yes;
    for rule in rules.persist.iter().filter(|rule| holds(&rule.condition)) {
        if rule.force {
            persistence.forced = true;
        } else {
            persistence.ignored = true;
        }
    }
    let forced = persistence.forced || worker.shared.config.proxies[pool.proxy].options.persist;
    let named = rules.use_server.iter().filter(|rule| holds(&rule.condition)).map(|rule| match &rule.server {
        ServerOf::Server(at) => pool.get(at.server),
        ServerOf::Named(format) => {
            let name = format.to_bytes(&context);
            pool.servers().iter().find(|server| server.name.as_bytes() == name).cloned()
        }
    });
    // Further rules are looked at only if the server named by this one exists and is down.
    let server = named.map_while(|server| server).find(|server| forced || server.is_running());
    if let Some(server) = server {
        x.persistent = Some(server.at.server);
        x.cookie.direct = true;
    }
    persistence
}

/// Whether `force-persist` and `ignore-persist` apply.
#[derive(Clone, Copy, Default)]
pub(crate) struct ForcedOrIgnored {
    pub forced: bool,
    pub ignored: bool,
}

/// Uses the server whose address is in a cookie of RDP (`persist rdp-cookie`), unless `use-server` has named one.
pub(crate) fn follow_rdp_cookie(conn: &mut Conn<'_>, x: &mut Exchange, pool: &Backend) {
    let worker = conn.worker;
    let shared = &worker.shared;
    let Some(expression) = shared.program.rdp_cookie[pool.proxy].as_ref().filter(|_| x.persistent.is_none()) else {
        return;
    };
    let named = {
        let context = context::context(conn, x, Readable::Raw);
        expression.eval(&context).ok().and_then(|cookie: Value<'_>| address_in_rdp_cookie(&cookie.to_text()))
    };
    let Some(named) = named else { return };
    let even_down = shared.config.proxies[pool.proxy].options.persist;
    let servers = pool.servers();
    let is_named = |server: &&Arc<Server>| server.endpoint.load().target(None) == Some(Target::Ip(named));
    if let Some(server) = servers.iter().find(is_named).filter(|server| even_down || server.is_running()) {
        x.persistent = Some(server.at.server);
        x.cookie.direct = true;
    }
}

/// `ADDRESS.PORT.` and something else: the bytes of an IPv4 address as a number of which the first byte is the lowest, and those of a
/// port likewise.
fn address_in_rdp_cookie(cookie: &[u8]) -> Option<SocketAddr> {
    let mut parts = std::str::from_utf8(cookie).ok()?.split('.');
    let (address, port) = (parts.next()?.parse::<u32>().ok()?, parts.next()?.parse::<u16>().ok()?);
    parts.next()?;
    Some(SocketAddr::new(Ipv4Addr::from(address.to_le_bytes()).into(), port.swap_bytes()))
}

/// Uses the server that a stick table remembers, unless something else has named one.
pub(crate) fn stick(conn: &mut Conn<'_>, x: &mut Exchange, pool: &Backend, stage: Readable) {
    let worker = conn.worker;
    let rules = &worker.shared.program.of(pool.proxy).stick;
    if rules.is_empty() || x.persistent.is_some() {
        return;
    }
    let context = context::context(conn, x, stage);
    let stuck = rules.iter().find_map(|rule| rule.find(&context));
    let server = stuck.and_then(|stuck| {
        let servers = pool.servers();
        let named = stuck.key.as_deref().and_then(|key| {
            servers.iter().find(|server| match stuck.is_address {
                true => address(server).is_some_and(|address| address == key),
                false => server.name == key,
            })
        });
        let found = named.or_else(|| servers.iter().find(|server| server.id == stuck.id));
        found.filter(|server| server.is_running()).cloned()
    });
    if let Some(server) = server {
        x.persistent = Some(server.at.server);
        x.cookie.direct = true;
    }
}

/// The address of a server, as stick tables with `srvkey addr` know it.
fn address(server: &Server) -> Option<String> {
    match server.endpoint.load().target(None)? {
        Target::Ip(address) => Some(address.to_string()),
        Target::Unix(_) | Target::Abstract(_) => None,
    }
}

/// Stores the server of an exchange in stick tables.
pub(crate) fn remember(conn: &mut Conn<'_>, x: &mut Exchange, server: &Server, stage: Readable) {
    let worker = conn.worker;
    let rules = &worker.shared.program.of(server.at.proxy).stick;
    if rules.is_empty() || server.config.settings.non_stick {
        return;
    }
    let mut kept = x.stick_keys.take();
    for (at, rule) in rules.iter().enumerate() {
        let key = match &mut kept {
            Some(kept) if rule.stores_request => kept[at].take(),
            // A key taken from the request is computed from the request, even though a response has arrived.
            None if rule.stores_request && stage == Readable::Response => {
                rule.key(&context::context(conn, x, Readable::Request))
            }
            _ if rule.stores_request || (rule.stores_response && stage == Readable::Response) => {
                rule.key(&context::context(conn, x, stage))
            }
            _ => None,
        };
        if let Some(key) = key {
            rule.store(&key, worker.now_ms(), server.id, &server.name, || address(server));
        }
    }
}

/// Computes the keys that rules take from a request, before its head is given back.
pub(crate) fn keep_keys(conn: &mut Conn<'_>, x: &mut Exchange) {
    let worker = conn.worker;
    let rules = x.backend.map_or(&[][..], |backend| &worker.shared.program.of(backend).stick);
    if x.stick_keys.is_none() && rules.iter().any(|rule| rule.stores_request) {
        let context = context::context(conn, x, Readable::Request);
        let keys = rules.iter().map(|rule| rule.stores_request.then(|| rule.key(&context)).flatten()).collect();
        x.stick_keys = Some(keys);
    }
}

/// What the request asks of its backend.
pub(crate) fn want(conn: &mut Conn<'_>, x: &mut Exchange, pool: &Backend, stage: Readable) -> Want {
    let due_ms = conn.worker.now_ms() as i64 + i64::from(x.txn.priority_offset_ms);
    let priority = Priority { class: x.txn.priority_class, due_ms };
    Want { persistent: x.persistent, hash: hash(conn, x, pool, stage), avoid: None, priority }
}

/// Whether a server is chosen by a parameter that may stand in the body of this request.
pub(crate) fn looks_at_body(x: &Exchange, pool: &Backend) -> bool {
    matches!(pool.key(), Some(BalanceKey::UrlParam { .. })) && x.request.method() == b"POST"
}

/// The hash by which the backend chooses a server, if it does so by hash.
fn hash(conn: &mut Conn<'_>, x: &mut Exchange, pool: &Backend, stage: Readable) -> Option<u32> {
    let mut subject = Subject::default();
    match pool.key()? {
        BalanceKey::Source => subject.source = x.txn.source(&conn.facts).map(|a| a.ip()),
        BalanceKey::Uri { .. } => subject.target = x.request.target(),
        BalanceKey::UrlParam { .. } => {
            subject.target = x.request.target();
            let body = x.body.as_ref().filter(|_| looks_at_body(x, pool));
            subject.body = body.map_or(&[], |body| body.data());
        }
        BalanceKey::Hdr { name, .. } => {
            let value = x.request.fields.get(name.to_ascii_lowercase().as_bytes());
            subject.header = value.and_then(|v| v.split(|&b| b == b',').next());
        }
        BalanceKey::Sample(_) => {
            let worker = conn.worker;
            let expression = worker.shared.program.balance[pool.proxy].as_ref()?;
            let context = context::context(conn, x, stage);
            let value = expression.eval(&context).ok().map(|value: Value<'_>| value.to_text());
            return pool.hash(&Subject { sample: value.as_deref(), ..subject });
        }
    }
    pool.hash(&subject)
}

/// The server to which this client has a connection of its own: for `option prefer-last-server`, and always for a
/// client that authenticates its connections, or whose server was connected to before it was answered. Only the former heeds
/// `max-keep-alive-queue`.
pub(crate) fn last_server(conn: &Conn<'_>, pool: &Backend, proxy: &Proxy) -> Option<ServerId> {
    let is_bound = conn.own.authenticates() || conn.facts.origin.is_some();
    if !(is_bound || proxy.options.prefer_last_server) {
        return None;
    }
    let is_free = |server| is_bound || proxy.max_keep_alive_queue.is_none_or(|most| pool.queue_is_below(server, most));
    let last = conn.own.last(pool.proxy).filter(|&server| pool.get(server).is_some_and(|server| server.is_usable()));
    last.filter(|&server| is_free(server))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_rdp_cookie_names_an_address_and_a_port() {
        let named = |cookie: &str| address_in_rdp_cookie(cookie.as_bytes()).map(|address| address.to_string());
        // Microsoft's own example, of 10.0.0.15 and port 3389.
        assert_eq!(named("251658250.15629.0000").as_deref(), Some("10.0.0.15:3389"));
        for wrong in ["", "251658250", "251658250.15629", "x.15629.0000", "4294967296.15629.0000", "251658250.65536.0"]
        {
            assert_eq!(named(wrong), None, "{wrong}");
        }
    }
}
