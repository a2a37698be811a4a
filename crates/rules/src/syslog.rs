//! Syslog messages of others: how a stream is cut into them (RFC 6587), and what their headers say (RFC 3164 and
//! RFC 5424). Whatever is not a header belongs to the text, so that no message is lost. Pure.

use std::ops::Range;

/// A message and what its header says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyslogMessage<'a> {
    /// Eight times the facility, and the severity.
    pub priority: Option<u16>,
    /// The kind of header behind the priority.
    pub header: HeaderKind,
    /// The time as the header writes it; `None` where RFC 5424's header has none.
    pub time: Option<&'a [u8]>,
    /// The name of the machine.
    pub host: Option<&'a [u8]>,
    /// The program.
    pub tag: Option<&'a [u8]>,
    /// The process.
    pub pid: Option<&'a [u8]>,
    /// RFC 5424's MSGID.
    pub message_id: Option<&'a [u8]>,
    /// RFC 5424's STRUCTURED-DATA.
    pub structured: Option<&'a [u8]>,
    /// The rest.
    pub text: &'a [u8],
}

/// A kind of header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeaderKind {
    /// None at all: everything is text.
    #[default]
    None,
    /// `Oct 11 22:14:15 host tag[pid]: `.
    Bsd,
    /// `1 2003-10-11T22:14:15.003Z host app pid msgid - `.
    Ietf,
}

/// Months as RFC 3164 writes them.
pub const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// The length of a time of RFC 3164.
const BSD_TIME: usize = "Oct 11 22:14:15".len();

impl<'a> SyslogMessage<'a> {
    /// Reads a message, without the line end behind it, if there is one.
    pub fn parse(message: &'a [u8]) -> SyslogMessage<'a> {
        let message = message.strip_suffix(b"\n").unwrap_or(message);
        let Some((priority, rest)) = priority(message) else {
            return SyslogMessage { text: message, ..SyslogMessage::default() };
        };
        let priority = Some(priority);
        let found =
            ietf(rest).or_else(|| bsd(rest)).unwrap_or(SyslogMessage { text: rest, ..SyslogMessage::default() });
        SyslogMessage { priority, ..found }
    }
}

/// `<`, up to three digits and `>`. As in HAProxy no digits mean 0, and values beyond 191 are kept.
fn priority(message: &[u8]) -> Option<(u16, &[u8])> {
    let rest = message.strip_prefix(b"<")?;
    let end = rest.iter().take(4).position(|byte| *byte == b'>')?;
    let digits = &rest[..end];
    let value = digits
        .iter()
        .try_fold(0, |value, digit| digit.is_ascii_digit().then(|| value * 10 + u16::from(digit - b'0')))?;
    Some((value, &rest[end + 1..]))
}

/// RFC 3164, 4.1. The host ends with a blank; a tag has none, and ends with a colon and a blank.
fn bsd(rest: &[u8]) -> Option<SyslogMessage<'_>> {
    let (time, rest) = rest.split_at_checked(BSD_TIME)?;
    let shape = b"Mmm dd dd:dd:dd";
    let fits = |(byte, shape): (&u8, &u8)| match shape {
        b'M' | b'm' => true,
        b'd' => byte.is_ascii_digit(),
        other => byte == other,
    };
    let day_is_padded = time[4] == b' ';
    let is_time = MONTHS.iter().any(|month| time.starts_with(*month))
        && time.iter().zip(shape).enumerate().all(|(at, pair)| fits(pair) || (at == 4 && day_is_padded));
    let (host, text) = is_time.then(|| word(rest.strip_prefix(b" ")?)).flatten()?;
    let message =
        SyslogMessage { header: HeaderKind::Bsd, time: Some(time), host: Some(host), text, ..SyslogMessage::default() };
    let Some((tag, text)) = word(text).and_then(|(first, text)| Some((first.strip_suffix(b":")?, text))) else {
        return Some(message);
    };
    let named = tag.strip_suffix(b"]").and_then(|tag| {
        let at = tag.iter().position(|byte| *byte == b'[')?;
        Some((&tag[..at], &tag[at + 1..]))
    });
    let (tag, pid) = named.unwrap_or((tag, b""));
    if tag.is_empty() && !pid.is_empty() {
        return Some(message);
    }
    Some(SyslogMessage { tag: some(tag), pid: some(pid), text, ..message })
}

