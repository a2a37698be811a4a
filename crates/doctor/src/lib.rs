//! Host checks and tuning: what this machine lacks for this configuration, what that costs, and how to mend it.
//!
//! A [`Host`] is one small reader of a root directory, or of a recording of one, so that every check is tested on machines
//! that are not there. [`examine`] gives [`Finding`]s, most valuable first; [`Changes`] applies their fixes with a backup,
//! and undoes them. [`lab`] sets a host up for measurements;
//! [`measure`] times handshakes and their operations on the spot.

#![forbid(unsafe_code)]

mod change;
mod checks;
mod device;
mod facts;
mod finding;
mod host;
pub mod lab;
pub mod measure;
mod render;

pub use change::{Changes, Step};
pub use checks::{Subject, examine};
pub use device::{Action, Devices, How};
pub use facts::{Cpu, Qat, range};
pub use finding::{Area, Change, Finding, Level};
pub use host::{Denied, Host};
pub use render::{json, text};
