//! What a process may use: the limits of the service where its unit is known, else those of this process.

use crate::Host;

/// The limits that matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Descriptors, soft and hard.
    pub nofile: Option<(u64, u64)>,
    /// Bytes of locked memory.
    pub memlock: Option<u64>,
    /// The file or service unit that the limits were read from.
    pub source: String,
    /// Whether the examination ran as root.
    pub is_root: bool,
}

/// The service that would run the configuration, if one is installed.
pub fn service_unit(host: &Host) -> Option<(&'static str, String)> {
    ["penstock.service", "haproxy.service"].into_iter().find_map(|unit| {
        let places = ["/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];
        let text = places.iter().find_map(|place| host.text(&format!("{place}/{unit}")))?;
        let folder = format!("/etc/systemd/system/{unit}.d");
        let more = host.list(&folder).into_iter().filter_map(|name| host.text(&format!("{folder}/{name}")));
        Some((unit, std::iter::once(text).chain(more).collect::<Vec<_>>().join("\n")))
    })
}

impl Limits {
    /// Reads the limits.
    pub fn of(host: &Host) -> Limits {
        let mut limits = Limits { source: "/proc/self/limits".into(), ..Limits::default() };
        let table = host.text("/proc/self/limits").unwrap_or_default();
        let row = |name: &str| -> Option<(u64, u64)> {
            let rest = table.lines().find_map(|line| line.strip_prefix(name))?;
            let mut words = rest.split_whitespace().map(number);
            Some((words.next()??, words.next()??))
        };
        limits.nofile = row("Max open files");
        limits.memlock = row("Max locked memory").map(|(soft, _)| soft);
        let status = host.text("/proc/self/status").unwrap_or_default();
        let uids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
        limits.is_root = uids.split_whitespace().nth(1) == Some("0");
        if let Some((unit, text)) = service_unit(host) {
            let setting = |name: &str| text.lines().rev().find_map(|l| l.trim().strip_prefix(name)?.strip_prefix('='));
            if let Some(value) = setting("LimitNOFILE") {
                let (soft, hard) = value.split_once(':').unwrap_or((value, value));
                limits.nofile = number(soft).zip(number(hard)).or(limits.nofile);
                limits.source = format!("LimitNOFILE={value} of {unit}");
            }
            if let Some(bytes) = setting("LimitMEMLOCK").and_then(number) {
                limits.memlock = Some(bytes);
            }
        }
        limits
    }
}

/// `1024`, `unlimited`, `infinity`, `64M`.
fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    if text == "unlimited" || text == "infinity" {
        return Some(u64::MAX);
    }
    let (digits, factor) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        b'G' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_wins_over_the_shell() {
        let shell = "== /proc/self/limits\nMax open files            1024                 524288               files\n\
                     Max locked memory         unlimited            unlimited            bytes\n== /proc/self/status\nUid:\t1000\t0\t0\t0\n";
        let limits = Limits::of(&Host::recorded(shell).unwrap());
        assert_eq!((limits.nofile, limits.memlock, limits.is_root), (Some((1024, 524_288)), Some(u64::MAX), true));
        let unit = "== /lib/systemd/system/haproxy.service\n[Service]\nLimitNOFILE=4096\n\
                    == /etc/systemd/system/haproxy.service.d/a.conf\n[Service]\nLimitNOFILE=20000:40000\nLimitMEMLOCK=64M\n";
        let limits = Limits::of(&Host::recorded(&format!("{shell}{unit}")).unwrap());
        assert_eq!((limits.nofile, limits.memlock), (Some((20_000, 40_000)), Some(64 << 20)));
        let nothing = Limits::of(&Host::recorded("== /proc/self/limits\nMax open files x y\n").unwrap());
        assert_eq!((nothing.nofile, nothing.is_root), (None, false));
    }
}
