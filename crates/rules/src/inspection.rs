//! What services said about a message.

use std::{fmt::Write, sync::Arc};

/// The services that a message passes, and what they said.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// The chain's place among those of the configuration.
    pub chain: usize,
    /// The chain's name.
    pub name: Arc<str>,
    /// The steps whose condition held for the request: a bit for each.
    pub due: u64,
    /// The steps of this exchange: those before a device that it sends its request to, or behind one that it comes from.
    pub within: u64,
    /// What each service decided: `av.request=unmodified:3,av.response=blocked:7`.
    pub verdicts: String,
    /// The threat that a service named.
    pub threat: Option<Vec<u8>>,
}

impl Inspection {
    /// The inspection of a message that has not begun.
    pub fn by(chain: usize, name: Arc<str>) -> Inspection {
        Inspection { chain, name, due: 0, within: u64::MAX, verdicts: String::new(), threat: None }
    }
    /// The inspection of the same message behind a device, the step `bit`.
    pub fn behind(&self, bit: usize) -> Inspection {
        let within = self.within & u64::MAX.checked_shl(bit as u32 + 1).unwrap_or(0);
        Inspection { within, verdicts: String::new(), threat: None, ..self.clone() }
    }
    /// Adds what was said about it behind a device.
    pub fn join(&mut self, verdicts: &str, threat: Option<Vec<u8>>) {
        if !(self.verdicts.is_empty() || verdicts.is_empty()) {
            self.verdicts.push(',');
        }
        self.verdicts.push_str(verdicts);
        self.threat = threat.or(self.threat.take());
    }
    /// Records what a service decided about `what`, a request, a response or a connection, and how long that took.
    pub fn note(&mut self, service: &str, what: &str, verdict: &str, ms: u64) {
        let comma = if self.verdicts.is_empty() { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(self.verdicts, "{comma}{service}.{what}={verdict}:{ms}");
    }
}
