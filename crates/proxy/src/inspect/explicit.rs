//! Devices that are proxies by themselves (`device explicit-proxy`): they are asked with whole URLs, and pass requests on to us as their next proxy.

use crate::exchange::live::Live;
use penstock_config::model::{Device, Scheme};
use penstock_http::Known;

/// The target by which the device is asked for the request, unless that is the request's own. `Err` if the request cannot be asked of a proxy.
pub(super) fn target(live: &mut Live<'_, '_>, device: Device) -> Result<Option<Vec<u8>>, ()> {
    let Device::ExplicitProxy(scheme) = device else { return Ok(None) };
    let request = &mut live.x.request;
    let of_request = match request.scheme() {
        Some(scheme) if scheme.eq_ignore_ascii_case(b"https") => Scheme::Https,
        Some(scheme) if scheme.eq_ignore_ascii_case(b"http") => Scheme::Http,
        // Some proxies ask servers of other protocols themselves.
        Some(_) => return Err(()),
        None if live.conn.facts.tls.is_some() => Scheme::Https,
        None => Scheme::Http,
    };
    let scheme = scheme.unwrap_or(of_request).as_str();
    let target = request.target_for_proxy(scheme.as_bytes()).map_err(|_| ())?;
    // A proxy without the response would say that it has failed (504), and whoever asks must not decide that.
    let is_only_if_cached = |directive: &[u8]| {
        let name = directive.split(|byte| *byte == b'=').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(b"only-if-cached")
    };
    request.fields.remove_if(|field| {
        field.known == Known::CacheControl && field.value.split(|byte| *byte == b',').any(is_only_if_cached)
    });
    Ok(Some(target))
}

/// What a proxy means with a status, to a request that has not come back from it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// It does not let the request pass.
    Blocked,
    /// It could not send it on.
    Failed,
    /// It has the response from elsewhere: from the server itself, past us, or from a cache.
    Elsewhere,
}

/// What a response with this status means that answers a request which has not come back.
pub(super) fn meaning(status: u16) -> Meaning {
    match status {
        ..300 | 304 => Meaning::Elsewhere,
        // A client can ask for what is not implemented (501), or for another version (505).
        500 | 502..=504 | 506.. => Meaning::Failed,
        _ => Meaning::Blocked,
    }
}
