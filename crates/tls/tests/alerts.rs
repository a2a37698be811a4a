//! Malformed handshakes end with the alerts that stock rustls sends, whatever engine computes.

mod common;

use common::*;
use penstock_tls::Acceptor;
use rustls::{
    ClientConfig, ClientConnection, Error, NamedGroup, ServerConfig, ServerConnection,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::aws_lc_rs,
    version::{TLS12, TLS13},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject};
use std::{rc::Rc, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::spawn_local,
};

/// What a server makes of a first flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    /// The server waits for more, and closes when none comes.
    Nothing,
    Alert(u8),
    /// The server answers with a hello.
    Hello,
}

impl Said {
    fn of(flight: &[u8]) -> Said {
        match (flight.first(), flight.get(6)) {
            (None, _) => Said::Nothing,
            (Some(0x15), Some(description)) => Said::Alert(*description),
            (Some(0x16), _) => Said::Hello,
            other => panic!("neither alert nor handshake: {other:?}"),
        }
    }
}

#[derive(Debug)]
struct Trusting;

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }
    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }
    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

const GROUPS: [NamedGroup; 4] =
    [NamedGroup::X25519, NamedGroup::secp256r1, NamedGroup::secp384r1, NamedGroup::X25519MLKEM768];

/// A client of one version and group.
fn client(tls13: bool, group: NamedGroup) -> ClientConnection {
    let mut provider = aws_lc_rs::default_provider();
    provider.kx_groups.retain(|known| known.name() == group);
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[if tls13 { &TLS13 } else { &TLS12 }])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trusting))
        .with_no_client_auth();
    ClientConnection::new(Arc::new(config), ServerName::try_from("a.test").unwrap()).unwrap()
}

fn flight(client: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).unwrap();
    }
    bytes
}

/// Hellos of every version and group, each byte in turn turned over by masks that reach lengths, numbers and points; and what
/// no hello is.
fn hellos() -> Vec<(String, Vec<u8>)> {
    let mut hellos = vec![
        ("data first".to_owned(), [&[0x17, 3, 3, 0, 5][..], b"hello"].concat()),
        ("an alert first".to_owned(), vec![0x15, 3, 3, 0, 2, 2, 40]),
        ("a key exchange first".to_owned(), vec![0x16, 3, 3, 0, 5, 16, 0, 0, 1, 0]),
        ("an empty record".to_owned(), vec![0x16, 3, 3, 0, 0]),
        ("a record too long".to_owned(), [&[0x16, 3, 3, 0x50, 0][..], &[0; 0x5000]].concat()),
    ];
    for (tls13, group) in
        [(true, GROUPS[0]), (true, GROUPS[1]), (true, GROUPS[2]), (true, GROUPS[3]), (false, GROUPS[1])]
    {
        let hello = flight(&mut client(tls13, group));
        // Of a long share the middle is like its ends.
        let places: Vec<usize> =
            (0..hello.len()).filter(|at| *at < 300 || at % 97 == 0 || at + 40 > hello.len()).collect();
        for mask in [0x01, 0x80, 0xFF] {
            for &place in &places {
                let mut bent = hello.clone();
                bent[place] ^= mask;
                hellos.push((format!("{group:?} tls13={tls13}: byte {place} ^ {mask:#x}"), bent));
            }
        }
    }
    hellos
}

fn stock_config(pem: &[u8]) -> Arc<ServerConfig> {
    let chain = CertificateDer::pem_slice_iter(pem).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(pem).unwrap();
    let built = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let built = built.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    Arc::new(built.with_single_cert(chain, key).unwrap())
}

/// What a stock server answers to bytes.
fn stock(server: &mut ServerConnection, mut bytes: &[u8]) -> Vec<u8> {
    while !bytes.is_empty() {
        if server.read_tls(&mut bytes).is_err() || server.process_new_packets().is_err() {
            break;
        }
    }
    let mut answer = Vec::new();
    while server.wants_write() {
        server.write_tls(&mut answer).unwrap();
    }
    answer
}

/// What we answer to bytes. Where stock rustls waits for more the client leaves, and it does not else: who has left is
/// not answered.
async fn ours(acceptor: Rc<Acceptor>, bytes: Vec<u8>, stock: Said) -> Vec<u8> {
    let (here, mut there) = tokio::io::duplex(256 * 1024);
    let server = spawn_local(async move { drop(acceptor.accept(here, Vec::new()).await) });
    there.write_all(&bytes).await.unwrap();
    if stock == Said::Nothing {
        let _ = there.shutdown().await;
    }
    let mut answer = vec![0; 64];
    let reading = tokio::time::timeout(Duration::from_secs(10), there.read(&mut answer)).await;
    answer.truncate(reading.map_or(0, Result::unwrap_or_default));
    drop(there);
    server.await.unwrap();
    answer
}

