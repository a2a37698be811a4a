//! The summary, in wrk's form where wrk has the same thing to say.

use super::{bytes, time};
use crate::Histogram;
use crate::load::{Arrivals, Http, LoadReport, Mode};
use std::fmt::{self, Write};

/// For the terminal; `detailed` with more percentiles of the total.
#[must_use]
pub fn text(report: &LoadReport, detailed: bool) -> String {
    let mut page = String::new();
    // Writing to a String does not fail.
    let _ = write(&mut page, report, detailed);
    page
}

fn write(page: &mut String, report: &LoadReport, detailed: bool) -> fmt::Result {
    head(page, report)?;
    agreed(page, report)?;
    latencies(page, report, detailed)?;
    counts(page, report)?;
    costs(page, report)?;
    for share in &report.agents {
        let done = share.done.map_or("lost".into(), |done| format!("{done} {}", report.plan.mode.units()));
        writeln!(page, "  Agent {}: {done}{}", share.name, trouble(share.trouble.as_deref()))?;
    }
    if !report.doubts.is_empty() {
        writeln!(page, "Doubts:")?;
    }
    for doubt in &report.doubts {
        writeln!(page, "  {}", doubt.says)?;
    }
    Ok(())
}

fn trouble(why: Option<&str>) -> String {
    why.map_or(String::new(), |why| format!(", {why}"))
}

fn head(page: &mut String, report: &LoadReport) -> fmt::Result {
    let plan = &report.plan;
    let asked = time(plan.duration.as_secs_f64() * 1e6);
    let proxy = plan.proxy.map_or(String::new(), |proxy| format!(" through {proxy}"));
    let partial = if report.partial { " (partial)" } else { "" };
    writeln!(page, "Running {asked} test @ {}{proxy}{partial}", plan.target)?;
    let http = if plan.http == Http::Two { "HTTP/2" } else { "HTTP/1.1" };
    let what = match plan.mode {
        Mode::Handshake => "handshakes without a request".to_owned(),
        Mode::Request => format!("{http} requests, a handshake for each"),
        Mode::KeepAlive => format!("{http} requests on kept connections"),
        Mode::Download => format!("{http} downloads on kept connections"),
        Mode::Idle => format!("idle connections after one {http} request"),
    };
    let pace = match plan.arrivals {
        Arrivals::Closed => "closed loop".to_owned(),
        Arrivals::Open(rate) => format!("open loop, {rate} a second"),
    };
    let streams = if plan.streams > 1 { format!(" of {} streams", plan.streams) } else { String::new() };
    writeln!(
        page,
        "  {} threads and {} connections{streams}, {pace}\n  {what}{}",
        plan.threads,
        plan.connections,
        if plan.resume { ", sessions resumed" } else { "" }
    )
}

fn agreed(page: &mut String, report: &LoadReport) -> fmt::Result {
    for (agreed, n) in &report.negotiated {
        let kind = if agreed.resumed { "resumed" } else { "full" };
        let parts = [Some(&agreed.version), Some(&agreed.suite), Some(&agreed.group), agreed.signature.as_ref()];
        let parts: Vec<&str> =
            parts.into_iter().flatten().map(String::as_str).filter(|part| !part.is_empty()).collect();
        let alpn = agreed.alpn.as_ref().map_or(String::new(), |name| format!(" {name}"));
        writeln!(page, "  {n} {kind} handshakes: {}{alpn}", parts.join(" "))?;
    }
    Ok(())
}

fn latencies(page: &mut String, report: &LoadReport, detailed: bool) -> fmt::Result {
    let times = &report.latency;
    writeln!(
        page,
        "  {:<12}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>11}",
        "Latency", "Avg", "Stdev", "50%", "90%", "99%", "Max", "+/- Stdev"
    )?;
    let rows = [
        ("connect", &times.connect),
        ("tunnel", &times.tunnel),
        ("handshake", &times.handshake),
        ("first byte", &times.first_byte),
        ("total", &times.total),
    ];
    for (name, histogram) in rows {
        if histogram.count() > 0 {
            row(page, name, histogram)?;
        }
    }
    if detailed {
        writeln!(page, "  Latency Distribution")?;
        for percent in [50.0, 75.0, 90.0, 99.0, 99.9, 99.99, 100.0] {
            writeln!(page, "  {percent:>7}% {:>9}", time(times.total.percentile_us(percent) as f64))?;
        }
    }
    Ok(())
}

