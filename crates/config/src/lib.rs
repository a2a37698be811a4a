//! haproxy.cfg: words, keyword tables, typed configuration, diagnostics with spans. Never sees a socket or a clock.

#![forbid(unsafe_code)]

mod diagnostic;
pub mod model;
mod span;

pub use diagnostic::{Diagnostic, Diagnostics, Severity};
pub use model::Config;
pub use span::{FileId, Line, Span, Spanned, Word};
