//! `show events`: the rings, and the lines of one.

use super::{Answer, Piece};
use penstock_config::model::LogProto;
use penstock_proxy::{
    Handle,
    ring::{Found, Reader},
};
use serde_json::{Value as Json, json};
use std::{fmt::Write as _, task::Poll};

/// Where events go that are not kept.
const STREAMS: [(&str, i32, &str); 2] =
    [("stdout", 1, "standard output (fd#1)"), ("stderr", 2, "standard output (fd#2)")];

/// Shows the sinks, or the lines of the one with this name; with `wait` also those that come later.
pub(super) fn show(handle: &Handle, sink: Option<&str>, wait: bool, only_new: bool, as_json: bool) -> Answer {
    let Some(name) = sink else { return list(handle, as_json) };
    if STREAMS.iter().any(|(stream, _, _)| *stream == name) {
        return Answer::error("Nothing to report for this sink");
    }
    let Some(ring) = handle.rings().iter().find(|ring| ring.name == name) else {
        return Answer::error("No such event sink");
    };
    let mut reader = Reader::new(ring.clone(), LogProto::Legacy, only_new);
    Answer::poll(move |cx| match reader.read(wait.then_some(cx)) {
        Found::Lines => {
            let lines = reader.pending().to_vec();
            reader.take(lines.len());
            Poll::Ready(Some(Piece::Data(lines)))
        }
        Found::Nothing if wait => Poll::Pending,
        Found::Nothing | Found::End => Poll::Ready(None),
    })
}

fn list(handle: &Handle, as_json: bool) -> Answer {
    let streams = STREAMS.iter().map(|(name, number, text)| (*name, "fd", handle.log_lines_lost(*number), *text));
    let rings = handle.rings().iter().map(|ring| (ring.name.as_str(), "buffer", 0, ring.description.as_str()));
    if as_json {
        let object = |(name, kind, dropped, description)| json!({ "name": name, "type": kind, "dropped": dropped, "description": description });
        let all: Vec<Json> = streams.chain(rings).map(object).collect();
        return Answer::data(format!("{}\n", json!(all)));
    }
    let mut out = "Supported events sinks are listed below. Add -w(wait), -n(new). Any key to stop\n".to_owned();
    for (name, kind, dropped, description) in streams.chain(rings) {
        let _ = writeln!(out, "    {name:<10} : type={kind}, {dropped} dropped, {description}");
    }
    Answer::data(out)
}
