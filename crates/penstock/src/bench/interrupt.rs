//! Ctrl-C: the first ends the run with what was measured, the second ends the process.

use penstock_lab::load::Stop;
use penstock_sys::{Signal, Signals};
use std::time::Duration;

/// Call it before any thread is started.
pub fn stop_on_signal(stop: &Stop) -> Result<(), String> {
    let signals = Signals::block().map_err(|e| format!("signals cannot be waited for: {e}"))?;
    let stop = stop.clone();
    let wait = move || {
        loop {
            match signals.wait(Duration::MAX) {
                Some(signal @ (Signal::Int | Signal::Term | Signal::Hup | Signal::Quit)) if stop.is_stopped() => {
                    std::process::exit(128 + signal.number())
                }
                Some(Signal::Int | Signal::Term | Signal::Hup | Signal::Quit) => stop.stop(),
                _ => {}
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(wait)
        .map(|_| ())
        .map_err(|e| format!("this machine starts no more threads: {e}"))
}
