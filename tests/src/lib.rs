//! Harness of the scenario tests: it runs one scenario through Debian's haproxy and through penstock, and compares
//! what clients, origins, logs and exit codes show. `tests/README.md` describes the format of a scenario file.
#![forbid(unsafe_code)]
// Functions of the suite fail for one reader, who runs it: with a sentence that says why.
#![allow(clippy::missing_errors_doc)]

pub mod certificates;
pub mod client;
pub mod decode;
pub mod differences;
mod examples;
pub mod message;
pub mod mixed;
pub mod nginx;
pub mod normalise;
pub mod origin;
pub mod port;
pub mod probes;
pub mod process;
pub mod proofs;
pub mod run;
pub mod runner;
pub mod scenario;
pub mod step;
pub mod substitute;
pub mod syslog;
pub mod tables;
mod twice;
pub mod wire;

/// Why a scenario could not be carried out or did not show what it states, for a person to read.
pub type Failure = String;
