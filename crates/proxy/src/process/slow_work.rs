//! Slow work, done beside the workers: password hashes, and pages that describe a whole process.
//!
//! A few low-priority threads take jobs from a bounded queue. Clients take turns: an address that has hundreds of
//! passwords tried delays itself, not clients from elsewhere. A job that cannot be done, because the queue is full, the
//! job failed or there are no threads, gives no answer; its caller must then refuse whatever depended on it.

use std::{
    collections::{HashMap, VecDeque},
    net::{IpAddr, Ipv6Addr},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// Maximum number of jobs that may wait, in total; [`WAITING_EACH`] is the maximum from one address. Each belongs to a
/// connection that waits for its answer and submits nothing else meanwhile.
const WAITING_MAX: usize = 4096;
const WAITING_EACH: usize = 256;

/// How much lower the priority of these threads is than a worker's, as a nice value.
const NICE: i32 = 10;

type Job = Box<dyn FnOnce() + Send>;

/// The client a job is for: an address, or a whole network that one host may own.
type Source = Option<IpAddr>;

/// Threads beside the workers, for one kind of work.
pub(crate) struct Aside(Arc<Inner>);

struct Inner {
    queue: Mutex<Queue>,
    wake: Condvar,
    name: &'static str,
    /// Maximum number of threads, which start with the first job.
    threads: usize,
    done: AtomicU64,
    busy_us: AtomicU64,
    refused: AtomicU64,
}

/// Statistics of the work done beside the workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AsideReport {
    /// Jobs that are waiting.
    pub waiting: usize,
    /// Jobs done, or dropped because their answer was no longer wanted.
    pub done: u64,
    /// Time spent on jobs.
    pub busy: Duration,
    /// Jobs refused because too many were waiting.
    pub refused: u64,
}

#[derive(Default)]
struct Queue {
    jobs: HashMap<Source, VecDeque<Job>>,
    /// Clients that have jobs waiting, the next to be served first.
    turns: VecDeque<Source>,
    waiting: usize,
    threads: usize,
    idle: usize,
    ended: bool,
}

impl Queue {
    fn push(&mut self, from: Source, job: Job) -> bool {
        if self.waiting >= WAITING_MAX {
            return false;
        }
        let own = self.jobs.entry(from).or_default();
        if own.len() >= WAITING_EACH {
            return false;
        }
        if own.is_empty() {
            self.turns.push_back(from);
        }
        own.push_back(job);
        self.waiting += 1;
        true
    }
    fn next(&mut self) -> Option<Job> {
        let from = self.turns.pop_front()?;
        let own = self.jobs.get_mut(&from)?;
        let job = own.pop_front();
        if own.is_empty() {
            self.jobs.remove(&from);
        } else {
            self.turns.push_back(from);
        }
        self.waiting -= 1;
        job
    }
}

impl Aside {
    /// Makes a pool of at most `threads` threads of that name; starts none yet.
    pub fn new(name: &'static str, threads: usize) -> Aside {
        Aside(Arc::new(Inner {
            queue: Mutex::default(),
            wake: Condvar::new(),
            name,
            threads,
            done: AtomicU64::new(0),
            busy_us: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }))
    }

    /// Runs `work` for the client at `from`; `None` if it could not be run. Once the returned future is dropped, `work`
    /// is not started any more; if it runs already, the function passed to it returns true, so that it can give up.
    pub fn run<T, W>(&self, from: Option<IpAddr>, work: W) -> impl Future<Output = Option<T>> + use<T, W>
    where
        T: Send + 'static,
        W: FnOnce(&dyn Fn() -> bool) -> T + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move || {
            if !answer.is_closed() {
                // If this panics, the answer is dropped, which the caller takes as a refusal.
                let result = work(&|| answer.is_closed());
                let _ = answer.send(result);
            }
        });
        // The virtual clock of a model does not wait for threads.
        #[cfg(test)]
        let inline = crate::worker::turn::counted::left().is_some();
        #[cfg(not(test))]
        let inline = false;
        let taken = if inline {
            job();
            true
        } else {
            self.submit(source(from), job)
        };
        async move { if taken { answered.await.ok() } else { None } }
    }

    /// Reports what has been done.
    pub fn report(&self) -> AsideReport {
        let inner = &self.0;
        AsideReport {
            waiting: inner.queue().waiting,
            done: inner.done.load(Ordering::Relaxed),
            busy: Duration::from_micros(inner.busy_us.load(Ordering::Relaxed)),
            refused: inner.refused.load(Ordering::Relaxed),
        }
    }

    fn submit(&self, from: Source, job: Job) -> bool {
        let inner = &self.0;
        let mut queue = inner.queue();
        if queue.idle == 0 && queue.threads < inner.threads {
            let own = inner.clone();
            let name = format!("{}-{}", inner.name, queue.threads + 1);
            if std::thread::Builder::new().name(name).spawn(move || own.work()).is_ok() {
                queue.threads += 1;
            }
        }
        let taken = queue.threads > 0 && queue.push(from, job);
        drop(queue);
        if taken {
            inner.wake.notify_one();
        } else {
            inner.refused.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        queue.ended = true;
        queue.jobs.clear();
        queue.turns.clear();
        drop(queue);
        self.0.wake.notify_all();
    }
}

