//! Instructions, microcode, frequencies, clock.

use super::Case;
use crate::{
    Change, Finding, Host, Level,
    finding::{
        Area::{Clock, Cpu as Area},
        count,
    },
};

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    if case.cpu.is_known() {
        found.push(lanes(case));
        found.push(other_instructions(case));
        found.extend(microcode(case));
    }
    found.extend(governor(case.host));
    found.extend(turbo(case.host));
    found.extend(limits(case.host));
    found.extend(uncore(case.host));
    found.extend(clock(case));
    found
}

fn described(case: &Case<'_>) -> String {
    format!("/proc/cpuinfo: {}, family {} model {}", case.cpu.model_name, case.cpu.model.0, case.cpu.model.1)
}

fn lanes(case: &Case<'_>) -> Finding {
    let missing = case.cpu.missing_for_lanes();
    if missing.is_empty() {
        return Finding::good("cpu-ifma", Area, "AVX-512 IFMA is there: handshakes can be computed eight at a time")
            .seen(described(case));
    }
    let hidden = case.cpu.is_virtual() && case.cpu.silicon_has_ifma();
    let finding = if hidden {
        Finding::new("cpu-ifma", Area, Level::Warning, 50, "the hypervisor hides AVX-512 IFMA, which this model has")
            .by_hand("give the virtual machine the host's processor model (libvirt: <cpu mode='host-passthrough'/>; cloud: another type)")
    } else {
        Finding::new("cpu-ifma", Area, Level::Notice, 40, "no AVX-512 IFMA: signatures are computed one at a time")
            .by_hand("ECDSA certificates are the cheapest gain here; else an Ice Lake, Zen 4 or later processor, or QuickAssist")
    };
    // Where eight lanes are asked for, 'sw' gives way to 'native'.
    let finding = if case.wants_lanes() { finding.at(Level::Warning) } else { finding };
    finding.seen(described(case)).seen(format!("flags lack {}", missing.join(" "))).means(
        "with it an RSA-2048 signature costs a third, X25519 a quarter ('penstock plan --measure' measures here)",
    )
}

fn other_instructions(case: &Case<'_>) -> Finding {
    let x86 = matches!(case.cpu.vendor.as_str(), "GenuineIntel" | "AuthenticAMD");
    let wanted: [(&[&str], &str); 5] = [
        (&["aes", "pclmulqdq"], "AES-GCM in hardware: without it every byte costs some ten times as much"),
        (&["vaes", "vpclmulqdq"], "AES-GCM on wide vectors: about half the cost of a byte"),
        (&["bmi2", "adx"], "big-number multiplication with two carries: RSA one at a time is slower without"),
        (&["sha_ni"], "SHA-256 in hardware: handshakes hash their messages"),
        (&["gfni"], "Galois-field instructions: nothing here depends on them today"),
    ];
    let missing: Vec<_> = wanted.iter().filter(|(flags, _)| !flags.iter().all(|flag| case.cpu.has(flag))).collect();
    if !x86 || missing.is_empty() {
        let what = if x86 {
            "AES-NI, VAES, BMI2, ADX, SHA and GFNI are there"
        } else {
            "not an x86 processor: its instructions were not judged"
        };
        return Finding::good("cpu-instructions", Area, what).seen(described(case));
    }
    // Only AES-NI and BMI2 with ADX matter to handshakes; the rest is about bytes.
    let level = if missing.iter().any(|(flags, _)| flags[0] == "aes") { Level::Warning } else { Level::Notice };
    let names: Vec<String> = missing.iter().map(|(flags, _)| flags.join(" and ")).collect();
    let mut finding =
        Finding::new("cpu-instructions", Area, level, 12, format!("instructions are missing: {}", names.join(", ")))
            .seen(described(case));
    finding.consequence =
        missing.iter().map(|(flags, why)| format!("{}: {why}", flags.join(", "))).collect::<Vec<_>>().join("; ");
    let why = if case.cpu.is_virtual() {
        "give the virtual machine the host's processor model, if the host has them"
    } else {
        "nothing: the processor lacks them"
    };
    finding.by_hand(why)
}

