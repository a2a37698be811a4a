//! Tests that run whole exchanges through the real code without sockets: under a virtual clock, with buffers of a few
//! bytes, every message cut at every byte, and every round of every loop counted.
//!
//! The result of an exchange (what the client gets, and what the servers are sent) must not depend on where its bytes
//! are cut or on the size of buffers, and must not take more rounds than its bytes explain. Buffers for bodies have 24
//! to 64 bytes; those for heads and trailer sections must hold one, and are as small as the test exchanges permit.

mod cached;
mod coded;
mod corpus;
pub(crate) mod memory;
mod peers;

use crate::{
    accept::accepted::Accepted,
    connection::socket::Socket,
    handshake,
    process::{
        handle::Handle,
        service::{Service, ServiceRequest, ServiceResponse, Services},
        shared::{Limits, Shared},
    },
    worker::{buffer::Buffers, pulse::Who, state::Worker, task, turn::counted},
};
use corpus::{CONFIG, Client, Exchange, Server, corpus};
use memory::{Meter, Shape};
use peers::{http1_client, http2_client, serve};
use penstock_config::{
    Diagnostics, Env,
    model::{ProxyId, Source},
};
use std::{
    cell::RefCell,
    net::SocketAddr,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};
use tokio::{runtime::LocalOptions, time::Instant};

/// A service that behaves like the stats page and the exporter: once it has the body, it answers with more than a
/// buffer holds.
struct Page;

impl Service for Page {
    fn log_name(&self) -> &'static str {
        "<PAGE>"
    }
    fn answer(&self, request: ServiceRequest<'_>) -> ServiceResponse {
        let body = [request.method, b" page ", &[b'p'; 150]].concat();
        ServiceResponse { status: 200, fields: vec![("Content-Type".into(), "text/plain".into())], body, stream: None }
    }
}

/// The parts of the proxy that all exchanges share.
struct Proxy {
    shared: Arc<Shared>,
    handle: Handle,
}

impl Proxy {
    fn new(text: &str) -> Proxy {
        let mut diagnostics = Diagnostics::default();
        let page = [&b"HTTP/1.1 503 Closed\r\nContent-Type: text/plain\r\n\r\n"[..], &[b'e'; 100]].concat();
        let files = |_: &std::path::Path| Ok::<_, std::io::Error>(page.clone());
        let source = Source { name: "model.cfg".into(), text: text.into() };
        let (config, found) = penstock_config::load([source], &Env { files: &files, ..Env::default() });
        assert!(!found.has_errors(), "{found:#?}");
        let page: Arc<dyn Service> = Arc::new(Page);
        let services = Services { stats: Some(page.clone()), named: vec![("prometheus-exporter", page)] };
        let shared = Shared::build(config, 1, &mut diagnostics);
        let shared = shared.unwrap_or_else(|| panic!("{diagnostics:#?}"));
        Proxy { handle: Handle::new(shared.clone(), services, Vec::new()), shared }
    }
    fn frontend(&self, name: &str) -> ProxyId {
        let proxies = &self.shared.config.proxies;
        proxies.position(|proxy| proxy.name == name).expect("a frontend of the configuration above")
    }
}

/// A worker of this configuration, for tests of what belongs to one.
pub(crate) fn worker(config: &str) -> Rc<Worker> {
    let Proxy { shared, handle } = Proxy::new(config);
    Rc::new(Worker::new(0, handle, shared, Buffers::of(16384)))
}

/// The result of an exchange, in a form that does not depend on how bytes were framed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    client: Vec<String>,
    servers: Vec<String>,
}

/// The parameters of one run.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// The sizes of a buffer for bodies and of one for heads.
    buffers: (usize, usize),
    /// How many bytes a connection takes before they are read.
    pipe: usize,
    /// Offsets at which the client's bytes are cut, and those of the first server connection.
    cuts: (Option<usize>, Option<usize>),
    /// How many rounds are allowed.
    rounds: u64,
    /// Whether the client's connection has a planted spin.
    spins: bool,
}

const LARGE: Run = Run { buffers: (16384, 16384), pipe: 1 << 20, cuts: (None, None), rounds: 100_000, spins: false };

/// How long a client or a server is inactive before it gives up: longer than any rule waits.
const PATIENCE: Duration = Duration::from_secs(60);

thread_local! {
    /// Panics of this thread, since tokio hides those of tasks.
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Runs an exchange; returns its outcome, how many bytes the client and the first server sent, and the rounds it took.
fn carry(proxy: &Proxy, exchange: &'static Exchange, run: Run) -> Result<(Outcome, [usize; 2], u64), String> {
    PANICS.take();
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build_local(LocalOptions::default());
    let runtime = runtime.expect("a runtime without a reactor");
    counted::allow(Some(run.rounds));
    let outcome = runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(100_000), carry_in_time(proxy, exchange, run)).await
    });
    let left = counted::left().unwrap_or(0);
    counted::allow(None);
    memory::set_network(None);
    drop(runtime);
    let panics = PANICS.take();
    if !panics.is_empty() {
        return Err(panics.join("; "));
    }
    let (outcome, moved) = outcome.map_err(|_| "it does not end".to_owned())?;
    Ok((outcome, moved, run.rounds - left))
}

