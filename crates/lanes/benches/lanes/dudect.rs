//! Evidence about time, after dudect (Reparaz, Balasch, Verbauwhede, 2017): calls on one fixed secret and calls on random
//! secrets are timed in random order, and Welch's t-test says whether the two times could be one.
//!
//! A large t shows a leak; a small one shows that this many measurements on this machine did not find any. So that
//! silence means something, a comparison that stops at the first difference is measured too, and must be found.

use crate::operations::common;
use aws_lc_rs::rand;
use penstock_lanes::rsa::{RsaBatch, RsaJob, RsaSize};
use penstock_lanes::{Lanes, mlkem768, p256, p384, x25519};
use std::hint::black_box;

/// Below this, dudect calls a difference not shown.
const SHOWN: f64 = 4.5;

/// Secrets of one call.
type Secrets = [[u8; 48]; 8];

fn random_secrets() -> Secrets {
    let mut secrets = [[0; 48]; 8];
    secrets.iter_mut().for_each(|secret| {
        rand::fill(secret).expect("the system has randomness");
        secret[0] &= 0x7f; // below every group's order
    });
    secrets
}

/// Cycles of one call.
fn cycles(f: &impl Fn(&Secrets), secrets: &Secrets) -> f64 {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{__rdtscp, _mm_lfence, _rdtsc};
        let mut processor = 0;
        // SAFETY: every processor with AVX-512 has the time stamp counter.
        unsafe {
            _mm_lfence();
            let start = _rdtsc();
            f(secrets);
            (__rdtscp(&mut processor) - start) as f64
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let start = std::time::Instant::now();
        f(secrets);
        start.elapsed().as_nanos() as f64
    }
}

/// Welch's t of two samples.
fn welch(samples: &[Vec<f64>; 2]) -> f64 {
    let [a, b] = samples.each_ref().map(|sample| {
        let n = sample.len() as f64;
        let mean = sample.iter().sum::<f64>() / n;
        let variance = sample.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
        (mean, variance / n)
    });
    (a.0 - b.0) / (a.1 + b.1).sqrt()
}

/// The largest t over several cuts: interruptions make a long tail, a leak may be in any part.
fn largest_t(samples: &[Vec<f64>; 2]) -> f64 {
    let mut all: Vec<f64> = samples.concat();
    all.sort_by(f64::total_cmp);
    let cuts = [0.5, 0.75, 0.9, 0.95, 1.0].map(|share| all[((all.len() - 1) as f64 * share) as usize]);
    let t = cuts.map(|cut| {
        let kept = samples.each_ref().map(|sample| sample.iter().copied().filter(|x| *x <= cut).collect::<Vec<_>>());
        if kept.iter().any(|sample| sample.len() < 50) { 0.0 } else { welch(&kept) }
    });
    t.into_iter().max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap_or(0.0)
}

/// t of a function between one secret and many.
fn measure(f: impl Fn(&Secrets), calls: usize) -> f64 {
    let fixed = random_secrets();
    let mut order = vec![0; calls];
    rand::fill(&mut order).expect("the system has randomness");
    // Both classes are read from one array, each call its own entry.
    let secrets: Vec<Secrets> = order.iter().map(|byte| if byte & 1 == 0 { fixed } else { random_secrets() }).collect();
    let mut samples = [Vec::new(), Vec::new()];
    for (at, (byte, secrets)) in order.iter().zip(&secrets).enumerate() {
        let time = cycles(&f, secrets);
        if at >= calls / 10 {
            samples[usize::from(byte & 1)].push(time);
        }
    }
    largest_t(&samples)
}

fn short(secret: &[u8; 48]) -> &[u8; 32] {
    secret.first_chunk().expect("48 is more than 32")
}

fn long(secret: &[u8; 48]) -> &[u8; 48] {
    secret
}

