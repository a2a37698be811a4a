//! A report, or a measurement, as text for a terminal, CSV, JSON, or an HTML page with figures.

pub mod answers;
pub mod csv;
pub mod html;
pub mod json;
pub mod text;
