//! `penstock quickstart`: a complete HTTPS load balancer without any setup, for a first look and for curl.

use crate::{configuration, engine, flags::Flags, ready::Reporter, serve};
use penstock_config::model::Source;
use std::{
    io::{BufRead, BufReader, IsTerminal, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::Path,
    process::ExitCode,
    time::Duration,
};

/// The longest request that the built-in backends read: one line and headers.
const REQUEST_MAX: u64 = 16 * 1024;
/// Connections that a built-in backend serves at a time; more wait in its socket.
const BACKEND_THREADS: usize = 4;

/// Serves the embedded configuration until interrupted.
pub fn run() -> ExitCode {
    // The backends' threads start before those of the load balancer, and must not receive signals either.
    if let Err(e) = penstock_sys::Signals::block() {
        return serve::fail(&format!("cannot block signals: {e}"));
    }
    match prepare() {
        Ok((directory, sources)) => {
            let flags = Flags { foreground: true, ..Flags::default() };
            let ended = serve::serve(configuration::load(sources, &flags), &flags, Reporter::Nobody, |_| welcome());
            // The key was made only for this run.
            let _ = std::fs::remove_dir_all(directory);
            ended.code()
        }
        Err(why) => serve::fail(&why),
    }
}

fn prepare() -> Result<(std::path::PathBuf, Vec<Source>), String> {
    let directory = std::env::temp_dir().join(format!("penstock-quickstart-{}", std::process::id()));
    let certificate = directory.join("localhost.pem");
    let cannot = |what: &str, e: &dyn std::fmt::Display| format!("quickstart cannot {what}: {e}");
    make_certificate(&directory, &certificate).map_err(|e| cannot("make a certificate", &e))?;
    let ports =
        [backend("blue").and_then(|a| Ok([a, backend("green")?])).map_err(|e| cannot("start a backend", &e))?];
    let [[blue, green]] = ports;
    let text = include_str!("quickstart.cfg")
        .replace("@CERTIFICATE@", &certificate.display().to_string())
        .replace("@BLUE@", &blue.to_string())
        .replace("@GREEN@", &green.to_string());
    Ok((directory, vec![Source { name: "quickstart.cfg".into(), text }]))
}

/// Creates a self-signed certificate for localhost, readable only by this user.
fn make_certificate(directory: &Path, file: &Path) -> Result<(), Box<dyn std::error::Error>> {
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
    std::fs::DirBuilder::new().mode(0o700).create(directory)?;
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    let mut options = std::fs::OpenOptions::new();
    let mut out = options.write(true).create_new(true).mode(0o600).open(file)?;
    write!(out, "{}{}", made.cert.pem(), made.signing_key.serialize_pem())?;
    Ok(())
}

fn welcome() {
    let (bold, plain) = if std::io::stdout().is_terminal() { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
    let build = match crate::version::PROFILE {
        "quick" => "  build    quick to compile; the fast one: make release\n",
        "debug" => "  build    debug, many times slower; the fast one: make release\n",
        _ => "",
    };
    // If the reader has gone, the service continues.
    let _ = writeln!(
        std::io::stdout(),
        "{bold}penstock is running.{plain}\n\n  try      {bold}curl -k https://127.0.0.1:8443/{plain}\n  look at  {bold}http://127.0.0.1:8404/{plain}\n  \
         engine   {}\n{build}\nTwo built-in backends, blue and green, take turns. Ctrl-C ends it.\nYour own: {} -f haproxy.cfg",
        engine::summary(engine::lanes(), engine::probe().is_ok()),
        program()
    );
}

/// How this program can be called from where the reader is.
fn program() -> String {
    let Ok(path) = std::env::current_exe() else { return "penstock".to_owned() };
    let here = std::env::current_dir().ok();
    let short = here.as_deref().and_then(|here| path.strip_prefix(here).ok());
    short.unwrap_or(&path).display().to_string()
}

/// A small HTTP/1.1 server on a port of its own, which says which backend responded.
fn backend(name: &'static str) -> std::io::Result<std::net::SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    for _ in 0..BACKEND_THREADS {
        let listener = listener.try_clone()?;
        std::thread::Builder::new().name(format!("backend-{name}")).spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that breaks off only ends its own connection.
                let _ = answer(stream, name);
            }
        })?;
    }
    Ok(address)
}

/// Answers one request and closes: a kept connection would hold one of the few threads while new ones wait.
fn answer(stream: TcpStream, name: &str) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?).take(REQUEST_MAX);
    let mut request = String::new();
    if reader.read_line(&mut request)? == 0 {
        return Ok(());
    }
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 && line.trim_end() != "" {
        line.clear();
    }
    let body = format!("Hello from the {name} backend.\nYou asked for: {}\n", request.trim_end());
    let body_sent = if request.starts_with("HEAD ") { "" } else { &body };
    write!(
        &stream,
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nX-Backend: {name}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body_sent}",
        body.len()
    )?;
    // What is left of a request's body is taken, or closing would reset the connection before the response is read.
    stream.shutdown(Shutdown::Write)?;
    std::io::copy(&mut reader, &mut std::io::sink())?;
    Ok(())
}