fn microcode(case: &Case<'_>) -> Option<Finding> {
    let revisions = &case.cpu.microcode;
    let shown =
        revisions.iter().map(|(r, n)| format!("{r} on {}", count(*n, "processor"))).collect::<Vec<_>>().join(", ");
    let old = case.host.text("/sys/devices/system/cpu/vulnerabilities/old_microcode");
    if revisions.len() > 1 {
        return Some(
            Finding::new("cpu-microcode", Area, Level::Warning, 8, "processors run different microcode")
                .seen(format!("/proc/cpuinfo: {shown}"))
                .means("an update has reached some of them only: mitigations and speed differ between workers")
                .by_hand("install the distribution's microcode package (intel-microcode, amd64-microcode) and reboot"),
        );
    }
    if let Some(old) = old.filter(|text| text.starts_with("Vulnerable")) {
        return Some(
            Finding::new("cpu-microcode", Area, Level::Warning, 8, "the microcode is old")
                .seen(format!("/sys/devices/system/cpu/vulnerabilities/old_microcode: {old}"))
                .seen(format!("/proc/cpuinfo: {shown}"))
                .means("known faults are not mended; some let other processes read keys")
                .by_hand("install the distribution's microcode package and reboot"),
        );
    }
    if revisions.is_empty() {
        return None;
    }
    let note = if case.cpu.is_virtual() { ", as far as the hypervisor tells" } else { "" };
    Some(Finding::good("cpu-microcode", Area, format!("all processors run the same microcode{note}")).seen(shown))
}

const CPUFREQ: &str = "/sys/devices/system/cpu/cpufreq";

fn governor(host: &Host) -> Option<Finding> {
    let policies = host.list(CPUFREQ);
    let of = |name: &str| -> Vec<(String, String)> {
        let file = |policy: &String| {
            let path = format!("{CPUFREQ}/{policy}/{name}");
            Some((path.clone(), host.text(&path)?))
        };
        policies.iter().filter_map(file).collect()
    };
    let governors = of("scaling_governor");
    if governors.is_empty() {
        return None;
    }
    let slow: Vec<_> = governors.iter().filter(|(_, governor)| governor != "performance").collect();
    let Some((path, name)) = slow.first() else {
        return Some(
            Finding::good("cpu-governor", Area, "the frequency governor is 'performance'").seen(governors[0].0.clone()),
        );
    };
    // With intel_pstate and HWP, 'powersave' follows load and its preference decides; the others wait to see load first.
    let preference = of("energy_performance_preference");
    let eager = name == "powersave" && preference.iter().all(|(_, p)| p == "performance") && !preference.is_empty();
    let level = if eager { Level::Notice } else { Level::Warning };
    let mut finding = Finding::new("cpu-governor", Area, level, 15, format!("the frequency governor is '{name}'"))
        .seen(format!("{path}: {name}, the same for {} of {} policies", slow.len(), governors.len()))
        .means(
            "processors clock up only after load has come: the first handshakes of a burst wait, and latency varies",
        );
    for (path, _) in &slow {
        finding = finding.mend(Change::Value { path: path.clone(), value: "performance".into(), udev: None });
    }
    let udev =
        "SUBSYSTEM==\"cpu\", KERNEL==\"cpu[0-9]*\", ACTION==\"add\", ATTR{cpufreq/scaling_governor}=\"performance\"";
    if let Some(Change::Value { udev: line, .. }) = finding.fix.first_mut() {
        *line = Some(udev.into());
    }
    Some(finding)
}

fn turbo(host: &Host) -> Option<Finding> {
    for (path, off, on) in [
        ("/sys/devices/system/cpu/intel_pstate/no_turbo", "1", "0"),
        ("/sys/devices/system/cpu/cpufreq/boost", "0", "1"),
    ] {
        match host.text(path) {
            Some(value) if value == off => {
                return Some(
                    Finding::new("cpu-turbo", Area, Level::Notice, 14, "turbo is off")
                        .seen(format!("{path}: {value}"))
                        .means("up to a third of the clock is left unused; a study that wants steady clocks keeps it off on purpose")
                        .mend(Change::Value { path: path.into(), value: on.into(), udev: None }),
                );
            }
            Some(_) => return Some(Finding::good("cpu-turbo", Area, "turbo is on").seen(path)),
            None => {}
        }
    }
    None
}

