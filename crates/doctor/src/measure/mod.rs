//! `plan --measure`: full and resumed handshakes over loopback, and the operations in them, timed on the spot.
//!
//! Every time is CPU time of the thread that plays the server, in its steps alone. What is compared is measured in turns,
//! so that whatever disturbs the machine disturbs all of it.

mod certificate;
mod clock;
mod handshake;
mod operations;

use crate::{Cpu, Host};
use certificate::Identity;
use clock::Rounds;
use handshake::{Kind, Pair};
use penstock_lanes::Lanes;
use penstock_planner::whatif::{Measured, Operation, Timing};
use std::{
    sync::Barrier,
    time::{Duration, Instant},
};

/// What is to be measured.
pub struct Wish {
    /// PEM of a certificate and its key; one is made where there is none: RSA-2048.
    pub certificate: Option<(String, Vec<u8>)>,
    /// PEM of the key, where it is not beside the certificate.
    pub key: Option<Vec<u8>>,
    /// TLS 1.2 instead of 1.3.
    pub tls12: bool,
    /// The vectors that eight lanes are computed in; where they are not accelerated, nothing of them is measured.
    pub lanes: Lanes,
    /// The approximate duration.
    pub time: Duration,
}

/// The shortest duration: anything shorter leaves no room for three rounds.
pub const TIME_MIN: Duration = Duration::from_millis(200);
/// The longest duration: anything longer is taken for a typing error.
pub const TIME_MAX: Duration = Duration::from_secs(600);
/// CPU time of handshakes in a round: some twenty full ones.
const SLICE: Duration = Duration::from_millis(12);
/// The most threads that are started.
const THREADS_MAX: usize = 512;

/// Measures.
///
/// # Errors
/// A sentence: the certificate cannot be used, or loopback cannot.
pub fn measure(wish: &Wish, host: &Host) -> Result<Measured, String> {
    let own = match &wish.certificate {
        Some((name, pem)) => Identity::read(name, pem, wish.key.as_deref())?,
        None => Identity::rsa2048()?,
    };
    let ecdsa = Identity::ecdsa()?;
    let pair = Pair::new(&own, wish.tls12)?;
    let ecdsa_pair = Pair::new(&ecdsa, wish.tls12)?;
    let mut sign = Series::of(operations::sign(&own, wish.lanes)?);
    let mut agree = Series::of(operations::agree(wish.lanes));

    // Three quarters of the time for handshakes and operations, each in every round, so that all of them see the same
    // disturbances and differences between them mean something; a quarter with every processor busy.
    let mut rounds = Rounds::new(wish.time * 3 / 4);
    let [mut full, mut fast, mut resumed] = [const { Vec::new() }; 3];
    while rounds.more() {
        full.push(pair.slice(Kind::Full, SLICE)?);
        sign.round();
        fast.push(ecdsa_pair.slice(Kind::Full, SLICE)?);
        agree.round();
        resumed.push(pair.slice(Kind::Resumed, SLICE)?);
    }
    let (sign, agree) = (sign.operation()?, agree.operation()?);
    let loaded = loaded(&own, wish)?;

    let cpu = Cpu::of(host);
    let group = if wish.tls12 { "TLS 1.2, ECDHE with X25519, AES-256-GCM" } else { "TLS 1.3, X25519, AES-256-GCM" };
    Ok(Measured {
        machine: if cpu.model_name.is_empty() { std::env::consts::ARCH.into() } else { cpu.model_name },
        processors: processors(),
        certificate: own.description.clone(),
        protocol: group.into(),
        is_ecdsa: own.is_ecdsa(),
        full: timing(full)?,
        loaded,
        resumed: timing(resumed)?,
        ecdsa: timing(fast)?,
        sign,
        agree,
    })
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn timing(rounds: Vec<f64>) -> Result<Timing, String> {
    Timing::of(rounds).ok_or_else(|| "the processor's clock does not advance: nothing can be measured".to_owned())
}

/// An operation with its times: one, each of eight and each of four together.
struct Series {
    pair: operations::Pair,
    times: [Vec<f64>; 3],
}

impl Series {
    fn of(pair: operations::Pair) -> Series {
        Series { pair, times: [const { Vec::new() }; 3] }
    }

    fn round(&mut self) {
        let [one, eight, four] = &mut self.times;
        one.push(clock::each(&self.pair.native, 1));
        if let Some(lanes) = &self.pair.lanes {
            eight.push(clock::each(&|| lanes(8), 8));
            four.push(clock::each(&|| lanes(4), 4));
        }
    }

    fn operation(self) -> Result<Operation, String> {
        let operations::Pair { name, lanes, recorded, .. } = self.pair;
        let [one, eight, four] = self.times;
        let lanes = lanes.is_some().then(|| Ok::<_, String>((timing(eight)?, timing(four)?))).transpose()?;
        Ok(Operation { name, native: timing(one)?, lanes, recorded })
    }
}

/// Full handshakes on every processor at once.
fn loaded(own: &Identity, wish: &Wish) -> Result<Timing, String> {
    let threads = processors().min(THREADS_MAX);
    let barrier = Barrier::new(threads);
    let end = wish.time / 4;
    let run = || -> Result<Vec<f64>, String> {
        // A thread that cannot begin must not keep the others waiting.
        let pair = Pair::new(own, wish.tls12);
        barrier.wait();
        let pair = pair?;
        let started = Instant::now();
        let mut rounds = Vec::new();
        while started.elapsed() < end || rounds.len() < 3 {
            rounds.push(pair.slice(Kind::Full, SLICE)?);
        }
        Ok(rounds)
    };
    let all: Vec<Result<Vec<f64>, String>> = std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        started
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a measuring thread failed".into())))
            .collect()
    });
    let mut rounds = Vec::new();
    for thread in all {
        rounds.extend(thread?);
    }
    timing(rounds)
}
