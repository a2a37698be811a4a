//! The two services: the statistics page, with its other formats and its actions, and the Prometheus exporter.

use crate::command::{SCHEMA, tell_left_out, typed};
use crate::live::Viewers;
use crate::page::{Page, SCRIPT, STYLE, View, covers, decode, forms::FormKey, graphs::Shown};
use crate::{csv, json, prometheus};
use aws_lc_rs::digest;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use penstock_config::model::StatsPage;
use penstock_proxy::server::{Command, ServerRef};
use penstock_proxy::snapshot::{Kind, Snapshot};
use penstock_proxy::{Service, ServiceRequest, ServiceResponse};
use std::{sync::LazyLock, time::Instant};

/// The service of `stats enable`: the statistics page.
#[derive(Clone, Debug)]
pub struct Stats {
    version: String,
    secret: FormKey,
    viewers: Viewers,
}

impl Stats {
    /// A page that shows this version of the program.
    pub fn new(version: String) -> Stats {
        Stats { version, secret: FormKey::new(), viewers: Viewers::default() }
    }
}

/// The service of `http-request use-service prometheus-exporter`.
#[derive(Clone, Debug)]
pub struct Exporter {
    /// The version that `haproxy_process_build_info` shows.
    pub version: String,
}

/// The body of a 401 response, like the error page of that status.
const UNAUTHORIZED: &str = "<html><body><h1>401 Unauthorized</h1>\n\
    You need a valid user and password to access this content.\n</body></html>\n";

fn answer(status: u16, kind: &str, body: String) -> ServiceResponse {
    let fields =
        vec![("Cache-Control".to_string(), "no-cache".to_string()), ("Content-Type".to_string(), kind.to_string())];
    ServiceResponse { status, fields, body: body.into_bytes(), stream: None }
}

impl Service for Exporter {
    fn log_name(&self) -> &'static str {
        "<PROMEX>"
    }
    fn answer(&self, request: ServiceRequest<'_>) -> ServiceResponse {
        let target = String::from_utf8_lossy(request.target);
        let query = target.split_once('?').map_or("", |(_, query)| query);
        let (Some(scope), Some(filter)) = (prometheus::Scope::parse(query), prometheus::MetricNames::parse(query))
        else {
            return answer(400, "text/plain", "a scope that does not exist, or a parameter without its value\n".into());
        };
        let (handle, wanted) = (request.handle, (scope, &filter));
        let resolvers = &handle.shared().resolving.sections;
        let text = prometheus::render(&handle.snapshot(), &handle.tables(), resolvers, wanted, &self.version);
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
        let view = View::parse(&page.uri, options, request.admin);
        if request.method == b"POST" {
            return self.act(&request, &view, page);
        }
        if options.contains(";stream") {
            return self.stream(&request, view);
        }
        let mut snapshot = request.handle.snapshot();
        let is_data = [";json", ";typed", ";csv"].iter().any(|format| options.contains(format));
        if is_data && (view.only_up || view.no_maint) {
            tell_left_out(&mut snapshot.rows);
        }
        let rows = || snapshot.rows.iter().filter(|row| view.shows(page, row, &request.proxy.name));
        let refresh = view.refresh(page);
        let refreshed = |mut found: ServiceResponse| {
            if refresh > 0 {
                found.fields.push(("Refresh".into(), refresh.to_string()));
            }
            found
        };
        // HAProxy's order of precedence.
        if options.contains(";json-schema") {
            return refreshed(answer(200, "application/json", SCHEMA.into()));
        }
        if options.contains(";json") {
            return refreshed(answer(200, "application/json", json::render(rows(), page.show_legends)));
        }
        if options.contains(";typed") {
            let lines = rows().map(|row| typed(row, page.show_legends, false)).collect();
            return refreshed(answer(200, "text/plain", lines));
        }
        if options.contains(";csv") {
            return refreshed(answer(200, "text/plain", csv::render(rows(), page.show_legends)));
        }
        let shown = Shown::of(request.handle, &view, &rows().collect::<Vec<_>>());
        let token = if view.admin { self.secret.token(&request.proxy.name) } else { String::new() };
        let body = Page {
            snapshot: &snapshot,
            config: page,
            view: &view,
            version: &self.version,
            self_name: &request.proxy.name,
            token: &token,
            shown,
        };
        let body = body.render();
        let mut found = refreshed(answer(200, "text/html", body));
        found.fields.push(("Content-Security-Policy".into(), POLICY.clone()));
        found
    }
}

