//! What the tests share: configurations in memory, and a thread that lives as a worker does.
#![allow(dead_code)]

use penstock_config::{
    Config, Diagnostics, Span, Spanned,
    model::{Bind, BindTls, ServerTls, TlsConf},
};
use penstock_engine::{Settings, doubles::Double, doubles::Manner, worker};
use penstock_tls::{Acceptor, Connector, Memory, drive_engine};
use std::{net::SocketAddr, path::PathBuf, rc::Rc};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::{LocalSet, spawn_local},
};

pub fn bind(tls: BindTls) -> Bind {
    Bind {
        addresses: Vec::new(),
        name: None,
        tls: Some(tls),
        accept_proxy: false,
        interface: None,
        backlog: None,
        maxconn: None,
        v6only: false,
        v4v6: false,
        transparent: false,
        defer_accept: false,
        tfo: false,
        tcp_ut: None,
        mss: None,
        proto: None,
        mode: None,
        user: None,
        group: None,
        id: None,
        span: Span::default(),
    }
}

pub fn path(text: &str) -> Spanned<PathBuf> {
    Spanned { value: text.into(), span: Span::default() }
}

pub fn text(text: &str) -> Spanned<String> {
    Spanned { value: text.into(), span: Span::default() }
}

/// The embedded kinds of key a certificate may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Rsa2048,
    Rsa4096,
    P256,
    P384,
}

pub fn key(kind: Kind) -> rcgen::KeyPair {
    let made = match kind {
        Kind::Rsa2048 => rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048),
        Kind::Rsa4096 => rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_4096),
        Kind::P256 => rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
        Kind::P384 => rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384),
    };
    made.unwrap()
}

/// A self-signed certificate with its key, as one PEM.
pub fn self_signed(kind: Kind, names: &[&str]) -> String {
    let key = key(kind);
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let cert = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    cert.pem() + &key.serialize_pem()
}

pub fn files(list: &[(&str, &str)]) -> Memory {
    Memory(list.iter().map(|(name, content)| (PathBuf::from(name), content.as_bytes().to_vec())).collect())
}

#[track_caller]
pub fn acceptor(tls: BindTls, files: &Memory) -> Acceptor {
    let mut diagnostics = Diagnostics::default();
    let built = Acceptor::build(&Config::default(), &bind(tls), files, &mut diagnostics);
    assert!(!diagnostics.has_errors(), "{diagnostics:?}");
    built.unwrap()
}

#[track_caller]
pub fn connector(tls: ServerTls, files: &Memory) -> Connector {
    let mut diagnostics = Diagnostics::default();
    let built = Connector::build(&Config::default(), &tls, files, &mut diagnostics);
    assert!(!diagnostics.has_errors(), "{diagnostics:?}");
    built.unwrap()
}

pub fn crt(names: &[&str]) -> BindTls {
    BindTls { crt: names.iter().map(|name| path(name)).collect(), ..BindTls::default() }
}

pub fn trusting(ca: &str, conf: TlsConf) -> ServerTls {
    ServerTls { conf: TlsConf { ca_file: Some(path(ca)), ..conf }, ..ServerTls::default() }
}

/// Runs `body` as a worker does: local tasks on one thread with an engine of this manner, or the native one.
pub fn on_worker<R>(manner: Option<Manner>, settings: Settings, body: impl Future<Output = R>) -> R {
    if let Some(manner) = manner {
        worker::install(Double::new(manner, 8), settings);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let result = LocalSet::new().block_on(&runtime, async {
        spawn_local(drive_engine());
        body.await
    });
    worker::uninstall();
    result
}

/// Accepts for ever, and echoes what each connection sends until it closes its half.
pub async fn echo_server(acceptor: Acceptor) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = Rc::new(acceptor);
    spawn_local(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            spawn_local(async move {
                let Ok(mut tls) = acceptor.accept(socket, Vec::new()).await else { return };
                let mut buffer = vec![0; 16 * 1024];
                while let Ok(read @ 1..) = tls.read(&mut buffer).await {
                    if tls.write_all(&buffer[..read]).await.is_err() {
                        return;
                    }
                }
                let _ = tls.shutdown().await;
            });
        }
    });
    address
}
