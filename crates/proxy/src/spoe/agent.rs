//! A worker's side of an engine: what waits for its agent, and who carries it.

use crate::process::shared::Shared;
use penstock_config::model::{ProxyId, SpoeAgent};
use penstock_rules::ServerId;
use penstock_spop::{AgentSettings, AgentStatus, FRAME_PREFIX};
use slab::Slab;
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashMap},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::{
    sync::oneshot,
    time::{Instant, Sleep, sleep},
};

/// The agents of a worker, by engine.
pub(crate) struct Agents(Vec<Rc<Agent>>);

impl Agents {
    pub fn new(shared: &Shared, rng: &mut fastrand::Rng) -> Agents {
        let bufsize = shared.config.global.tune.bufsize;
        let agents = shared.config.spoe.iter().map(|engine| &engine.agent).map(|agent| {
            let name = agent.backend.as_ref().map(|name| name.text.as_bytes());
            let backend = name.and_then(|name| shared.program.backend_named(name));
            Rc::new(Agent::new(agent, backend, bufsize, uuid(rng)))
        });
        Agents(agents.collect())
    }

    pub fn of(&self, engine: usize) -> &Rc<Agent> {
        &self.0[engine]
    }
}

/// What is known of an agent.
pub(crate) struct Agent {
    /// The backend whose servers it is; configurations without one are refused.
    pub backend: Option<ProxyId>,
    pub settings: AgentSettings,
    processing: Duration,
    /// What no connection has room for yet, in order.
    queue: RefCell<BTreeMap<u64, Ask>>,
    next: Cell<u64>,
    /// What has been sent and not been acknowledged, by stream and frame.
    sent: RefCell<HashMap<(u64, u64), Sent>>,
    links: RefCell<Slab<Link>>,
    connection_rate: u32,
    error_rate: u32,
    opened: Cell<Second>,
    errors: Cell<Second>,
    /// How many connections in a row came to nothing.
    failures: Cell<u32>,
    /// The server that the last of them was to.
    pub avoid: Cell<Option<ServerId>>,
    /// How many payloads were answered, or not, and how many of them were not.
    pub processed: Cell<u64>,
    pub failed: Cell<u64>,
}

/// A payload that waits to be sent.
pub(super) struct Ask {
    pub stream: u64,
    pub frame: u64,
    pub payload: Vec<u8>,
    answer: oneshot::Sender<Answer>,
    sent: Rc<Cell<Option<Instant>>>,
}

/// The actions that an agent has sent, or the status of the processing (SPOE.txt, `option set-on-error`).
pub(super) type Answer = Result<Vec<u8>, u32>;

/// Statuses of the processing.
pub(super) mod status {
    pub const TIMEOUT: u32 = 1;
    pub const TOO_BIG: u32 = 3;
    /// The same, where the agent is the one whose frames are too small for it.
    pub const TOO_BIG_FOR_AGENT: u32 = OF_FRAME + 3;
    pub const INTERRUPTED: u32 = 5;
    pub const UNKNOWN: u32 = 255;
    /// What the statuses of frames are added to.
    pub const OF_FRAME: u32 = 256;
}

struct Sent {
    /// The connection that carried it; `None` when that is over.
    link: Option<usize>,
    answer: oneshot::Sender<Answer>,
}

/// A connection, as its agent knows it.
#[derive(Default)]
pub(super) struct Link {
    /// Whether the agent has greeted.
    pub is_open: bool,
    /// Whether nothing is carried any more.
    pub is_over: bool,
    pub is_async: bool,
    pub room: bool,
    /// How many payloads on it somebody waits for.
    pub waiting: usize,
    /// What it need not acknowledge any more.
    pub settled: Vec<(u64, u64)>,
    pub waker: Option<Waker>,
}

/// How many times something happened in a second of the process.
#[derive(Clone, Copy, Default)]
struct Second {
    at: u64,
    count: u32,
}

