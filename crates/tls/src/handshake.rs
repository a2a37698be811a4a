//! Runs a handshake from its first bytes to an open session: read, pass to rustls, write, until it is complete.

use crate::{
    HandshakeError, facts,
    line::Permit,
    output::Output,
    session::{Pass, Session},
    stream::TlsStream,
    suspend, verify,
};
use penstock_engine::{
    Share,
    worker::{self, InProgress},
};
use rustls::{AlertDescription, Error};
use std::{
    future::poll_fn,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Most bytes of one side's flight that are buffered. rustls refuses a handshake message longer than 64 KiB; very small
/// records could make the encoded form of a shorter one many times larger.
const FLIGHT_MAX: usize = 128 * 1024;
/// Bytes per read during a handshake: most flights are smaller, and the buffer only lives as long as the handshake.
const READ: usize = 4096;

/// A handshake in progress, with its session and its bytes.
pub(crate) struct Flight {
    pub session: Session,
    pub input: Vec<u8>,
    pub output: Output,
    pub plain: Vec<u8>,
}

impl Flight {
    pub fn new(session: Session, input: Vec<u8>) -> Box<Flight> {
        Box::new(Flight { session, input, output: Output::default(), plain: Vec::new() })
    }

    /// Passes what has arrived to rustls once.
    ///
    /// # Errors
    ///
    /// If the peer violated the protocol or is not admitted; the alert is in the output.
    pub fn pass(&mut self) -> Result<Pass, HandshakeError> {
        let Flight { session, input, output, plain } = self;
        let mut taken = 0;
        let result = session.pass(input, &mut taken, &mut |bytes| plain.extend_from_slice(bytes), output);
        let result = result.map_err(|error| {
            session.alert(output);
            match (verify::take_refusal(), &error) {
                (Some(refusal), _) if refusal.code == verify::VERSION_1 => HandshakeError::Version1,
                (Some(refusal), _) => {
                    HandshakeError::Certificate { verify: refusal.code, authority: refusal.depth > 0 }
                }
                (None, rustls::Error::InvalidCertificate(rustls::CertificateError::NotValidForName)) => {
                    HandshakeError::WrongName
                }
                _ => HandshakeError::Tls(error),
            }
        });
        input.drain(..taken);
        result
    }
}

/// The resources of its worker that a handshake holds.
pub(crate) struct Opening {
    /// Counts the handshake among the worker's connections.
    pub presence: InProgress,
    /// Permission to compute the first flight, if one was needed.
    pub permit: Option<Permit>,
    /// The share that the handshake's operations belong to while several wait.
    pub share: Share,
}

/// Runs the handshake to its end. `waited` is how long its operations have waited so far.
pub(crate) async fn run<S>(
    mut stream: S,
    mut flight: Box<Flight>,
    opening: Opening,
    mut waited: Duration,
) -> Result<TlsStream<S>, HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Opening { presence, mut permit, share } = opening;
    let engine = worker::engine_name();
    let mut session_id: Option<Box<[u8]>> = None;
    loop {
        if matches!(flight.session, Session::Client(_)) && session_id.is_none() {
            session_id = facts::session_id(&flight.input).map(Into::into);
        }
        let pass;
        let may_wait = flight.session.may_wait();
        (flight, pass) = suspended(may_wait, share, &mut waited, move || {
            let pass = flight.pass();
            (flight, pass)
        })
        .await?;
        drop(permit.take());
        if matches!(flight.session, Session::Server(_)) && session_id.is_none() {
            session_id = facts::session_id(flight.output.as_slice()).map(Into::into);
        }
        match pass {
            Ok(Pass::Handshaking) => {
                write_all(&mut stream, &mut flight.output).await.map_err(HandshakeError::Aborted)?;
                if flight.input.len() > FLIGHT_MAX {
                    return Err(HandshakeError::Tls(rustls::Error::General("handshake flight too long".into())));
                }
                if read_some(&mut stream, &mut flight.input).await.map_err(HandshakeError::Aborted)? == 0 {
                    return Err(HandshakeError::Aborted(io::ErrorKind::UnexpectedEof.into()));
                }
            }
            Ok(Pass::Open | Pass::PeerClosed) => {
                // A TLS 1.3 server only has tickets left to send, which can wait for the first response. A client, and
                // a TLS 1.2 server, still have to send their Finished.
                let tls13 = flight.session.protocol_version() == Some(rustls::ProtocolVersion::TLSv1_3);
                if !(tls13 && matches!(flight.session, Session::Server(_))) {
                    write_all(&mut stream, &mut flight.output).await.map_err(HandshakeError::Aborted)?;
                }
                let mut open = TlsStream::new(stream, *flight, presence, matches!(pass, Ok(Pass::PeerClosed)));
                let facts = open.facts_mut();
                facts.session_id = session_id.unwrap_or_default();
                facts.engine = engine;
                facts.engine_wait_us = u32::try_from(waited.as_micros()).unwrap_or(u32::MAX);
                return Ok(open);
            }
            Err(error) => {
                if matches!(&error, HandshakeError::Tls(error) if may_be_secret(error)) {
                    worker::suspect();
                }
                // The alert says why; it does not matter whether the peer still reads it.
                let _ = write_all(&mut stream, &mut flight.output).await;
                return Err(error);
            }
        }
    }
}

