//! Completion of commands in shells.

use crate::table::Table;

/// A shell that completes words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shell {
    /// bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

/// The script that completes `program ctl` with the commands of a table.
pub fn script(_table: &Table, _shell: Shell, _program: &str) -> String {
    String::new()
}
