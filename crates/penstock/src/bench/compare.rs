//! `penstock bench compare A.json B.json`.

use super::words;
use crate::{
    arguments::{Arguments, Opt, help, switch, value},
    serve,
};
use penstock_lab::{compare, study::Outcome};
use std::{ffi::OsString, io::Write, path::Path, process::ExitCode};

/// The options of this subcommand.
pub fn options() -> Vec<Opt> {
    vec![
        value("--target-rate", "N", "the rate that cores are counted for [the studies', else the highest of A]"),
        value("--html", "FILE", "writes a page"),
        switch("--json", "the comparison as JSON"),
        switch("--help", "shows this help"),
    ]
}

/// Runs `penstock bench compare`.
pub fn run(arguments: &[OsString]) -> ExitCode {
    let done = Arguments::parse(&options(), arguments).and_then(|arguments| {
        if arguments.has("--help") {
            return Ok(format!("Usage: penstock bench compare A.json B.json [options]\n\n{}", help(&options())));
        }
        both(&arguments)
    });
    match done {
        Ok(text) => {
            // A reader that has seen enough closes the pipe.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(why) => serve::fail(&format!("bench compare: {why}")),
    }
}

fn both(arguments: &Arguments) -> Result<String, String> {
    let [a, b] = &arguments.words[..] else { return Err("it needs two results, A.json and B.json".into()) };
    let rate = arguments.one("--target-rate").map(|text| words::rate("--target-rate", text)).transpose()?;
    let found = compare::compare(Outcome::read(Path::new(a))?, Outcome::read(Path::new(b))?, rate)?;
    if let Some(file) = arguments.one("--html") {
        std::fs::write(file, compare::page(&found)).map_err(|e| format!("cannot write {file}: {e}"))?;
    }
    Ok(if arguments.has("--json") { format!("{:#}\n", found.json()) } else { compare::text(&found) })
}
