//! The machine, as the papers' configuration tables have it. What a machine does not say is named, not left out: a virtual
//! one hides most of it.

use super::{catalogue::Case, contestant::Contestant, result::Group};
use penstock_doctor::{Cpu, Devices, Host};

const UNKNOWN: &str = "not shown by this machine";

/// All groups.
#[must_use]
pub fn facts(host: &Host, contestants: &[Contestant], cases: &[Case], date: &str) -> Vec<Group> {
    vec![
        processor(host),
        memory(host),
        network(host),
        quickassist(host, contestants),
        system(host, date),
        software(host, contestants),
        tls(cases),
    ]
}

fn group(name: &str, facts: Vec<(&str, Option<String>)>) -> Group {
    let known = |(name, value): (&str, Option<String>)| (name.to_owned(), value.unwrap_or_else(|| UNKNOWN.to_owned()));
    Group { name: name.into(), facts: facts.into_iter().map(known).collect() }
}

fn processor(host: &Host) -> Group {
    const FREQUENCY: &str = "/sys/devices/system/cpu/cpufreq/policy0";
    let cpu = Cpu::of(host);
    let cores = cpu.first_threads().len();
    let mhz = |path: String| host.number(&path).map(|khz| khz / 1000);
    let limits = mhz(format!("{FREQUENCY}/scaling_min_freq")).zip(mhz(format!("{FREQUENCY}/scaling_max_freq")));
    let base = mhz(format!("{FREQUENCY}/base_frequency")).map(|mhz| format!("{mhz} MHz"));
    let now = first_field(&host.text("/proc/cpuinfo").unwrap_or_default(), "cpu MHz")
        .map(|mhz| format!("{mhz} MHz as /proc/cpuinfo has it"));
    let turbo = host
        .number("/sys/devices/system/cpu/intel_pstate/no_turbo")
        .map(|off| if off == 0 { "on" } else { "off" })
        .or(host.number("/sys/devices/system/cpu/cpufreq/boost").map(|on| if on == 0 { "off" } else { "on" }));
    let caches: Vec<String> = host
        .list("/sys/devices/system/cpu/cpu0/cache")
        .iter()
        .filter_map(|index| {
            let at = |file: &str| host.text(&format!("/sys/devices/system/cpu/cpu0/cache/{index}/{file}"));
            let kind = at("type").filter(|kind| kind != "Unified").map(|kind| kind[..1].to_lowercase());
            Some(format!("L{}{} {}", at("level")?, kind.unwrap_or_default(), at("size")?))
        })
        .collect();
    group(
        "Processor",
        vec![
            ("CPU", Some(cpu.model_name.clone()).filter(|name| !name.is_empty())),
            ("family, model", Some(format!("{}, {}", cpu.model.0, cpu.model.1))),
            ("sockets", Some(cpu.socket_count().to_string())),
            ("cores, threads", Some(format!("{cores} cores, {} threads in all", cpu.online.len()))),
            ("virtual machine", Some(if cpu.is_virtual() { "yes" } else { "no" }.into())),
            ("base frequency", base.or(now)),
            ("frequency limits", limits.map(|(least, most)| format!("{least} to {most} MHz"))),
            ("governor", host.text(&format!("{FREQUENCY}/scaling_governor"))),
            ("turbo", turbo.map(str::to_owned)),
            (
                "microcode",
                Some(cpu.microcode.keys().cloned().collect::<Vec<_>>().join(", ")).filter(|list| !list.is_empty()),
            ),
            ("caches", Some(caches.join(", ")).filter(|list| !list.is_empty())),
            ("AVX-512 IFMA", Some(if cpu.has("avx512ifma") { "yes" } else { "no" }.into())),
        ],
    )
}

/// The first value of a field in text of `name : value` lines.
fn first_field(text: &str, name: &str) -> Option<String> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim().to_owned())
}

