//! `penstock ctl`: a client of the runtime API for people.

mod prompt;
mod show;

use crate::arguments::{Opt, help, switch, value};
use penstock_config::model::{ListenAddress, StatsLevel};
use penstock_control::TABLE;
use prompt::{Completion, Prompt};
use std::{
    ffi::OsString,
    io::{self, IsTerminal, Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

fn usage() -> String {
    format!(
        "Usage: penstock ctl [options] COMMAND...          one command, such as: penstock ctl show stat\n       \
         penstock ctl [options]                     commands as they are typed, which Tab completes\n       \
         penstock ctl [options] watch COMMAND...    the same command again and again\n\n{}\n\
         A command that ends with << reads its payload from standard input; one that is typed, up to an empty line.\n",
        help(&options())
    )
}

/// The options before the command.
pub fn options() -> Vec<Opt> {
    vec![
        value("-s", "ADDRESS", "the stats socket, a path or HOST:PORT [PENSTOCK_SOCKET]"),
        value("-f", "FILE", "the configuration whose stats socket it is"),
        switch("--json", "shows the answer as JSON, for commands that show something"),
        value("--interval", "SECONDS", "how often to ask when watching [2]"),
        switch("--help", "shows this help"),
    ]
}

/// The commands that shells complete.
pub fn words() -> Vec<&'static str> {
    let mut names: Vec<&str> =
        TABLE.entries().map(|entry| entry.words).chain(penstock_control::session_words()).collect();
    names.sort_unstable();
    names
}

/// How long to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The line that ends a payload; a payload that contains this line has to be sent in another way.
const PAYLOAD_END: &str = "<<%penstock-ctl-end%";

#[derive(Default)]
struct Options {
    socket: Option<String>,
    files: Vec<PathBuf>,
    help: bool,
    json: bool,
    interval: Option<f64>,
    words: Vec<String>,
}

/// Runs `penstock ctl`.
pub fn run(arguments: &[OsString]) -> ExitCode {
    match parse(arguments).and_then(|options| obey(&options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("penstock ctl: {why}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[OsString]) -> Result<Options, String> {
    let mut options = Options::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let text = argument.to_str().ok_or("an argument is not valid UTF-8")?;
        let mut value = || {
            let value = rest.next().and_then(|value| value.to_str());
            value.map(str::to_owned).ok_or_else(|| format!("{text} needs a value\n\n{}", usage()))
        };
        match text {
            // After the first word of the command, everything belongs to the command.
            _ if !options.words.is_empty() => options.words.push(text.into()),
            "-s" => options.socket = Some(value()?),
            "-f" => options.files.push(value()?.into()),
            "--json" => options.json = true,
            "--interval" => {
                let seconds = value()?.parse().ok().filter(|seconds: &f64| *seconds > 0.0 && *seconds < 1e6);
                options.interval = Some(seconds.ok_or("--interval needs a number of seconds")?);
            }
            "-h" | "--help" => options.help = true,
            flag if flag.starts_with('-') => return Err(format!("there is no option {flag}\n\n{}", usage())),
            word => options.words.push(word.into()),
        }
    }
    Ok(options)
}

/// Carries out the command; returns whether all parts succeeded.
fn obey(options: &Options) -> Result<bool, String> {
    if options.help {
        print(&usage())?;
        return Ok(true);
    }
    let words: Vec<&str> = options.words.iter().map(String::as_str).collect();
    match words[..] {
        ["watch"] => Err(format!("watch what?\n\n{}", usage())),
        ["watch", ..] => loop {
            let answer = ask(options, line(&options.words[1..], options.json).as_bytes())?;
            let clear = if io::stdout().is_terminal() { "\x1b[H\x1b[2J" } else { "" };
            print(clear)?;
            if !tell(options, &answer)? {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_secs_f64(options.interval.unwrap_or(2.0)));
        },
        [] => converse(options),
        _ => {
            let sent = line(&options.words, options.json).into_bytes();
            if let Some(command) = sent.strip_suffix(b"<<") {
                let mut payload = Vec::new();
                io::stdin().read_to_end(&mut payload).map_err(|e| format!("cannot read the payload: {e}"))?;
                while payload.pop_if(|last| *last == b'\n').is_some() {}
                return send_payload(options, command, &payload);
            }
            let answer = ask(options, &sent)?;
            tell(options, &answer)
        }
    }
}

/// The most bytes of a payload that are sent at once where it may be cut: below the default of `tune.cli.max-payload-size`.
const PIECE_MAX: usize = 96 << 10;

/// Sends a command with its payload. That of `add map` and `add acl` may be larger than the server takes at once: its lines are
/// sent in pieces, in order.
fn send_payload(options: &Options, command: &[u8], payload: &[u8]) -> Result<bool, String> {
    let end = PAYLOAD_END.trim_start_matches('<').as_bytes();
    let mut sent = 0;
    for piece in pieces(command, payload) {
        let whole = [command, PAYLOAD_END.as_bytes(), b"\n", piece, b"\n", end].concat();
        if !tell(options, &ask(options, &whole)?)? {
            if sent > 0 {
                eprintln!("penstock ctl: the first {sent} lines of the payload were taken; not all that follow");
            }
            return Ok(false);
        }
        sent += piece.split(|byte| *byte == b'\n').count();
    }
    Ok(true)
}

/// Cuts a payload at ends of lines, if the command may be given again and again with the lines of one payload.
fn pieces<'a>(command: &[u8], payload: &'a [u8]) -> Vec<&'a [u8]> {
    let mut words = command.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    if words.next() != Some(b"add") || !matches!(words.next(), Some(b"map" | b"acl")) {
        return vec![payload];
    }
    let (mut pieces, mut rest) = (Vec::new(), payload);
    while rest.len() > PIECE_MAX {
        let last = rest[..PIECE_MAX].iter().rposition(|byte| *byte == b'\n');
        // A line that is longer than a piece goes alone.
        let Some(at) = last.or_else(|| rest.iter().position(|byte| *byte == b'\n')) else { break };
        pieces.push(&rest[..at]);
        rest = &rest[at + 1..];
    }
    pieces.push(rest);
    pieces
}

/// Sends commands, one per line, until the input ends. A line that ends with `<<` has a payload behind it, which an empty line ends.
fn converse(options: &Options) -> Result<bool, String> {
    let mut next = lines(options)?;
    let mut all_done = true;
    while let Some(typed) = next("> ")? {
        match typed.trim() {
            "" => {}
            "quit" => return Ok(all_done),
            typed => match typed.strip_suffix("<<") {
                Some(command) => {
                    let mut payload = Vec::new();
                    while let Some(more) = next("+ ")?.filter(|more| !more.is_empty()) {
                        payload.push(more);
                    }
                    all_done &= send_payload(options, command.as_bytes(), payload.join("\n").as_bytes())?;
                }
                None => {
                    let answer = ask(options, line(&[typed.to_owned()], options.json).as_bytes())?;
                    all_done &= tell(options, &answer)?;
                }
            },
        }
    }
    Ok(all_done)
}

/// Reads the next line behind a prompt; `None` at the end.
type Lines<'a> = Box<dyn FnMut(&str) -> Result<Option<String>, String> + 'a>;

/// The lines of the input, without their ends: typed at a prompt if it is a terminal.
fn lines(options: &Options) -> Result<Lines<'_>, String> {
    if io::stdin().is_terminal() && io::stdout().is_terminal() {
        let ask = |question: &str| ask(options, question.as_bytes()).unwrap_or_default();
        let mut prompt = Prompt::open(Completion { commands: words(), ask })?;
        return Ok(Box::new(move |text| prompt.line(text)));
    }
    let mut input = io::stdin().lines();
    Ok(Box::new(move |_| input.next().transpose().map_err(|e| format!("cannot read a command: {e}"))))
}

