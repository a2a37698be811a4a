//! What else happened on the server's processors during a window: other programs, and time given to other machines. What the
//! whole machine did, the load's own report says.

use std::collections::BTreeMap;

/// Ticks of one processor since the machine was started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Ticks {
    busy: u64,
    steal: u64,
    total: u64,
}

/// A reading.
pub struct Vitals {
    cpus: BTreeMap<u32, Ticks>,
}

/// What happened between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Passed {
    /// Share of the time of these processors that the hypervisor gave to others.
    pub steal: f64,
    /// Cores' worth of CPU time on these processors.
    pub busy_cores: f64,
}

impl Vitals {
    /// Takes one.
    #[must_use]
    pub fn now() -> Vitals {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        Vitals { cpus: parse(&stat) }
    }

    /// What passed since, on these processors.
    #[must_use]
    pub fn passed(&self, cpus: &[u32]) -> Passed {
        between(&self.cpus, &Vitals::now().cpus, cpus)
    }
}

fn between(before: &BTreeMap<u32, Ticks>, after: &BTreeMap<u32, Ticks>, cpus: &[u32]) -> Passed {
    let (mut busy, mut steal, mut total) = (0, 0, 0);
    let mut counted = 0;
    for number in cpus {
        let (Some(then), Some(now)) = (before.get(number), after.get(number)) else { continue };
        busy += now.busy.saturating_sub(then.busy);
        steal += now.steal.saturating_sub(then.steal);
        total += now.total.saturating_sub(then.total);
        counted += 1;
    }
    if total == 0 {
        return Passed::default();
    }
    let share = |ticks: u64| ticks as f64 / total as f64;
    Passed { steal: share(steal), busy_cores: share(busy) * f64::from(counted) }
}

/// `cpu0 user nice system idle iowait irq softirq steal guest guest_nice`; guests are in user and nice already.
fn parse(stat: &str) -> BTreeMap<u32, Ticks> {
    let row = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split_whitespace();
        let number = words.next()?.parse().ok()?;
        let ticks: Vec<u64> = words.take(8).filter_map(|word| word.parse().ok()).collect();
        let at = |place: usize| ticks.get(place).copied().unwrap_or(0);
        let busy = at(0) + at(1) + at(2) + at(5) + at(6);
        Some((number, Ticks { busy, steal: at(7), total: busy + at(3) + at(4) + at(7) }))
    };
    stat.lines().filter(|line| !line.starts_with("cpu ")).filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_and_busy_time_are_of_the_processors_asked_for() {
        let before =
            parse("cpu  9 9 9 9 9 9 9 9\ncpu0 100 0 100 800 0 0 0 0 0 0\ncpu1 0 0 0 1000 0 0 0 0 0 0\nintr 5\n");
        let after = parse("cpu0 130 10 140 800 0 10 10 0 0 0\ncpu1 0 0 0 1050 0 0 0 50 0 0\n");
        let both = between(&before, &after, &[0, 1]);
        assert_eq!((both.steal, both.busy_cores), (0.25, 1.0));
        assert_eq!(between(&before, &after, &[0]), Passed { steal: 0.0, busy_cores: 1.0 });
        assert_eq!(between(&before, &after, &[7]), Passed::default());
    }
}
