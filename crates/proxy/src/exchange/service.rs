//! Requests answered by services inside the process, such as the statistics page.

use super::{
    buffered_body::{self, Waited},
    respond::{error, send, stream},
    state::{Exchange, ms_between},
};
use crate::{
    connection::{Conn, in_time},
    exchange::live::Live,
    process::{
        handle::Handle,
        service::{Service, ServiceRequest, ServiceResponse},
    },
    rules::{context, login},
};
use penstock_config::model::ProxyId;
use penstock_http::Version;
use penstock_rules::{Answer, By, During, Termination};
use std::sync::Arc;

/// Records a service in place of a server: the log shows its name, and that it was reached at once.
pub(crate) fn taken_by(conn: &Conn<'_>, x: &mut Exchange, name: &'static str) {
    let now = conn.worker.clock.now();
    x.log.no_server = name;
    x.log.Tw = x.times.complete.map_or(0, |complete| ms_between(complete, now));
    x.log.Tc = 0;
    x.times.connected = Some(now);
}

/// A copy of a request for the thread on which a service answers it, since some pages describe thousands of servers.
struct Asked {
    method: Vec<u8>,
    target: Vec<u8>,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    body: Vec<u8>,
    proxy: ProxyId,
    admin: bool,
    handle: Handle,
}

impl Asked {
    fn answer(&self, service: &dyn Service) -> ServiceResponse {
        let fields: Vec<_> = self.fields.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        service.answer(ServiceRequest {
            method: &self.method,
            target: &self.target,
            fields: &fields,
            body: &self.body,
            proxy: &self.handle.shared().config.proxies[self.proxy],
            admin: self.admin,
            handle: &self.handle,
        })
    }
}

/// Lets a service answer the request, once its body has been read.
pub(crate) async fn answer(live: &mut Live<'_, '_>, service: Arc<dyn Service>, proxy: ProxyId) {
    let limit = live.conn.proxy().timeouts.http_request.or(live.conn.proxy().timeouts.client);
    if let Waited::Timeout | Waited::Failed(_) = buffered_body::wait(live, 0, limit).await {
        live.x.log.termination = Termination(By::ClientTimeout, During::Data);
        return error(live, 408).await;
    }
    let shared = live.worker.shared.clone();
    let rules = shared.program.of(proxy);
    let admin = login::known(live, |conn, x| {
        let context = context::context(conn, x, context::Readable::Request);
        rules.stats_admin.iter().any(|condition| condition.holds(&context) == Answer::Yes)
    });
    let Some(admin) = admin.await else { return };
    let now = live.worker.clock.now();
    live.x.log.Tr = live.x.times.connected.map_or(0, |connected| ms_between(connected, now));
    live.x.times.answered = Some(now);
    let asked = Asked {
        method: live.x.request.method().to_vec(),
        target: live.x.request.path_and_query().to_vec(),
        fields: live.x.request.fields.iter().map(|field| (field.name.to_vec(), field.value.to_vec())).collect(),
        body: live.x.body.as_ref().map_or(Vec::new(), |body| body.data().to_vec()),
        proxy,
        admin,
        handle: live.worker.handle.clone(),
    };
    let from = live.conn.facts.source().map(|address| address.ip());
    let answered = shared.answering.run(from, move |_| asked.answer(service.as_ref()));
    live.conn.deadline.set(now, live.conn.proxy().timeouts.client);
    let answer = in_time(&mut live.conn.deadline, answered).await.flatten();
    let Some(answer) = answer else {
        live.x.log.termination = Termination(By::Exhaustion, During::Request);
        return error(live, 503).await;
    };
    live.x.response.start(answer.status, Version::Http11);
    for (name, value) in &answer.fields {
        // The services in this program write well-formed fields.
        let _ = live.x.response.fields.append(name.to_ascii_lowercase().as_bytes(), value.as_bytes());
    }
    if answer.stream.is_none() {
        let _ = live.x.response.fields.set(b"content-length", answer.body.len().to_string().as_bytes());
    }
    live.worker.counters().frontend(live.conn.frontend).intercepted.inc();
    live.x.log.termination = Termination(By::Ourselves, During::Request);
    match answer.stream {
        None => send(live, &answer.body, false, answer.status).await,
        Some(pieces) => stream(live, &answer.body, pieces, answer.status).await,
    }
}
