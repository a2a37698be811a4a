//! Where a request goes: the rules of its frontend, the backend they choose, the backend's own rules, and what binds the
//! request to a server.

pub(crate) mod cookie;

use crate::{
    balance::Subject,
    connection::{Conn, in_time, stream::Fill},
    exchange::{buffered_body::Ahead, ends::Client, headers, respond, state::Exchange},
    queue::Priority,
    rules::{
        evaluate::{self, Judged, Stage},
        login,
    },
    server::{Backend, Server, ServerRef, Want},
    tcp::Raw,
    worker::state::Worker,
};
use penstock_config::model::{BalanceKey, Mode, Proxy};
use penstock_http::{Framing, Limits, Parse};
use penstock_rules::{
    Answer, By, Condition, Destination, During, LogLevel, ProxyRules, ServerOf, Termination, Value, Verdict,
};
use std::{future::poll_fn, rc::Rc};

/// Where a request goes.
pub(crate) enum Route {
    /// To the backend at that place in the configuration.
    Backend(usize),
    /// It has been answered here.
    Answered,
}

/// Runs the rules of the frontend and of the backend it chooses.
pub(crate) async fn request(conn: &mut Conn, client: &mut dyn Client, x: &mut Exchange) -> Route {
    let worker = conn.worker.clone();
    let shared = &worker.shared;
    let frontend = &shared.config.proxies[conn.frontend];
    let rules = shared.program.of(conn.frontend);
    if monitor(conn, client, x, frontend, rules).await {
        return Route::Answered;
    }
    if !rules.request_captures.is_empty() || !rules.response_captures.is_empty() {
        rules.capture_request(&x.request.fields, &mut x.txn);
    }
    if let Some(capture) = &frontend.capture_cookie {
        x.txn.request_cookie = headers::captured_cookie(&x.request.fields, capture);
    }
    conn.session.tracking.http_request(worker.now_ms());
    if frontend.options.http_buffer_request && buffer_request(conn, client, x, frontend).await == Judged::Over {
        return Route::Answered;
    }
    if section(conn, client, x, conn.frontend).await == Judged::Over {
        return Route::Answered;
    }
    let Some(chosen) = login::known(conn, client, x, |conn, x| choose(&worker, conn, x, Stage::Request)).await else {
        return Route::Answered;
    };
    let Some(backend) = chosen else {
        x.log.termination = Termination(By::Server, During::Connect);
        x.log.TR = -1;
        respond::error(conn, client, x, 503).await;
        return Route::Answered;
    };
    x.backend = Some(backend);
    if backend != conn.frontend && section(conn, client, x, backend).await == Judged::Over {
        return Route::Answered;
    }
    let proxy = &shared.config.proxies[backend];
    if proxy.options.http_buffer_request && buffer_request(conn, client, x, proxy).await == Judged::Over {
        return Route::Answered;
    }
    headers::forwarded_for(conn, x, proxy);
    if let Some(name) = &frontend.unique_id_header {
        add_unique_id(&worker, conn, x, name);
    }
    Route::Backend(backend)
}

/// The rules of one section, frontend or backend, and its statistics page.
async fn section(conn: &mut Conn, client: &mut dyn Client, x: &mut Exchange, proxy: usize) -> Judged {
    let worker = conn.worker.clone();
    let rules = worker.shared.program.of(proxy);
    let inspect = worker.shared.config.proxies[proxy].tcp_request_inspect_delay;
    // Those of a TCP frontend have made this connection one of HTTP.
    let switched = proxy == conn.frontend && conn.proxy().mode == Mode::Tcp;
    if !(switched || rules.tcp_content.is_empty())
        && evaluate::request(conn, client, x, &rules.tcp_content, inspect).await == Judged::Over
    {
        // These rules come before HTTP: to the log there was no request.
        x.txn.received.clear();
        return Judged::Over;
    }
    if !rules.http_request.is_empty()
        && evaluate::request(conn, client, x, &rules.http_request, None).await == Judged::Over
    {
        return Judged::Over;
    }
    if stats(conn, client, x, proxy, rules).await { Judged::Over } else { Judged::GoOn }
}

