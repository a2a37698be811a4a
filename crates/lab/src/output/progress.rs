//! A line each second, in place, on the terminal's error output.

use super::{bytes, time};
use crate::load::{LoadPlan, Mode, Second};
use std::io::Write;

/// Writes it, where it is wanted.
#[derive(Debug)]
pub struct Progress {
    mode: Mode,
    of_seconds: f64,
    shown: bool,
    wanted: bool,
}

impl Progress {
    /// For a run of this plan.
    #[must_use]
    pub fn new(plan: &LoadPlan, wanted: bool) -> Progress {
        Progress { mode: plan.mode, of_seconds: plan.duration.as_secs_f64(), shown: false, wanted }
    }

    /// A second has ended.
    pub fn show(&mut self, second: &Second) {
        if !self.wanted {
            return;
        }
        self.shown = true;
        // The terminal may be gone; the run goes on.
        let _ = write!(std::io::stderr(), "\r\x1b[K{}", line(self.mode, self.of_seconds, second));
        let _ = std::io::stderr().flush();
    }

    /// Makes room for what comes next.
    pub fn end(&self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn line(mode: Mode, of_seconds: f64, second: &Second) -> String {
    let rate = second.done as f64 / second.seconds.max(1e-9);
    let mut line =
        format!("{:.0}/{} {rate:.0} {}/s, {} open", second.at, time(of_seconds * 1e6), mode.units(), second.open);
    if second.body_bytes > 0 {
        line.push_str(&format!(", {}/s", bytes(second.body_bytes as f64 / second.seconds.max(1e-9))));
    }
    if second.failed > 0 {
        line.push_str(&format!(", {} failed", second.failed));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_is_told_in_a_line() {
        let second = Second { at: 3.0, seconds: 1.0, done: 1500, failed: 2, body_bytes: 2048, open: 10 };
        assert_eq!(line(Mode::KeepAlive, 10.0, &second), "3/10.00s 1500 requests/s, 10 open, 2.00KB/s, 2 failed");
    }
}
