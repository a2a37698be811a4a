//! The default of `fullconn`: the load at which servers get their whole `maxconn`.

use penstock_config::model::{Config, PerProxy, Proxy, ProxyId};
use std::collections::{HashMap, HashSet};

/// For each proxy, a tenth of the total `maxconn` of the frontends that may lead to it, by `use_backend` and
/// `default_backend` (manual, `fullconn`). `maxconn` applies to frontends that have none.
pub(super) fn automatic(config: &Config, maxconn: u32) -> PerProxy<u32> {
    let backends = config.proxies.entries().filter(|(_, proxy)| proxy.kind.has_backend());
    let by_name: HashMap<&str, ProxyId> = backends.map(|(id, proxy)| (proxy.name.as_str(), id)).collect();
    let mut reaching: PerProxy<u64> = config.proxies.iter().map(|_| 0).collect();
    for (id, proxy) in config.proxies.entries() {
        if proxy.kind.has_frontend() && !proxy.disabled {
            for backend in leads_to(id, proxy, &by_name) {
                reaching[backend] += u64::from(proxy.maxconn.unwrap_or(maxconn));
            }
        }
    }
    reaching.into_iter().map(|sum| u32::try_from(sum.div_ceil(10)).unwrap_or(u32::MAX).max(1)).collect()
}

/// The backends that a frontend names, without duplicates; names that contain samples are only known at run time and do
/// not count.
fn leads_to(id: ProxyId, proxy: &Proxy, by_name: &HashMap<&str, ProxyId>) -> HashSet<ProxyId> {
    let named = proxy.use_backend.iter().filter_map(|rule| rule.words.first()).chain(&proxy.default_backend);
    let mut backends: HashSet<ProxyId> = named.filter_map(|name| by_name.get(name.text.as_str()).copied()).collect();
    if proxy.default_backend.is_none() && proxy.kind.has_backend() {
        backends.insert(id);
    }
    backends
}