/// `monitor-uri`: whether it was asked for, and so answered.
async fn monitor(
    conn: &mut Conn,
    client: &mut dyn Client,
    x: &mut Exchange,
    frontend: &Proxy,
    rules: &ProxyRules,
) -> bool {
    let Some(uri) = &frontend.monitor_uri else { return false };
    if uri.as_bytes() != x.request.path_and_query() && uri.as_bytes() != x.request.target() {
        return false;
    }
    let worker = conn.worker.clone();
    let failed = login::known(conn, client, x, |conn, x| {
        let context = evaluate::context(&worker, conn, x, Stage::Request);
        rules.monitor_fail.iter().any(|condition| condition.holds(&context) == Answer::Yes)
    });
    let Some(failed) = failed.await else { return true };
    // A monitor asks all the time: its requests are answered and not logged.
    x.txn.log_level = Some(LogLevel::Silent);
    x.log.termination = Termination(By::Ourselves, During::Request);
    respond::error(conn, client, x, if failed { 503 } else { 200 }).await;
    true
}

/// Answers with the statistics page where `stats uri` of that proxy is asked for; whether it was.
async fn stats(conn: &mut Conn, client: &mut dyn Client, x: &mut Exchange, proxy: usize, rules: &ProxyRules) -> bool {
    let worker = conn.worker.clone();
    let Some(page) = &worker.shared.config.proxies[proxy].stats else { return false };
    // Other methods are the server's business.
    let asked = matches!(x.request.method(), b"GET" | b"HEAD" | b"POST")
        && x.request.path_and_query().starts_with(page.uri.as_bytes());
    let Some(service) = worker.shared.services.stats.clone().filter(|_| asked) else { return false };
    respond::taken_by(conn, x, service.log_name());
    if !rules.stats_request.is_empty()
        && evaluate::request(conn, client, x, &rules.stats_request, None).await == Judged::Over
    {
        return true;
    }
    respond::service(conn, client, x, service, proxy).await;
    true
}

/// `option http-buffer-request`: the whole body, or a buffer of it, before anything is decided.
async fn buffer_request(conn: &mut Conn, client: &mut dyn Client, x: &mut Exchange, proxy: &Proxy) -> Judged {
    if client.request_framing() == Framing::None {
        return Judged::GoOn;
    }
    let limit = proxy.timeouts.http_request.or(conn.proxy().timeouts.http_request).or(conn.proxy().timeouts.client);
    evaluate::wait_for_body(conn, client, x, 0, limit).await
}

fn add_unique_id(worker: &Rc<Worker>, conn: &mut Conn, x: &mut Exchange, name: &str) {
    evaluate::context(worker, conn, x, Stage::Request).make_unique_id();
    let id = x.txn.unique_id.borrow().clone();
    if let Some(id) = id {
        // An identifier that does not fit a header field is left out.
        let _ = x.request.fields.append(name.to_ascii_lowercase().as_bytes(), &id);
    }
}

/// `use_backend` in order, then `default_backend`, then the proxy itself.
fn choose(worker: &Rc<Worker>, conn: &mut Conn, x: &mut Exchange, stage: Stage) -> Option<usize> {
    let shared = &worker.shared;
    let frontend = conn.frontend;
    let rules = &shared.program.of(frontend).use_backend;
    if !rules.is_empty() {
        let context = evaluate::context(worker, conn, x, stage);
        for rule in rules.iter().filter(|rule| rule.condition.holds(&context) == Answer::Yes) {
            let found = match &rule.to {
                Destination::Backend(id) => Some(id.0 as usize),
                Destination::Named(format) => shared.program.backend_named(&format.to_bytes(&context)),
            };
            if found.is_some() {
                return found;
            }
        }
    }
    shared.program.default_backend[frontend]
}

