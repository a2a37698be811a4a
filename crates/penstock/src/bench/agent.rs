//! `penstock bench agent` on each load machine, and `penstock bench certs`.

use crate::{
    arguments::{Arguments, Opt, help, switch, value},
    serve,
};
use penstock_lab::agents::{self, Address, Identity};
use penstock_lab::load::Stop;
use std::{ffi::OsString, path::Path, process::ExitCode};

/// The options of this subcommand.
pub fn options() -> Vec<Opt> {
    vec![
        value("--listen", "ADDRESS[:PORT]", "where, or unix:PATH [127.0.0.1:7313]"),
        value("--ca", "FILE", "the CA certificate that all machines of the test share; with it, mutual TLS"),
        value("--cert", "FILE", "this machine's certificate"),
        value("--key", "FILE", "its key"),
        value("--source", "ADDRESS|INTERFACE", "where this machine's connections come from; may be repeated"),
        switch("--help", "shows this help"),
    ]
}

/// `bench agent`.
pub fn run(arguments: &[OsString]) -> ExitCode {
    let options = options();
    let arguments = match Arguments::parse(&options, arguments) {
        Ok(arguments) => arguments,
        Err(why) => {
            return serve::fail(&format!("bench agent: {why}; 'penstock bench agent --help' lists the options"));
        }
    };
    if arguments.has("--help") {
        print!(
            "Usage: penstock bench agent [options]\n\nWaits for 'penstock bench load URL --agents ...' and makes this \
             machine's share of the load.\n\n{}",
            help(&options)
        );
        return ExitCode::SUCCESS;
    }
    match listen(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => serve::fail(&format!("bench agent: {why}")),
    }
}

fn listen(arguments: &Arguments) -> Result<(), String> {
    if let Some(word) = arguments.words.first() {
        return Err(format!("'{word}' is not understood here; 'penstock bench agent --help' lists the options"));
    }
    let address: Address = arguments.one("--listen").unwrap_or("127.0.0.1").parse().map_err(said)?;
    let sources = arguments.all("--source").flat_map(|list| list.split(',')).flat_map(str::parse).collect();
    let agent = agents::serve(&address, identity(arguments)?.as_ref(), sources).map_err(said)?;
    println!("penstock bench agent listens on {}", agent.address());
    // A signal ends the process, which the controller reports as a lost agent.
    agent.run(&Stop::default(), &mut |outcome| println!("{outcome}")).map_err(said)
}

/// `bench certs DIR HOST...`.
pub fn certificates(arguments: &[OsString]) -> ExitCode {
    let words: Vec<String> = arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let [folder, hosts @ ..] = &words[..] else { return usage_of_certificates() };
    if hosts.is_empty() || words.iter().any(|word| word.starts_with('-')) {
        return usage_of_certificates();
    }
    match agents::write_certificates(Path::new(folder), hosts) {
        Ok(files) => {
            for file in files {
                println!("{}", file.display());
            }
            println!(
                "Each machine needs ca.pem and its own two files: penstock bench agent --listen 0.0.0.0 --ca ca.pem --cert \
                 HOST.pem --key HOST.key; whoever runs the test uses controller.pem and controller.key."
            );
            ExitCode::SUCCESS
        }
        Err(why) => serve::fail(&format!("bench certs: {why}")),
    }
}

fn usage_of_certificates() -> ExitCode {
    serve::fail(
        "bench certs: it needs a directory and the names or addresses of the agents' hosts, as --agents will say them: \
         penstock bench certs DIR HOST...",
    )
}

/// Parses `--agents`.
///
/// # Errors
/// If an address cannot be read.
pub fn addresses(arguments: &Arguments) -> Result<Vec<Address>, String> {
    arguments.all("--agents").flat_map(|list| list.split(',')).map(|one| one.parse().map_err(said)).collect()
}

/// Reads `--ca`, `--cert` and `--key`, which must be given together.
///
/// # Errors
/// If one is missing, or a file cannot be read.
pub fn identity(arguments: &Arguments) -> Result<Option<Identity>, String> {
    match ["--ca", "--cert", "--key"].map(|name| arguments.one(name)) {
        [None, None, None] => Ok(None),
        [Some(ca), Some(cert), Some(key)] => Ok(Some(Identity { ca: ca.into(), cert: cert.into(), key: key.into() })),
        _ => Err("--ca, --cert and --key belong together".into()),
    }
}

fn said(error: agents::Error) -> String {
    error.to_string()
}