async fn carry_in_time(proxy: &Proxy, exchange: &'static Exchange, run: Run) -> (Outcome, [usize; 2]) {
    let shared = &proxy.shared;
    let buffers = Buffers::with_input(run.buffers.0, run.buffers.1);
    let worker = Rc::new(Worker::new(0, proxy.handle.clone(), shared.clone(), buffers));
    let frontend = proxy.frontend(exchange.frontend);
    let (ours, theirs) = (address(1), address(9999));
    let shape = Shape { capacity: run.pipe, cut: run.cuts.0, spins: run.spins };
    let (socket, client, meter) = memory::pair(shape, ours, theirs);
    let servers: Rc<RefCell<Vec<String>>> = Rc::default();
    let meters: Rc<RefCell<Vec<Meter>>> = Rc::default();
    let (seen, opened, asked) = (servers.clone(), meters.clone(), Rc::<std::cell::Cell<usize>>::default());
    memory::set_network(Some(Box::new(move |to| {
        let cut = if opened.borrow().is_empty() { run.cuts.1 } else { None };
        // Both ends of h2 write their prefaces before they read the other's.
        let capacity = if matches!(exchange.server, Server::Http2(..)) { run.pipe.max(128) } else { run.pipe };
        let (socket, other, meter) = memory::pair(Shape { capacity, cut, spins: false }, theirs, to);
        opened.borrow_mut().push(meter);
        tokio::task::spawn_local(serve(other, &exchange.server, seen.clone(), asked.clone()));
        socket
    })));
    let place = Limits::enter(shared, frontend, 0, 0).expect("no limit is set");
    let accepted =
        Accepted { socket: Socket::Memory(socket), place, proxy: frontend, bind: 0, accepted: Instant::now() };
    let who = Who::Connection { proxy: frontend, bind: 0, peer: None };
    let served = task::spawn(&worker, who, handshake::run(worker.clone(), accepted));
    let got = match exchange.client {
        Client::Http1(request) => http1_client(client, request).await,
        Client::Http2(method, path, pieces, trailers) => http2_client(client, method, path, pieces, trailers).await,
    };
    // The hook records its panic.
    let _ = served.await;
    worker.pool.close();
    worker.muxes.clear();
    tokio::time::sleep(PATIENCE).await;
    let moved = [meter.moved()[0], meters.borrow().first().map_or(0, |meter| meter.moved()[0])];
    let servers = servers.take();
    (Outcome { client: got, servers }, moved)
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// How many rounds an exchange may take: several for each byte, since a buffer may hold only one, and some to start
/// with.
fn allowed(exchange: &Exchange, moved: [usize; 2]) -> u64 {
    // A byte that comes alone is flushed alone, and becomes a dozen.
    let each = if exchange.frontend.starts_with("coded") { 12 * 12 } else { 12 };
    600 + each * (moved[0] + moved[1]) as u64
}

/// The part of an outcome that must not depend on sizes and cuts: a service that responds before all of a body was read
/// ends the connection, and how much was read for it depends on the buffer.
fn comparable(exchange: &Exchange, mut outcome: Outcome) -> Outcome {
    if exchange.frontend == "pages" {
        outcome.client = outcome.client.iter().map(|line| line.replace("connection: close, ", "")).collect();
    }
    outcome
}

/// Describes what went wrong with an exchange, if anything.
fn compare(proxy: &Proxy, exchange: &'static Exchange, run: Run, expected: &Outcome) -> Option<String> {
    let why = match carry(proxy, exchange, run) {
        Ok((outcome, ..)) => {
            let outcome = comparable(exchange, outcome);
            if outcome == *expected {
                return None;
            }
            format!("{outcome:#?}\nwhere with large buffers it was\n{expected:#?}")
        }
        Err(why) => why,
    };
    Some(format!("{} with {run:?}: {why}", exchange.name))
}

/// Sizes of buffers for bodies and heads, and how many bytes a connection takes at once.
const SIZES: [((usize, usize), usize); 5] =
    [((24, 256), 1 << 16), ((64, 200), 7), ((33, 256), 1), ((41, 333), 50), ((28, 1024), 300)];

/// Runs these exchanges; returns what went wrong.
fn carry_all(corpus: Vec<Exchange>, beat: &AtomicU64) -> Vec<String> {
    let proxy = Proxy::new(&[CONFIG, coded::CONFIG, cached::CONFIG].concat());
    let mut wrong = Vec::new();
    for exchange in &*corpus.leak() {
        let (expected, moved, _) = match carry(&proxy, exchange, LARGE) {
            Ok(carried) => carried,
            Err(why) => {
                wrong.push(format!("{} with large buffers: {why}", exchange.name));
                continue;
            }
        };
        let expected = comparable(exchange, expected);
        let rounds = allowed(exchange, moved);
        let whole = SIZES.map(|(buffers, pipe)| Run { buffers, pipe, rounds, ..LARGE });
        let cut = |cuts: (Option<usize>, Option<usize>)| {
            let turn = cuts.0.or(cuts.1).unwrap_or(0);
            let (buffers, pipe) = SIZES[turn % SIZES.len()];
            Run { buffers, pipe, cuts, rounds, ..LARGE }
        };
        let client = (1..moved[0]).map(|at| cut((Some(at), None)));
        let server = (1..moved[1]).map(|at| cut((None, Some(at))));
        for run in whole.into_iter().chain(client).chain(server) {
            beat.fetch_add(1, Ordering::Relaxed);
            if let Some(why) = compare(&proxy, exchange, run, &expected) {
                wrong.push(why);
                break;
            }
        }
    }
    wrong
}

/// Runs `work` on a thread of its own and returns its result; fails if the thread spends too much CPU time on one
/// exchange, so that even a loop that is not counted is noticed.
fn watched<T: Send + 'static>(work: impl FnOnce(&AtomicU64) -> T + Send + 'static) -> T {
    /// A hundred times what the longest one takes in a debug build.
    const STUCK: Duration = Duration::from_secs(5);
    let beat = Arc::new(AtomicU64::new(0));
    let (tell, told) = mpsc::channel();
    let (tell_thread, thread) = mpsc::channel();
    let beating = beat.clone();
    std::thread::spawn(move || {
        let _ = tell_thread.send(penstock_sys::thread_id());
        let _ = tell.send(work(&beating));
    });
    let thread = thread.recv().expect("the thread has begun");
    let used = || penstock_sys::thread_cpu_time(thread).unwrap_or_default();
    let (mut seen, mut since) = (0, used());
    loop {
        match told.recv_timeout(Duration::from_millis(100)) {
            Ok(result) => return result,
            Err(mpsc::RecvTimeoutError::Disconnected) => panic!("the model itself failed"),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        let now = beat.load(Ordering::Relaxed);
        if now != seen {
            (seen, since) = (now, used());
        }
        assert!(used().saturating_sub(since) < STUCK, "exchange {seen} goes round without counting");
    }
}

/// Collects the panics of model threads; those of other threads are reported as usual.
fn keep_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let told = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| match counted::left() {
            Some(_) => PANICS.with_borrow_mut(|panics| panics.push(info.to_string())),
            None => told(info),
        }));
    });
}

