//! Settings of the kernel, judged for this configuration: the ones that the tuning papers set, and why each matters here
//! or does not.

use super::Case;
use crate::{
    Change, Finding, Level,
    finding::{Area::Kernel, count},
};
use penstock_config::model::ConnectionMode;

/// What a listening socket asks for when the configuration says nothing: penstock's own default.
const BACKLOG: u64 = 4096;
const PAGE: u64 = 4096;
/// What the kernel holds for a connection that moves little: a socket's structures and a buffer each way.
const BYTES_PER_SOCKET: u64 = 8 * 1024;

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    if !case.host.exists("/proc/sys/net") {
        return Vec::new();
    }
    let rules: [fn(&Case<'_>) -> Option<Finding>; 12] = [
        somaxconn,
        syn_backlog,
        syn_cookies,
        ports,
        time_wait,
        fin_timeout,
        window_scaling,
        memory,
        buffers,
        fixed_buffers,
        conntrack,
        ktls,
    ];
    let judged: Vec<Finding> = rules.iter().filter_map(|rule| rule(case)).collect();
    let (fine, mut found): (Vec<_>, Vec<_>) = judged.into_iter().partition(|f| f.level == Level::Good);
    if !fine.is_empty() {
        let mut good = Finding::good(
            "kernel-settings",
            Kernel,
            format!("{} as this configuration needs", count(fine.len(), "kernel setting")),
        );
        good.evidence = fine.into_iter().map(|f| f.finding).collect();
        found.push(good);
    }
    found
}

/// The numbers of a setting; `None` where it is not there.
fn numbers(case: &Case<'_>, name: &str) -> Option<Vec<u64>> {
    case.host.sysctl(name)?.split_whitespace().map(|word| word.parse().ok()).collect()
}

fn number(case: &Case<'_>, name: &str) -> Option<u64> {
    numbers(case, name)?.first().copied()
}

fn good(text: String) -> Option<Finding> {
    Some(Finding::good("kernel-setting", Kernel, text))
}

fn raise(finding: Finding, name: &str, value: impl ToString) -> Option<Finding> {
    Some(finding.mend(Change::Sysctl { name: name.into(), value: value.to_string() }))
}

/// The longest queue that a listening socket of this configuration asks for.
fn backlog(case: &Case<'_>) -> u64 {
    let Some(config) = case.config else { return BACKLOG };
    let of = config.proxies.iter().filter(|p| !p.disabled).flat_map(|proxy| {
        proxy.binds.iter().map(|bind| bind.backlog.or(proxy.backlog).or(proxy.maxconn).map_or(BACKLOG, u64::from))
    });
    of.max().unwrap_or(BACKLOG)
}

fn somaxconn(case: &Case<'_>) -> Option<Finding> {
    let limit = number(case, "net.core.somaxconn")?;
    let wanted = backlog(case);
    if limit >= wanted {
        return good(format!("net.core.somaxconn {limit}: sockets ask for {wanted}"));
    }
    let finding = Finding::new(
        "somaxconn",
        Kernel,
        Level::Warning,
        22,
        format!("listening sockets ask for a queue of {wanted}, and get {limit}"),
    )
    .seen(format!("net.core.somaxconn = {limit}"))
    .means("in a burst connections beyond it are dropped: clients try again after a second");
    raise(finding, "net.core.somaxconn", wanted.next_power_of_two())
}

