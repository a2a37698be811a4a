//! A server that breaks off in mid-body must be visible to the client on every framing, never a clean end.

use std::io::Write;
use std::process::Command;

use super::{Probe, with_penstock};
use crate::Failure;
use crate::client;
use crate::message::{Inbox, Outcome};
use crate::scenario::Section;
use crate::wire::Ending;

const CONFIG: &str = "[config]\nfrontend f\n    bind {{bind http}}\n    bind {{bind tls}} ssl crt {{cert ecdsa}} alpn \
                      h2,http/1.1\n    default_backend b\nbackend b\n    server s1 {{origin a}}\n";

pub fn probes() -> Vec<Probe> {
    let mut probes = Vec::new();
    // A FIN ends a body that only the close delimits, so there only a reset is a break.
    for target in ["cut/length", "cut/chunked", "reset/length", "reset/chunked", "reset/close"] {
        for version in ["1.0", "1.1"] {
            probes.push(Probe::new(format!("break-off/{}-http{version}", target.replace('/', "-")), move || {
                http1(target, version)
            }));
        }
        probes.push(Probe::new(format!("break-off/{}-http2", target.replace('/', "-")), move || http2(target)));
    }
    probes
}

fn http1(target: &str, version: &str) -> Result<(), Failure> {
    with_penstock(CONFIG, |run| {
        let address = run.bind("http")?;
        let plain = Section { kind: "tcp".into(), arguments: Vec::new(), text: String::new(), line: 0 };
        let mut inbox = Inbox::new(client::open(address, &plain)?, None);
        let request = format!("GET /{target} HTTP/{version}\r\nHost: h\r\n\r\n");
        inbox.wire.write_all(request.as_bytes()).map_err(|e| e.to_string())?;
        match inbox.response("GET") {
            Outcome::Nothing(..) => Ok(()),
            Outcome::Message(m) if m.status() >= 500 => Ok(()),
            Outcome::Message(m) => match m.cut {
                Some(Ending::Open) => Err("the client waits for ever".to_owned()),
                Some(_) => Ok(()),
                None => Err(format!("the client saw a complete response of {} bytes: {:?}", m.body.len(), m.fields)),
            },
        }
    })
}

fn http2(target: &str) -> Result<(), Failure> {
    with_penstock(CONFIG, |run| {
        let address = run.bind("tls")?;
        let output = Command::new("curl")
            .args(["-sk", "--http2", "--max-time", "8", "-o", "/dev/null", "-w", "%{http_version} %{http_code}"])
            .arg(format!("https://{address}/{target}"))
            .output()
            .map_err(|e| e.to_string())?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        match (output.status.code(), said.as_str()) {
            (Some(0), said) if said.starts_with("2 5") => Ok(()),
            (Some(0), _) => Err(format!("curl saw a complete response: {said}")),
            (Some(28), _) => Err("the stream never ends".to_owned()),
            (_, said) if said.starts_with("2 ") => Ok(()),
            _ => Err(format!("that was not HTTP/2: {said}")),
        }
    })
}
