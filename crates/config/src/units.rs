//! Parses times (manual section 2.5) and sizes, and finds the known word that was probably meant.

use std::time::Duration;

/// HAProxy stores times as signed 32-bit numbers of their unit: longer ones are refused there, and here.
const MOST: u128 = i32::MAX as u128;

/// Why a time is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadTime {
    /// Not digits followed by a known unit.
    Syntax,
    /// Over 2147483647 of the unit: a little more than 24 days if that is the millisecond, 68 years if it is the second.
    Overflow,
}

/// The units of time in µs; a unit comes before any other that is a prefix of it.
const UNITS: &[(&str, u128)] = &[
    ("us", 1),
    ("ms", 1_000),
    ("s", 1_000_000),
    ("m", 60 * 1_000_000),
    ("h", 3_600 * 1_000_000),
    ("d", 86_400 * 1_000_000),
];

/// Parses `30s`, `500ms`, `1h`...; a bare number is in `unit`, and others are rounded up to it. Also returns the ignored text after the unit, such as
/// the `ec` of `30sec`: HAProxy 2.6 warns about it, and [`unread`] is that warning.
///
/// # Errors
///
/// If there is no number at the start, or it is too large.
pub fn time(text: &str, unit: Duration) -> Result<(Duration, &str), BadTime> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let suffix = &text[digits..];
    let (unit_us, rest) = match UNITS.iter().find_map(|(name, us)| Some((*us, suffix.strip_prefix(name)?))) {
        Some(known) => known,
        None if suffix.is_empty() => (unit.as_micros(), ""),
        None => return Err(BadTime::Syntax),
    };
    if digits == 0 {
        return Err(BadTime::Syntax);
    }
    // More digits than fit into u64 must be an overflow.
    let count: u64 = text[..digits].parse().map_err(|_| BadTime::Overflow)?;
    let us = u128::from(count) * unit_us;
    let whole = us.div_ceil(unit.as_micros());
    if whole > MOST {
        return Err(BadTime::Overflow);
    }
    Ok((unit * whole as u32, rest))
}

/// The warning about `rest`, which follows the unit of the time `text`: the message and a hint.
pub fn unread(text: &str, rest: &str) -> (String, &'static str) {
    (
        format!("'{rest}' at the end of the time '{text}' is ignored"),
        "the units are us, ms, s, m, h and d, and nothing else",
    )
}

/// Parses a size in bytes: `16384`, `32k`, `1m`, `2g`.
pub fn size(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let shift = match text[digits..].to_ascii_lowercase().as_str() {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        _ => return None,
    };
    let count: u64 = text[..digits].parse().ok()?;
    count.checked_mul(1 << shift)
}

/// The known word nearest to `word`, if one is near enough to have been meant.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A third of the letters may be wrong, at most four. Very long words are not names, and very short ones are all
    // similar.
    if word.len() < 3 || word.len() > 64 {
        return None;
    }
    let allowed = (word.len() / 3).min(4);
    known
        .into_iter()
        .filter(|k| k.len().abs_diff(word.len()) <= allowed)
        .map(|k| (distance(word, k), k))
        .filter(|(d, _)| *d <= allowed)
        .min_by_key(|(d, _)| *d)
        .map(|(_, k)| k)
}

/// A suggestion for `word`: the nearest of `known`, or all of them if there are few. `what` is the plural noun for
/// them.
pub fn suggestion<'a>(word: &str, known: impl Iterator<Item = &'a str> + Clone, what: &str) -> Option<String> {
    const FEW: usize = 8;
    if let Some(near) = nearest(word, known.clone()) {
        return Some(format!("did you mean '{near}'?"));
    }
    let mut all: Vec<&str> = known.take(FEW + 1).collect();
    all.sort_unstable();
    all.dedup();
    match all.as_slice() {
        [] => Some(format!("there are no {what}")),
        [only] => Some(format!("the only one here is '{only}'")),
        few if few.len() <= FEW => Some(format!("the {what} are {}", few.join(", "))),
        _ => None,
    }
}

/// Optimal string alignment: insertions, deletions, replacements and swapped neighbours cost one each.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) =
        (a.to_ascii_lowercase().chars().collect(), b.to_ascii_lowercase().chars().collect());
    let width = b.len() + 1;
    let mut cost = vec![0; (a.len() + 1) * width];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            cost[i * width + j] = if i == 0 {
                j
            } else if j == 0 {
                i
            } else {
                let replaced = cost[(i - 1) * width + j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let mut best = replaced.min(cost[(i - 1) * width + j] + 1).min(cost[i * width + j - 1] + 1);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    best = best.min(cost[(i - 2) * width + j - 2] + 1);
                }
                best
            };
        }
    }
    cost[a.len() * width + b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn times_have_the_units_and_bounds_of_haproxy() {
        let whole = |text| match time(text, MS) {
            Ok((length, "")) => Ok(length),
            Ok((_, rest)) => panic!("'{rest}' of {text} is not read"),
            Err(bad) => Err(bad),
        };
        assert_eq!(whole("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(whole("5000"), Ok(Duration::from_secs(5)));
        assert_eq!(whole("24d"), Ok(Duration::from_secs(24 * 86400)));
        assert_eq!(whole("25d"), Err(BadTime::Overflow));
        assert_eq!(whole("2147483647"), Ok(Duration::from_millis(2_147_483_647)));
        assert_eq!(whole("2147483648"), Err(BadTime::Overflow));
        assert_eq!(whole("500us"), Ok(MS));
        assert_eq!(whole("1us"), Ok(MS));
        assert_eq!(whole("0us"), Ok(Duration::ZERO));
        assert_eq!(whole("1500us"), Ok(Duration::from_millis(2)));
        assert_eq!(whole("0"), Ok(Duration::ZERO));
        for bad in ["", "s", "1x", "-1", "1 s", "1.5s", "１s"] {
            assert_eq!(whole(bad), Err(BadTime::Syntax), "{bad}");
        }
        assert_eq!(whole("99999999999999999999"), Err(BadTime::Overflow));
        let seconds = |text| time(text, Duration::from_secs(1)).map(|(length, _)| length.as_millis());
        assert_eq!(seconds("1us"), Ok(1_000));
        assert_eq!(seconds("1001ms"), Ok(2_000));
        assert_eq!(seconds("24855d"), Ok(2_147_472_000_000));
        assert_eq!(seconds("24856d"), Err(BadTime::Overflow));
    }

    #[test]
    fn sizes_count_in_powers_of_two_and_never_wrap() {
        assert_eq!(size("16384"), Some(16384));
        assert_eq!(size("32k"), Some(32768));
        assert_eq!(size("1M"), Some(1 << 20));
        assert_eq!(size("18446744073709551615g"), None);
        assert_eq!(size("k"), None);
    }

    #[test]
    fn the_nearest_word_is_near() {
        let known = ["maxconn", "mode", "monitor-uri", "balance"];
        assert_eq!(nearest("maxcon", known), Some("maxconn"));
        assert_eq!(nearest("mdoe", known), Some("mode"));
        assert_eq!(nearest("montior-uri", known), Some("monitor-uri"));
        assert_eq!(nearest("listen", known), None);
    }
}
