//! One rustls connection, driven over bytes: ciphertext in, plaintext and ciphertext out.

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{ClientConfig, CommonState, Error};
use std::sync::Arc;

/// Bytes a record adds to its 2^14 of plaintext, at the most: header, explicit nonce, content type, tag.
const RECORD_EXTRA: usize = 5 + 8 + 1 + 16;
const RECORD_PLAIN: usize = 16 * 1024;
/// Room for a ClientHello, or for any other part of the handshake that is written.
const FLIGHT_ROOM: usize = 1024;

/// A client's side of TLS.
pub(crate) struct Session(UnbufferedClientConnection);

/// The state of a connection after a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// The handshake needs bytes from the server.
    Handshaking,
    /// Data may flow.
    Open,
    /// The server has said that nothing more will come from it.
    PeerClosed,
}

impl std::ops::Deref for Session {
    type Target = CommonState;

    fn deref(&self) -> &CommonState {
        &self.0
    }
}

impl Session {
    pub(crate) fn new(config: Arc<ClientConfig>, name: ServerName<'static>) -> Result<Session, Error> {
        UnbufferedClientConnection::new(config, name).map(Session)
    }

    /// Takes all complete records of `input` and says how many bytes they were. Plaintext goes to `plain`, what must be
    /// sent is appended to `output`.
    ///
    /// # Errors
    /// The connection is finished. Nothing is sent to say so: the server is only measured.
    pub(crate) fn pass(
        &mut self,
        input: &mut [u8],
        plain: &mut dyn FnMut(&[u8]),
        output: &mut Vec<u8>,
    ) -> Result<(usize, Pass), Error> {
        let mut taken = 0;
        let mut closed = false;
        loop {
            let UnbufferedStatus { discard, state } = self.0.process_tls_records(&mut input[taken..]);
            taken += discard;
            let pass = match state? {
                ConnectionState::EncodeTlsData(mut data) => {
                    append(output, FLIGHT_ROOM, |room| match data.encode(room) {
                        Ok(written) => Ok(written),
                        Err(EncodeError::InsufficientSize(need)) => Err(need.required_size),
                        Err(_) => Ok(0),
                    });
                    continue;
                }
                // The caller writes the output before it reads again.
                ConnectionState::TransmitTlsData(data) => {
                    data.done();
                    continue;
                }
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        plain(record?.payload);
                    }
                    continue;
                }
                ConnectionState::PeerClosed => {
                    closed = true;
                    continue;
                }
                ConnectionState::Closed => Pass::PeerClosed,
                _ => Pass::Open,
            };
            return Ok(match pass {
                Pass::Open if closed => (taken, Pass::PeerClosed),
                Pass::Open if self.0.is_handshaking() => (taken, Pass::Handshaking),
                pass => (taken, pass),
            });
        }
    }

    /// Encrypts `data` to the end of `output`. `held` is the start of a record that earlier reads left over.
    pub(crate) fn encrypt(&mut self, held: &mut [u8], data: &[u8], output: &mut Vec<u8>) -> Result<(), Error> {
        let room = data.len() + data.len().div_ceil(RECORD_PLAIN).max(1) * RECORD_EXTRA;
        self.write(held, room, output, |traffic, room| traffic.encrypt(data, room))
    }

    /// Appends our close_notify.
    pub(crate) fn close_notify(&mut self, held: &mut [u8], output: &mut Vec<u8>) -> Result<(), Error> {
        self.write(held, RECORD_EXTRA + 2, output, |traffic, room| traffic.queue_close_notify(room))
    }

    fn write(
        &mut self,
        held: &mut [u8],
        room: usize,
        output: &mut Vec<u8>,
        mut write: impl FnMut(
            &mut rustls::unbuffered::WriteTraffic<'_, rustls::client::ClientConnectionData>,
            &mut [u8],
        ) -> Result<usize, EncryptError>,
    ) -> Result<(), Error> {
        // What rustls itself wants out goes first; the pass ends in the state that may write.
        self.pass(held, &mut |_| (), output)?;
        let ConnectionState::WriteTraffic(mut traffic) = self.0.process_tls_records(held).state? else {
            return Err(Error::EncryptError);
        };
        let mut failed = false;
        append(output, room, |space| match write(&mut traffic, space) {
            Ok(written) => Ok(written),
            Err(EncryptError::InsufficientSize(need)) => Err(need.required_size),
            Err(_) => {
                failed = true;
                Ok(0)
            }
        });
        if failed { Err(Error::EncryptError) } else { Ok(()) }
    }
}

/// Lets `write` fill the end of `output`; where it needs more room it says how much, once.
fn append(output: &mut Vec<u8>, room: usize, mut write: impl FnMut(&mut [u8]) -> Result<usize, usize>) {
    let start = output.len();
    output.resize(start + room, 0);
    let written = write(&mut output[start..]).or_else(|need| {
        output.resize(start + need, 0);
        write(&mut output[start..])
    });
    output.truncate(start + written.unwrap_or(0));
}
