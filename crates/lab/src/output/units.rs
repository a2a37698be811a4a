//! Times and sizes as people read them, in wrk's units.

/// `835us`, `1.25ms`, `2.00s`.
#[must_use]
pub fn time(us: f64) -> String {
    match us {
        _ if us < 1e3 => format!("{us:.0}us"),
        _ if us < 1e6 => format!("{:.2}ms", us / 1e3),
        _ => format!("{:.2}s", us / 1e6),
    }
}

/// `12B`, `1.50KB`, `3.00GB`, by 1024.
#[must_use]
pub fn bytes(n: f64) -> String {
    let mut n = n;
    for unit in ["B", "KB", "MB", "GB"] {
        if n < 1024.0 {
            return if unit == "B" { format!("{n:.0}B") } else { format!("{n:.2}{unit}") };
        }
        n /= 1024.0;
    }
    format!("{n:.2}TB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_fit_the_size() {
        assert_eq!([835.0, 1250.0, 2e6].map(time), ["835us", "1.25ms", "2.00s"]);
        assert_eq!([12.0, 1536.0, 3e9 * 1.073_741_824].map(bytes), ["12B", "1.50KB", "3.00GB"]);
    }
}
