//! `penstock bench load URL`: its options, and the output of its result.

use super::words::{cores, duration, number, rate};
use crate::{
    arguments::{Arguments, Opt, help, switch, value},
    serve,
};
use penstock_lab::load::{Arrivals, Error, Http, LoadPlan, Mode, Stop, TlsVersion, run_with};
use penstock_lab::{agents, output};
use std::{ffi::OsString, fs, io::IsTerminal, process::ExitCode};

/// Some units failed, or an agent was lost; what was measured is valid.
const SOME_FAILED: u8 = 2;
/// Interrupted by a signal; the same status as a shell's for SIGINT.
const INTERRUPTED: u8 = 130;

/// The options of this subcommand.
pub fn options() -> Vec<Opt> {
    vec![
        value(
            "--mode",
            "MODE",
            "what a unit is: handshake, request (with a handshake for each), keep-alive, download or idle [keep-alive]",
        ),
        switch("--resume", "resumes sessions; otherwise every handshake is a full one, and that is checked"),
        value("-c", "N", "number of concurrent connections [10]"),
        value("-t", "N", "number of threads [1]"),
        value("-d", "TIME", "how long: 30, 30s, 2m, 1h [10s]"),
        value("-n", "N", "ends after this many units"),
        value("-H", "'NAME: VALUE'", "a header field; may be repeated"),
        switch("--latency", "shows percentiles in detail"),
        value("--timeout", "TIME", "gives a unit up after this time, and counts it as an error [10s]"),
        value("--rate", "N", "open loop: N units a second fall due, whether or not the server keeps up"),
        value("--warm-up", "TIME", "load before anything counts [0]"),
        value("--cores", "LIST", "processors the threads are pinned to, as in 0-3,8"),
        value("--method", "NAME", "the request's method [GET]"),
        switch("--http2", "speaks HTTP/2 to the server"),
        value("--streams", "N", "with --http2: number of concurrent requests on each connection [1]"),
        value("--tls", "1.2|1.3", "the version of TLS [what the server takes]"),
        value(
            "--suite",
            "NAME",
            "a cipher suite, by its name in the RFCs or in OpenSSL; may be repeated [AES-128-GCM first]",
        ),
        value("--group", "NAME", "x25519, p256, p384, x25519mlkem768; may be repeated [x25519, p256, p384]"),
        value("--signature", "NAME", "rsa_pss_rsae_sha256, ecdsa_secp256r1_sha256, ...; may be repeated [any]"),
        value(
            "--sni",
            "NAME",
            "the name to ask for; {n} in it, in the URL's host or in -H is a number of each connection's own [the URL's]",
        ),
        value("--verify", "FILE", "checks chain and signature in every handshake, against the roots in FILE"),
        switch("--check-signatures", "checks the signature in every handshake"),
        value("--connect", "ADDRESS:PORT", "where to connect to [what the URL's host resolves to]"),
        value("--proxy", "ADDRESS:PORT", "makes each connection through a tunnel of this proxy, by CONNECT"),
        value(
            "--source",
            "ADDRESS|INTERFACE",
            "the source address or interface of connections; may be repeated, to use several in turn",
        ),
        value("--server", "PID|NAME", "reads the CPU time of these processes on this machine; may be repeated"),
        value(
            "--agents",
            "HOST[:PORT],...",
            "makes the load from agents (penstock bench agent), in step; also unix:PATH",
        ),
        value("--ca", "FILE", "with --agents: the CA certificate that all machines of the test share"),
        value("--cert", "FILE", "with --agents: this machine's certificate"),
        value("--key", "FILE", "with --agents: its key"),
        value("--json", "FILE", "writes everything as JSON, '-' for standard output instead of the text"),
        value("--csv", "FILE", "writes a line a second as CSV, '-' for standard output instead of the text"),
        switch("-s", ""),
        switch("--quiet", "no line each second"),
        switch("--help", "shows this help"),
    ]
}

const ABOUT: &str = "\
Usage: penstock bench load URL [options]

Loads a server and says what came of it. Times count from when a unit was due: with --rate, the time it waited for a
connection is part of it.

Nothing of the server's certificate is checked unless --verify is given, and of the signatures only that of the run's first
handshake: each costs this side as much as the rest of a handshake. One key pair serves all key exchanges of a run with
x25519 or p256. The server has the same work either way.

Exit status: 0 all went well, 1 there is no result, 2 some units failed or an
agent was lost, 130 interrupted (the result is partial).

";

/// Runs `penstock bench load`.
pub fn run(arguments: &[OsString]) -> ExitCode {
    let options = options();
    let arguments = match Arguments::parse(&options, arguments) {
        Ok(arguments) => arguments,
        Err(why) => return serve::fail(&format!("bench load: {why}; 'penstock bench load --help' lists the options")),
    };
    if arguments.has("--help") {
        let listed: Vec<Opt> = options.into_iter().filter(|option| !option.help.is_empty()).collect();
        print!("{ABOUT}{}", help(&listed));
        return ExitCode::SUCCESS;
    }
    match load(&arguments) {
        Ok(code) => code,
        Err(why) => serve::fail(&format!("bench load: {why}")),
    }
}

