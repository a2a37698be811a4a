//! QuickAssist: device, driver, firmware, services, functions, what user space needs.

use super::Case;
use crate::{
    Change, Finding, Level,
    facts::{Qat, Seen, service_unit},
    finding::Area::Device,
};

/// Bytes that libusdm and VFIO pin for one virtual function.
const LOCKED_PER_FUNCTION: u64 = 16 << 20;
/// Directories in which libraries are looked for.
const LIBRARIES: [&str; 5] =
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64", "/usr/lib"];

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    if case.devices_seen == Seen::Nowhere {
        return Vec::new();
    }
    let asked = case.wants_device();
    // What is only a notice to a machine that wants no device stands in the way of one that wants it; where a device is demanded,
    // the configuration does not start.
    let level = match (case.demands_device(), asked) {
        (true, _) => Level::Critical,
        (false, true) => Level::Warning,
        (false, false) => Level::Notice,
    };
    if case.devices.is_empty() {
        let finding = match (case.demands_device(), asked) {
            (true, _) => missing(Level::Critical)
                .means("the configuration does not start: nothing stands in for a device that is demanded"),
            (false, true) => missing(Level::Warning)
                .means("software computes instead: eight lanes where the processor has them, else one at a time"),
            (false, false) => Finding::new("qat-device", Device, Level::Notice, 10, "no QuickAssist device")
                .means("public-key work stays on the processors; 'penstock plan' says what a card would save"),
        };
        let seen = match case.devices_seen {
            Seen::Sysfs => "/sys/bus/pci/devices: none of the known QuickAssist numbers (8086:4940 and its relatives)",
            Seen::Proc => "/proc/bus/pci/devices: none of the known QuickAssist numbers",
            _ => "lspci -Dn: none of the known QuickAssist numbers",
        };
        return vec![finding.seen(seen)];
    }
    let mut found = Vec::new();
    for device in &case.devices {
        let before = found.len();
        found.extend(one(case, device, level));
        if found.len() == before && case.devices_seen == Seen::Sysfs {
            let services = device.services.clone().unwrap_or_else(|| "services unknown".into());
            let what = format!("the device {} ({}) is up, {services}", device.address, device.kind);
            found.push(Finding::good("qat-device", Device, what));
        }
    }
    if case.devices_seen != Seen::Sysfs {
        let names: Vec<_> = case.devices.iter().map(|d| format!("{} ({})", d.address, d.kind)).collect();
        found.push(
            Finding::new(
                "qat-device",
                Device,
                Level::Notice,
                10,
                "there are devices, but /sys does not show their state",
            )
            .seen(names.join(", "))
            .means("driver, firmware and services are unknown"),
        );
    }
    found.extend(iommu(case, level));
    found.extend(memory(case, level));
    found.extend(library(case, level));
    found
}

/// The finding where a device is asked for and there is none.
fn missing(level: Level) -> Finding {
    let finding = "the configuration asks for QuickAssist, and there is no device";
    Finding::new("qat-device", Device, level, 70, finding).by_hand(
        "write 'tune.crypto.engine auto', or fit a device; on a 4th generation Xeon or later it may be off in the firmware",
    )
}

