//! What the tests share: configurations in memory, and a thread that lives as a worker does.
#![allow(dead_code)]

use penstock_config::{
    Config, Diagnostics, Span, Spanned,
    model::{Bind, BindTls, ServerTls, TlsConf},
};
use penstock_engine::{
    Class, Plan, Settings,
    doubles::{Double, Manner},
    hw::{Hardware, Options},
    plan,
    sw::Costs,
    worker,
};
use penstock_lanes::Lanes;
use penstock_tls::{Acceptor, Connector, Memory, Store, drive_engine};
use std::{net::SocketAddr, path::PathBuf, rc::Rc, sync::OnceLock};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::{LocalSet, spawn_local},
};

pub fn bind(tls: BindTls) -> Bind {
    Bind { tls: Some(tls), ..Bind::new(Vec::new(), Span::default()) }
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

/// A key. RSA keys are slow to make, so each size has one for the whole test.
pub fn key(kind: Kind) -> rcgen::KeyPair {
    static RSA: [OnceLock<String>; 2] = [OnceLock::new(), OnceLock::new()];
    let rsa = |size, place: usize| {
        let made = || rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, size).unwrap().serialize_pem();
        rcgen::KeyPair::from_pem(RSA[place].get_or_init(made))
    };
    let made = match kind {
        Kind::Rsa2048 => rsa(rcgen::RsaKeySize::_2048, 0),
        Kind::Rsa4096 => rsa(rcgen::RsaKeySize::_4096, 1),
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

pub fn shared() -> Store {
    Store::new(&Config::default())
}

#[track_caller]
pub fn acceptor(tls: BindTls, files: &Memory) -> Acceptor {
    let mut diagnostics = Diagnostics::default();
    let built = Acceptor::build(&Config::default(), &bind(tls), &shared(), files, &mut diagnostics);
    assert!(!diagnostics.has_errors(), "{diagnostics:?}");
    built.unwrap()
}

#[track_caller]
pub fn connector(tls: ServerTls, files: &Memory) -> Connector {
    let mut diagnostics = Diagnostics::default();
    let built = Connector::build(&tls, Span::default(), &shared(), files, &mut diagnostics);
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
    as_a_worker(body)
}

/// Runs `body` as a worker does, with an engine of lanes: those of this processor, or the portable ones.
pub fn on_lanes<R>(lanes: Lanes, body: impl Future<Output = R>) -> R {
    // Whatever this machine's costs are, lanes are to be used here from two operations on.
    let costs = Class::ALL.into_iter().fold(Costs::assumed(), |costs, class| costs.with_break_even(class, 2));
    Plan { costs, ..Plan::new(plan::Kind::Sw, lanes) }.install();
    as_a_worker(body)
}

/// What computes in a test.
#[derive(Clone, Copy, Debug)]
pub enum Behind {
    Native,
    Lanes(Lanes),
    Double(Manner),
    /// A QuickAssist device, alone or beside lanes: the device double, obeying this command.
    Device(plan::Kind, &'static str),
}

/// Every engine there is, and those that are slow, out of order, flaky, wrong, failing, full or dead; a device that is well,
/// that is wrong, and that is silent.
pub fn engines() -> Vec<Behind> {
    const MS: fn(u64) -> std::time::Duration = std::time::Duration::from_millis;
    let doubles = [
        Manner::Prompt,
        Manner::Late(MS(3)),
        Manner::Reversed(MS(1)),
        Manner::WrongAtFirst(5),
        Manner::Wrong,
        Manner::Failing,
        Manner::Full,
        Manner::Never,
    ];
    use plan::Kind::{Hw, HwSw};
    let devices = [(Hw, ""), (HwSw, ""), (Hw, "wrong 5"), (HwSw, "silent 5")];
    let own = [Behind::Native, Behind::Lanes(Lanes::detect()), Behind::Lanes(Lanes::portable())];
    let devices = devices.map(|(kind, command)| Behind::Device(kind, command));
    own.into_iter().chain(doubles.map(Behind::Double)).chain(devices).collect()
}

/// Runs `body` as a worker with that engine.
pub fn behind<R>(engine: Behind, body: impl Future<Output = R>) -> R {
    const MS: fn(u64) -> std::time::Duration = std::time::Duration::from_millis;
    match engine {
        Behind::Native => on_worker(None, Settings::default(), body),
        Behind::Lanes(lanes) => on_lanes(lanes, body),
        Behind::Device(kind, command) => {
            let double = penstock_qat_double::Double::new("");
            let options = Options { directory: Some(double.path().to_owned()), ..Options::default() };
            let hardware = Some(Hardware::open(&options, 1).expect("the double is there"));
            double.command(command);
            Plan { hardware, ..Plan::new(kind, Lanes::detect()) }.install();
            let result = as_a_worker(body);
            assert_eq!(double.violations(), [""; 0]);
            result
        }
        Behind::Double(manner) => {
            // The newest first starves the oldest under load: that one needs patience to show what it is for.
            let deadline = if matches!(manner, Manner::Reversed(_)) { MS(10_000) } else { MS(50) };
            on_worker(Some(manner), Settings { deadline, bench: MS(40), ..Settings::default() }, body)
        }
    }
}

fn as_a_worker<R>(body: impl Future<Output = R>) -> R {
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

/// Accepts for ever; tells each client what was found out about it, and closes.
pub async fn facts_server(acceptor: Acceptor) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = Rc::new(acceptor);
    spawn_local(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            spawn_local(async move {
                let said = match acceptor.accept(socket, Vec::new()).await {
                    Ok(mut tls) => {
                        let facts = tls.facts();
                        let peer = facts.peer.is_some();
                        let said = format!(
                            "version={} cipher={} group={} sni={} resumed={} alpn={} peer={peer} verify={} leaf_err={} ca_err={}@{}",
                            facts.version,
                            facts.cipher,
                            facts.group.unwrap_or("-"),
                            facts.sni.as_deref().unwrap_or("-"),
                            facts.resumed,
                            String::from_utf8_lossy(facts.alpn.as_deref().unwrap_or(b"-")),
                            facts.verify,
                            facts.leaf_err,
                            facts.ca_err,
                            facts.ca_err_depth,
                        );
                        let _ = tls.write_all(said.as_bytes()).await;
                        let _ = tls.shutdown().await;
                        let mut rest = Vec::new();
                        let _ = tls.read_to_end(&mut rest).await;
                        said
                    }
                    Err(error) => format!("{}: {error}", error.code()),
                };
                SAID.with(|log| log.borrow_mut().push(said));
            });
        }
    });
    address
}

thread_local! {
    static SAID: std::cell::RefCell<Vec<String>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// What the last connection to a [`facts_server`] came to, once it has.
pub async fn last_said() -> String {
    for _ in 0..500 {
        if let Some(said) = SAID.with(|log| log.borrow_mut().pop()) {
            return said;
        }
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    "nothing".to_owned()
}

/// What a [`facts_server`] reports about a connection made by `connector`, or how that fails.
pub async fn ask(connector: &Connector, address: SocketAddr, sni: Option<&str>) -> Result<String, String> {
    let socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut tls = connector.connect(socket, sni).await.map_err(|e| e.to_string())?;
    let mut said = String::new();
    // A client of TLS 1.3 learns only here that its certificate was refused.
    tls.read_to_string(&mut said).await.map_err(|e| e.to_string())?;
    let _ = tls.shutdown().await;
    let names = tls.facts().peer.as_ref().map(|peer| common_name(peer.leaf())).unwrap_or_default();
    Ok(format!("{said} server={names}"))
}

pub fn common_name(der: &[u8]) -> String {
    use x509_parser::prelude::FromDer;
    let (_, parsed) = x509_parser::prelude::X509Certificate::from_der(der).unwrap();
    parsed.subject().iter_common_name().next().and_then(|name| name.as_str().ok()).unwrap_or("-").to_owned()
}

/// An authority that signs certificates.
pub struct Authority {
    pub pem: String,
    pub key_pem: String,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let key = key(Kind::P256);
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::CrlSign];
        let cert = params.self_signed(&key).unwrap();
        Authority { pem: cert.pem(), key_pem: key.serialize_pem(), issuer: rcgen::Issuer::new(params, key) }
    }

    /// An authority below this one.
    pub fn below(&self, name: &str, change: impl FnOnce(&mut rcgen::CertificateParams)) -> Authority {
        let key = key(Kind::P256);
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::CrlSign];
        change(&mut params);
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        Authority { pem: cert.pem(), key_pem: key.serialize_pem(), issuer: rcgen::Issuer::new(params, key) }
    }

    /// A certificate of `name` with its key, as one PEM.
    pub fn sign(&self, kind: Kind, name: &str) -> String {
        self.sign_with(kind, name, |_| ())
    }

    pub fn sign_with(&self, kind: Kind, name: &str, change: impl FnOnce(&mut rcgen::CertificateParams)) -> String {
        let key = key(kind);
        let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        change(&mut params);
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        cert.pem() + &key.serialize_pem()
    }

    /// What an OCSP responder of this authority says of the certificate with this serial number, for a day.
    pub fn ocsp(&self, serial: u16, good: bool) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            path
        };
        let (ca, key) = (file("ca.pem", &self.pem), file("ca.key", &self.key_pem));
        let (state, revoked) = if good { ("V", "") } else { ("R", "200101000000Z") };
        let index = file("index", &format!("{state}\t800101000000Z\t{revoked}\t{serial:04X}\tunknown\t/CN=a\n"));
        let out = folder.path().join("out");
        let made = std::process::Command::new("openssl")
            .args(["ocsp", "-ndays", "1"])
            .args([std::ffi::OsStr::new("-index"), index.as_ref(), "-respout".as_ref(), out.as_ref()])
            .args([std::ffi::OsStr::new("-CA"), ca.as_ref(), "-issuer".as_ref(), ca.as_ref()])
            .args([std::ffi::OsStr::new("-rsigner"), ca.as_ref(), "-rkey".as_ref(), key.as_ref()])
            .args(["-serial", &serial.to_string()])
            .output()
            .expect("openssl is installed");
        std::fs::read(&out).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&made.stderr)))
    }

    /// A list that revokes the certificates with these serial numbers.
    pub fn revoke(&self, serials: &[u64]) -> String {
        let now = rcgen::date_time_ymd(2020, 1, 1);
        let revoked = serials.iter().map(|serial| rcgen::RevokedCertParams {
            serial_number: (*serial).into(),
            revocation_time: now,
            reason_code: None,
            invalidity_date: None,
        });
        let params = rcgen::CertificateRevocationListParams {
            this_update: now,
            next_update: rcgen::date_time_ymd(2090, 1, 1),
            crl_number: 1u64.into(),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().pem().unwrap()
    }
}
