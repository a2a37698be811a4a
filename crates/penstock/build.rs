//! Records which compiler built the program, and with which profile, for reports of measurements.

use std::{path::Path, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(compiler).arg("--version").output();
    let said = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    println!("cargo::rustc-env=PENSTOCK_COMPILER={said}");
    println!("cargo::rustc-env=PENSTOCK_PROFILE={}", profile().unwrap_or_default());
    println!("cargo::rerun-if-env-changed=CARGO_ENCODED_RUSTFLAGS");
    let flags = std::env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let guided = flags.split('\x1f').any(|flag| flag.trim_start_matches("-C").trim().starts_with("profile-use="));
    println!("cargo::rustc-env=PENSTOCK_GUIDED={}", if guided { "yes, by a profile of its own work" } else { "no" });
    println!("cargo::rerun-if-env-changed=SOURCE_DATE_EPOCH");
    println!("cargo::rustc-env=PENSTOCK_DATE={}", date().unwrap_or_else(|| "1970/01/01".into()));
}

/// The name of the build profile. cargo's PROFILE only names the profile that a custom one inherits from, but OUT_DIR
/// is target/[TRIPLE/]PROFILE/build/penstock-HASH/out.
fn profile() -> Option<String> {
    let out = std::env::var_os("OUT_DIR")?;
    Some(Path::new(&out).ancestors().nth(3)?.file_name()?.to_str()?.to_owned())
}

/// The date of the sources: that of SOURCE_DATE_EPOCH, or of the last commit.
fn date() -> Option<String> {
    let day = ["+%Y/%m/%d", "--utc", "--date"];
    let epoch = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(epoch) => epoch,
        Err(_) => said("git", &["log", "-1", "--format=%ct"])?,
    };
    said("date", &[&day[..], &[&format!("@{epoch}")]].concat())
}

fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned()).filter(|said| !said.is_empty())
}
