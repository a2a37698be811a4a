//! Dates in the formats of logs and HTTP fields. Pure: the time and the offset of local time are passed in.

use std::cell::RefCell;

/// A time, split into its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Civil {
    year: i64,
    month: u8,
    day: u8,
    hour: u8,
    minute: u8,
    second: u8,
    /// 0 is Sunday.
    weekday: u8,
    /// 1 is January 1.
    yearday: u16,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

impl Civil {
    /// From seconds since 1970.
    pub fn from_unix(unix: i64) -> Civil {
        let (days, of_day) = (unix.div_euclid(86_400), unix.rem_euclid(86_400));
        // Years are counted from March 1, so that the leap day comes last (H. Hinnant, "chrono-compatible low-level
        // date algorithms").
        let z = days + 719_468;
        let era = z.div_euclid(146_097);
        let doe = z.rem_euclid(146_097);
        let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
        let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
        let mp = (5 * doy + 2) / 153;
        let month = if mp < 10 { mp + 3 } else { mp - 9 };
        let year = yoe + era * 400 + i64::from(month <= 2);
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334][month as usize - 1];
        let day = doy - (153 * mp + 2) / 5 + 1;
        Civil {
            year,
            month: month as u8,
            day: day as u8,
            hour: (of_day / 3_600) as u8,
            minute: (of_day / 60 % 60) as u8,
            second: (of_day % 60) as u8,
            weekday: (days + 4).rem_euclid(7) as u8,
            yearday: (before + day + i64::from(leap && month > 2)) as u16,
        }
    }

    fn month_short(&self) -> &'static [u8] {
        &MONTHS[usize::from(self.month) - 1].as_bytes()[..3]
    }
    fn day_short(&self) -> &'static [u8] {
        &DAYS[usize::from(self.weekday)].as_bytes()[..3]
    }

    fn write_clf(&self, out: &mut Vec<u8>) {
        two(out, self.day);
        out.push(b'/');
        out.extend_from_slice(self.month_short());
        out.push(b'/');
        padded(out, self.year, 4);
        for part in [self.hour, self.minute, self.second] {
            out.push(b':');
            two(out, part);
        }
    }

    /// Writes `Fri, 06 Feb 2009 12:14:14 GMT`.
    pub fn write_http(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.day_short());
        out.extend_from_slice(b", ");
        two(out, self.day);
        out.push(b' ');
        out.extend_from_slice(self.month_short());
        out.push(b' ');
        padded(out, self.year, 4);
        out.push(b' ');
        self.write_time(out);
        out.extend_from_slice(b" GMT");
    }

    fn write_time(&self, out: &mut Vec<u8>) {
        two(out, self.hour);
        out.push(b':');
        two(out, self.minute);
        out.push(b':');
        two(out, self.second);
    }
}

/// Writes `06/Feb/2009:12:14:14`; `local` is seconds since 1970 in local time. Successive lines of a worker usually
/// have the same second, so the text is cached.
pub(crate) fn write_clf(local: i64, out: &mut Vec<u8>) {
    thread_local!(static LAST: RefCell<(i64, Vec<u8>)> = const { RefCell::new((0, Vec::new())) });
    LAST.with_borrow_mut(|(second, text)| {
        if *second != local || text.is_empty() {
            text.clear();
            Civil::from_unix(local).write_clf(text);
            *second = local;
        }
        out.extend_from_slice(text);
    });
}

/// `06/Feb/2009:12:14:14.655`: a moment in µs since 1970, where local time is `offset_s` seconds ahead of UTC.
pub fn log_date(unix_us: u64, offset_s: i32) -> String {
    let mut text = Vec::new();
    Civil::from_unix((unix_us / 1_000_000) as i64 + i64::from(offset_s)).write_clf(&mut text);
    format!("{}.{:03}", String::from_utf8_lossy(&text), unix_us / 1000 % 1000)
}

fn two(out: &mut Vec<u8>, n: u8) {
    out.extend_from_slice(&[b'0' + n / 10 % 10, b'0' + n % 10]);
}

fn padded(out: &mut Vec<u8>, n: i64, width: usize) {
    // The year of every log line.
    if let (1000..=9999, 4) = (n, width) {
        return crate::value::write_int(out, n);
    }
    out.extend_from_slice(format!("{n:0width$}").as_bytes());
}

