//! Two things timed alternately, in processor time of this thread.

pub struct Comparison {
    /// Median microseconds of one call of the first.
    pub us: f64,
    /// Median over the rounds of the second's time over the first's.
    pub ratio: f64,
    /// The quartiles of that ratio.
    pub quartiles: (f64, f64),
    /// The fastest round of each, in microseconds: nearest to an undisturbed machine.
    pub best: (f64, f64),
}

/// A round is one slice of each, so that whatever disturbs the machine disturbs both. A call answers with the nanoseconds of
/// this thread in it that do not count.
pub fn compare(first: impl Fn() -> u64, second: impl Fn() -> u64, rounds: usize) -> Comparison {
    let (n, m) = (calls_in_a_slice(&first), calls_in_a_slice(&second));
    let mut times = Vec::new();
    let mut ratios = Vec::new();
    let mut best = (f64::INFINITY, f64::INFINITY);
    for _ in 0..rounds {
        let a = time(&first, n);
        let b = time(&second, m);
        times.push(a);
        ratios.push(b / a);
        best = (best.0.min(a), best.1.min(b));
    }
    ratios.sort_by(f64::total_cmp);
    let at = |quarter: usize| ratios[(ratios.len() - 1) * quarter / 4];
    Comparison { us: median(times), ratio: at(2), quartiles: (at(1), at(3)), best }
}

/// Calls that fill about twenty milliseconds: several of the longest, since the first of a slice finds cold caches.
fn calls_in_a_slice(f: &impl Fn() -> u64) -> usize {
    f();
    let mut calls = 1;
    loop {
        let us = time(f, calls) * calls as f64;
        if us > 1000.0 {
            return ((20_000.0 / us * calls as f64) as usize).max(1);
        }
        calls *= 2;
    }
}

/// Microseconds of thread time a call.
fn time(f: &impl Fn() -> u64, calls: usize) -> f64 {
    let start = thread_ns();
    let apart: u64 = (0..calls).map(|_| f()).sum();
    (thread_ns() - start - apart) as f64 / 1000.0 / calls as f64
}

pub fn thread_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on every Linux; the structure is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
