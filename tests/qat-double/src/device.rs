//! The device's state: instances, rings, memory, and what it holds against its caller.

use crate::{
    commands::{Commands, Kind, take},
    layout::{
        DeflateCallback, EventCallback, FAIL, Flat, INVALID, OneCallback, RESTARTING, RETRY, SUCCESS, Status,
        TwoCallback,
    },
};
use std::{
    collections::{BTreeMap, VecDeque},
    ffi::{CStr, c_void},
    fs::File,
    io::Write as _,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// How a request is answered.
#[derive(Clone, Copy)]
pub enum Callback {
    One(OneCallback),
    Two(TwoCallback),
    Deflate(DeflateCallback),
}

/// One in a ring.
pub struct Request {
    pub kind: Kind,
    pub callback: Callback,
    pub tag: usize,
    pub operation: usize,
    /// Where the outputs' descriptions are, or 0.
    pub outputs: [usize; 2],
    /// Everything that is read or written for it.
    pub buffers: Vec<(usize, usize)>,
    pub compute: fn(&Request) -> Option<[Vec<u8>; 2]>,
    ready: Instant,
    silent: bool,
    pub fails: bool,
    pub wrong: bool,
    /// What is wrong with a piece, besides.
    pub short: bool,
    pub overflows: bool,
    pub unaligned: bool,
    /// Of a piece: the session it was submitted in.
    pub session: usize,
}

#[derive(Default)]
pub struct Instance {
    pub started: bool,
    pub translated: bool,
    notify: Option<(EventCallback, usize)>,
    restarting: bool,
    ring: VecDeque<Request>,
    /// When each of its engines is free.
    engines: Vec<Option<Instant>>,
    polled: bool,
}

#[derive(Default)]
pub struct Device {
    pub commands: Commands,
    text: String,
    pub started: bool,
    /// Those for crypto, and behind them those for compression.
    pub instances: Vec<Instance>,
    /// How many are for crypto.
    pub crypto: usize,
    /// Sessions for compression: where each is, and its instance, how it is answered, and whether it has dynamic codes.
    pub sessions: BTreeMap<usize, (usize, DeflateCallback, bool)>,
    /// Locked while this process has all instances.
    claim: Option<File>,
    told: u64,
    polling_events: bool,
    /// Pinned memory: address and size.
    memory: BTreeMap<usize, usize>,
    /// Where numbers were, by the allocation they are in.
    numbers: BTreeMap<usize, Vec<(usize, usize)>>,
}

static DEVICE: Mutex<Option<Device>> = Mutex::new(None);

/// The state, having read its commands.
pub fn device() -> Guard {
    let mut guard = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    let device = guard.get_or_insert_default();
    let text = std::fs::read_to_string(directory().join("commands")).unwrap_or_default();
    if text != device.text {
        device.commands = Commands::parse(&text);
        device.text = text;
    }
    Guard(guard)
}

/// The locked state.
pub struct Guard(MutexGuard<'static, Option<Device>>);

impl std::ops::Deref for Guard {
    type Target = Device;
    fn deref(&self) -> &Device {
        self.0.as_ref().expect("`device` has put it there")
    }
}

impl std::ops::DerefMut for Guard {
    fn deref_mut(&mut self) -> &mut Device {
        self.0.as_mut().expect("`device` has put it there")
    }
}

/// Where this copy of the library lies.
fn directory() -> PathBuf {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: it fills the structure for an address of this library's; the name in it is the loader's, and stays.
    let name = unsafe {
        libc::dladdr((&raw const DEVICE).cast(), found.as_mut_ptr());
        CStr::from_ptr(found.assume_init().dli_fname)
    };
    PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes())).parent().map(PathBuf::from).unwrap_or_default()
}

/// A line in the log beside the library.
pub fn log(line: &str) {
    let file = std::fs::OpenOptions::new().append(true).create(true).open(directory().join("log"));
    let _ = file.and_then(|mut file| writeln!(file, "{line}"));
}

/// Something no library forgives.
pub fn violation(what: &str) {
    log(&format!("violation: {what}"));
}

/// The place of the instance that a handle is: handles are places, from one on.
pub fn place(handle: *mut c_void) -> usize {
    (handle as usize).wrapping_sub(1)
}

