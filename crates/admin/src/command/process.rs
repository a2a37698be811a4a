//! What there is to know of the process: its version, its environment, its sockets.

use super::{Answer, Executor};
use penstock_control::Process;
use serde_json::json;

impl Executor {
    pub(super) fn process(&self, command: Process) -> Answer {
        match command {
            Process::Version => Answer::info(self.facts.spoken_version()),
            Process::Environment(None) => Answer::lines(
                std::env::vars_os()
                    .map(|(name, value)| format!("{}={}\n", name.to_string_lossy(), value.to_string_lossy())),
            ),
            Process::Environment(Some(name)) => match std::env::var_os(&name) {
                Some(value) if !name.is_empty() => Answer::data(format!("{name}={}\n", value.to_string_lossy())),
                _ => Answer::error("Variable not found"),
            },
            Process::Sockets { json: true } => {
                let socket = |socket: &super::Socket| json!({"address": socket.address, "level": socket.level.word()});
                Answer::data(json!(self.facts.sockets.iter().map(socket).collect::<Vec<_>>()).to_string())
            }
            Process::Sockets { json: false } => {
                let sockets = self.facts.sockets.iter();
                let lines = sockets.map(|socket| format!("{} {} all\n", socket.address, socket.level.word()));
                Answer::data(format!("# socket lvl processes\n{}", lines.collect::<String>()))
            }
            // The thread that has the sockets gives them.
            Process::GiveListeners => Answer::nothing(),
        }
    }
}
