//! What a large map costs: `cargo run --release -p penstock-rules --example maps_speed [ENTRIES]`.
//!
//! Load, look-up, one entry added, and a new version filled and committed: CPU time, the median of five rounds of each.

use penstock_rules::{
    Type, Value,
    patterns::{Comparison, Method, Reference, Which},
};
use std::{hint::black_box, sync::Arc, time::Duration};

fn main() {
    let entries = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000_usize);
    let key = |n: usize| format!("host{n}.example.com").into_bytes();
    let pairs = || (0..entries).map(|n| (key(n), format!("backend{}", n % 1000).into_bytes()));
    println!("{entries} entries of `str`; medians of 5 rounds, in brackets the least and the most");
    let how = Comparison::by(Method::Str);
    let all: Vec<_> = pairs().collect();
    let slices = || all.iter().map(|(key, value)| (&key[..], &value[..]));
    let before = resident_kib();
    let map = Reference::new("hosts.map", true, slices());
    println!("memory: {} bytes an entry", (resident_kib() - before) * 1024 / entries);
    let mut loaded = Vec::new();
    report("load", 1, || loaded.push(Reference::new("hosts.map", true, slices())));
    drop(loaded);
    let reading = map.reading(how, Some(Type::Str)).expect("any text is a pattern");
    let mut state = 1_u64;
    let asked: Vec<Vec<u8>> = (0..200_000).map(|_| key(next(&mut state) as usize % entries)).collect();
    report("a look-up", asked.len(), || {
        for key in &asked {
            black_box(reading.matches(&Value::str(key)));
        }
    });
    report("an entry added and removed", 10_000, || {
        for n in 0..10_000 {
            let key = key(entries + n);
            map.set_or_add(&key, b"new").expect("any text is a pattern");
            map.remove(Which::Key(&key)).expect("it is there");
        }
    });
    report("a value changed", asked.len(), || {
        for key in &asked {
            map.set(Which::Key(key), b"changed").expect("it is there");
        }
    });
    report("a version filled and committed", 1, || {
        let version = map.prepare();
        map.add(Some(version), slices()).expect("any text is a pattern");
        map.commit(version).expect("it was announced");
        while map.tidy() {}
    });
    let committed = Arc::clone(&map);
    report("commit alone", 1, || {
        let version = committed.prepare();
        committed.add(Some(version), [(&b"a"[..], &b"b"[..])]).expect("any text is a pattern");
        committed.commit(version).expect("it was announced");
    });
}

fn report(what: &str, units: usize, mut round: impl FnMut()) {
    let mut times: Vec<Duration> = (0..5)
        .map(|_| {
            let begin = on_cpu();
            round();
            on_cpu() - begin
        })
        .collect();
    times.sort_unstable();
    let each = |time: Duration| time.as_secs_f64() / units as f64 * 1e6;
    println!("{what}: {:.2} µs ({:.2} to {:.2})", each(times[2]), each(times[0]), each(times[4]));
}

/// How long this thread has run, which does not depend on what else the machine does.
fn on_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0))
}

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    *state >> 24
}

fn resident_kib() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4
}