fn syn_backlog(case: &Case<'_>) -> Option<Finding> {
    let limit = number(case, "net.ipv4.tcp_max_syn_backlog")?;
    let wanted = backlog(case).min(65_536);
    // With cookies the queue may overflow without a refusal: only options of TCP are lost.
    let cookies = number(case, "net.ipv4.tcp_syncookies").unwrap_or(0) > 0;
    // Half of the accept queue is waited for at once only over long round trips.
    if limit >= wanted / 2 {
        return good(format!(
            "net.ipv4.tcp_max_syn_backlog {limit}: half of {wanted} is enough for handshakes in progress"
        ));
    }
    let level = if cookies { Level::Notice } else { Level::Warning };
    let consequence = if cookies {
        "a burst beyond it is answered with SYN cookies: those connections lose window scaling and SACK where timestamps are off"
    } else {
        "a burst beyond it is dropped"
    };
    let finding = Finding::new(
        "syn-backlog",
        Kernel,
        level,
        11,
        format!("{limit} TCP handshakes may be in progress, below the queue of {wanted}"),
    )
    .seen(format!("net.ipv4.tcp_max_syn_backlog = {limit}, tcp_syncookies = {}", u8::from(cookies)))
    .means(consequence);
    raise(finding, "net.ipv4.tcp_max_syn_backlog", wanted.next_power_of_two())
}

fn syn_cookies(case: &Case<'_>) -> Option<Finding> {
    if number(case, "net.ipv4.tcp_syncookies")? > 0 {
        return good("net.ipv4.tcp_syncookies is on".into());
    }
    let finding = Finding::new("syn-cookies", Kernel, Level::Warning, 17, "SYN cookies are off")
        .seen("net.ipv4.tcp_syncookies = 0")
        .means("a SYN flood keeps every client out");
    raise(finding, "net.ipv4.tcp_syncookies", 1)
}

/// Local ports towards servers: each pair of addresses has its own range.
fn ports(case: &Case<'_>) -> Option<Finding> {
    let range = numbers(case, "net.ipv4.ip_local_port_range")?;
    let (low, high) = (*range.first()?, *range.get(1)?);
    let available = (high + 1).saturating_sub(low);
    let config = case.config?;
    let maxconn = case.maxconn()?;
    let smallest =
        config.proxies.iter().filter(|p| !p.disabled && !p.servers.is_empty()).map(|p| p.servers.len()).min()?;
    // The worst case: all of the process's connections go to the backend with the fewest servers.
    let wanted = maxconn / smallest as u64;
    if wanted <= available * 8 / 10 {
        return good(format!("net.ipv4.ip_local_port_range {low} {high}: at most {wanted} connections to a server"));
    }
    let finding = Finding::new(
        "local-ports",
        Kernel,
        Level::Warning,
        21,
        format!("{available} local ports for up to {wanted} connections to one server"),
    )
    .seen(format!(
        "net.ipv4.ip_local_port_range = {low} {high}; maxconn {maxconn}; {smallest} servers in the smallest backend"
    ))
    .means("once they are used up, connections to that server fail with 'cannot assign requested address'");
    if wanted > 64_000 {
        return Some(
            finding
                .mend(Change::Sysctl { name: "net.ipv4.ip_local_port_range".into(), value: "1024 65535".into() })
                .by_hand("even the whole range is too small: more server addresses, 'source' addresses, or a 'maxconn' on the servers"),
        );
    }
    raise(finding, "net.ipv4.ip_local_port_range", "1024 65535")
}

/// Whether connections to servers end with each request, so that closed ones pile up on our side.
fn closes_towards_servers(case: &Case<'_>) -> bool {
    let Some(config) = case.config else { return false };
    config.proxies.iter().any(|proxy| {
        !proxy.servers.is_empty()
            && (proxy.mode == penstock_config::model::Mode::Tcp
                || proxy.options.connection != ConnectionMode::KeepAlive)
    })
}

