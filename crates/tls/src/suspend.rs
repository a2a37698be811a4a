//! Code that can be left in the middle and resumed: the one place with `unsafe` in this crate.
//!
//! rustls calls signatures and key exchanges inline. A pass over a handshake therefore runs on a stack of its own, and our
//! implementations of rustls' hooks [`park`] it there until their operation is answered. When rustls can be interrupted,
//! this file goes and `on_stack` becomes a plain call.
//!
//! What holds here:
//! - A coroutine is never dropped in the middle. [`Suspended`] owns it, and when a future that holds one is dropped, the
//!   coroutine is resumed with [`Cancelled`] until it returns: the hooks turn that into an error, rustls hands it up.
//! - A panic on such a stack ends there and is reported as [`Broken`]: it costs one connection.
//! - Nothing on a stack is borrowed from outside it (`'static` bodies), and nothing outside borrows from it but the
//!   yielder's address, which is in [`CURRENT`] exactly while the coroutine runs.
//! - A stack is wiped before another handshake can have it: it has held key material.
//! - At most [`STACKS_MAX`] exist per worker. Past that, handshakes wait as bytes.

use corosensei::{
    Coroutine, CoroutineResult, Yielder,
    stack::{DefaultStack, Stack, StackPointer},
};
use penstock_engine::{Share, Watch, worker};
use rustix::mm::{Advice, madvise};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr::NonNull,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

/// Most stacks of one worker, in use and idle together.
pub(crate) const STACKS_MAX: usize = 1024;
/// Idle stacks kept: as many as the line in front of the engine lets in at once, and some for connections to servers.
const STACKS_IDLE: usize = 160;
/// Twice the deepest use, rounded up. The test `stacks_are_twice_what_the_worst_handshake_needs` found 44.6 KB on 2026-11-21, in a
/// build without optimisation: RSA-4096 signed and verified natively, a chain of three and its root, P-384, ML-KEM.
const STACK_SIZE: usize = 96 * 1024;

/// The future that waited for this was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cancelled;

/// The code on the stack panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// The part of each stack that is wiped by hand and stays mapped: as deep as a handshake goes whose operations the
/// engine computes.
const KEPT: usize = 24 * 1024;

/// What a parked coroutine waits for: the answers to all of these.
pub(crate) struct Wait(pub [Option<Watch>; 2]);

impl Wait {
    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        // Both are polled, so that both wake.
        let pending = self.0.iter().flatten().filter(|watch| watch.poll_ready(cx).is_pending()).count();
        if pending == 0 { Poll::Ready(()) } else { Poll::Pending }
    }
}

type Resume = Result<(), Cancelled>;

thread_local! {
    /// The yielder of the coroutine that is running on this thread, if any.
    static CURRENT: Cell<Option<NonNull<Yielder<Resume, Wait>>>> = const { Cell::new(None) };
    static POOL: RefCell<Pool> = RefCell::default();
}

/// Whether the calling code runs on a stack that can be parked.
pub(crate) fn can_park() -> bool {
    CURRENT.get().is_some()
}

/// Suspends the coroutine until `wait` is over. To be called only if [`can_park`].
pub(crate) fn park(wait: Wait) -> Result<(), Cancelled> {
    let Some(yielder) = CURRENT.take() else { return Err(Cancelled) };
    // SAFETY: CURRENT holds a yielder only while its own coroutine runs on this thread: `start` sets it as the coroutine's
    // first act and clears it as its last, and every suspension takes it out (the line above) until it is resumed. The
    // yielder lives in the coroutine's root frame, below the frame of this call, so it outlives the reference.
    let resumed = unsafe { yielder.as_ref() }.suspend(wait);
    CURRENT.set(Some(yielder));
    resumed
}

