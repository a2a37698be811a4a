//! `-v` and `-vv`: the version, and what this program can do on this machine.

use crate::{
    engine,
    name::{NAME, Name},
};
use penstock_config::SPEAKS_HAPROXY;

/// The version.
pub const NUMBER: &str = env!("CARGO_PKG_VERSION");

/// The version reported to HAProxy's clients, on sockets, and by `-v` under the name `haproxy`.
pub fn reported() -> String {
    format!("{SPEAKS_HAPROXY}-penstock-{NUMBER}")
}

/// The output of `-v`.
pub fn short() -> String {
    let system = rustix::system::uname();
    let first = match *NAME {
        Name::Penstock => format!("penstock version {NUMBER}"),
        Name::Haproxy => format!("HAProxy version {}", reported()),
    };
    format!(
        "{first}\nReads the configuration language of HAProxy {}\nRunning on: {} {} {}\n",
        SPEAKS_HAPROXY,
        system.sysname().to_string_lossy(),
        system.release().to_string_lossy(),
        system.machine().to_string_lossy(),
    )
}

/// The build profile in `Cargo.toml`; the development profile is called debug.
pub const PROFILE: &str = env!("PENSTOCK_PROFILE");

/// The output of `-vv`.
pub fn long() -> String {
    let mut page = short();
    let mut row = |name: &str, value: String| page.push_str(&format!("{name:<28}{value}\n"));
    row("\nBuild", String::new());
    row("  profile", PROFILE.into());
    row("  guided", env!("PENSTOCK_GUIDED").into());
    row("  compiler", env!("PENSTOCK_COMPILER").into());
    row("  target", format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS));
    row("\nTLS", String::new());
    row("  library", "rustls 0.23, aws-lc".into());
    row("  versions", "TLSv1.2 TLSv1.3".into());
    row("  groups", "X25519MLKEM768 X25519 P-256 P-384".into());
    row("\nCrypto engine", String::new());
    let lanes = engine::lanes();
    let (device, devices) = engine::device(lanes);
    row("  auto", engine::summary(lanes, device));
    for (name, text) in devices {
        row(&format!("  {name}"), text);
    }
    for (class, text) in engine::break_even(lanes) {
        row(&format!("  {class}"), text);
    }
    for (name, here) in cpu_features() {
        row(&format!("  {name}"), if here { "yes" } else { "no" }.into());
    }
    row("\nMultiplexers", String::new());
    row("  h1", "mode=HTTP side=FE|BE".into());
    row("  h2", "mode=HTTP side=FE|BE".into());
    row("  none", "mode=TCP side=FE|BE".into());
    row("\nServices", "prometheus-exporter".into());
    row("Poller", "epoll".into());
    row("CPUs available", std::thread::available_parallelism().map_or(1, usize::from).to_string());
    page
}

/// CPU instructions that matter for speed.
fn cpu_features() -> Vec<(&'static str, bool)> {
    #[cfg(target_arch = "x86_64")]
    return vec![
        ("AVX-512 IFMA", is_x86_feature_detected!("avx512ifma")),
        ("VAES", is_x86_feature_detected!("vaes")),
        ("BMI2 and ADX", is_x86_feature_detected!("bmi2") && is_x86_feature_detected!("adx")),
        ("SHA", is_x86_feature_detected!("sha")),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    return vec![("AVX-512 IFMA", false)];
}
