//! Faults: a broken invariant ends the process, and tests plant faults that the watchdog must find.

use std::time::Duration;

/// Ends the process because an invariant is broken: going on could corrupt or leak client data.
#[cold]
pub(crate) fn broken(invariant: &str) -> ! {
    eprintln!("[ALERT] broken invariant: {invariant}\n{}", std::backtrace::Backtrace::force_capture());
    std::process::abort()
}

/// A fault that a test plants through the environment, to prove how the process reacts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A request for `/planted-fault` never ends its turn.
    Spin,
    /// A request for `/planted-fault` breaks an invariant.
    Invariant,
    /// The first rule that runs never ends.
    Rule,
    /// A request for `/planted-fault` keeps its worker busy for seconds, in short turns.
    Busy,
}

impl Fault {
    /// The fault that `PENSTOCK_PLANT_FAULT` names.
    pub fn planted() -> Option<Fault> {
        match std::env::var("PENSTOCK_PLANT_FAULT").ok()?.as_str() {
            "spin" => Some(Fault::Spin),
            "invariant" => Some(Fault::Invariant),
            "rule" => Some(Fault::Rule),
            "busy" => Some(Fault::Busy),
            _ => None,
        }
    }
    /// Makes the fault happen.
    pub async fn strike(self) {
        match self {
            Fault::Spin => spin(),
            // This one strikes where rules begin.
            Fault::Rule => {}
            Fault::Invariant => broken("a planted fault"),
            Fault::Busy => busy().await,
        }
    }
}

#[inline(never)]
pub(crate) fn spin() {
    loop {
        std::hint::black_box(());
    }
}

/// Uses far more CPU time than the watchdog allows one turn, in back-to-back turns of a few milliseconds.
async fn busy() {
    const BUSY: Duration = Duration::from_secs(3);
    let start = std::time::Instant::now();
    while start.elapsed() < BUSY {
        let turn = std::time::Instant::now();
        while turn.elapsed() < Duration::from_millis(5) {
            std::hint::black_box(());
        }
        let mut woken = false;
        std::future::poll_fn(|cx| {
            cx.waker().wake_by_ref();
            if std::mem::replace(&mut woken, true) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    }
}