/// Runs `body` on a stack where its hooks can park, and waits with it. Its operations count towards `share`; the time
/// they waited is added to `waited`.
pub(crate) async fn on_stack<R: 'static>(
    waited: &mut Duration,
    share: Share,
    body: impl FnOnce() -> R + 'static,
) -> Result<R, Broken> {
    let stack = acquire().await.map_err(|_| Broken)?;
    worker::set_share(share);
    let mut step = start(stack, body);
    loop {
        match step {
            Step::Done(result) => return result,
            Step::Parked(suspended, wait) => {
                let parked = Instant::now();
                poll_fn(|cx| wait.poll(cx)).await;
                *waited += parked.elapsed();
                worker::set_share(share);
                step = suspended.resume(Ok(()));
            }
        }
    }
}

enum Step<R> {
    Done(Result<R, Broken>),
    Parked(Suspended<R>, Wait),
}

/// A coroutine that is parked. Never empty outside its own methods.
struct Suspended<R>(Option<Coroutine<Resume, Wait, Result<R, Broken>, PooledStack>>);

fn start<R: 'static>(stack: PooledStack, body: impl FnOnce() -> R + 'static) -> Step<R> {
    let coroutine = Coroutine::with_stack(stack, move |yielder: &Yielder<Resume, Wait>, _first: Resume| {
        CURRENT.set(Some(NonNull::from(yielder)));
        let result = catch_unwind(AssertUnwindSafe(body)).map_err(|_| Broken);
        CURRENT.set(None);
        result
    });
    Suspended(Some(coroutine)).resume(Ok(()))
}

impl<R> Suspended<R> {
    fn resume(mut self, with: Resume) -> Step<R> {
        let Some(mut coroutine) = self.0.take() else { return Step::Done(Err(Broken)) };
        debug_assert!(CURRENT.get().is_none(), "one coroutine never runs inside another");
        match coroutine.resume(with) {
            CoroutineResult::Return(result) => Step::Done(result),
            CoroutineResult::Yield(wait) => {
                self.0 = Some(coroutine);
                Step::Parked(self, wait)
            }
        }
    }
}

impl<R> Drop for Suspended<R> {
    fn drop(&mut self) {
        let Some(mut coroutine) = self.0.take() else { return };
        // Each park returns `Cancelled`, so the handshake ends with an error after at most as many steps as it has
        // hooks.
        while !coroutine.done() {
            coroutine.resume(Err(Cancelled));
        }
    }
}

/// Counts of a worker's stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackCounts {
    /// In use at present.
    pub used: u64,
    /// Idle ones that are kept.
    pub kept: u64,
    /// The most that were in use at once.
    pub most: u64,
}

impl StackCounts {
    /// Adds the counts of another worker.
    pub fn add(&mut self, other: &StackCounts) {
        self.used += other.used;
        self.kept += other.kept;
        self.most += other.most;
    }
}

/// The counts of this thread's stacks.
pub fn stack_counts() -> StackCounts {
    POOL.with_borrow(|pool| StackCounts {
        used: pool.in_use as u64,
        kept: pool.idle.len() as u64,
        most: pool.in_use_max as u64,
    })
}

#[derive(Default)]
struct Pool {
    idle: Vec<DefaultStack>,
    in_use: usize,
    in_use_max: usize,
    waiting: VecDeque<(u64, Waker)>,
    numbers: u64,
}

impl Pool {
    fn call_next(&mut self) {
        if let Some((_, waker)) = self.waiting.pop_front() {
            waker.wake();
        }
    }
}

/// A stack on loan. Dropping it wipes it and makes it available again.
struct PooledStack(Option<DefaultStack>);

impl PooledStack {
    fn inner(&self) -> &DefaultStack {
        self.0.as_ref().expect("only drop takes it")
    }
}

// SAFETY: every answer is DefaultStack's own, which has the guard page and alignment asked for, and which stays where it is
// mapped when its handle moves.
unsafe impl Stack for PooledStack {
    fn base(&self) -> StackPointer {
        self.inner().base()
    }
    fn limit(&self) -> StackPointer {
        self.inner().limit()
    }
}

