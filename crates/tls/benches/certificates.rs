//! How long many certificates take to load, and one of them to be replaced:
//! `cargo bench -p penstock-tls --bench certificates -- [COUNT [DIRECTORY]]`.
//!
//! With a directory, the certificates are left there (and taken from there if it has them), for a comparison with HAProxy:
//! `haproxy -c -f` a configuration with `bind :8443 ssl crt DIRECTORY`.

use penstock_config::{
    Config, Diagnostics, Span, Spanned,
    model::{Bind, BindTls},
};
use penstock_tls::{Acceptor, Disk, Store};
use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

/// How many times each step is repeated; the median is reported.
const LOADS: usize = 5;
const COMMITS: usize = 201;

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let count: usize = arguments.next().map_or(5_000, |count| count.parse().expect("a number of certificates"));
    let kept = arguments.next().map(PathBuf::from);
    let folder = tempfile::tempdir().unwrap();
    let folder = kept.as_deref().unwrap_or(folder.path());
    if !folder.join(name(count - 1)).exists() {
        let began = Instant::now();
        generate(folder, count);
        println!("{count} certificates (ECDSA P-256, two names each) made in {:.1} s", began.elapsed().as_secs_f64());
    }
    let config = Config::default();
    let crt = Spanned { value: folder.to_owned(), span: Span::default() };
    let bind =
        Bind { tls: Some(BindTls { crt: vec![crt], ..BindTls::default() }), ..Bind::new(Vec::new(), Span::default()) };
    let load = || {
        let store = Store::new(&config);
        let mut said = Diagnostics::default();
        let began = Instant::now();
        let acceptor = Acceptor::build(&config, &bind, &store, &Disk, &mut said).expect("certificates load");
        (began.elapsed(), store, acceptor)
    };
    tell("load", count, (0..LOADS).map(|_| load().0).collect());

    let (_, store, _acceptor) = load();
    let file = folder.join(name(count / 2)).display().to_string();
    let pem = std::fs::read_to_string(&file).unwrap();
    let commit = |_| {
        let began = Instant::now();
        store.set_certificate(&file, &pem).expect("the payload is a certificate");
        assert_eq!(store.commit_certificate(&file).expect("the certificate fits its key"), 1);
        began.elapsed()
    };
    tell("set and commit", count, (0..COMMITS).map(commit).collect());
}

fn tell(what: &str, count: usize, mut times: Vec<Duration>) {
    times.sort();
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    println!(
        "{what}, {count} certificates: n {}, median {:.3} ms, least {:.3} ms, most {:.3} ms",
        times.len(),
        ms(times[times.len() / 2]),
        ms(times[0]),
        ms(times[times.len() - 1])
    );
}

fn name(index: usize) -> String {
    format!("{index:06}.pem")
}

fn generate(folder: &Path, count: usize) {
    std::fs::create_dir_all(folder).unwrap();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
                    let host = format!("site-{index}.example");
                    let names = vec![host.clone(), format!("www.{host}")];
                    let mut params = rcgen::CertificateParams::new(names).unwrap();
                    params.distinguished_name = rcgen::DistinguishedName::new();
                    params.distinguished_name.push(rcgen::DnType::CommonName, host);
                    let cert = params.self_signed(&key).unwrap();
                    std::fs::write(folder.join(name(index)), cert.pem() + &key.serialize_pem()).unwrap();
                }
            });
        }
    });
}