/// Writes `+0100`.
pub fn write_offset(out: &mut Vec<u8>, offset_s: i32) {
    out.push(if offset_s < 0 { b'-' } else { b'+' });
    let minutes = offset_s.unsigned_abs() / 60;
    two(out, (minutes / 60) as u8);
    two(out, (minutes % 60) as u8);
}

/// The output of a strftime(3) conversion: text, or a number with its default width and padding.
enum Part {
    Text(Vec<u8>),
    Number(i64, usize, u8),
}

/// The C library's flags between the percent sign and the letter: padding, case, width.
#[derive(Default)]
struct Flags {
    /// The padding; `-` means none.
    pad: Option<u8>,
    upper: bool,
    width: usize,
}

/// The widest field that a format may ask for; headers and log lines need no more.
const WIDEST: usize = 255;

impl Flags {
    /// Parses `_`, `-`, `0`, `^`, `#`, a width, and `E` and `O`, which have no effect in the C locale.
    fn read(mut format: &[u8]) -> (Flags, &[u8]) {
        let mut flags = Flags::default();
        while let [flag @ (b'_' | b'-' | b'0' | b'^' | b'#'), rest @ ..] = format {
            match flag {
                b'^' | b'#' => flags.upper = true,
                b'_' => flags.pad = Some(b' '),
                pad => flags.pad = Some(*pad),
            }
            format = rest;
        }
        while let [digit @ b'0'..=b'9', rest @ ..] = format {
            flags.width = (flags.width * 10 + usize::from(digit - b'0')).min(WIDEST);
            format = rest;
        }
        match format {
            [b'E' | b'O', rest @ ..] if !rest.is_empty() => (flags, rest),
            rest => (flags, rest),
        }
    }

    fn write(&self, part: Part, out: &mut Vec<u8>) {
        let (mut text, width, pad) = match part {
            Part::Text(text) => (text, self.width, self.pad.unwrap_or(b' ')),
            Part::Number(n, width, pad) => (n.to_string().into_bytes(), self.width.max(width), self.pad.unwrap_or(pad)),
        };
        if self.upper {
            text.make_ascii_uppercase();
        }
        if pad != b'-' {
            out.extend(std::iter::repeat_n(pad, width.saturating_sub(text.len())));
        }
        out.extend_from_slice(&text);
    }
}

/// strftime(3) in the C locale, at an offset from UTC.
pub fn format(unix: i64, offset_s: i32, format: &[u8], out: &mut Vec<u8>) {
    let at = Civil::from_unix(unix.saturating_add(offset_s.into()));
    let mut rest = format;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let (flags, after) = Flags::read(rest);
        let Some((&letter, after)) = after.split_first() else {
            out.push(b'%');
            continue;
        };
        match at.part(letter, unix, offset_s) {
            Some(part) => flags.write(part, out),
            None => {
                // A conversion that the library does not know is copied unchanged.
                out.push(b'%');
                out.extend_from_slice(&rest[..rest.len() - after.len()]);
            }
        }
        rest = after;
    }
}

impl Civil {
    fn part(&self, letter: u8, unix: i64, offset_s: i32) -> Option<Part> {
        let text = |text: &[u8]| Some(Part::Text(text.to_vec()));
        let number = |n: i64, width| Some(Part::Number(n, width, b'0'));
        let spaced = |n: u8| Some(Part::Number(n.into(), 2, b' '));
        let whole = |pattern: &[u8]| {
            let mut out = Vec::new();
            format(unix, offset_s, pattern, &mut out);
            Some(Part::Text(out))
        };
        let hour12 = (self.hour + 11) % 12 + 1;
        match letter {
            b'a' => text(self.day_short()),
            b'A' => text(DAYS[usize::from(self.weekday)].as_bytes()),
            b'b' | b'h' => text(self.month_short()),
            b'B' => text(MONTHS[usize::from(self.month) - 1].as_bytes()),
            b'c' => whole(b"%a %b %e %H:%M:%S %Y"),
            b'C' => number(self.year.div_euclid(100), 2),
            b'd' => number(self.day.into(), 2),
            b'D' | b'x' => whole(b"%m/%d/%y"),
            b'e' => spaced(self.day),
            b'F' => whole(b"%Y-%m-%d"),
            b'g' => number(self.iso_week().0.rem_euclid(100), 2),
            b'G' => number(self.iso_week().0, 1),
            b'H' => number(self.hour.into(), 2),
            b'I' => number(hour12.into(), 2),
            b'j' => number(self.yearday.into(), 3),
            b'k' => spaced(self.hour),
            b'l' => spaced(hour12),
            b'm' => number(self.month.into(), 2),
            b'M' => number(self.minute.into(), 2),
            b'n' => text(b"\n"),
            b'p' => text(if self.hour < 12 { b"AM" } else { b"PM" }),
            b'P' => text(if self.hour < 12 { b"am" } else { b"pm" }),
            b'r' => whole(b"%I:%M:%S %p"),
            b'R' => whole(b"%H:%M"),
            b's' => number(unix, 1),
            b'S' => number(self.second.into(), 2),
            b't' => text(b"\t"),
            b'T' | b'X' => whole(b"%H:%M:%S"),
            b'u' => number(if self.weekday == 0 { 7 } else { self.weekday.into() }, 1),
            b'U' => number(((self.yearday + 6 - u16::from(self.weekday)) / 7).into(), 2),
            b'V' => number(self.iso_week().1, 2),
            b'w' => number(self.weekday.into(), 1),
            b'W' => number(((self.yearday + 6 - u16::from((self.weekday + 6) % 7)) / 7).into(), 2),
            b'y' => number(self.year.rem_euclid(100), 2),
            b'Y' => number(self.year, 1),
            b'z' => {
                let mut out = Vec::new();
                write_offset(&mut out, offset_s);
                Some(Part::Text(out))
            }
            b'Z' if offset_s == 0 => text(b"GMT"),
            b'Z' => self.part(b'z', unix, offset_s),
            b'%' => text(b"%"),
            _ => None,
        }
    }