fn memory(host: &Host) -> Group {
    let info = host.text("/proc/meminfo").unwrap_or_default();
    let kib = |name: &str| first_field(&info, name)?.split(' ').next()?.parse::<u64>().ok();
    let modules = host.command("dmidecode -t memory").map(|text| {
        let of = |name: &str| -> Vec<String> {
            let values = text.lines().filter_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "));
            values.filter(|value| !value.starts_with("No ") && *value != "Unknown").map(str::to_owned).collect()
        };
        let (sizes, speeds, kinds) = (of("Size"), of("Speed"), of("Type"));
        let first = |list: &[String]| list.first().cloned().unwrap_or_default();
        format!("{} x {} {} {}", sizes.len(), first(&sizes), first(&kinds), first(&speeds))
    });
    let huge = kib("HugePages_Total").map(|pages| format!("{pages} of {} KiB", kib("Hugepagesize").unwrap_or(0)));
    group(
        "Memory",
        vec![
            ("total", kib("MemTotal").map(|kib| format!("{:.1} GiB", kib as f64 / 1_048_576.0))),
            ("modules", modules.filter(|text| !text.starts_with("0 x"))),
            ("huge pages", huge),
            ("memory nodes", Some(Cpu::of(host).nodes.len().max(1).to_string())),
        ],
    )
}

fn network(host: &Host) -> Group {
    let mut facts = Vec::new();
    for name in host.list("/sys/class/net") {
        let at = format!("/sys/class/net/{name}");
        if !host.exists(&format!("{at}/device")) {
            continue;
        }
        let driver = host.link(&format!("{at}/device/driver")).unwrap_or_else(|| "driver unknown".into());
        let speed =
            host.text(&format!("{at}/speed")).and_then(|speed| speed.parse::<i64>().ok()).filter(|speed| *speed > 0);
        let speed = speed.map_or("speed not shown".into(), |mbit| format!("{mbit} Mbit/s"));
        facts.push((name, format!("{driver}, {speed}")));
    }
    let congestion = host.sysctl("net.ipv4.tcp_congestion_control").unwrap_or_else(|| UNKNOWN.into());
    facts.push(("congestion control".into(), congestion));
    facts.push(("used by the study".into(), "loopback, unless it says otherwise".into()));
    Group { name: "Network".into(), facts }
}

fn quickassist(host: &Host, contestants: &[Contestant]) -> Group {
    let devices = Devices::of(host);
    let describe = |device: &penstock_doctor::Qat| {
        let or = |value: &Option<String>, otherwise: &str| value.clone().unwrap_or_else(|| otherwise.to_owned());
        let facts = format!(
            "{}, driver {}, state {}, services {}",
            device.kind,
            or(&device.driver, "none"),
            or(&device.state, "unknown"),
            or(&device.services, "unknown")
        );
        (device.address.clone(), facts)
    };
    let mut facts: Vec<_> = devices.list().iter().map(describe).collect();
    if facts.is_empty() {
        facts.push(("device".into(), "none".into()));
    }
    for one in contestants.iter().filter(|one| one.double) {
        facts.push((one.name.clone(), "a double of a device: no figure of it is a card's".into()));
    }
    Group { name: "QuickAssist".into(), facts }
}

fn system(host: &Host, date: &str) -> Group {
    const DMI: &str = "/sys/class/dmi/id";
    let dmi = |names: &[&str]| {
        let found: Vec<String> = names.iter().filter_map(|name| host.text(&format!("{DMI}/{name}"))).collect();
        Some(found.join(" ")).filter(|text| !text.is_empty())
    };
    let release = host.text("/etc/os-release").unwrap_or_default();
    let pretty = release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))
        .map(|name| name.trim_matches('"').to_owned());
    group(
        "System",
        vec![
            ("machine", dmi(&["sys_vendor", "product_name"])),
            ("BIOS", dmi(&["bios_vendor", "bios_version", "bios_date"])),
            ("distribution", pretty),
            ("kernel", host.sysctl("kernel.osrelease").map(|release| version(&release).to_owned())),
            ("kernel command line", host.text("/proc/cmdline").map(|line| of_performance(&line))),
            ("clock source", host.text("/sys/devices/system/clocksource/clocksource0/current_clocksource")),
            ("date", Some(date.to_owned())),
        ],
    )
}

