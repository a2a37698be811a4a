//! Watches a server by perf, where it is installed and allowed.

use super::{contestant::program, stacks::Folded};
use crate::cost::{Who, processes_of};
use std::{
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// A copy of the stack that each sample takes along: who is compiled without frame pointers (Debian's programs, and this one) is
/// unwound from that afterwards.
const STACK_BYTES: usize = 8192;
/// Samples of a window, over all threads: with those copies 80 MB.
const SAMPLES_MAX: f64 = 10_000.0;
/// Samples a second of each thread. Odd, so that nothing that ticks is seen in step.
const RATES: (f64, f64) = (19.0, 499.0);
/// How long perf may take to end, and to open what it watches.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(20), Duration::from_millis(700));

/// perf, watching.
pub(super) struct Recording {
    perf: PathBuf,
    child: Child,
    data: PathBuf,
}

impl Recording {
    /// Begins to watch a process and its descendants, with `threads` at work for `seconds`.
    ///
    /// # Errors
    ///
    /// If perf is not installed, or not permitted.
    pub(super) fn start(pid: u32, threads: usize, seconds: f64, directory: &Path) -> Result<Recording, String> {
        let perf = program("perf", None)?;
        let data = directory.join("perf.data");
        let rate = (SAMPLES_MAX / (seconds * threads.max(1) as f64)).clamp(RATES.0, RATES.1) as u32 | 1;
        let pids: Vec<String> = processes_of(&[Who::Pid(pid)]).iter().map(u32::to_string).collect();
        let mut command = Command::new(&perf);
        command.args(["record", "-q", "-F", &rate.to_string(), "--call-graph", &format!("dwarf,{STACK_BYTES}")]);
        // It ends with the command that it runs, and that with what it reads: when it is told to, or when this process is gone. A
        // signal would not do: those that this program waits for are blocked, and children inherit that.
        command.args(["-p", &pids.join(","), "-o"]).arg(&data).args(["--", "cat"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("perf does not start: {e}"))?;
        // Where it may not watch, it ends at once.
        std::thread::sleep(PATIENCE.1);
        if matches!(child.try_wait(), Ok(Some(_))) {
            let mut said = String::new();
            let _ = child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut said));
            let first = said.lines().map(str::trim).find(|line| !line.is_empty() && !line.ends_with(':'));
            return Err(format!("perf may not watch: {}", first.unwrap_or("it ended at once")));
        }
        Ok(Recording { perf, child, data })
    }

    /// Ends it, and gives what it saw of this program.
    ///
    /// # Errors
    /// A sentence.
    pub(super) fn finish(mut self, program: &Path) -> Result<Folded, String> {
        drop(self.child.stdin.take());
        let began = Instant::now();
        while self.child.try_wait().map_err(|e| format!("perf does not end: {e}"))?.is_none() {
            if began.elapsed() > PATIENCE.0 {
                return Err(format!("perf does not end within {} s", PATIENCE.0.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut script = Command::new(&self.perf);
        // Inlined functions would be looked up one by one, in seconds each.
        script.args(["script", "--no-inline", "-F", "comm,ip,sym,dso", "-i"]).arg(&self.data).stdin(Stdio::null());
        let output = script.output().map_err(|e| format!("perf does not run: {e}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("perf script: {}", said.lines().next().unwrap_or("it failed")));
        }
        Ok(Folded::read(&String::from_utf8_lossy(&output.stdout), &program.display().to_string()))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        // It may be large, and is of no more use.
        let _ = std::fs::remove_file(&self.data);
    }
}
