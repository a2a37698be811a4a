use super::*;
use penstock_engine::{
    Answer, Curve, Op, Settings,
    doubles::{Double, Manner},
    worker,
};
use std::time::Duration;
use tokio::task::{LocalSet, spawn_local};

thread_local! {
    static DEEPEST: Cell<usize> = const { Cell::new(0) };
}

/// Records how deep the code on this stack went: stacks start all zero, so that is the lowest nonzero byte.
pub(super) fn note_depth(stack: &DefaultStack) {
    let bytes = bytes(stack);
    let untouched = bytes.iter().take_while(|byte| **byte == 0).count();
    DEEPEST.set(DEEPEST.get().max(STACK_SIZE - untouched));
}

/// Runs `body` like a worker: local tasks on one thread, with the queue driven beside them.
fn worker(manner: Manner, body: impl Future<Output = ()> + 'static) {
    worker::install(Double::new(manner, 8), Settings::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        spawn_local(crate::drive_engine());
        body.await;
    });
    worker::uninstall();
}

/// Runs `body` on a stack of its own.
async fn suspended<R: 'static>(body: impl FnOnce() -> R + 'static) -> Result<R, Broken> {
    on_stack(&mut Duration::default(), 0, body).await
}

/// Performs an operation, parked.
fn agree() -> Result<(), Cancelled> {
    let Ok(Answer::Pair { public, .. }) = penstock_engine::compute(&Op::KeyGen { curve: Curve::X25519 }) else {
        panic!("native key generation")
    };
    let ticket = worker::submit(Op::Agree { curve: Curve::X25519, peer: public }).ok().unwrap();
    park(Wait([Some(ticket.watch()), None]))?;
    assert!(matches!(ticket.take(), Ok(Answer::Agreed { .. })));
    Ok(())
}

#[test]
fn a_dropped_future_lets_its_coroutine_return() {
    use std::{cell::Cell, rc::Rc};
    let ended = Rc::new(Cell::new(None));
    let seen = ended.clone();
    worker(Manner::Late(Duration::from_millis(20)), async move {
        let parked = suspended(move || {
            let first = agree();
            let second = agree();
            seen.set(Some((first, second)));
        });
        assert!(tokio::time::timeout(Duration::from_millis(1), parked).await.is_err());
        // The answer arrives after its receiver is gone, which does no harm.
        tokio::time::sleep(Duration::from_millis(40)).await;
    });
    assert_eq!(ended.get(), Some((Err(Cancelled), Err(Cancelled))));
    POOL.with(|pool| assert_eq!(pool.borrow().in_use, 0));
}

#[test]
fn a_panic_on_a_stack_costs_that_call_only() {
    worker(Manner::Late(Duration::from_millis(1)), async {
        let broken = suspended(|| {
            agree().unwrap();
            panic!("planted");
        });
        let sound = suspended(|| agree().is_ok());
        let (broken, sound): (Result<(), Broken>, _) = tokio::join!(broken, sound);
        assert_eq!((broken, sound), (Err(Broken), Ok(true)));
    });
    assert!(!can_park());
}

#[test]
fn stacks_are_bounded_and_the_line_moves_on() {
    worker(Manner::Late(Duration::from_millis(80)), async {
        let tasks: Vec<_> = (0..STACKS_MAX + 50).map(|_| spawn_local(suspended(|| agree().is_ok()))).collect();
        let counts = || POOL.with(|pool| (pool.borrow().in_use, pool.borrow().waiting.len()));
        while counts() != (STACKS_MAX, 50) {
            tokio::task::yield_now().await;
        }
        // Some of those in the line give up; the others still get their turn.
        for task in tasks[STACKS_MAX..].iter().step_by(2) {
            task.abort();
        }
        for (number, task) in tasks.into_iter().enumerate() {
            let result = task.await;
            assert!(result.is_err() == (number >= STACKS_MAX && number % 2 == 0));
        }
        POOL.with(|pool| {
            let pool = pool.borrow();
            assert_eq!(pool.in_use, 0);
            assert!(pool.idle.len() <= STACKS_IDLE);
        });
    });
}