    /// Year and week number of ISO 8601: weeks start on Monday, and the first one contains the year's first Thursday.
    fn iso_week(&self) -> (i64, i64) {
        let from_monday = i64::from((self.weekday + 6) % 7);
        let week = (i64::from(self.yearday) - 1 - from_monday + 10) / 7;
        let weeks_of = |year: i64| {
            // A year has 53 weeks if it starts on a Thursday, or is a leap year that ends on one.
            let last_day =
                |year: i64| (year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400)).rem_euclid(7);
            if last_day(year) == 4 || last_day(year - 1) == 3 { 53 } else { 52 }
        };
        match week {
            0 => (self.year - 1, weeks_of(self.year - 1)),
            53 if weeks_of(self.year) == 52 => (self.year + 1, 1),
            week => (self.year, week),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formatted(unix: i64, pattern: &str) -> String {
        let mut out = Vec::new();
        format(unix, 0, pattern.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn dates_of_several_centuries() {
        assert_eq!(formatted(0, "%F %T %a %j"), "1970-01-01 00:00:00 Thu 001");
        assert_eq!(formatted(951_782_400, "%F %A %j"), "2000-02-29 Tuesday 060");
        assert_eq!(formatted(951_868_800, "%F %j"), "2000-03-01 061");
        assert_eq!(formatted(4_102_444_799, "%F %T %y"), "2099-12-31 23:59:59 99");
        assert_eq!(formatted(-1, "%F %T"), "1969-12-31 23:59:59");
        assert_eq!(formatted(1_233_922_454, "%U %W %u %I %p"), "05 05 5 12 PM");
        assert_eq!(formatted(1_233_922_454, "%-d %_m %5Y %^a %Ey %Od %P %q %"), "6  2 02009 FRI 09 06 pm %q %");
    }

    #[test]
    fn weeks_of_iso_8601() {
        for (unix, week) in [
            (1_104_537_600, "2004-W53"),
            (1_136_073_600, "2005-W52"),
            (1_199_059_200, "2008-W01"),
            (1_230_768_000, "2009-W01"),
            (1_262_304_000, "2009-W53"),
            (1_609_459_200, "2020-W53"),
        ] {
            assert_eq!(formatted(unix, "%G-W%V"), week);
        }
    }

    #[test]
    fn the_two_fixed_forms() {
        let mut out = Vec::new();
        for (second, expected) in [(1_233_922_454, b"06/Feb/2009:12:14:14"), (1_233_922_455, b"06/Feb/2009:12:14:15")] {
            for _ in 0..2 {
                out.clear();
                write_clf(second, &mut out);
                assert_eq!(out, expected);
            }
        }
        out.clear();
        Civil::from_unix(1_233_922_454).write_http(&mut out);
        assert_eq!(out, b"Fri, 06 Feb 2009 12:14:14 GMT");
        out.clear();
        write_offset(&mut out, -12_600);
        assert_eq!(out, b"-0330");
    }
}
