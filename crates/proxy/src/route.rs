//! What the rules say: before a request is forwarded, which backend takes it; before a response is, whether it goes out.

use crate::{
    balance::Subject,
    conn::Conn,
    exchange::Exchange,
    headers,
    message::Client,
    respond,
    server::{Backend, Server},
    tcp::Raw,
};
use penstock_config::model::Balance;
use penstock_rules::LogLevel;

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
    let proxies = &worker.shared.config.proxies;
    let frontend = &proxies[conn.frontend];
    if frontend.monitor_uri.as_deref().is_some_and(|uri| uri.as_bytes() == x.request.path_and_query()) {
        // A monitor asks all the time: its requests are answered and not logged.
        x.txn.log_level = Some(LogLevel::Silent);
        x.log.termination = *b"LR";
        respond::error(conn, client, x, 200).await;
        return Route::Answered;
    }
    if stats(conn, client, x, conn.frontend).await {
        return Route::Answered;
    }
    let chosen = match &frontend.default_backend {
        Some(name) => {
            conn.worker.shared.config.proxies.iter().position(|p| p.kind.has_backend() && p.name == name.text)
        }
        None if frontend.kind.has_backend() => Some(conn.frontend),
        None => None,
    };
    let Some(backend) = chosen else {
        x.log.termination = *b"SC";
        respond::error(conn, client, x, 503).await;
        return Route::Answered;
    };
    x.backend = Some(backend);
    if backend != conn.frontend && stats(conn, client, x, backend).await {
        return Route::Answered;
    }
    headers::forwarded_for(conn, x, &proxies[backend]);
    Route::Backend(backend)
}

/// Answers with the statistics page where `stats uri` of that proxy is asked for; whether it was.
async fn stats(conn: &mut Conn, client: &mut dyn Client, x: &mut Exchange, proxy: usize) -> bool {
    let worker = conn.worker.clone();
    let Some(page) = &worker.shared.config.proxies[proxy].stats else { return false };
    let asked = x.request.path_and_query().starts_with(page.uri.as_bytes());
    let Some(service) = worker.shared.services.stats.as_deref().filter(|_| asked) else { return false };
    x.log.no_server = "<STATS>";
    respond::service(conn, client, x, service, proxy).await;
    true
}

/// Runs the rules of `mode tcp` on what a client sends first; the backend they choose, unless they end the connection.
pub(crate) async fn connection(conn: &mut Conn, _client: &mut Raw, x: &mut Exchange) -> Option<usize> {
    let frontend = conn.proxy();
    let chosen = match &frontend.default_backend {
        Some(name) => {
            conn.worker.shared.config.proxies.iter().position(|p| p.kind.has_backend() && p.name == name.text)
        }
        None => frontend.kind.has_backend().then_some(conn.frontend),
    };
    x.backend = chosen;
    if chosen.is_none() {
        x.log.termination = *b"SC";
    }
    chosen
}

/// Runs the rules on a server's response; whether it goes out.
pub(crate) async fn response(_conn: &mut Conn, _client: &mut dyn Client, _x: &mut Exchange) -> bool {
    true
}

/// Runs `http-after-response` on any response.
pub(crate) fn after_response(_conn: &mut Conn, _x: &mut Exchange) {}

/// The hash by which the backend chooses a server, where it does so by hash.
pub(crate) fn hash(conn: &Conn, x: &Exchange, pool: &Backend) -> Option<u32> {
    let mut subject = Subject::default();
    match pool.balance() {
        Balance::RoundRobin | Balance::StaticRr | Balance::LeastConn | Balance::First | Balance::Random(_) => {
            return None;
        }
        Balance::Source => subject.source = x.txn.src_ip.or(conn.facts.src.map(|a| a.ip())),
        Balance::Uri { .. } => subject.target = x.request.target(),
        Balance::UrlParam { .. } => {
            subject.target = x.request.target();
            subject.body = x.body.as_ref().map_or(&[], |body| body.data());
        }
        Balance::Hdr { name, .. } => {
            let value = x.request.fields.get(name.to_ascii_lowercase().as_bytes());
            subject.header = value.and_then(|v| v.split(|&b| b == b',').next());
        }
        Balance::RdpCookie(_) | Balance::Hash(_) => {}
    }
    pool.hash(&subject)
}

/// The name to ask a server's TLS for.
pub(crate) fn sni(_conn: &Conn, _x: &Exchange, _server: &Server) -> Option<String> {
    None
}
