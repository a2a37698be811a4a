//! The header of a line in each of HAProxy's log formats.

use penstock_config::model::LogTransport;
use penstock_rules::{
    syslog::{bsd_time, ietf_time},
    time,
};
use std::io::Write;

/// Everything that a line consists of. What is empty is left out, or stands there as `-`.
#[derive(Clone, Copy)]
pub(crate) struct Line<'a> {
    /// The format, where the target names none.
    pub usual: LogTransport,
    /// That of the target, if there is none.
    pub facility: Option<u16>,
    pub severity: u8,
    pub time: Time<'a>,
    pub hostname: Option<&'a [u8]>,
    pub tag: &'a [u8],
    pub pid: &'a [u8],
    /// RFC 5424's MSGID.
    pub message_id: &'a [u8],
    /// RFC 5424's STRUCTURED-DATA.
    pub structured: &'a [u8],
    pub message: &'a [u8],
}

/// The time in a line.
#[derive(Clone, Copy)]
pub(crate) enum Time<'a> {
    /// When the line is written.
    Now,
    /// None that is known: where a format needs one, when the line is written.
    Unknown,
    /// As RFC 3164 writes it.
    Bsd(&'a [u8]),
    /// As RFC 5424 writes it.
    Ietf(&'a [u8]),
}

impl Line<'_> {
    /// Appends the whole line to `out`, with its line end, truncated to at most `max` bytes.
    pub fn write(self, clock: &Clock, transport: LogTransport, facility: u8, max: usize, out: &mut Vec<u8>) {
        let start = out.len();
        let transport = if transport == LogTransport::Usual { self.usual } else { transport };
        let priority = u32::from(self.facility.unwrap_or(facility.into())) * 8 + u32::from(self.severity);
        match transport {
            LogTransport::Usual | LogTransport::Local => {
                write_number(out, b"<", priority, b">");
                self.write_bsd_time(clock, out);
                if let Some(hostname) = self.hostname.filter(|_| transport == LogTransport::Usual) {
                    out.extend_from_slice(hostname);
                    out.push(b' ');
                }
                self.write_tag(out);
            }
            LogTransport::Rfc3164 => {
                write_number(out, b"<", priority, b">");
                self.write_bsd_time(clock, out);
                out.extend_from_slice(self.hostname.unwrap_or(b"localhost"));
                out.push(b' ');
                self.write_tag(out);
            }
            LogTransport::Rfc5424 => {
                write_number(out, b"<", priority, b">1 ");
                match self.time {
                    Time::Unknown => out.extend_from_slice(b"- "),
                    _ => self.write_iso_time(clock, out),
                }
                for part in [self.hostname.unwrap_or_default(), self.tag, self.pid, self.message_id, self.structured] {
                    out.extend_from_slice(if part.is_empty() { b"-" } else { part });
                    out.push(b' ');
                }
            }
            LogTransport::Priority => write_number(out, b"<", priority, b">"),
            LogTransport::Short => write_number(out, b"<", u32::from(self.severity), b">"),
            LogTransport::Timed => {
                write_number(out, b"<", u32::from(self.severity), b">");
                self.write_iso_time(clock, out);
            }
            LogTransport::Iso => self.write_iso_time(clock, out),
            LogTransport::Raw => {}
        }
        let room = max.saturating_sub(out.len() - start).saturating_sub(1);
        out.extend_from_slice(&self.message[..self.message.len().min(room)]);
        out.push(b'\n');
    }

    fn write_tag(&self, out: &mut Vec<u8>) {
        if self.tag.is_empty() {
            return;
        }
        out.extend_from_slice(self.tag);
        if !self.pid.is_empty() {
            out.push(b'[');
            out.extend_from_slice(self.pid);
            out.push(b']');
        }
        out.extend_from_slice(b": ");
    }

    /// Writes the time as RFC 3164 has it. One that cannot be written so is replaced by that of the clock.
    fn write_bsd_time(&self, clock: &Clock, out: &mut Vec<u8>) {
        match self.time {
            Time::Bsd(time) => out.extend_from_slice(time),
            Time::Ietf(time) => match bsd_time(time) {
                Some(time) => out.extend_from_slice(&time),
                None => return out.extend_from_slice(clock.bsd()),
            },
            Time::Now | Time::Unknown => return out.extend_from_slice(clock.bsd()),
        }
        out.push(b' ');
    }

    /// Writes the time as RFC 5424 has it.
    fn write_iso_time(&self, clock: &Clock, out: &mut Vec<u8>) {
        match self.time {
            Time::Ietf(time) => out.extend_from_slice(time),
            Time::Bsd(time) => match ietf_time(time, clock.year()) {
                Some(time) => out.extend_from_slice(&time),
                None => return clock.iso(out),
            },
            Time::Now | Time::Unknown => return clock.iso(out),
        }
        out.push(b' ');
    }
}

