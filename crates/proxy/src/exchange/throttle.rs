//! Holds a direction of an exchange back to what `set-bandwidth-limit` allows.

use super::ends::{Body, Fault, Source};
use crate::worker::{buffer::Buffer, state::Worker};
use penstock_http::Fields;
use penstock_rules::{Txn, table::Bandwidth};
use std::{
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::time::{Sleep, sleep};

/// The limits of one direction, and the wait until one of them allows more.
pub(crate) struct Throttle {
    limits: Vec<Bandwidth>,
    worker: Rc<Worker>,
    wait: Option<Pin<Box<Sleep>>>,
}

impl Throttle {
    /// The limits that rules have set for what the server sends, or for what the client does, if there are any.
    pub fn of(txn: &Txn, download: bool, worker: &Rc<Worker>) -> Option<Box<Throttle>> {
        let limits: Vec<_> = txn.bandwidth.iter().filter(|limit| limit.download == download).cloned().collect();
        (!limits.is_empty()).then(|| Box::new(Throttle { limits, worker: worker.clone(), wait: None }))
    }
    /// Ready with how many bytes may be read now, at least one.
    fn poll_allowed(&mut self, cx: &mut Context<'_>) -> Poll<u64> {
        loop {
            if let Some(wait) = &mut self.wait {
                ready!(wait.as_mut().poll(cx));
                self.wait = None;
            }
            let now = self.worker.now_ms();
            let allowed = self
                .limits
                .iter()
                .map(|limit| limit.allowed(now))
                .try_fold(u64::MAX, |least, allowed| allowed.map(|allowed| least.min(allowed)));
            match allowed {
                Ok(allowed) => return Poll::Ready(allowed),
                Err(ms) => self.wait = Some(Box::pin(sleep(Duration::from_millis(ms)))),
            }
        }
    }
    /// Reads from `source` what the limits allow. Pending while they allow nothing; then the source is not to blame.
    fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut dyn Source,
        buffer: &mut Buffer,
    ) -> Poll<Result<Body, Fault>> {
        let allowed = usize::try_from(ready!(self.poll_allowed(cx))).unwrap_or(usize::MAX);
        let had = buffer.len();
        let read = buffer.within(allowed, |buffer| source.poll_body(cx, buffer));
        let (bytes, now) = ((buffer.len() - had) as u64, self.worker.now_ms());
        self.limits.iter_mut().for_each(|limit| limit.spend(bytes, now));
        read
    }
    /// Whether it is what a direction waits for.
    pub fn holds(&self) -> bool {
        self.wait.is_some()
    }
}

/// A source behind a throttle.
pub(super) struct Throttled<'a> {
    pub throttle: &'a mut Throttle,
    pub source: &'a mut dyn Source,
}

impl Source for Throttled<'_> {
    fn poll_body(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<Result<Body, Fault>> {
        self.throttle.poll_body(cx, self.source, buffer)
    }
    fn trailers(&self) -> Option<&Fields> {
        self.source.trailers()
    }
}