fn time_wait(case: &Case<'_>) -> Option<Finding> {
    let reuse = number(case, "net.ipv4.tcp_tw_reuse")?;
    let buckets = number(case, "net.ipv4.tcp_max_tw_buckets").unwrap_or(u64::MAX);
    if let Some(maxconn) = case.maxconn().filter(|maxconn| buckets < *maxconn) {
        let finding = Finding::new("time-wait", Kernel, Level::Warning, 10, format!("{buckets} closed connections are remembered, maxconn is {maxconn}"))
            .seen(format!("net.ipv4.tcp_max_tw_buckets = {buckets}"))
            .means("beyond it a port may be used again while old packets are in flight, and the kernel logs 'time wait bucket table overflow'");
        return raise(finding, "net.ipv4.tcp_max_tw_buckets", (maxconn * 2).next_power_of_two());
    }
    if reuse == 1 || !closes_towards_servers(case) {
        let why = if reuse == 1 { "on" } else { "not needed: connections to servers are kept" };
        return good(format!("net.ipv4.tcp_tw_reuse {reuse}: {why}"));
    }
    let finding = Finding::new(
        "time-wait-reuse",
        Kernel,
        Level::Notice,
        9,
        "ports of closed connections to servers rest for a minute",
    )
    .seen(format!("net.ipv4.tcp_tw_reuse = {reuse}; connections to servers are closed after each request, or are TCP"))
    .means("each server address takes some 470 new connections a second at most (28,232 ports over 60 s)");
    raise(finding, "net.ipv4.tcp_tw_reuse", 1)
}

fn fin_timeout(case: &Case<'_>) -> Option<Finding> {
    let seconds = number(case, "net.ipv4.tcp_fin_timeout")?;
    let many = case.maxconn().is_some_and(|maxconn| maxconn > 50_000);
    if seconds <= 60 && !(many && seconds > 30) {
        return good(format!(
            "net.ipv4.tcp_fin_timeout {seconds}: penstock closes both halves, few connections wait there"
        ));
    }
    let finding = Finding::new(
        "fin-timeout",
        Kernel,
        Level::Notice,
        3,
        format!("half-closed connections without an owner stay for {seconds} s"),
    )
    .seen(format!("net.ipv4.tcp_fin_timeout = {seconds}"))
    .means("clients that vanish while they are closed hold kernel memory that long");
    raise(finding, "net.ipv4.tcp_fin_timeout", 30)
}

fn window_scaling(case: &Case<'_>) -> Option<Finding> {
    if number(case, "net.ipv4.tcp_window_scaling")? > 0 {
        return good("net.ipv4.tcp_window_scaling is on".into());
    }
    let finding = Finding::new("window-scaling", Kernel, Level::Warning, 28, "TCP window scaling is off")
        .seen("net.ipv4.tcp_window_scaling = 0")
        .means("64 KiB may be in flight: over 50 ms a connection ends at 10 Mbit/s, whatever the line does");
    raise(finding, "net.ipv4.tcp_window_scaling", 1)
}

