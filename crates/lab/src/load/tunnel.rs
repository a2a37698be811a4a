//! A tunnel through a proxy, by CONNECT (RFC 9110 section 9.3.6): what is sent through it afterwards is the server's.

use super::LoadPlan;
use super::failure::{Failure, When};
use super::wire::Gauge;
use penstock_http::{Limits, Parse, Progress, ResponseHead};
use tokio::net::TcpStream;

/// As those of the responses that are measured.
const LIMITS: Limits = Limits { head_bytes: 64 * 1024, fields: 257, lenient: true };

/// What one read may bring: an answer has a few fields.
const READ_BYTES: usize = 4096;

/// The request for a tunnel to the plan's target; `None` without a proxy.
pub(crate) fn request(plan: &LoadPlan) -> Option<Vec<u8>> {
    plan.proxy?;
    let authority = plan.target.host_and_port();
    Some(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n").into_bytes())
}

/// Sends the rest of the request, and waits for an answer that grants it.
pub(crate) async fn make(socket: &TcpStream, mut request: &[u8], gauge: &Gauge) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::of_socket(&e, When::Tunnel);
    while !request.is_empty() {
        socket.writable().await.map_err(failed)?;
        match socket.try_write(request) {
            Ok(n) => {
                gauge.bytes_out.update(|sum| sum + n as u64);
                request = &request[n..];
            }
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(failed(e)),
        }
    }
    let mut head = ResponseHead::default();
    let mut progress = Progress::default();
    let mut answer = Vec::new();
    let mut piece = [0; READ_BYTES];
    loop {
        socket.readable().await.map_err(failed)?;
        let n = match socket.try_read(&mut piece) {
            Ok(0) => return Err(Failure::Closed(When::Tunnel)),
            Ok(n) => n,
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(e) => return Err(failed(e)),
        };
        gauge.bytes_in.update(|sum| sum + n as u64);
        answer.extend_from_slice(&piece[..n]);
        loop {
            let parsed = head.read(&mut progress, &answer, &LIMITS);
            match parsed.map_err(|why| Failure::Proxy(format!("its answer is no valid HTTP/1.1: {why:?}")))? {
                Parse::Partial => break,
                Parse::Complete { consumed } => drop(answer.drain(..consumed)),
            }
            progress = Progress::default();
            if head.is_interim() {
                continue;
            }
            return match head.status() {
                200..=299 if answer.is_empty() => Ok(()),
                // In TLS as in HTTP the client speaks first.
                200..=299 => Err(Failure::Proxy("bytes came through it before any had been sent".into())),
                status => Err(Failure::Proxy(format!("its answer has the status {status}"))),
            };
        }
    }
}