fn load(arguments: &Arguments) -> Result<ExitCode, String> {
    let plan = plan(arguments)?;
    let stop = Stop::default();
    super::interrupt::stop_on_signal(&stop)?;
    let mut progress = output::Progress::new(&plan, !arguments.has("--quiet") && std::io::stderr().is_terminal());
    let addresses = super::agent::addresses(arguments)?;
    let mut observe = |second: &_| progress.show(second);
    let report = if addresses.is_empty() {
        run_with(&plan, &stop, &mut observe).map_err(|e| e.to_string())?
    } else {
        let identity = super::agent::identity(arguments)?;
        agents::run(&plan, &addresses, identity.as_ref(), &stop, &mut observe).map_err(|e| e.to_string())?
    };
    progress.end();
    let mut text = true;
    for (option, page) in [("--json", output::json as fn(&_) -> String), ("--csv", output::csv)] {
        match arguments.one(option) {
            Some("-") => {
                text = false;
                print!("{}", page(&report));
            }
            Some(file) => fs::write(file, page(&report)).map_err(|e| format!("cannot write {file}: {e}"))?,
            None => {}
        }
    }
    if text {
        print!("{}", output::text(&report, arguments.has("--latency")));
    }
    Ok(match () {
        () if stop.is_stopped() => ExitCode::from(INTERRUPTED),
        () if report.partial || report.failed() > 0 => ExitCode::from(SOME_FAILED),
        () => ExitCode::SUCCESS,
    })
}

/// The plan that the options describe.
///
/// # Errors
/// If an option's value cannot be read, or two contradict each other.
pub fn plan(arguments: &Arguments) -> Result<LoadPlan, String> {
    if arguments.has("-s") {
        return Err(
            "there is no -s: a script in the loop would cost more than the requests, and would be measured with \
                    them. Say what to send with --method, -H and --mode, and run once for each kind of request"
                .into(),
        );
    }
    let [url] = &arguments.words[..] else {
        return Err("it needs the URL of one server; 'penstock bench load --help' lists the options".into());
    };
    let mut plan = LoadPlan::new(url.parse().map_err(|e: Error| e.to_string())?);
    plan.mode = Mode::KeepAlive;
    if let Some(name) = arguments.one("--mode") {
        let found = Mode::ALL.iter().find(|(_, known)| *known == name);
        plan.mode = found.map(|(mode, _)| *mode).ok_or_else(|| {
            let known: Vec<&str> = Mode::ALL.iter().map(|(_, name)| *name).collect();
            format!("--mode cannot be '{name}': expected one of {}", known.join(", "))
        })?;
    }
    plan.resume = arguments.has("--resume");
    let count = |name: &str, default: usize| arguments.one(name).map_or(Ok(default), |text| number(name, text));
    plan.connections = count("-c", plan.connections)?;
    plan.threads = count("-t", plan.threads)?;
    plan.streams = count("--streams", plan.streams)?;
    plan.count = arguments.one("-n").map(|text| number("-n", text)).transpose()?;
    for (name, time) in [("-d", &mut plan.duration), ("--timeout", &mut plan.timeout), ("--warm-up", &mut plan.warm_up)]
    {
        if let Some(text) = arguments.one(name) {
            *time = duration(name, text)?;
        }
    }
    if let Some(text) = arguments.one("--rate") {
        plan.arrivals = Arrivals::Open(rate("--rate", text)?);
    }
    if let Some(list) = arguments.one("--cores") {
        plan.cores = cores(list)?;
    }
    for field in arguments.all("-H") {
        let (name, value) = field.split_once(':').ok_or_else(|| format!("-H '{field}' has no colon"))?;
        plan.headers.push((name.trim().to_owned(), value.trim().to_owned()));
    }
    plan.method = arguments.one("--method").unwrap_or("GET").to_owned();
    plan.http = if arguments.has("--http2") { Http::Two } else { Http::One };
    if let Some(version) = arguments.one("--tls") {
        plan.tls.versions = match version {
            "1.2" => vec![TlsVersion::V12],
            "1.3" => vec![TlsVersion::V13],
            other => return Err(format!("--tls cannot be '{other}': expected 1.2 or 1.3")),
        };
    }
    let list = |name: &'static str| arguments.all(name).flat_map(|list| list.split(',')).map(str::to_owned).collect();
    plan.tls.suites = list("--suite");
    plan.tls.groups = list("--group");
    plan.tls.signatures = list("--signature");
    plan.tls.server_name = arguments.one("--sni").map(str::to_owned);
    plan.tls.verify = arguments.one("--verify").map(Into::into);
    plan.tls.check_signatures = arguments.has("--check-signatures");
    for (name, place) in [("--connect", &mut plan.address), ("--proxy", &mut plan.proxy)] {
        if let Some(address) = arguments.one(name) {
            *place = Some(address.parse().map_err(|_| format!("{name} cannot be '{address}': expected ADDRESS:PORT"))?);
        }
    }
    plan.sources = arguments.all("--source").flat_map(|list| list.split(',')).flat_map(str::parse).collect();
    plan.watch = arguments.all("--server").flat_map(|list| list.split(',')).flat_map(str::parse).collect();
    Ok(plan)
}
