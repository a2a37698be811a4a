//! The counters `h1_*` and `h2_*`: connections, streams, bytes and frames of a section's HTTP connections, as HAProxy's
//! multiplexers count them.

use super::counters::{Cells, Count, Counters};
use penstock_config::model::ProxyId;
use std::sync::Arc;

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// The side of a section on which a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Frontend,
    Backend,
}

/// A connection that counts as open until this is dropped.
pub(crate) struct Tally {
    counters: Arc<Counters>,
    proxy: ProxyId,
    /// Every idle connection has one of these: 16 bits keep it small, and there are at most 4,096 workers.
    worker: u16,
    side: Side,
    protocol: Protocol,
}

impl Tally {
    /// Counts a new connection of this worker.
    pub fn new(counters: Arc<Counters>, worker: usize, proxy: ProxyId, side: Side, protocol: Protocol) -> Tally {
        let tally = Tally { counters, proxy, worker: worker as u16, side, protocol };
        let (open, total) = connections(tally.cells(), protocol);
        open.inc();
        total.inc();
        tally
    }
    fn cells(&self) -> &Cells {
        let counters = self.counters.worker(self.worker.into());
        match self.side {
            Side::Frontend => counters.frontend(self.proxy),
            Side::Backend => counters.backend(self.proxy),
        }
    }
    /// Counts bytes of an HTTP/1 connection.
    pub fn moved(&self, received: u64, sent: u64) {
        let cells = self.cells();
        cells.h1_bytes_in.add(received);
        cells.h1_bytes_out.add(sent);
    }
    /// Counts a frame of this type that an HTTP/2 connection has received.
    pub fn received_frame(&self, kind: u8) {
        let cells = self.cells();
        match kind {
            0 => cells.h2_data_received.inc(),
            1 => cells.h2_headers_received.inc(),
            3 => cells.h2_resets_received.inc(),
            4 => cells.h2_settings_received.inc(),
            7 => cells.h2_goaways_received.inc(),
            _ => {}
        }
    }
    /// Counts an RST_STREAM frame that was sent, and whether it tells the peer that it broke the protocol.
    pub fn sent_reset(&self, is_error: bool) {
        let cells = self.cells();
        cells.h2_resets_sent.inc();
        cells.h2_stream_errors.add(is_error.into());
    }
    /// Counts a GOAWAY frame that was sent, likewise.
    pub fn sent_goaway(&self, is_error: bool) {
        let cells = self.cells();
        cells.h2_goaways_sent.inc();
        cells.h2_connection_errors.add(is_error.into());
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        connections(self.cells(), self.protocol).0.dec();
    }
}

fn connections(cells: &Cells, protocol: Protocol) -> (&Count, &Count) {
    match protocol {
        Protocol::Http1 => (&cells.h1_open_connections, &cells.h1_total_connections),
        Protocol::Http2 => (&cells.h2_open_connections, &cells.h2_total_connections),
    }
}

/// An exchange that counts as running until this is dropped.
pub(crate) struct Running<'a>(&'a Count);

impl<'a> Running<'a> {
    /// Counts a new exchange, in the cells of a frontend or a backend.
    pub fn new(cells: &'a Cells, protocol: Protocol) -> Running<'a> {
        let (open, total) = match protocol {
            Protocol::Http1 => (&cells.h1_open_streams, &cells.h1_total_streams),
            Protocol::Http2 => (&cells.h2_open_streams, &cells.h2_total_streams),
        };
        open.inc();
        total.inc();
        Running(open)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}
