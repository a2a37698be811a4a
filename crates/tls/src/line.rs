//! The line of handshakes that wait for the worker: admission under overload.
//!
//! Most of a handshake's CPU time is spent on its first flight. If there is more than a turn can hold, handshakes wait
//! here as bytes, without a stack, and are let in by frontend in turn. If a client has left meanwhile, its handshake is
//! dropped before it costs anything; and if the wait would be longer than `tune.crypto.max-wait`, a new handshake is
//! turned away at once. So, however many connections arrive, those that are served are served in time.

use penstock_engine::{Fair, Share, worker};
use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};
use tokio::task::yield_now;

/// The default of `tune.crypto.max-wait`.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(2);
/// Most handshakes that may be in their first flight at once, mostly parked: enough to fill every lane several times.
const INSIDE_MAX: usize = 128;
/// CPU time of first flights in one pass of the loop, if they are computed inline; after it, sockets and timers have
/// their turn.
const TURN_MAX: Duration = Duration::from_millis(1);

/// The handshake was turned away, since the line was too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TurnedAway;

/// Counts of one worker's line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCounts {
    /// Handshakes waiting at present.
    pub waiting: u64,
    /// The most that have waited at once.
    pub most: u64,
    /// Handshakes turned away because the line was too long.
    pub turned_away: u64,
    /// Handshakes whose client had left before their turn.
    pub left: u64,
}

impl LineCounts {
    /// Adds the counts of another worker.
    pub fn add(&mut self, other: &LineCounts) {
        self.waiting += other.waiting;
        self.most += other.most;
        self.turned_away += other.turned_away;
        self.left += other.left;
    }
}

/// What happens to a handshake that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrival {
    Enter,
    Wait,
    TurnedAway,
}

/// The line without tasks and clocks.
struct Core<T> {
    waiting: Fair<T>,
    inside: usize,
    /// Time spent in this turn on first flights that were computed inline.
    spent: Duration,
    /// Mean time of a first flight, which determines how many fit into a turn.
    flight: Mean,
    /// Time between two handshakes let in while others wait, from which the wait is predicted.
    pace: Pace,
    /// When the last turn let a handshake in and left others waiting.
    turned: Option<Instant>,
    entered: u32,
}

/// An exponential mean: each new value has a weight of an eighth.
#[derive(Default)]
struct Mean(Option<Duration>);

impl Mean {
    fn add(&mut self, value: Duration) {
        self.0 = Some(self.0.map_or(value, |mean| (mean * 7 + value) / 8));
    }
    fn get(&self) -> Duration {
        self.0.unwrap_or_default()
    }
}

/// Time per entry, over the last hundred or so. A turn is weighted by how many it let in, so that one which was delayed
/// (another process had the CPU) and let in only one has little influence.
#[derive(Default)]
struct Pace {
    time: Duration,
    entered: u32,
}

impl Pace {
    const MEMORY: u32 = 64;

    fn add(&mut self, time: Duration, entered: u32) {
        self.time += time;
        self.entered += entered;
        if self.entered >= 2 * Self::MEMORY {
            self.time /= 2;
            self.entered /= 2;
        }
    }

    /// Nothing is predicted before a few have entered.
    fn get(&self) -> Duration {
        if self.entered < Self::MEMORY / 4 { Duration::ZERO } else { self.time / self.entered }
    }
}

impl<T> Default for Core<T> {
    fn default() -> Self {
        Core {
            waiting: Fair::default(),
            inside: 0,
            spent: Duration::ZERO,
            flight: Mean::default(),
            pace: Pace::default(),
            turned: None,
            entered: 0,
        }
    }
}

impl<T> Core<T> {
    fn arrive(&self, max_wait: Duration) -> Arrival {
        if self.waiting.is_empty() && self.inside < INSIDE_MAX && self.spent < TURN_MAX {
            Arrival::Enter
        } else if self.predicted() > max_wait * 3 / 4 {
            // The prediction is trusted to within a quarter. (With four fifths, at two and three times the load of a
            // server with a CPU quota, the slowest hundredth of its clients took slightly longer than they may.)
            Arrival::TurnedAway
        } else {
            Arrival::Wait
        }
    }

    /// How long a handshake that arrives now would wait.
    fn predicted(&self) -> Duration {
        self.pace.get() * u32::try_from(self.waiting.len()).unwrap_or(u32::MAX)
    }

    fn enter(&mut self) {
        self.inside += 1;
    }

    /// Records that a first flight is complete; `inline` is the thread time it took, if it did not park.
    fn leave(&mut self, inline: Option<Duration>) {
        self.inside -= 1;
        if let Some(time) = inline {
            self.spent += time;
            self.flight.add(time);
        }
    }