impl Stats {
    /// Answers with a stream of events for a viewer of the page, one a second.
    fn stream(&self, request: &ServiceRequest<'_>, view: View) -> ServiceResponse {
        if request.method != b"GET" {
            return answer(405, "text/plain", "only GET\n".into());
        }
        match self.viewers.add(request, view) {
            Some((first, stream)) => {
                let mut found = answer(200, "text/event-stream", String::new());
                (found.body, found.stream) = (first, Some(stream));
                found
            }
            None => answer(503, "text/plain", "too many viewers, or the process is stopping\n".into()),
        }
    }

    /// Carries out a form's action on the servers it names, and redirects the browser to the page.
    fn act(&self, request: &ServiceRequest<'_>, view: &View, page: &StatsPage) -> ServiceResponse {
        let code = if request.admin { self.perform(request, page) } else { "DENY" };
        let mut found = answer(303, "text/plain", String::new());
        found.fields.push(("Location".into(), view.outcome(code)));
        found
    }

    fn perform(&self, request: &ServiceRequest<'_>, page: &StatsPage) -> &'static str {
        let body = String::from_utf8_lossy(request.body).into_owned();
        let pairs = body.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let pairs: Vec<(String, String)> = pairs.map(|(name, value)| (decode(name), decode(value))).collect();
        let first = |wanted: &str| pairs.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
        if !self.secret.admits(request, first("token")) {
            return "FORM";
        }
        let (action, backend, snapshot) = (first("action").map(command), first("b"), request.handle.snapshot());
        let exists = |backend: &str| {
            let mut rows = snapshot.rows.iter().filter(|row| row.kind == Kind::Backend);
            rows.any(|row| covers(page, row, &request.proxy.name) && is_called(backend, &row.proxy_name, row.iid))
        };
        if action == Some(None) || backend.is_some_and(|backend| !exists(backend)) {
            return "ERRP";
        }
        let (Some(Some(command)), Some(backend)) = (action, backend) else { return "NONE" };
        let (mut wanted, mut done) = (0, 0);
        for (_, server) in pairs.iter().filter(|(name, _)| name == "s") {
            wanted += 1;
            if let Some(at) = find(&snapshot, page, &request.proxy.name, backend, server) {
                request.handle.shared().backends.command(at, command, "changed from Web interface", Instant::now());
                done += 1;
            }
        }
        match (wanted, done) {
            (0, _) => "NONE",
            (_, 0) => "ERRP",
            (wanted, done) if wanted == done => "DONE",
            _ => "PART",
        }
    }
}

/// The Content-Security-Policy: allows the page's own style, script, stream and forms, and nothing else.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = |text: &str| STANDARD.encode(digest::digest(&digest::SHA256, text.as_bytes()));
    format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; connect-src 'self'; img-src data:; form-action 'self'; \
         base-uri 'none'; frame-ancestors 'self'",
        hash(STYLE),
        hash(SCRIPT)
    )
});

/// Whether the request has the credentials of one of the users; every user is compared, even after a match.
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

/// Finds a server by name, or by `#` and number, in a backend found in the same way, among those that `stats scope` allows. What a viewer
/// has chosen to see does not matter.
fn find(snapshot: &Snapshot, page: &StatsPage, self_name: &str, backend: &str, server: &str) -> Option<ServerRef> {
    let row = snapshot.rows.iter().find(|row| {
        row.kind == Kind::Server
            && covers(page, row, self_name)
            && is_called(backend, &row.proxy_name, row.iid)
            && is_called(server, &row.name, row.sid)
    })?;
    row.at
}

/// Whether a form means the proxy or server of that name and number.
fn is_called(wanted: &str, name: &str, id: u32) -> bool {
    match wanted.strip_prefix('#') {
        Some(number) => number.parse() == Ok(id),
        None => wanted == name,
    }
}

/// The actions by the names in HAProxy's forms, including older ones.
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