/// A word of a command, in which what has a meaning for the protocol has a backslash before it.
fn escaped(word: &str) -> String {
    let special = |c: char| matches!(c, ';' | '\\' | ' ' | '\t');
    word.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}

/// A line of the protocol. Separate words are escaped; a single text is sent as it is.
fn line(words: &[String], json: bool) -> String {
    let mut line = match words {
        [line] => line.clone(),
        words => words.iter().map(|word| escaped(word)).collect::<Vec<_>>().join(" "),
    };
    if json && line.starts_with("show ") && !line.contains(';') {
        line.push_str(" json");
    }
    line
}

/// Sends a line; returns the answer.
fn ask(options: &Options, line: &[u8]) -> Result<String, String> {
    let address = address(options)?;
    let cannot = |e: io::Error| format!("{address}: {e}");
    let sent = [b"set severity-output number;", line, b"\n"].concat();
    let mut answer = Vec::new();
    if address.contains('/') {
        let stream = UnixStream::connect(&address).map_err(cannot)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(cannot)?;
        exchange(&stream, &sent, &mut answer).map_err(cannot)?;
    } else {
        let stream = TcpStream::connect(&address).map_err(cannot)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(cannot)?;
        exchange(&stream, &sent, &mut answer).map_err(cannot)?;
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    if answer.starts_with("HTTP/") {
        return Err(format!("{address} is an HTTP server, not a stats socket"));
    }
    // The first answer, an empty line, is that of `set severity-output`.
    Ok(answer.strip_prefix('\n').map(str::to_owned).unwrap_or(answer))
}

fn exchange(mut stream: impl Read + Write, sent: &[u8], answer: &mut Vec<u8>) -> io::Result<()> {
    let written = stream.write_all(sent);
    // A server that refuses a payload says why and closes, before it has read all.
    match stream.read_to_end(answer) {
        Ok(_) if !answer.is_empty() => Ok(()),
        Err(_) if !answer.is_empty() && written.is_err() => Ok(()),
        read => written.and(read.map(drop)),
    }
}

/// The address of the stats socket.
fn address(options: &Options) -> Result<String, String> {
    if let Some(socket) = &options.socket {
        return Ok(plain(socket));
    }
    if !options.files.is_empty() {
        return configured(&options.files);
    }
    match std::env::var("PENSTOCK_SOCKET") {
        Ok(socket) => Ok(plain(&socket)),
        Err(_) => Err(format!("no stats socket given: use -s, -f or PENSTOCK_SOCKET\n\n{}", usage())),
    }
}

/// A path or `HOST:PORT`, without the prefix used in configurations.
fn plain(socket: &str) -> String {
    let bare = ["unix@", "ipv4@", "ipv6@"].iter().find_map(|kind| socket.strip_prefix(kind)).unwrap_or(socket);
    match bare.contains(['/', ':']) {
        true => bare.to_owned(),
        false => format!("./{bare}"),
    }
}

/// The stats socket with the highest level in a configuration.
fn configured(files: &[PathBuf]) -> Result<String, String> {
    let sources = crate::configuration::sources(files)?;
    let flags = crate::flags::Flags { files: files.to_vec(), ..Default::default() };
    let (config, _) = crate::configuration::load(sources, &flags);
    let sockets = config.global.stats_sockets.iter().filter_map(|socket| {
        let address = match &socket.address {
            ListenAddress::Unix(path) => absolute(path),
            ListenAddress::Ip { ip, first, .. } => std::net::SocketAddr::new(*ip, *first).to_string(),
            ListenAddress::Host { host, first, .. } => format!("{host}:{first}"),
            ListenAddress::Abstract(_) | ListenAddress::Fd(_) => return None,
        };
        Some((socket.level, address))
    });
    let best = sockets.max_by_key(|(level, _): &(StatsLevel, String)| *level);
    best.map(|(_, address)| address).ok_or_else(|| "the configuration has no stats socket that can be reached".into())
}

fn absolute(path: &Path) -> String {
    let text = path.display().to_string();
    if text.contains('/') { text } else { format!("./{text}") }
}

/// Shows answers; returns whether none was an error.
fn tell(options: &Options, answers: &str) -> Result<bool, String> {
    let mut all_done = true;
    for answer in answers.split("\n\n") {
        let (severity, text) = match answer.strip_prefix('[').and_then(|rest| rest.split_once("]: ")) {
            Some((severity, text)) => (severity.parse().unwrap_or(6), text),
            None => (6_u8, answer),
        };
        let text = text.trim_matches('\n');
        if text.is_empty() {
            continue;
        }
        // HAProxy's protocol gives these no severity; the second is a master's.
        let has_failed = text.starts_with("Unknown command") || text.starts_with("Success=0\n");
        if severity <= 3 || has_failed {
            all_done = false;
            eprintln!("{text}");
        } else if options.json && !text.starts_with(['{', '[']) {
            return Err(format!("there is no JSON for this command; without --json it answers:\n{text}"));
        } else {
            let width = if options.json { None } else { show::width() };
            print(&show::arranged(text, width))?;
        }
    }
    Ok(all_done)
}

fn print(text: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // A reader that has seen enough closes the pipe.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        written => written.map_err(|e| format!("cannot write: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_shell_are_escaped_and_a_text_is_a_line() {
        let words = |words: &[&str]| words.iter().map(|word| word.to_string()).collect::<Vec<_>>();
        assert_eq!(line(&words(&["set", "map", "a b", "c;d\\"]), false), r"set map a\ b c\;d\\");
        assert_eq!(line(&words(&["show info;show stat"]), true), "show info;show stat");
        assert_eq!(line(&words(&["show", "stat"]), true), "show stat json");
    }

    #[test]
    fn lines_of_lists_and_maps_are_sent_in_pieces_and_other_payloads_whole() {
        let lines: Vec<String> = (0..30_000).map(|number| format!("key{number} value")).collect();
        let payload = lines.join("\n");
        for command in ["add map @1 #2 ", "add  acl /a.acl ", "  add map m "] {
            let cut = pieces(command.as_bytes(), payload.as_bytes());
            assert!(cut.len() > 3 && cut.iter().all(|piece| piece.len() <= PIECE_MAX && !piece.ends_with(b"\n")));
            assert_eq!(cut.join(&b'\n'), payload.as_bytes());
        }
        assert_eq!(pieces(b"set ssl cert a.pem ", payload.as_bytes()), [payload.as_bytes()]);
        assert_eq!(pieces(b"add map m ", b""), [b""]);
        let long = [vec![b'a'; 2 * PIECE_MAX], vec![b'\n'], vec![b'b'; PIECE_MAX + 1]].concat();
        assert_eq!(
            pieces(b"add map m ", &long).iter().map(|piece| piece.len()).collect::<Vec<_>>(),
            [2 * PIECE_MAX, PIECE_MAX + 1]
        );
    }

    #[test]
    fn addresses() {
        for (written, wanted) in
            [("/run/s", "/run/s"), ("unix@/run/s", "/run/s"), ("ipv4@127.0.0.1:9", "127.0.0.1:9"), ("s", "./s")]
        {
            assert_eq!(plain(written), wanted);
        }
    }
}
