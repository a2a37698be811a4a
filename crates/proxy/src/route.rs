//! Where a request goes: runs the rules of its frontend, chooses the backend, runs that backend's rules, and applies
//! persistence.

pub(crate) mod checkcache;
pub(crate) mod content;
pub(crate) mod cookie;
pub(crate) mod persistence;

use crate::{
    connection::Conn,
    exchange::{
        buffered_body::{self, Ahead},
        caching, finish, headers,
        live::Live,
        respond, service,
        state::{Exchange, ms_between},
    },
    inspect::passage,
    rules::{
        after_response,
        context::{self, Judged, Readable},
        evaluate, login,
    },
    spoe,
};
use penstock_config::model::{Mode, Proxy, ProxyId, RestrictedNames, SpoeEvent};
use penstock_http::Framing;
use penstock_rules::{Answer, By, Destination, During, LogLevel, ProxyRules, Termination};

/// The destination of a request.
pub(crate) enum Route {
    /// To the backend at this place in the configuration.
    Backend(ProxyId),
    /// A stored response answers the request.
    Stored,
    /// It opens a tunnel, in which a connection begins that ends here.
    Tunnel,
    /// The request has been answered here.
    Answered,
}

/// Runs the rules of the frontend and of the backend it chooses.
pub(crate) async fn request(live: &mut Live<'_, '_>) -> Route {
    let worker = live.worker;
    let shared = &worker.shared;
    let frontend = &shared.config.proxies[live.conn.frontend];
    let rules = shared.program.of(live.conn.frontend);
    if monitor(live, frontend, rules).await {
        return Route::Answered;
    }
    if !rules.request_captures.is_empty() || !rules.response_captures.is_empty() {
        rules.capture_request(&live.x.request.fields, &mut live.x.txn);
    }
    if frontend.options.http_buffer_request && buffer_request(live, frontend).await == Judged::Over {
        return Route::Answered;
    }
    if shared.program.reads_requests {
        buffered_body::look(live).await;
    }
    if section(live, live.conn.frontend).await == Judged::Over {
        return Route::Answered;
    }
    let in_clear = live.conn.bind().ssl_on_connect && live.conn.facts.tls.is_none();
    if in_clear && live.x.request.method() == b"CONNECT" {
        return Route::Tunnel;
    }
    // The rules of the backend may yet have the request inspected, which no stored response was.
    if caching::is_found(live.x) && !shared.program.backends_inspect {
        live.conn.request_decided(live.x);
        return Route::Stored;
    }
    let Some(chosen) = login::known(live, |conn, x| choose(conn, x, Readable::Request)).await else {
        return Route::Answered;
    };
    let Some(backend) = chosen else {
        if caching::is_found(live.x) {
            live.conn.request_decided(live.x);
            return Route::Stored;
        }
        unserved(live, frontend.options.http_buffer_request).await;
        return Route::Answered;
    };
    live.x.backend = Some(backend);
    worker.roster.note(live.x.listed, |session| session.backend = Some(backend));
    let proxy = &shared.config.proxies[backend];
    if proxy.mode == Mode::Tcp {
        // As in HAProxy: a rule has made it HTTP, or has chosen the backend by a name that was not known at start.
        live.x.log.termination = Termination(By::Internal, During::Request);
        live.x.log.TR = -1;
        respond::hang_up(live.client, live.x, 500);
        return Route::Answered;
    }
    if backend != live.conn.frontend {
        if proxy.disabled {
            unserved(live, frontend.options.http_buffer_request).await;
            return Route::Answered;
        }
        // Before the rules of the backend, which may look at the body.
        if proxy.options.http_buffer_request && buffer_request(live, proxy).await == Judged::Over {
            return Route::Answered;
        }
        if section(live, backend).await == Judged::Over {
            return Route::Answered;
        }
    }
    live.conn.request_decided(live.x);
    if caching::is_found(live.x) {
        return Route::Stored;
    }
    if frontend.capture_cookie.is_some() {
        headers::capture_cookie(live.conn, live.x);
        cookie::tidy(&mut live.x.request.fields);
    }
    headers::forwarded_for(live.conn, live.x, proxy);
    // It is made even if nothing asks for it yet: rules on responses and the log show the value as of this moment.
    context::make_unique_id(live.conn, live.x, Readable::Request);
    if let Some(name) = &frontend.unique_id_header {
        add_unique_id(live.x, name);
    }
    Route::Backend(backend)
}

/// Answers a request for which there is no backend, or one that is disabled. In the log it was never complete, unless its body was waited for.
async fn unserved(live: &mut Live<'_, '_>, buffered: bool) {
    live.x.log.termination = Termination(By::Server, During::Connect);
    if !buffered {
        live.x.log.TR = -1;
    }
    respond::error(live, 503).await;
}

