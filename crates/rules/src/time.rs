//! Dates in the forms that logs and HTTP fields have. Pure: the moment and the offset of local time come in.

use std::cell::RefCell;

/// A moment taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Civil {
    year: i64,
    month: u8,
    day: u8,
    hour: u8,
    minute: u8,
    second: u8,
    /// From Sunday, 0.
    weekday: u8,
    /// From 1.
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
        // Years are counted from March 1, so that the leap day is the last (H. Hinnant, "chrono-compatible low-level
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

    /// `Fri, 06 Feb 2009 12:14:14 GMT`.
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

/// `06/Feb/2009:12:14:14`, at a second since 1970 in local time. The lines of a worker mostly share their second, so its
/// text is made once.
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

/// `+0100`.
pub fn write_offset(out: &mut Vec<u8>, offset_s: i32) {
    out.push(if offset_s < 0 { b'-' } else { b'+' });
    let minutes = offset_s.unsigned_abs() / 60;
    two(out, (minutes / 60) as u8);
    two(out, (minutes % 60) as u8);
}

/// strftime(3) in the C locale, at an offset from UTC.
pub fn format(unix: i64, offset_s: i32, format: &[u8], out: &mut Vec<u8>) {
    let at = Civil::from_unix(unix.saturating_add(offset_s.into()));
    let hour12 = (at.hour + 11) % 12 + 1;
    let mut bytes = format.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'a') => out.extend_from_slice(at.day_short()),
            Some(b'A') => out.extend_from_slice(DAYS[usize::from(at.weekday)].as_bytes()),
            Some(b'b' | b'h') => out.extend_from_slice(at.month_short()),
            Some(b'B') => out.extend_from_slice(MONTHS[usize::from(at.month) - 1].as_bytes()),
            Some(b'c') => self::format(unix, offset_s, b"%a %b %e %H:%M:%S %Y", out),
            Some(b'C') => padded(out, at.year.div_euclid(100), 2),
            Some(b'd') => two(out, at.day),
            Some(b'D' | b'x') => self::format(unix, offset_s, b"%m/%d/%y", out),
            Some(b'e') => out.extend_from_slice(format!("{:2}", at.day).as_bytes()),
            Some(b'F') => self::format(unix, offset_s, b"%Y-%m-%d", out),
            Some(b'H') => two(out, at.hour),
            Some(b'I') => two(out, hour12),
            Some(b'j') => padded(out, at.yearday.into(), 3),
            Some(b'k') => out.extend_from_slice(format!("{:2}", at.hour).as_bytes()),
            Some(b'l') => out.extend_from_slice(format!("{hour12:2}").as_bytes()),
            Some(b'm') => two(out, at.month),
            Some(b'M') => two(out, at.minute),
            Some(b'n') => out.push(b'\n'),
            Some(b'p') => out.extend_from_slice(if at.hour < 12 { b"AM" } else { b"PM" }),
            Some(b'r') => self::format(unix, offset_s, b"%I:%M:%S %p", out),
            Some(b'R') => self::format(unix, offset_s, b"%H:%M", out),
            Some(b's') => crate::value::write_int(out, unix),
            Some(b'S') => two(out, at.second),
            Some(b't') => out.push(b'\t'),
            Some(b'T' | b'X') => at.write_time(out),
            Some(b'u') => out.push(b'0' + if at.weekday == 0 { 7 } else { at.weekday }),
            Some(b'U') => two(out, ((at.yearday + 6 - u16::from(at.weekday)) / 7) as u8),
            Some(b'w') => out.push(b'0' + at.weekday),
            Some(b'W') => two(out, ((at.yearday + 6 - u16::from((at.weekday + 6) % 7)) / 7) as u8),
            Some(b'y') => two(out, at.year.rem_euclid(100) as u8),
            Some(b'Y') => padded(out, at.year, 1),
            Some(b'z') => write_offset(out, offset_s),
            Some(b'Z') if offset_s == 0 => out.extend_from_slice(b"UTC"),
            Some(b'Z') => write_offset(out, offset_s),
            Some(b'%') | None => out.push(b'%'),
            Some(other) => out.extend([b'%', other]),
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