/// What binds a request to a server before the algorithm is asked: `use-server`, and whether persistence holds.
pub(crate) fn bind(conn: &mut Conn, x: &mut Exchange, pool: &Backend, stage: Stage) -> Persistence {
    let worker = conn.worker.clone();
    let rules = worker.shared.program.of(pool.proxy);
    let mut persistence = Persistence::default();
    if rules.persist.is_empty() && rules.use_server.is_empty() {
        return persistence;
    }
    let context = evaluate::context(&worker, conn, x, stage);
    let holds = |condition: &Condition| condition.holds(&context) == Answer::Yes;
    for rule in rules.persist.iter().filter(|rule| holds(&rule.condition)) {
        if rule.force {
            persistence.forced = true;
        } else {
            persistence.ignored = true;
        }
    }
    let forced = persistence.forced || worker.shared.config.proxies[pool.proxy].options.persist;
    let server = rules.use_server.iter().filter(|rule| holds(&rule.condition)).find_map(|rule| {
        let server = match &rule.server {
            ServerOf::Server(id) => pool.servers.get(id.index as usize),
            ServerOf::Named(format) => {
                let name = format.to_bytes(&context);
                pool.servers.iter().find(|server| server.name.as_bytes() == name)
            }
        };
        server.filter(|server| forced || server.is_running())
    });
    if let Some(server) = server {
        x.persistent = Some(server.index);
    }
    persistence
}

/// What `force-persist` and `ignore-persist` say.
#[derive(Clone, Copy, Default)]
pub(crate) struct Persistence {
    pub forced: bool,
    pub ignored: bool,
}

/// The server that a stick table remembers, where nothing else has named one.
pub(crate) fn stick(conn: &mut Conn, x: &mut Exchange, pool: &Backend, stage: Stage) {
    let worker = conn.worker.clone();
    let rules = &worker.shared.program.of(pool.proxy).stick;
    if rules.is_empty() || x.persistent.is_some() {
        return;
    }
    let context = evaluate::context(&worker, conn, x, stage);
    let id = rules.iter().find_map(|rule| rule.find(&context));
    let server = id.and_then(|id| pool.servers.iter().find(|server| server.id == id && server.is_running()));
    if let Some(server) = server {
        x.persistent = Some(server.index);
    }
}

/// Has stick tables remember the server of an exchange.
pub(crate) fn remember(conn: &mut Conn, x: &mut Exchange, at: ServerRef, stage: Stage) {
    let worker = conn.worker.clone();
    let rules = &worker.shared.program.of(at.proxy).stick;
    let Some(pool) = worker.shared.backends.get(at.proxy).filter(|_| !rules.is_empty()) else { return };
    let server = &pool.servers[at.server];
    if server.config.settings.non_stick {
        return;
    }
    let id = server.id;
    for rule in rules {
        // A key of the request is looked for in the request, though a response has come.
        let of = if rule.stores_request && stage == Stage::Response { Stage::Request } else { stage };
        if rule.stores_request || (rule.stores_response && stage == Stage::Response) {
            rule.store(&evaluate::context(&worker, conn, x, of), id);
        }
    }
}

/// Runs the rules on a server's response, the backend's first; whether it goes out.
pub(crate) async fn response(
    conn: &mut Conn,
    client: &mut dyn Client,
    x: &mut Exchange,
    ahead: &mut Ahead<'_>,
) -> bool {
    let worker = conn.worker.clone();
    let shared = &worker.shared;
    if let Some(backend) = x.backend {
        let list = &shared.program.of(backend).tcp_response;
        // Without a delay these rules decide before there is a response.
        let seen = shared.config.proxies[backend].tcp_response_inspect_delay.is_some();
        if !list.is_empty() && evaluate::response(conn, client, x, list, seen, ahead).await == Judged::Over {
            return false;
        }
    }
    let rules = shared.program.of(conn.frontend);
    if !rules.response_captures.is_empty() {
        rules.capture_response(&x.response.fields, &mut x.txn);
    }
    if let Some(capture) = &shared.config.proxies[conn.frontend].capture_cookie {
        x.txn.response_cookie = headers::captured_set_cookie(&x.response.fields, capture);
    }
    x.txn.response_version = Some(x.response.version());
    x.txn.status = Some(x.response.status());
    if shared.program.reads_responses {
        crate::exchange::buffered_body::look_ahead(conn, x, ahead).await;
    }
    for proxy in x.backend.into_iter().chain((x.backend != Some(conn.frontend)).then_some(conn.frontend)) {
        let list = &shared.program.of(proxy).http_response;
        if !list.is_empty() && evaluate::response(conn, client, x, list, true, ahead).await == Judged::Over {
            return false;
        }
    }
    if let (Some(proxy), Some(server)) = (x.backend, x.server) {
        remember(conn, x, ServerRef { proxy, server }, Stage::Response);
    }
    if !after_response(conn, x) {
        x.log.termination = Termination(By::Refusal, During::Headers);
        respond::error(conn, client, x, 500).await;
        return false;
    }
    true
}

