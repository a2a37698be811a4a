//! Where another thread is: its CPU time and, through a signal, its return addresses.

use std::{
    ffi::c_void,
    io,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// Most return addresses that are taken.
const FRAMES: usize = 64;

/// The addresses that the handler found, for the one thread that is asked at a time.
static FOUND: [AtomicUsize; FRAMES] = [const { AtomicUsize::new(0) }; FRAMES];
/// The number of addresses found, plus one; 0 while the handler has not run.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Held while a thread is asked: one question at a time.
static ASKING: Mutex<()> = Mutex::new(());

/// The kernel's number of the calling thread.
pub fn thread_id() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// CPU time that a thread of this process has used; `None` when there is no such thread.
pub fn thread_cpu_time(thread: i32) -> Option<Duration> {
    // Linux: a clock of another thread is its inverted number above three bits, of which 4 means "of one thread" and 2
    // "the scheduler's precise time" (CPUCLOCK_PERTHREAD_MASK, CPUCLOCK_SCHED).
    let clock = (!thread << 3) | 6;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for the call, which fails for a clock that does not exist.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    (result == 0).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

fn signal() -> i32 {
    // The first ones are taken by threading libraries.
    libc::SIGRTMIN() + 5
}

/// Prepares [`return_addresses`]: installs its signal handler, and lets the C library load what it needs for it.
///
/// # Errors
/// The handler cannot be installed.
pub fn install_stack_capture() -> io::Result<()> {
    // The first call may allocate and load libgcc_s, which a handler must not.
    take();
    COUNT.store(0, Ordering::SeqCst);
    // SAFETY: the structure is valid when zeroed, and the handler only does what its own comment says.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigemptyset(&mut action.sa_mask);
        if libc::sigaction(signal(), &action, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Async-signal-safe: it writes to atomics and its own stack, and once libgcc_s is loaded backtrace(3) finds its tables
/// through `_dl_find_object`, which takes no lock (glibc 2.35, GCC 12).
extern "C" fn on_signal(_: i32) {
    take();
}

fn take() {
    let mut frames = [std::ptr::null_mut::<c_void>(); FRAMES];
    // SAFETY: the array has room for as many addresses as are asked for.
    let found = unsafe { libc::backtrace(frames.as_mut_ptr(), FRAMES as i32) };
    let found = usize::try_from(found).unwrap_or(0);
    for (slot, frame) in FOUND.iter().zip(&frames[..found]) {
        slot.store(*frame as usize, Ordering::Relaxed);
    }
    COUNT.store(found + 1, Ordering::Release);
}

/// The return addresses of a thread of this process, innermost first (the handler's own come first of all); empty when
/// it did not answer in time.
pub fn return_addresses(thread: i32, patience: Duration) -> Vec<usize> {
    let _one = ASKING.lock().unwrap_or_else(PoisonError::into_inner);
    COUNT.store(0, Ordering::SeqCst);
    // SAFETY: no memory is involved; a thread that has ended is an error.
    if unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal()) } != 0 {
        return Vec::new();
    }
    let end = Instant::now() + patience;
    loop {
        let count = COUNT.load(Ordering::Acquire);
        if count > 0 {
            return FOUND[..count - 1].iter().map(|slot| slot.load(Ordering::Relaxed)).collect();
        }
        if Instant::now() >= end {
            return Vec::new();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_spins_is_seen_spinning() {
        install_stack_capture().unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let stop = std::sync::Arc::new(AtomicUsize::new(0));
        let seen = stop.clone();
        let spinner = std::thread::spawn(move || {
            sender.send(thread_id()).unwrap();
            while seen.load(Ordering::Relaxed) == 0 {
                std::hint::spin_loop();
            }
        });
        let thread = receiver.recv().unwrap();
        let before = thread_cpu_time(thread).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        assert!(thread_cpu_time(thread).unwrap() > before);
        assert!(return_addresses(thread, Duration::from_secs(5)).len() > 3);
        stop.store(1, Ordering::Relaxed);
        spinner.join().unwrap();
        assert_eq!(thread_cpu_time(i32::MAX >> 4), None);
    }
}
