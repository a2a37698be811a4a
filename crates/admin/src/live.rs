//! Live updates of the statistics page: a stream of events for each viewer.
//!
//! An event contains what has changed, as JSON. What only ages has not: the page is told the time, and counts by itself. A thread sends each viewer one event a second, and ends with the last viewer.
//! A viewer that does not read is disconnected once its buffer is full; its browser then reconnects.

use crate::html::without_ages;
use crate::page::{self, View, changes, graphs::Shown, keys};
use penstock_config::model::{ProxyId, StatsPage};
use penstock_proxy::{Handle, ServiceRequest, Snapshot, State};
use serde_json::{Value, json};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// The most viewers at a time.
const VIEWERS_MAX: usize = 16;
/// How many events may wait for a viewer.
const WAITING_MAX: usize = 4;
/// Approximate number of bytes of changed cells in an event; further changes follow in the next.
const CELLS_MAX: usize = 256 * 1024;
/// Delay of an event after each full second, so that the history contains that second.
const AFTER: Duration = Duration::from_millis(150);

/// The current viewers of the page.
#[derive(Clone, Debug, Default)]
pub struct Viewers(Arc<Mutex<Watched>>);

#[derive(Debug, Default)]
struct Watched {
    viewers: Vec<Viewer>,
    /// Whether the thread is running.
    is_running: bool,
}

/// A viewer, and what it was last sent.
#[derive(Debug)]
struct Viewer {
    events: Sender<Vec<u8>>,
    proxy: ProxyId,
    view: View,
    facts: Vec<String>,
    rows: String,
    cells: Vec<u32>,
    next: usize,
    /// The latest step of the graphs that was sent.
    last: Option<u64>,
}

impl Viewers {
    /// Adds a viewer; returns its first event and the channel for further ones. `None` if there are too many viewers.
    pub fn add(&self, request: &ServiceRequest<'_>, view: View) -> Option<(Vec<u8>, Receiver<Vec<u8>>)> {
        let proxies = &request.handle.shared().config.proxies;
        let proxy = proxies.position(|proxy| std::ptr::eq(proxy, request.proxy))?;
        let (events, stream) = channel(WAITING_MAX);
        let mut viewer = Viewer {
            events,
            proxy,
            view,
            facts: Vec::new(),
            rows: String::new(),
            cells: Vec::new(),
            next: 0,
            last: None,
        };
        let first = viewer.event(request.handle, &request.handle.snapshot());
        let mut watched = self.lock();
        watched.viewers.retain(|viewer| !viewer.events.is_closed());
        if watched.viewers.len() >= VIEWERS_MAX || request.handle.state() != State::Running {
            return None;
        }
        watched.viewers.push(viewer);
        if !watched.is_running {
            let (viewers, handle) = (self.clone(), request.handle.clone());
            watched.is_running = request.handle.beside("viewers", move || viewers.tell(&handle)).is_ok();
            if !watched.is_running {
                watched.viewers.clear();
                return None;
            }
        }
        Some((first, stream))
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends events until no viewers are left; runs on the thread.
    fn tell(&self, handle: &Handle) {
        loop {
            let now = handle.started().elapsed();
            let next = Duration::from_secs(now.saturating_sub(AFTER).as_secs() + 1) + AFTER;
            std::thread::sleep(next - now);
            let snapshot = handle.snapshot();
            let mut watched = self.lock();
            if handle.state() != State::Running {
                // A process that drains does not wait for its viewers.
                watched.viewers.clear();
            }
            watched.viewers.retain_mut(|viewer| {
                if viewer.events.is_closed() {
                    return false;
                }
                let event = viewer.event(handle, &snapshot);
                viewer.events.try_send(event).is_ok()
            });
            if watched.viewers.is_empty() {
                watched.is_running = false;
                return;
            }
        }
    }
}

impl Viewer {
    /// Makes an event of what has changed since the last one.
    fn event(&mut self, handle: &Handle, snapshot: &Snapshot) -> Vec<u8> {
        let proxy = &handle.shared().config.proxies[self.proxy];
        let config: &StatsPage = proxy.stats.as_ref().expect("the page that led here");
        let rows = snapshot.rows.iter().filter(|row| self.view.shows(config, row, &proxy.name)).collect::<Vec<_>>();
        let keys = keys(&rows);
        if self.rows != keys {
            (self.cells, self.next) = (Vec::new(), 0);
            self.rows.clone_from(&keys);
        }
        self.facts.resize(page::FACTS.len(), String::new());
        let mut facts = Vec::new();
        for ((at, (_, value)), shown) in page::FACTS.iter().enumerate().zip(&mut self.facts) {
            let value = without_ages(value(snapshot));
            if *shown != value {
                shown.clone_from(&value);
                facts.push((at, value));
            }
        }
        let mut event = json!({ "now": snapshot.process.clock.as_millis() as u64, "rows": keys });
        if !facts.is_empty() {
            event["facts"] = json!(facts);
        }
        let cells = changes(&rows, &mut self.cells, &mut self.next, CELLS_MAX);
        if !cells.is_empty() {
            event["cells"] = json!(cells);
        }
        if let Some(graph) = self.graph(Shown::of(handle, &self.view, &rows)) {
            event["graph"] = graph;
        }
        format!("data: {event}\n\n").into_bytes()
    }

    /// The steps of the graphs that have not been sent yet, as JSON.
    fn graph(&mut self, shown: Shown) -> Option<Value> {
        let graph = shown.graph?;
        let new = self.last.map_or(usize::MAX, |last| graph.last.saturating_sub(last) as usize);
        self.last = Some(graph.last);
        let rounded = |value: &Option<f64>| value.map(|value| (value * 100.0).round() / 100.0);
        let line = |values: &Vec<Option<f64>>| -> Vec<Option<f64>> {
            values[values.len().saturating_sub(new)..].iter().map(rounded).collect()
        };
        let lines: Vec<_> = graph.lines.iter().map(|(_, values)| line(values)).collect();
        Some(json!({ "last": graph.last, "lines": lines }))
    }
}