/// Runs `http-after-response` on any response; whether none of the rules failed.
pub(crate) fn after_response(conn: &mut Conn, x: &mut Exchange) -> bool {
    let worker = conn.worker.clone();
    for proxy in x.backend.into_iter().chain((x.backend != Some(conn.frontend)).then_some(conn.frontend)) {
        let rules = &worker.shared.program.of(proxy).http_after_response;
        if !rules.is_empty() {
            let verdict = rules.run(&mut evaluate::context(&worker, conn, x, Stage::Response), 0);
            if matches!(verdict, Verdict::Failed) {
                worker.counters().frontend(conn.frontend).failed_rewrites.inc();
                return false;
            }
        }
    }
    true
}

/// How a connection of `mode tcp` goes on.
pub(crate) enum Connected {
    Backend(usize),
    /// As one of HTTP: `tcp-request content switch-mode`.
    Http,
    Over,
}

/// Runs the rules of `mode tcp` on what a client sends first, and chooses its backend.
pub(crate) async fn connection(conn: &mut Conn, client: &mut Raw, x: &mut Exchange) -> Connected {
    let worker = conn.worker.clone();
    match content(conn, client, x, conn.frontend).await {
        Content::Passed => {}
        Content::Http => return Connected::Http,
        Content::Refused => return Connected::Over,
    }
    let stage = peek_request(x, client.pending());
    std::mem::swap(&mut x.body, &mut client.input);
    let chosen = choose(&worker, conn, x, stage);
    std::mem::swap(&mut x.body, &mut client.input);
    x.request.clear();
    let Some(backend) = chosen else {
        x.log.termination = Termination(By::Server, During::Connect);
        return Connected::Over;
    };
    x.backend = Some(backend);
    if backend != conn.frontend && matches!(content(conn, client, x, backend).await, Content::Refused) {
        return Connected::Over;
    }
    Connected::Backend(backend)
}

/// What the client has sent so far, read as a request of HTTP if it is one: rules of TCP mode may ask about that too. It is
/// forwarded as it came, so that whatever a server might take for a request is one here.
fn peek_request(x: &mut Exchange, bytes: &[u8]) -> Stage {
    x.request.clear();
    match x.request.parse(bytes, &Limits { lenient: true, ..Limits::default() }) {
        Ok(Parse::Complete { .. }) => Stage::Request,
        _ => {
            x.request.clear();
            Stage::Raw
        }
    }
}

/// What rules of content say of a connection.
enum Content {
    Passed,
    Http,
    Refused,
}

