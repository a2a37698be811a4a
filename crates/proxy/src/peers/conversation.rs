//! One connection with a peer: handshake, and then a session until it ends.

use super::{tables::Tables, thread::Running};
use crate::connection::wire::Wire;
use penstock_peers::{Flaw, Hello, HelloReader, HelloStatus, PeerEvent, PeerSession, read_status, write_status};
use penstock_rules::table::Entry;
use std::{cell::RefCell, io, rc::Rc, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::Notify,
    time::{sleep, timeout},
};

/// How long each step of a handshake may take, and how long a peer may not read.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// How long an error's message may take to leave.
const FAREWELL: Duration = Duration::from_secs(1);
/// Bytes read at a time.
const READ: usize = 16 * 1024;

/// A session, which operators look at while it runs.
pub(super) type Shared = Rc<RefCell<PeerSession<Arc<Entry>>>>;

/// Why a connection has ended.
#[derive(Debug)]
pub(super) enum End {
    /// The peer closed it.
    Closed,
    /// Reading or writing failed.
    Failed(io::Error),
    /// The peer broke the protocol.
    Flaw(Flaw),
    /// The peer said nothing for too long.
    Silent,
    /// The peer did not read.
    Stalled,
    /// The successor has received everything.
    Confirmed,
    /// A newer connection with this peer has taken its place.
    Replaced,
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            End::Closed => f.write_str("it closed the connection"),
            End::Failed(error) => write!(f, "{error}"),
            End::Flaw(flaw) => write!(f, "it breaks the protocol: {flaw}"),
            End::Silent => f.write_str("it says nothing"),
            End::Stalled => f.write_str("it does not read"),
            End::Confirmed => f.write_str("it has everything"),
            End::Replaced => f.write_str("there is a newer connection"),
        }
    }
}

/// What a handshake has left: bytes that belong to the session.
pub(super) type Rest = Vec<u8>;

/// Says hello; returns the status, and what came after it.
pub(super) async fn greet(wire: &mut Box<dyn Wire>, hello: &Hello) -> Result<(HelloStatus, Rest), End> {
    let mut out = Vec::new();
    hello.write(&mut out);
    send(wire, &out).await?;
    let mut input = Vec::new();
    loop {
        let mut rest = &input[..];
        if let Some(status) = read_status(&mut rest).map_err(End::Flaw)? {
            return Ok((status, rest.to_vec()));
        }
        if wire.read_buf(&mut input).await.map_err(End::Failed)? == 0 {
            return Err(End::Closed);
        }
    }
}

/// Reads a hello. `Err` holds the status to answer with, if there is one.
pub(super) async fn greeted(wire: &mut Box<dyn Wire>) -> Result<(Hello, Rest), Option<HelloStatus>> {
    let mut reader = HelloReader::default();
    let mut buffer = [0; 1024];
    loop {
        let read = wire.read(&mut buffer).await.map_err(|_| None)?;
        if read == 0 {
            return Err(None);
        }
        let mut input = &buffer[..read];
        if let Some(hello) = reader.input(&mut input).map_err(Some)? {
            return Ok((hello, input.to_vec()));
        }
    }
}

/// Sends a status line.
pub(super) async fn answer(wire: &mut Box<dyn Wire>, status: HelloStatus) -> Result<(), End> {
    let mut out = Vec::new();
    write_status(status, &mut out);
    send(wire, &out).await
}

async fn send(wire: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Result<(), End> {
    let sending = async {
        wire.write_all(bytes).await?;
        wire.flush().await
    };
    timeout(PATIENCE, sending).await.map_err(|_| End::Stalled)?.map_err(End::Failed)
}

/// Runs a session until it ends. `turn` wakes its writer.
pub(super) async fn run(
    running: &Running,
    peer: usize,
    wire: Box<dyn Wire>,
    rest: Rest,
    session: &Shared,
    turn: &Notify,
    stop: &Notify,
) -> End {
    let tables = &running.section().tables;
    let (mut reader, mut writer) = tokio::io::split(wire);
    let end = tokio::select! {
        end = read(running, peer, &mut reader, rest, session, turn) => end,
        end = write(running, &mut writer, session, turn, tables) => end,
        () = stop.notified() => End::Replaced,
    };
    if let End::Flaw(flaw) = &end {
        let _ = timeout(FAREWELL, send(&mut writer, flaw.farewell())).await;
    }
    let _ = timeout(FAREWELL, writer.shutdown()).await;
    end
}

async fn read(
    running: &Running,
    peer: usize,
    reader: &mut (impl AsyncRead + Unpin),
    mut input: Rest,
    session: &Shared,
    turn: &Notify,
) -> End {
    let tables = &running.section().tables;
    let mut buffer = vec![0; READ];
    loop {
        if !input.is_empty() {
            let events = match session.borrow_mut().input(&input, &**tables, running.now()) {
                Ok(events) => events,
                Err(flaw) => return End::Flaw(flaw),
            };
            for event in events {
                match event {
                    PeerEvent::Taught { finished } => running.taught(peer, finished),
                    PeerEvent::Confirmed if running.is_ending() => return End::Confirmed,
                    PeerEvent::Confirmed => {}
                }
            }
            turn.notify_one();
            // One that never pauses does not keep the others from their turns.
            tokio::task::yield_now().await;
        }
        match reader.read(&mut buffer).await {
            Ok(0) => return End::Closed,
            Ok(read) => {
                input.clear();
                input.extend_from_slice(&buffer[..read]);
            }
            Err(error) => return End::Failed(error),
        }
    }
}

async fn write(
    running: &Running,
    writer: &mut (impl AsyncWrite + Unpin),
    session: &Shared,
    turn: &Notify,
    tables: &Tables,
) -> End {
    let mut changes = running.changes();
    let mut out = Vec::new();
    loop {
        changes.borrow_and_update();
        let (now, most) = (running.now(), running.updates_max());
        let more = session.borrow_mut().produce(tables, most, running.is_up_to_date(), now, &mut out);
        if session.borrow().is_dead(now) {
            return End::Silent;
        }
        if !out.is_empty() {
            if let Err(end) = send(writer, &out).await {
                return end;
            }
            out.clear();
        }
        if more {
            tokio::task::yield_now().await;
            continue;
        }
        let left = session.borrow().left(now).max(1);
        tokio::select! {
            () = turn.notified() => {}
            changed = changes.changed() => if changed.is_err() { return End::Closed },
            () = sleep(Duration::from_millis(left)) => {}
        }
    }
}
