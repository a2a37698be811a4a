//! HTTP/2 by the `h2` crate over a [`Wire`].

use super::failure::{Failure, When};
use super::slot::Slot;
use super::wire::{Buffers, Flow, Wire};
use super::worker::Worker;
use super::{LoadPlan, Mode, Scheme};
use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use http::{Method, Request, Uri, Version};
use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::JoinHandle;

/// Windows wide enough that a response never waits for one; the largest HTTP/2 allows (RFC 9113 section 6.9.1).
const WINDOW: u32 = (1 << 31) - 1;

/// Output of rustls that may wait before a writer is told to.
const OUTPUT_MAX: usize = 64 * 1024;

/// How long a connection may take to say goodbye.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// A connection, and the task that reads and writes it.
struct Open {
    requests: SendRequest<Bytes>,
    /// The request, as it is sent every time.
    request: Request<()>,
    driver: Option<JoinHandle<()>>,
    /// What ended the connection, if that was below HTTP/2.
    failure: Rc<RefCell<Option<Failure>>>,
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(driver) = &self.driver {
            driver.abort();
        }
    }
}

/// A slot's life.
pub(crate) async fn run(mut slot: Slot) {
    let streams = match slot.worker.plan.mode {
        Mode::KeepAlive | Mode::Download => slot.worker.plan.streams,
        Mode::Handshake | Mode::Request | Mode::Idle => 1,
    };
    let mut kept: Option<Open> = None;
    while let Some(first) = slot.worker.next().await {
        let patience = slot.worker.plan.timeout;
        let outcome = tokio::time::timeout(patience, async {
            let open = match kept.take() {
                Some(open) => open,
                None => open(&mut slot).await?,
            };
            slot.stage.set(When::Response);
            if slot.worker.plan.mode != Mode::Handshake {
                exchange(&open, &slot.worker).await?;
            }
            kept = Some(open);
            Ok(Instant::now())
        });
        let outcome = outcome.await;
        let failed = !matches!(outcome, Ok(Ok(_)));
        slot.settle(first, outcome).await;
        match slot.worker.plan.mode {
            _ if failed => kept = None,
            Mode::Handshake | Mode::Request => {
                if let Some(open) = kept.take() {
                    close(open).await;
                }
            }
            Mode::Idle => {
                let Some(open) = &mut kept else { continue };
                let Some(driver) = &mut open.driver else { continue };
                tokio::select! {
                    () = slot.worker.over() => return,
                    _ = driver => {}
                }
                let failure = open.failure.take().unwrap_or(Failure::Closed(When::Idle));
                slot.worker.fail(first, failure);
                kept = None;
            }
            Mode::KeepAlive | Mode::Download => {
                let Some(open) = kept.as_ref() else { continue };
                if !together(open, &slot.worker, streams).await {
                    kept = None;
                }
            }
        }
    }
}

/// Runs `streams` requests at once on one connection, each after the other, until the run or the connection ends. Returns whether
/// the connection may still be used.
async fn together(open: &Open, worker: &Rc<Worker>, streams: usize) -> bool {
    let one = async || -> bool {
        while let Some(unit) = worker.next().await {
            let outcome = tokio::time::timeout(worker.plan.timeout, exchange(open, worker)).await;
            let failure = match outcome {
                Ok(Ok(())) => {
                    worker.finish(unit, Instant::now());
                    continue;
                }
                Ok(Err(failure)) => failure,
                // The stream is reset, and the connection is as good as before.
                Err(_) => {
                    worker.fail(unit, Failure::TimedOut(When::Response));
                    continue;
                }
            };
            worker.fail(unit, failure);
            return false;
        }
        true
    };
    let all: Vec<_> = (0..streams).map(|_| one()).collect();
    all_of(all).await
}

/// Polls all futures to their ends; returns whether all yielded true.
async fn all_of<F: Future<Output = bool>>(futures: Vec<F>) -> bool {
    let mut futures: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut good = true;
    std::future::poll_fn(move |cx| {
        futures.retain_mut(|future| match future.as_mut().poll(cx) {
            Poll::Ready(one) => {
                good &= one;
                false
            }
            Poll::Pending => true,
        });
        if futures.is_empty() { Poll::Ready(good) } else { Poll::Pending }
    })
    .await
}