fn memory(case: &Case<'_>) -> Option<Finding> {
    let pages = numbers(case, "net.ipv4.tcp_mem")?;
    let high = pages.get(2)?.saturating_mul(PAGE);
    let maxconn = case.maxconn()?;
    // Two sockets a connection.
    let wanted = maxconn * 2 * BYTES_PER_SOCKET;
    if high >= wanted {
        return good(format!(
            "net.ipv4.tcp_mem: {} MiB for sockets, {} needed at maxconn {maxconn}",
            high >> 20,
            wanted >> 20
        ));
    }
    let finding = Finding::new(
        "tcp-mem",
        Kernel,
        Level::Warning,
        13,
        format!("TCP may use {} MiB, {maxconn} connections need {}", high >> 20, wanted >> 20),
    )
    .seen(format!("net.ipv4.tcp_mem = {}", pages.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")))
    .means("under pressure the kernel shrinks every window, and at the limit drops packets");
    let pages = wanted / PAGE;
    raise(finding, "net.ipv4.tcp_mem", format!("{} {} {}", pages, pages * 5 / 4, pages * 2))
}

fn buffers(case: &Case<'_>) -> Option<Finding> {
    /// What 1 Gbit/s over 40 ms has in flight, rounded down to what distributions set.
    const ENOUGH: u64 = 4 * 1024 * 1024;
    let (read, write) = (numbers(case, "net.ipv4.tcp_rmem")?, numbers(case, "net.ipv4.tcp_wmem")?);
    let (receive, send) = (*read.get(2)?, *write.get(2)?);
    if receive >= ENOUGH && send >= ENOUGH {
        return good(format!("net.ipv4.tcp_rmem and tcp_wmem grow to {} and {} KiB", receive >> 10, send >> 10));
    }
    let mut finding = Finding::new("tcp-buffers", Kernel, Level::Notice, 8, "windows of TCP cannot grow far")
        .seen(format!("net.ipv4.tcp_rmem = {read:?}, tcp_wmem = {write:?}"))
        .means(format!("one connection over 40 ms ends at {} Mbit/s", receive.min(send) * 8 / 40_000));
    for (name, values) in [("net.ipv4.tcp_rmem", &read), ("net.ipv4.tcp_wmem", &write)] {
        if values[2] < ENOUGH {
            let value = format!("{} {} {}", values[0], values[1], ENOUGH * 3 / 2);
            finding = finding.mend(Change::Sysctl { name: name.into(), value });
        }
    }
    Some(finding)
}

/// rmem_default and wmem_default are no business of TCP; the maxima bound what `tune.rcvbuf` and its like may set.
fn fixed_buffers(case: &Case<'_>) -> Option<Finding> {
    let (receive, send) = (number(case, "net.core.rmem_max")?, number(case, "net.core.wmem_max")?);
    let tune = case.config.map(|config| &config.global.tune);
    let most = |one: Option<u32>, other: Option<u32>| u64::from(one.max(other).unwrap_or(0));
    let (wanted_receive, wanted_send) =
        tune.map_or((0, 0), |t| (most(t.rcvbuf_client, t.rcvbuf_server), most(t.sndbuf_client, t.sndbuf_server)));
    if wanted_receive <= receive && wanted_send <= send {
        let why = if wanted_receive + wanted_send == 0 {
            "no 'tune.rcvbuf' or 'tune.sndbuf' asks for more; TCP sizes its own"
        } else {
            "what the configuration asks for fits"
        };
        return good(format!("net.core.rmem_max {receive}, wmem_max {send} (and their defaults): {why}"));
    }
    let mut finding = Finding::new(
        "fixed-buffers",
        Kernel,
        Level::Warning,
        7,
        "'tune.rcvbuf' or 'tune.sndbuf' ask for more than the kernel gives",
    )
    .seen(format!("net.core.rmem_max = {receive}, asked {wanted_receive}; wmem_max = {send}, asked {wanted_send}"))
    .means("buffers are silently smaller than configured");
    for (name, wanted, limit) in
        [("net.core.rmem_max", wanted_receive, receive), ("net.core.wmem_max", wanted_send, send)]
    {
        if wanted > limit {
            finding = finding.mend(Change::Sysctl { name: name.into(), value: wanted.to_string() });
        }
    }
    Some(finding)
}

fn conntrack(case: &Case<'_>) -> Option<Finding> {
    let limit = number(case, "net.netfilter.nf_conntrack_max")?;
    let wanted = case.maxconn()? * 4;
    if limit >= wanted {
        return good(format!("net.netfilter.nf_conntrack_max {limit}: at most {wanted} are tracked at maxconn"));
    }
    let finding = Finding::new(
        "conntrack",
        Kernel,
        Level::Warning,
        19,
        format!("the firewall tracks {limit} connections, {wanted} may be there"),
    )
    .seen(format!(
        "net.netfilter.nf_conntrack_max = {limit}; two a client connection, and as many that are just closed"
    ))
    .means("beyond it new connections are dropped, and the kernel logs 'nf_conntrack: table full'");
    let finding = finding.by_hand("better: do not track the service's ports ('notrack' in nftables' raw chain)");
    raise(finding, "net.netfilter.nf_conntrack_max", wanted.next_power_of_two())
}

fn ktls(case: &Case<'_>) -> Option<Finding> {
    let there = case.host.exists("/proc/net/tls_stat") || case.host.exists("/sys/module/tls");
    let state = if there { "there" } else { "not there" };
    good(format!("kernel TLS is {state}: penstock encrypts itself, nothing depends on it"))
}