fn row(page: &mut String, name: &str, histogram: &Histogram) -> fmt::Result {
    let [p50, p90, p99] = [50.0, 90.0, 99.0].map(|percent| time(histogram.percentile_us(percent) as f64));
    writeln!(
        page,
        "    {name:<10}{:>9}{:>9}{p50:>9}{p90:>9}{p99:>9}{:>9}{:>10.2}%",
        time(histogram.mean_us()),
        time(histogram.deviation_us()),
        time(histogram.max_us() as f64),
        histogram.within(1.0) * 100.0
    )
}

fn counts(page: &mut String, report: &LoadReport) -> fmt::Result {
    let units = report.plan.mode.units();
    let read = bytes(report.totals.bytes_in as f64);
    writeln!(page, "  {} {units} in {}, {read} read", report.totals.done, time(report.seconds * 1e6))?;
    if report.plan.mode == Mode::Idle {
        writeln!(page, "  {} connections were open at the end", report.held)?;
    }
    if report.handshakes() > 0 {
        writeln!(
            page,
            "  Full handshakes: {}, resumed: {}",
            report.totals.full_handshakes, report.totals.resumed_handshakes
        )?;
    }
    if report.totals.unclean_closes > 0 {
        writeln!(
            page,
            "  Closed by the server only at the end of TCP, not at the close_notify: {}",
            report.totals.unclean_closes
        )?;
    }
    let odd: u64 = report.statuses.iter().filter(|(class, _)| !class.starts_with(['2', '3'])).map(|(_, n)| n).sum();
    if odd > 0 {
        writeln!(page, "  Non-2xx or 3xx responses: {odd}")?;
    }
    for (why, n) in &report.errors {
        writeln!(page, "  Failed {n} times: {why}")?;
    }
    let mut name = units.to_owned();
    name[..1].make_ascii_uppercase();
    writeln!(page, "{:<16}{:>10.2}", format!("{name}/sec:"), report.rate())?;
    let per_second = |n: u64| bytes(n as f64 / report.seconds.max(f64::MIN_POSITIVE));
    writeln!(page, "{:<16}{:>10}", "Transfer/sec:", per_second(report.totals.bytes_in))?;
    if report.plan.mode == Mode::Download {
        let bits = report.totals.body_bytes as f64 * 8.0 / report.seconds.max(f64::MIN_POSITIVE) / 1e9;
        writeln!(
            page,
            "{:<16}{:>10} of bodies, {bits:.3} Gbit/s",
            "Bodies/sec:",
            per_second(report.totals.body_bytes)
        )?;
    }
    Ok(())
}

fn costs(page: &mut String, report: &LoadReport) -> fmt::Result {
    let one = report.plan.mode.units().trim_end_matches('s');
    let client = &report.client;
    writeln!(
        page,
        "Client CPU:     {:>10} a {one}, busiest thread {:.0} %",
        time(client.cpu_us_per_unit),
        client.busiest_thread * 100.0
    )?;
    let Some(server) = &report.server else { return Ok(()) };
    let per_unit = |seconds: f64| time(seconds * 1e6 / report.totals.done.max(1) as f64);
    writeln!(
        page,
        "Server CPU:     {:>10} a {one} ({} user, {} system), {:.2} cores in use",
        per_unit(server.user_seconds + server.system_seconds),
        per_unit(server.user_seconds),
        per_unit(server.system_seconds),
        server.cores()
    )?;
    if report.plan.mode == Mode::Download && report.totals.body_bytes > 0 {
        let per_gb = server.total().as_secs_f64() / (report.totals.body_bytes as f64 / 1e9);
        writeln!(page, "{:<16}{per_gb:>9.3}s a GB of bodies", "")?;
    }
    Ok(())
}