fn one(case: &Case<'_>, device: &Qat, level: Level) -> Vec<Finding> {
    let mut found = Vec::new();
    if case.devices_seen != Seen::Sysfs {
        return found;
    }
    let at = format!("/sys/bus/pci/devices/{}", device.address);
    let address = &device.address;
    let Some(driver) = &device.driver else {
        let mut finding =
            Finding::new("qat-driver", Device, level, 55, format!("no driver is bound to {address} ({})", device.kind))
                .seen(format!("{at}/driver is not there"))
                .means("the device cannot be used")
                .by_hand(format!("modprobe {}", device.module));
        finding = firmware(case, device, finding);
        return vec![finding];
    };
    if device.is_virtual {
        return found;
    }
    if driver == "vfio-pci" {
        found.push(
            Finding::new("qat-driver", Device, Level::Notice, 5, format!("{address} itself is bound to vfio-pci"))
                .means("it was handed to a virtual machine as a whole"),
        );
        return found;
    }
    match device.state.as_deref() {
        Some("up") => {}
        Some(state) => {
            let finding = Finding::new("qat-state", Device, level, 52, format!("the device {address} is {state}"))
                .seen(format!("{at}/qat/state: {state}"))
                .means("the device cannot be used")
                .mend(Change::Value { path: format!("{at}/qat/state"), value: "up".into(), udev: None });
            found.push(firmware(case, device, finding));
        }
        None => found.push(
            Finding::new("qat-state", Device, Level::Notice, 4, format!("the driver of {address} tells no state"))
                .seen(format!("{at}/qat/state is not there"))
                .means("an out-of-tree driver, or a kernel before 6.0: 'adf_ctl status' tells"),
        ),
    }
    if device.has_asymmetric() == Some(false) {
        let services = device.services.as_deref().unwrap_or_default();
        let set = |file: &str, value: &str| Change::Value {
            path: format!("{at}/qat/{file}"),
            value: value.into(),
            udev: None,
        };
        found.push(
            Finding::new(
                "qat-services",
                Device,
                level,
                50,
                format!("the services of {address} do not include asymmetric crypto"),
            )
            .seen(format!("{at}/qat/cfg_services: {services}"))
            .means("it signs nothing: a handshake's work stays in software, whatever libqat says")
            .mend(set("state", "down"))
            .mend(set("cfg_services", "sym;asym"))
            .mend(set("state", "up")),
        );
    }
    if device.functions.1 > 0 && device.functions.0 == 0 {
        found.push(
            Finding::new("qat-functions", Device, level, 48, format!("{address} has no virtual functions"))
                .seen(format!("{at}/sriov_numvfs: 0 of {}", device.functions.1))
                .means("libqat opens virtual functions, not the device: it finds none")
                .mend(Change::Value {
                    path: format!("{at}/sriov_numvfs"),
                    value: device.functions.1.to_string(),
                    udev: None,
                })
                .by_hand("or let qatlib's service do it: systemctl enable --now qat"),
        );
    } else if device.functions.0 > 0 && device.vfio < device.functions.0.min(64) {
        found.push(
            Finding::new(
                "qat-vfio",
                Device,
                level,
                46,
                format!(
                    "only {} of {} virtual functions of {address} are bound to vfio-pci",
                    device.vfio, device.functions.0
                ),
            )
            .seen(format!(
                "{at}/virtfn*/driver; /dev/vfio is {}",
                if case.host.exists("/dev/vfio") { "there" } else { "not there: the module vfio-pci is not loaded" }
            ))
            .means("libqat opens those bound to vfio-pci")
            .by_hand("modprobe vfio-pci; systemctl restart qat"),
        );
    }
    found
}

/// Adds to `finding` that a device's firmware file is missing, without which the driver does not bring the device up.
fn firmware(case: &Case<'_>, device: &Qat, finding: Finding) -> Finding {
    let places = ["/lib/firmware", "/lib/firmware/intel/qat", "/usr/lib/firmware"];
    let there = |place: &str| {
        ["", ".xz", ".zst"].iter().any(|end| case.host.exists(&format!("{place}/{}{end}", device.firmware)))
    };
    if places.into_iter().any(there) {
        return finding;
    }
    finding
        .seen(format!("{} is in none of {}", device.firmware, places.join(", ")))
        .by_hand("install the firmware first: firmware-misc-nonfree on Debian, linux-firmware elsewhere")
}

fn iommu(case: &Case<'_>, level: Level) -> Option<Finding> {
    if case.devices_seen != Seen::Sysfs || case.devices.iter().all(|device| device.is_virtual) {
        return None;
    }
    if !case.host.list("/sys/class/iommu").is_empty() || !case.host.list("/sys/kernel/iommu_groups").is_empty() {
        return Some(Finding::good("qat-iommu", Device, "the IOMMU is on"));
    }
    let cmdline = case.host.text("/proc/cmdline").unwrap_or_default();
    let switch = cmdline.split(' ').find(|word| word.starts_with("intel_iommu")).unwrap_or("no intel_iommu=");
    Some(
        Finding::new("qat-iommu", Device, level, 47, "the IOMMU is off")
            .seen("/sys/class/iommu and /sys/kernel/iommu_groups are empty")
            .seen(format!("/proc/cmdline: {switch}"))
            .means("virtual functions cannot be bound to vfio-pci")
            .by_hand(
                "turn VT-d and SR-IOV on in the firmware, add intel_iommu=on to the kernel's command line, reboot",
            ),
    )
}