#[test]
fn exchanges_come_out_the_same_however_small_buffers_are_and_wherever_bytes_are_cut() {
    keep_panics();
    let wrong = watched(|beat| carry_all(corpus(), beat));
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn compressed_bodies_come_out_the_same_however_small_buffers_are_and_wherever_bytes_are_cut() {
    keep_panics();
    let wrong = watched(|beat| carry_all(coded::corpus(), beat));
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn stored_responses_come_out_the_same_however_small_buffers_are_and_wherever_bytes_are_cut() {
    keep_panics();
    let wrong = watched(|beat| carry_all(cached::corpus(), beat));
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn a_task_that_wakes_itself_without_progress_is_found() {
    keep_panics();
    let found = watched(|_| {
        let proxy = Proxy::new(&[CONFIG, coded::CONFIG, cached::CONFIG].concat());
        let corpus: &'static [Exchange] = corpus().leak();
        let post = corpus.iter().find(|exchange| exchange.name == "post").expect("it is there");
        carry(&proxy, post, Run { spins: true, cuts: (Some(60), None), ..LARGE }).err()
    });
    assert!(found.as_ref().is_some_and(|why| why.contains("a spin")), "{found:?}");
}

#[test]
fn a_wait_that_takes_a_full_buffer_for_one_with_room_is_found() {
    keep_panics();
    let found = watched(|_| {
        let proxy = Proxy::new(&[CONFIG, coded::CONFIG, cached::CONFIG].concat());
        let corpus: &'static [Exchange] = corpus().leak();
        let upload = corpus.iter().find(|exchange| exchange.name == "buffering/, chunks").expect("it is there");
        counted::plant(true);
        carry(&proxy, upload, Run { buffers: (24, 256), ..LARGE }).err()
    });
    assert!(found.as_ref().is_some_and(|why| why.contains("a spin")), "{found:?}");
}
