//! Ctrl-C: the first ends the run with what was measured, the next ends the process.

use penstock_lab::load::Stop;
use penstock_sys::{Signal, Signals};
use std::time::{Duration, Instant};

/// `timeout` and shells send a signal to a process and to its group: what comes so soon is the same wish.
const SAME: Duration = Duration::from_millis(500);

/// What asks for the end.
const ENDING: [Signal; 4] = [Signal::Int, Signal::Term, Signal::Hup, Signal::Quit];

/// Call it before any thread is started.
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
