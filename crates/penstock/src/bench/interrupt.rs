//! Ctrl-C: the first one ends the run with what was measured so far, the next one ends the process.

use penstock_lab::load::Stop;
use penstock_sys::{Signal, Signals};
use std::time::{Duration, Instant};

/// `timeout` and shells signal both a process and its group: a second signal within this time counts as the same one.
const SAME: Duration = Duration::from_millis(500);

/// The signals that end a run.
const ENDING: [Signal; 4] = [Signal::Int, Signal::Term, Signal::Hup, Signal::Quit];

/// Lets signals end the run. To be called before any thread is started.
///
/// # Errors
/// If the kernel does not let signals be waited for.
pub fn stop_on_signal(stop: &Stop) -> Result<(), String> {
    let signals = Signals::block_these(&ENDING).map_err(|e| format!("signals cannot be waited for: {e}"))?;
    let stop = stop.clone();
    let wait = move || {
        let mut first = None;
        loop {
            match signals.wait(Duration::MAX) {
                Some(signal) if first.is_some_and(|at: Instant| at.elapsed() > SAME) => {
                    std::process::exit(128 + signal.number())
                }
                Some(_) => {
                    first.get_or_insert_with(Instant::now);
                    stop.stop();
                }
                None => {}
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(wait)
        .map(|_| ())
        .map_err(|e| format!("this machine starts no more threads: {e}"))
}