fn write_number(out: &mut Vec<u8>, before: &[u8], number: u32, after: &[u8]) {
    out.extend_from_slice(before);
    penstock_http::push_decimal(out, number.into());
    out.extend_from_slice(after);
}

/// The time of the lines being written, formatted once a second.
#[derive(Default)]
pub(crate) struct Clock {
    unix_us: u64,
    second: u64,
    bsd: Vec<u8>,
    iso: Vec<u8>,
    zone: Vec<u8>,
}

impl Clock {
    /// Sets the time to `unix_us` microseconds since 1970; `offset` returns how many seconds local time is ahead of UTC
    /// at a given second since 1970.
    pub fn set(&mut self, unix_us: u64, offset: impl Fn(i64) -> i32) {
        self.unix_us = unix_us;
        let second = unix_us / 1_000_000;
        if self.second == second && !self.bsd.is_empty() {
            return;
        }
        self.second = second;
        let east = offset(second as i64);
        for text in [&mut self.bsd, &mut self.iso, &mut self.zone] {
            text.clear();
        }
        time::format(second as i64, east, b"%b %e %H:%M:%S ", &mut self.bsd);
        time::format(second as i64, east, b"%Y-%m-%dT%H:%M:%S.", &mut self.iso);
        time::write_offset(&mut self.zone, east);
        self.zone.insert(3, b':');
        self.zone.push(b' ');
    }
    fn year(&self) -> &[u8] {
        self.iso.get(..4).unwrap_or_default()
    }
    /// `Nov 21 21:30:17 `.
    fn bsd(&self) -> &[u8] {
        &self.bsd
    }
    /// `2026-11-21T21:30:17.046188+00:00 `.
    fn iso(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.iso);
        let _ = write!(out, "{:06}", self.unix_us % 1_000_000);
        out.extend_from_slice(&self.zone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-21 21:30:17.046188 UTC.
    const NOW: u64 = 1_795_296_617_046_188;

    fn written(transport: LogTransport, hostname: Option<&[u8]>, max: usize) -> String {
        let mut clock = Clock::default();
        clock.set(NOW, |_| 0);
        let line = Line {
            usual: LogTransport::Usual,
            facility: None,
            severity: 6,
            time: Time::Now,
            hostname,
            tag: b"haproxy",
            pid: b"30599",
            message_id: b"",
            structured: b"",
            message: b"127.0.0.1:1 f",
        };
        let mut out = Vec::new();
        line.write(&clock, transport, 16, max, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_format_is_what_haproxy_2_6_sent() {
        let all = [
            (LogTransport::Usual, "<134>Nov 21 21:30:17 haproxy[30599]: 127.0.0.1:1 f\n"),
            (LogTransport::Local, "<134>Nov 21 21:30:17 haproxy[30599]: 127.0.0.1:1 f\n"),
            (LogTransport::Rfc3164, "<134>Nov 21 21:30:17 localhost haproxy[30599]: 127.0.0.1:1 f\n"),
            (LogTransport::Rfc5424, "<134>1 2026-11-21T21:30:17.046188+00:00 - haproxy 30599 - - 127.0.0.1:1 f\n"),
            (LogTransport::Priority, "<134>127.0.0.1:1 f\n"),
            (LogTransport::Short, "<6>127.0.0.1:1 f\n"),
            (LogTransport::Timed, "<6>2026-11-21T21:30:17.046188+00:00 127.0.0.1:1 f\n"),
            (LogTransport::Iso, "2026-11-21T21:30:17.046188+00:00 127.0.0.1:1 f\n"),
            (LogTransport::Raw, "127.0.0.1:1 f\n"),
        ];
        for (transport, expected) in all {
            assert_eq!(written(transport, None, 1024), expected);
        }
    }

    #[test]
    fn a_name_that_is_to_be_sent_stands_in_every_format_that_has_one_but_local() {
        let sent = |transport| written(transport, Some(b"box"), 1024).contains(" box ");
        assert!(sent(LogTransport::Usual) && sent(LogTransport::Rfc3164) && sent(LogTransport::Rfc5424));
        assert!(!sent(LogTransport::Local) && !sent(LogTransport::Priority));
    }

    #[test]
    fn a_line_is_cut_to_the_targets_length_and_still_ends() {
        assert_eq!(written(LogTransport::Short, None, 10), "<6>127.0.\n");
    }

    #[test]
    fn the_zone_is_the_local_one_and_days_change_with_it() {
        let mut clock = Clock::default();
        clock.set(NOW, |_| 5 * 3600 + 1800);
        let mut out = Vec::new();
        clock.iso(&mut out);
        assert_eq!(out, b"2026-11-22T03:00:17.046188+05:30 ");
    }
}