/// `tcp-request content`, as more and more is read, for at most `inspect-delay`.
async fn content(conn: &mut Conn, client: &mut Raw, x: &mut Exchange, proxy: usize) -> Content {
    let worker = conn.worker.clone();
    let rules = &worker.shared.program.of(proxy).tcp_content;
    if rules.is_empty() {
        return Content::Passed;
    }
    let delay = worker.shared.config.proxies[proxy].tcp_request_inspect_delay;
    // Without a delay the rules decide with what is there.
    conn.deadline.set(worker.clock.now(), Some(delay.unwrap_or_default()));
    let mut from = 0;
    let mut complete = false;
    loop {
        let verdict = {
            let stage = peek_request(x, client.pending());
            let mut context = evaluate::context(&worker, conn, x, stage);
            context.input = penstock_rules::Buffered { bytes: client.pending(), complete, announced: None };
            context.output.complete = complete;
            rules.run(&mut context, from)
        };
        let refused = match verdict {
            Verdict::Continue | Verdict::Accept => {
                x.request.clear();
                return Content::Passed;
            }
            Verdict::SwitchToHttp => return Content::Http,
            Verdict::WaitMore { next } | Verdict::WaitBody { next, .. } if complete => {
                from = next + 1;
                continue;
            }
            Verdict::WaitMore { next } | Verdict::WaitBody { next, .. } => {
                from = next;
                let more = in_time(&mut conn.deadline, poll_fn(|cx| client.poll_more(cx))).await;
                worker.clock.tick();
                complete = client.is_full() || !matches!(more, Some(Ok(Fill::Bytes(_))));
                continue;
            }
            Verdict::ExpectProxy { next } | Verdict::WaitHandshake { next } => {
                from = next;
                continue;
            }
            Verdict::SilentDrop => {
                client.stream.socket().vanish_on_close();
                true
            }
            Verdict::Reject | Verdict::Close | Verdict::Respond(..) | Verdict::Service(_) | Verdict::Failed => true,
            // No password comes before HTTP.
            Verdict::Verify { .. } => true,
        };
        debug_assert!(refused);
        conn.listener_cells().iter().for_each(|cells| cells.denied_requests.inc());
        x.log.termination = Termination(By::Refusal, During::Request);
        x.request.clear();
        return Content::Refused;
    }
}

/// What it asks of its backend.
pub(crate) fn want(conn: &mut Conn, x: &mut Exchange, pool: &Backend, stage: Stage) -> Want {
    let due_ms = conn.worker.now_ms() as i64 + i64::from(x.txn.priority_offset_ms);
    let priority = Priority { class: x.txn.priority_class, due_ms };
    Want { persistent: x.persistent, hash: hash(conn, x, pool, stage), avoid: None, priority }
}

/// The hash by which the backend chooses a server, where it does so by hash.
fn hash(conn: &mut Conn, x: &mut Exchange, pool: &Backend, stage: Stage) -> Option<u32> {
    let mut subject = Subject::default();
    match pool.key()? {
        BalanceKey::Source => subject.source = x.txn.source(&conn.facts).map(|a| a.ip()),
        BalanceKey::Uri { .. } => subject.target = x.request.target(),
        BalanceKey::UrlParam { .. } => {
            subject.target = x.request.target();
            subject.body = x.body.as_ref().map_or(&[], |body| body.data());
        }
        BalanceKey::Hdr { name, .. } => {
            let value = x.request.fields.get(name.to_ascii_lowercase().as_bytes());
            subject.header = value.and_then(|v| v.split(|&b| b == b',').next());
        }
        BalanceKey::Sample(_) => {
            let worker = conn.worker.clone();
            let expression = worker.shared.program.balance[pool.proxy].as_ref()?;
            let context = evaluate::context(&worker, conn, x, stage);
            let value = expression.eval(&context).ok().map(|value: Value<'_>| value.to_text());
            return pool.hash(&Subject { sample: value.as_deref(), ..subject });
        }
    }
    pool.hash(&subject)
}

/// The server that this client has a connection of its own to: `option prefer-last-server`, which a client that
/// authenticates connections has without asking.
pub(crate) fn last_server(conn: &Conn, pool: &Backend, proxy: &Proxy) -> Option<usize> {
    if !(conn.own.authenticates() || proxy.options.prefer_last_server) {
        return None;
    }
    conn.own.last(pool.proxy).filter(|&server| pool.servers[server].is_usable())
}

/// The name to ask a server's TLS for.
pub(crate) fn sni(conn: &mut Conn, x: &mut Exchange, server: &Server, at: ServerRef, stage: Stage) -> Option<String> {
    let worker = conn.worker.clone();
    let expression = worker.shared.program.sni[at.proxy][server.index].as_ref()?;
    let context = evaluate::context(&worker, conn, x, stage);
    let value = expression.eval(&context).ok()?;
    String::from_utf8(value.to_text()).ok()
}
