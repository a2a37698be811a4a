//! Packets from one TUN device to another, later: a thread for each direction.

use super::{place::inside, setup::Network};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::Errno,
};
use std::{
    collections::VecDeque,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// The devices' MTU is 1500.
const PACKET_MAX: usize = 2048;
/// Packets in flight in one direction; more are dropped, as by any router: 50 MB at full size.
const QUEUE_MAX: usize = 32_768;
/// How often a thread looks whether it shall end.
const LOOK: Duration = Duration::from_millis(50);
/// Packets that are taken in before those that are due go out again.
const BURST: usize = 64;

/// The threads that forward both directions. Dropping this ends them.
pub(super) struct Forwarder {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that panicked has nothing left to end.
            let _ = thread.join();
        }
    }
}

impl Forwarder {
    /// Starts to carry packets between both, on these processors.
    ///
    /// # Errors
    /// The system refuses.
    pub(super) fn start(near: OwnedFd, far: OwnedFd, network: &Network, cpus: &[u32]) -> Result<Forwarder, String> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut forwarder = Forwarder { stop: Arc::clone(&stop), threads: Vec::new() };
        let (near, far) = (Arc::new(near), Arc::new(far));
        for device in [&near, &far] {
            let flags = fcntl_getfl(device).map_err(|e| e.to_string())?;
            fcntl_setfl(device, flags | OFlags::NONBLOCK).map_err(|e| e.to_string())?;
        }
        for (seed, from, to) in [(1, &near, &far), (2, &far, &near)] {
            let (from, to, stop) = (Arc::clone(from), Arc::clone(to), Arc::clone(&stop));
            let mut way = Way::new(network, seed);
            let started = inside(cpus, &None, move || {
                std::thread::Builder::new().name("forwarder".into()).spawn(move || carry(&from, &to, &mut way, &stop))
            });
            let thread = started.and_then(|started| started).map_err(|e| format!("cannot start the forwarder: {e}"))?;
            forwarder.threads.push(thread);
        }
        Ok(forwarder)
    }
}

fn carry(from: &OwnedFd, to: &OwnedFd, way: &mut Way, stop: &AtomicBool) {
    let mut buffer = [0; PACKET_MAX];
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        while let Some(packet) = way.due(now) {
            // A device that is full drops a packet, as any router does.
            let _ = rustix::io::write(to, &packet);
        }
        let patience = way.next().map_or(LOOK, |due| due.saturating_duration_since(now).min(LOOK));
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(patience.subsec_nanos()) };
        let mut ready = [PollFd::from_borrowed_fd(from.as_fd(), PollFlags::IN)];
        if !matches!(poll(&mut ready, Some(&timeout)), Ok(1..)) {
            continue;
        }
        for _ in 0..BURST {
            match rustix::io::read(from, &mut buffer) {
                Ok(length) => way.enter(&buffer[..length], Instant::now()),
                Err(Errno::AGAIN) => break,
                // The device is down, at the beginning and at the end.
                Err(_) => {
                    std::thread::sleep(Duration::from_millis(5));
                    break;
                }
            }
        }
    }
}

/// One direction: packets in, packets out when they are due. Does not read a clock itself.
struct Way {
    delay: Duration,
    jitter: Duration,
    loss: f64,
    queue: VecDeque<(Instant, Vec<u8>)>,
    rng: fastrand::Rng,
}

impl Way {
    fn new(network: &Network, seed: u64) -> Way {
        Way {
            delay: network.delay / 2,
            jitter: network.jitter / 2,
            loss: network.loss,
            queue: VecDeque::new(),
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    fn enter(&mut self, packet: &[u8], now: Instant) {
        if self.rng.f64() < self.loss || self.queue.len() >= QUEUE_MAX {
            return;
        }
        // As far below as above, and never before the one in front.
        let least = self.delay.saturating_sub(self.jitter);
        let due = now + least + (self.jitter * 2).mul_f64(self.rng.f64());
        let due = self.queue.back().map_or(due, |(before, _)| due.max(*before));
        self.queue.push_back((due, packet.to_vec()));
    }

    fn next(&self) -> Option<Instant> {
        self.queue.front().map(|(due, _)| *due)
    }

    fn due(&mut self, now: Instant) -> Option<Vec<u8>> {
        let is_due = self.queue.front().is_some_and(|(due, _)| *due <= now);
        if is_due { self.queue.pop_front().map(|(_, packet)| packet) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(loss: f64) -> Network {
        Network { delay: Duration::from_millis(50), jitter: Duration::from_millis(4), loss, own: true }
    }

    #[test]
    fn packets_come_out_in_order_within_delay_and_jitter() {
        let mut way = Way::new(&network(0.0), 1);
        let began = Instant::now();
        for number in 0..200_u8 {
            way.enter(&[number], began);
        }
        assert!(way.due(began + Duration::from_millis(22)).is_none());
        let mut out = Vec::new();
        while let Some(packet) = way.due(began + Duration::from_millis(27)) {
            out.push(packet[0]);
        }
        assert_eq!(out, (0..200).collect::<Vec<u8>>());
        assert!(way.next().is_none());
    }

    #[test]
    fn as_many_are_lost_as_was_asked_for() {
        let mut way = Way::new(&network(0.1), 2);
        for _ in 0..20_000 {
            way.enter(&[0], Instant::now());
        }
        // Three standard deviations of 20,000 at 0.1 are 127.
        assert!((17_870..=18_130).contains(&way.queue.len()), "{}", way.queue.len());
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut way = Way::new(&network(0.0), 3);
        for _ in 0..QUEUE_MAX + 5 {
            way.enter(&[0], Instant::now());
        }
        assert_eq!(way.queue.len(), QUEUE_MAX);
    }
}
