//! A connection that has been accepted and is not served yet, on its own worker or on its way to another.

use crate::{
    connection::socket::Socket,
    process::{fault::broken, shared::Place},
};
use penstock_config::model::ProxyId;
use tokio::{net::TcpStream, time::Instant};

/// A connection from which nothing has been read.
pub(crate) struct Accepted {
    pub socket: Socket,
    pub place: Place,
    pub proxy: ProxyId,
    pub bind: usize,
    pub accepted: Instant,
}

/// A connection on its way to another worker.
pub(crate) struct Moved {
    socket: std::net::TcpStream,
    place: Place,
    proxy: ProxyId,
    bind: usize,
    accepted: Instant,
}

impl Accepted {
    /// Moves the connection from this worker's reactor to worker `to`. Unix sockets stay, since their listening socket
    /// is shared by all workers.
    ///
    /// # Errors
    /// The connection itself, if it has to stay.
    #[allow(clippy::result_large_err, reason = "what cannot be moved is given back whole, once a connection at most")]
    pub fn into_moved(self, to: usize) -> Result<Moved, Accepted> {
        let Accepted { socket, mut place, proxy, bind, accepted } = self;
        match socket {
            // This fails only if the descriptor is not open; then the connection is lost anyway.
            Socket::Tcp(tcp) => match tcp.into_inner().into_std() {
                Ok(socket) => {
                    place.move_to(to);
                    Ok(Moved { socket, place, proxy, bind, accepted })
                }
                Err(e) => broken(&format!("an open socket cannot leave its reactor: {e}")),
            },
            socket => Err(Accepted { socket, place, proxy, bind, accepted }),
        }
    }
}

impl Moved {
    /// Registers the connection with this worker's reactor. `None` if there is not enough memory or no descriptor for
    /// that; the client then sees its connection closed.
    pub fn arrive(self) -> Option<Accepted> {
        let Moved { socket, place, proxy, bind, accepted } = self;
        let stream = TcpStream::from_std(socket).ok()?;
        Some(Accepted { socket: Socket::from(stream), place, proxy, bind, accepted })
    }
}
