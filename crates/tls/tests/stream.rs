//! Acceptor and connector against each other over an in-memory socket.

mod common;

use common::*;
use penstock_config::model::TlsConf;
use penstock_tls::{Acceptor, Connector, HandshakeError, Truncated};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn pair() -> (Acceptor, Connector) {
    let files = files(&[("/site.pem", &self_signed(Kind::P256, &["site.test"]))]);
    (acceptor(crt(&["/site.pem"]), &files), connector(trusting("/site.pem", TlsConf::default()), &files))
}

#[tokio::test]
async fn data_flows_both_ways_and_the_end_is_clean() {
    let (acceptor, connector) = pair();
    let (here, there) = tokio::io::duplex(64 * 1024);
    let client = async {
        let mut tls = connector.connect(there, Some("site.test")).await.unwrap();
        let sent: Vec<u8> = (0..1_000_000u32).map(|i| i as u8).collect();
        tls.write_all(&sent).await.unwrap();
        tls.shutdown().await.unwrap();
        let mut answer = Vec::new();
        tls.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, b"half-closed, still answered");
        sent
    };
    let server = async {
        let mut tls = acceptor.accept(here, Vec::new()).await.unwrap();
        assert_eq!(tls.facts().version, "TLSv1.3");
        let mut got = Vec::new();
        tls.read_to_end(&mut got).await.unwrap();
        tls.write_all(b"half-closed, still answered").await.unwrap();
        tls.shutdown().await.unwrap();
        got
    };
    let (sent, got) = tokio::join!(client, server);
    assert!(sent == got);
}

#[tokio::test]
async fn an_end_without_close_notify_is_an_error() {
    let (acceptor, connector) = pair();
    let (here, there) = tokio::io::duplex(64 * 1024);
    let client = async {
        let mut tls = connector.connect(there, Some("site.test")).await.unwrap();
        tls.write_all(b"cut").await.unwrap();
    };
    let server = async {
        let mut tls = acceptor.accept(here, Vec::new()).await.unwrap();
        let mut got = Vec::new();
        let error = tls.read_to_end(&mut got).await.unwrap_err();
        assert_eq!(got, b"cut");
        assert!(error.get_ref().unwrap().is::<Truncated>());
    };
    tokio::join!(client, server);
}

#[tokio::test]
async fn an_end_that_comes_with_finished_is_known_without_the_socket() {
    let pem = self_signed(Kind::P256, &["site.test"]);
    let acceptor = acceptor(crt(&["/site.pem"]), &files(&[("/site.pem", &pem)]));
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let (here, mut there) = tokio::io::duplex(64 * 1024);
    let client = async {
        let name = "site.test".try_into().unwrap();
        let mut tls = rustls::ClientConnection::new(std::sync::Arc::new(config), name).unwrap();
        let mut flight = Vec::new();
        tls.write_tls(&mut flight).unwrap();
        there.write_all(&flight).await.unwrap();
        flight.clear();
        while tls.is_handshaking() {
            let mut answer = [0; 4096];
            let read = there.read(&mut answer).await.unwrap();
            tls.read_tls(&mut &answer[..read]).unwrap();
            tls.process_new_packets().unwrap();
        }
        tls.send_close_notify();
        tls.write_tls(&mut flight).unwrap();
        there.write_all(&flight).await.unwrap();
        // The socket stays open, and is silent from now on.
        there
    };
    let server = async { acceptor.accept(here, Vec::new()).await.unwrap() };
    let (_open, mut tls) = tokio::join!(client, server);
    assert!(tls.has_ended() && tls.is_ready());
    assert_eq!(tls.read(&mut [0; 16]).await.unwrap(), 0);
}

#[tokio::test]
async fn what_is_no_tls_gets_an_alert() {
    let (acceptor, _) = pair();
    let (here, mut there) = tokio::io::duplex(1024);
    there.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let error = acceptor.accept(here, Vec::new()).await.err().unwrap();
    assert!(matches!(error, HandshakeError::ClearHttp), "{error}");
    let mut alert = Vec::new();
    there.read_to_end(&mut alert).await.unwrap();
    // As rustls itself answers: decode_error.
    assert_eq!(alert, [0x15, 3, 3, 0, 2, 2, 50]);
}