/// The request, as it is sent every time.
pub(crate) fn request(plan: &LoadPlan) -> Result<Request<()>, super::Error> {
    let bad = |what: &str| super::Error::Plan(format!("{what} cannot be sent over HTTP/2"));
    let scheme = if plan.target.scheme == Scheme::Https { "https" } else { "http" };
    let uri =
        Uri::builder().scheme(scheme).authority(plan.target.authority()).path_and_query(plan.target.path.as_str());
    let method = Method::from_bytes(plan.method.as_bytes()).map_err(|_| bad("the method"))?;
    let mut request =
        Request::builder().version(Version::HTTP_2).method(method).uri(uri.build().map_err(|_| bad("the URL"))?);
    for (name, value) in &plan.headers {
        // Fields of one connection do not exist here (RFC 9113 section 8.2.2); the host is in the URL.
        if !["host", "connection", "keep-alive"].iter().any(|one| name.eq_ignore_ascii_case(one)) {
            request = request.header(name.as_str(), value.as_str());
        }
    }
    request.body(()).map_err(|_| bad("a header field"))
}

async fn open(slot: &mut Slot) -> Result<Open, Failure> {
    slot.rename();
    let request = request(&slot.plan).map_err(|e| Failure::Http2(e.to_string()))?;
    let worker = &slot.worker;
    let (wire, opened) = Wire::open(&slot.route, Buffers::default(), &worker.gauge, &slot.stage).await?;
    if wire.session().is_some_and(|session| session.alpn_protocol() != Some(b"h2")) {
        return Err(Failure::NoHttp2);
    }
    worker.opened(&wire, opened);
    let failure = Rc::new(RefCell::new(None));
    let stream = Stream { wire, plain: Vec::new(), read: 0, failure: Rc::clone(&failure) };
    let mut builder = Builder::new();
    builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW).enable_push(false);
    let (requests, connection) = builder.handshake::<_, Bytes>(stream).await.map_err(|e| because(&failure, &e))?;
    let driver = tokio::task::spawn_local(async move {
        // How it ended is known to those who have a stream on it.
        let _ = connection.await;
    });
    Ok(Open { requests, request, driver: Some(driver), failure })
}

/// Goodbye: GOAWAY, close_notify; then the connection's task ends by itself.
async fn close(mut open: Open) {
    let Some(driver) = open.driver.take() else { return };
    drop(open);
    let _ = tokio::time::timeout(CLOSE_PATIENCE, driver).await;
}

async fn exchange(open: &Open, worker: &Worker) -> Result<(), Failure> {
    let failed = |e: h2::Error| because(&open.failure, &e);
    let mut requests = open.requests.clone().ready().await.map_err(failed)?;
    let began = Instant::now();
    let (response, _) = requests.send_request(open.request.clone(), true).map_err(failed)?;
    let response = response.await.map_err(failed)?;
    let first_byte = began.elapsed();
    let status = response.status().as_u16();
    let mut body = response.into_body();
    let mut bytes = 0;
    while let Some(data) = body.data().await {
        let data = data.map_err(failed)?;
        bytes += data.len() as u64;
        // The window is never what the server waits for.
        let _ = body.flow_control().release_capacity(data.len());
    }
    worker.response(status, bytes, first_byte);
    Ok(())
}

fn because(failure: &Rc<RefCell<Option<Failure>>>, error: &h2::Error) -> Failure {
    if let Some(failure) = &*failure.borrow() {
        return failure.clone();
    }
    match error.get_io() {
        Some(e) => Failure::of_socket(e, When::Response),
        None if error.is_remote() => Failure::Http2(format!("the server ended it: {error}")),
        None => Failure::Http2(error.to_string()),
    }
}

/// A wire as tokio's traits want it.
struct Stream {
    wire: Wire,
    /// Plaintext that h2 has not taken.
    plain: Vec<u8>,
    read: usize,
    failure: Rc<RefCell<Option<Failure>>>,
}

impl Stream {
    fn broken(&self, failure: Failure) -> io::Error {
        let error = io::Error::other(failure.to_string());
        *self.failure.borrow_mut() = Some(failure);
        error
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.read == this.plain.len() {
            this.plain.clear();
            this.read = 0;
            let plain = &mut this.plain;
            let flow = ready!(this.wire.poll_read(cx, When::Response, &mut |bytes| plain.extend_from_slice(bytes)));
            match flow {
                Ok(Flow::More) => {}
                Ok(Flow::End(_)) if this.plain.is_empty() => return Poll::Ready(Ok(())),
                Ok(Flow::End(_)) => {}
                Err(failure) => return Poll::Ready(Err(this.broken(failure))),
            }
        }
        let n = buffer.remaining().min(this.plain.len() - this.read);
        buffer.put_slice(&this.plain[this.read..this.read + n]);
        this.read += n;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if self.wire.waiting() >= OUTPUT_MAX {
            ready!(self.as_mut().poll_flush(cx))?;
        }
        if let Err(failure) = self.wire.queue(data) {
            return Poll::Ready(Err(self.broken(failure)));
        }
        Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Err(failure) = self.wire.goodbye() {
            return Poll::Ready(Err(self.broken(failure)));
        }
        self.wire.poll_flush(cx)
    }
}
