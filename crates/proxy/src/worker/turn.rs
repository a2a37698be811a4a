//! Turns: each poll of a task is bounded by a budget, and watched by the watchdog.
//!
//! Every task of a worker is started by [`super::task::spawn`]. Its work in one poll spends the budget of
//! `penstock_rules::turn`. Once that is spent, [`poll_proceed`], which every read and write calls, makes the task wait
//! until all other runnable tasks have had a turn and the reactor has been polled. No task therefore waits longer than
//! one turn of each other task, whatever a peer pipelines, floods or downloads.

use std::{
    cell::Cell,
    future::{Future, poll_fn},
    pin::pin,
    task::{Context, Poll},
};

pub(crate) use penstock_rules::turn::{cost, is_spent, spend};

/// The budget of a turn while few tasks use up theirs: some 250 µs. A well-behaved client of HAProxy 2.6 waits 4 ms at
/// the 99th percentile beside eight that flood; eight such turns are 2 ms.
const TURN: u32 = 2500;

/// The total budget of all tasks that use up their turns, between two looks at the reactor: some 2 ms. It is exceeded
/// only if there are so many of them that each would get next to nothing.
const ROUND: u32 = 8 * TURN;

/// The smallest budget; with less, switching tasks would cost more than the work done.
const TURN_MIN: u32 = 400;

/// Counts the tasks that use up their turns. Pure: a worker has one, and so does each test.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// The current round. A new one begins when a task that used up its turn in this one is polled again, since all
    /// others have been polled meanwhile.
    pub round: Cell<u64>,
    spent_now: Cell<u32>,
    spent_before: Cell<u32>,
}

impl Rounds {
    /// The budget of a turn for a task that last used up a turn in round `spent_in`.
    pub fn begin(&self, spent_in: Option<u64>) -> u32 {
        if spent_in == Some(self.round.get()) {
            self.round.set(self.round.get() + 1);
            self.spent_before.set(self.spent_now.replace(0));
        }
        (ROUND / self.spent_before.get().max(1)).clamp(TURN_MIN, TURN)
    }
    /// Records that a task has used up its turn; returns the current round.
    pub fn spent(&self) -> u64 {
        self.spent_now.set(self.spent_now.get() + 1);
        self.round.get()
    }
}

/// What the tasks of one client's streams have spent together in a round. A client that opens a hundred streams has a
/// hundred tasks, but gets no more time for it.
#[derive(Debug, Default)]
pub(crate) struct ClientTime {
    round: Cell<u64>,
    spent: Cell<u32>,
}

impl ClientTime {
    /// How much of `units` the share has left in a round.
    pub fn left(&self, round: u64, units: u32) -> u32 {
        if self.round.replace(round) != round {
            self.spent.set(0);
        }
        units.saturating_sub(self.spent.get())
    }
    pub fn spend(&self, units: u32) {
        self.spent.set(self.spent.get().saturating_add(units));
    }
}

/// Ready while the turn has budget left; otherwise the task waits behind all others.
pub(crate) fn poll_proceed(cx: &mut Context<'_>) -> Poll<()> {
    if !is_spent() {
        return Poll::Ready(());
    }
    go_behind(cx);
    Poll::Pending
}

/// Makes the task be polled again after all other tasks that can run.
pub(crate) fn go_behind(cx: &mut Context<'_>) {
    // The first poll of this registers our waker to be called after the reactor has been polled, and is pending by
    // design. Waking ourselves directly would come before the reactor is polled, which would delay that for every task.
    let _ = pin!(tokio::task::yield_now()).poll(cx);
}

/// Called in every round of a loop that moves bytes, and in every turn of a task, so that [`crate::model`] can count
/// rounds.
#[inline]
pub(crate) fn round() {
    #[cfg(test)]
    counted::round();
}

/// Counts rounds in tests, so that looping without progress fails a test.
#[cfg(test)]
pub(crate) mod counted {
    use std::cell::Cell;

    thread_local! {
        static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
        static PLANTED: Cell<bool> = const { Cell::new(false) };
    }

    /// Allows this thread this many rounds from now on; `None` for no limit.
    pub fn allow(rounds: Option<u64>) {
        LEFT.set(rounds);
    }
    /// How many rounds are left; `None` without a limit.
    pub fn left() -> Option<u64> {
        LEFT.get()
    }
    /// Reintroduces an old fault on purpose: a wait for a body takes a full buffer for one with room.
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

/// Waits for the next turn if nothing is left of this one.
pub(crate) async fn proceed() {
    poll_fn(poll_proceed).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_rules::turn;

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
        let share = ClientTime::default();
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
