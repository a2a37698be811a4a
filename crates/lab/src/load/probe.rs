//! The run's first connection, before anything counts: whether the server is there and agrees, and whether it can sign.

use super::failure::{Failure, When};
use super::settings::{Checks, Tls};
use super::wire::{Buffers, Gauge, Route, Wire, source};
use super::{Error, Http, LoadPlan, tunnel};
use std::cell::Cell;
use std::net::{SocketAddr, ToSocketAddrs};
use std::rc::Rc;

/// The address to connect to: the target's, or the proxy's.
pub(crate) fn resolve(plan: &LoadPlan) -> Result<SocketAddr, Error> {
    if let Some(address) = plan.proxy.or(plan.address) {
        return Ok(address);
    }
    let unknown = |why: String| Error::Unreachable { target: plan.target.to_string(), why };
    let mut found = (plan.target.host.as_str(), plan.target.port)
        .to_socket_addrs()
        .map_err(|e| unknown(format!("its name cannot be resolved: {e}")))?;
    found.next().ok_or_else(|| unknown("its name has no address".into()))
}

/// One handshake, whose signature is checked.
pub(crate) fn probe(plan: &LoadPlan, address: SocketAddr) -> Result<(), Error> {
    let tls = Tls::new(plan, Checks::Signatures)?;
    if plan.http == Http::Two {
        super::http2::request(plan)?;
    }
    let route = Route { to: address, from: source(plan, 0, address.ip()), tls, tunnel: tunnel::request(plan) };
    let runtime = super::run::runtime()?;
    let stage = Cell::new(When::Connect);
    let attempt = async {
        let (mut wire, _) = Wire::open(&route, Buffers::default(), &Rc::new(Gauge::default()), &stage).await?;
        if plan.http == Http::Two && wire.session().is_some_and(|session| session.alpn_protocol() != Some(b"h2")) {
            return Err(Failure::NoHttp2);
        }
        stage.set(When::Close);
        wire.close().await.map(|_| ())
    };
    let outcome = runtime.block_on(async { tokio::time::timeout(plan.timeout, attempt).await });
    let failure = match outcome {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(failure)) => failure,
        Err(_) => Failure::TimedOut(stage.get()),
    };
    if failure.is_ours() {
        return Err(Error::Local(failure.to_string()));
    }
    Err(Error::Unreachable { target: plan.target.to_string(), why: failure.to_string() })
}
