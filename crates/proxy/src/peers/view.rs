//! What operators see of peers.

use std::net::SocketAddr;

/// The state of a `peers` section.
#[derive(Clone, Debug, Default)]
pub struct PeersView {
    /// The section's place in the configuration.
    pub section: usize,
    /// What a process waits for after its start: `local`, `remote`, or `done`.
    pub resync: &'static str,
    /// Milliseconds until it no longer does.
    pub resync_left: Option<u64>,
    /// Whether a peer, or the process before this one, has sent everything it knew.
    pub is_taught: bool,
    /// The peers, this process included.
    pub peers: Vec<PeerView>,
}

/// The state of a peer.
#[derive(Clone, Debug, Default)]
pub struct PeerView {
    /// The peer's name.
    pub name: String,
    /// Whether the peer is this process.
    pub is_local: bool,
    /// The address at which this process connects to the peer.
    pub address: Option<SocketAddr>,
    /// The last status: four letters, as in HAProxy.
    pub status: &'static str,
    /// Whether there is a session.
    pub is_connected: bool,
    /// Milliseconds since the last handshake.
    pub handshake_ago: Option<u64>,
    /// Milliseconds until the next attempt to connect.
    pub reconnect_left: Option<u64>,
    /// Milliseconds until a heartbeat is due.
    pub heartbeat_left: Option<u64>,
    /// Heartbeats sent and received.
    pub heartbeats: (u64, u64),
    /// Sessions that ended because the peer said nothing.
    pub silent: u64,
    /// Sessions so far.
    pub sessions: u64,
    /// Sessions that ended because the peer broke the protocol.
    pub protocol_errors: u64,
    /// Sessions that were replaced by a newer one.
    pub collisions: u64,
    /// The tables.
    pub tables: Vec<SharedTableView>,
    /// Names sent and names received, each with its number.
    pub names: [Vec<(usize, String)>; 2],
}

/// A table, as it stands with a peer.
#[derive(Clone, Debug, Default)]
pub struct SharedTableView {
    /// The table's name.
    pub name: String,
    /// Our number of the table.
    pub local_id: usize,
    /// The peer's number of the table, 0 if it has none.
    pub remote_id: u64,
    /// The types of data that the peer sends, as bits.
    pub remote_data: u64,
    /// The last update of the peer that was acknowledged.
    pub last_acked: u32,
    /// The last change that was sent.
    pub last_pushed: u64,
    /// The last update of the peer that was received.
    pub last_get: u32,
    /// The last change that the peer acknowledged.
    pub update: u64,
    /// The newest change of the table, and the newest that some peer was told.
    pub newest: (u64, u64),
}