impl Second {
    fn count(self, now_ms: u64) -> u32 {
        if self.at == now_ms / 1000 { self.count } else { 0 }
    }
    fn add(self, now_ms: u64) -> Second {
        Second { at: now_ms / 1000, count: self.count(now_ms) + 1 }
    }
}

/// As many connections to its agent may an engine have on a worker: agents that take one payload at a time need one for each.
const LINKS_MAX: usize = 256;
/// So many are opened although others have room, so that an agent which handles each of its connections by itself can do
/// several things at a time; and no more than so many are opened at a time.
const PARALLEL: usize = 4;
/// The longest wait of a stream where the agent has no `timeout processing`, and for a hello where it has no `timeout hello`.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// The wait after a connection that came to nothing; it doubles with each of them in a row.
const PAUSE: Duration = Duration::from_millis(50);
/// The longest such wait.
const PAUSE_MAX: Duration = Duration::from_secs(1);

impl Agent {
    fn new(agent: &SpoeAgent, backend: Option<ProxyId>, bufsize: usize, engine_id: String) -> Agent {
        let ms = |time: Option<Duration>| time.map(|time| time.as_millis() as u64);
        Agent {
            backend,
            settings: AgentSettings {
                max_frame_size: agent.max_frame_size.unwrap_or((bufsize - FRAME_PREFIX) as u32),
                pipelining: agent.pipelining,
                waiting_max: agent.waiting_max,
                is_async: agent.is_async,
                fragments: agent.fragments,
                engine_id,
                hello_ms: ms(agent.hello.or(Some(WAIT_MAX))),
                idle_ms: ms(agent.idle),
            },
            processing: agent.processing.unwrap_or(WAIT_MAX),
            queue: RefCell::default(),
            next: Cell::new(0),
            sent: RefCell::default(),
            links: RefCell::default(),
            connection_rate: agent.connection_rate,
            error_rate: agent.error_rate,
            opened: Cell::default(),
            errors: Cell::default(),
            failures: Cell::new(0),
            avoid: Cell::new(None),
            processed: Cell::new(0),
            failed: Cell::new(0),
        }
    }

    /// Whether so many errors have happened in this second that nothing is sent.
    pub fn is_resting(&self, now_ms: u64) -> bool {
        self.error_rate > 0 && self.errors.get().count(now_ms) >= self.error_rate
    }

    /// Counts a payload that was processed.
    pub fn count(&self, succeeded: bool, now_ms: u64) {
        self.processed.set(self.processed.get() + 1);
        if !succeeded {
            self.failed.set(self.failed.get() + 1);
            self.errors.set(self.errors.get().add(now_ms));
        }
    }

    /// Notes that a connection is opened now, unless there are enough of them in this second.
    pub fn may_open(&self, now_ms: u64) -> bool {
        let may = self.connection_rate == 0 || self.opened.get().count(now_ms) < self.connection_rate;
        if may {
            self.opened.set(self.opened.get().add(now_ms));
        }
        may
    }

    /// Queues a payload; the answer is that of the future, which forgets it when it is dropped.
    pub(super) fn ask(self: &Rc<Self>, stream: u64, frame: u64, payload: Vec<u8>) -> Asking {
        let (answer, receiver) = oneshot::channel();
        let sent = Rc::new(Cell::new(None));
        let number = self.next.get();
        self.next.set(number + 1);
        self.queue.borrow_mut().insert(number, Ask { stream, frame, payload, answer, sent: sent.clone() });
        let limit = Box::pin(sleep(self.processing));
        Asking { agent: self.clone(), number, key: (stream, frame), receiver, sent, limit }
    }

