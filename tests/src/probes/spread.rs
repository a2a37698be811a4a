//! Connections are shared among workers evenly, however unevenly they come and go.

use std::collections::BTreeMap;
use std::io::Write;

use super::{Probe, with_penstock};
use crate::Failure;
use crate::client;
use crate::message::{Inbox, Outcome};
use crate::run::Run;
use crate::scenario::Section;

const CONFIG: &str = "[config]\nglobal\n    nbthread 4\n    maxconn 1000\ndefaults\n    mode http\n    timeout connect \
                      1s\n    timeout client 60s\n    timeout server 1s\nfrontend f\n    bind {{bind http}}\n    \
                      http-request return status 200 hdr X-Thread %[thread]\n";

pub fn probes() -> Vec<Probe> {
    vec![Probe::new("spread/new-connections-go-to-who-has-fewest", new_connections)]
}

/// The system's hash alone would leave a worker that has lost its connections with too few for ever.
fn new_connections() -> Result<(), Failure> {
    with_penstock(CONFIG, |run| {
        let mut kept = Vec::new();
        for _ in 0..80 {
            kept.push(connection(run)?);
        }
        evenly(&kept)?;
        let favourite = kept[0].0.clone();
        kept.retain(|(thread, _)| *thread == favourite);
        // They are counted off once their ends have been read.
        std::thread::sleep(std::time::Duration::from_millis(300));
        for _ in 0..60 {
            kept.push(connection(run)?);
        }
        evenly(&kept)
    })
}

/// A connection that stays open, and the worker that has it.
fn connection(run: &mut Run<'_>) -> Result<(String, Inbox), Failure> {
    let plain = Section { kind: "tcp".into(), arguments: Vec::new(), text: String::new(), line: 0 };
    let mut inbox = Inbox::new(client::open(run.bind("http")?, &plain)?, None);
    inbox.wire.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").map_err(|e| e.to_string())?;
    match inbox.response("GET") {
        Outcome::Message(m) => Ok((m.field("x-thread").ok_or("no thread is named")?.to_owned(), inbox)),
        other => Err(format!("no answer: {other:?}")),
    }
}

/// No worker has more than an eighth and three above the one with fewest: what a worker may have before it hands over, and
/// the connection itself.
fn evenly(kept: &[(String, Inbox)]) -> Result<(), Failure> {
    let mut counts: BTreeMap<&str, usize> = (["0", "1", "2", "3"]).map(|thread| (thread, 0)).into();
    for (thread, _) in kept {
        *counts.entry(thread).or_default() += 1;
    }
    let (least, most) = (counts.values().min().copied().unwrap_or(0), counts.values().max().copied().unwrap_or(0));
    if most > least + least / 8 + 3 { Err(format!("they are spread so: {counts:?}")) } else { Ok(()) }
}
