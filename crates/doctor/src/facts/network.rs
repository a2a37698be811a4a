//! Network interfaces with hardware, or what passes for it, behind them.

use crate::{Host, facts::range};

/// One interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The interface's name: `eth0`.
    pub name: String,
    /// The interface's driver.
    pub driver: Option<String>,
    /// The speed in Mbit/s; `None` where the interface does not say.
    pub speed: Option<u64>,
    /// Receive queues.
    pub queues: Vec<String>,
    /// Whether the kernel spreads packets of a queue over processors.
    pub spreads: bool,
    /// The memory node of the interface's device.
    pub node: Option<u32>,
    /// The interface's interrupts, and the processors that each may go to.
    pub interrupts: Vec<(u32, Vec<u32>)>,
}

/// The interfaces that are up.
pub fn interfaces(host: &Host) -> Vec<Interface> {
    const NET: &str = "/sys/class/net";
    let up = |name: &String| {
        let at = format!("{NET}/{name}");
        // Bridges, tunnels and containers' ends have no device behind them.
        host.exists(&format!("{at}/device")) && host.text(&format!("{at}/operstate")).as_deref() != Some("down")
    };
    let table = host.text("/proc/interrupts").unwrap_or_default();
    host.list(NET).into_iter().filter(up).map(|name| described(host, name, &table)).collect()
}

fn described(host: &Host, name: String, table: &str) -> Interface {
    let at = format!("/sys/class/net/{name}");
    let mut queues = host.list(&format!("{at}/queues"));
    queues.retain(|queue| queue.starts_with("rx-"));
    // A mask of zeros, with commas between its words.
    let spreads = queues.iter().any(|queue| {
        let mask = host.text(&format!("{at}/queues/{queue}/rps_cpus"));
        mask.is_some_and(|mask| mask.contains(|c: char| c != '0' && c != ','))
    });
    let listed = host.list(&format!("{at}/device/msi_irqs"));
    let mut numbers: Vec<u32> = listed.iter().filter_map(|n| n.parse().ok()).collect();
    // virtio's interrupts are those of its parent, which the table names.
    let parent = host.link(&format!("{at}/device"));
    let mine = |line: &str| {
        let own = line.split_whitespace().last().unwrap_or_default();
        let data = own.contains("input") || own.contains("rx") || own.contains("TxRx") || own.contains(name.as_str());
        data && (own.contains(name.as_str()) || parent.as_ref().is_some_and(|p| own.starts_with(&format!("{p}-"))))
    };
    let named = table.lines().filter(|line| mine(line));
    let named: Vec<u32> = named.filter_map(|line| line.trim().split(':').next()?.parse().ok()).collect();
    if !named.is_empty() {
        numbers = named;
    }
    let interrupts = numbers.into_iter().filter_map(|number| {
        let list = host.text(&format!("/proc/irq/{number}/smp_affinity_list"))?;
        Some((number, range(&list)))
    });
    Interface {
        driver: host.link(&format!("{at}/device/driver")),
        speed: host.text(&format!("{at}/speed")).and_then(|s| s.parse().ok()).filter(|s| *s < 10_000_000),
        node: host.text(&format!("{at}/device/numa_node")).and_then(|n| n.parse().ok()),
        interrupts: interrupts.collect(),
        queues,
        spreads,
        name,
    }
}
