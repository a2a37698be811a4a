//! How long a call takes that advances a batch by some steps.

use super::measure::thread_ns;
use super::operations::common::TestKey;
use penstock_lanes::rsa::{Progress, RsaBatch, RsaJob};
use penstock_lanes::{LANES, Lanes};

/// Steps in one call.
const STEPS: usize = 10;

/// Reports for every size the longest call of a batch of eight, in microseconds. Each call's time is the fastest of many, so that a
/// single disturbance of the machine is not attributed to the batch.
pub fn report(lanes: Lanes) {
    for name in ["rsa2048-1", "rsa3072-1", "rsa4096-1"] {
        let key = TestKey::load(name).prepare();
        let input = vec![0x5a; key.size().bytes()];
        let jobs = [RsaJob { key: &key, input: &input }; LANES];
        let mut fastest: Vec<u64> = Vec::new();
        for _ in 0..25 {
            let mut times = Vec::new();
            let mut start = thread_ns();
            let mut lap = || {
                let now = thread_ns();
                times.push(now - start);
                start = now;
            };
            let mut batch = RsaBatch::new(lanes, &jobs);
            lap();
            while batch.advance(STEPS) != Progress::Done {
                lap();
            }
            lap();
            std::hint::black_box(batch.finish());
            lap();
            fastest.resize(times.len(), u64::MAX);
            fastest.iter_mut().zip(&times).for_each(|(fastest, time)| *fastest = (*fastest).min(*time));
        }
        let us = |ns: Option<&u64>| *ns.expect("there are calls") as f64 / 1000.0;
        let advances = &fastest[1..fastest.len() - 1];
        println!(
            "{}-bit batch of {LANES}: starts in {:.0} us, no advance of {STEPS} steps over {:.0} us, results in {:.0} us",
            key.size().bits(),
            us(fastest.first()),
            us(advances.iter().max()),
            us(fastest.last())
        );
    }
    println!();
}
