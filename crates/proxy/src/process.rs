//! The process around the workers: how it is built, started, changed, watched and replaced.

pub(crate) mod activity;
pub(crate) mod compiled;
pub(crate) mod compressing;
pub(crate) mod fault;
pub(crate) mod files;
pub(crate) mod gates;
pub(crate) mod handle;
pub mod handover;
mod letter_case;
pub(crate) mod lists;
mod log_threads;
pub(crate) mod machine;
pub(crate) mod membership;
pub(crate) mod memory;
pub(crate) mod namespaces;
pub(crate) mod operate;
pub(crate) mod programs;
pub(crate) mod returning;
pub(crate) mod runtime;
pub(crate) mod service;
pub(crate) mod sessions;
pub(crate) mod shared;
pub(crate) mod slow_work;
pub(crate) mod states;
pub(crate) mod watchdog;
