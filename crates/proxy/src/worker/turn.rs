//! Turns: a task's poll is bounded by a budget, and is what the watchdog watches.
//!
//! Every task of a worker is started by [`spawn`]. What it does in one poll spends the budget of `penstock_rules::turn`, and
//! once that is spent [`poll_proceed`], which every read and write asks, sends it to the end of the line: behind all tasks
//! that can run now, and behind a look at the reactor. So nobody waits longer than all others' turns, whatever a peer
//! pipelines, floods or downloads.

use super::Worker;
use crate::process::watchdog::Stage;
use penstock_rules::turn;
use std::{
    cell::Cell,
    future::{Future, poll_fn},
    net::{IpAddr, Ipv6Addr, SocketAddr},
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll},
};
use tokio::task::JoinHandle;

pub(crate) use penstock_rules::turn::{cost, is_spent, spend};

/// What a turn may cost when few tasks use theirs up: some 250 µs. HAProxy 2.6's innocent client waits 4 ms at its
/// 99th percentile behind eight that flood; eight such turns are 2 ms.
const TURN: u32 = 2500;

/// What all tasks that use their turns up may cost together between two looks at the reactor, some 2 ms, unless they are so
/// many that each would do next to nothing.
const ROUND: u32 = 8 * TURN;

/// Less than this would spend more on taking turns than on what is done in them.
const TURN_MIN: u32 = 400;

/// How many tasks use their turns up. Pure: a worker has one, a test has another.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// Begins when a task that used up its turn in this one is polled again: all others have been meanwhile.
    round: Cell<u64>,
    spent_now: Cell<u32>,
    spent_before: Cell<u32>,
}

impl Rounds {
    /// What the turn may cost of a task that last used one up in that round.
    fn begin(&self, spent_in: Option<u64>) -> u32 {
        if spent_in == Some(self.round.get()) {
            self.round.set(self.round.get() + 1);
            self.spent_before.set(self.spent_now.replace(0));
        }
        (ROUND / self.spent_before.get().max(1)).clamp(TURN_MIN, TURN)
    }
    /// A task has used up its turn; the round it did so in.
    fn spent(&self) -> u64 {
        self.spent_now.set(self.spent_now.get() + 1);
        self.round.get()
    }
}

/// What the tasks of one client's streams have spent together in a round. A client that opens a hundred streams has a
/// hundred tasks, and no longer turns by it.
#[derive(Debug, Default)]
pub(crate) struct Share {
    round: Cell<u64>,
    spent: Cell<u32>,
}

impl Share {
    /// What is left of so many units in a round.
    fn left(&self, round: u64, units: u32) -> u32 {
        if self.round.replace(round) != round {
            self.spent.set(0);
        }
        units.saturating_sub(self.spent.get())
    }
    fn spend(&self, units: u32) {
        self.spent.set(self.spent.get().saturating_add(units));
    }
}

/// Ready while something is left of the turn; otherwise the task goes to the end of the line.
pub(crate) fn poll_proceed(cx: &mut Context<'_>) -> Poll<()> {
    if !is_spent() {
        return Poll::Ready(());
    }
    go_behind(cx);
    Poll::Pending
}

/// Has the task polled again behind all others that can run.
fn go_behind(cx: &mut Context<'_>) {
    // The first poll of this puts our waker behind the next look at the reactor, and is pending by design. A waker that is
    // called at once would come before that look, which would then be late for everybody.
    let _ = pin!(tokio::task::yield_now()).poll(cx);
}

/// Called in every round of a loop that moves bytes, and in every turn of a task: [`crate::model`] counts them.
#[inline]
pub(crate) fn round() {
    #[cfg(test)]
    counted::round();
}

/// Rounds are counted in tests, so that going round without progress is a failure.
#[cfg(test)]
pub(crate) mod counted {
    use std::cell::Cell;

    thread_local! {
        static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
        static PLANTED: Cell<bool> = const { Cell::new(false) };
    }

    /// Lets this thread go round so often from now on; as often as it likes without a limit.
    pub fn allow(rounds: Option<u64>) {
        LEFT.set(rounds);
    }
    /// How many rounds are left.
    pub fn left() -> Option<u64> {
        LEFT.get()
    }
    /// Has a wait for a body take a full buffer for one with room, as it once did.
    pub fn plant(spin: bool) {
        PLANTED.set(spin);
    }
    pub fn planted() -> bool {
        PLANTED.get()
    }
    pub fn round() {
        match LEFT.get() {
            None => {}
            Some(0) => panic!("a spin: more rounds than the bytes explain"),
            Some(left) => LEFT.set(Some(left - 1)),
        }
    }
}

/// Goes on in the next turn if nothing is left of this one.
pub(crate) async fn proceed() {
    poll_fn(poll_proceed).await;
}

/// Whose turn it is, for the watchdog's last word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// The worker's own: its orders, its engine, its log, its idle connections.
    Worker,
    /// Who accepts for a `bind` line.
    Acceptor { proxy: usize, bind: usize },
    /// A client's connection.
    Connection { proxy: usize, bind: usize, peer: Option<SocketAddr> },
    /// A stream of one.
    Stream { proxy: usize, bind: usize, peer: Option<SocketAddr> },
    /// A connection to a server that many exchanges share.
    Server { peer: Option<SocketAddr> },
    /// Health checks of a server.
    Check { proxy: usize, server: usize },
}

