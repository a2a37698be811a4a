//! Stock rustls on the other side: every version, key and group, both ways round, inline and suspended.

mod common;

use common::*;
use penstock_config::model::{ServerTls, TlsConf, Verify};
use penstock_engine::{Settings, doubles::Manner};
use penstock_tls::Memory;
use rustls::{
    ClientConfig, ClientConnection, NamedGroup, RootCertStore, ServerConfig, ServerConnection,
    SupportedProtocolVersion,
    crypto::aws_lc_rs,
    version::{TLS12, TLS13},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    time::Duration,
};
use tokio::task::spawn_blocking;

const GROUPS: [NamedGroup; 4] =
    [NamedGroup::X25519, NamedGroup::secp256r1, NamedGroup::secp384r1, NamedGroup::X25519MLKEM768];

fn provider(group: NamedGroup) -> Arc<rustls::crypto::CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    provider.kx_groups.retain(|known| known.name() == group);
    Arc::new(provider)
}

fn cases() -> Vec<(Kind, &'static SupportedProtocolVersion, NamedGroup)> {
    let mut cases = Vec::new();
    for kind in [Kind::Rsa2048, Kind::P256, Kind::P384] {
        for version in [&TLS12, &TLS13] {
            for group in GROUPS {
                if group != NamedGroup::X25519MLKEM768 || version.version == TLS13.version {
                    cases.push((kind, version, group));
                }
            }
        }
    }
    cases
}

fn sites() -> (Authority, Memory) {
    let ca = Authority::new("ca");
    let made = [Kind::Rsa2048, Kind::P256, Kind::P384].map(|kind| (format!("/{kind:?}.pem"), ca.sign(kind, "a.test")));
    let mut files = files(&[("/ca.pem", &ca.pem)]);
    files.0.extend(made.map(|(name, pem)| (name.into(), pem.into_bytes())));
    (ca, files)
}

const MANNERS: [Option<Manner>; 2] = [None, Some(Manner::Late(Duration::from_millis(1)))];

#[test]
fn its_clients_are_served() {
    let (ca, files) = sites();
    for manner in MANNERS {
        on_worker(manner, Settings::default(), async {
            for (kind, version, group) in cases() {
                let address = facts_server(acceptor(crt(&[&format!("/{kind:?}.pem")]), &files)).await;
                let ca = ca.pem.clone();
                let said = spawn_blocking(move || client(&ca, version, group, address)).await.unwrap();
                let expected = if group == NamedGroup::X25519MLKEM768 { "group=X25519MLKEM768" } else { "group=" };
                assert!(said.contains(expected), "{manner:?} {kind:?} {group:?}: {said}");
            }
        });
    }
}

fn client(ca: &str, version: &'static SupportedProtocolVersion, group: NamedGroup, address: SocketAddr) -> String {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(ca.as_bytes()).flatten());
    let config = ClientConfig::builder_with_provider(provider(group))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut tls = ClientConnection::new(Arc::new(config), ServerName::try_from("a.test").unwrap()).unwrap();
    let mut socket = TcpStream::connect(address).unwrap();
    let mut said = String::new();
    rustls::Stream::new(&mut tls, &mut socket).read_to_string(&mut said).unwrap();
    said
}

#[test]
fn its_servers_are_spoken_to() {
    let (_, files) = sites();
    for manner in MANNERS {
        on_worker(manner, Settings::default(), async {
            for (kind, version, group) in cases() {
                let pem = files.0[std::path::Path::new(&format!("/{kind:?}.pem"))].clone();
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let address = listener.local_addr().unwrap();
                let server = spawn_blocking(move || serve(&pem, version, group, listener));
                let conf =
                    TlsConf { verify: Some(Verify::Required), ca_file: Some(path("/ca.pem")), ..TlsConf::default() };
                let connector = connector(ServerTls { conf, ..ServerTls::default() }, &files);
                let said = ask(&connector, address, Some("a.test")).await.unwrap();
                assert!(said.starts_with("hello server=a.test"), "{manner:?} {kind:?} {group:?}: {said}");
                server.await.unwrap();
            }
        });
    }
}

fn serve(pem: &[u8], version: &'static SupportedProtocolVersion, group: NamedGroup, listener: TcpListener) {
    let chain = CertificateDer::pem_slice_iter(pem).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(pem).unwrap();
    let config = ServerConfig::builder_with_provider(provider(group))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let (mut socket, _) = listener.accept().unwrap();
    let mut tls = ServerConnection::new(Arc::new(config)).unwrap();
    let mut stream = rustls::Stream::new(&mut tls, &mut socket);
    stream.write_all(b"hello").unwrap();
    stream.conn.send_close_notify();
    stream.flush().unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
}