/// Whether a handshake would fail like this if the two sides had different secrets: the peer's message cannot be
/// decrypted, its Finished does not match, or it says the same of ours. A faulty peer looks the same.
fn may_be_secret(error: &Error) -> bool {
    use AlertDescription::{BadRecordMac, DecryptError};
    matches!(error, Error::DecryptError | Error::AlertReceived(BadRecordMac | DecryptError))
}

/// Runs a step of a handshake: on a stack of its own, where its operations can be parked, if the engine may make them
/// wait; otherwise as a plain call. `may_wait` says whether this step can involve an operation. Nothing is read while
/// it waits: the bytes stay in the socket.
pub(crate) async fn suspended<R: 'static>(
    may_wait: bool,
    share: Share,
    waited: &mut Duration,
    body: impl FnOnce() -> R + 'static,
) -> Result<R, HandshakeError> {
    const PANICKED: HandshakeError = HandshakeError::Internal("panic in the handshake");
    if may_wait && worker::may_wait() {
        suspend::on_stack(waited, share, body).await.map_err(|_| PANICKED)
    } else {
        catch_unwind(AssertUnwindSafe(body)).map_err(|_| PANICKED)
    }
}

/// Appends what one read returns; 0 means the end.
pub(crate) async fn read_some<S: AsyncRead + Unpin>(stream: &mut S, input: &mut Vec<u8>) -> io::Result<usize> {
    poll_fn(|cx| {
        let start = input.len();
        input.resize(start + READ, 0);
        let mut room = ReadBuf::new(&mut input[start..]);
        let polled = Pin::new(&mut *stream).poll_read(cx, &mut room);
        let read = room.filled().len();
        input.truncate(start + read);
        if read > 0 {
            worker::stir();
        }
        polled.map_ok(|()| read)
    })
    .await
}

/// Whether the peer has closed meanwhile. Other bytes that have arrived are appended. Without readiness there is no
/// system call.
pub(crate) async fn has_left<S: AsyncRead + Unpin>(stream: &mut S, input: &mut Vec<u8>) -> bool {
    poll_fn(|cx| {
        let mut bytes = [0; 512];
        let mut room = ReadBuf::new(&mut bytes);
        Poll::Ready(match Pin::new(&mut *stream).poll_read(cx, &mut room) {
            Poll::Pending => false,
            Poll::Ready(Ok(())) => {
                input.extend_from_slice(room.filled());
                room.filled().is_empty()
            }
            Poll::Ready(Err(_)) => true,
        })
    })
    .await
}

async fn write_all<S: AsyncWrite + Unpin>(stream: &mut S, output: &mut Output) -> io::Result<()> {
    poll_fn(|cx| poll_drain(stream, cx, output)).await
}

/// Writes `output` until it is empty; what the socket does not take stays in it.
pub(crate) fn poll_drain<S: AsyncWrite + Unpin>(
    stream: &mut S,
    cx: &mut Context<'_>,
    output: &mut Output,
) -> Poll<io::Result<()>> {
    while !output.is_empty() {
        let written = ready!(Pin::new(&mut *stream).poll_write(cx, output.as_slice()))?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        output.consume(written);
    }
    // An idle connection keeps no buffer.
    output.release();
    Poll::Ready(Ok(()))
}
