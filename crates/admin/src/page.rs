//! The statistics page.

use crate::{
    handshakes,
    html::{Age, Count, Text},
};
use penstock_config::model::StatsPage;
use penstock_proxy::snapshot::{Kind, Row, Snapshot, Upstream};
use std::fmt::Write as _;
use std::time::Duration;

/// What a request asks of the page.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The page's own address, without parameters.
    pub uri: String,
    /// `;up`: servers that are down are left out.
    pub only_up: bool,
    /// `;norefresh`: the page stays as it is.
    pub no_refresh: bool,
    /// `scope=`: only proxies with this in their names.
    pub scope: String,
    /// Actions may be taken.
    pub admin: bool,
    /// The outcome of the last action: `;st=`.
    pub done: Option<String>,
}

impl View {
    /// Whether a row is wanted.
    pub fn shows(&self, page: &StatsPage, row: &Row, self_name: &str) -> bool {
        let in_scope = page.scope.is_empty()
            || page.scope.iter().any(|name| name == &row.proxy_name || name == "." && row.proxy_name == self_name);
        let hidden = self.only_up && row.kind == Kind::Server && row.status.starts_with("DOWN");
        in_scope && !hidden && row.proxy_name.contains(&self.scope)
    }

    /// After how many seconds the browser asks again, 0 for never.
    pub fn refresh(&self, page: &StatsPage) -> u64 {
        page.refresh.filter(|_| !self.no_refresh).unwrap_or_default().as_secs()
    }

    /// The page's address with these parts.
    fn link(&self, only_up: bool, no_refresh: bool) -> String {
        let mut link = self.uri.clone();
        link.push_str(if only_up { ";up" } else { "" });
        link.push_str(if no_refresh { ";norefresh" } else { "" });
        if !self.scope.is_empty() {
            let _ = write!(link, "?scope={}", encode(&self.scope));
        }
        link
    }
}

