//! Peers that send nonsense, in pieces, or nothing: each costs its own connection, bounded bytes, and no panic.

mod common;

use common::*;
use penstock_config::model::{ServerTls, TlsConf, TlsVersion, Verify};
use penstock_engine::{Settings, doubles::Manner};
use penstock_tls::{HandshakeError, Memory};
use proptest::{
    prelude::*,
    test_runner::{Config as Runs, TestRunner},
};
use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};

fn site() -> Memory {
    files(&[("/a.pem", &self_signed(Kind::P256, &["a.test"]))])
}

fn client(version: TlsVersion) -> penstock_tls::Connector {
    let conf = TlsConf { verify: Some(Verify::None), max_ver: Some(version), ..TlsConf::default() };
    connector(ServerTls { conf, ..ServerTls::default() }, &Memory::default())
}

/// A socket that delivers what its peer wrote one byte a read, and turns one of the bytes over.
struct Rough {
    inner: DuplexStream,
    chunk: usize,
    spoil: Option<(usize, u8)>,
    delivered: usize,
}

impl AsyncRead for Rough {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let mut piece = vec![0; self.chunk.min(buf.remaining())];
        let mut small = ReadBuf::new(&mut piece);
        std::task::ready!(Pin::new(&mut self.inner).poll_read(cx, &mut small))?;
        let read = small.filled().len();
        for (offset, byte) in piece[..read].iter_mut().enumerate() {
            if let Some((_, mask)) = self.spoil.filter(|(place, _)| *place == self.delivered + offset) {
                *byte ^= mask;
            }
        }
        self.delivered += read;
        buf.put_slice(&piece[..read]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Rough {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, data)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[test]
fn a_handshake_and_its_data_survive_any_fragmentation() {
    let files = site();
    on_worker(None, Settings::default(), async {
        for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
            for chunk in [1, 7, 4096] {
                let acceptor = acceptor(crt(&["/a.pem"]), &files);
                let (here, there) = tokio::io::duplex(1000);
                let rough = Rough { inner: here, chunk, spoil: None, delivered: 0 };
                let server = async {
                    let mut tls = acceptor.accept(rough, Vec::new()).await.unwrap();
                    let mut got = Vec::new();
                    tls.read_to_end(&mut got).await.unwrap();
                    tls.write_all(&got).await.unwrap();
                    tls.shutdown().await.unwrap();
                };
                let client = async {
                    let mut tls = client(version).connect(there, Some("a.test")).await.unwrap();
                    let sent: Vec<u8> = (0..40_000u32).map(|i| (i * 7) as u8).collect();
                    tls.write_all(&sent).await.unwrap();
                    tls.shutdown().await.unwrap();
                    let mut back = Vec::new();
                    tls.read_to_end(&mut back).await.unwrap();
                    assert!(back == sent, "{version:?} in pieces of {chunk}");
                };
                tokio::join!(server, client);
            }
        }
    });
}

#[test]
fn what_was_read_before_belongs_to_the_handshake() {
    let files = site();
    on_worker(None, Settings::default(), async {
        for taken in [1, 5, 100, usize::MAX] {
            let acceptor = acceptor(crt(&["/a.pem"]), &files);
            let (mut here, there) = tokio::io::duplex(64 * 1024);
            let server = async {
                let mut prefix = vec![0; taken.min(4096)];
                let read = here.read(&mut prefix).await.unwrap();
                prefix.truncate(read);
                acceptor.accept(here, prefix).await.map(|_| ()).unwrap();
            };
            let client = async {
                client(TlsVersion::Tls13).connect(there, Some("a.test")).await.map(|_| ()).unwrap();
            };
            tokio::join!(server, client);
        }
    });
}

#[test]
fn any_byte_turned_over_ends_that_connection_and_nothing_else() {
    let files = site();
    let mut runner = TestRunner::new(Runs { cases: 400, failure_persistence: None, ..Runs::default() });
    let manners = [None, Some(Manner::Prompt)];
    let strategy = (0usize..900, 1u8..=255, any::<[bool; 3]>());
    let outcome = runner.run(&strategy, |(place, mask, [tls13, waits, at_server])| {
        on_worker(manners[usize::from(waits)], Settings::default(), async {
            let version = if tls13 { TlsVersion::Tls13 } else { TlsVersion::Tls12 };
            let (acceptor, connector) = (acceptor(crt(&["/a.pem"]), &files), client(version));
            let (here, there) = tokio::io::duplex(64 * 1024);
            let rough = |inner, spoil| Rough { inner, chunk: 4096, spoil, delivered: 0 };
            let spoil = Some((place, mask));
            let (here, there) = match at_server {
                true => (rough(here, spoil), rough(there, None)),
                false => (rough(here, None), rough(there, spoil)),
            };
            // Success is possible: some bytes do not matter, and some come after the handshake. Wrong data is not, nor a
            // panic. A length made longer has one side wait for bytes that never come, until its caller's time is up.
            let server = async { talk(acceptor.accept(here, Vec::new()).await, b"answer", b"question").await };
            let client = async { talk(connector.connect(there, Some("a.test")).await, b"question", b"answer").await };
            let both = async { tokio::join!(server, client) };
            if let Ok((server, client)) = tokio::time::timeout(Duration::from_millis(300), both).await {
                prop_assert!(server && client);
            }
            Ok(())
        })
    });
    outcome.unwrap();
}

/// Says its piece and listens; false when anything but an error or the right words came of it.
async fn talk(opened: Result<penstock_tls::TlsStream<Rough>, HandshakeError>, say: &[u8], expect: &[u8]) -> bool {
    let mut tls = match opened {
        Ok(tls) => tls,
        Err(error) => return !matches!(error, HandshakeError::Internal(_)),
    };
    let _ = tls.write_all(say).await;
    // A byte more than there is, so that the end is seen too. Our own half stays open: rustls 0.23 has a debug assertion
    // against an alert after its close_notify, which a bad record then trips in test builds.
    let mut got = vec![0; expect.len() + 1];
    let mut length = 0;
    while length < expect.len() {
        match tls.read(&mut got[length..]).await {
            Ok(0) | Err(_) => return expect.starts_with(&got[..length]),
            Ok(read) => length += read,
        }
    }
    let _ = tls.shutdown().await;
    &got[..length] == expect
}

#[test]
fn an_endless_hello_is_cut_off() {
    let files = site();
    on_worker(None, Settings::default(), async {
        let acceptor = acceptor(crt(&["/a.pem"]), &files);
        let (here, mut there) = tokio::io::duplex(1024);
        let server = async move { acceptor.accept(here, Vec::new()).await.map(|_| ()) };
        let flood = async move {
            // A ClientHello that says it has 16 MB, in full records.
            let mut sent = 0usize;
            let mut record = vec![0x16, 3, 1, 0x40, 0];
            record.extend_from_slice(&[1, 0xFF, 0xFF, 0xFF]);
            record.resize(5 + 0x4000, 0);
            while there.write_all(&record).await.is_ok() {
                sent += record.len();
            }
            sent
        };
        let (result, sent) = tokio::join!(server, flood);
        assert!(matches!(result, Err(HandshakeError::BadHello(_))));
        assert!(sent < 64 * 1024, "{sent} bytes were taken");
    });
}

#[test]
fn silence_and_departure_are_told_apart() {
    let files = site();
    on_worker(None, Settings::default(), async {
        let acceptor = acceptor(crt(&["/a.pem"]), &files);
        let (here, there) = tokio::io::duplex(1024);
        drop(there);
        let gone = acceptor.accept(here, Vec::new()).await.err().unwrap();
        assert_eq!((gone.code(), gone.message()), (24, "Connection closed during SSL handshake"));
        let (here, mut there) = tokio::io::duplex(1024);
        there.write_all(&[0x16, 3, 1]).await.unwrap();
        drop(there);
        let cut = acceptor.accept(here, Vec::new()).await.err().unwrap();
        assert_eq!((cut.code(), cut.message()), (25, "Connection error during SSL handshake"));
    });
}