impl Device {
    /// Takes a request into an instance's ring, or says why not.
    pub fn submit(&mut self, handle: *mut c_void, mut request: Request) -> Status {
        let commands = &mut self.commands;
        let Some(instance) = self.instances.get_mut(place(handle)) else { return INVALID };
        if !self.started || !instance.started || !instance.translated {
            violation("a request to an instance that has not been started");
            return INVALID;
        }
        let compresses = matches!(request.kind, Kind::Deflate(_));
        if compresses != (place(handle) >= self.crypto) {
            violation("an instance asked for what it is not for");
            return INVALID;
        }
        for &(at, len) in &request.buffers {
            let pinned = self.memory.range(..=at).next_back().is_some_and(|(from, size)| at + len <= from + size);
            if !pinned {
                violation("a number that is not in pinned memory");
                return INVALID;
            }
        }
        if instance.restarting {
            return RESTARTING;
        }
        if commands.dead > 0 {
            return FAIL;
        }
        let retry = if compresses { &mut commands.deflate_retry } else { &mut commands.retry };
        if take(retry) || instance.ring.len() as u64 >= commands.ring {
            return RETRY;
        }
        for &(at, len) in &request.buffers {
            if let Some((from, _)) = self.memory.range(..=at).next_back() {
                let numbers = self.numbers.entry(*from).or_default();
                if !numbers.contains(&(at, len)) {
                    numbers.push((at, len));
                }
            }
        }
        let now = Instant::now();
        instance.engines.resize(commands.engines.max(1) as usize, None);
        let engine = instance.engines.iter_mut().min().expect("at least one");
        let ready = engine.unwrap_or(now).max(now) + commands.service(request.kind);
        *engine = Some(ready);
        request.ready = ready;
        let late = if compresses {
            request.silent = take(&mut commands.deflate_silent);
            request.fails = take(&mut commands.deflate_fail);
            request.wrong = take(&mut commands.deflate_wrong);
            request.short = take(&mut commands.deflate_short);
            request.overflows = take(&mut commands.deflate_overflow);
            request.unaligned = take(&mut commands.deflate_unaligned);
            &mut commands.deflate_late
        } else {
            request.silent = take(&mut commands.silent);
            request.fails = take(&mut commands.fail);
            request.wrong = take(&mut commands.wrong);
            &mut commands.late
        };
        if take(late) {
            request.ready += Duration::from_millis(commands.late_ms);
        }
        instance.ring.push_back(request);
        SUCCESS
    }

    /// Takes out of an instance's ring what is done.
    pub fn done(&mut self, handle: *mut c_void) -> Option<Vec<Request>> {
        let dead = self.commands.dead > 0;
        let instance = self.instances.get_mut(place(handle))?;
        if std::mem::replace(&mut instance.polled, true) {
            violation("an instance polled by two threads at once");
        }
        let now = Instant::now();
        let mut done = Vec::new();
        if !instance.restarting && !dead {
            let mut left = VecDeque::new();
            for request in instance.ring.drain(..) {
                if request.silent || request.ready > now { left.push_back(request) } else { done.push(request) }
            }
            instance.ring = left;
        }
        Some(done)
    }

    /// The poll is over.
    pub fn polled(&mut self, handle: *mut c_void) {
        if let Some(instance) = self.instances.get_mut(place(handle)) {
            instance.polled = false;
        }
    }

    /// What is to be told of the device, and to whom: event, callback, instance, tag.
    pub fn events(&mut self) -> Vec<(u32, EventCallback, usize, usize)> {
        if std::mem::replace(&mut self.polling_events, true) {
            violation("events polled by two threads at once");
        }
        const LOST: u64 = 3;
        let state = if self.commands.dead > 0 { LOST } else { self.commands.restart };
        if state == self.told {
            return Vec::new();
        }
        self.told = state;
        let event = match state {
            1 => 0,
            LOST => 2,
            _ => 1,
        };
        for instance in &mut self.instances {
            instance.restarting = state == 1;
            if state == 2 {
                // What was in the ring has been lost with it, and is answered with an error.
                instance.ring.iter_mut().for_each(|request| request.fails = true);
            }
        }
        let instances = self.instances.iter().enumerate();
        instances.filter_map(|(at, i)| i.notify.map(|(call, tag)| (event, call, at + 1, tag))).collect()
    }

    /// They have been told.
    pub fn events_polled(&mut self) {
        self.polling_events = false;
    }

    pub fn notify(&mut self, handle: *mut c_void, callback: EventCallback, tag: *mut c_void) -> Status {
        let Some(instance) = self.instances.get_mut(place(handle)) else { return INVALID };
        instance.notify = Some((callback, tag as usize));
        SUCCESS
    }

    /// Whether there are instances for this process: with `exclusive` while no other has them.
    pub fn claim(&mut self) -> bool {
        if self.commands.exclusive == 0 {
            return true;
        }
        self.claim = File::create(directory().join("claim")).ok().filter(|file| file.try_lock().is_ok());
        self.claim.is_some()
    }