impl Who {
    /// As words that another thread can read one by one.
    pub fn pack(self) -> [u64; 4] {
        let (kind, proxy, index, peer) = match self {
            Who::Worker => (0, 0, 0, None),
            Who::Acceptor { proxy, bind } => (1, proxy, bind, None),
            Who::Connection { proxy, bind, peer } => (2, proxy, bind, peer),
            Who::Stream { proxy, bind, peer } => (3, proxy, bind, peer),
            Who::Server { peer } => (4, 0, 0, peer),
            Who::Check { proxy, server } => (5, proxy, server, None),
        };
        let ip = peer.map_or(0, |peer| match peer.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
            IpAddr::V6(ip) => ip.to_bits(),
        });
        let port = peer.map_or(0, |peer| u64::from(peer.port()) << 1 | 1);
        [kind | port << 8, (proxy as u64) << 32 | index as u64 & 0xffff_ffff, (ip >> 64) as u64, ip as u64]
    }
    pub fn unpack([first, place, high, low]: [u64; 4]) -> Who {
        let (proxy, index) = ((place >> 32) as usize, (place & 0xffff_ffff) as usize);
        let ip = Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low));
        let peer = (first >> 8 & 1 == 1).then(|| SocketAddr::new(ip.to_canonical(), (first >> 9) as u16));
        match first & 0xff {
            1 => Who::Acceptor { proxy, bind: index },
            2 => Who::Connection { proxy, bind: index, peer },
            3 => Who::Stream { proxy, bind: index, peer },
            4 => Who::Server { peer },
            5 => Who::Check { proxy, server: index },
            _ => Who::Worker,
        }
    }
}

/// Starts a task of this worker.
pub(crate) fn spawn<F>(worker: &Rc<Worker>, who: Who, task: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    tokio::task::spawn_local(turns(worker, who, task))
}

/// Starts a task that has its turns out of a share.
pub(crate) fn spawn_sharing<F>(worker: &Rc<Worker>, who: Who, share: Rc<Share>, task: F)
where
    F: Future<Output = ()> + 'static,
{
    tokio::task::spawn_local(Turns { share: Some(share), ..turns(worker, who, task) });
}

/// A task whose polls are turns.
pub(crate) fn turns<F: Future>(worker: &Rc<Worker>, who: Who, task: F) -> Turns<F> {
    let stage = Stage::Idle as u8;
    Turns { task: Box::pin(task), worker: worker.clone(), who: who.pack(), share: None, spent_in: None, stage }
}

/// See [`turns`].
pub(crate) struct Turns<F> {
    /// On the heap by itself: it is pinned there, and taken by value it would be held twice.
    task: Pin<Box<F>>,
    worker: Rc<Worker>,
    who: [u64; 4],
    share: Option<Rc<Share>>,
    spent_in: Option<u64>,
    stage: u8,
}

impl<F: Future> Future for Turns<F> {
    type Output = F::Output;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        round();
        let mut units = this.worker.rounds.begin(this.spent_in);
        if let Some(share) = &this.share {
            let round = this.worker.rounds.round.get();
            units = share.left(round, units);
            if units == 0 {
                this.spent_in = Some(round);
                go_behind(cx);
                return Poll::Pending;
            }
        }
        turn::begin(units);
        this.worker.pulse().begin_turn(&this.who, this.stage);
        let polled = this.task.as_mut().poll(cx);
        this.stage = this.worker.pulse().end_turn();
        if let Some(share) = &this.share {
            share.spend(turn::spent_of(units));
        }
        this.spent_in = turn::end().then(|| {
            this.worker.pulse().turn_spent();
            this.worker.rounds.spent()
        });
        polled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_tasks_use_their_turns_up_the_shorter_turns_are() {
        let rounds = Rounds::default();
        let mut tasks = [None; 40];
        let mut round = |count: usize| {
            let mut total = 0;
            for task in &mut tasks[..count] {
                total += rounds.begin(*task);
                *task = Some(rounds.spent());
            }
            total
        };
        assert_eq!(round(1), TURN);
        for count in [1, 8, 8, 8] {
            round(count);
        }
        assert_eq!(round(8), ROUND, "eight have a whole turn each");
        round(40);
        assert_eq!(round(40), ROUND, "forty share what eight would have");
        round(1);
        assert_eq!(round(1), TURN, "and one has a whole turn again");
    }

    #[test]
    fn the_streams_of_a_client_have_one_turn_a_round_together() {
        let share = Share::default();
        let mut turns = [0; 3];
        for round in 1..=2 {
            for turn in &mut turns {
                *turn = share.left(round, TURN);
                share.spend((*turn).min(1000));
            }
            assert_eq!(turns, [TURN, TURN - 1000, TURN - 2000]);
            share.spend(700);
            assert_eq!(share.left(round, TURN), 0, "what was too much is not owed, and gives nothing either");
        }
    }

    #[test]
    fn who_has_a_turn_survives_being_packed() {
        for peer in [None, Some("192.0.2.1:80".parse().unwrap()), Some("[2001:db8::1]:65535".parse().unwrap())] {
            for who in [
                Who::Worker,
                Who::Acceptor { proxy: 3, bind: 70_000 },
                Who::Connection { proxy: 3, bind: 1, peer },
                Who::Stream { proxy: 20_000, bind: 1, peer },
                Who::Server { peer },
                Who::Check { proxy: 0, server: 9 },
            ] {
                assert_eq!(Who::unpack(who.pack()), who);
            }
        }
    }

    #[test]
    fn a_task_with_nothing_left_goes_on_in_its_next_turn() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            turn::begin(1);
            let mut polls = 0;
            poll_fn(|cx| {
                polls += 1;
                if polls == 2 {
                    turn::begin(1);
                }
                spend(if polls == 1 { 1 } else { 0 });
                poll_proceed(cx)
            })
            .await;
            assert_eq!(polls, 2);
            turn::end();
        });
    }
}
