//! The library prints messages to the standard error stream. While it starts and stops, they are caught, so that an operator reads
//! one sentence.

use rustix::fs::{MemfdFlags, memfd_create};
use std::{
    fs::File,
    io::{Read as _, Seek as _},
};

/// Runs `body`, and returns what it printed to standard error beside its result. Where nothing can be caught it is printed.
pub fn quietly<R>(body: impl FnOnce() -> R) -> (R, String) {
    let Ok(caught) = memfd_create("libqat", MemfdFlags::CLOEXEC) else { return (body(), String::new()) };
    let Ok(terminal) = rustix::io::dup(rustix::stdio::stderr()) else { return (body(), String::new()) };
    if rustix::stdio::dup2_stderr(&caught).is_err() {
        return (body(), String::new());
    }
    let result = body();
    // It cannot fail: both are open. If it did, what is printed from here on would be lost, and nothing else.
    let _ = rustix::stdio::dup2_stderr(&terminal);
    let mut said = Vec::new();
    let mut caught = File::from(caught);
    let _ = caught.rewind();
    let _ = caught.take(SAID_MAX).read_to_end(&mut said);
    (result, one_line(&String::from_utf8_lossy(&said)))
}

const SAID_MAX: u64 = 4096;

/// The first line of its output that is a sentence.
fn one_line(said: &str) -> String {
    said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_library_prints_comes_back_as_its_first_line() {
        let (result, said) = quietly(|| {
            eprint!("");
            // The library writes to the descriptor, not through the standard library's stream.
            let text = b"\n  Failed to open /dev/vfio for locking: errno=2 \nmore\n";
            rustix::io::write(rustix::stdio::stderr(), text).unwrap()
        });
        assert!(result > 0);
        assert_eq!(said, "Failed to open /dev/vfio for locking: errno=2");
    }
}
