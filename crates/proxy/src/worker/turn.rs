//! Turns: each poll of a task is bounded by a budget, and watched by the watchdog.
//!
//! Every task of a worker is started by [`super::task::spawn`]. Its work in one poll spends the budget of
//! `penstock_rules::turn`. Once that is spent, [`poll_proceed`], which every read and write calls, makes the task wait
//! until all other runnable tasks have had a turn and the reactor has been polled. No task therefore waits longer than
//! one turn of each other task, whatever a peer pipelines, floods or downloads.

use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
};

pub(crate) use penstock_rules::turn::{cost, is_spent, spend};

/// The budget of a turn while few tasks use up theirs: some 250 µs. A well-behaved client of HAProxy 2.6 waits 4 ms at
/// the 99th percentile beside eight that flood; eight such turns are 2 ms.
const TURN: u32 = 2500;

/// The total budget of all tasks that use up their turns, between two looks at the reactor: some 2 ms. What is left over waits for
/// the next look.
const ROUND: u32 = 8 * TURN;

/// The smallest budget; with less, switching tasks would cost more than the work done.
const TURN_MIN: u32 = 400;

/// Shares out time to the tasks that use up their turns. Pure: a worker has one, and so does each test.
///
/// Between two looks at the reactor they take [`ROUND`] together, however long a single step of some of them is: those whose turn
/// has not come by then have it after the next look, before any of the others has another. Who had nothing to do for a whole look
/// never waits.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// How often the reactor has been looked at while there were such tasks.
    pub look: Cell<u64>,
    /// In a round each of the tasks has one turn.
    round: Cell<u64>,
    spent_now: Cell<u32>,
    spent_before: Cell<u32>,
    /// What they have used since the last look,
    used: Cell<u32>,
    /// How many of them have had no turn since the last look, nor in this round.
    waiting: Cell<u32>,
}

/// What a task remembers of its turns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    /// The look in which it was put behind the others, if it was the last time.
    behind: Option<u64>,
    /// The round in which it last used up a turn.
    served: Option<u64>,
}

impl Rounds {
    /// Records how often the reactor has been looked at.
    pub fn looked(&self, looks: u64) {
        if self.look.replace(looks) != looks {
            self.spent_before.set(self.spent_now.replace(0));
            self.used.set(0);
            if self.waiting.replace(0) == 0 {
                self.round.set(self.round.get() + 1);
            }
        }
    }
    /// The budget of a task's turn; 0 if it has to wait, behind all others.
    pub fn begin(&self, task: Place) -> u32 {
        // Something else has woken it: there was no look yet.
        if task.behind == Some(self.look.get()) {
            return 0;
        }
        if self.is_behind(task) {
            if task.served == Some(self.round.get()) {
                return 0;
            }
            if self.used.get() >= ROUND {
                self.waiting.set(self.waiting.get() + 1);
                return 0;
            }
        }
        (ROUND / self.spent_before.get().max(1)).clamp(TURN_MIN, TURN)
    }
    /// Whether the task had used up its turn, or had to wait, when it was last polled, and that was not long ago.
    pub fn is_behind(&self, task: Place) -> bool {
        task.behind.is_some_and(|look| look + 1 >= self.look.get())
    }
    /// Records that a task has to wait.
    pub fn put_behind(&self, task: &mut Place) {
        task.behind = Some(self.look.get());
    }
    /// Records that a task has had a turn; `took` is how long it was if the task was behind, and `is_spent` whether it has used it up.
    pub fn end(&self, task: &mut Place, took: u32, is_spent: bool) {
        self.used.set(self.used.get().saturating_add(took));
        *task = Place::default();
        if is_spent {
            self.spent_now.set(self.spent_now.get() + 1);
            *task = Place { behind: Some(self.look.get()), served: Some(self.round.get()) };
        }
    }
}