/// RFC 5424, 6.
fn ietf(rest: &[u8]) -> Option<SyslogMessage<'_>> {
    let (time, rest) = word(rest.strip_prefix(b"1 ")?)?;
    if time != b"-" && !is_ietf_time(time) {
        return None;
    }
    let (host, rest) = word(rest)?;
    let (tag, rest) = word(rest)?;
    let (pid, rest) = word(rest)?;
    let (message_id, rest) = word(rest)?;
    let end = structured_data(rest)?;
    let (structured, text) = rest.split_at(end);
    let text = match text {
        [] => text,
        [b' ', text @ ..] => text,
        _ => return None,
    };
    let given = |value| if value == b"-" { None } else { some(value) };
    Some(SyslogMessage {
        priority: None,
        header: HeaderKind::Ietf,
        time: given(time),
        host: given(host),
        tag: given(tag),
        pid: given(pid),
        message_id: given(message_id),
        structured: given(structured),
        text,
    })
}

/// `YYYY-MM-DDThh:mm:ss`, perhaps a fraction, and a zone.
fn is_ietf_time(time: &[u8]) -> bool {
    let fits = |bytes: &[u8], shape: &[u8]| {
        bytes.len() == shape.len()
            && bytes
                .iter()
                .zip(shape)
                .all(|(byte, shape)| if *shape == b'd' { byte.is_ascii_digit() } else { byte == shape })
    };
    let Some((seconds, rest)) = time.split_at_checked("2003-10-11T22:14:15".len()) else { return false };
    let rest = match rest {
        [b'.', fraction @ ..] => {
            let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if digits == 0 {
                return false;
            }
            &fraction[digits..]
        }
        rest => rest,
    };
    fits(seconds, b"dddd-dd-ddTdd:dd:dd") && (rest == b"Z" || fits(rest, b"+dd:dd") || fits(rest, b"-dd:dd"))
}

/// The length of STRUCTURED-DATA. A bracket or a quote in a value stands behind a backslash.
fn structured_data(rest: &[u8]) -> Option<usize> {
    if rest.first() == Some(&b'-') {
        return Some(1);
    }
    let mut end = 0;
    while rest.get(end) == Some(&b'[') {
        end += 1;
        loop {
            match rest.get(end)? {
                b'\\' => end += 2,
                b']' => break,
                _ => end += 1,
            }
        }
        end += 1;
    }
    (end > 0).then_some(end)
}

/// A word, and what stands behind the blank behind it.
fn word(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memchr(b' ', bytes).filter(|end| *end > 0)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

fn some(bytes: &[u8]) -> Option<&[u8]> {
    (!bytes.is_empty()).then_some(bytes)
}

/// A time of RFC 5424 as RFC 3164 writes it; `None` without a month.
pub fn bsd_time(ietf: &[u8]) -> Option<Vec<u8>> {
    let [_, _, _, _, b'-', tens, ones, b'-', day_tens, day_ones, b'T', clock @ ..] = ietf else { return None };
    let month = usize::from(tens.checked_sub(b'0')?) * 10 + usize::from(ones.checked_sub(b'0')?);
    let mut out = MONTHS.get(month.checked_sub(1)?)?.to_vec();
    out.extend([b' ', if *day_tens == b'0' { b' ' } else { *day_tens }, *day_ones, b' ']);
    out.extend_from_slice(clock.get(..8)?);
    Some(out)
}

/// A time of RFC 3164 as RFC 5424 writes it. It has no year, and no zone: `-00:00` says that (RFC 3339, 4.3).
pub fn ietf_time(bsd: &[u8], year: &[u8]) -> Option<Vec<u8>> {
    let month = MONTHS.iter().position(|month| bsd.starts_with(*month))? + 1;
    let [day_tens, day_ones] = *bsd.get(4..6)? else { return None };
    let mut out = year.to_vec();
    out.extend(format!("-{month:02}-").bytes());
    out.extend([if day_tens == b' ' { b'0' } else { day_tens }, day_ones, b'T']);
    out.extend_from_slice(bsd.get(7..BSD_TIME)?);
    out.extend_from_slice(b"-00:00");
    Some(out)
}

/// Why a stream is not one of syslog messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FramingError {
    /// A message begins neither with its length nor with its priority.
    Start,
    /// A length that is none.
    Length,
    /// A message with more bytes than are read.
    TooLong,
}

impl std::fmt::Display for FramingError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            FramingError::Start => "a message begins neither with a length nor with a priority",
            FramingError::Length => "a message has no valid length",
            FramingError::TooLong => "a message is too long",
        })
    }
}

