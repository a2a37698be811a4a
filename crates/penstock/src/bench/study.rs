//! `penstock bench study NAME`.

use super::{interrupt::stop_on_signal, words};
use crate::{
    arguments::{Arguments, Opt, help, switch, value},
    serve,
};
use penstock_doctor::lab::cores;
use penstock_lab::{
    load::Stop,
    report,
    study::{self, Network, STUDIES, Wish},
};
use std::{ffi::OsString, io::Write, path::PathBuf, process::ExitCode};

/// The options of this subcommand.
pub fn options() -> Vec<Opt> {
    vec![
        switch(
            "--quick",
            "one core, seconds instead of minutes: shows that everything works, not what the machine can do",
        ),
        value("--out", "DIR", "where result.json, report.html and raw.jsonl go [the study's name]"),
        value("--contestants", "LIST", "who takes part [all that can]"),
        value("--cases", "LIST", "only cases whose names contain one of these words"),
        value("--steps", "LIST", "cores of the server, one after the other, as in 1,2,4"),
        value("--server-cores", "LIST", "processors of the server, as in 0-7"),
        value("--client-cores", "LIST", "processors of the clients [the rest]"),
        value("--origin-cores", "LIST", "processors of the backend servers [a third of the rest]"),
        value("--duration", "TIME", "length of a window, as in 30s"),
        value("--rounds", "N", "number of windows for each contestant and case, taken in turn"),
        value("--connections", "N", "connections at once"),
        value(
            "--rates",
            "LIST",
            "cpu-against-rate: connections a second to offer [eight steps, up to the highest rate of the fastest contestant]",
        ),
        value("--target-rate", "N", "cores-saved: the rate that cores are counted for [15000]"),
        value("--bound", "TIME", "max-rate, core-scaling: the highest latency allowed [2s]"),
        value("--delay", "TIME", "cpu-against-rate: delay of a round trip [50ms]"),
        value("--jitter", "TIME", "cpu-against-rate: jitter of a round trip [4ms]"),
        value("--loss", "PERCENT", "cpu-against-rate: packets lost in each direction [0.1]"),
        switch("--own-network", "cpu-against-rate: penstock's forwarder even where the kernel has netem"),
        value("--agents", "HOSTS", "makes the load from agents (penstock bench agent), in step"),
        value("--ca", "FILE", "with --agents: the CA certificate that all machines of the test share"),
        value("--cert", "FILE", "with --agents: this machine's certificate"),
        value("--key", "FILE", "with --agents: its key"),
        value("--listen", "ADDRESS", "where the servers listen, for agents on other machines [127.0.0.1]"),
        switch("--perf", "records call stacks of each contestant, in an extra window"),
        value("--penstock", "FILE", "penstock's program [this one]"),
        value("--haproxy", "FILE", "HAProxy's program [the one that is installed]"),
        value("--nginx", "FILE", "nginx's program [the one that is installed]"),
        value("--squid", "FILE", "orchestration: Squid's program [the one that is installed]"),
        value("--sslsplit", "FILE", "orchestration: SSLsplit's program [the one that is installed]"),
        value(
            "--c-icap",
            "FILE",
            "orchestration: c-icap's program, the services that inspect [the one that is installed]",
        ),
        value(
            "--qat-libraries",
            "DIR",
            "where libqat is for penstock-hw and penstock-hw+sw: a driver's, or the device double's [the system's]",
        ),
        switch("--json", "the result as JSON instead of a report"),
        switch("--help", "shows this help"),
    ]
}

/// The names of all studies.
pub fn names() -> Vec<&'static str> {
    STUDIES.iter().map(|study| study.name).collect()
}

