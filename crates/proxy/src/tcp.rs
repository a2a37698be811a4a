//! `mode tcp`: bytes both ways, each direction ended by itself.

use crate::{conn::Conn, stream::Stream};

/// Serves a connection to its end.
pub(crate) async fn run(_conn: Conn, _stream: Stream) {}
