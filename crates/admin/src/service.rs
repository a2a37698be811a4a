//! The two services: the statistics page with its other formats and its actions, and the exporter.

use crate::page::{self, View};
use crate::{csv, json, prometheus};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use penstock_config::model::StatsPage;
use penstock_proxy::server::{Command, ServerRef};
use penstock_proxy::snapshot::{Kind, Snapshot};
use penstock_proxy::{Service, ServiceRequest, ServiceResponse};
use std::time::Instant;

/// `stats enable`.
#[derive(Clone, Debug)]
pub struct Stats {
    /// The version the page shows.
    pub version: String,
}

/// `http-request use-service prometheus-exporter`.
#[derive(Clone, Debug)]
pub struct Exporter {
    /// The version that `haproxy_process_build_info` shows.
    pub version: String,
}

/// The page of a 401, as the error page of that status.
const UNAUTHORIZED: &str = "<html><body><h1>401 Unauthorized</h1>\n\
    You need a valid user and password to access this content.\n</body></html>\n";

fn answer(status: u16, kind: &str, body: String) -> ServiceResponse {
    let fields =
        vec![("Cache-Control".to_string(), "no-cache".to_string()), ("Content-Type".to_string(), kind.to_string())];
    ServiceResponse { status, fields, body: body.into_bytes() }
}

impl Service for Exporter {
    fn log_name(&self) -> &'static str {
        "<PROMEX>"
    }
    fn answer(&self, request: ServiceRequest<'_>) -> ServiceResponse {
        if request.method != b"GET" && request.method != b"HEAD" {
            return answer(405, "text/plain", "only GET and HEAD\n".into());
        }
        let target = String::from_utf8_lossy(request.target);
        let query = target.split_once('?').map_or("", |(_, query)| query);
        let Some(scope) = prometheus::Scope::parse(query) else {
            return answer(400, "text/plain", "no such scope\n".into());
        };
        let text = prometheus::render(&request.handle.snapshot(), scope, &self.version);
        answer(200, "text/plain; version=0.0.4", text)
    }
}

impl Service for Stats {
    fn log_name(&self) -> &'static str {
        "<STATS>"
    }
    fn answer(&self, request: ServiceRequest<'_>) -> ServiceResponse {
        let Some(page) = &request.proxy.stats else { return answer(404, "text/plain", String::new()) };
        if !page.auth.is_empty() && !authorized(page, &request) {
            let realm = page.realm.as_deref().unwrap_or("HAProxy Statistics").replace(['"', '\\', '\r', '\n'], "");
            let mut refusal = answer(401, "text/html", UNAUTHORIZED.into());
            refusal.fields.push(("WWW-Authenticate".into(), format!("Basic realm=\"{realm}\"")));
            return refusal;
        }
        let target = String::from_utf8_lossy(request.target).into_owned();
        let options = target.get(page.uri.len()..).unwrap_or_default();
        let mut view = View { uri: page.uri.clone(), admin: request.admin, ..View::default() };
        view.only_up = options.contains(";up");
        view.no_refresh = options.contains(";norefresh");
        view.done = after(options, ";st=").map(|code| code.chars().take(4).collect());
        view.scope = after(options, "scope=").map(decode).unwrap_or_default();
        if request.method == b"POST" {
            return act(&request, &view, page);
        }
        let snapshot = request.handle.snapshot();
        let rows = snapshot.rows.iter().filter(|row| view.shows(page, row, &request.proxy.name));
        if options.contains(";csv") {
            return answer(200, "text/plain", csv::render(rows, page.show_legends));
        }
        if options.contains(";json") {
            return answer(200, "application/json", json::render(rows, page.show_legends));
        }
        let body = page::render(&snapshot, page, &view, &self.version, &request.proxy.name);
        let mut found = answer(200, "text/html", body);
        let refresh = view.refresh(page);
        if refresh > 0 {
            found.fields.push(("Refresh".into(), refresh.to_string()));
        }
        let policy = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'self'";
        found.fields.push(("Content-Security-Policy".into(), policy.into()));
        found
    }
}

/// What stands behind `key`, up to the next option.
fn after<'a>(options: &'a str, key: &str) -> Option<&'a str> {
    let at = options.find(key)? + key.len();
    Some(options[at..].split([';', '&', '?']).next().unwrap_or_default())
}

