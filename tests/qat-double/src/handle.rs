//! What tests hold: a directory with a copy of the library under the names that are looked for.

use std::{
    fs,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

/// A directory in which libqat and libusdm seem to be installed.
pub struct Double {
    directory: TempDir,
}

/// Names of qatlib's libraries, and of those of the driver outside the kernel.
const QATLIB: [&str; 2] = ["libqat.so.4", "libusdm.so.0"];
const OLDER: [&str; 2] = ["libqat_s.so", "libusdm_drv_s.so"];

impl Double {
    /// Of qatlib, obeying `commands`: see `commands.rs` for the words.
    pub fn new(commands: &str) -> Double {
        Double::under(QATLIB, commands)
    }

    /// Of the driver outside the kernel.
    pub fn older(commands: &str) -> Double {
        Double::under(OLDER, commands)
    }

    fn under([crypto, memory]: [&str; 2], commands: &str) -> Double {
        let directory = tempfile::tempdir().expect("a directory for the double");
        let double = Double { directory };
        double.command(commands);
        fs::copy(built(), double.path().join(crypto)).expect("a copy of the double");
        // One file under both names is loaded once, as one state.
        fs::hard_link(double.path().join(crypto), double.path().join(memory)).expect("its second name");
        double
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Replaces what it was told.
    pub fn command(&self, commands: &str) {
        // Renamed into place, so that it is never read half written.
        let (new, file) = (self.path().join("commands.new"), self.path().join("commands"));
        fs::write(&new, commands).and_then(|()| fs::rename(new, file)).expect("commands for the double");
    }

    /// What it has seen: a line for each event.
    pub fn log(&self) -> Vec<String> {
        fs::read_to_string(self.path().join("log")).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// What it has seen that a real library would not have forgiven.
    pub fn violations(&self) -> Vec<String> {
        self.log().into_iter().filter(|line| line.starts_with("violation")).collect()
    }

    /// Pieces of memory that were pinned when one was last freed.
    pub fn pinned(&self) -> Option<usize> {
        self.log().iter().rev().find_map(|line| line.strip_prefix("pinned ")?.parse().ok())
    }

    /// Takes a symbol away from its crypto library, as if it were of another version: overwrites the name in the table
    /// that the loader compares names with. To be called before it is loaded.
    pub fn without(self, symbol: &str) -> Double {
        for name in QATLIB.iter().chain(&OLDER) {
            let file = self.path().join(name);
            let Ok(mut bytes) = fs::read(&file) else { continue };
            let wanted = [b"\0", symbol.as_bytes(), b"\0"].concat();
            let places: Vec<usize> =
                bytes.windows(wanted.len()).enumerate().filter(|(_, w)| *w == wanted).map(|(i, _)| i).collect();
            assert!(!places.is_empty(), "{symbol} is no symbol of the double");
            places.into_iter().for_each(|place| bytes[place + 1] = b'_');
            fs::write(&file, bytes).expect("a copy without it");
            break;
        }
        self
    }
}

/// The shared library, which cargo builds beside whatever depends on this crate.
fn built() -> PathBuf {
    const NAME: &str = "libpenstock_qat_double.so";
    let program = std::env::current_exe().expect("the test's own path");
    let places =
        program.ancestors().skip(1).take(2).flat_map(|place| [place.join(NAME), place.join("deps").join(NAME)]);
    places.into_iter().find(|place| place.exists()).expect("cargo builds the double's shared library with its tests")
}