    /// Stops everything: what is in the rings is never answered.
    pub fn stop(&mut self) {
        if self.instances.iter().any(|instance| instance.started) {
            violation("the library stopped before its instances");
        }
        let waiting: usize = self.instances.iter().map(|instance| instance.ring.len()).sum();
        log(&format!("stop, {waiting} unanswered"));
        self.started = false;
        self.sessions.clear();
        self.claim = None;
        self.instances.clear();
    }

    pub fn pin(&mut self, at: usize, size: usize) {
        self.memory.insert(at, size);
    }

    /// Whether it was pinned; says so where it may not be let go of.
    pub fn unpin(&mut self, at: usize) -> bool {
        let Some(size) = self.memory.remove(&at) else {
            violation("memory freed that was not pinned");
            return false;
        };
        let within = |&(from, _): &(usize, usize)| (at..at + size).contains(&from);
        if self.sessions.range(at..at + size).next().is_some() {
            violation("memory freed that is a session's");
        }
        if self.instances.iter().flat_map(|i| &i.ring).any(|request| request.buffers.iter().any(within)) {
            violation("memory freed while a request of it is under way");
        }
        for (from, len) in self.numbers.remove(&at).unwrap_or_default() {
            // SAFETY: within an allocation of ours that is about to be freed.
            if unsafe { std::slice::from_raw_parts(from as *const u8, len) }.iter().any(|byte| *byte != 0) {
                violation("memory freed that still holds numbers");
                break;
            }
        }
        true
    }

    /// Whether all of this is in one piece of pinned memory.
    pub fn is_pinned(&self, at: usize, len: usize) -> bool {
        self.memory.range(..=at).next_back().is_some_and(|(from, size)| at + len <= from + size)
    }

    /// How many requests of a session are in the rings.
    pub fn in_progress(&self, session: usize) -> usize {
        self.instances.iter().flat_map(|instance| &instance.ring).filter(|request| request.session == session).count()
    }

    /// Pieces of memory that are pinned.
    pub fn pinned(&self) -> usize {
        self.memory.len()
    }
}

impl Request {
    /// One for which nothing is ill.
    pub fn new(
        kind: Kind,
        callback: Callback,
        tag: *mut c_void,
        operation: *const c_void,
        outputs: [*mut Flat; 2],
        inputs: &[Flat],
        compute: fn(&Request) -> Option<[Vec<u8>; 2]>,
    ) -> Request {
        // SAFETY: an output is described, or null.
        let described = outputs.iter().filter(|output| !output.is_null()).map(|output| unsafe { **output });
        let all = inputs.iter().copied().chain(described).filter(|flat| !flat.data.is_null());
        Request {
            kind,
            callback,
            tag: tag as usize,
            operation: operation as usize,
            outputs: outputs.map(|output| output as usize),
            buffers: all.map(|flat| (flat.data as usize, flat.len as usize)).collect(),
            compute,
            ready: Instant::now(),
            silent: false,
            fails: false,
            wrong: false,
            short: false,
            overflows: false,
            unaligned: false,
            session: 0,
        }
    }

    /// Computes, writes the outputs, and calls back.
    pub fn answer(self) {
        if let Callback::Deflate(call) = self.callback {
            let status = crate::deflate::deflate(&self);
            // SAFETY: what the caller asked to be called with.
            return unsafe { call(self.tag as *mut c_void, status) };
        }
        let result = if self.fails { None } else { (self.compute)(&self) };
        let status = if self.fails { FAIL } else { SUCCESS };
        let valid = u32::from(result.is_some());
        let outputs = self.outputs.map(|output| output as *mut Flat);
        for (output, bytes) in outputs.iter().zip(result.into_iter().flatten()) {
            if output.is_null() {
                continue;
            }
            // SAFETY: the caller keeps its request until this calls back; the numbers are right-aligned, as everywhere.
            unsafe {
                let output = **output;
                let room = std::slice::from_raw_parts_mut(output.data, output.len as usize);
                room.fill(0);
                let (from, middle) = (room.len().saturating_sub(bytes.len()), room.len() / 2);
                let bytes = &bytes[..room.len() - from];
                room[from..].copy_from_slice(bytes);
                room[middle] ^= u8::from(self.wrong);
            }
        }
        let (tag, operation) = (self.tag as *mut c_void, self.operation as *mut c_void);
        // SAFETY: what the caller asked to be called with.
        unsafe {
            match self.callback {
                Callback::One(call) => call(tag, status, operation, outputs[0]),
                Callback::Two(call) => call(tag, status, operation, valid, outputs[0], outputs[1]),
                Callback::Deflate(_) => {}
            }
        }
    }
}
