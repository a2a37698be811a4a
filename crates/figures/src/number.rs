//! Numbers as people read them.

/// A whole number with commas between thousands.
pub fn whole(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if value < 0.0 && digits != "0" { format!("-{out}") } else { out }
}

/// Money, to the cent.
pub fn usd(value: f64) -> String {
    let cents = (value * 100.0).round();
    format!("{}.{:02}", whole((cents / 100.0).trunc()), cents.abs() % 100.0)
}

/// A share in whole percent.
pub fn percent(value: f64) -> String {
    format!("{:.0} %", value * 100.0)
}

/// A number without needless zeros.
pub fn plain(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!([0.0, 999.0, 1000.4, 1_234_567.0, -4321.0].map(whole), ["0", "999", "1,000", "1,234,567", "-4,321"]);
        assert_eq!([0.0, 1.005, 20.4, 1234.567].map(usd), ["0.00", "1.00", "20.40", "1,234.57"]);
        assert_eq!([0.6, 11289.0, 75.76, 0.0].map(plain), ["0.6", "11289", "75.76", "0"]);
        assert_eq!(percent(0.846), "85 %");
    }
}
