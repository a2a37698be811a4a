//! haproxy.cfg: words, keyword tables, typed configuration, diagnostics with spans. Never sees a socket or a clock.

#![forbid(unsafe_code)]

mod added;
mod address;
mod args;
mod bind;
mod cache;
mod chain;
mod check;
mod condition;
mod cpu_map;
mod diagnostic;
mod dispatch;
mod env;
mod errorfile;
mod escaped;
mod global;
mod keyword;
mod log_forward;
mod mailers;
pub mod manual;
pub mod model;
mod name;
mod others;
mod peers;
mod proxy;
mod reading;
mod render;
mod ring;
mod sections;
mod server;
mod span;
mod spoe;
mod surroundings;
pub mod syslog;
mod tls;
pub mod units;
mod values;
mod words;

pub use condition::BadCondition;
pub use diagnostic::{Diagnostic, Diagnostics, Severity};
pub use env::{Env, FEATURES, Files, NoFiles, SPEAKS_HAPROXY, SPEAKS_OPENSSL};
pub use errorfile::mistake as mistake_of_error_file;
pub use escaped::{byte_of, bytes_of, text_of};
pub use keyword::{Arity, Places, Support};
pub use model::{Config, Source};
pub use proxy::{balance_algorithms, balance_examples};
pub use reading::{evaluate_condition, load};
pub use span::{FileId, Line, Span, Spanned, Word};