fn memory(case: &Case<'_>, level: Level) -> Vec<Finding> {
    let mut found = Vec::new();
    // A device without functions gets all it can have: so says the fix for it.
    let of = |d: &Qat| u64::from(if d.functions.0 == 0 { d.functions.1 } else { d.functions.0 });
    let functions: u64 = case.devices.iter().map(|device| of(device).max(1)).sum();
    let needed = functions * LOCKED_PER_FUNCTION;
    if let Some(limit) = case.limits.memlock.filter(|limit| *limit < needed && !case.limits.is_root) {
        let mib = needed >> 20;
        let mut finding =
            Finding::new("qat-memlock", Device, level, 44, "too little memory may be locked for the device")
                .seen(format!("{}: {} MiB; {functions} virtual functions need {mib}", case.limits.source, limit >> 20))
                .means("libqat fails to pin its buffers, and starts without the device");
        finding = match service_unit(case.host) {
            Some((unit, _)) => {
                finding.mend(Change::Service { unit: unit.into(), setting: format!("LimitMEMLOCK={mib}M") })
            }
            None => finding
                .by_hand(format!("LimitMEMLOCK={mib}M in the service's unit, or memlock in /etc/security/limits.conf")),
        };
        found.push(finding);
    }
    let meminfo = case.host.text("/proc/meminfo").unwrap_or_default();
    let huge =
        meminfo.lines().find_map(|l| l.strip_prefix("HugePages_Total:")).and_then(|n| n.trim().parse::<u64>().ok());
    let out_of_tree = case.host.exists("/sys/module/usdm_drv");
    if huge == Some(0) && out_of_tree {
        found.push(
            Finding::new("qat-hugepages", Device, Level::Notice, 8, "there are no huge pages for the device's buffers")
                .seen("/proc/meminfo: HugePages_Total: 0; /sys/module/usdm_drv is there")
                .means("the out-of-tree memory driver takes single pages: more translations an operation")
                .mend(Change::Sysctl { name: "vm.nr_hugepages".into(), value: "512".into() }),
        );
    }
    found
}

fn library(case: &Case<'_>, level: Level) -> Option<Finding> {
    let find =
        |name: &str| LIBRARIES.iter().find_map(|place| Some(format!("{place}/{}", case.host.find(place, name)?)));
    // qatlib's, else the out-of-tree driver's.
    let pairs = [("libqat.so.4", "libusdm.so.0"), ("libqat_s.so", "libusdm_drv_s.so")];
    for (crypto, memory) in pairs {
        match (find(crypto), find(memory)) {
            (Some(library), Some(_)) => {
                return Some(Finding::good("qat-library", Device, format!("libqat is installed: {library}")));
            }
            (Some(library), None) => {
                return Some(
                    Finding::new("qat-library", Device, level, 45, format!("{memory} is missing beside libqat"))
                        .seen(library)
                        .means("buffers that the device can reach cannot be had")
                        .by_hand(
                            "install all of qatlib: apt install qatlib-service (Debian), dnf install qatlib (Fedora)",
                        ),
                );
            }
            _ => {}
        }
    }
    let old = find("libqat.so.");
    let finding = match &old {
        Some(file) => {
            Finding::new("qat-library", Device, level, 45, "libqat is of another generation than 4").seen(file.clone())
        }
        None => Finding::new("qat-library", Device, level, 45, "libqat is not installed")
            .seen(format!("no libqat.so.4 nor libqat_s.so in {}", LIBRARIES.join(", "))),
    };
    Some(finding.means("the device cannot be reached from user space").by_hand(
        "apt install qatlib-service (Debian), dnf install qatlib (Fedora), or the out-of-tree driver for older cards",
    ))
}
