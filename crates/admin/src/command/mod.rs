//! Commands of the runtime API: carries them out on a [`Handle`], and writes the answers.
//!
//! [`Executor::execute`] has an arm for each subject of [`penstock_control::Command`], each with a file of its own
//! here. It runs on the control thread, where nothing may take long: slow work is done in [`Answer::beside`], and a
//! long answer is produced in pieces.

mod answer;
mod caches;
mod certificates;
mod events;
mod frontends;
mod info;
mod inside;
mod membership;
mod patterns;
mod peers;
mod process;
mod servers;
mod sessions;
mod stat;
mod tables;
mod taps;

pub use answer::{Answer, Piece};
pub use patterns::list_named;
pub(crate) use stat::{SCHEMA, tell_left_out, typed};

use penstock_control::{Command, Level, Statistics};
use penstock_proxy::{
    Handle,
    stats_file::{self, Which},
};

/// Carries out commands.
pub struct Executor {
    /// The data plane.
    pub handle: Handle,
    /// Other facts that answers contain.
    pub facts: Facts,
}

/// Facts about the process that the data plane does not know.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Whether the process runs as `haproxy` and presents itself so: some clients reject any other name.
    pub is_haproxy: bool,
    /// The version of this program.
    pub version: String,
    /// The release date, such as `2026/11/24`.
    pub release_date: String,
    /// The sockets that answer commands.
    pub sockets: Vec<Socket>,
    /// What was said when the process started, in lines.
    pub startup_log: String,
    /// The number of listening sockets.
    pub listeners: u32,
}

/// A socket that answers commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    /// The socket's address, such as `unix@/run/penstock.sock`.
    pub address: String,
    /// The level of its clients.
    pub level: Level,
}

impl Executor {
    /// Carries out a command for a client with this level.
    pub fn execute(&self, command: Command, level: Level) -> Answer {
        match command {
            // The session handles these itself.
            Command::Own(_) => Answer::nothing(),
            Command::Membership(command) => self.membership(command),
            Command::Patterns(command) => self.patterns(command),
            Command::Tables(command) => self.tables(command, level),
            Command::Certificates(command) => self.certificates(command, level),
            Command::Process(command) => self.process(command),
            Command::Inside(command) => self.inside(command),
            Command::Frontends(command) => self.frontends(command),
            Command::Servers(command) => self.servers(command),
            Command::Sessions(command) => self.sessions(command),
            Command::Statistics(Statistics::Info(format)) => self.info(format),
            Command::Statistics(Statistics::Stat(format, rows)) => self.stat(format, rows, level),
            Command::Statistics(Statistics::Schema) => Answer::data(SCHEMA),
            Command::Statistics(Statistics::StatsFile) => {
                Answer::data(stats_file::write(&self.handle.snapshot().rows, Which::Named))
            }
        }
    }
}