/// Runs the rules of one section, frontend or backend, and serves its statistics page.
async fn section(live: &mut Live<'_, '_>, proxy: ProxyId) -> Judged {
    let worker = live.worker;
    let rules = worker.shared.program.of(proxy);
    let inspect = worker.shared.config.proxies[proxy].tcp_request_inspect_delay;
    // Those of a TCP frontend have judged the request that made its connection one of HTTP.
    let switched = proxy == live.conn.frontend && live.x.switched.is_some();
    let (tcp_event, http_event) = match proxy == live.conn.frontend {
        true => (SpoeEvent::FrontendTcpRequest, SpoeEvent::FrontendHttpRequest),
        false => (SpoeEvent::BackendTcpRequest, SpoeEvent::BackendHttpRequest),
    };
    if !switched {
        if proxy == live.conn.frontend
            && let Some(telling) = spoe::http(live, SpoeEvent::ClientSession, Readable::Request)
        {
            telling.await;
        }
        if let Some(telling) = spoe::http(live, tcp_event, Readable::Request) {
            telling.await;
        }
    }
    if !(switched || rules.tcp_content.is_empty())
        && evaluate::request(live, &rules.tcp_content, inspect).await == Judged::Over
    {
        // Those of the frontend come before HTTP: for the log there was no request, but its unique-id is made of it.
        context::make_unique_id(live.conn, live.x, Readable::Request);
        if proxy == live.conn.frontend {
            live.x.txn.received.clear();
        }
        live.x.txn.request_cookie = None;
        return Judged::Over;
    }
    if proxy == live.conn.frontend {
        // HTTP begins here: what has been tracked so far counts a request, and what later rules track does so by itself.
        live.conn.session.tracking.http_request(worker.now_ms());
        live.x.txn.tracking.http_request(worker.now_ms());
    }
    if let Some(telling) = spoe::http(live, http_event, Readable::Request) {
        telling.await;
    }
    if !rules.http_request.is_empty() && evaluate::request(live, &rules.http_request, None).await == Judged::Over {
        return Judged::Over;
    }
    if restrict_names(live, proxy).await == Judged::Over {
        return Judged::Over;
    }
    // A response that a cache has goes before the page.
    if caching::is_found(live.x) {
        return Judged::GoOn;
    }
    if stats(live, proxy, rules).await {
        return Judged::Over;
    }
    match rules.redirects.is_empty() {
        true => Judged::GoOn,
        false => evaluate::request(live, &rules.redirects, None).await,
    }
}

/// `option http-restrict-req-hdr-names`: servers behind CGI cannot tell some names apart.
async fn restrict_names(live: &mut Live<'_, '_>, proxy: ProxyId) -> Judged {
    let is_plain = |name: &[u8]| name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-');
    let fields = &mut live.x.request.fields;
    match live.worker.shared.config.proxies[proxy].options.restricted_names {
        RestrictedNames::Delete => {
            fields.remove_if(|field| !is_plain(field.name));
        }
        RestrictedNames::Reject if !fields.iter().all(|field| is_plain(field.name)) => {
            finish::track_denied(live.conn, live.x);
            live.conn.listener_cells().iter().for_each(|cells| cells.denied_requests.inc());
            live.conn.request_decided(live.x);
            live.x.log.termination = Termination(By::Refusal, During::Request);
            respond::error(live, 403).await;
            return Judged::Over;
        }
        RestrictedNames::Preserve | RestrictedNames::Reject => {}
    }
    Judged::GoOn
}

/// Answers a request for `monitor-uri`; returns whether it was one.
async fn monitor(live: &mut Live<'_, '_>, frontend: &Proxy, rules: &ProxyRules) -> bool {
    let Some(uri) = &frontend.monitor_uri else { return false };
    if uri.as_bytes() != live.x.request.path_and_query() && uri.as_bytes() != live.x.request.target() {
        return false;
    }
    let failed = login::known(live, |conn, x| {
        let context = context::context(conn, x, Readable::Request);
        rules.monitor_fail.iter().any(|condition| condition.holds(&context) == Answer::Yes)
    });
    let Some(failed) = failed.await else { return true };
    // A monitor asks all the time, so its requests are answered without being logged.
    live.x.txn.log_level = Some(LogLevel::Silent);
    live.x.log.termination = Termination(By::Ourselves, During::Request);
    respond::error(live, if failed { 503 } else { 200 }).await;
    true
}

/// Answers with the statistics page if the request is for `stats uri` of that proxy; returns whether it was.
async fn stats(live: &mut Live<'_, '_>, proxy: ProxyId, rules: &ProxyRules) -> bool {
    let worker = live.worker;
    let Some(page) = &worker.shared.config.proxies[proxy].stats else { return false };
    // Requests with other methods go to the server.
    let asked = matches!(live.x.request.method(), b"GET" | b"HEAD" | b"POST")
        && live.x.request.path_and_query().starts_with(page.uri.as_bytes());
    let Some(found) = worker.handle.inner.services.stats.clone().filter(|_| asked) else { return false };
    live.conn.request_decided(live.x);
    service::taken_by(live.conn, live.x, found.log_name());
    if !rules.stats_request.is_empty() && evaluate::request(live, &rules.stats_request, None).await == Judged::Over {
        return true;
    }
    service::answer(live, found, proxy).await;
    true
}