impl Inner {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The main loop of a thread.
    fn work(&self) {
        step_back();
        while let Some(job) = self.wait() {
            let begun = Instant::now();
            // The panic hook has reported it; the thread goes on with the next job.
            let _ = catch_unwind(AssertUnwindSafe(job));
            let took = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.busy_us.fetch_add(took, Ordering::Relaxed);
            self.done.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits for the next job; `None` once the process ends.
    fn wait(&self) -> Option<Job> {
        let mut queue = self.queue();
        loop {
            if queue.ended {
                return None;
            }
            if let Some(job) = queue.next() {
                return Some(job);
            }
            queue.idle += 1;
            queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }
}

/// Gives the calling thread a lower priority than the workers have.
pub(crate) fn step_back() {
    // This fails where a sandbox forbids it; the thread then has a worker's priority.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
}

/// The unit that shares a turn: an IPv4 address, or the /64 network of an IPv6 address, since one host usually has all
/// of it.
fn source(from: Option<IpAddr>) -> Source {
    from.map(|ip| match ip.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX)).into(),
        ip => ip,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> Source {
        source(Some([192, 0, 2, last].into()))
    }

    #[test]
    fn those_who_ask_take_turns() {
        let (mut queue, order) = (Queue::default(), Arc::new(Mutex::new(Vec::new())));
        for (from, name) in [(1, "a"), (1, "b"), (1, "c"), (2, "x"), (3, "y")] {
            let order = order.clone();
            assert!(queue.push(ip(from), Box::new(move || order.lock().unwrap().push(name))));
        }
        std::iter::from_fn(|| queue.next()).for_each(|job| job());
        assert_eq!(*order.lock().unwrap(), ["a", "x", "y", "b", "c"]);
        assert!(queue.waiting == 0 && queue.jobs.is_empty() && queue.turns.is_empty());
    }

    #[test]
    fn what_waits_is_bounded_for_each_and_for_all() {
        let mut queue = Queue::default();
        let mut push = |from| queue.push(from, Box::new(|| {}));
        assert_eq!((0..1000).filter(|_| push(ip(1))).count(), WAITING_EACH);
        assert!(push(ip(2)), "who asks from elsewhere is taken");
        let taken = (0..200_u8).map(|last| (0..300).filter(|_| push(ip(last))).count()).sum::<usize>();
        assert_eq!(taken + WAITING_EACH + 1, WAITING_MAX);
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one() {
        let of = |text: &str| source(Some(text.parse().unwrap()));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), ip(1));
    }

    #[test]
    fn a_job_that_fails_is_a_refusal_and_the_next_one_is_done() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let aside = Aside::new("test", 1);
        assert_eq!(runtime.block_on(aside.run(None, |_| -> u8 { panic!("a planted panic") })), None);
        assert_eq!(runtime.block_on(aside.run(None, |_| 7)), Some(7));
        assert_eq!(aside.report().refused, 0);
    }

    #[test]
    fn work_that_nobody_waits_for_is_given_up() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let aside = Aside::new("test", 1);
        // That this ends at all is the assertion.
        let endless = aside.run(None, |given_up| while !given_up() {});
        drop(endless);
        assert_eq!(runtime.block_on(aside.run(None, |_| 7)), Some(7));
    }
}
