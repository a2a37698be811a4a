//! The terminal: its other screen, keys one by one, everything put back at the end.

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    stdio,
    termios::{LocalModes, OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr},
};
use std::{
    io::{self, Write},
    time::Duration,
};

/// What was typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A character.
    Char(char),
    /// Escape by itself.
    Escape,
    /// The return key.
    Enter,
    /// The key that takes a character back.
    Backspace,
    /// An arrow.
    Up,
    /// An arrow.
    Down,
    /// An arrow.
    Left,
    /// An arrow.
    Right,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
    /// Ctrl-C, Ctrl-D, or the terminal is gone.
    Interrupt,
    /// The terminal has another size: draw again.
    Resized,
    /// Any other key.
    Unknown,
}

impl Key {
    /// The keys in what a terminal has sent; a key that is cut in two is unknown.
    pub fn parse(mut typed: &[u8]) -> Vec<Key> {
        let mut keys = Vec::new();
        while let Some(first) = typed.first() {
            let (key, length) = match first {
                0x1b => Key::escape(typed),
                3 | 4 => (Key::Interrupt, 1),
                b'\r' | b'\n' => (Key::Enter, 1),
                8 | 0x7f => (Key::Backspace, 1),
                0..0x20 => (Key::Unknown, 1),
                _ => Key::character(typed),
            };
            keys.push(key);
            typed = &typed[length..];
        }
        keys
    }

    fn escape(typed: &[u8]) -> (Key, usize) {
        let Some(b'[' | b'O') = typed.get(1) else { return (Key::Escape, 1) };
        // Digits and semicolons, then what ends the sequence.
        let end = typed[2..].iter().position(|byte| (0x40..=0x7e).contains(byte)).map_or(typed.len(), |at| at + 3);
        let key = match &typed[2..end] {
            b"A" => Key::Up,
            b"B" => Key::Down,
            b"C" => Key::Right,
            b"D" => Key::Left,
            b"5~" => Key::PageUp,
            b"6~" => Key::PageDown,
            _ => Key::Unknown,
        };
        (key, end)
    }

    fn character(typed: &[u8]) -> (Key, usize) {
        let length = match typed[0] {
            0..0x80 => 1,
            0x80..0xe0 => 2,
            0xe0..0xf0 => 3,
            _ => 4,
        };
        let bytes = typed.get(..length).and_then(|bytes| std::str::from_utf8(bytes).ok());
        match bytes.and_then(|text| text.chars().next()) {
            Some(c) => (Key::Char(c), length),
            None => (Key::Unknown, 1),
        }
    }
}

/// A terminal that is drawn on, restored when this is dropped.
pub struct Screen {
    before: Termios,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// A sentence: standard input and output are no terminal.
    pub fn open() -> Result<Screen, String> {
        let (input, output) = (stdio::stdin(), stdio::stdout());
        if !isatty(input) || !isatty(output) {
            return Err("needs a terminal; '--once' prints one view to anywhere".into());
        }
        let before = tcgetattr(input).map_err(|e| format!("the terminal cannot be read: {e}"))?;
        let mut raw = before.clone();
        // Keys come one by one and are not shown; Ctrl-C is a key like the others, so that the terminal is put back.
        raw.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        tcsetattr(input, OptionalActions::Now, &raw).map_err(|e| format!("the terminal cannot be set: {e}"))?;
        let screen = Screen { before };
        // The other screen, without a cursor.
        put("\x1b[?1049h\x1b[?25l");
        Ok(screen)
    }

    /// Columns and lines.
    pub fn size(&self) -> (usize, usize) {
        match tcgetwinsize(stdio::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
            _ => (80, 24),
        }
    }

    /// Shows lines from the top; what was there before goes.
    pub fn draw(&self, lines: &[String]) {
        let mut page = String::from("\x1b[H");
        for (number, line) in lines.iter().enumerate() {
            if number > 0 {
                page.push_str("\r\n");
            }
            page.push_str(line);
            page.push_str("\x1b[K");
        }
        page.push_str("\x1b[J");
        put(&page);
    }

    /// The keys that are pressed within `time`; none if none is.
    pub fn keys(&self, time: Duration) -> Vec<Key> {
        let wait = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        let input = stdio::stdin();
        match poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&wait)) {
            Ok(0) => return Vec::new(),
            Ok(_) => {}
            // The terminal has changed its size.
            Err(rustix::io::Errno::INTR) => return vec![Key::Resized],
            Err(_) => return vec![Key::Interrupt],
        }
        let mut typed = [0; 64];
        match rustix::io::read(input, &mut typed) {
            // The terminal is gone.
            Ok(0) | Err(_) => vec![Key::Interrupt],
            Ok(count) => Key::parse(&typed[..count]),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        put("\x1b[?25h\x1b[?1049l");
        // A failure cannot be reported any more.
        let _ = tcsetattr(stdio::stdin(), OptionalActions::Now, &self.before);
    }
}

fn put(text: &str) {
    let mut out = io::stdout().lock();
    // A terminal that is gone is noticed by the next key.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_from_the_bytes_of_a_terminal() {
        let typed = b"s\x1b[A\x1bOB\x1b[5~\x1b[1;5C\r\x7f\xc3\xa9\x03";
        let keys = [Key::Char('s'), Key::Up, Key::Down, Key::PageUp, Key::Unknown, Key::Enter, Key::Backspace];
        assert_eq!(Key::parse(typed)[..7], keys);
        assert_eq!(Key::parse(typed)[7..], [Key::Char('é'), Key::Interrupt]);
        assert_eq!(Key::parse(b"\x1b"), [Key::Escape]);
        // Whatever it is, it ends.
        for broken in [&b"\x1b["[..], b"\xe2\x82", b"\xff\xff", b"\x1b[12;", b"\0"] {
            assert!(Key::parse(broken).iter().all(|key| *key == Key::Unknown), "{broken:?}");
        }
    }
}
