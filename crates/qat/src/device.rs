//! All QuickAssist devices of a machine that this process may use: opened once, stopped once.

use crate::{
    Unavailable,
    abi::{self, Handle, InstanceInfo, SERVICES, SUCCESS, Status, UP},
    channel::Channel,
    deflate::{Deflater, Left, Unit},
    instance::{Capabilities, Health, Instance, Summary},
    library::Library,
    memory::Pool,
    quiet::quietly,
};
use std::{
    ffi::c_void,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

/// What a device is opened with.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The directory of the libraries, if not where the system's loader looks.
    pub directory: Option<PathBuf>,
    /// Whether its instances for compression are started as well. One that has only such instances can then be opened.
    pub compression: bool,
}

/// All devices, used as one.
pub struct Device {
    pub(crate) library: Library,
    pub(crate) instances: Box<[Instance]>,
    /// Instances for compression, where those were asked for.
    pub(crate) units: Box<[Unit]>,
    compression: usize,
    /// The process that opened the device: a child forked later has neither its rings nor the right to stop it.
    process: u32,
    /// Memory of channels that have ended while the library still had requests of theirs.
    orphans: Mutex<Vec<Pool>>,
    orphaned_pieces: Mutex<Vec<Left>>,
    events_polled: Mutex<Instant>,
}

/// How often the library is asked what has become of its devices. A reset takes seconds.
const EVENTS_EVERY: Duration = Duration::from_millis(100);

impl Device {
    /// Whether there are a library and a device, without opening it: for a process that will fork, or will not serve.
    ///
    /// # Errors
    /// Why it could not be used.
    pub fn probe(options: &Options) -> Result<(), Unavailable> {
        available(options.directory.as_deref()).map(drop)
    }

    /// Opens the device: finds the libraries, the devices and their instances, and starts them.
    ///
    /// To be called after the process has forked for the last time, and before it gives up the right to open /dev/vfio and
    /// to lock memory.
    ///
    /// # Errors
    /// Why the device cannot be used.
    pub fn open(options: &Options) -> Result<Arc<Device>, Unavailable> {
        let library = available(options.directory.as_deref())?;
        // qatlib has no use for the name; for the other driver it names the section of its configuration, and this is the
        // one that the configurations it comes with have for TLS.
        let (status, said) = quietly(|| {
            // SAFETY: a literal string; nothing of the library is running.
            unsafe { (library.start)(c"SHIM".as_ptr()) }
        });
        if status != SUCCESS {
            return Err(Unavailable::NotStarted(status, said));
        }
        let (opened, _) = quietly(|| Device::discover(library, options.compression));
        if opened.is_err() {
            // SAFETY: it was started, and no instance is in use.
            quietly(|| unsafe { (library.stop)() });
        }
        opened
    }

    fn discover(library: Library, compression: bool) -> Result<Arc<Device>, Unavailable> {
        let handles = handles(library.count, library.instances);
        let all = handles.len();
        let mut instances = Vec::new();
        for handle in handles {
            let info = info(library.info, handle, &SERVICES)?;
            let capabilities = capabilities(&library, handle);
            // One that interrupts instead would want a thread of its own; drivers make them polled where asked to.
            if info.polled != 0 && info.state == UP && capabilities.any() {
                instances.push(Instance::new(handle, &info, capabilities));
            }
        }
        let instances: Box<[Instance]> = instances.into();
        // SAFETY: of instances the library has just listed, in the order its manual gives. The tag of the notifications is
        // an instance of the list, which lives until the library has been stopped (see `Drop`), wherever it is moved to:
        // it is a box's content.
        let started = instances.iter().filter(|instance| unsafe {
            (library.set_translation)(instance.handle, library.translate) == SUCCESS
                && (library.start_instance)(instance.handle) == SUCCESS
                && {
                    (library.notify)(instance.handle, heard, std::ptr::from_ref(*instance).cast_mut().cast());
                    true
                }
        });
        if started.count() < instances.len() || instances.is_empty() && !compression {
            return Err(Unavailable::NoInstance(all));
        }
        // What keeps compression from the device keeps nothing else from it.
        let units = match library.deflate.filter(|_| compression) {
            Some(calls) => Unit::discover(&library, &calls).unwrap_or_default(),
            None => Vec::new(),
        };
        let units: Box<[Unit]> = units.into();
        if let Some(calls) = library.deflate {
            for unit in &units {
                let tag = std::ptr::from_ref(&unit.instance).cast_mut().cast();
                // SAFETY: as for the other instances.
                unsafe { (calls.notify)(unit.instance.handle, heard, tag) };
            }
        }
        if instances.is_empty() && units.is_empty() {
            return Err(Unavailable::NoInstance(all));
        }
        let mut compression = 0;
        if let Some(count) = library.count_compression {
            // SAFETY: it writes one number.
            unsafe { count(&raw mut compression) };
        }
        let device = Arc::new(Device {
            library,
            instances,
            units,
            compression: compression.into(),
            process: std::process::id(),
            orphans: Mutex::default(),
            orphaned_pieces: Mutex::default(),
            events_polled: Mutex::new(Instant::now()),
        });
        let mut trial = Pool::new(None);
        let pinned = trial.grow(&device.library).is_some();
        trial.free(&device.library);
        if pinned { Ok(device) } else { Err(Unavailable::NoMemory) }
    }

