//! The sockets for commands to the master (`-S`): a thread per client, of at most ten, none of which can delay the
//! master.

use super::{
    Event, Master,
    processes::Processes,
    session::{Ask, Session, Step, Target},
};
use crate::tie::{self, Level, Rights};
use penstock_config::{
    Config, Env,
    model::{ListenAddress, Source, StatsSocket},
};
use penstock_proxy::{Inherited, Listeners, Namespaces};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{Shutdown, SocketFlags, accept_with, shutdown, sockopt},
};
use std::{
    fs::File,
    io::{self, Read, Write},
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

/// The most clients at a time, as in HAProxy; further ones wait.
const CLIENTS_MAX: usize = 10;

/// How long a client waits for a worker that is being started.
const START_PATIENCE: Duration = Duration::from_secs(2);

/// How long a worker may take to read what a client sends it.
const WORKER_PATIENCE: Duration = Duration::from_secs(10);

/// Parses the addresses of `-S`: words separated by commas, as in `stats socket`, except that the default level is
/// admin.
///
/// # Errors
///
/// A sentence.
pub fn parse(addresses: &[String]) -> Result<Vec<StatsSocket>, String> {
    if addresses.iter().any(|address| address.contains(char::is_control)) {
        return Err("-S: an address has no control characters".into());
    }
    let line = |address: &String| {
        let mut words = address.split(',').map(escaped);
        let first = words.next().unwrap_or_default();
        let rest: Vec<String> = words.collect();
        format!("stats socket {first} level admin {}\n", rest.join(" "))
    };
    let text = format!("global\n{}", addresses.iter().map(line).collect::<String>());
    let files = |_: &std::path::Path| Err(io::Error::from(io::ErrorKind::NotFound));
    let env = Env {
        variables: Default::default(),
        files: &files,
        local_peer: String::new(),
        names_peer: false,
        diagnostic_mode: false,
    };
    let (config, diagnostics) = penstock_config::load(vec![Source::new("-S", text.as_bytes())], &env);
    match diagnostics.list.iter().find(|found| found.severity == penstock_config::Severity::Error) {
        Some(found) => Err(format!("-S: {}", found.message)),
        None => Ok(config.global.stats_sockets),
    }
}

/// Escapes a word for a configuration file.
fn escaped(word: &str) -> String {
    let is_special = |c| matches!(c, ' ' | '\\' | '#' | '"' | '\'');
    word.chars().flat_map(|c| [is_special(c).then_some('\\'), Some(c)]).flatten().collect()
}

/// An address in the form that HAProxy's environment variables and lists use.
pub fn name(address: &ListenAddress) -> String {
    match address {
        ListenAddress::Ip { ip, first, .. } if ip.is_ipv4() => format!("ipv4@{ip}:{first}"),
        ListenAddress::Ip { ip, first, .. } => format!("ipv6@{ip}:{first}"),
        ListenAddress::Host { host, first, .. } => format!("{host}:{first}"),
        ListenAddress::Unix(path) => format!("unix@{}", path.display()),
        ListenAddress::Abstract(name) => penstock_config::model::shown_abstract(name),
        ListenAddress::Fd(number) => format!("fd@{number}"),
    }
}

/// The listening sockets.
pub struct Doors(Vec<(OwnedFd, Level)>);

impl Doors {
    /// Opens the sockets. An address on which another process answers is left to it, unless it is to be replaced.
    ///
    /// # Errors
    ///
    /// A sentence.
    pub fn open(sockets: &[StatsSocket], replaces: bool) -> Result<Doors, String> {
        let open = |socket: &StatsSocket| {
            let mut config = Config::default();
            config.global.stats_sockets.push(socket.clone());
            let opened =
                Listeners::open(&config, &Namespaces::default(), 1, Inherited::default().taking_over(replaces));
            let opened = opened.map_err(|errors| format!("-S: {}", errors[0]))?;
            let level = socket.level;
            Ok(opened.stats.into_iter().map(move |(_, door)| (door, level)))
        };
        let opened: Result<Vec<_>, String> = sockets.iter().map(open).collect();
        Ok(Doors(opened?.into_iter().flatten().collect()))
    }

    /// Opens those whose file is gone again, as a new master of HAProxy's does at a reload, and answers on them.
    ///
    /// # Errors
    ///
    /// A sentence.
    pub fn reopen(sockets: &[StatsSocket], desk: &Desk) -> Result<(), String> {
        let is_gone = |socket: &&StatsSocket| match &socket.address {
            ListenAddress::Unix(path) => {
                std::fs::symlink_metadata(path).is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
            }
            _ => false,
        };
        let gone: Vec<StatsSocket> = sockets.iter().filter(is_gone).cloned().collect();
        let doors = Doors::open(&gone, false)?;
        doors.answer(desk.clone()).map_err(|e| format!("-S: {e}"))
    }

    /// Answers clients.
    ///
    /// # Errors
    ///
    /// If a thread for it cannot be started.
    pub fn answer(self, desk: Desk) -> io::Result<()> {
        for (door, level) in self.0 {
            rustix::io::ioctl_fionbio(&door, false)?;
            let desk = desk.clone();
            std::thread::Builder::new().name("commands".into()).spawn(move || receive(&door, level, &desk))?;
        }
        Ok(())
    }
}

/// What clients share: a channel to the master, and a list of clients.
#[derive(Clone)]
pub struct Desk {
    events: mpsc::Sender<Event>,
    sockets: Arc<Vec<String>>,
    crowd: Arc<Crowd>,
}

/// The current clients.
#[derive(Default)]
pub struct Crowd {
    clients: Mutex<Vec<Arc<Client>>>,
    changed: Condvar,
    pub reload_failed: AtomicBool,
}

/// A client, as another thread can end it.
struct Client {
    socket: OwnedFd,
    /// Whether a reload leaves it connected: it has not been told anything yet, or waits for the result of a reload.
    is_spared: AtomicBool,
}

impl Crowd {
    /// Ends clients, as a reload does.
    pub fn dismiss(&self) {
        for client in self.lock().iter().filter(|client| !client.is_spared.load(Ordering::Acquire)) {
            let _ = shutdown(&client.socket, Shutdown::Both);
        }
    }

    fn enter(&self, socket: OwnedFd) -> Arc<Client> {
        let client = Arc::new(Client { socket, is_spared: AtomicBool::new(true) });
        self.lock().push(client.clone());
        client
    }

    fn leave(&self, client: &Arc<Client>) {
        self.lock().retain(|other| !Arc::ptr_eq(other, client));
        self.changed.notify_all();
    }

    fn wait_for_room(&self) {
        let full = |clients: &mut Vec<_>| clients.len() >= CLIENTS_MAX;
        drop(self.changed.wait_while(self.lock(), full));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Client>>> {
        self.clients.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Desk {
    /// Makes a desk for this master.
    pub fn new(events: mpsc::Sender<Event>, sockets: &[StatsSocket], crowd: Arc<Crowd>) -> Desk {
        let row = |socket: &StatsSocket| format!("{} {} all", name(&socket.address), tie::word(socket.level));
        Desk { events, sockets: Arc::new(sockets.iter().map(row).collect()), crowd }
    }

    /// Asks the master; `None` if the master is ending.
    fn ask<T: Send + 'static>(&self, question: impl FnOnce(&mut Master<'_>) -> T + Send + 'static) -> Option<T> {
        let (answer, answered) = mpsc::channel();
        let ask = move |master: &mut Master<'_>| drop(answer.send(question(master)));
        self.events.send(Event::Do(Box::new(ask))).ok()?;
        answered.recv().ok()
    }

    /// The worker that a client names. One that is being started, with no other to serve, may answer on its own sockets before
    /// the master knows that it serves: it is waited for.
    fn find(&self, target: &Target) -> Option<(i32, Arc<UnixStream>)> {
        let since = Instant::now();
        loop {
            let wanted = target.clone();
            let (found, is_coming) = self.ask(move |master| (master.find(&wanted), master.awaits_first_worker()))?;
            if found.is_some() || *target != Target::Current || !is_coming || since.elapsed() > START_PATIENCE {
                return found;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn receive(door: &OwnedFd, level: Level, desk: &Desk) {
    loop {
        desk.crowd.wait_for_room();
        let Ok(stream) = accept_with(door, SocketFlags::CLOEXEC) else {
            // There may be no descriptors for a moment.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        let Ok(copy) = stream.try_clone() else { continue };
        let client = desk.crowd.enter(copy);
        let desk = desk.clone();
        let name = std::thread::Builder::new().name("client".into());
        let spawned = name.spawn({
            let (desk, client) = (desk.clone(), client.clone());
            move || {
                // If a client has gone, nothing is left to do.
                let _ = serve(&File::from(stream), &client, Session::new(level), &desk);
                desk.crowd.leave(&client);
            }
        });
        if spawned.is_err() {
            desk.crowd.leave(&client);
        }
    }
}

/// Serves one client until it or its session ends.
fn serve(mut stream: &File, client: &Client, mut session: Session, desk: &Desk) -> io::Result<()> {
    loop {
        let step = session.step(desk.crowd.reload_failed.load(Ordering::Relaxed));
        let timeout = Some(session.timeout());
        sockopt::set_socket_timeout(stream, sockopt::Timeout::Send, timeout)?;
        let output = session.take_output();
        if !output.is_empty() || matches!(step, Step::Forward { .. }) {
            client.is_spared.store(false, Ordering::Release);
        }
        stream.write_all(&output)?;
        match step {
            Step::Close => return Ok(()),
            Step::Read => {
                sockopt::set_socket_timeout(stream, sockopt::Timeout::Recv, timeout)?;
                let mut bytes = [0; 4096];
                let received = stream.read(&mut bytes)?;
                session.receive(&bytes[..received]);
            }
            Step::Ask(ask) => answer(ask, client, &mut session, desk)?,
            Step::Forward { target, text, rights, both_ways } => {
                let found = desk.find(&target);
                // A worker that is about to end accepts nothing any more.
                match found.and_then(|(_, worker)| introduced(&worker, &text, rights).ok()) {
                    Some(worker) => {
                        if !both_ways {
                            worker.shutdown(std::net::Shutdown::Write)?;
                        }
                        pass(&worker, stream, both_ways)?;
                        session.answered();
                    }
                    None => session.answer(&target.missing()),
                }
            }
        }
    }
}

fn answer(ask: Ask, client: &Client, session: &mut Session, desk: &Desk) -> io::Result<()> {
    let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
    match ask {
        Ask::Sockets => session.answer(&format!("# socket lvl processes\n{}", desk.sockets.join("\n"))),
        Ask::Processes => {
            let processes: Processes = desk.ask(|master| master.processes()).ok_or_else(gone)?;
            session.answer(&processes.to_string());
        }
        Ask::StartupLogs => session.answer(&desk.ask(|master| master.startup_log()).ok_or_else(gone)?),
        Ask::Find(target) => session.found(&target, desk.find(&target).map(|(pid, _)| pid)),
        Ask::Reload { hard } => {
            client.is_spared.store(true, Ordering::Release);
            let (sender, reloaded) = mpsc::channel();
            desk.ask(move |master| master.reload(hard, Some(sender))).ok_or_else(gone)?;
            let reloaded = reloaded.recv().map_err(|_| gone())?;
            session.answer(&format!("Success={}\n--\n{}", u8::from(reloaded.success), reloaded.log));
            session.end();
        }
    }
    Ok(())
}

/// Connects a client to a worker, which gets the client's commands.
fn introduced(worker: &UnixStream, text: &[u8], rights: Rights) -> io::Result<UnixStream> {
    let mut worker = tie::introduce(worker, rights)?;
    worker.set_write_timeout(Some(WORKER_PATIENCE))?;
    worker.write_all(text)?;
    Ok(worker)
}

/// Copies the worker's output to the client, and optionally the other way, until the worker has finished.
fn pass(mut worker: &UnixStream, mut client: &File, both_ways: bool) -> io::Result<()> {
    let mut bytes = [0; 16 << 10];
    let mut client_speaks = both_ways;
    loop {
        let wanted = if client_speaks { PollFlags::IN } else { PollFlags::empty() };
        let mut waited = [PollFd::new(worker, PollFlags::IN), PollFd::new(client, wanted)];
        rustix::io::retry_on_intr(|| poll(&mut waited, None::<&Timespec>))?;
        let [from_worker, from_client] = waited.each_ref().map(PollFd::revents);
        if from_worker.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
            match worker.read(&mut bytes) {
                // The worker has died: the client sees the end.
                Ok(0) | Err(_) => return Ok(()),
                Ok(received) => client.write_all(&bytes[..received])?,
            }
        } else if client_speaks && from_client.contains(PollFlags::IN) {
            match client.read(&mut bytes)? {
                0 => {
                    client_speaks = false;
                    worker.shutdown(std::net::Shutdown::Write)?;
                }
                received => worker.write_all(&bytes[..received])?,
            }
        } else if from_client.intersects(PollFlags::HUP | PollFlags::ERR) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_followed_by_words_with_commas() {
        let sockets = parse(&["/run/a b.sock,mode,600,level,operator".into(), "127.0.0.1:1234".into()]).unwrap();
        let seen: Vec<_> = sockets.iter().map(|s| (name(&s.address), s.mode, s.level)).collect();
        let wanted = [
            ("unix@/run/a b.sock".to_owned(), Some(0o600), Level::Operator),
            ("ipv4@127.0.0.1:1234".to_owned(), None, Level::Admin),
        ];
        assert_eq!(seen, wanted);
        assert!(parse(&["/run/a,level,god".into()]).unwrap_err().starts_with("-S: "));
        assert!(parse(&["/run/a\nstats socket /run/b".into()]).is_err());
    }
}
