//! The haproxy that tests compare with. Tests of other crates include this file by its path.

#![allow(dead_code, reason = "each test compares with one of the two")]

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

/// Debian 13's haproxy, 3.0, where scripts/haproxy-3.0.sh has unpacked it. Else `None`, and the list of what was skipped
/// says so.
pub fn haproxy_30() -> Option<PathBuf> {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let found = folders.find_map(|folder| folder.join("target/haproxy-3.0/haproxy").canonicalize().ok());
    if found.is_none() {
        skip("HAProxy 3.0 is not unpacked");
    }
    found
}

/// The installed program, where it is of the branch that the tests describe: 2.6, Debian 12's. Else `None`, and the list of
/// what was skipped says so.
pub fn haproxy() -> Option<&'static str> {
    let known = ["/usr/sbin/haproxy", "/usr/local/sbin/haproxy", "/usr/bin/haproxy", "haproxy"];
    let version = |program: &str| {
        let output = Command::new(program).arg("-v").output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let found = known.into_iter().find_map(|program| Some((program, version(program)?)));
    if let Some((program, version)) = &found
        && version.starts_with("HAProxy version 2.6.")
    {
        return Some(program);
    }
    let reason = if found.is_some() { "this haproxy is not 2.6" } else { "haproxy is not installed" };
    skip(reason);
    None
}

fn skip(reason: &str) {
    eprintln!("SKIP: {reason}: nothing is compared with it");
    if let Some(list) = std::env::var_os("PENSTOCK_SKIPS")
        && let Ok(mut list) = std::fs::OpenOptions::new().append(true).create(true).open(list)
    {
        // A line that is missing from the list fails no test.
        let _ = writeln!(list, "SKIP: {reason}: nothing is compared with it");
    }
}
