//! Watches how much memory is left, and says in the log when it is short.

use super::{Memory, PATIENCE};
use crate::process::handle::Handle;
use penstock_config::syslog;
use penstock_sys::{MemoryGauge, MemoryRoom};
use std::{
    collections::VecDeque,
    fmt::Write,
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

/// The allocator's reserve: this share of the margin.
const RESERVE_SHARE: i64 = 4;

/// How often the system is asked. In between, what connections and buffers take is subtracted as it is taken.
const INTERVAL: Duration = Duration::from_millis(50);

/// A connection or a stream has taken what it is expected to take after this many measurements, a second.
const TAKEN_AFTER: usize = 20;

/// How often to see whether there is a limit, which prlimit(1) may set at any time.
const IDLE: Duration = Duration::from_secs(1);

/// The allocator's free memory is asked for only when less than this share of the limit is left; looking takes up to one part
/// in this many of the time.
const LOOK_BELOW: u64 = 4;
const LOOK_SHARE: u32 = 20;

/// The least time between two lines in the log.
const TOLD_EACH: Duration = Duration::from_secs(1);

/// Watches the memory for as long as there are workers, on a thread of its own with their priority: it must not fall behind them.
pub(crate) fn start(handle: &Handle, gauge: MemoryGauge) -> std::io::Result<()> {
    look(&handle.shared().memory, &gauge, 0);
    let handle = handle.clone();
    std::thread::Builder::new().name("memory".into()).spawn(move || watch(&handle, &gauge)).map(drop)
}

fn watch(handle: &Handle, gauge: &MemoryGauge) {
    let memory = &handle.shared().memory;
    // When a line was written, and whether it said that memory is short.
    let (mut told, mut told_short) = (None::<Instant>, false);
    // What was promised at the last measurements.
    let mut promises = VecDeque::with_capacity(TAKEN_AFTER);
    while !handle.has_ended() {
        let begun = Instant::now();
        let was_short = memory.is_short();
        let promised = memory.promised.load(Relaxed);
        if promises.len() == TAKEN_AFTER {
            promises.pop_front();
        }
        promises.push_back(promised);
        let room = look(memory, gauge, (promised - promises[0]).max(0));
        if memory.is_short() && !was_short {
            handle.each_worker(|worker| worker.roster.wake());
        }
        let refuses = memory.refused.load(Relaxed) > 0;
        let is_short = refuses || memory.is_short();
        if (refuses || is_short != told_short) && told.is_none_or(|told| told.elapsed() >= TOLD_EACH) {
            (told, told_short) = (Some(begun), is_short);
            let (severity, text) = news(memory, is_short, room);
            handle.log(severity, text);
        }
        std::thread::sleep(if room.is_some() { INTERVAL.max(begun.elapsed() * LOOK_SHARE) } else { IDLE });
    }
}

/// Measures once; returns how much is left of the limit, if there is one. `promised` is what will be taken soon.
fn look(memory: &Memory, gauge: &MemoryGauge, promised: i64) -> Option<MemoryRoom> {
    // If /proc can no longer be read, what was measured last stays.
    let Ok(room) = gauge.room() else { return None };
    memory.set_limit(room.map(|room| room.limit));
    let Some(mut room) = room else {
        memory.record(u64::MAX, false, 0);
        return None;
    };
    let margin = memory.margin.load(Relaxed);
    // The allocator may have spent it since. A process that cannot have it again goes by what is left.
    let is_spent = !penstock_sys::has_reserve() && !penstock_sys::keep_reserve((margin / RESERVE_SHARE) as usize);
    if room.left < room.limit / LOOK_BELOW {
        // Not all of it is in pieces, or in an arena, of use to whoever needs some.
        room.left += penstock_sys::free_bytes() / 2;
    }
    memory.record(room.left, is_spent && room.left < 2 * margin as u64, promised);
    Some(room)
}

/// What the log says: `is_short` if clients were refused, or memory is short.
fn news(memory: &Memory, is_short: bool, room: Option<MemoryRoom>) -> (u8, String) {
    let left = room.map_or_else(
        || "there is no limit any more".to_owned(),
        |room| format!("{} of {} MiB are left", room.left >> 20, room.limit >> 20),
    );
    if !is_short {
        return (syslog::NOTICE, format!("memory suffices again: {left}"));
    }
    let refused = memory.refused.swap(0, Relaxed);
    let mut text = format!("memory is short: {left}; {refused} connections and buffers were refused");
    if memory.is_short() {
        let _ = write!(text, ", and clients that take nothing for {} s are disconnected", PATIENCE.as_secs());
    }
    (syslog::ALERT, text)
}