/// Runs `penstock bench study`.
pub fn run(arguments: &[OsString]) -> ExitCode {
    let parsed = Arguments::parse(&options(), arguments);
    let arguments = match parsed {
        Ok(parsed) => parsed,
        Err(why) => return serve::fail(&format!("bench study: {why}; --help lists the options")),
    };
    if arguments.has("--help") || arguments.words.is_empty() {
        print(&usage());
        return if arguments.has("--help") { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    match carry_out(&arguments) {
        // A partial result is not what was asked for.
        Ok(whole) => {
            if whole {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(why) => serve::fail(&format!("bench study: {why}")),
    }
}

fn usage() -> String {
    let mut page =
        "Usage: penstock bench study NAME [options]\n\nStudies, whose parameters are the options' defaults:\n"
            .to_owned();
    for study in STUDIES {
        page.push_str(&format!("  {:<28} {}\n", study.name, study.doc));
    }
    page.push_str("\nContestants:\n");
    for (name, doc) in study::known() {
        page.push_str(&format!("  {name:<28} {doc}\n"));
    }
    page + "\n" + &help(&options())
}

/// Prints text; a reader that has seen enough closes the pipe.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn carry_out(arguments: &Arguments) -> Result<bool, String> {
    let wish = wish(arguments)?;
    let stop = Stop::default();
    stop_on_signal(&stop)?;
    let outcome = study::run(&wish, &stop, &mut |line| eprintln!("{line}"))?;
    if arguments.has("--json") {
        print(&outcome.json()?);
    } else {
        print(&format!("\n{}\n{}\n", report::text(&outcome), wish.out.join("report.html").display()));
    }
    Ok(outcome.partial.is_empty())
}

fn wish(arguments: &Arguments) -> Result<Wish, String> {
    let [name] = &arguments.words[..] else {
        return Err(format!("one study at a time, not '{}'", arguments.words.join(" ")));
    };
    let list = |option: &'static str| -> Vec<String> {
        arguments
            .all(option)
            .flat_map(|list| list.split(','))
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let cpus = |option: &'static str| arguments.one(option).map_or(Ok(Vec::new()), |text| cores(option, text));
    let seconds = |option: &'static str| arguments.one(option).map(|text| words::duration(option, text)).transpose();
    let count =
        |option: &'static str| arguments.one(option).map(|text| words::number::<usize>(option, text)).transpose();
    let file = |option: &'static str| arguments.one(option).map(PathBuf::from);
    let network = Network::default();
    let loss = match arguments.one("--loss") {
        None => network.loss,
        Some(text) => text
            .parse::<f64>()
            .ok()
            .filter(|percent| (0.0..=50.0).contains(percent))
            .map(|percent| percent / 100.0)
            .ok_or_else(|| format!("--loss cannot be '{text}': expected percent, from 0 to 50"))?,
    };
    let own = std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
    let typed: Vec<String> = std::env::args().skip(1).collect();
    Ok(Wish {
        study: name.clone(),
        quick: arguments.has("--quick"),
        out: file("--out").unwrap_or_else(|| PathBuf::from(name)),
        command: format!("penstock {}", typed.join(" ")),
        steps: list("--steps").iter().map(|text| words::number("--steps", text)).collect::<Result<_, _>>()?,
        server_cores: cpus("--server-cores")?,
        client_cores: cpus("--client-cores")?,
        origin_cores: cpus("--origin-cores")?,
        contestants: list("--contestants"),
        cases: list("--cases"),
        seconds: seconds("--duration")?.map(|time| time.as_secs_f64()),
        rounds: count("--rounds")?,
        connections: count("--connections")?,
        rates: list("--rates").iter().map(|text| words::rate("--rates", text)).collect::<Result<_, _>>()?,
        target_rate: arguments.one("--target-rate").map(|text| words::rate("--target-rate", text)).transpose()?,
        bound: seconds("--bound")?.map(|time| time.as_secs_f64()),
        network: Network {
            delay: seconds("--delay")?.unwrap_or(network.delay),
            jitter: seconds("--jitter")?.unwrap_or(network.jitter),
            loss,
            own: arguments.has("--own-network"),
        },
        agents: super::agent::addresses(arguments)?,
        identity: super::agent::identity(arguments)?,
        listen: arguments
            .one("--listen")
            .map(|text| {
                text.parse().map_err(|_| format!("--listen cannot be '{text}': expected an address of this machine"))
            })
            .transpose()?,
        perf: arguments.has("--perf"),
        penstock: file("--penstock").unwrap_or(own),
        haproxy: file("--haproxy"),
        nginx: file("--nginx"),
        squid: file("--squid"),
        sslsplit: file("--sslsplit"),
        c_icap: file("--c-icap"),
        qat_libraries: file("--qat-libraries"),
    })
}
