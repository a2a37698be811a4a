//! Capacity and cost: from measured rates and a service level to cores, servers, devices, power and money.
//!
//! Pure: no socket, no clock, no files. [`Inputs`] are the named constants with their sources, [`Rates`] what each engine
//! was measured to do, [`plan`] the arithmetic, [`views`] a rack, an edge server and the cost figure, [`published`] the
//! published model and what follows from it, [`render`] the ways to show all of it.

#![forbid(unsafe_code)]

mod error;
mod inputs;
mod plan;
pub mod published;
mod rates;
pub mod render;
mod report;
pub mod reproduce;
pub mod views;
pub mod whatif;

pub use error::Problem;
pub use inputs::{Attribution, INPUTS, Input, Inputs, Origin};
pub use plan::{Cost, Fleet, OneServer, fleet, on_one_server};
pub use rates::{Curve, Device, Mode, Rates};
pub use report::Report;