/// `option http-buffer-request`: waits for the whole body, or a buffer full of it, before anything is decided.
async fn buffer_request(live: &mut Live<'_, '_>, proxy: &Proxy) -> Judged {
    let judged = whole_body(live, proxy).await;
    if judged == Judged::GoOn {
        live.conn.request_decided(live.x);
    }
    judged
}

/// Waits until the request's body is there, or fills the buffer.
pub(crate) async fn whole_body(live: &mut Live<'_, '_>, proxy: &Proxy) -> Judged {
    if live.client.request_framing() == Framing::None {
        return Judged::GoOn;
    }
    let own = &live.conn.proxy().timeouts;
    let limit = proxy.timeouts.http_request.or(own.http_request).or(own.client);
    evaluate::wait_for_body(live, 0, limit).await
}

fn add_unique_id(x: &mut Exchange, name: &str) {
    let id = x.txn.unique_id.borrow().clone();
    if let Some(id) = id {
        // An identifier that is not valid in a header field is omitted.
        let _ = x.request.fields.append(name.to_ascii_lowercase().as_bytes(), &id);
    }
}

/// Chooses the backend: `use_backend` rules in order, then `default_backend`, then the proxy itself.
fn choose(conn: &mut Conn<'_>, x: &mut Exchange, stage: Readable) -> Option<ProxyId> {
    let shared = &conn.worker.shared;
    let frontend = conn.frontend;
    let rules = &shared.program.of(frontend).use_backend;
    if !rules.is_empty() {
        let context = context::context(conn, x, stage);
        // If the rule that applies names no existing backend, the default one is used and no other rule is looked at
        // (manual, `use_backend`).
        let chosen = rules.iter().find(|rule| rule.condition.holds(&context) == Answer::Yes);
        let found = chosen.and_then(|rule| match &rule.to {
            Destination::Backend(id) => Some(*id),
            Destination::Named(format) => shared.program.backend_named(&format.to_bytes(&context)),
        });
        if found.is_some() {
            return found;
        }
    }
    shared.program.default_backend[frontend]
}

/// Runs the rules on a server's response, the backend's first; returns whether the response is sent.
pub(crate) async fn response(live: &mut Live<'_, '_>, ahead: &mut Ahead<'_>) -> bool {
    let worker = live.worker;
    let shared = &worker.shared;
    // Behind a device it is a response to that; rules see what that makes of it, unless it is a page that was made here.
    let is_seen = live.x.passage.back.is_none() && !passage::is_page(live.x);
    if is_seen {
        // A stored response has no connection, and agents are told of one all the same, as by HAProxy.
        if let Some(telling) = spoe::connected(live) {
            telling.await;
        }
        if let Some(telling) = spoe::http(live, SpoeEvent::TcpResponse, Readable::Response) {
            telling.await;
        }
    }
    if let Some(backend) = live.x.backend.filter(|_| is_seen) {
        let list = &shared.program.of(backend).tcp_response;
        // Without an inspection delay, these rules decide before there is a response.
        let seen = shared.config.proxies[backend].tcp_response_inspect_delay.is_some();
        if !list.is_empty() && evaluate::response(live, list, seen, ahead).await == Judged::Over {
            return false;
        }
    }
    let rules = shared.program.of(live.conn.frontend);
    if is_seen && !rules.response_captures.is_empty() {
        rules.capture_response(&live.x.response.fields, &mut live.x.txn);
    }
    let times = &live.x.times;
    live.x.log.Tr = times.connected.zip(times.answered).map_or(-1, |(from, to)| ms_between(from, to));
    passage::measure(live.x);
    live.x.txn.response_version = Some(live.x.response.version());
    live.x.txn.status = Some(live.x.response.status());
    if shared.program.reads_responses {
        buffered_body::look_ahead(live.conn, live.x, ahead).await;
    }
    // Before rules, which may look into the table. Behind a device it was remembered there.
    if let Some(server) = live.x.server.clone().filter(|_| live.x.passage.out.is_none()) {
        persistence::remember(live.conn, live.x, &server, Readable::Response);
    }
    if is_seen && let Some(telling) = spoe::http(live, SpoeEvent::HttpResponse, Readable::Response) {
        telling.await;
    }
    let frontend = (live.x.backend != Some(live.conn.frontend)).then_some(live.conn.frontend);
    for proxy in live.x.backend.into_iter().chain(frontend).filter(|_| is_seen) {
        let list = &shared.program.of(proxy).http_response;
        if !list.is_empty() && evaluate::response(live, list, true, ahead).await == Judged::Over {
            return false;
        }
    }
    if let Some(capture) = shared.config.proxies[live.conn.frontend].capture_cookie.as_ref().filter(|_| is_seen) {
        live.x.txn.response_cookie = headers::captured_set_cookie(&live.x.response.fields, capture);
    }
    if !after_response::run(live.conn, live.x) {
        live.x.log.termination = Termination(By::Refusal, During::Headers);
        respond::error(live, 500).await;
        return false;
    }
    true
}
