//! Memory of an idle TLS connection: the slope of the server's resident set from 1,000 to 9,000 of them.
//!
//! `cargo bench -p penstock-tls --bench idle`. The clients live in a second process (this program again). Each connection is a
//! task that has echoed one byte and waits for the next, so the figure holds socket, task, stream and session, everything
//! but the kernel's part. `ulimit -n` must allow 9,100 descriptors.

use penstock_config::{
    Config, Diagnostics, Span, Spanned,
    model::{Bind, BindTls, ServerTls, TlsConf, Verify},
};
use penstock_tls::{Acceptor, Connector, Memory, Store};
use std::{net::SocketAddr, process::Command, rc::Rc};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::{LocalSet, spawn_local},
};

const FEW: usize = 1000;
const MANY: usize = 9000;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = std::env::args().skip_while(|word| word != "client").nth(1);
    match client {
        Some(address) => LocalSet::new().block_on(&runtime, clients(address.parse().unwrap())),
        None => LocalSet::new().block_on(&runtime, server()),
    }
}

async fn server() {
    let key = rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048).unwrap();
    let cert = rcgen::CertificateParams::new(vec!["a.test".to_owned()]).unwrap().self_signed(&key).unwrap();
    let files = Memory([("/a.pem".into(), (cert.pem() + &key.serialize_pem()).into_bytes())].into());
    let crt = vec![Spanned { value: "/a.pem".into(), span: Span::default() }];
    let bind = Bind { tls: Some(BindTls { crt, ..BindTls::default() }), ..Bind::new(Vec::new(), Span::default()) };
    let config = Config::default();
    let mut said = Diagnostics::default();
    let acceptor = Rc::new(Acceptor::build(&config, &bind, &Store::new(&config), &files, &mut said).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut child = Command::new(std::env::current_exe().unwrap()).args(["client", &address]).spawn().unwrap();
    let open = Rc::new(std::cell::Cell::new(0));
    let mut at_few = 0;
    for _ in 0..MANY {
        let (socket, _) = listener.accept().await.unwrap();
        let (acceptor, counted) = (acceptor.clone(), open.clone());
        spawn_local(async move {
            let mut tls = Box::pin(acceptor.accept(socket, Vec::new())).await.unwrap();
            let mut byte = [0; 1];
            while tls.read_exact(&mut byte).await.is_ok() {
                tls.write_all(&byte).await.unwrap();
                counted.set(counted.get() + 1);
            }
        });
        if at_few == 0 && open.get() >= FEW {
            at_few = resident();
        }
    }
    while open.get() < MANY {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let at_many = resident();
    println!("{:.2} KiB per idle connection", (at_many - at_few) as f64 / 1024.0 / (MANY - FEW) as f64);
    child.kill().unwrap();
    child.wait().unwrap();
}

async fn clients(address: SocketAddr) {
    let conf = TlsConf { verify: Some(Verify::None), ..TlsConf::default() };
    let server = ServerTls { conf, ..ServerTls::default() };
    let mut said = Diagnostics::default();
    let connector =
        Connector::build(&server, Span::default(), &Store::new(&Config::default()), &Memory::default(), &mut said)
            .unwrap();
    let mut held = Vec::new();
    for _ in 0..MANY {
        let mut tls = connector.connect(TcpStream::connect(address).await.unwrap(), None).await.unwrap();
        tls.write_all(b"x").await.unwrap();
        tls.read_u8().await.unwrap();
        held.push(tls);
    }
    std::future::pending::<()>().await;
}

/// Bytes of this process in memory.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size()
}
