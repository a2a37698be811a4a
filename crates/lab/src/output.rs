//! A load's report for people and for programs.

mod progress;
mod text;
mod units;

pub use progress::Progress;
pub use text::text;
pub use units::{bytes, time};

use crate::LoadReport;
use std::fmt::Write;

/// Everything, as JSON.
#[must_use]
pub fn json(report: &LoadReport) -> String {
    let mut page = serde_json::to_string_pretty(report).expect("a report has only text keys and finite numbers");
    page.push('\n');
    page
}

/// A line a second.
#[must_use]
pub fn csv(report: &LoadReport) -> String {
    let mut page = "second,seconds,done,failed,body_bytes,open\n".to_owned();
    for row in &report.series {
        // Writing to a String does not fail.
        let _ = writeln!(
            page,
            "{:.3},{:.3},{},{},{},{}",
            row.at, row.seconds, row.done, row.failed, row.body_bytes, row.open
        );
    }
    page
}
