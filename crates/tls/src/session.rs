//! One rustls connection, of either side, driven over bytes: ciphertext in, plaintext and ciphertext out.

use crate::output::Output;
use rustls::{
    CommonState, Error,
    client::UnbufferedClientConnection,
    server::UnbufferedServerConnection,
    unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus},
};

/// A rustls connection without buffers. Boxed, because a suspended handshake holds references into it, and idle streams
/// have to be small.
pub(crate) enum Session {
    Server(Box<UnbufferedServerConnection>),
    Client(Box<UnbufferedClientConnection>),
}

/// The result of processing the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// The handshake needs bytes from the peer.
    Handshaking,
    /// Data may flow; every complete record in the input was taken.
    Open,
    /// Like `Open`, but the peer has sent its close_notify: nothing more will come from it.
    PeerClosed,
}

/// Enough space for any alert of ours: a record header, two bytes, the type byte and the tag of an AEAD.
const ALERT_ROOM: usize = 64;
/// Most bytes that a record adds to its 2^14 of plaintext: header, explicit nonce, content type, tag.
const RECORD_EXTRA: usize = 5 + 8 + 1 + 16;
const RECORD_PLAIN: usize = 16 * 1024;

impl std::ops::Deref for Session {
    type Target = CommonState;
    fn deref(&self) -> &CommonState {
        match self {
            Session::Server(conn) => conn,
            Session::Client(conn) => conn,
        }
    }
}

/// Handles every state that `process_tls_records` can return until nothing is left to do with the available bytes.
/// `$taken` counts how far records in `$input` have been consumed; `$open` is what to do when data may be written.
macro_rules! pass {
    ($conn:expr, $input:expr, $taken:expr, $plain:expr, $output:expr, |$traffic:pat_param| $open:expr) => {{
        let mut closed = false;
        loop {
            let UnbufferedStatus { discard, state } = $conn.process_tls_records(&mut $input[*$taken..]);
            *$taken += discard;
            let step = match state? {
                ConnectionState::EncodeTlsData(mut data) => {
                    encode($output, |room| data.encode(room));
                    None
                }
                // The caller writes the output before it reads again, so rustls may take it as sent. Telling it now is
                // what combines a whole flight into one write.
                ConnectionState::TransmitTlsData(data) => {
                    data.done();
                    None
                }
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        $plain(record?.payload);
                    }
                    None
                }
                ConnectionState::BlockedHandshake => Some(Pass::Handshaking),
                ConnectionState::WriteTraffic($traffic) => {
                    $open;
                    Some(Pass::Open)
                }
                ConnectionState::PeerClosed => {
                    closed = true;
                    None
                }
                ConnectionState::Closed => Some(Pass::PeerClosed),
                other => unreachable!("rustls state {other:?} needs early data, which is off"),
            };
            match step {
                None => {}
                Some(_) if closed => break Ok(Pass::PeerClosed),
                // A server may write before the client's Finished has arrived, but the connection is not open yet.
                Some(Pass::Open) if $conn.is_handshaking() => break Ok(Pass::Handshaking),
                Some(pass) => break Ok(pass),
            }
        }
    }};
}

/// Lets `$write` fill `$room` bytes of the output once the connection may write. What rustls itself wants to send comes
/// first.
macro_rules! write_traffic {
    ($session:expr, $held:expr, $room:expr, $output:expr, |$traffic:ident, $space:ident| $write:expr) => {{
        let mut first = true;
        loop {
            let (mut written, mut taken) = (Ok(0), 0);
            let passed: Result<Pass, Error> = match $session {
                Session::Server(conn) => pass!(conn, $held, &mut taken, |_: &[u8]| (), $output, |mut $traffic| {
                    let $space = $output.space($room);
                    written = $write;
                }),
                Session::Client(conn) => pass!(conn, $held, &mut taken, |_: &[u8]| (), $output, |mut $traffic| {
                    let $space = $output.space($room);
                    written = $write;
                }),
            };
            passed?;
            match written {
                Ok(written) => {
                    $output.fill(written);
                    break Ok(());
                }
                // `$room` only accounts for the data. The refused call has moved the answer to a key update to where
                // the next pass sends it; after that the room is enough.
                Err(EncryptError::InsufficientSize(_)) if std::mem::take(&mut first) => {}
                Err(_) => break Err(Error::EncryptError),
            }
        }
    }};
}

