//! A page that changes while somebody looks at it: one stream of events for each viewer.
//!
//! An event is what has changed, as JSON. A thread writes one a second for each viewer, and ends with the last of them. A viewer
//! that does not read finds its buffer full and is let go; its browser asks again.

use crate::page::{self, View, changes, graphs::Shown, keys};
use penstock_config::model::StatsPage;
use penstock_proxy::{Handle, ServiceRequest, Snapshot, State};
use serde_json::{Value, json};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Viewers at once.
const VIEWERS_MAX: usize = 16;
/// Events that wait for a viewer.
const WAITING_MAX: usize = 4;
/// About so many bytes of changed cells go into an event; others follow in the next.
const CELLS_MAX: usize = 256 * 1024;
/// How long after a full second an event is made: the history has that second by then.
const AFTER: Duration = Duration::from_millis(150);

/// Those who look at the page now.
#[derive(Clone, Debug, Default)]
pub struct Viewers(Arc<Mutex<Watched>>);

#[derive(Debug, Default)]
struct Watched {
    viewers: Vec<Viewer>,
    /// There is a thread.
    is_running: bool,
}

/// One who looks, and what was shown last.
#[derive(Debug)]
struct Viewer {
    events: Sender<Vec<u8>>,
    proxy: usize,
    view: View,
    facts: Vec<String>,
    rows: String,
    cells: Vec<u32>,
    next: usize,
    /// The last step of the graphs that was sent.
    last: Option<u64>,
}

impl Viewers {
    /// One more: the first event, and the others as they come. `None` if there are enough.
    pub fn add(&self, request: &ServiceRequest<'_>, view: View) -> Option<(Vec<u8>, Receiver<Vec<u8>>)> {
        let proxies = &request.handle.shared().config.proxies;
        let proxy = proxies.iter().position(|proxy| std::ptr::eq(proxy, request.proxy))?;
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

    /// The life of the thread.
    fn tell(&self, handle: &Handle) {
        loop {
            let now = handle.started().elapsed();
            let next = Duration::from_secs(now.saturating_sub(AFTER).as_secs() + 1) + AFTER;
            std::thread::sleep(next - now);
            let snapshot = handle.snapshot();
            let mut watched = self.lock();
            if handle.state() != State::Running {
                // A process that drains does not wait for those who look on.
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
    /// What has changed since the last one.
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
            let value = value(snapshot);
            if *shown != value {
                shown.clone_from(&value);
                facts.push((at, value));
            }
        }
        let event = json!({
            "rows": keys,
            "facts": facts,
            "cells": changes(&rows, &mut self.cells, &mut self.next, CELLS_MAX),
            "graph": self.graph(Shown::of(handle, &self.view, &rows)),
        });
        format!("data: {event}\n\n").into_bytes()
    }

    /// The steps that are new.
    fn graph(&mut self, shown: Shown) -> Value {
        let Some(graph) = shown.graph else { return Value::Null };
        let new = self.last.map_or(usize::MAX, |last| graph.last.saturating_sub(last) as usize);
        self.last = Some(graph.last);
        let rounded = |value: &Option<f64>| value.map(|value| (value * 100.0).round() / 100.0);
        let line = |values: &Vec<Option<f64>>| -> Vec<Option<f64>> {
            values[values.len().saturating_sub(new)..].iter().map(rounded).collect()
        };
        let lines: Vec<_> = graph.lines.iter().map(|(_, values)| line(values)).collect();
        json!({ "last": graph.last, "lines": lines })
    }
}
