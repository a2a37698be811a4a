//! Dates in fields (RFC 9110 section 5.6.7).

const MONTHS: [&[u8]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// Seconds since 1970 of a date in any of the three formats; `None` if it is in none of them, or before 1970.
pub(crate) fn parse(text: &[u8]) -> Option<u64> {
    let words: Vec<&[u8]> =
        text.split(|byte| matches!(byte, b' ' | b'-' | b',')).filter(|word| !word.is_empty()).take(7).collect();
    let (day, month, year, time) = match words[..] {
        // Sun, 06 Nov 1994 08:49:37 GMT; Sunday, 06-Nov-94 08:49:37 GMT
        [_, day, month, year, time, b"GMT"] => (day, month, year, time),
        // Sun Nov  6 08:49:37 1994
        [_, month, day, time, year] => (day, month, year, time),
        _ => return None,
    };
    let month = MONTHS.iter().position(|name| *name == month)? as u64 + 1;
    let (day, mut year_number) = (number(day)?, number(year)?);
    if year.len() == 2 {
        // RFC 9110: a year that seems to be more than 50 years ahead is in the past.
        year_number += if year_number < 70 { 2000 } else { 1900 };
    }
    let mut clock = time.split(|&byte| byte == b':').map(number);
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    if clock.next().is_some() || day == 0 || day > 31 || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    if !(1970..=9999).contains(&year_number) {
        return None;
    }
    Some(days(year_number, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 4 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

/// Days from 1970-01-01 to a date, by counting years from March on, so that a leap day is the last of its year.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_formats_are_read_and_others_are_not() {
        for text in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
            assert_eq!(parse(text.as_bytes()), Some(784_111_777), "{text}");
        }
        assert_eq!(parse(b"Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(parse(b"Thu, 29 Feb 2024 12:00:00 GMT"), Some(1_709_208_000));
        for text in [
            "0",
            "",
            "-1",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 25:49:37 GMT",
            "Thu, 01 Jan 1969 00:00:00 GMT",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