/// The places of the bytes that say how long the record and the hello in it are. A hello made longer than any is refused here at
/// once, where stock rustls waits for the first of its bytes past 64 KiB; and of a record made shorter the rest begins the next,
/// which is refused here by its first byte where that is no type, and there with the fifth.
const LENGTHS: std::ops::Range<usize> = 3..9;

/// The alert in the words of the client that reads it.
fn heard(client: &mut ClientConnection, mut answer: &[u8]) -> Option<rustls::AlertDescription> {
    while !answer.is_empty() {
        client.read_tls(&mut answer).unwrap();
        match client.process_new_packets() {
            Err(Error::AlertReceived(alert)) => return Some(alert),
            Err(other) => panic!("{other}"),
            Ok(_) => {}
        }
    }
    None
}

#[test]
fn a_bent_hello_ends_as_with_stock_rustls() {
    let pem = self_signed(Kind::P256, &["a.test"]);
    let files = files(&[("/a.pem", &pem)]);
    let config = stock_config(pem.as_bytes());
    let cases: Vec<(String, Vec<u8>, Said)> = hellos()
        .into_iter()
        .map(|(name, hello)| {
            let said = Said::of(&stock(&mut ServerConnection::new(config.clone()).unwrap(), &hello));
            (name, hello, said)
        })
        .collect();
    assert!(cases.iter().filter(|case| matches!(case.2, Said::Alert(_))).count() > 1000);
    for engine in engines() {
        let differing = behind(engine, async {
            let acceptor = Rc::new(acceptor(crt(&["/a.pem"]), &files));
            let mut differing = Vec::new();
            // Many at once, or no batch would ever come together.
            for some in cases.chunks(32) {
                let tasks: Vec<_> =
                    some.iter().map(|c| spawn_local(ours(acceptor.clone(), c.1.clone(), c.2))).collect();
                for ((name, _, stock), task) in some.iter().zip(tasks) {
                    let said = Said::of(&task.await.unwrap());
                    let sooner = *stock == Said::Nothing && said == Said::Alert(50);
                    let of_length = LENGTHS.map(|place| format!("byte {place} ")).any(|place| name.contains(&place));
                    if said != *stock && !(sooner && of_length) {
                        differing.push(format!("{name}: stock {stock:?}, here {said:?}"));
                    }
                }
            }
            differing
        });
        assert!(
            differing.is_empty(),
            "{engine:?}, {} differ:\n{}",
            differing.len(),
            differing[..differing.len().min(40)].join("\n")
        );
    }
}

#[test]
fn a_bent_second_flight_ends_as_with_stock_rustls() {
    let pem = self_signed(Kind::Rsa2048, &["a.test"]);
    let files = files(&[("/a.pem", &pem)]);
    let config = stock_config(pem.as_bytes());
    for engine in engines() {
        behind(engine, async {
            let acceptor = Rc::new(acceptor(crt(&["/a.pem"]), &files));
            for (tls13, group) in [(true, GROUPS[0]), (true, GROUPS[3]), (false, GROUPS[0]), (false, GROUPS[1])] {
                // The type, the length, what follows it, and the last byte, which is of a Finished.
                for bend in [0usize, 4, 5, 9, 12, 40, usize::MAX] {
                    let spoil = |mut bytes: Vec<u8>| {
                        let place = bend.min(bytes.len() - 1);
                        bytes[place] ^= if bend == 4 { 0x01 } else { 0x40 };
                        bytes
                    };
                    let theirs = {
                        let (mut client, mut server) =
                            (client(tls13, group), ServerConnection::new(config.clone()).unwrap());
                        let answer = stock(&mut server, &flight(&mut client));
                        assert_eq!(heard(&mut client, &answer), None);
                        let answer = stock(&mut server, &spoil(flight(&mut client)));
                        heard(&mut client, &answer)
                    };
                    let (here, mut there) = tokio::io::duplex(256 * 1024);
                    let serving = acceptor.clone();
                    let server = spawn_local(async move { drop(serving.accept(here, Vec::new()).await) });
                    let mut client = client(tls13, group);
                    there.write_all(&flight(&mut client)).await.unwrap();
                    let mut answer = vec![0; 16 * 1024];
                    while !client.wants_write() {
                        let read = there.read(&mut answer).await.unwrap();
                        assert_eq!(heard(&mut client, &answer[..read]), None);
                    }
                    there.write_all(&spoil(flight(&mut client))).await.unwrap();
                    let _ = there.shutdown().await;
                    let mut answer = Vec::new();
                    let reading = there.read_to_end(&mut answer);
                    let _ = tokio::time::timeout(Duration::from_secs(5), reading).await;
                    let ours = heard(&mut client, &answer);
                    assert_eq!(ours, theirs, "{engine:?} tls13={tls13} {group:?} byte {bend}");
                    server.await.unwrap();
                }
            }
        });
    }
}
