//! A client of a stats socket: moves bytes between it and its session.

use super::{Entrance, Hub, audit::Audit};
use penstock_admin::{
    command::Piece,
    kept::{Given, KeptChanges},
};
use penstock_config::syslog;
use penstock_control::{Certificates, Command, Inside, Process, Request, Session, Severity, Step};
use penstock_proxy::handover;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{RecvFlags, recv},
};
use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UnixStream},
    time::timeout,
};

/// How much of an answer is gathered before it is sent.
const GATHERED: usize = 16 << 10;

/// How often to check whether a waiting client is still there.
const LOOK: Duration = Duration::from_secs(1);

/// How much of a client's further input is read, and for how long, so that it receives its last answer.
const LINGER_BYTES: usize = 1 << 20;
const LINGER_TIME: Duration = Duration::from_secs(1);

/// A client.
pub struct Client {
    stream: Stream,
    /// The client's name in the audit log.
    who: String,
}

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// Counts a client from its command to the end of the answer.
struct Answering(Arc<AtomicUsize>);

impl Answering {
    fn begin(count: &Arc<AtomicUsize>) -> Answering {
        count.fetch_add(1, Ordering::AcqRel);
        Answering(count.clone())
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Why a conversation ended early.
enum Gone {
    /// The client left, or was silent for too long.
    Left,
}

impl Client {
    /// A client on a unix socket.
    pub fn unix(stream: UnixStream) -> io::Result<Client> {
        let who = match stream.peer_cred() {
            Ok(peer) => format!("pid {} uid {}", peer.pid().unwrap_or(0), peer.uid()),
            Err(_) => "somebody".into(),
        };
        Ok(Client { stream: Stream::Unix(stream), who })
    }

    /// A client that came through the master, on a socket pair.
    ///
    /// # Errors
    /// If the socket cannot be made non-blocking or registered.
    pub fn of_master(stream: std::os::unix::net::UnixStream) -> io::Result<Client> {
        stream.set_nonblocking(true)?;
        Ok(Client { stream: Stream::Unix(UnixStream::from_std(stream)?), who: "a client of the master".into() })
    }

    /// A client on a TCP socket.
    ///
    /// # Errors
    /// If the connection is gone.
    pub fn tcp(stream: TcpStream, peer: SocketAddr) -> io::Result<Client> {
        stream.set_nodelay(true)?;
        Ok(Client { stream: Stream::Tcp(stream), who: peer.to_string() })
    }
}

impl Stream {
    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.read(buffer).await,
            Stream::Tcp(stream) => stream.read(buffer).await,
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.write(bytes).await,
            Stream::Tcp(stream) => stream.write(bytes).await,
        }
    }

    async fn shutdown(&mut self) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.shutdown().await,
            Stream::Tcp(stream) => stream.shutdown().await,
        }
    }

    /// Waits until something comes, or nothing more will, and drops it.
    async fn dropped_input(&self) {
        let _ = match self {
            Stream::Unix(stream) => stream.readable().await,
            Stream::Tcp(stream) => stream.readable().await,
        };
        let _ = recv(self.fd(), &mut [0; 4096][..], RecvFlags::DONTWAIT);
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Unix(stream) => stream.as_fd(),
            Stream::Tcp(stream) => stream.as_fd(),
        }
    }

    /// Whether both directions are closed. A client that has finished sending may still wait for answers.
    fn is_gone(&self) -> bool {
        let mut watched = [PollFd::from_borrowed_fd(self.fd(), PollFlags::empty())];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut watched, Some(&at_once)).is_ok_and(|ready| ready > 0)
    }
}

/// Runs the whole conversation with a client.
pub async fn converse(hub: Rc<Hub>, entrance: Rc<Entrance>, mut client: Client) {
    hub.executor.handle.count_operator();
    let mut session = Session::new(entrance.settings);
    let uptime = || hub.executor.handle.started().elapsed();
    let mut buffer = vec![0; 4096];
    let mut answering = None;
    loop {
        let step = session.step(uptime());
        match step {
            Step::Run(_) => {
                answering.get_or_insert_with(|| Answering::begin(&hub.answering));
            }
            Step::Read => answering = None,
            _ => {}
        }
        let ended = match step {
            Step::Run(Request { command: Command::Process(Process::GiveListeners), .. }) => {
                match client.stream {
                    Stream::Unix(stream) if entrance.exposes => give(&hub, stream).await,
                    // Treated like an unknown command.
                    _ => {}
                }
                break;
            }
            // A command that changes something is still carried out; one that only shows something is dropped, since nobody
            // would see the result.
            Step::Run(request) if request.changes.is_none() && client.stream.is_gone() => break,
            Step::Run(request) => {
                let answered = answer(&hub, &entrance, &mut client, &mut session, request).await;
                session.finish(uptime());
                answered
            }
            Step::Send => send(&mut client.stream, &mut session, 0).await,
            Step::Finish => {
                session.finish(uptime());
                Ok(())
            }
            Step::Read => read(&mut client.stream, &mut session, &mut buffer).await,
            Step::Look => look(&mut client.stream, &mut session, &mut buffer).await,
            Step::Close => {
                if send(&mut client.stream, &mut session, 0).await.is_ok() {
                    linger(&mut client.stream, &mut buffer).await;
                }
                break;
            }
        };
        if ended.is_err() {
            break;
        }
    }
}