fn limits(host: &Host) -> Option<Finding> {
    let mut seen = Vec::new();
    let mut fix = Vec::new();
    let mut any = false;
    for policy in host.list(CPUFREQ) {
        let at = |name: &str| format!("{CPUFREQ}/{policy}/{name}");
        let (Some(limit), Some(able)) = (host.number(&at("scaling_max_freq")), host.number(&at("cpuinfo_max_freq")))
        else {
            continue;
        };
        any = true;
        // Drivers round to their steps: a hundredth below is no limit.
        if limit < able - able / 100 {
            seen.push(format!("{}: {} MHz of {}", at("scaling_max_freq"), limit / 1000, able / 1000));
            fix.push(Change::Value { path: at("scaling_max_freq"), value: able.to_string(), udev: None });
        }
    }
    if !any {
        return None;
    }
    let Some(first) = seen.first().cloned() else {
        return Some(Finding::good("cpu-frequency", Area, "no limit on core frequencies"));
    };
    let mut finding = Finding::new("cpu-frequency", Area, Level::Warning, 16, "core frequencies are limited")
        .seen(first)
        .means("handshakes cost more time in proportion to the clock that is missing");
    finding.fix = fix;
    if seen.len() > 1 {
        finding = finding.seen(format!("and {} more policies", seen.len() - 1));
    }
    Some(finding)
}

fn uncore(host: &Host) -> Option<Finding> {
    const AT: &str = "/sys/devices/system/cpu/intel_uncore_frequency";
    let packages: Vec<String> = host.list(AT).into_iter().filter(|name| name.starts_with("package")).collect();
    let mut finding: Option<Finding> = None;
    for package in &packages {
        let path = format!("{AT}/{package}/max_freq_khz");
        let (Some(limit), Some(able)) =
            (host.number(&path), host.number(&format!("{AT}/{package}/initial_max_freq_khz")))
        else {
            continue;
        };
        if limit < able {
            let base = finding.take().unwrap_or_else(|| {
                Finding::new("cpu-uncore", Area, Level::Notice, 6, "the uncore frequency is limited")
                    .means("memory, the cache between cores and on-chip QuickAssist devices run slower")
            });
            finding = Some(base.seen(format!("{path}: {} MHz of {}", limit / 1000, able / 1000)).mend(Change::Value {
                path,
                value: able.to_string(),
                udev: None,
            }));
        }
    }
    finding
        .or_else(|| (!packages.is_empty()).then(|| Finding::good("cpu-uncore", Area, "no limit on uncore frequencies")))
}

fn clock(case: &Case<'_>) -> Option<Finding> {
    const AT: &str = "/sys/devices/system/clocksource/clocksource0";
    let current = case.host.text(&format!("{AT}/current_clocksource"))?;
    // The kernel answers from user space for these; for any other, each reading is a system call.
    if matches!(current.as_str(), "tsc" | "kvm-clock" | "hyperv_clocksource_tsc_page" | "arch_sys_counter") {
        return Some(Finding::good(
            "clock-source",
            Clock,
            format!("the clock is read without a system call ({current})"),
        ));
    }
    let available = case.host.text(&format!("{AT}/available_clocksource")).unwrap_or_default();
    let better = ["tsc", "kvm-clock"].into_iter().find(|name| available.split(' ').any(|a| a == *name));
    let finding = Finding::new("clock-source", Clock, Level::Warning, 20, format!("the clock source is '{current}'"))
        .seen(format!("{AT}/current_clocksource: {current}; available: {available}"))
        .means("every reading of the time is a system call, a microsecond and more: each request takes several");
    Some(match better {
        Some(name) => {
            finding.mend(Change::Value { path: format!("{AT}/current_clocksource"), value: name.into(), udev: None })
        }
        None => {
            finding.by_hand("find out why the kernel distrusts the TSC ('dmesg | grep -i tsc'); firmware or hypervisor")
        }
    })
}
