//! A connection that a thread beside the workers has with a peer or a log server.

use tokio::io::{AsyncRead, AsyncWrite};

/// A connection, with or without TLS.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Wire for T {}