    /// Finds a connection to carry what waits: wakes one, or gives the place of one that is to be opened.
    pub(super) fn dispatch(&self) -> Option<usize> {
        let queued = self.queue.borrow().len();
        let spawns = {
            let links = self.links.borrow();
            let opening = links.iter().filter(|(_, link)| !link.is_open).count();
            let best = links.iter().map(|(_, link)| link).filter(|link| link.room).min_by_key(|link| link.waiting);
            // An acknowledgement of what was sent may come over any connection, so that there has to be one.
            let orphaned = links.is_empty() && !self.sent.borrow().is_empty();
            match best {
                _ if queued == 0 => orphaned,
                Some(link) => {
                    link.waker.iter().for_each(Waker::wake_by_ref);
                    link.waiting > 0 && opening == 0 && links.len() < PARALLEL
                }
                // An agent that does not answer is tried by one connection at a time.
                None if self.failures.get() > 0 => opening == 0,
                None => opening < queued.min(PARALLEL) && links.len() < LINKS_MAX,
            }
        };
        spawns.then(|| self.links.borrow_mut().insert(Link::default()))
    }

    /// Notes that a connection is of use, or that it came to nothing.
    pub(super) fn tried(&self, is_useful: bool) {
        self.failures.set(if is_useful { 0 } else { self.failures.get().saturating_add(1) });
    }

    /// How long nothing is opened after a connection that came to nothing.
    pub(super) fn pause(&self) -> Duration {
        match self.failures.get() {
            0 => Duration::ZERO,
            failures => (PAUSE * 2u32.pow(failures.min(8) - 1)).min(PAUSE_MAX),
        }
    }

    /// Whether something waits to be sent.
    pub(super) fn has_queue(&self) -> bool {
        !self.queue.borrow().is_empty()
    }

    /// The next payload for a connection that has room.
    pub(super) fn next_ask(&self) -> Option<Ask> {
        Some(self.queue.borrow_mut().pop_first()?.1)
    }

    /// Notes that a payload is on its way.
    pub(super) fn sent(&self, link: usize, ask: Ask, now: Instant) {
        ask.sent.set(Some(now));
        self.links.borrow_mut()[link].waiting += 1;
        self.sent.borrow_mut().insert((ask.stream, ask.frame), Sent { link: Some(link), answer: ask.answer });
    }

    /// Passes on an acknowledgement, and returns whether somebody waited for it. One of a payload that nobody waits for any more is
    /// ignored, as is one over a connection that does not carry such.
    pub(super) fn acknowledged(&self, link: usize, is_async: bool, key: (u64, u64), actions: Vec<u8>) -> bool {
        let Some(carrier) = self.sent.borrow().get(&key).map(|sent| sent.link) else { return false };
        if carrier != Some(link) {
            let is_shared = carrier.is_none_or(|carrier| self.links.borrow()[carrier].is_async);
            if !(is_async && is_shared) {
                return false;
            }
        }
        let answer = self.settle(key, Some(link));
        answer.is_some_and(|answer| answer.send(Ok(actions)).is_ok())
    }

    /// Forgets a payload that was sent, as does the connection that carried it, unless the acknowledgement came over that one.
    fn settle(&self, key: (u64, u64), over: Option<usize>) -> Option<oneshot::Sender<Answer>> {
        let sent = self.sent.borrow_mut().remove(&key)?;
        if let Some(carrier) = sent.link {
            let link = &mut self.links.borrow_mut()[carrier];
            link.waiting -= 1;
            if over != Some(carrier) {
                link.settled.push(key);
                link.waker.iter().for_each(Waker::wake_by_ref);
            }
        }
        Some(sent.answer)
    }

    /// Notes that a connection carries nothing any more. Those that wait on it are told that no acknowledgement will come, unless one
    /// may come over another.
    pub(super) fn ended(&self, link: usize, is_async: bool, status: AgentStatus) {
        let carrier = &mut self.links.borrow_mut()[link];
        (carrier.is_over, carrier.waiting) = (true, 0);
        let mut sent = self.sent.borrow_mut();
        if is_async {
            sent.values_mut().filter(|sent| sent.link == Some(link)).for_each(|sent| sent.link = None);
            return;
        }
        for (_, sent) in sent.extract_if(|_, sent| sent.link == Some(link)) {
            let _ = sent.answer.send(Err(status::OF_FRAME.saturating_add(status.0)));
        }
    }