/// Measures every operation. Answers whether nothing was shown but the planted leak.
pub fn run(lanes: Lanes, quick: bool) -> bool {
    let calls = |full: usize| if quick { full / 10 } else { full };
    let mut clean = true;
    println!("{:<18}{:>9}{:>9}   a difference is shown from |t| = {SHOWN} on", "operation", "calls", "t");
    let mut report = |name: &str, calls: usize, t: f64, leaks: bool| {
        let shown = t.abs() >= SHOWN;
        clean &= shown == leaks;
        let verdict = match (shown, leaks) {
            (false, false) => "nothing shown",
            (true, true) => "found, as it must be",
            (true, false) => "A DIFFERENCE IS SHOWN",
            (false, true) => "THE PLANTED LEAK WAS NOT FOUND",
        };
        println!("{name:<18}{calls:>9}{t:>9.2}   {verdict}");
    };
    let n = calls(200_000);
    let known = random_secrets();
    // Random secrets differ from the known one in their first bytes; that one itself is compared to the end.
    let planted = |secrets: &Secrets| {
        let equal = secrets.as_flattened().iter().zip(known.as_flattened()).take_while(|(a, b)| a == b).count();
        black_box(equal);
    };
    let t = {
        let mut samples = [Vec::new(), Vec::new()];
        for at in 0..n {
            let secrets = if at % 2 == 0 { known } else { random_secrets() };
            samples[at % 2].push(cycles(&planted, black_box(&secrets)));
        }
        largest_t(&samples)
    };
    report("planted leak", n, t, true);

    let n = calls(50_000);
    let peer = x25519::public_keys(lanes, &[&[9; 32]])[0];
    let derive = |secrets: &Secrets| {
        let jobs = secrets.each_ref().map(|secret| x25519::DeriveJob { scalar: short(secret), peer: &peer });
        black_box(x25519::derive(lanes, &jobs));
    };
    report("x25519_derive", n, measure(derive, n), false);
    let keygen = |secrets: &Secrets| drop(black_box(x25519::public_keys(lanes, &secrets.each_ref().map(short))));
    report("x25519_keygen", n, measure(keygen, n), false);
    macro_rules! curve {
        ($curve:ident, $secret:expr, [$derive:literal, $keygen:literal, $sign:literal], $n:expr) => {
            let n = $n;
            let peer = $curve::public_keys(lanes, &[$secret(&known[0])])[0].expect("a scalar in range");
            let derive = |secrets: &Secrets| {
                let jobs = secrets.each_ref().map(|s| $curve::DeriveJob { scalar: $secret(s), peer: &peer });
                black_box($curve::derive(lanes, &jobs));
            };
            report($derive, n, measure(derive, n), false);
            let keygen = |s: &Secrets| drop(black_box($curve::public_keys(lanes, &s.each_ref().map($secret))));
            report($keygen, n, measure(keygen, n), false);
            let sign = |secrets: &Secrets| {
                let jobs =
                    secrets.each_ref().map(|s| $curve::SignJob { key: $secret(s), digest: &[5; 32], random: &[6; 16] });
                black_box($curve::sign(lanes, &jobs));
            };
            report($sign, n, measure(sign, n), false);
        };
    }
    curve!(p256, short, ["p256_derive", "p256_keygen", "p256_sign"], n);
    curve!(p384, long, ["p384_derive", "p384_keygen", "p384_sign"], n / 5);

    let key = vec![0; mlkem768::KEY];
    let encapsulate = |secrets: &Secrets| {
        let jobs = secrets.each_ref().map(|secret| mlkem768::EncapsulateJob { key: &key, random: short(secret) });
        black_box(mlkem768::encapsulate(lanes, &jobs));
    };
    report("mlkem768_encaps", n, measure(encapsulate, n), false);

    // RSA's secret is the key; what varies under an attacker's hand is the input.
    let n = calls(4_000);
    let key = common::TestKey::load("rsa2048-1").prepare();
    let sign = |secrets: &Secrets| {
        let mut inputs = [[0x11; RsaSize::Bits2048.bytes()]; 8];
        for (input, secret) in inputs.iter_mut().zip(secrets) {
            input[..48].copy_from_slice(secret);
        }
        let jobs = inputs.each_ref().map(|input| RsaJob { key: &key, input });
        black_box(RsaBatch::new(lanes, &jobs).finish());
    };
    report("rsa2048_sign", n, measure(sign, n), false);
    clean
}
