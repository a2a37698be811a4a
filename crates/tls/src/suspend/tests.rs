use super::*;
use penstock_engine::{
    Answer, Curve, Op, Settings,
    doubles::{Double, Manner},
    worker,
};
use std::time::Duration;
use tokio::task::{LocalSet, spawn_local};

/// Runs `body` as a worker does: local tasks on one thread, the queue driven beside them.
fn worker(manner: Manner, body: impl Future<Output = ()> + 'static) {
    worker::install(Double::new(manner, 8), Settings::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        spawn_local(crate::drive_engine());
        body.await;
    });
    worker::uninstall();
}

/// An operation, parked.
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
        let parked = on_stack(move || {
            let first = agree();
            let second = agree();
            seen.set(Some((first, second)));
        });
        assert!(tokio::time::timeout(Duration::from_millis(1), parked).await.is_err());
        // The answer arrives for nobody, and harms nobody.
        tokio::time::sleep(Duration::from_millis(40)).await;
    });
    assert_eq!(ended.get(), Some((Err(Cancelled), Err(Cancelled))));
    POOL.with(|pool| assert_eq!(pool.borrow().in_use, 0));
}

#[test]
fn a_panic_on_a_stack_costs_that_call_only() {
    worker(Manner::Late(Duration::from_millis(1)), async {
        let broken = on_stack(|| {
            agree().unwrap();
            panic!("planted");
        });
        let sound = on_stack(|| agree().is_ok());
        let (broken, sound): (Result<(), Broken>, _) = tokio::join!(broken, sound);
        assert_eq!((broken, sound), (Err(Broken), Ok(true)));
    });
    assert!(!can_park());
}

#[test]
fn stacks_are_bounded_and_the_line_moves_on() {
    worker(Manner::Late(Duration::from_millis(80)), async {
        let tasks: Vec<_> = (0..STACKS_MAX + 50).map(|_| spawn_local(on_stack(|| agree().is_ok()))).collect();
        let counts = || POOL.with(|pool| (pool.borrow().in_use, pool.borrow().waiting.len()));
        while counts() != (STACKS_MAX, 50) {
            tokio::task::yield_now().await;
        }
        // Some of those in the line give up; the rest still get their turn.
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
        on_stack(|| {
            let secret = std::hint::black_box([0xA5u8; 512]);
            agree().unwrap();
            std::hint::black_box(secret);
        })
        .await
        .unwrap();
        POOL.with(|pool| {
            for stack in &pool.borrow().idle {
                // SAFETY: the stack is idle: nothing runs on it, and the range is the mapping's writable part.
                let bytes = unsafe { &*usable(stack) };
                assert!(bytes.iter().all(|byte| *byte == 0));
            }
        });
    });
}
