//! What we make of every message in the tables; `haproxy.rs` asks HAProxy the same.

#[allow(dead_code, reason = "shared by two tests")]
mod probes;

use probes::{our_request_fate, our_response_fate, requests, responses};

#[test]
fn every_request_has_the_fate_its_row_says() {
    let probes = requests::all();
    assert!(probes.len() >= 80);
    let wrong: Vec<_> = probes.iter().filter(|it| our_request_fate(&it.raw) != Ok(it.ours)).map(|it| it.name).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn every_response_has_the_fate_its_row_says() {
    let probes = responses::all();
    assert!(probes.len() >= 40);
    let wrong: Vec<_> =
        probes.iter().filter(|it| our_response_fate(&it.raw) != Ok(it.ours)).map(|it| it.name).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}
