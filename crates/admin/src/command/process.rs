//! Commands about the process: its version, its environment, its sockets.

use super::{Answer, Executor};
use penstock_control::Process;
use serde_json::json;

impl Executor {
    pub(super) fn process(&self, command: Process) -> Answer {
        match command {
            Process::Version { json: true } => {
                Answer::data(format!("{}\n", json!({ "version": self.facts.spoken_version() })))
            }
            Process::Version { json: false } => Answer::info(self.facts.spoken_version()),
            Process::Environment { name, json: true } => {
                let known = &self.handle.shared().config.environment;
                let shown = known.iter().filter(|(known, _)| name.as_ref().is_none_or(|name| name == *known));
                let shown: serde_json::Map<_, _> = shown.map(|(name, value)| (name.clone(), json!(value))).collect();
                match name {
                    Some(_) if shown.is_empty() => Answer::error("Variable not found"),
                    _ => Answer::data(format!("{}\n", json!(shown))),
                }
            }
            Process::Environment { name, json: false } => {
                // The environment as the configuration left it.
                let known = &self.handle.shared().config.environment;
                let line = |(name, value): (&String, &String)| format!("{name}={value}\n");
                match name {
                    None => Answer::lines(known.iter().map(line).collect::<Vec<_>>().into_iter()),
                    Some(name) => match known.get_key_value(&name) {
                        Some(variable) => Answer::data(line(variable)),
                        None => Answer::error("Variable not found"),
                    },
                }
            }
            Process::Sockets { json: true } => {
                let socket = |socket: &super::Socket| json!({"address": socket.address, "level": socket.level.word()});
                Answer::data(json!(self.facts.sockets.iter().map(socket).collect::<Vec<_>>()).to_string())
            }
            Process::Sockets { json: false } => {
                let sockets = self.facts.sockets.iter();
                let lines = sockets.map(|socket| format!("{} {} all\n", socket.address, socket.level.word()));
                Answer::data(format!("# socket lvl processes\n{}", lines.collect::<String>()))
            }
            // The thread that owns the sockets handles this.
            Process::GiveListeners => Answer::nothing(),
        }
    }
}
