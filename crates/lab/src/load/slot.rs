//! One of the connections that are open at once: unit after unit, in the order a connection lives.

use super::failure::{Failure, When};
use super::http1::{self, Reader, Response};
use super::wire::{Buffers, Flow, Route, Wire};
use super::worker::{Progress, Unit, Worker};
use super::{Arrivals, LoadPlan, Mode, settings, tunnel};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// With each failure in a row, a closed loop waits this much longer before it tries again, so that a server that refuses is not
/// asked a hundred thousand times a second.
const BACK_OFF: Duration = Duration::from_millis(10);
const BACK_OFF_MAX: u32 = 50;

pub(crate) struct Slot {
    pub worker: Rc<Worker>,
    pub route: Route,
    pub stage: Progress,
    /// The run's plan, or, where connections have names of their own, that of the one which is open.
    pub plan: Arc<LoadPlan>,
    /// The request, as it is sent every time.
    request: Vec<u8>,
    buffers: Buffers,
    reader: Reader,
    failures: u32,
}

impl Slot {
    pub(crate) fn new(worker: Rc<Worker>, route: Route) -> Slot {
        let (buffers, reader) = Default::default();
        let plan = Arc::clone(&worker.plan);
        let request = http1::request(&plan);
        Slot { worker, route, stage: Progress::new(When::Connect), plan, request, buffers, reader, failures: 0 }
    }

    /// HTTP/1.1, or no HTTP at all.
    pub(crate) async fn run(mut self) {
        match self.worker.plan.mode {
            Mode::Handshake | Mode::Request => self.one_each().await,
            Mode::KeepAlive | Mode::Download => self.many().await,
            Mode::Idle => self.hold().await,
        }
    }

    /// A connection for each unit.
    async fn one_each(&mut self) {
        let request = self.worker.plan.mode == Mode::Request;
        while let Some(unit) = self.worker.next().await {
            let patience = self.worker.plan.timeout;
            let outcome = tokio::time::timeout(patience, async {
                if request { self.handshake_and_request().await } else { self.handshake().await }
            });
            let outcome = outcome.await;
            self.settle(unit, outcome).await;
        }
    }

    async fn handshake(&mut self) -> Result<Instant, Failure> {
        let mut wire = self.open().await?;
        let at = Instant::now();
        self.stage.set(When::Close);
        if !wire.close().await? {
            self.worker.unclean();
        }
        self.buffers = wire.into_buffers();
        Ok(at)
    }

    async fn handshake_and_request(&mut self) -> Result<Instant, Failure> {
        let mut wire = self.open().await?;
        let response = self.exchange(&mut wire).await?;
        let at = Instant::now();
        // The request asked the server to close. How it does so is no part of the request.
        if !response.closed && !wire.closed_by_peer().await.unwrap_or(false) {
            self.worker.unclean();
        }
        self.buffers = wire.into_buffers();
        Ok(at)
    }

    /// One connection for as many units as the server allows.
    async fn many(&mut self) {
        let mut kept: Option<Wire> = None;
        while let Some(unit) = self.worker.next().await {
            let patience = self.worker.plan.timeout;
            let outcome = tokio::time::timeout(patience, async {
                let mut wire = match kept.take() {
                    Some(wire) => wire,
                    None => self.open().await?,
                };
                let response = self.exchange(&mut wire).await?;
                if response.keep {
                    kept = Some(wire);
                } else {
                    self.buffers = wire.into_buffers();
                }
                Ok(Instant::now())
            });
            let outcome = outcome.await;
            self.settle(unit, outcome).await;
        }
    }

    /// One request, and then nothing for as long as the run lasts.
    async fn hold(&mut self) {
        while let Some(unit) = self.worker.next().await {
            let mut held = None;
            let patience = self.worker.plan.timeout;
            let outcome = tokio::time::timeout(patience, async {
                let mut wire = self.open().await?;
                self.exchange(&mut wire).await?;
                held = Some(wire);
                Ok(Instant::now())
            });
            let outcome = outcome.await;
            self.settle(unit, outcome).await;
            let Some(mut wire) = held else { continue };
            self.stage.set(When::Idle);
            let failure = tokio::select! {
                () = self.worker.over() => return,
                failure = lost(&mut wire) => failure,
            };
            self.worker.fail(unit, failure);
        }
    }

    /// Where connections have names of their own, takes those of the next one.
    pub(crate) fn rename(&mut self) {
        let Some(fresh) = &self.worker.fresh else { return };
        let plan = fresh.next(&self.worker.plan);
        if let Some(tls) = &mut self.route.tls {
            tls.name =
                settings::server_name(&plan).expect("it differs in hexadecimal digits only from one that was tried");
        }
        self.route.tunnel = tunnel::request(&plan);
        self.request = http1::request(&plan);
        self.plan = Arc::new(plan);
    }

    async fn open(&mut self) -> Result<Wire, Failure> {
        self.rename();
        let buffers = std::mem::take(&mut self.buffers);
        let (wire, opened) = Wire::open(&self.route, buffers, &self.worker.gauge, &self.stage).await?;
        self.worker.opened(&wire, opened);
        Ok(wire)
    }

    async fn exchange(&mut self, wire: &mut Wire) -> Result<Response, Failure> {
        self.stage.set(When::Response);
        let worker = &self.worker;
        let response = self.reader.exchange(wire, &self.request, worker.plan.method.as_bytes()).await?;
        worker.response(response.status, response.body_bytes, response.first_byte);
        Ok(response)
    }

    /// Counts the outcome of a unit; after a failure, waits a little.
    pub(crate) async fn settle(
        &mut self,
        unit: Unit,
        outcome: Result<Result<Instant, Failure>, tokio::time::error::Elapsed>,
    ) {
        let failure = match outcome {
            Ok(Ok(at)) => {
                self.failures = 0;
                return self.worker.finish(unit, at);
            }
            Ok(Err(failure)) => failure,
            Err(_) => Failure::TimedOut(self.stage.get()),
        };
        self.worker.fail(unit, failure);
        self.failures = (self.failures + 1).min(BACK_OFF_MAX);
        if self.worker.plan.arrivals == Arrivals::Closed {
            tokio::select! {
                () = tokio::time::sleep(BACK_OFF * self.failures) => {}
                () = self.worker.over() => {}
            }
        }
    }
}

/// Waits until the server ends an idle connection.
async fn lost(wire: &mut Wire) -> Failure {
    loop {
        match wire.read(When::Idle, &mut |_| ()).await {
            Ok(Flow::More) => {}
            Ok(Flow::End(_)) => return Failure::Closed(When::Idle),
            Err(failure) => return failure,
        }
    }
}
