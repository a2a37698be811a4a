//! `global` (manual chapter 3).

mod environment;
mod limits;
mod process;
mod tls;
mod tune;

use crate::{keyword::Table, model::Global};

/// Every keyword of `global`.
pub(crate) static TABLE: Table<Global> = Table::new(
    "global",
    &[process::KEYWORDS, limits::KEYWORDS, environment::KEYWORDS, tls::KEYWORDS, tune::KEYWORDS, tune::WITHOUT_EFFECT],
);