fn encode(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

/// The whole page.
pub fn render(snapshot: &Snapshot, page: &StatsPage, view: &View, version: &str, self_name: &str) -> String {
    let mut out = String::with_capacity(32 * 1024);
    let process = &snapshot.process;
    let refresh = view.refresh(page);
    out.push_str("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    out.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
    let node = page.show_node.as_ref().map(|name| name.as_deref().unwrap_or(&process.node));
    let title = node.map(|node| format!(" on {node}")).unwrap_or_default();
    let _ = write!(
        out,
        "<title>Statistics{}</title><style>{}</style></head><body>",
        Text(&title),
        include_str!("style.css")
    );
    let version = if page.hide_version { String::new() } else { format!(" {version}") };
    let _ = write!(out, "<header><h1>penstock{}<small>", Text(&version));
    let description = page.show_desc.as_ref();
    let description = description.and_then(|text| text.as_deref().or(process.description.as_deref()));
    let parts = [node.map(str::to_string), description.map(str::to_string), Some(format!("pid {}", process.pid))];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let _ = write!(out, "{}</small></h1>", Text(&parts.join(" · ")));
    navigation(&mut out, view, page, refresh);
    out.push_str("</header><main>");
    facts(&mut out, snapshot);
    if let Some(done) = &view.done {
        let (class, text) = outcome(done);
        let _ = write!(out, "<p class=\"done {class}\" role=\"status\">{text}</p>");
    }
    legend(&mut out);
    let mut rows = snapshot.rows.iter().filter(|row| view.shows(page, row, self_name)).peekable();
    while let Some(first) = rows.peek() {
        let proxy = first.proxy;
        let mut group = Vec::new();
        while let Some(row) = rows.next_if(|row| row.proxy == proxy) {
            group.push(row);
        }
        section(&mut out, &group, page, view);
    }
    if view.scope.is_empty() && page.scope.is_empty() {
        handshakes::render(&mut out, &snapshot.engine);
    }
    out.push_str("</main><footer>Columns show a legend when the pointer rests on them.</footer></body></html>\n");
    out
}

fn navigation(out: &mut String, view: &View, page: &StatsPage, refresh: u64) {
    out.push_str("<nav aria-label=\"View\">");
    let (link, text) = match view.only_up {
        true => (view.link(false, view.no_refresh), "Show all servers"),
        false => (view.link(true, view.no_refresh), "Hide servers that are down"),
    };
    let _ = write!(out, "<a href=\"{}\">{text}</a>", Text(&link));
    if page.refresh.is_some() {
        let link = view.link(view.only_up, !view.no_refresh);
        let text =
            if refresh > 0 { format!("Stop refreshing (every {refresh} s)") } else { "Refresh by itself".into() };
        let _ = write!(out, "<a href=\"{}\">{text}</a>", Text(&link));
    }
    let _ = write!(out, "<a href=\"{}\">Refresh now</a>", Text(&view.link(view.only_up, view.no_refresh)));
    for (kind, name) in [("csv", "CSV"), ("json", "JSON")] {
        let _ = write!(out, "<a href=\"{};{kind}\">{name}</a>", Text(&view.uri));
    }
    let _ = write!(
        out,
        "<form action=\"{}\" method=\"get\" role=\"search\"><label class=\"sr\" for=\"scope\">Proxies whose name has</label>\
         <input type=\"search\" id=\"scope\" name=\"scope\" placeholder=\"Filter proxies\" value=\"{}\"></form></nav>",
        Text(&view.uri),
        Text(&view.scope)
    );
}

fn facts(out: &mut String, snapshot: &Snapshot) {
    let p = &snapshot.process;
    let (current, peak, total) = p.connections;
    let of = |n: u64, rest: String| format!("{} <small>{rest}</small>", Count(n));
    let facts = [
        ("Uptime", Age(p.uptime.as_secs()).to_string()),
        ("Workers", p.threads.to_string()),
        (
            "Connections",
            of(u64::from(current), format!("of {}, most {}", Count(u64::from(p.maxconn)), Count(u64::from(peak)))),
        ),
        ("Connections ever", of(total, format!("{}/s", Count(u64::from(p.connection_rate.0))))),
        ("Sessions a second", of(u64::from(p.session_rate.0), format!("most {}", Count(u64::from(p.session_rate.1))))),
        ("Requests", Count(p.requests).to_string()),
        ("TLS handshakes", of(p.tls.0, format!("{} resumed, {} failed", Count(p.tls.1), Count(p.tls.2)))),
        ("Crypto engine", engine(snapshot)),
        ("Sent to clients", bytes(p.bytes_out)),
    ];
    out.push_str("<dl class=\"facts\">");
    for (name, value) in facts {
        let _ = write!(out, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    }
    out.push_str("</dl>");
}

/// The engine and the handshakes that wait for it; its table has the rest.
fn engine(snapshot: &Snapshot) -> String {
    let report = &snapshot.engine;
    let benched = if report.counters.is_benched { ", benched" } else { "" };
    format!("{} <small>{} waiting{benched}</small>", report.engine, Count(report.line.waiting))
}

/// The code that an action came back with.
fn outcome(code: &str) -> (&'static str, &'static str) {
    match code {
        "DONE" => ("", "Done."),
        "NONE" => ("bad", "Nothing has changed."),
        "PART" => ("bad", "Only some of the servers took it."),
        "DENY" => ("bad", "You may not do that here."),
        "ERRP" => ("bad", "The form was not understood."),
        "EXCD" => ("bad", "Too many servers at once."),
        _ => ("bad", "Unexpected result."),
    }
}

fn legend(out: &mut String) {
    out.push_str("<p class=\"legend\">");
    for (class, text) in [
        ("up", "up"),
        ("turning", "going up or down"),
        ("down", "down"),
        ("maint", "maintenance"),
        ("drain", "draining, or no new clients"),
        ("unchecked", "not checked"),
    ] {
        let _ = write!(out, "<span><span class=\"state {class}\">&nbsp;</span> {text}</span>");
    }
    out.push_str("</p>");
}

/// Groups of columns and the columns in them, each with its legend.
const HEAD: &[(&str, &[(&str, &str)])] = &[
    ("Queue", &[("Now", "Requests waiting"), ("Max", "Most that waited at once"), ("Limit", "maxqueue")]),
    ("Sessions/s", &[("Now", "Sessions a second"), ("Max", "Most in a second"), ("Limit", "rate-limit sessions")]),
    (
        "Sessions",
        &[
            ("Now", "Sessions or requests in progress"),
            ("Max", "Most at once"),
            ("Limit", "maxconn, or fullconn of a backend"),
            ("Total", "All since the start"),
            ("LbTot", "Chosen by the balancing algorithm"),
            ("Last", "Time since the last one"),
        ],
    ),
    ("Bytes", &[("In", "From clients"), ("Out", "To clients")]),
    ("Denied", &[("Req", "Requests denied by rules"), ("Resp", "Responses denied by rules")]),
    (
        "Errors",
        &[
            ("Req", "Requests that could not be read"),
            ("Conn", "Connections to servers that failed"),
            ("Resp", "Responses that failed"),
        ],
    ),
    ("Warnings", &[("Retr", "Connections tried again"), ("Redis", "Requests sent to another server")]),
    (
        "Server",
        &[
            ("Status", "State and for how long"),
            ("LastChk", "Last health check"),
            ("Wght", "Effective weight / weight as configured"),
            ("Act", "Active servers"),
            ("Bck", "Backup servers"),
            ("Chk", "Failed health checks"),
            ("Dwn", "Times it went down"),
            ("Dwntme", "Time spent down"),
            ("Thrtle", "Slow start"),
        ],
    ),
];

fn section(out: &mut String, rows: &[&Row], page: &StatsPage, view: &View) {
    let Some(first) = rows.first() else { return };
    let name = Text(&first.proxy_name);
    let has_servers = rows.iter().any(|row| row.kind == Kind::Server);
    let acts = view.admin && has_servers;
    let _ = write!(out, "<section aria-labelledby=\"p{}\">", first.proxy);
    if acts {
        let _ = write!(out, "<form action=\"{}\" method=\"post\">", Text(&view.link(view.only_up, view.no_refresh)));
    }
    let mut details = Vec::new();
    if page.show_desc.is_some() {
        details.extend(first.description.clone());
    }
    if page.show_legends {
        details.push(format!("mode {}", if first.http { "http" } else { "tcp" }));
        let algorithm = rows.iter().find_map(|row| row.algorithm);
        details.extend(algorithm.map(|algorithm| format!("balance {algorithm}")));
        details.push(format!("id {}", first.iid));
    }
    let _ = write!(out, "<h2 id=\"p{}\">{name}<small>{}</small></h2>", first.proxy, Text(&details.join(" · ")));
    let _ = write!(out, "<div class=\"scroll\"><table><caption class=\"sr\">Statistics of {name}</caption><thead><tr>");
    if acts {
        out.push_str("<th rowspan=\"2\"><span class=\"sr\">Select</span></th>");
    }
    out.push_str("<th rowspan=\"2\" scope=\"col\"><span class=\"sr\">Name</span></th>");
    for (group, columns) in HEAD {
        let _ = write!(out, "<th colspan=\"{}\" scope=\"colgroup\">{group}</th>", columns.len());
    }
    out.push_str("</tr><tr>");
    for (_, columns) in HEAD {
        for (at, (column, legend)) in columns.iter().enumerate() {
            let edge = if at == 0 { "edge" } else { "" };
            let left = if matches!(*column, "Status" | "LastChk") { " left" } else { "" };
            let _ =
                write!(out, "<th class=\"{edge}{left}\" scope=\"col\"><abbr title=\"{legend}\">{column}</abbr></th>");
        }
    }
    out.push_str("</tr></thead><tbody>");
    for row in rows {
        body_row(out, row, page, acts);
    }
    out.push_str("</tbody></table></div>");
    if acts {
        actions(out, first);
    }
    out.push_str("</section>");
}

fn body_row(out: &mut String, row: &Row, page: &StatsPage, acts: bool) {
    let is_server = row.kind == Kind::Server;
    let (class, name) = match row.kind {
        Kind::Frontend => (" class=\"side\"", "Frontend"),
        Kind::Backend => (" class=\"side\"", "Backend"),
        Kind::Server | Kind::Listener => ("", row.name.as_str()),
    };
    let _ = write!(out, "<tr{class}>");
    if acts {
        match is_server {
            true => {
                let name = Text(&row.name);
                let _ =
                    write!(out, "<td><input type=\"checkbox\" name=\"s\" value=\"{name}\" aria-label=\"{name}\"></td>");
            }
            false => out.push_str("<td></td>"),
        }
    }
    let mut tip = Vec::new();
    if page.show_legends {
        tip.extend(row.address.clone());
        if let Some(server) = &row.server {
            tip.extend(server.address.clone());
            tip.extend(server.cookie.as_ref().map(|cookie| format!("cookie {cookie}")));
            tip.push(format!("id {}", row.sid));
        }
    }
    let _ = write!(out, "<th scope=\"row\" title=\"{}\">{}</th>", Text(&tip.join(", ")), Text(name));
    let t = &row.totals;
    let up = row.upstream.as_ref();
    let some = |shown: bool, n: u64| if shown { Count(n).to_string() } else { String::new() };
    let limit = |n: Option<u32>| n.map(|n| Count(u64::from(n)).to_string()).unwrap_or_default();
    let wide = |n: u32| u64::from(n);
    let (queues, listens) = (up.is_some(), row.kind == Kind::Listener);
    let faces_clients = matches!(row.kind, Kind::Frontend | Kind::Listener);
    let server = row.server.as_ref();
    let rate_limit = Some(row.rate_limit).filter(|&n| n > 0);
    let last = row.idle_seconds().filter(|_| queues).map(|s| Age(s).to_string());
    let check = server.and_then(|server| server.check());
    let cells: [Vec<String>; 7] = [
        vec![
            some(queues, wide(row.queue.now)),
            some(queues, wide(row.queue.max)),
            limit(server.and_then(|s| s.queue_limit)),
        ],
        vec![some(!listens, wide(t.session_rate.rate)), some(!listens, wide(t.session_rate.max)), limit(rate_limit)],
        vec![
            some(true, wide(row.sessions.now)),
            some(true, wide(row.sessions.max)),
            limit(row.sessions.limit),
            some(true, t.sessions),
            up.map(|up| Count(up.lb_total).to_string()).unwrap_or_default(),
            last.unwrap_or_default(),
        ],
        vec![bytes(t.bytes_in), bytes(t.bytes_out)],
        vec![some(!is_server, t.denied_requests), some(true, t.denied_responses)],
        vec![some(faces_clients, t.request_errors), some(queues, t.connect_errors), some(queues, t.response_errors)],
        vec![some(queues, t.retries), some(queues, t.redispatches)],
    ];
    for group in cells {
        for (at, cell) in group.iter().enumerate() {
            let _ = write!(out, "<td{}>{cell}</td>", if at == 0 { " class=\"edge\"" } else { "" });
        }
    }
    let since = up.map(|up| format!(" {}", Age(up.since.as_secs()))).unwrap_or_default();
    let _ = write!(
        out,
        "<td class=\"edge left\"><span class=\"state {}\">{}</span>{since}</td>",
        state_class(&row.status),
        Text(&row.status)
    );
    let (brief, long) = match check {
        Some(check) if !check.status.is_empty() => {
            let code = check.code.filter(|&code| code > 0).map(|code| format!("/{code}")).unwrap_or_default();
            let took = check.duration.map(|took| format!(" in {}", milliseconds(took))).unwrap_or_default();
            let info = if check.info.is_empty() { String::new() } else { format!(": {}", check.info) };
            let star = if check.running { "* " } else { "" };
            (format!("{star}{}{code}{took}", check.status), format!("{}{info}", check.description))
        }
        _ => (String::new(), String::new()),
    };
    let _ = write!(out, "<td class=\"left\"><span title=\"{}\">{}</span></td>", Text(&long), Text(&brief));
    let counts = |cell: &dyn Fn(&Upstream) -> String| up.map(cell).unwrap_or_default();
    let checked = check.is_some() || row.kind == Kind::Backend;
    let cells = [
        counts(&|up| format!("{}/{}", up.weight, up.user_weight)),
        counts(&|up| {
            if is_server { if up.active > 0 { "Y".into() } else { "–".into() } } else { up.active.to_string() }
        }),
        counts(&|up| {
            if is_server { if up.backup > 0 { "Y".into() } else { "–".into() } } else { up.backup.to_string() }
        }),
        check.map(|check| Count(check.failed).to_string()).unwrap_or_default(),
        counts(&|up| some(checked, up.down_transitions)),
        counts(&|up| if checked { Age(up.down_time.as_secs()).to_string() } else { String::new() }),
        server.and_then(|s| s.throttle).map(|percent| format!("{percent} %")).unwrap_or_default(),
    ];
    for cell in cells {
        let _ = write!(out, "<td>{cell}</td>");
    }
    out.push_str("</tr>");
}

fn state_class(status: &str) -> &'static str {
    let partial = status.contains('/') && !status.starts_with("MAINT");
    match status.split(' ').next().unwrap_or_default() {
        "DOWN" if partial => "turning",
        "UP" if partial => "turning",
        "UP" | "OPEN" => "up",
        "DOWN" => "down",
        "MAINT" | "STOP" => "maint",
        "DRAIN" | "NOLB" => "drain",
        _ => "unchecked",
    }
}

fn milliseconds(took: Duration) -> String {
    format!("{} ms", took.as_millis())
}

/// Bytes in the unit that leaves three digits; all of them stand in the title.
fn bytes(n: u64) -> String {
    let mut value = n as f64;
    let mut unit = "";
    for next in ["K", "M", "G", "T", "P"] {
        if value < 10_000.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if unit.is_empty() {
        return Count(n).to_string();
    }
    format!("<span title=\"{n}\">{value:.0} {unit}</span>")
}

/// The actions of HAProxy's page that have a meaning here.
const ACTIONS: &[(&str, &str)] = &[
    ("ready", "Set state to READY"),
    ("drain", "Set state to DRAIN"),
    ("maint", "Set state to MAINT"),
    ("hrunn", "Health: force UP"),
    ("hnolb", "Health: force NOLB"),
    ("hdown", "Health: force DOWN"),
    ("shutdown", "Kill sessions"),
];

fn actions(out: &mut String, row: &Row) {
    let (proxy, name) = (row.proxy, Text(&row.proxy_name));
    let _ = write!(
        out,
        "<div class=\"actions\"><label for=\"a{proxy}\">With the selected servers of {name}:</label>\
         <select id=\"a{proxy}\" name=\"action\"><option value=\"\"></option>"
    );
    for (value, text) in ACTIONS {
        let _ = write!(out, "<option value=\"{value}\">{text}</option>");
    }
    let _ = write!(
        out,
        "</select><input type=\"hidden\" name=\"b\" value=\"#{}\"><button type=\"submit\">Apply</button></div></form>",
        row.iid
    );
}