    /// Starts a new pass of the loop; returns those that may enter in it.
    fn turn(&mut self, now: Instant, is_there: impl Fn(&T) -> bool) -> Vec<T> {
        if let Some(turned) = self.turned.take() {
            self.pace.add(now.saturating_duration_since(turned), self.entered);
        }
        self.spent = Duration::ZERO;
        let flights = match self.flight.get().as_nanos() {
            0 => INSIDE_MAX,
            time => (TURN_MAX.as_nanos() / time).max(1) as usize,
        };
        let room = INSIDE_MAX.saturating_sub(self.inside).min(flights);
        let called: Vec<T> = std::iter::from_fn(|| self.waiting.pop()).filter(is_there).take(room).collect();
        self.entered = called.len() as u32;
        if !self.waiting.is_empty() {
            self.turned = Some(now);
        }
        called
    }
}

#[derive(Default)]
struct Line {
    core: Core<Rc<Waiting>>,
    driver: Option<Waker>,
    counts: LineCounts,
}

/// A waiting handshake.
#[derive(Default)]
struct Waiting {
    called: Cell<bool>,
    /// Whether the handshake's permit has been taken.
    entered: Cell<bool>,
    gone: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

thread_local! {
    static LINE: RefCell<Line> = RefCell::default();
}

/// The counts of this thread's line.
pub fn line_counts() -> LineCounts {
    LINE.with_borrow(|line| LineCounts { waiting: line.core.waiting.len() as u64, ..line.counts })
}

/// Whether a handshake that arrives now would be turned away; knowing that before reading the hello costs least.
pub(crate) fn is_closed(max_wait: Duration) -> bool {
    LINE.with_borrow_mut(|line| {
        let closed = line.core.arrive(max_wait) == Arrival::TurnedAway;
        line.counts.turned_away += u64::from(closed);
        closed
    })
}

/// Counts a client that had left before its turn.
pub(crate) fn left() {
    LINE.with_borrow_mut(|line| line.counts.left += 1);
}

/// Permission to compute a first flight, until dropped.
pub(crate) struct Permit {
    began: Instant,
    /// Whether the handshake had to wait for its turn.
    pub waited: bool,
}

impl Drop for Permit {
    fn drop(&mut self) {
        // If operations can wait, so did this one; otherwise it was the thread's own time.
        let inline = (!worker::may_wait()).then(|| self.began.elapsed());
        // The line no longer exists when the thread is ending.
        let _ = LINE.try_with(|line| line.borrow_mut().core.leave(inline));
    }
}

impl Permit {
    fn new(waited: bool) -> Permit {
        Permit { began: Instant::now(), waited }
    }
}

/// Waits for permission to compute a first flight.
pub(crate) async fn enter(share: Share, max_wait: Duration) -> Result<Permit, TurnedAway> {
    let place = LINE.with_borrow_mut(|line| match line.core.arrive(max_wait) {
        Arrival::Enter => {
            line.core.enter();
            Ok(None)
        }
        Arrival::TurnedAway => {
            line.counts.turned_away += 1;
            Err(TurnedAway)
        }
        Arrival::Wait => {
            let waiting = Rc::new(Waiting::default());
            line.core.waiting.push(share, waiting.clone());
            line.counts.most = line.counts.most.max(line.core.waiting.len() as u64);
            if let Some(driver) = line.driver.take() {
                driver.wake();
            }
            Ok(Some(Place(waiting)))
        }
    })?;
    let Some(place) = place else { return Ok(Permit::new(false)) };
    let since = Instant::now();
    poll_fn(|cx| place.0.poll(cx)).await;
    if since.elapsed() > max_wait {
        LINE.with_borrow_mut(|line| line.counts.turned_away += 1);
        return Err(TurnedAway);
    }
    place.0.entered.set(true);
    Ok(Permit::new(true))
}

impl Waiting {
    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.called.get() {
            return Poll::Ready(());
        }
        *self.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// A place in the line. If it is dropped after being called, the reservation is released.
struct Place(Rc<Waiting>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.gone.set(true);
        if self.0.called.get() && !self.0.entered.get() {
            let _ = LINE.try_with(|line| line.borrow_mut().core.leave(None));
        }
    }
}

/// Lets waiting handshakes in: as many as fit into a turn, after each look at sockets and timers.
pub(crate) async fn drive() {
    loop {
        poll_fn(|cx| {
            LINE.with_borrow_mut(|line| {
                if !line.core.waiting.is_empty() {
                    return Poll::Ready(());
                }
                line.driver = Some(cx.waker().clone());
                Poll::Pending
            })
        })
        .await;
        yield_now().await;
        LINE.with_borrow_mut(|line| {
            for waiting in line.core.turn(Instant::now(), |waiting| !waiting.gone.get()) {
                line.core.enter();
                waiting.called.set(true);
                if let Some(waker) = waiting.waker.take() {
                    waker.wake();
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cost of accepting a connection and closing it.
    const TURNING_AWAY: Duration = Duration::from_micros(40);

    /// Simulates a server with one thread under a virtual clock: it computes inline, and `load` times as many
    /// connections arrive as it can serve, for some seconds. Returns how many were served per second, and the longest
    /// time that any of them took.
    fn served(load: f64, service: Duration, max_wait: Duration) -> (f64, Duration) {
        let start = Instant::now();
        let end = start + Duration::from_secs(20);
        let mut core = Core::<Instant>::default();
        let (mut now, mut next) = (start, start);
        let between = service.div_f64(load);
        let (mut done, mut longest) = (0, Duration::ZERO);
        while now < end {
            // One pass of the loop: new arrivals enter or wait; then a turn's worth is served.
            let mut entering = Vec::new();
            while next <= now {
                match core.arrive(max_wait) {
                    Arrival::Enter => entering.push(next),
                    Arrival::Wait => core.waiting.push(0, next),
                    Arrival::TurnedAway => now += TURNING_AWAY,
                }
                if core.spent < TURN_MAX && !entering.is_empty() {
                    core.enter();
                    now += service;
                    core.leave(Some(service));
                    longest = longest.max(now - entering.remove(0));
                    done += 1;
                }
                next += between;
            }
            for arrived in core.turn(now, |_| true) {
                core.enter();
                now += service;
                core.leave(Some(service));
                longest = longest.max(now - arrived);
                done += 1;
            }
            now = now.max(next);
        }
        (f64::from(done) / (now - start).as_secs_f64(), longest)
    }

    #[test]
    fn at_three_times_capacity_as_many_are_served_and_all_in_time() {
        for (service_us, bound_ms) in [(2300, 2000), (400, 2000), (2300, 200)] {
            let (service, bound) = (Duration::from_micros(service_us), Duration::from_millis(bound_ms));
            let (peak, _) = served(1.0, service, bound);
            let (rate, longest) = served(3.0, service, bound);
            // If turning a connection away costs c of serving one, three arrivals per served one leave (1 - 3 c) / (1 -
            // c) of the peak: 97 % if a flight takes 2.3 ms.
            let c = TURNING_AWAY.div_duration_f64(service);
            let left = (1.0 - 3.0 * c) / (1.0 - c);
            assert!(rate > 0.98 * left * peak, "{rate:.0} of {peak:.0} a second at {service_us} us");
            assert!(service_us < 1000 || rate > 0.9 * peak);
            assert!(longest < bound * 11 / 10, "{longest:?} of {bound:?}");
            let (_, calm) = served(0.5, service, bound);
            assert!(calm <= 2 * service, "at half of capacity nothing waits: {calm:?}");
        }
    }

    #[test]
    fn a_turn_is_filled_and_no_more() {
        let now = Instant::now();
        let mut core = Core::<u32>::default();
        core.enter();
        core.leave(Some(Duration::from_micros(400)));
        (0..10).for_each(|item| core.waiting.push(0, item));
        assert_eq!(core.turn(now, |_| true), [0, 1], "two of 400 us in a turn of a millisecond");
        assert_eq!(core.turn(now, |item| *item != 2), [3, 4], "a closed connection takes no place");
        assert_eq!(core.arrive(MAX_WAIT), Arrival::Wait, "none passes the line");
    }

    #[test]
    fn one_turn_that_was_held_up_turns_nobody_away() {
        const US: fn(u64) -> Duration = Duration::from_micros;
        let mut pace = Pace::default();
        (0..8).for_each(|_| pace.add(US(1600), 8));
        assert_eq!(pace.get(), US(200));
        // 20 ms without the CPU, in which one entered, must not make the prediction for 384 waiting ones 2 seconds.
        pace.add(Duration::from_millis(20), 1);
        assert!(pace.get() * 384 < Duration::from_millis(300), "{:?}", pace.get());
        // A changed pace is recognised after some two hundred entries.
        (0..200).for_each(|_| pace.add(US(2300), 1));
        assert!(pace.get() > US(2000), "{:?}", pace.get());
    }

    #[test]
    fn parked_flights_fill_the_room_there_is() {
        let mut core = Core::<u32>::default();
        (0..INSIDE_MAX).for_each(|_| core.enter());
        assert_eq!(core.arrive(MAX_WAIT), Arrival::Wait);
        core.waiting.push(0, 7);
        assert!(core.turn(Instant::now(), |_| true).is_empty());
        core.leave(None);
        assert_eq!(core.turn(Instant::now(), |_| true), [7]);
    }
}
