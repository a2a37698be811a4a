//! `penstock bench load URL`.

use crate::serve;
use penstock_lab::load::{LoadPlan, run as load};
use std::{ffi::OsString, process::ExitCode};

/// Runs it.
pub fn run(arguments: &[OsString]) -> ExitCode {
    let Some(url) = arguments.first().and_then(|word| word.to_str()) else {
        return serve::fail("bench load: it needs the URL of a server");
    };
    let report = url.parse().and_then(|target| load(&LoadPlan::new(target)));
    match report {
        Ok(report) => {
            println!("{:.1} {}/s", report.rate(), report.plan.mode.units());
            ExitCode::SUCCESS
        }
        Err(why) => serve::fail(&format!("bench load: {why}")),
    }
}