impl Drop for PooledStack {
    fn drop(&mut self) {
        let Some(stack) = self.0.take() else { return };
        #[cfg(test)]
        tests::note_depth(&stack);
        wipe(&stack);
        // When the thread is ending, the pool no longer exists and is not needed.
        let _ = POOL.try_with(|pool| {
            let mut pool = pool.borrow_mut();
            pool.in_use -= 1;
            if pool.idle.len() < STACKS_IDLE {
                pool.idle.push(stack);
            }
            pool.call_next();
        });
    }
}

/// A place in the line for a stack.
#[derive(Default)]
struct Place {
    /// The task's number in the line, while it waits there or has been called.
    waiting: Option<u64>,
}

async fn acquire() -> std::io::Result<PooledStack> {
    let mut turn = Place::default();
    poll_fn(|cx| POOL.with(|pool| turn.poll(cx, &mut pool.borrow_mut()))).await
}

impl Place {
    fn poll(&mut self, cx: &mut Context<'_>, pool: &mut Pool) -> Poll<std::io::Result<PooledStack>> {
        if let Some(number) = self.waiting {
            pool.waiting.retain(|(other, _)| *other != number);
        }
        if pool.in_use >= STACKS_MAX {
            let number = self.waiting.unwrap_or(pool.numbers);
            pool.numbers = pool.numbers.max(number + 1);
            self.waiting = Some(number);
            // Numbers only grow: a place that was called in vain goes back to where it was.
            let at = pool.waiting.partition_point(|(other, _)| *other < number);
            pool.waiting.insert(at, (number, cx.waker().clone()));
            return Poll::Pending;
        }
        self.waiting = None;
        let stack = match pool.idle.pop() {
            Some(stack) => stack,
            None => DefaultStack::new(STACK_SIZE)?,
        };
        pool.in_use += 1;
        pool.in_use_max = pool.in_use_max.max(pool.in_use);
        Poll::Ready(Ok(PooledStack(Some(stack))))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(number) = self.waiting else { return };
        let _ = POOL.try_with(|pool| {
            let mut pool = pool.borrow_mut();
            let before = pool.waiting.len();
            pool.waiting.retain(|(other, _)| *other != number);
            // It was called but dropped before it came: the call passes to the next, or the line would stand still.
            if pool.waiting.len() == before {
                pool.call_next();
            }
        });
    }
}

/// The part of a stack that code may have written: all above the guard page.
fn usable(stack: &DefaultStack) -> *mut [u8] {
    let low = stack.base().get() - STACK_SIZE;
    std::ptr::slice_from_raw_parts_mut(low as *mut u8, STACK_SIZE)
}

/// A copy of the contents of a stack that nothing runs on.
#[cfg(test)]
fn bytes(stack: &DefaultStack) -> Vec<u8> {
    // SAFETY: the caller holds the stack's only handle, and no coroutine is on it, so nothing else refers into the range, which is
    // the mapping's writable part.
    unsafe { &*usable(stack) }.to_vec()
}

/// Zeroes a stack. The part that handshakes use is overwritten; what lies below it is returned to the system, which
/// costs nothing if no handshake ever went that deep. (Searching for the deepest byte written instead meant reading 96
/// KiB per handshake, and filling the second-level cache with zeros.)
fn wipe(stack: &DefaultStack) {
    let range = usable(stack).cast::<u8>();
    let deep = STACK_SIZE - KEPT;
    // SAFETY: `DefaultStack::new(STACK_SIZE)` maps at least that much readable and writable private memory below its base, a
    // multiple of pages, beside the guard page. We hold the stack's only handle, and the coroutine that ran on it has returned,
    // so nothing refers into it.
    let given = unsafe { madvise(range.cast(), deep, Advice::LinuxDontNeed) };
    let from = if given.is_ok() { deep } else { 0 };
    // SAFETY: as above; no other reference to these bytes exists while this one does.
    let rest = unsafe { std::slice::from_raw_parts_mut(range.add(from), STACK_SIZE - from) };
    rest.fill(0);
    // The memory will only be read again through a later coroutine, which the optimiser cannot see.
    std::hint::black_box(rest);
}

#[cfg(test)]
#[deny(unsafe_code)]
mod tests;
