//! An agent's side: one test at a time, for every controller that it trusts.

use super::channel::{Channel, Identity};
use super::protocol::Message;
use super::{Address, Error};
use crate::load::{Ready, Source, Stop};
use rustls::ServerConfig;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest silence of the controller.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// How long to wait for a message between two seconds of a test.
const GLANCE: Duration = Duration::from_millis(1);

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// An agent that listens.
pub struct Agent {
    listener: Listener,
    tls: Option<Arc<ServerConfig>>,
    sources: Vec<Source>,
    address: Address,
}

/// Opens the socket. Connections come from `sources`, where the plan names none.
///
/// # Errors
/// If the address cannot be bound, or it would be open to others without mutual TLS.
pub fn serve(address: &Address, identity: Option<&Identity>, sources: Vec<Source>) -> Result<Agent, Error> {
    let tls = identity.map(Identity::server).transpose()?;
    let failed = |e: std::io::Error| Error::Setup(format!("cannot listen on {address}: {e}"));
    let mut bound = address.clone();
    let listener = match address {
        Address::Unix(path) => {
            // What a former agent left behind.
            let _ = std::fs::remove_file(path);
            Listener::Unix(UnixListener::bind(path).map_err(failed)?)
        }
        Address::Tcp { host, port } => {
            let found = Address::resolve(host, *port).map_err(|why| Error::Agent(address.to_string(), why))?;
            if tls.is_none() && !found.iter().all(|one| one.ip().is_loopback()) {
                return Err(Error::Setup(format!(
                    "{address} can be reached from other machines, and anyone who reaches an agent can make it flood a third: \
                     give --ca, --cert and --key (penstock bench certs makes them), or listen on 127.0.0.1 or unix:PATH"
                )));
            }
            let listener = TcpListener::bind(&found[..]).map_err(failed)?;
            if let Ok(local) = listener.local_addr() {
                bound = Address::Tcp { host: host.clone(), port: local.port() };
            }
            Listener::Tcp(listener)
        }
    };
    Ok(Agent { listener, tls, sources, address: bound })
}

impl Agent {
    /// The address on which the agent listens.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Carries out tests, one after the other, and says what became of each; ends when the next one cannot be accepted.
    ///
    /// # Errors
    /// The socket broke.
    pub fn run(&self, stop: &Stop, say: &mut dyn FnMut(&str)) -> Result<(), Error> {
        loop {
            match self.accept() {
                Ok(channel) => match self.test(channel, stop) {
                    Ok(outcome) => say(&outcome),
                    Err(why) => say(&format!("a test failed: {why}")),
                },
                Err(why) => say(&format!("the controller that connected is turned away: {why}")),
            }
            if stop.is_stopped() {
                return Ok(());
            }
        }
    }

    fn accept(&self) -> Result<Channel, String> {
        match &self.listener {
            Listener::Tcp(listener) => {
                let (socket, _) = listener.accept().map_err(|e| e.to_string())?;
                Channel::accept(socket, self.tls.as_ref())
            }
            Listener::Unix(listener) => {
                let (socket, _) = listener.accept().map_err(|e| e.to_string())?;
                Ok(Channel::accept_unix(socket))
            }
        }
    }

    fn test(&self, mut channel: Channel, stop: &Stop) -> Result<String, String> {
        channel.send(&Message::hello())?;
        match next(&mut channel)? {
            Message::Hello { protocol, version } => {
                if let Some(why) = Message::refusal(protocol, &version) {
                    return Err(why);
                }
            }
            _ => return Err("it did not say who it is".into()),
        }
        let Message::Prepare(mut plan) = next(&mut channel)? else { return Err("it did not say what to do".into()) };
        if plan.sources.is_empty() {
            plan.sources.clone_from(&self.sources);
        }
        let ready = match Ready::new(&plan) {
            Ok(ready) => ready,
            Err(why) => {
                channel.send(&Message::Failed(why.to_string()))?;
                return Err(why.to_string());
            }
        };
        channel.send(&Message::Prepared)?;
        let due = loop {
            match next(&mut channel)? {
                Message::Ping => channel.send(&Message::Ping)?,
                Message::Start { after_us } => break Instant::now() + Duration::from_micros(after_us),
                Message::Stop => return Ok("a test was called off".into()),
                _ => return Err("it said something out of turn".into()),
            }
        };
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let late_by = due.elapsed().as_secs_f64();
        // A test whose controller is gone is ended; the agent's own stop ends it too.
        let ended = stop.child();
        let report = ready.run(&ended, &mut |second| {
            let gone = channel.send(&Message::Second(second.clone())).is_err();
            if gone || matches!(channel.receive(GLANCE), Ok(Some(Message::Stop)) | Err(_)) {
                ended.stop();
            }
        });
        let report = report.map_err(|why| {
            let _ = channel.send(&Message::Failed(why.to_string()));
            why.to_string()
        })?;
        let outcome = format!("{} {} in {:.1} s", report.totals.done, plan.mode.units(), report.seconds);
        channel.send(&Message::Report { report: Box::new(report), late_by })?;
        Ok(outcome)
    }
}

fn next(channel: &mut Channel) -> Result<Message, String> {
    channel.receive(SILENCE_MAX)?.ok_or_else(|| "it said nothing for a minute".into())
}