#[test]
fn a_stack_is_wiped_before_its_next_use() {
    worker(Manner::Prompt, async {
        suspended(|| {
            let secret = std::hint::black_box([0xA5u8; 512]);
            agree().unwrap();
            std::hint::black_box(secret);
        })
        .await
        .unwrap();
        POOL.with(|pool| {
            for stack in &pool.borrow().idle {
                assert!(bytes(stack).iter().all(|byte| *byte == 0));
            }
        });
    });
}

/// One of everything that goes deep, all computed on the handshake's own stack, as if the engine served none of it.
#[test]
fn stacks_are_twice_what_the_worst_handshake_needs() {
    use crate::{Acceptor, Connector, Memory, Store};
    use penstock_config::{
        Config, Diagnostics, Span, Spanned,
        model::{Bind, BindTls, ServerTls, TlsConf, TlsVersion, Verify},
    };
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PKCS_RSA_SHA256, RsaKeySize};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    // A chain of four, all RSA-4096: the deepest signature and the longest verification.
    let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_4096).unwrap().serialize_pem();
    let key = || KeyPair::from_pem(&key).unwrap();
    let params = |name: &str, authority: bool| {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        if authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        params
    };
    let root = params("root.test", true).self_signed(&key()).unwrap();
    let mut issuer = Issuer::new(params("root.test", true), key());
    let mut chain = String::new();
    for name in ["one.test", "two.test"] {
        chain = params(name, true).signed_by(&key(), &issuer).unwrap().pem() + &chain;
        issuer = Issuer::new(params(name, true), key());
    }
    let leaf = params("leaf.test", false).signed_by(&key(), &issuer).unwrap().pem();
    let pem = leaf + &chain + &key().serialize_pem();
    let files = Memory([("/leaf.pem".into(), pem.into_bytes()), ("/root.pem".into(), root.pem().into_bytes())].into());
    let path = |name: &str| Spanned { value: name.into(), span: Span::default() };
    let config = Config::default();
    worker::install(Double::new(Manner::Prompt, 0), Settings::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    for (version, curve) in [
        (TlsVersion::Tls12, "P-384"),
        (TlsVersion::Tls12, "X25519"),
        (TlsVersion::Tls13, "P-384"),
        (TlsVersion::Tls13, "X25519MLKEM768"),
    ] {
        let conf = TlsConf {
            verify: Some(Verify::Required),
            ca_file: Some(path("/root.pem")),
            curves: Some(Spanned { value: curve.to_owned() + ":P-256", span: Span::default() }),
            max_ver: Some(version),
            ..TlsConf::default()
        };
        let bind_tls = BindTls { crt: vec![path("/leaf.pem")], conf: conf.clone(), ..BindTls::default() };
        let bind = Bind { tls: Some(bind_tls), ..Bind::new(Vec::new(), Span::default()) };
        let mut said = Diagnostics::default();
        let acceptor = Acceptor::build(&config, &bind, &Store::new(&config), &files, &mut said).unwrap();
        let server = ServerTls { conf, crt: Some(path("/leaf.pem")), ..ServerTls::default() };
        let connector = Connector::build(&server, Span::default(), &Store::new(&config), &files, &mut said).unwrap();
        runtime.block_on(async {
            let (here, there) = tokio::io::duplex(64 * 1024);
            let accepted = async {
                let mut tls = acceptor.accept(here, Vec::new()).await.unwrap();
                assert!(tls.facts().peer.as_ref().is_some_and(|peer| peer.chain.len() == 3));
                tls.write_all(b"x").await.unwrap();
            };
            let connected = async {
                let mut tls = connector.connect(there, Some("leaf.test")).await.unwrap();
                assert_eq!(tls.read_u8().await.unwrap(), b'x');
            };
            tokio::join!(accepted, connected)
        });
    }
    worker::uninstall();
    let deepest = DEEPEST.get();
    println!("deepest: {deepest} of {STACK_SIZE} bytes");
    assert!(deepest > 4096, "nothing was measured");
    assert!(2 * deepest <= STACK_SIZE, "{deepest} of {STACK_SIZE} bytes used");
}
