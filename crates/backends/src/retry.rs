//! Whether a failed request is sent again, where, and after what pause: `retries`, `retry-on` and `option redispatch`,
//! for both HTTP and TCP.

use crate::server::{ServerId, Want};
use penstock_config::model::Proxy;
use std::time::Duration;

/// Why an attempt failed before there was a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A connection ended before the server began to process the request.
    Stale,
    /// `conn-failure`
    Connect,
    /// The server's certificate is for another name than the one sent as SNI. As in HAProxy, that is never tried again, since
    /// the same name would be sent.
    WrongName,
    /// `empty-response`
    Empty,
    /// `junk-response`
    Junk,
    /// `response-timeout`
    Timeout,
    /// A status that `retry-on` names.
    Status,
}

impl Reason {
    /// The status of the response if nothing more is tried; `None` if it is the server's own.
    pub fn status(self) -> Option<u16> {
        match self {
            Reason::Stale | Reason::Connect | Reason::WrongName => Some(503),
            Reason::Empty | Reason::Junk => Some(502),
            Reason::Timeout => Some(504),
            Reason::Status => None,
        }
    }
}

/// Whether `retry-on` names a failure that can occur after a request has been sent.
pub fn may_repeat_body(proxy: &Proxy) -> bool {
    let only_connecting = |word: &str| matches!(word, "none" | "conn-failure" | "0rtt-rejected");
    proxy.retry_on.iter().flatten().any(|word| !only_connecting(&word.text))
}

/// Whether `retry-on` names this reason.
pub fn retries_on(proxy: &Proxy, reason: Reason) -> bool {
    let Some(words) = &proxy.retry_on else { return reason == Reason::Connect };
    let word = match reason {
        Reason::WrongName => return false,
        Reason::Stale | Reason::Connect => "conn-failure",
        Reason::Empty => "empty-response",
        Reason::Junk => "junk-response",
        Reason::Timeout => "response-timeout",
        Reason::Status => return true,
    };
    words.iter().any(|w| w.text == word || w.text == "all-retryable-errors")
}

/// Whether `retry-on` names this status.
pub fn retries_on_status(proxy: &Proxy, status: u16) -> bool {
    let Some(words) = &proxy.retry_on else { return false };
    words.iter().any(|word| match word.text.as_str() {
        "all-retryable-errors" => matches!(status, 500 | 502 | 503 | 504),
        number => number.parse() == Ok(status),
    })
}

/// The pause between two attempts at the same server, unless `timeout connect` is shorter.
const ATTEMPT_PAUSE: Duration = Duration::from_secs(1);

/// The attempts of a request: how many may fail, and where the next one goes (manual, `retries` and `option
/// redispatch`).
#[derive(Debug)]
pub struct Attempts {
    /// Failures so far.
    failures: u32,
    /// Whether persistence selects the request's server, and no failure has undone that.
    bound: bool,
    /// Whether `force-persist` applies: it stays with its server whatever happens.
    forced: bool,
    /// The server of the last attempt, or that which turned the request away.
    last: Option<ServerId>,
}

/// The kind of an attempt, compared with the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The first attempt.
    First,
    /// Another attempt at the same server.
    Repeated,
    /// An attempt at a different server from this one, which failed or turned the request away.
    Moved(ServerId),
}

impl Attempts {
    /// No attempts yet, for a request with these wishes; `forced` if `force-persist` applies.
    pub fn new(want: &Want, forced: bool) -> Attempts {
        Attempts { failures: 0, bound: want.persistent.is_some(), forced, last: None }
    }
    /// Attempts that failed.
    pub fn failures(&self) -> u32 {
        self.failures
    }
    /// Whether another attempt would follow if this one failed.
    pub fn are_left(&self, proxy: &Proxy) -> bool {
        self.failures < proxy.retries
    }
    /// Records that the request has a place on `server`.
    pub fn assigned(&mut self, server: ServerId) -> Attempt {
        match self.last.replace(server) {
            None => Attempt::First,
            Some(before) if before == server => Attempt::Repeated,
            Some(before) => Attempt::Moved(before),
        }
    }
    /// Records that the server to which persistence ties the request has not even room to wait, or went down before it was
    /// the request's turn: `option redispatch` frees the request, whose next server is then one that it was moved to.
    /// Whether it did.
    pub fn turned_away(&mut self, proxy: &Proxy, want: &mut Want) -> bool {
        if self.forced || proxy.options.redispatch.is_none() || want.persistent.is_none() {
            return false;
        }
        self.bound = false;
        self.last = want.persistent.take();
        true
    }
    /// Records a failed attempt when another one is left: decides where that goes. Returns a pause to make before it if
    /// the failure was one of connecting: one is needed if the same server is asked again, or if the backend has no
    /// other `active` server.
    pub fn failed(&mut self, proxy: &Proxy, active: u32, want: &mut Want) -> Option<Duration> {
        self.failures += 1;
        if self.moves(proxy, active) {
            self.bound = false;
            (want.persistent, want.avoid) = (None, self.last);
            if active > 1 {
                return None;
            }
        } else {
            want.persistent = self.last;
        }
        Some(proxy.timeouts.connect.map_or(ATTEMPT_PAUSE, |limit| limit.min(ATTEMPT_PAUSE)))
    }
    /// Whether the next attempt may go to another server: `option redispatch` says so for this failure, or nothing ties
    /// the request to the failed server, which the algorithm chose without looking at the request.
    fn moves(&self, proxy: &Proxy, active: u32) -> bool {
        let Some(interval) = proxy.options.redispatch.filter(|_| !self.forced) else { return false };
        let every =
            if interval >= 0 { i64::from(interval) } else { i64::from(proxy.retries) + 1 + i64::from(interval) };
        let due = interval != 0 && every != 0 && i64::from(self.failures) % every == 0;
        let looks_at_requests = proxy.balance.as_ref().is_some_and(|balance| balance.key.is_some());
        due || !self.bound && active > 1 && !looks_at_requests
    }
}

#[cfg(test)]
mod tests;
