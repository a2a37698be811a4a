//! Call stacks of a server by perf, where it is installed and allowed.

use super::contestant::program;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// Functions that are shown.
const SHOWN: usize = 12;

/// perf, watching.
pub(super) struct Recording {
    perf: PathBuf,
    child: Child,
    data: PathBuf,
}

impl Recording {
    /// Begins to watch a process.
    ///
    /// # Errors
    /// perf is not installed, or may not.
    pub(super) fn start(pid: u32, directory: &Path) -> Result<Recording, String> {
        let perf = program("perf", None)?;
        let data = directory.join("perf.data");
        let mut command = Command::new(&perf);
        command.args(["record", "-q", "-F", "499", "-g", "-p", &pid.to_string(), "-o"]).arg(&data);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("perf does not start: {e}"))?;
        // Where it may not watch, it ends at once.
        std::thread::sleep(std::time::Duration::from_millis(500));
        if matches!(child.try_wait(), Ok(Some(_))) {
            let output = child.wait_with_output().map_err(|e| e.to_string())?;
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("it ended at once").to_owned();
            return Err(format!("perf may not watch: {first}"));
        }
        Ok(Recording { perf, child, data })
    }

    /// Ends it; writes the stacks as tools for flame graphs read them, and gives the functions that took most.
    ///
    /// # Errors
    /// A sentence.
    pub(super) fn finish(mut self, folded: &Path) -> Result<Vec<(f64, String)>, String> {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::INT);
        }
        self.child.wait().map_err(|e| format!("perf does not end: {e}"))?;
        let output = Command::new(&self.perf)
            .args(["script", "-F", "comm,ip,sym", "-i"])
            .arg(&self.data)
            .stdin(Stdio::null())
            .output()
            .map_err(|e| format!("perf does not run: {e}"))?;
        let stacks = fold(&String::from_utf8_lossy(&output.stdout));
        let lines: String = stacks.iter().map(|(stack, count)| format!("{stack} {count}\n")).collect();
        std::fs::write(folded, lines).map_err(|e| format!("cannot write {}: {e}", folded.display()))?;
        Ok(hottest(&stacks))
    }
}

/// `perf script`'s blocks as `outermost;...;innermost` with how often each was seen.
fn fold(text: &str) -> BTreeMap<String, u64> {
    let mut stacks = BTreeMap::new();
    for block in text.split("\n\n").filter(|block| !block.trim().is_empty()) {
        let mut lines = block.lines().filter(|line| !line.is_empty());
        let Some(name) = lines.next() else { continue };
        // `    7f3a1c symbol+0x1f`, innermost first.
        let frames = lines.filter_map(|line| line.trim().split_once(' ')).map(|(_, symbol)| {
            let symbol = symbol.trim();
            symbol.rsplit_once("+0x").map_or(symbol, |(name, _)| name).replace(';', ":")
        });
        let mut stack: Vec<String> = frames.collect();
        stack.push(name.trim().replace(';', ":"));
        stack.reverse();
        *stacks.entry(stack.join(";")).or_insert(0) += 1;
    }
    stacks
}

/// Shares of samples by innermost function, largest first.
fn hottest(stacks: &BTreeMap<String, u64>) -> Vec<(f64, String)> {
    let mut by_function: BTreeMap<&str, u64> = BTreeMap::new();
    for (stack, count) in stacks {
        *by_function.entry(stack.rsplit(';').next().unwrap_or_default()).or_insert(0) += count;
    }
    let total = by_function.values().sum::<u64>().max(1) as f64;
    let mut functions: Vec<(f64, String)> =
        by_function.into_iter().map(|(name, count)| (count as f64 / total, name.to_owned())).collect();
    functions.sort_by(|a, b| b.0.total_cmp(&a.0));
    functions.truncate(SHOWN);
    functions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_folded_outermost_first_and_counted() {
        let text = "penstock\n\t    55d0 sign+0x10\n\t    55d1 handshake+0x4\n\npenstock\n\t    55d9 sign+0x18\n\t    55d1 handshake+0x4\n\n\
                    penstock\n\t    7f00 [unknown]\n\n";
        let stacks = fold(text);
        assert_eq!(stacks.get("penstock;handshake;sign"), Some(&2));
        assert_eq!(hottest(&stacks)[0].1, "sign");
        assert!((hottest(&stacks)[0].0 - 2.0 / 3.0).abs() < 1e-9);
        assert!(hottest(&fold("")).is_empty());
    }
}
