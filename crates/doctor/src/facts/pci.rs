//! QuickAssist devices, by their PCI numbers.

use crate::Host;

/// One kind of device.
struct Kind {
    physical: u16,
    virtual_function: u16,
    name: &'static str,
    driver: &'static str,
    firmware: &'static str,
}

const fn kind(pf: u16, vf: u16, name: &'static str, driver: &'static str, firmware: &'static str) -> Kind {
    Kind { physical: pf, virtual_function: vf, name, driver, firmware }
}

/// Vendor 8086; the kernel's drivers/crypto/intel/qat lists the same numbers.
#[rustfmt::skip]
const KINDS: [Kind; 10] = [
    kind(0x4940, 0x4941, "4xxx", "4xxx", "qat_4xxx.bin"),
    kind(0x4942, 0x4943, "401xx", "4xxx", "qat_4xxx.bin"),
    kind(0x4944, 0x4945, "402xx", "4xxx", "qat_402xx.bin"),
    kind(0x4946, 0x4947, "420xx", "420xx", "qat_420xx.bin"),
    kind(0x4948, 0x4949, "6xxx", "6xxx", "qat_6xxx.bin"),
    kind(0x0435, 0x0443, "dh895xcc", "dh895xcc", "qat_895xcc.bin"),
    kind(0x37c8, 0x37c9, "c6xx", "c6xx", "qat_c62x.bin"),
    kind(0x19e2, 0x19e3, "c3xxx", "c3xxx", "qat_c3xxx.bin"),
    kind(0x6f54, 0x6f55, "d15xx", "d15xx", "qat_d15xx.bin"),
    kind(0x18ee, 0x18ef, "200xx", "200xx", "qat_200xx.bin"),
];

/// How devices were looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// In /sys.
    Sysfs,
    /// In /proc/bus/pci: without drivers and states.
    Proc,
    /// By lspci: without drivers and states.
    Lspci,
    /// Nowhere: nothing is known.
    Nowhere,
}

/// A physical device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qat {
    /// `0000:6b:00.0`.
    pub address: String,
    /// `4xxx`.
    pub kind: &'static str,
    /// The module that drives it.
    pub module: String,
    /// The file name of the device's firmware.
    pub firmware: &'static str,
    /// The driver bound to it.
    pub driver: Option<String>,
    /// `up` or `down`.
    pub state: Option<String>,
    /// `sym;asym`, `dc` and their like.
    pub services: Option<String>,
    /// The memory node of the device.
    pub node: Option<u32>,
    /// The number of virtual functions there are, and the most there could be.
    pub functions: (u32, u32),
    /// How many of the device's virtual functions are bound to vfio-pci.
    pub vfio: u32,
    /// Whether the device is itself a virtual function, passed into this machine.
    pub is_virtual: bool,
}

impl Qat {
    /// Whether the device takes public-key operations; `None` if that is not known.
    pub fn has_asymmetric(&self) -> Option<bool> {
        // "asym" is no part of "sym", but "sym" is a part of it.
        let services = self.services.as_deref()?;
        Some(services.split([';', ',']).any(|service| service == "asym" || service == "cy"))
    }
}

/// The devices of a host, and how they were looked for.
pub fn devices(host: &Host) -> (Vec<Qat>, Seen) {
    const DEVICES: &str = "/sys/bus/pci/devices";
    let addresses = host.list(DEVICES);
    if !addresses.is_empty() {
        let found = addresses.into_iter().filter_map(|address| {
            let at = format!("{DEVICES}/{address}");
            let vendor = host.number(&format!("{at}/vendor"))?;
            let device = host.number(&format!("{at}/device"))?;
            let (kind, is_virtual) = known(vendor, device)?;
            // A virtual function beside its physical one is counted there.
            if is_virtual && host.exists(&format!("{at}/physfn")) {
                return None;
            }
            Some(described(host, address, kind, is_virtual))
        });
        return (found.collect(), Seen::Sysfs);
    }
    if let Some(table) = host.text("/proc/bus/pci/devices") {
        let found = table.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let place = u32::from_str_radix(words.next()?, 16).ok()?;
            let numbers = u64::from_str_radix(words.next()?, 16).ok()?;
            let (kind, is_virtual) = known(numbers >> 16, numbers & 0xffff)?;
            let address = format!("0000:{:02x}:{:02x}.{}", place >> 8, place >> 3 & 31, place & 7);
            Some(bare(address, kind, is_virtual))
        });
        return (found.collect(), Seen::Proc);
    }
    if let Some(table) = host.command("lspci -Dn") {
        // 0000:6b:00.0 0b40: 8086:4940 (rev 40)
        let found = table.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let address = words.next()?.to_owned();
            let (vendor, device) = words.nth(1)?.split_once(':')?;
            let (kind, is_virtual) =
                known(u64::from_str_radix(vendor, 16).ok()?, u64::from_str_radix(device, 16).ok()?)?;
            Some(bare(address, kind, is_virtual))
        });
        return (found.collect(), Seen::Lspci);
    }
    (Vec::new(), Seen::Nowhere)
}