/// What the tasks of one client's streams have spent together since a look at the reactor. A client that opens a hundred streams has a
/// hundred tasks, but gets no more time for it.
#[derive(Debug, Default)]
pub(crate) struct ClientTime {
    look: Cell<u64>,
    spent: Cell<u32>,
}

impl ClientTime {
    /// How much of `units` the share has left until the next look at the reactor.
    pub fn left(&self, look: u64, units: u32) -> u32 {
        if self.look.replace(look) != look {
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

thread_local! {
    static LOOKS: Looks =
        Looks { count: Cell::default(), behind: RefCell::default(), waker: Waker::from(Arc::new(Looked)) };
}

/// Looks at the reactor of this thread.
struct Looks {
    count: Cell<u64>,
    /// The tasks that wait for the next one.
    behind: RefCell<Vec<Waker>>,
    /// [`Looked`].
    waker: Waker,
}

/// Wakes the tasks that have waited for a look.
struct Looked;

impl Wake for Looked {
    fn wake(self: Arc<Looked>) {
        let behind = LOOKS.with(|looks| {
            looks.count.set(looks.count.get() + 1);
            looks.behind.take()
        });
        behind.into_iter().for_each(Waker::wake);
    }
}

/// How often the reactor of this thread has been looked at while tasks waited for it.
pub(crate) fn looks() -> u64 {
    LOOKS.with(|looks| looks.count.get())
}

/// Makes the task be polled again after all other tasks that can run.
pub(crate) fn go_behind(cx: &mut Context<'_>) {
    let first = LOOKS.with(|looks| {
        let mut behind = looks.behind.borrow_mut();
        behind.push(cx.waker().clone());
        (behind.len() == 1).then(|| looks.waker.clone())
    });
    if let Some(waker) = first {
        // The first poll of this registers the waker to be called after the reactor has been polled, and is pending by
        // design. Waking a task directly would come before the reactor is polled, which would delay that for every task.
        let _ = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(&waker));
    }
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
        let mut tasks = [Place::default(); 40];
        let mut looks = 0;
        let mut look = |count: usize| {
            looks += 1;
            rounds.looked(looks);
            let mut total = 0;
            for task in &mut tasks[..count] {
                let units = rounds.begin(*task);
                total += units;
                let took = if rounds.is_behind(*task) { units } else { 0 };
                rounds.end(task, took, true);
            }
            total
        };
        assert_eq!(look(1), TURN);
        for count in [1, 8, 8, 8] {
            look(count);
        }
        assert_eq!(look(8), ROUND, "eight have a whole turn each");
        look(40);
        assert_eq!(look(40), ROUND, "forty share what eight would have");
        look(1);
        assert_eq!(look(1), TURN, "and one has a whole turn again");
    }

    #[test]
    fn tasks_whose_steps_are_long_take_turns_and_a_look_is_not_late() {
        // Each step takes ten times the smallest turn, and cannot be cut.
        const STEP: u32 = 10 * TURN_MIN;
        let rounds = Rounds::default();
        let (mut tasks, mut turns) = ([Place::default(); 50], [0; 50]);
        for look in 0..100 {
            let mut used = 0;
            rounds.looked(look + 1);
            for (task, turns) in tasks.iter_mut().zip(&mut turns) {
                match rounds.begin(*task) {
                    0 => rounds.put_behind(task),
                    _ => {
                        used += STEP;
                        *turns += 1;
                        let took = if rounds.is_behind(*task) { STEP } else { 0 };
                        rounds.end(task, took, true);
                    }
                }
            }
            // Nobody knows them at first.
            assert!(look == 0 || used <= ROUND, "look {look}: {used}");
            assert!(rounds.begin(Place::default()) > 0, "whoever comes now has a turn");
            assert!(tasks.iter().all(|&task| rounds.begin(task) == 0), "nobody has a second one before the next look");
        }
        assert!(turns.iter().all(|&had| (10..=11).contains(&had)), "{turns:?}");
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
