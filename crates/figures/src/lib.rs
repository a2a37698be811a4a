//! Figures and the pages they stand on: values in, markup out. A page fetches nothing and runs no script, and its variables
//! give the colours of light and dark.

#![forbid(unsafe_code)]

mod flame;
pub mod number;
mod page;
mod standalone;
mod svg;
mod timeline;

pub use flame::{Flame, flames};
pub use page::{escaped, page};
pub use standalone::standalone;
pub use svg::{Axis, Figure, Mark, Scale, Series, bars, lines, round_up};
pub use timeline::timeline;
