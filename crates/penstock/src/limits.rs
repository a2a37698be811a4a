//! Descriptors: how many the process needs for its `maxconn`, and how many connections fit if that is not set. Memory: `-m`.

use penstock_config::{
    Config, Diagnostics,
    model::{ChainStep, Proxy, StatsSocket},
};
use penstock_sys::MemoryGauge;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for anything but connections, listening sockets and health checks: logs, epoll, files, the reserve for
/// the stats page.
const RESERVE: u64 = 64;
/// Descriptors per worker: its poller, its timers, its wake-up.
const PER_WORKER: u64 = 4;

/// Listening sockets of one worker, with a range of ports counted once.
fn listeners(config: &Config) -> u64 {
    config.proxies.iter().flat_map(|p| &p.binds).map(|b| b.addresses.len() as u64).sum()
}

/// The descriptors that a configuration needs besides its connections.
fn fixed(config: &Config, workers: u64) -> u64 {
    let exposes = config.global.stats_sockets.iter().any(StatsSocket::exposes_over_unix);
    // A process that exposes its sockets keeps copies of them.
    let listeners = listeners(config) * (1 + u64::from(exposes));
    let checks = config.proxies.iter().flat_map(|p| &p.servers).filter(|s| s.settings.check.enabled).count();
    RESERVE + (PER_WORKER + listeners) * workers + checks as u64
}

/// The descriptors of a connection: one to the client, one to its server, and for each device that it may pass one to that and one back.
fn each(config: &Config) -> u64 {
    let is_device = |step: &ChainStep| {
        let is_named = |proxy: &&Proxy| proxy.service.is_some() && proxy.name == step.service.text;
        config.proxies.iter().find(is_named).is_some_and(|service| service.kind.has_frontend())
    };
    let devices = config.service_chains.iter().map(|chain| chain.steps.iter().filter(|step| is_device(step)).count());
    2 + 2 * devices.max().unwrap_or(0) as u64
}

/// The `maxconn` for a limit of descriptors, if a connection takes `each`.
fn connections(limit: u64, fixed: u64, each: u64) -> u32 {
    u32::try_from(limit.saturating_sub(fixed) / each).unwrap_or(u32::MAX)
}

/// The descriptors needed for a `maxconn`.
fn descriptors(maxconn: u32, fixed: u64, each: u64) -> u64 {
    u64::from(maxconn) * each + fixed
}

/// Raises the limit of descriptors as far as `maxconn` or `ulimit-n` requires; if the configuration has no `maxconn`,
/// sets that according to the limit (configuration manual, 3.1 `maxconn`, `ulimit-n`, `strict-limits`).
pub fn apply(config: &mut Config, workers: usize, diagnostics: &mut Diagnostics) {
    let limit = getrlimit(Resource::Nofile);
    let (soft, hard) = (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX));
    let (fixed, each) = (fixed(config, workers as u64), each(config));
    let Some(maxconn) = config.global.maxconn else {
        let most = config.global.fd_hard_limit.map(|most| hard.min(most.into()));
        let available = config.global.ulimit_n.or(most).unwrap_or(soft);
        config.global.maxconn = Some(connections(available, fixed, each).max(1));
        let least = descriptors(1, fixed, each);
        if available.max(least) > soft && raise(available.max(least), hard).is_err() {
            let what = match config.global.ulimit_n {
                Some(wanted) if wanted > soft => format!("'ulimit-n {wanted}' is above"),
                _ => format!("a single connection needs {least} descriptors, above"),
            };
            refuse(config, diagnostics, &what, hard);
        }
        return;
    };
    let needed = config.global.ulimit_n.unwrap_or_else(|| descriptors(maxconn, fixed, each));
    if needed > soft && raise(needed, hard).is_err() {
        refuse(config, diagnostics, &format!("'maxconn {maxconn}' needs {needed} descriptors, above"), hard);
    }
}

/// Raises the limit, as far as possible, by the listening sockets that [`apply`] did not foresee: those of port ranges,
/// and those of a previous process that had more workers.
pub fn cover(config: &Config, workers: usize, sockets: usize) {
    let unforeseen = (sockets as u64).saturating_sub(listeners(config) * workers as u64);
    let limit = getrlimit(Resource::Nofile);
    if let (Some(soft), 1..) = (limit.current, unforeseen) {
        // Without them, connections close to `maxconn` may have to wait.
        let _ = raise(soft + unforeseen, limit.maximum.unwrap_or(u64::MAX));
    }
}

/// Sets the limit of memory that option `-m` asks for; returns a gauge of what is left. To be called while /proc can be read.
///
/// # Errors
/// If the limit cannot be set, or, where there is one, the memory in use cannot be read.
pub fn memory(mib: Option<u32>) -> Result<Option<MemoryGauge>, String> {
    if let Some(mib) = mib {
        let bytes = Some(u64::from(mib) << 20);
        setrlimit(Resource::Data, Rlimit { current: bytes, maximum: bytes })
            .map_err(|e| format!("cannot limit the memory to {mib} MiB (-m): {e}"))?;
    }
    match MemoryGauge::open() {
        Err(e) if MemoryGauge::is_limited() => {
            Err(format!("cannot find out how much of the limited memory is used: {e}"))
        }
        gauge => Ok(gauge.ok()),
    }
}

fn raise(needed: u64, hard: u64) -> rustix::io::Result<()> {
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: Some(hard.max(needed)) })
}

fn refuse(config: &Config, diagnostics: &mut Diagnostics, what: &str, hard: u64) {
    let message = format!("{what} this process's limit of {hard}");
    let raised = "raise the limit (LimitNOFILE= of the service, or ulimit -n)";
    let hint = match connections(hard, fixed(config, 1), each(config)) {
        0 => raised.to_owned(),
        fitting => format!("{raised}, or write 'maxconn {fitting}'"),
    };
    if config.global.strict_limits { diagnostics.error(None, message) } else { diagnostics.warning(None, message) }
        .hint(hint);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maxconn_and_descriptors_are_each_others_inverse() {
        assert_eq!(connections(1024, 24, 2), 500);
        assert_eq!(descriptors(500, 24, 2), 1024);
        assert_eq!(connections(10, 24, 2), 0);
        assert_eq!(connections(u64::MAX, 0, 2), u32::MAX);
        assert_eq!((connections(1024, 24, 4), descriptors(250, 24, 4)), (250, 1024));
    }

    #[test]
    fn without_maxconn_the_limit_decides() {
        let mut config = Config::default();
        let mut diagnostics = Diagnostics::default();
        apply(&mut config, 2, &mut diagnostics);
        assert!(config.global.maxconn.unwrap() > 0);
        assert!(diagnostics.list.is_empty());
    }
}