fn known(vendor: u64, device: u64) -> Option<(&'static Kind, bool)> {
    let kind = KINDS.iter().find(|k| u64::from(k.physical) == device || u64::from(k.virtual_function) == device)?;
    (vendor == 0x8086).then_some((kind, u64::from(kind.virtual_function) == device))
}

fn bare(address: String, kind: &'static Kind, is_virtual: bool) -> Qat {
    let suffix = if is_virtual { "vf" } else { "" };
    Qat {
        address,
        kind: kind.name,
        module: format!("qat_{}{suffix}", kind.driver),
        firmware: kind.firmware,
        driver: None,
        state: None,
        services: None,
        node: None,
        functions: (0, 0),
        vfio: 0,
        is_virtual,
    }
}

fn described(host: &Host, address: String, kind: &'static Kind, is_virtual: bool) -> Qat {
    let at = format!("/sys/bus/pci/devices/{address}");
    let count = |name: &str| host.number(&format!("{at}/{name}")).unwrap_or(0) as u32;
    let functions = (count("sriov_numvfs"), count("sriov_totalvfs"));
    let bound = |n: u32| {
        let function = host.link(&format!("{at}/virtfn{n}"));
        function.and_then(|f| host.link(&format!("/sys/bus/pci/devices/{f}/driver"))).as_deref() == Some("vfio-pci")
    };
    Qat {
        driver: host.link(&format!("{at}/driver")),
        state: host.text(&format!("{at}/qat/state")),
        services: host.text(&format!("{at}/qat/cfg_services")),
        node: host.text(&format!("{at}/numa_node")).and_then(|n| n.parse().ok()),
        functions,
        vfio: (0..functions.0.min(64)).filter(|n| bound(*n)).count() as u32,
        ..bare(address, kind, is_virtual)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_found_in_each_of_the_three_places() {
        let sys = "== /sys/bus/pci/devices/0000:6b:00.0/vendor\n0x8086\n== /sys/bus/pci/devices/0000:6b:00.0/device\n0x4940\n\
                   == /sys/bus/pci/devices/0000:6b:00.0/qat/cfg_services\nsym;asym\n";
        let proc = "== /proc/bus/pci/devices\n6b00\t80864940\t0\t0\n0008\t1af41045\t0\n";
        let lspci = "== $ lspci -Dn\n0000:00:00.0 0600: 8086:0d57\n0000:6b:00.0 0b40: 8086:4940 (rev 40)\n";
        for (text, seen) in [(sys, Seen::Sysfs), (proc, Seen::Proc), (lspci, Seen::Lspci)] {
            let (found, how) = devices(&Host::recorded(text).unwrap());
            assert_eq!((found.len(), how), (1, seen), "{text}");
            assert_eq!(
                (found[0].address.as_str(), found[0].kind, found[0].module.as_str()),
                ("0000:6b:00.0", "4xxx", "qat_4xxx")
            );
        }
        assert_eq!(devices(&Host::recorded("== /proc/x\n").unwrap()), (Vec::new(), Seen::Nowhere));
        assert_eq!(devices(&Host::recorded("== /proc/bus/pci/devices\ngarbage\n\u{fffd} x\n").unwrap()).0, []);
    }

    #[test]
    fn symmetric_alone_is_not_asymmetric() {
        let mut device = bare("0".into(), &KINDS[0], false);
        assert_eq!(device.has_asymmetric(), None);
        for (services, asymmetric) in
            [("sym;asym", true), ("asym", true), ("sym", false), ("dc", false), ("asym;dc", true)]
        {
            device.services = Some(services.into());
            assert_eq!(device.has_asymmetric(), Some(asymmetric), "{services}");
        }
    }
}
