//! `defaults`, `frontend`, `backend` and `listen` (manual chapter 4).

mod balance;
mod bandwidth;
mod basics;
mod compression;
mod draft;
mod email;
mod error_pages;
mod health;
mod later;
mod log;
mod options;
mod rules;
pub(crate) mod service;
mod stats;
mod timeouts;

pub use balance::{algorithms as balance_algorithms, examples as balance_examples};

pub(crate) use basics::based;
pub(crate) use draft::{Draft, place_names};
pub(crate) use error_pages::{ErrorPages, HttpErrors, errorfile};
pub(crate) use log::{format as log_format, line as log_line, target as log_target};
pub(crate) use options::network_of;

use crate::keyword::Table;

/// Every keyword of the proxy sections.
pub(crate) static TABLE: Table<Draft> = Table::new(
    "proxy",
    &[
        basics::KEYWORDS,
        timeouts::KEYWORDS,
        options::KEYWORDS,
        balance::KEYWORDS,
        rules::KEYWORDS,
        service::KEYWORDS,
        health::KEYWORDS,
        log::KEYWORDS,
        stats::KEYWORDS,
        bandwidth::KEYWORDS,
        compression::KEYWORDS,
        email::KEYWORDS,
        later::KEYWORDS,
    ],
);
