//! Servers that receive the lines of rings, over TCP or TLS. A server that cannot be reached or takes nothing receives
//! the lines later, if newer ones have not overwritten them by then.

use super::ring::{Reader, Sink};
use crate::connection::wire::Wire;
use penstock_config::{
    Config, Diagnostics,
    model::{RingServer, ServerHost},
};
use penstock_tls::{Connector, Disk, Store};
use std::{
    io,
    net::{SocketAddr, ToSocketAddrs},
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::watch,
    time::timeout,
};

/// The pause between two connections to a server, as in HAProxy.
const RECONNECT: Duration = Duration::from_secs(1);
/// A limit that is not set.
const UNLIMITED: Duration = Duration::from_secs(86400 * 365);

/// Writes a line about the process to its log, with a severity.
pub(crate) type Tell<'a> = &'a dyn Fn(u8, String);

/// A server that receives the lines of a ring.
pub(crate) struct Receiver {
    ring: Arc<Sink>,
    server: RingServer,
    address: SocketAddr,
    connector: Option<Connector>,
    connect: Duration,
    idle: Duration,
}

impl Receiver {
    /// The servers of all rings; `None` if the configuration has errors, which are added to `diagnostics`.
    pub fn all(
        config: &Config,
        rings: &[Arc<Sink>],
        certificates: &Store,
        diagnostics: &mut Diagnostics,
    ) -> Option<Vec<Receiver>> {
        let mut all = Vec::new();
        let mut complete = true;
        for section in &config.rings {
            let Some(ring) = rings.iter().find(|ring| ring.name == section.name) else { continue };
            for server in &section.servers {
                let connector = server.settings.prepared_tls().and_then(|tls| {
                    let built = Connector::build(tls, server.span, certificates, &Disk, diagnostics);
                    complete &= built.is_some();
                    built
                });
                let host = match &server.host {
                    ServerHost::Ip(ip) => ip.to_string(),
                    ServerHost::Name(name) => name.clone(),
                    // The configuration has none of these.
                    ServerHost::Unix(_) | ServerHost::Abstract(_) => continue,
                };
                let found = (host.as_str(), server.port).to_socket_addrs().ok().and_then(|mut found| found.next());
                let Some(address) = found else {
                    let message = format!("the address '{host}' of the server '{}' cannot be resolved", server.name);
                    diagnostics.error(server.span, message).hint("give its IP address");
                    complete = false;
                    continue;
                };
                all.push(Receiver {
                    ring: ring.clone(),
                    server: server.clone(),
                    address,
                    connector,
                    connect: section.connect.unwrap_or(UNLIMITED),
                    idle: section.server.unwrap_or(UNLIMITED),
                });
            }
        }
        complete.then_some(all)
    }

    /// Carries lines until there will be no more. Once `over` says that the process ends, a connection that fails is the last.
    pub async fn run(&self, tell: Tell<'_>, mut over: watch::Receiver<bool>) {
        let framing = self.server.settings.log_proto.unwrap_or_default();
        let mut reader = Reader::new(self.ring.clone(), framing, false);
        let mut is_reported = false;
        loop {
            let ended = match timeout(self.connect, self.open())
                .await
                .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            {
                Ok(wire) => {
                    if std::mem::take(&mut is_reported) {
                        self.log(tell, 5, "is connected again");
                    }
                    self.carry(wire, &mut reader).await
                }
                Err(error) => Err(error),
            };
            let Err(error) = ended else { return };
            if !std::mem::replace(&mut is_reported, true) {
                self.log(tell, 4, &format!("receives nothing: {error}"));
            }
            reader.rewind();
            if timeout(RECONNECT, over.wait_for(|over| *over)).await.is_ok() {
                return;
            }
        }
    }

    async fn open(&self) -> io::Result<Box<dyn Wire>> {
        let stream = TcpStream::connect(self.address).await?;
        let _ = stream.set_nodelay(true);
        Ok(match &self.connector {
            None => Box::new(stream),
            Some(connector) => Box::new(
                connector.connect(stream, None).await.map_err(|error| io::Error::other(error.message().to_owned()))?,
            ),
        })
    }

    /// Sends lines until the connection ends, which is an error, or the ring.
    async fn carry(&self, wire: Box<dyn Wire>, reader: &mut Reader) -> io::Result<()> {
        let (mut input, mut output) = tokio::io::split(wire);
        // A log server says nothing; whatever it says is dropped.
        let mut ignored = [0; 1024];
        let leaves = async {
            loop {
                match input.read(&mut ignored).await {
                    Ok(0) => return io::Error::new(io::ErrorKind::ConnectionAborted, "it closed the connection"),
                    Ok(_) => {}
                    Err(error) => return error,
                }
            }
        };
        let sends = async {
            while reader.wait().await {
                let written = timeout(self.idle, async {
                    let written = output.write(reader.pending()).await?;
                    output.flush().await.map(|()| written)
                });
                match written
                    .await
                    .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "it does not read")))?
                {
                    0 => return Err(io::ErrorKind::WriteZero.into()),
                    written => reader.take(written),
                }
            }
            output.shutdown().await
        };
        tokio::select! {
            biased;
            sent = sends => sent,
            error = leaves => Err(error),
        }
    }

    fn log(&self, tell: Tell<'_>, severity: u8, what: &str) {
        tell(severity, format!("Ring {}: the server {} {what}", self.ring.name, self.server.name));
    }
}