/// Percent and plus signs undone.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let hex = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        match (byte, hex.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
            (b'%', Some(value)) => {
                out.push(value);
                at += 2;
            }
            (b'+', _) => out.push(b' '),
            _ => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Whether the request has the credentials of one of the users; every user is compared, whichever matches.
fn authorized(page: &StatsPage, request: &ServiceRequest<'_>) -> bool {
    let given = request.field("authorization").and_then(|value| {
        let (scheme, token) = value.split_at_checked(6)?;
        let token = scheme.eq_ignore_ascii_case(b"basic ").then(|| token.trim_ascii())?;
        STANDARD.decode(token).ok()
    });
    let given = given.unwrap_or_default();
    page.auth.iter().fold(false, |found, (user, password)| {
        let wanted = [user.as_bytes(), b":", password.as_bytes()].concat();
        let differences =
            wanted.iter().zip(given.iter()).fold(wanted.len() ^ given.len(), |d, (a, b)| d | usize::from(a ^ b));
        found | (differences == 0)
    })
}

/// Carries out a form's action on the servers it names, then sends the browser back to the page.
fn act(request: &ServiceRequest<'_>, view: &View, page: &StatsPage) -> ServiceResponse {
    let code = if request.admin { perform(request, view, page) } else { "DENY" };
    let mut options = String::new();
    options.push_str(if view.only_up { ";up" } else { "" });
    options.push_str(if view.no_refresh { ";norefresh" } else { "" });
    let location = format!("{}{options};st={code}", page.uri);
    let mut found = answer(303, "text/plain", String::new());
    found.fields.push(("Location".into(), location));
    found
}

fn perform(request: &ServiceRequest<'_>, view: &View, page: &StatsPage) -> &'static str {
    let body = String::from_utf8_lossy(request.body).into_owned();
    let pairs = body.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let pairs: Vec<(String, String)> = pairs.map(|(name, value)| (decode(name), decode(value))).collect();
    let first = |wanted: &str| pairs.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
    let (Some(action), Some(backend)) = (first("action"), first("b")) else { return "ERRP" };
    let Some(command) = command(action) else { return if action.is_empty() { "NONE" } else { "ERRP" } };
    let snapshot = request.handle.snapshot();
    let (mut wanted, mut done) = (0, 0);
    for (_, server) in pairs.iter().filter(|(name, _)| name == "s") {
        wanted += 1;
        if let Some(at) = find(&snapshot, view, page, &request.proxy.name, backend, server) {
            request.handle.shared().backends.command(at, command, "changed from Web interface", Instant::now());
            done += 1;
        }
    }
    match (wanted, done) {
        (0, _) | (_, 0) => "NONE",
        (wanted, done) if wanted == done => "DONE",
        _ => "PART",
    }
}

/// A server by name, or by number behind `#`, in a backend found likewise, of those the page shows.
fn find(
    snapshot: &Snapshot,
    view: &View,
    page: &StatsPage,
    self_name: &str,
    backend: &str,
    server: &str,
) -> Option<ServerRef> {
    let is = |wanted: &str, name: &str, id: u32| match wanted.strip_prefix('#') {
        Some(number) => number.parse() == Ok(id),
        None => wanted == name,
    };
    let row = snapshot.rows.iter().find(|row| {
        row.kind == Kind::Server
            && view.shows(page, row, self_name)
            && is(backend, &row.proxy_name, row.iid)
            && is(server, &row.name, row.sid)
    })?;
    row.at
}

/// The actions by the names that HAProxy's forms use, the older ones included.
fn command(action: &str) -> Option<Command> {
    Some(match action {
        "ready" | "enable" => Command::Ready,
        "drain" | "stop" => Command::Drain,
        "maint" | "disable" => Command::Maint,
        "start" => Command::Ready,
        "hrunn" => Command::HealthUp,
        "hnolb" => Command::HealthStopping,
        "hdown" => Command::HealthDown,
        "shutdown" => Command::ShutdownSessions,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_decoded() {
        assert_eq!(decode("a+b%2Fc%zz%4"), "a b/c%zz%4");
        assert_eq!(after(";csv;st=DONE;up", ";st="), Some("DONE"));
        assert_eq!(after("?scope=web&x", "scope="), Some("web"));
    }
}
