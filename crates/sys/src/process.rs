//! Processes: fork, exec, wait, and giving up privileges.

use std::{
    convert::Infallible,
    ffi::{CString, OsStr},
    io,
    mem::MaybeUninit,
    os::unix::{ffi::OsStrExt, process::CommandExt},
    path::Path,
    process::Command,
};

/// Which side of a fork this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forked {
    /// The new process.
    Child,
    /// The old process, with the child's pid.
    Parent(i32),
}

/// fork(2). Only for a process of one thread: another thread's locks would stay locked in the child for ever.
///
/// # Errors
/// The system's error, or `Unsupported` when this process has more than one thread.
pub fn fork() -> io::Result<Forked> {
    if std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() > 1) {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "cannot fork once threads are running"));
    }
    // SAFETY: there is one thread, so that no lock is held elsewhere, and both sides may go on running Rust code.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(pid)),
    }
}

/// Leaves the terminal's session, in the child of a fork.
///
/// # Errors
/// If setsid(2) fails, with its error.
pub fn new_session() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(())
}

/// What standard input, output and error become once a process in the background has nothing more to say. It is opened
/// before a `chroot`, behind which there may be no `/dev/null`.
#[derive(Debug)]
pub struct Silence(std::fs::File);

impl Silence {
    /// Opens `/dev/null`.
    ///
    /// # Errors
    /// If open(2) fails, with its error.
    pub fn prepare() -> io::Result<Silence> {
        std::fs::OpenOptions::new().read(true).write(true).open("/dev/null").map(Silence)
    }

    /// Detaches standard input, output and error from the terminal.
    ///
    /// # Errors
    /// If dup2(2) fails, with its error.
    pub fn begin(self) -> io::Result<()> {
        rustix::stdio::dup2_stdin(&self.0)?;
        rustix::stdio::dup2_stdout(&self.0)?;
        rustix::stdio::dup2_stderr(&self.0)?;
        Ok(())
    }
}

/// execv(3): replaces this process; returns only an error.
///
/// # Errors
/// If execve(2) fails, with its error, or a word has a NUL in it.
pub fn exec(program: &Path, arguments: &[impl AsRef<OsStr>]) -> io::Result<Infallible> {
    let program = CString::new(program.as_os_str().as_bytes())?;
    let arguments: Vec<CString> =
        arguments.iter().map(|a| CString::new(a.as_ref().as_bytes())).collect::<Result<_, _>>()?;
    let mut pointers: Vec<_> = arguments.iter().map(|a| a.as_ptr()).collect();
    pointers.push(std::ptr::null());
    // SAFETY: both strings and the array end in NUL and live until the call returns, if it does.
    unsafe { libc::execv(program.as_ptr(), pointers.as_ptr()) };
    Err(io::Error::last_os_error())
}

/// Lets the program that `command` starts have every signal: what the thread that starts it blocks is inherited otherwise.
pub fn unblock_signals(command: &mut Command) {
    let unblock = || {
        let mut none = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set that the next call reads. Both may be called between fork and exec.
        let result = unsafe {
            libc::sigemptyset(none.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut())
        };
        if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) }
    };
    // SAFETY: the closure takes no lock and no memory of the heap.
    unsafe { command.pre_exec(unblock) };
}

/// Keeps this process's descriptors and rights from the program that `command` starts: it has standard input, output and error, and gains
/// nothing by the setuid bit. It is killed if the thread that started it ends.
pub fn confine(command: &mut Command) {
    let confine = || {
        // They are closed by exec rather than here, since one of them reports a failure of exec.
        // SAFETY: no memory is involved; these calls may be made between fork and exec.
        let result = unsafe {
            libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC)
                | i64::from(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
                | i64::from(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0))
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: the closure takes no lock and no memory of the heap.
    unsafe { command.pre_exec(confine) };
}

/// kill(2). `signal` 0 only asks whether the process is there.
///
/// # Errors
/// If kill(2) fails, with its error, or `pid` is not that of one process.
pub fn kill(pid: i32, signal: i32) -> io::Result<()> {
    if pid <= 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a pid is above zero"));
    }
    // SAFETY: no memory is involved.
    match unsafe { libc::kill(pid, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A child that has ended, if there is one: its pid and what a shell would show (exit code, or 128 + signal).
pub fn reap() -> Option<(i32, i32)> {
    let mut status = 0;
    // SAFETY: `status` is valid for the call.
    let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
    (pid > 0).then(|| {
        let code = if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 + libc::WTERMSIG(status) };
        (pid, code)
    })
}

/// Whether the process runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Changes the root directory by chroot(2), and the working directory to it.
///
/// # Errors
/// If chroot(2) fails, with its error: the process may not, or there is no such directory.
pub fn chroot(root: &Path) -> io::Result<()> {
    rustix::process::chroot(root)?;
    std::env::set_current_dir("/")
}

/// Becomes another group and user for good, group first; supplementary groups go with root.
///
/// # Errors
/// If setgid(2), setgroups(2) or setuid(2) fails, with its error; the process is then in a state in which it must not go on.
pub fn drop_to(uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    let check = |result| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    if let Some(gid) = gid {
        if is_root() {
            // SAFETY: an empty list is read from no memory.
            check(unsafe { libc::setgroups(0, std::ptr::null()) })?;
        }
        // SAFETY: no memory is involved; glibc changes every thread.
        check(unsafe { libc::setgid(gid) })?;
    }
    if let Some(uid) = uid {
        // SAFETY: no memory is involved; glibc changes every thread.
        check(unsafe { libc::setuid(uid) })?;
    }
    Ok(())
}
