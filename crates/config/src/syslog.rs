//! The severities of syslog (RFC 5424 section 6.2.1), by their numbers and by HAProxy's names.

/// The process is about to be unusable.
pub const EMERGENCY: u8 = 0;
/// Somebody has to act at once.
pub const ALERT: u8 = 1;
/// Something failed.
pub const ERROR: u8 = 3;
/// Something may be wrong.
pub const WARNING: u8 = 4;
/// Normal, and worth knowing.
pub const NOTICE: u8 = 5;
/// One of many events, such as a request.
pub const INFO: u8 = 6;

/// The names of all severities, in the order of their numbers.
pub const LEVELS: [&str; 8] = ["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];
