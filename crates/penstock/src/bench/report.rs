//! `penstock bench report result.json`: a report of a result that was saved earlier.

use crate::{
    arguments::{Arguments, Opt, help, switch, value},
    serve,
};
use penstock_lab::{report, study::Outcome};
use std::{ffi::OsString, io::Write, path::Path, process::ExitCode};

/// The options of this subcommand.
pub fn options() -> Vec<Opt> {
    vec![
        value("--html", "FILE", "writes the page"),
        value("--svg", "FILE", "writes the first figure"),
        value("--markdown", "FILE", "writes a short page to go with figure.svg, report.html and result.json"),
        switch("--help", "shows this help"),
    ]
}

/// Runs `penstock bench report`.
pub fn run(arguments: &[OsString]) -> ExitCode {
    let done = Arguments::parse(&options(), arguments).and_then(|arguments| {
        if arguments.has("--help") {
            return Ok(format!("Usage: penstock bench report result.json [options]\n\n{}", help(&options())));
        }
        let [file] = &arguments.words[..] else { return Err("it needs one result.json".into()) };
        let mut outcome = Outcome::read(Path::new(file))?;
        outcome.conclude();
        let write =
            |file: &str, text: String| std::fs::write(file, text).map_err(|e| format!("cannot write {file}: {e}"));
        if let Some(file) = arguments.one("--html") {
            write(file, report::page(&outcome))?;
        }
        if let Some(file) = arguments.one("--svg") {
            write(file, report::figure(&outcome).ok_or("there is no figure in it")?)?;
        }
        if let Some(file) = arguments.one("--markdown") {
            write(file, report::markdown(&outcome))?;
        }
        Ok(report::text(&outcome))
    });
    match done {
        Ok(text) => {
            // A reader that has seen enough closes the pipe.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(why) => serve::fail(&format!("bench report: {why}")),
    }
}