    /// A worker's share: as many instances as there are for each worker, those that the fewest others use, and among those
    /// the ones on `node`. With more workers than instances, several share one.
    pub fn channel(self: &Arc<Device>, workers: usize, node: Option<u32>) -> Channel {
        // Two workers that open at once must not count the same instance as unused.
        let _choosing = lock(&self.orphans);
        let order = shared_out(self.instances.len(), |place| &self.instances[place], workers, node);
        for &place in &order {
            self.instances[place].workers.fetch_add(1, Ordering::Relaxed);
        }
        Channel::new(self.clone(), order, node)
    }

    /// A worker's share of the instances for compression, by the same rule; `None` if there are none.
    pub fn deflater(self: &Arc<Device>, workers: usize, node: Option<u32>) -> Option<Deflater> {
        let _choosing = lock(&self.orphans);
        let order = shared_out(self.units.len(), |place| &self.units[place].instance, workers, node);
        Deflater::new(self.clone(), order, node)
    }

    /// Summaries of the instances that compress.
    pub fn deflaters(&self) -> Vec<Summary> {
        self.units.iter().map(|unit| unit.instance.summary()).collect()
    }

    /// Summaries of all instances.
    pub fn instances(&self) -> Vec<Summary> {
        self.instances.iter().map(Instance::summary).collect()
    }

    /// What at least one instance can be asked to do.
    pub fn capabilities(&self) -> Capabilities {
        self.instances.iter().fold(Capabilities::default(), |sum, instance| Capabilities {
            rsa: sum.rsa || instance.capabilities.rsa,
            ecdsa: sum.ecdsa || instance.capabilities.ecdsa,
            ecdh: sum.ecdh || instance.capabilities.ecdh,
            x25519: sum.x25519 || instance.capabilities.x25519,
        })
    }

    /// Instances for data compression, whether they were asked for or not.
    pub fn compression_instances(&self) -> usize {
        self.compression
    }

    /// Name of the library in use.
    pub fn library(&self) -> &'static str {
        self.library.name
    }

    /// Resets that instances have come back from.
    pub fn restarts(&self) -> u32 {
        self.instances.iter().map(Instance::restarts).sum()
    }

    /// Instances that take requests.
    pub fn healthy(&self) -> usize {
        self.instances.iter().filter(|instance| instance.health() == Health::Up).count()
    }

    /// Lets the library tell of resets, if it was not asked lately. One thread at a time: it is not reentrant.
    pub(crate) fn poll_events(&self, now: Instant) {
        let Ok(mut last) = self.events_polled.try_lock() else { return };
        if now.saturating_duration_since(*last) >= EVENTS_EVERY {
            *last = now;
            // SAFETY: the library is running, and no other thread is in this call.
            unsafe { (self.library.poll_events)() };
        }
    }

    /// A channel has ended; what the library still has of its memory is kept here.
    pub(crate) fn adopt(&self, mut pool: Pool) {
        pool.release(&self.library);
        if !pool.is_empty() {
            lock(&self.orphans).push(pool);
        }
    }

    /// A channel for compression has ended; what the library still has of it is kept here.
    pub(crate) fn adopt_deflater(&self, left: Left) {
        lock(&self.orphaned_pieces).push(left);
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            // This is a child's copy: the rings belong to the parent, which still uses them.
            return;
        }
        let library = self.library;
        // SAFETY: no channel is left, since each holds the device, so no thread submits or polls any more. Instances stop before
        // the library does, as its manual says.
        let (status, _) = quietly(|| unsafe {
            for instance in &self.instances {
                (library.stop_instance)(instance.handle);
            }
            if let Some(calls) = library.deflate {
                for unit in &self.units {
                    (calls.stop_instance)(unit.instance.handle);
                }
            }
            (library.stop)()
        });
        let orphans = self.orphans.get_mut().unwrap_or_else(PoisonError::into_inner);
        let pieces = std::mem::take(self.orphaned_pieces.get_mut().unwrap_or_else(PoisonError::into_inner));
        if status == SUCCESS {
            orphans.iter_mut().for_each(|pool| pool.free(&library));
            pieces.into_iter().for_each(|left| left.free(&library));
            self.units.iter_mut().for_each(|unit| unit.free(&library));
        } else {
            // It may still answer: what it could write to, and the list its notifications point to, stay.
            std::mem::take(orphans).into_iter().for_each(std::mem::forget);
            std::mem::forget(pieces);
            std::mem::forget(std::mem::take(&mut self.instances));
            std::mem::forget(std::mem::take(&mut self.units));
        }
    }
}

