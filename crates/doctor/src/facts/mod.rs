//! What can be known of a host, from its files.

mod cpu;
mod limits;
mod network;
mod pci;

pub use cpu::{Cpu, range};
pub use limits::{Limits, service_unit};
pub use network::{Interface, interfaces};
pub use pci::{Qat, Seen, devices};