/// Carries out a command, and sends its answer piece by piece.
async fn answer(
    hub: &Hub,
    entrance: &Entrance,
    client: &mut Client,
    session: &mut Session,
    request: Request,
) -> Result<(), Gone> {
    let mut audit = Audit::of(&request);
    let keeps = hub.changes.as_ref().filter(|_| KeptChanges::concerns(&request.command));
    // Others wait for the file meanwhile, but not for a responder that may take its time.
    let asks = matches!(request.command, Command::Certificates(Certificates::UpdateResponse(_)));
    let mut keeper = match keeps.filter(|_| !asks) {
        Some(changes) => Some(changes.lock().await),
        None => None,
    };
    if let Some(changes) = &mut keeper
        && let Err(sentence) = changes.begin().await
    {
        session.say(Severity::Error, &sentence);
        return Ok(());
    }
    let kept =
        keeps.is_some().then(|| (request.command.clone(), Given { words: request.words, payload: request.payload }));
    let follows = matches!(request.command, Command::Inside(Inside::Events { wait: true, .. }));
    let stopped = follows && session.drop_input();
    let mut refused = false;
    let mut answer = hub.executor.execute(request.command, request.level);
    let ended = loop {
        let piece = tokio::select! {
            biased;
            piece = answer.next() => piece,
            // Whatever the client sends ends what would go on for ever, and so does its having sent everything.
            () = std::future::ready(()), if stopped => break Ok(()),
            () = client.stream.dropped_input(), if follows => break Ok(()),
            () = tokio::time::sleep(LOOK) => {
                // The available part of a slow answer is shown. A client that reads nothing must not keep the file locked.
                let sent = if keeper.is_some() { Ok(()) } else { send(&mut client.stream, session, 0).await };
                if sent.is_err() || client.stream.is_gone() {
                    break Err(Gone::Left);
                }
                continue;
            }
        };
        let Some(piece) = piece else { break Ok(()) };
        if let Some(audit) = &mut audit {
            audit.piece(&piece);
        }
        match piece {
            Piece::Say(severity, sentence) => {
                refused |= severity as u8 <= Severity::Error as u8;
                session.say(severity, &sentence);
            }
            Piece::Data(data) => session.write(&data),
        }
        // A search that finds nothing produces many empty pieces.
        let gathered = if follows { 0 } else { GATHERED };
        let sent = if keeper.is_some() { Ok(()) } else { send(&mut client.stream, session, gathered).await };
        if sent.is_err() || client.stream.is_gone() {
            break Err(Gone::Left);
        }
    };
    answer.end().await;
    if asks
        && !refused
        && let Some(changes) = keeps
    {
        keeper = Some(changes.lock().await);
    }
    if let (Some(changes), Some((command, given))) = (&mut keeper, kept) {
        let begun = if asks { changes.begin().await } else { Ok(()) };
        let written = begun.and_then(|()| if refused { Ok(()) } else { changes.record(&command, given) });
        changes.unlock();
        if let Err(sentence) = written {
            session.say(Severity::Warning, &sentence);
        }
    }
    drop(keeper);
    if let Some(audit) = audit {
        let text = audit.line(&client.who, &entrance.address, ended.is_err());
        hub.executor.handle.log(syslog::NOTICE, text);
    }
    ended
}

/// Sends output until no more than `left` bytes remain, as fast as the client reads.
async fn send(stream: &mut Stream, session: &mut Session, left: usize) -> Result<(), Gone> {
    while session.output().len() > left {
        match timeout(session.timeout(), stream.write(session.output())).await {
            Ok(Ok(written)) if written > 0 => session.sent(written),
            _ => return Err(Gone::Left),
        }
    }
    Ok(())
}

/// Sends pending output, and reads input.
async fn read(stream: &mut Stream, session: &mut Session, buffer: &mut [u8]) -> Result<(), Gone> {
    send(stream, session, 0).await?;
    let room = session.room().min(buffer.len());
    match timeout(session.timeout(), stream.read(&mut buffer[..room])).await {
        Ok(Ok(0)) => session.end_input(),
        Ok(Ok(received)) => drop(session.receive(&buffer[..received])),
        _ => return Err(Gone::Left),
    }
    Ok(())
}

/// Sends what there is, and takes what has come without waiting for it. An end or an error counts as nothing.
async fn look(stream: &mut Stream, session: &mut Session, buffer: &mut [u8]) -> Result<(), Gone> {
    send(stream, session, 0).await?;
    let room = session.room().min(buffer.len());
    match recv(stream.fd(), &mut buffer[..room], RecvFlags::DONTWAIT) {
        Ok((received @ 1.., _)) => drop(session.receive(&buffer[..received])),
        _ => session.nothing_came(),
    }
    Ok(())
}

/// Lets the client receive its last answer, which would be lost if the socket was closed with unread input.
async fn linger(stream: &mut Stream, buffer: &mut [u8]) {
    if stream.shutdown().await.is_err() {
        return;
    }
    let mut left = LINGER_BYTES;
    let _ = timeout(LINGER_TIME, async {
        while let Ok(received @ 1..) = stream.read(buffer).await
            && left > received
        {
            left -= received;
        }
    })
    .await;
}

/// Passes the listening sockets to a client, on a thread of its own since the exchange is blocking.
async fn give(hub: &Hub, stream: UnixStream) {
    let mut copies = hub.copies.lock().await;
    let Ok(stream) = stream.into_std() else { return };
    let taken = std::mem::take(&mut *copies);
    let shared = hub.executor.handle.shared().clone();
    let given = tokio::task::spawn_blocking(move || {
        // A client that fails may ask again.
        let _ = stream.set_nonblocking(false).and_then(|()| handover::answer(&stream, &taken, &shared.namespaces));
        taken
    });
    *copies = given.await.unwrap_or_default();
}