impl Session {
    /// Takes all complete records of `input` from `*taken` on, and advances that. Plaintext goes to `plain`; what must
    /// be sent to the peer is appended to `output`.
    ///
    /// # Errors
    ///
    /// The connection has failed. [`Session::alert`] returns the alert that tells the peer why.
    pub fn pass(
        &mut self,
        input: &mut [u8],
        taken: &mut usize,
        plain: &mut dyn FnMut(&[u8]),
        output: &mut Output,
    ) -> Result<Pass, Error> {
        match self {
            Session::Server(conn) => pass!(conn, input, taken, plain, output, |_| {}),
            Session::Client(conn) => pass!(conn, input, taken, plain, output, |_| {}),
        }
    }

    /// Whether the handshake may still need a public-key operation that justifies a stack of its own. A TLS 1.3 server
    /// has done both of its operations by the time the group is agreed on; any that follow all the same (after a hello
    /// retry) are computed inline.
    pub fn may_wait(&self) -> bool {
        let tls13 = self.protocol_version() == Some(rustls::ProtocolVersion::TLSv1_3);
        !(tls13 && matches!(self, Session::Server(_)) && self.negotiated_key_exchange_group().is_some())
    }

    /// Appends the alert that rustls has queued after an error. No input is given, since the rest of what the peer sent
    /// must not be processed; and rustls is asked only while something is queued, which it returns before processing
    /// any input.
    pub fn alert(&mut self, output: &mut Output) {
        while self.wants_write() {
            match self {
                Session::Server(conn) => queued(conn.process_tls_records(&mut []), output),
                Session::Client(conn) => queued(conn.process_tls_records(&mut []), output),
            }
        }
    }

    /// Encrypts `data` to the end of `output`. `held` is the start of an incomplete record: rustls keeps offsets into
    /// it (a handshake message may span records), so it must be passed in every call.
    ///
    /// # Errors
    ///
    /// If the connection may no longer send.
    pub fn encrypt(&mut self, held: &mut [u8], data: &[u8], output: &mut Output) -> Result<(), Error> {
        let records = data.len().div_ceil(RECORD_PLAIN).max(1);
        let room = data.len() + records * RECORD_EXTRA;
        write_traffic!(self, held, room, output, |to, space| to.encrypt(data, space))
    }

    /// Appends our close_notify to `output`.
    ///
    /// # Errors
    ///
    /// If the connection may no longer send.
    pub fn close_notify(&mut self, held: &mut [u8], output: &mut Output) -> Result<(), Error> {
        write_traffic!(self, held, ALERT_ROOM, output, |to, space| to.queue_close_notify(space))
    }
}

/// Takes one item that rustls has queued.
fn queued<Data>(status: UnbufferedStatus<'_, '_, Data>, output: &mut Output) {
    match status.state {
        Ok(ConnectionState::EncodeTlsData(mut data)) => encode(output, |room| data.encode(room)),
        // Plaintext from before the error, which comes first. It will not be read.
        Ok(ConnectionState::ReadTraffic(mut traffic)) => while traffic.next_record().is_some() {},
        _ => {}
    }
}

fn encode(output: &mut Output, mut write: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>) {
    // rustls only tells the size by refusing.
    if let Err(EncodeError::InsufficientSize(need)) = write(&mut []) {
        let written = write(output.space(need.required_size));
        output.fill(written.unwrap_or(0));
    }
}
