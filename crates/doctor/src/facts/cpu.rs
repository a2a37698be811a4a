//! Processors: /proc/cpuinfo, and what /sys says of their topology.

use crate::Host;
use std::collections::{BTreeMap, BTreeSet};

/// The processors of a host.
#[derive(Clone, Debug, Default)]
pub struct Cpu {
    /// `GenuineIntel`, `AuthenticAMD`; empty where there is no /proc/cpuinfo.
    pub vendor: String,
    /// The name under which the processor is marketed.
    pub model_name: String,
    /// Family and model numbers.
    pub model: (u32, u32),
    /// Instructions and features that every processor has.
    pub flags: BTreeSet<String>,
    /// Revisions of microcode, and how many processors run each.
    pub microcode: BTreeMap<String, usize>,
    /// Numbers of the processors that are on.
    pub online: Vec<u32>,
    /// Threads of one core, for each processor; absent where the host does not say.
    pub siblings: BTreeMap<u32, Vec<u32>>,
    /// Socket of each processor.
    pub sockets: BTreeMap<u32, u32>,
    /// Processors of each memory node.
    pub nodes: BTreeMap<u32, Vec<u32>>,
}

/// `0-3,8,10-11` as numbers; empty for what is not a list. Bounded: a kernel has at most 8192 processors.
pub fn range(text: &str) -> Vec<u32> {
    const CPUS_MAX: u32 = 8192;
    let mut out = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let (Ok(low), Ok(high)) = (low.trim().parse::<u32>(), high.trim().parse::<u32>()) else { return Vec::new() };
        if high < low || high >= CPUS_MAX {
            return Vec::new();
        }
        out.extend(low..=high);
    }
    out
}

impl Cpu {
    /// Reads the processors of a host.
    pub fn of(host: &Host) -> Cpu {
        let mut cpu = Cpu::default();
        let info = host.text("/proc/cpuinfo").unwrap_or_default();
        let mut flags: Option<BTreeSet<String>> = None;
        for block in info.split("\n\n") {
            let fields: BTreeMap<&str, &str> =
                block.lines().filter_map(|l| l.split_once(':')).map(|(k, v)| (k.trim(), v.trim())).collect();
            let Some(number) = fields.get("processor").and_then(|n| n.parse().ok()) else { continue };
            cpu.online.push(number);
            let own: BTreeSet<String> = fields
                .get("flags")
                .or(fields.get("Features"))
                .copied()
                .unwrap_or_default()
                .split(' ')
                .map(str::to_owned)
                .collect();
            flags = Some(match flags {
                Some(common) => common.intersection(&own).cloned().collect(),
                None => own,
            });
            if let Some(revision) = fields.get("microcode") {
                *cpu.microcode.entry((*revision).to_owned()).or_default() += 1;
            }
            if cpu.vendor.is_empty() {
                let of = |name: &str| fields.get(name).copied().unwrap_or_default();
                cpu.vendor = of("vendor_id").to_owned();
                cpu.model_name = of("model name").to_owned();
                cpu.model = (of("cpu family").parse().unwrap_or(0), of("model").parse().unwrap_or(0));
            }
            if let Some(socket) = fields.get("physical id").and_then(|n| n.parse().ok()) {
                cpu.sockets.insert(number, socket);
            }
        }
        cpu.flags = flags.unwrap_or_default();
        let online = host.text("/sys/devices/system/cpu/online").map(|list| range(&list)).unwrap_or_default();
        if !online.is_empty() {
            cpu.online = online;
        }
        for &number in &cpu.online {
            let topology = format!("/sys/devices/system/cpu/cpu{number}/topology");
            if let Some(list) = host.text(&format!("{topology}/thread_siblings_list")) {
                cpu.siblings.insert(number, range(&list));
            }
            if let Some(socket) = host.number(&format!("{topology}/physical_package_id")) {
                cpu.sockets.insert(number, socket as u32);
            }
        }
        for name in host.list("/sys/devices/system/node") {
            let Some(node) = name.strip_prefix("node").and_then(|n| n.parse().ok()) else { continue };
            let list =
                host.text(&format!("/sys/devices/system/node/{name}/cpulist")).map(|l| range(&l)).unwrap_or_default();
            // A node with memory only has no processors.
            if !list.is_empty() {
                cpu.nodes.insert(node, list);
            }
        }
        cpu
    }

    /// Whether every processor has this feature.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.contains(flag)
    }

    /// Whether anything is known about instructions.
    pub fn is_known(&self) -> bool {
        self.flags.len() > 1
    }

    /// Whether this is a virtual machine.
    pub fn is_virtual(&self) -> bool {
        self.has("hypervisor")
    }

    /// The features that eight lanes need, as the crate `lanes` asks for them, and that this processor lacks.
    pub fn missing_for_lanes(&self) -> Vec<&'static str> {
        let needed =
            ["avx512f", "avx512ifma", "avx512dq", "avx512bw", "avx512vl", "avx512vbmi", "avx512_vbmi2", "bmi2"];
        needed.into_iter().filter(|flag| !self.has(flag)).collect()
    }

    /// An Intel server whose silicon has AVX-512 IFMA: Ice Lake (106, 108), Sapphire and Emerald Rapids (143, 207), Granite
    /// Rapids (173, 174).
    pub fn silicon_has_ifma(&self) -> bool {
        let intel = self.vendor == "GenuineIntel" && self.model.0 == 6;
        let amd = self.vendor == "AuthenticAMD" && (self.model.0 > 25 || self.model.0 == 25 && self.zen4());
        intel && [106, 108, 143, 207, 173, 174].contains(&self.model.1) || amd
    }

    /// Family 25 is Zen 3 and Zen 4: these models are the latter (Genoa, Storm Peak, Raphael, Phoenix, Bergamo).
    fn zen4(&self) -> bool {
        matches!(self.model.1, 0x10..=0x1f | 0x60..=0x7f | 0xa0..=0xaf)
    }

    /// The node of a processor, where there is more than one.
    pub fn node_of(&self, number: u32) -> Option<u32> {
        self.nodes.iter().find(|(_, list)| list.contains(&number)).map(|(node, _)| *node)
    }

    /// The first processor of every core, in order.
    pub fn first_threads(&self) -> Vec<u32> {
        let is_first = |number: &u32| self.siblings.get(number).is_none_or(|list| list.first() == Some(number));
        self.online.iter().copied().filter(is_first).collect()
    }

    /// Whether cores run two threads each.
    pub fn has_smt(&self) -> bool {
        self.siblings.values().any(|list| list.len() > 1)
    }

    /// The number of sockets.
    pub fn socket_count(&self) -> usize {
        self.sockets.values().collect::<BTreeSet<_>>().len().max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read_and_nonsense_is_none() {
        assert_eq!(range("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        for text in ["", "a", "3-1", "0-4294967295", "1-", "-"] {
            assert!(range(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_feature_counts_when_every_processor_has_it() {
        let host = Host::recorded(
            "== /proc/cpuinfo\nprocessor : 0\nvendor_id : X\nflags : a b\nmicrocode : 0x1\n\nprocessor : 1\nflags : b c\nmicrocode : 0x2\n",
        )
        .unwrap();
        let cpu = Cpu::of(&host);
        assert!(cpu.has("b") && !cpu.has("a") && !cpu.has("c"));
        assert_eq!((cpu.online.as_slice(), cpu.microcode.len()), (&[0, 1][..], 2));
        let empty = Cpu::of(&Host::recorded("== /proc/x\n").unwrap());
        assert!(!empty.is_known() && empty.online.is_empty() && empty.socket_count() == 1);
    }
}