/// The kernel's version without what follows the first hyphen: that names the build of this host's image.
fn version(release: &str) -> &str {
    release.split('-').next().unwrap_or(release)
}

/// The words of the kernel's command line that bear on performance; the others are this host's own affair.
fn of_performance(line: &str) -> String {
    const TELLING: &[&str] = &[
        "amd_iommu",
        "amd_pstate",
        "clocksource",
        "cpufreq",
        "cpuidle",
        "default_hugepagesz",
        "haltpoll",
        "hugepage",
        "idle",
        "intel_idle",
        "intel_iommu",
        "intel_pstate",
        "iommu",
        "isolcpus",
        "mitigations",
        "nohz",
        "nosmt",
        "numa_balancing",
        "preempt",
        "processor.max_cstate",
        "rcu_nocbs",
        "retbleed",
        "skew_tick",
        "spectre",
        "transparent_hugepage",
        "tsc",
    ];
    let words = line.split_whitespace().filter(|word| TELLING.iter().any(|start| word.starts_with(start)));
    let kept = words.collect::<Vec<_>>().join(" ");
    if kept.is_empty() { "nothing that bears on performance".into() } else { kept }
}

fn software(host: &Host, contestants: &[Contestant]) -> Group {
    let mut facts: Vec<(String, String)> = Vec::new();
    for contestant in contestants {
        let program = contestant.program_name();
        if !facts.iter().any(|(name, _)| *name == program) {
            facts.push((program, contestant.version.join("; ")));
        }
    }
    let of = |line: &str| host.command(line).and_then(|text| text.lines().next().map(str::to_owned));
    facts.push(("OpenSSL".into(), of("openssl version").unwrap_or_else(|| UNKNOWN.into())));
    facts.push(("QAT_Engine, qatlib".into(), engines(host)));
    Group { name: "Software".into(), facts }
}

/// Libraries of QuickAssist, by their files.
fn engines(host: &Host) -> String {
    let places = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/lib"];
    let found: Vec<String> =
        places.iter().flat_map(|place| host.find(place, "libqat").map(|name| format!("{place}/{name}"))).collect();
    if found.is_empty() { "not installed".into() } else { found.join(", ") }
}

fn tls(cases: &[Case]) -> Group {
    let mut facts: Vec<(String, String)> = Vec::new();
    for case in cases {
        let text = format!(
            "{}; groups {}; certificate {}",
            case.tls.suites.join(", "),
            case.tls.groups.join(", "),
            case.key.name()
        );
        // Sizes of one study differ in nothing here.
        if !facts.iter().any(|(_, known)| *known == text) {
            facts.push((case.name.clone(), text));
        }
    }
    Group { name: "TLS".into(), facts }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_with_everything_fills_the_table_and_one_with_nothing_says_so() {
        let full = Host::recorded(include_str!("../../../doctor/tests/hosts/xeon-qat.host")).unwrap();
        let text = |groups: &[Group]| {
            let lines = groups.iter().flat_map(|group| &group.facts).map(|(name, value)| format!("{name}: {value}"));
            lines.collect::<Vec<_>>().join("\n")
        };
        let table = text(&facts(&full, &[], &[], "2026-11-22"));
        for needed in ["CPU: ", "microcode: 0x", "governor: ", "4xxx, driver 4xxx, state up"] {
            assert!(table.contains(needed), "{needed} is not in\n{table}");
        }
        assert!(
            of_performance("quiet root=/dev/vda mitigations=off isolcpus=2-7 nohz_full=2-7")
                == "mitigations=off isolcpus=2-7 nohz_full=2-7"
        );
        assert!(version("6.1.0-18-amd64") == "6.1.0" && version("6.18.44") == "6.18.44");
        let empty = text(&facts(&Host::recorded("== /proc/x\n").unwrap(), &[], &[], "2026-11-22"));
        assert!(empty.contains(&format!("CPU: {UNKNOWN}")) && empty.contains("device: none"), "{empty}");
    }
}
