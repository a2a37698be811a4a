//! A worker's way to the device: its instances, its memory, its requests in progress.

use crate::{
    abi::{RESTARTING, RETRY, SUCCESS, Status, event},
    device::Device,
    instance::Health,
    memory::{Pool, SlotRef},
    request::{Answer, Call, Request},
};
use std::{
    marker::PhantomData,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

/// The caller's own name for a request.
pub type Tag = u64;

/// What became of a request.
pub enum Outcome {
    /// The request was answered. The answer has not been checked.
    Answered(Answer),
    /// The device could not carry out the request.
    Failed(Status),
    /// The request was not answered in time. A later answer is not reported.
    Late,
}

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The rings are full, or this channel has as many requests in progress as it may: try later.
    Full,
    /// Every instance of this worker is being reset or lost, or none can be asked this.
    Down,
    /// The library refused it, with this status.
    Failed(Status),
}

/// Requests of one channel that wait for an answer, at most: the depth of a virtual function's asymmetric ring (64, the
/// usual), where more would only wait in the ring.
const DEPTH: usize = 64;
/// Slots of one channel, at most, those included whose request was never answered and which cannot be used again.
const SLOTS_MAX: usize = 4 * DEPTH;
/// What a channel that ends waits for its last answers: a few hundred times what an operation takes.
const LAST_ANSWERS: Duration = Duration::from_millis(100);

/// One worker's channel; it stays on its thread.
pub struct Channel {
    device: Arc<Device>,
    /// The instances of this channel, by their places in the device's list.
    instances: Vec<usize>,
    pool: Pool,
    free: Vec<SlotRef>,
    waiting: Vec<Waiting>,
    /// Requests that were given up and have not been answered yet.
    late: Vec<SlotRef>,
    /// Times a ring was full.
    full: u64,
    here: PhantomData<*const ()>,
}

struct Waiting {
    tag: Tag,
    slot: SlotRef,
    call: Call,
    deadline: Instant,
}

impl Channel {
    pub(crate) fn new(device: Arc<Device>, instances: Vec<usize>, node: Option<u32>) -> Channel {
        Channel {
            device,
            instances,
            pool: Pool::new(node),
            free: Vec::new(),
            waiting: Vec::new(),
            late: Vec::new(),
            full: 0,
            here: PhantomData,
        }
    }

    /// The device that the channel leads to.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Requests that wait for their answer.
    pub fn depth(&self) -> usize {
        self.waiting.len()
    }

    /// How many more requests could be submitted, as far as this channel knows: other workers may have filled the ring.
    pub fn room(&self) -> usize {
        let slots = (SLOTS_MAX - self.late.len()).min(DEPTH);
        if self.is_up() { slots.saturating_sub(self.waiting.len()) } else { 0 }
    }

    /// Whether one of its instances takes requests. Where none does, the library is polled for news, which would not come
    /// otherwise.
    pub fn is_up(&self) -> bool {
        let up = || self.mine().any(|instance| instance.health() == Health::Up);
        up() || {
            self.device.poll_events(Instant::now());
            up()
        }
    }

    /// Times a ring was full.
    pub fn times_full(&self) -> u64 {
        self.full
    }

    fn mine(&self) -> impl Iterator<Item = &crate::instance::Instance> {
        self.instances.iter().map(|place| &self.device.instances[*place])
    }

    /// Gives a request to the least busy of its instances. It is answered, or late, in a later [`Channel::poll`].
    ///
    /// # Errors
    /// Why it was not taken; then nothing of it is left.
    pub fn submit(&mut self, request: &Request<'_>, tag: Tag, deadline: Instant) -> Result<(), Refused> {
        if self.waiting.len() >= DEPTH {
            return Err(Refused::Full);
        }
        let mut places = self.instances.clone();
        places.retain(|place| {
            let instance = &self.device.instances[*place];
            instance.health() == Health::Up && request.is_within(instance.capabilities)
        });
        if places.is_empty() {
            return Err(Refused::Down);
        }
        places.sort_by_key(|place| self.device.instances[*place].depth());
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.waiting.len() + self.late.len() >= SLOTS_MAX => return Err(Refused::Full),
            None => self.pool.grow(&self.device.library).ok_or(Refused::Full)?,
        };
        let call = request.write(slot);
        let mut refused = Refused::Down;
        for place in places {
            let instance = &self.device.instances[place];
            // Before the call: its answer may come on another thread before it returns.
            instance.begun();
            slot.hand_over(instance);
            refused = match call.submit(&self.device.library, instance.handle, slot) {
                SUCCESS => {
                    self.waiting.push(Waiting { tag, slot, call, deadline });
                    return Ok(());
                }
                RETRY => Refused::Full,
                RESTARTING => {
                    instance.heard(event::RESTARTING);
                    Refused::Down
                }
                status => Refused::Failed(status),
            };
            instance.finished();
        }
        slot.take_back();
        self.free.push(slot);
        self.full += u64::from(refused == Refused::Full);
        Err(refused)
    }

    /// Lets the library collect what its devices have answered, and reports the outcomes of this channel's requests.
    pub fn poll(&mut self, now: Instant, mut tell: impl FnMut(Tag, Outcome)) {
        self.device.poll_events(now);
        self.collect_rings();
        let (free, late) = (&mut self.free, &mut self.late);
        self.waiting.retain(|waiting| {
            if let Some((status, outputs)) = waiting.slot.collect() {
                free.push(waiting.slot);
                let answer = waiting.call.answer(outputs);
                tell(waiting.tag, if status == SUCCESS { Outcome::Answered(answer) } else { Outcome::Failed(status) });
                return false;
            }
            if now >= waiting.deadline {
                late.push(waiting.slot);
                tell(waiting.tag, Outcome::Late);
                return false;
            }
            true
        });
        self.late.retain(|slot| {
            let answered = slot.collect().is_some();
            if answered {
                self.free.push(*slot);
            }
            !answered
        });
    }

    fn collect_rings(&self) {
        for instance in self.mine().filter(|instance| instance.depth() > 0) {
            instance.polling(|handle| {
                // SAFETY: the instance has been started, and no other thread polls it. No quota: a ring has 64 answers.
                unsafe { (self.device.library.poll)(handle, 0) };
            });
        }
    }

    /// Gives up every request in progress: none of them is reported any more.
    pub fn abandon(&mut self) {
        self.late.extend(self.waiting.drain(..).map(|waiting| waiting.slot));
    }
}

impl Drop for Channel {
    /// Waits a while for its part of the rings to empty; memory of requests that are unanswered by then goes to the device.
    fn drop(&mut self) {
        self.abandon();
        let until = Instant::now() + LAST_ANSWERS;
        while !self.late.is_empty() && self.is_up() && Instant::now() < until {
            self.poll(Instant::now(), |_, _| {});
            std::thread::sleep(Duration::from_micros(50));
        }
        for instance in self.mine() {
            instance.workers.fetch_sub(1, Ordering::Relaxed);
        }
        self.device.adopt(std::mem::take(&mut self.pool));
    }
}