/// Finds the first message of a stream: its place in `input`, and the place of what follows it. `None` means that it is not
/// there as a whole. A message stands behind its length and a blank (RFC 6587, 3.4.1), or it begins with its priority and
/// ends with a line feed (3.4.2). `max` bounds what is read of a message, with its frame.
///
/// # Errors
///
/// If it can no longer become a message; what follows cannot be told from it.
pub fn frame(input: &[u8], max: usize) -> Result<Option<(Range<usize>, usize)>, FramingError> {
    match input.first() {
        None => Ok(None),
        Some(b'<') => match memchr::memchr(b'\n', &input[..input.len().min(max)]) {
            Some(end) => {
                let line = &input[..end];
                Ok(Some((0..line.strip_suffix(b"\r").unwrap_or(line).len(), end + 1)))
            }
            None if input.len() < max => Ok(None),
            None => Err(FramingError::TooLong),
        },
        Some(b'1'..=b'9') => {
            let digits = input.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let length = input[..digits]
                .iter()
                .fold(0usize, |length, digit| length.saturating_mul(10).saturating_add(usize::from(digit - b'0')));
            if length.saturating_add(digits + 1) > max {
                return Err(FramingError::TooLong);
            }
            match input.get(digits) {
                None => Ok(None),
                Some(b' ') => {
                    let end = digits + 1 + length;
                    Ok((input.len() >= end).then_some((digits + 1..end, end)))
                }
                Some(_) => Err(FramingError::Length),
            }
        }
        Some(_) => Err(FramingError::Start),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a header says, as `priority header time|host|tag|pid|id|structured|text`.
    fn read(message: &str) -> String {
        let found = SyslogMessage::parse(message.as_bytes());
        let shown = |part: Option<&[u8]>| part.map_or("".to_owned(), |part| String::from_utf8_lossy(part).into_owned());
        let parts =
            [found.time, found.host, found.tag, found.pid, found.message_id, found.structured, Some(found.text)];
        let priority = found.priority.map_or("-".into(), |priority| priority.to_string());
        format!("{priority} {:?} {}", found.header, parts.map(shown).join("|"))
    }

    #[test]
    fn headers_of_rfc_5424() {
        for (message, expected) in [
            ("<34>1 2003-10-11T22:14:15.003Z h su 7 ID47 - text", "34 Ietf 2003-10-11T22:14:15.003Z|h|su|7|ID47||text"),
            ("<34>1 - - - - - - text", "34 Ietf ||||||text"),
            ("<34>1 - - - - - -", "34 Ietf ||||||"),
            ("<34>1 - h a 5 - [a x=\"1\"][b y=\"2\"] t", "34 Ietf |h|a|5||[a x=\"1\"][b y=\"2\"]|t"),
            ("<34>1 - h a 5 - [a x=\"1\"]", "34 Ietf |h|a|5||[a x=\"1\"]|"),
            ("<34>1 - h a 5 - [a x=\"\\]\\\"\"] t", "34 Ietf |h|a|5||[a x=\"\\]\\\"\"]|t"),
            ("<34>1 2003-10-11T22:14:15+01:00 h a 5 - - t", "34 Ietf 2003-10-11T22:14:15+01:00|h|a|5|||t"),
            // Not as RFC 5424 has it: all of it is text.
            ("<34>1 2003-10-11T22:14:15 h a 5 - - t", "34 None ||||||1 2003-10-11T22:14:15 h a 5 - - t"),
            ("<34>1 - h a 5 - [a x=\"]\"] t", "34 None ||||||1 - h a 5 - [a x=\"]\"] t"),
            ("<34>1 - h a 5 - [a", "34 None ||||||1 - h a 5 - [a"),
            ("<34>1 - h a 5 - [a\\", "34 None ||||||1 - h a 5 - [a\\"),
            ("<34>1 - h a", "34 None ||||||1 - h a"),
            ("<34>2 - h a 5 - - t", "34 None ||||||2 - h a 5 - - t"),
        ] {
            assert_eq!(read(message), expected, "{message}");
        }
    }

    #[test]
    fn headers_of_rfc_3164() {
        for (message, expected) in [
            ("<34>Oct 11 22:14:15 h su[12]: text\n", "34 Bsd Oct 11 22:14:15|h|su|12|||text"),
            ("<34>Oct  1 22:14:15 h su: text", "34 Bsd Oct  1 22:14:15|h|su||||text"),
            ("<34>Oct 11 22:14:15 h text without: tag", "34 Bsd Oct 11 22:14:15|h|||||text without: tag"),
            ("<34>Oct 11 22:14:15 h su:text", "34 Bsd Oct 11 22:14:15|h|||||su:text"),
            ("<34>Oct 11 22:14:15 h su[]: text", "34 Bsd Oct 11 22:14:15|h|su||||text"),
            ("<34>Oct 11 22:14:15 h : text", "34 Bsd Oct 11 22:14:15|h|||||text"),
            ("<34>Oct 11 22:14:15 h [12]: text", "34 Bsd Oct 11 22:14:15|h|||||[12]: text"),
            ("<34>Oct 11 22:14:15 host ", "34 Bsd Oct 11 22:14:15|host|||||"),
            ("<34>Oct 11 22:14:15 host", "34 None ||||||Oct 11 22:14:15 host"),
            ("<34>oct 11 22:14:15 h su: text", "34 None ||||||oct 11 22:14:15 h su: text"),
            ("<34>Oct 1x 22:14:15 h su: text", "34 None ||||||Oct 1x 22:14:15 h su: text"),
        ] {
            assert_eq!(read(message), expected, "{message}");
        }
    }

    #[test]
    fn priorities() {
        for (message, expected) in [
            ("<0>x", "0 None ||||||x"),
            ("<034>x", "34 None ||||||x"),
            ("<>x", "0 None ||||||x"),
            ("<1234>x", "- None ||||||<1234>x"),
            ("<a>x", "- None ||||||<a>x"),
            ("<12", "- None ||||||<12"),
            ("Oct 11 22:14:15 h su: no priority", "- None ||||||Oct 11 22:14:15 h su: no priority"),
            ("", "- None ||||||"),
        ] {
            assert_eq!(read(message), expected, "{message}");
        }
    }

    #[test]
    fn times_change_their_form() {
        assert_eq!(bsd_time(b"2003-10-01T22:14:15.003Z").as_deref(), Some(&b"Oct  1 22:14:15"[..]));
        assert_eq!(bsd_time(b"2003-99-11T22:14:15Z"), None);
        assert_eq!(bsd_time(b"2003-00-11T22:14:15Z"), None);
        assert_eq!(ietf_time(b"Oct  1 22:14:15", b"2026").as_deref(), Some(&b"2026-10-01T22:14:15-00:00"[..]));
    }

    /// The messages of a stream that arrives in two parts.
    fn messages(first: &[u8], second: &[u8], max: usize) -> (Vec<String>, Option<FramingError>) {
        let (mut buffer, mut found) = (Vec::new(), Vec::new());
        for part in [first, second] {
            buffer.extend_from_slice(part);
            loop {
                match frame(&buffer, max) {
                    Ok(Some((place, end))) => {
                        found.push(String::from_utf8(buffer[place].to_vec()).unwrap());
                        buffer.drain(..end);
                    }
                    Ok(None) => break,
                    Err(error) => return (found, Some(error)),
                }
            }
            assert!(buffer.len() < max);
        }
        (found, None)
    }

    #[test]
    fn a_stream_is_cut_in_the_same_places_however_it_arrives() {
        let stream = b"<34>one\n9 <34>ab\ncd<34>two\r\n<34>\n7 <34>xyz";
        for at in 0..=stream.len() {
            let (found, error) = messages(&stream[..at], &stream[at..], 64);
            assert_eq!(
                (found, error),
                (["<34>one", "<34>ab\ncd", "<34>two", "<34>", "<34>xyz"].map(str::to_owned).to_vec(), None)
            );
        }
    }

    #[test]
    fn what_is_no_frame_ends_the_stream() {
        for (stream, expected) in [
            (&b"text\n"[..], FramingError::Start),
            (b"\n", FramingError::Start),
            (b"0 <34>x", FramingError::Start),
            (b"5 <34>abc\n", FramingError::Start),
            (b"10<34>", FramingError::Length),
            (b"99999999999999999999999999 ", FramingError::TooLong),
            (b"15 ", FramingError::TooLong),
            (b"<34>0123456789ab", FramingError::TooLong),
        ] {
            assert_eq!(messages(stream, b"", 16).1, Some(expected), "{}", stream.escape_ascii());
        }
        assert_eq!(messages(b"13 ", b"<34>456789abc", 16).0, ["<34>456789abc"]);
        assert_eq!(messages(b"<34>456789abcde\n", b"", 16).0, ["<34>456789abcde"]);
    }
}