    /// Notes the state of a connection; returns what it need not acknowledge any more.
    pub(super) fn note(&self, place: usize, change: impl FnOnce(&mut Link)) -> Vec<(u64, u64)> {
        let mut links = self.links.borrow_mut();
        let link = &mut links[place];
        change(link);
        std::mem::take(&mut link.settled)
    }

    /// Notes that a connection is gone.
    pub(super) fn closed(&self, place: usize) {
        self.links.borrow_mut().remove(place);
    }

    /// How many connections are idle, how many there are, how many payloads wait to be sent, and how many for an
    /// acknowledgement.
    pub fn figures(&self) -> [usize; 4] {
        let links = self.links.borrow();
        let lasting = || links.iter().filter(|(_, link)| !link.is_over);
        let idle = lasting().filter(|(_, link)| link.is_open && link.waiting == 0).count();
        [idle, lasting().count(), self.queue.borrow().len(), self.sent.borrow().len()]
    }
}

impl Ask {
    /// Answers in the agent's place, at the moment at which it would have been sent.
    pub(super) fn refuse(self, status: u32, now: Instant) {
        self.sent.set(Some(now));
        let _ = self.answer.send(Err(status));
    }
}

/// A random identifier of version 4 (RFC 9562).
fn uuid(rng: &mut fastrand::Rng) -> String {
    let bits = rng.u128(..) & !(0xf << 76 | 0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let hex = format!("{bits:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// A payload that somebody waits for.
pub(super) struct Asking {
    agent: Rc<Agent>,
    number: u64,
    key: (u64, u64),
    receiver: oneshot::Receiver<Answer>,
    sent: Rc<Cell<Option<Instant>>>,
    limit: Pin<Box<Sleep>>,
}

impl Asking {
    /// When the payload was sent, if it was.
    pub fn sent_at(&self) -> Option<Instant> {
        self.sent.get()
    }
}

impl Future for Asking {
    type Output = Answer;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        if let Poll::Ready(answer) = Pin::new(&mut self.receiver).poll(cx) {
            return Poll::Ready(answer.unwrap_or(Err(status::UNKNOWN)));
        }
        self.limit.as_mut().poll(cx).map(|()| Err(status::TIMEOUT))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.agent.queue.borrow_mut().remove(&self.number);
        self.agent.settle(self.key, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_config::Word;
    use std::pin::pin;

    fn agent() -> Rc<Agent> {
        Rc::new(Agent::new(&SpoeAgent::new(Word::default()), None, 16_384, "e".to_owned()))
    }

    /// Runs a test that has timers.
    fn timed(test: impl FnOnce()) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().build().expect("no descriptor is needed");
        runtime.block_on(async { test() });
    }

    fn open(agent: &Agent, link: usize, is_async: bool) {
        agent.note(link, |link| (link.is_open, link.room, link.is_async) = (true, true, is_async));
    }

    /// Has a connection carry the first payload that waits.
    fn carry(agent: &Agent, link: usize) {
        let ask = agent.next_ask().expect("something waits");
        agent.sent(link, ask, Instant::now());
    }

    fn answer(mut asking: Pin<&mut Asking>) -> Option<Answer> {
        match asking.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_burst_opens_four_connections_at_a_time() {
        timed(|| {
            let agent = agent();
            let asked: Vec<_> = (0..10).map(|stream| agent.ask(stream, 1, Vec::new())).collect();
            let opened: Vec<_> = (0..10).filter_map(|_| agent.dispatch()).collect();
            assert_eq!(opened.len(), PARALLEL);
            // One takes a payload and has no room for more: another is opened beside those that are being opened.
            agent.note(opened[0], |link| link.is_open = true);
            carry(&agent, opened[0]);
            assert!(agent.dispatch().is_some() && agent.dispatch().is_none());
            drop(asked);
            assert_eq!(agent.figures()[2..], [0, 0], "those that have gone are forgotten");
            assert!(agent.dispatch().is_none());
        });
    }

    #[test]
    fn an_agent_that_is_of_no_use_is_tried_by_one_connection_at_a_time_and_more_and_more_seldom() {
        timed(|| {
            let agent = agent();
            let pauses = [50, 100, 200, 400, 800, 1000, 1000].map(|pause| {
                agent.tried(false);
                agent.pause().as_millis() == pause
            });
            assert_eq!(pauses, [true; 7]);
            let _asked = [agent.ask(1, 1, Vec::new()), agent.ask(2, 1, Vec::new())];
            let link = agent.dispatch().expect("it is tried again");
            assert!(agent.dispatch().is_none());
            agent.ended(link, false, AgentStatus::IO);
            assert!(agent.dispatch().is_none(), "while its pause lasts");
            assert_eq!(agent.figures(), [0, 0, 2, 0]);
            agent.closed(link);
            assert!(agent.dispatch().is_some());
            agent.tried(true);
            assert_eq!(agent.pause(), Duration::ZERO);
            assert!(agent.dispatch().is_some(), "both payloads have a connection now");
        });
    }

    #[test]
    fn acknowledgements_count_over_another_connection_only_if_both_say_so() {
        for (carrier_is_async, other_is_async) in [(true, true), (true, false), (false, true)] {
            timed(|| {
                let agent = agent();
                let mut asked = pin!(agent.ask(7, 1, Vec::new()));
                let links = [0, 1].map(|_| agent.links.borrow_mut().insert(Link::default()));
                open(&agent, links[0], carrier_is_async);
                open(&agent, links[1], other_is_async);
                carry(&agent, links[0]);
                assert!(
                    !agent.acknowledged(links[0], carrier_is_async, (7, 2), vec![9]),
                    "of no payload that was sent"
                );
                let counts = carrier_is_async && other_is_async;
                assert_eq!(agent.acknowledged(links[1], other_is_async, (7, 1), vec![1]), counts);
                assert_eq!(answer(asked.as_mut()), counts.then_some(Ok(vec![1])));
                assert_eq!(agent.note(links[0], |_| {}), if counts { vec![(7, 1)] } else { vec![] });
                assert!(!agent.acknowledged(links[1], other_is_async, (7, 1), vec![2]), "once");
            });
        }
    }

    #[test]
    fn what_a_connection_carried_when_it_ended_may_be_acknowledged_over_another_or_fails() {
        for is_async in [true, false] {
            timed(|| {
                let agent = agent();
                let mut asked = pin!(agent.ask(7, 1, Vec::new()));
                let first = agent.dispatch().expect("a connection is needed");
                open(&agent, first, is_async);
                carry(&agent, first);
                agent.ended(first, is_async, AgentStatus::IO);
                agent.closed(first);
                if !is_async {
                    assert_eq!(answer(asked.as_mut()), Some(Err(257)));
                    assert!(agent.dispatch().is_none());
                    return;
                }
                let second = agent.dispatch().expect("the acknowledgement needs a connection to come over");
                assert_eq!(second, first, "places are used again");
                open(&agent, second, true);
                assert!(agent.acknowledged(second, true, (7, 1), vec![1]));
                assert_eq!(answer(asked.as_mut()), Some(Ok(vec![1])));
            });
        }
    }

    #[test]
    fn an_engine_is_named_by_a_random_identifier() {
        let mut rng = fastrand::Rng::with_seed(7);
        let (one, two) = (uuid(&mut rng), uuid(&mut rng));
        assert_ne!(one, two);
        for id in [one, two] {
            let lengths: Vec<_> = id.split('-').map(str::len).collect();
            assert_eq!(lengths, [8, 4, 4, 4, 12], "{id}");
            assert_eq!(id.as_bytes()[14], b'4', "{id}");
            assert!(b"89ab".contains(&id.as_bytes()[19]), "{id}");
        }
    }

    #[test]
    fn a_rate_counts_each_second_anew() {
        let second = Second::default().add(5_000).add(5_999);
        assert_eq!((second.count(5_999), second.count(6_000)), (2, 0));
        assert_eq!(second.add(6_000).count(6_500), 1);
    }
}