fn available(directory: Option<&Path>) -> Result<Library, Unavailable> {
    let (loaded, _) = quietly(|| {
        let library = Library::load(directory)?;
        // SAFETY: it has no arguments and may be called before anything else.
        if unsafe { (library.is_available)() } == 0 { Err(Unavailable::NoDevice) } else { Ok(library) }
    });
    loaded
}

/// Places of the instances that one of so many workers gets: those that the fewest others use, and among those the ones on its
/// node.
fn shared_out<'a>(
    all: usize,
    instance: impl Fn(usize) -> &'a Instance,
    workers: usize,
    node: Option<u32>,
) -> Vec<usize> {
    let share = (all / workers.max(1)).max(1);
    let mut order: Vec<usize> = (0..all).collect();
    let away = |instance: &Instance| instance.node.is_some() && node.is_some() && instance.node != node;
    order.sort_by_key(|&place| {
        let instance = instance(place);
        (instance.workers.load(Ordering::Relaxed), away(instance))
    });
    order.truncate(share);
    order
}

/// The instances of one of the library's services, by its two functions for them.
pub(crate) fn handles(
    number: unsafe extern "C" fn(*mut u16) -> Status,
    list: unsafe extern "C" fn(u16, *mut Handle) -> Status,
) -> Vec<Handle> {
    let mut count = 0;
    // SAFETY: it writes one number.
    if unsafe { number(&raw mut count) } != SUCCESS || count == 0 {
        return Vec::new();
    }
    let mut handles = vec![std::ptr::null_mut(); usize::from(count)];
    // SAFETY: it writes at most as many handles as the number it is given.
    let status = unsafe { list(count, handles.as_mut_ptr()) };
    if status == SUCCESS { handles } else { Vec::new() }
}

/// What the library says of an instance, unless it says it in another layout than ours.
pub(crate) fn info(
    tell: unsafe extern "C" fn(Handle, *mut InstanceInfo) -> Status,
    instance: Handle,
    services: &[u32],
) -> Result<InstanceInfo, Unavailable> {
    /// Room for a larger structure, and what is left of it untouched by one of the right size.
    #[repr(C)]
    struct Padded {
        info: InstanceInfo,
        beyond: [u8; 1024],
    }
    const UNTOUCHED: u8 = 0xA5;
    let mut padded = std::mem::MaybeUninit::<Padded>::uninit();
    // SAFETY: all bytes are written before anything is read, and any are valid for these types; the library writes within
    // the structure, and one of a larger layout within the room after it.
    let (status, padded) = unsafe {
        std::ptr::write_bytes(padded.as_mut_ptr(), UNTOUCHED, 1);
        let status = tell(instance, padded.as_mut_ptr().cast::<InstanceInfo>());
        (status, padded.assume_init())
    };
    let info = padded.info;
    let fits = services.contains(&info.service)
        && [info.state, info.contiguous_memory, info.polled, info.offloaded].iter().all(|flag| *flag <= 1)
        && [&info.name, &info.part].iter().all(|text| text.contains(&0))
        && padded.beyond.iter().all(|byte| *byte == UNTOUCHED);
    if status == SUCCESS && fits { Ok(info) } else { Err(Unavailable::Layout) }
}

fn capabilities(library: &Library, instance: Handle) -> Capabilities {
    let mut found = abi::Capabilities::default();
    // SAFETY: it fills the structure.
    if unsafe { (library.capabilities)(instance, &raw mut found) } != SUCCESS {
        return Capabilities::default();
    }
    let multiply = library.generic_multiply.is_some() || library.point_multiply.is_some();
    Capabilities {
        rsa: found.rsa == 1,
        ecdsa: found.ecdsa == 1,
        ecdh: found.ec == 1 && multiply,
        x25519: found.montgomery == 1 && library.montgomery_multiply.is_some(),
    }
}

unsafe extern "C" fn heard(_: Handle, tag: *mut c_void, event: u32) {
    // SAFETY: the tag is an instance of the device's list, which is kept for as long as the library may call this.
    unsafe { (*tag.cast::<Instance>()).heard(event) };
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
