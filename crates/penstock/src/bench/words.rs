//! Parses numbers, times and lists of processors on the command line.

use std::time::Duration;

/// Parses an integer above zero; `k` and `m` multiply it, as in wrk.
///
/// # Errors
/// If it is not one, or too large for its type.
pub fn number<N: TryFrom<u64>>(name: &str, text: &str) -> Result<N, String> {
    let whole = rate(name, text).ok().filter(|n| n.fract() == 0.0).and_then(|n| N::try_from(n as u64).ok());
    whole.ok_or_else(|| format!("{name} cannot be '{text}': expected a whole number above zero"))
}

/// Parses a number above zero, with the same suffixes.
///
/// # Errors
/// If it is not one.
pub fn rate(name: &str, text: &str) -> Result<f64, String> {
    let (digits, factor) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1e3),
        None => text.strip_suffix(['m', 'M']).map_or((text, 1.0), |digits| (digits, 1e6)),
    };
    let number = digits.parse::<f64>().ok().map(|n| n * factor).filter(|n| *n > 0.0 && *n < 1e15);
    number.ok_or_else(|| format!("{name} cannot be '{text}': expected a number above zero"))
}

/// Parses `30`, `30s`, `500ms`, `2m`, `1h`.
///
/// # Errors
/// If it is no time.
pub fn duration(name: &str, text: &str) -> Result<Duration, String> {
    let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let (digits, unit) = units
        .iter()
        .find_map(|(suffix, unit)| text.strip_suffix(suffix).map(|digits| (digits, *unit)))
        .unwrap_or((text, 1.0));
    let seconds = digits.parse::<f64>().ok().map(|n| n * unit).filter(|n| *n >= 0.0 && *n <= 1e7);
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("{name} cannot be '{text}': expected a time like 30s, 500ms or 2m"))
}

/// Parses `0-3,8`.
///
/// # Errors
/// If it is no such list.
pub fn cores(list: &str) -> Result<Vec<usize>, String> {
    let bad = || format!("--cores cannot be '{list}': expected processors like 0-3,8");
    let mut cores = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse().map_err(|_| bad())?, last.parse::<usize>().map_err(|_| bad())?);
        if first > last || last > 8191 {
            return Err(bad());
        }
        cores.extend(first..=last);
    }
    Ok(cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_read_as_wrk_reads_them() {
        assert_eq!(number::<usize>("-c", "2k"), Ok(2000));
        assert_eq!(number::<u64>("-n", "1.5m"), Ok(1_500_000));
        assert_eq!(rate("--rate", "0.5"), Ok(0.5));
        assert_eq!(duration("-d", "30"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("-d", "2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("-d", "500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(cores("0-2,8"), Ok(vec![0, 1, 2, 8]));
    }

    #[test]
    fn what_is_none_is_said() {
        for text in ["0", "-1", "x", "", "0.5", "1e300"] {
            assert!(number::<usize>("-c", text).is_err(), "{text}");
        }
        for text in ["-1s", "s", "1d", "inf"] {
            assert!(duration("-d", text).is_err(), "{text}");
        }
        for text in ["3-1", "a", "1,", "0-99999999"] {
            assert!(cores(text).is_err(), "{text}");
        }
    }
}
