//! The terminal: uses the alternate screen, reads single keys, and restores everything at the end.

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    stdio,
    termios::{LocalModes, OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr},
};
use std::{
    io::{self, Write},
    time::Duration,
};

/// A key that was pressed, or another event of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A character.
    Char(char),
    /// The escape key by itself.
    Escape,
    /// The return key.
    Enter,
    /// The backspace key.
    Backspace,
    /// Arrow up.
    Up,
    /// Arrow down.
    Down,
    /// Arrow left.
    Left,
    /// Arrow right.
    Right,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
    /// Ctrl-C or Ctrl-D, or the terminal has gone away.
    Interrupt,
    /// The terminal has been resized and must be redrawn.
    Resized,
    /// Any other key.
    Unknown,
}

impl Key {
    /// Parses the bytes that a terminal has sent; an incomplete key is unknown.
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
        // Digits and semicolons, then the byte that ends the sequence.
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

/// A terminal in use, which is restored when this is dropped.
pub struct Screen {
    before: Termios,
}

impl Screen {
    /// Switches the terminal to the alternate screen and to single keys.
    ///
    /// # Errors
    /// A sentence for the user, if standard input and output are not a terminal.
    pub fn open() -> Result<Screen, String> {
        let (input, output) = (stdio::stdin(), stdio::stdout());
        if !isatty(input) || !isatty(output) {
            return Err("needs a terminal; '--once' prints one view to anywhere".into());
        }
        let before = tcgetattr(input).map_err(|e| format!("the terminal cannot be read: {e}"))?;
        let mut raw = before.clone();
        // Keys arrive one by one and are not echoed; Ctrl-C is an ordinary key, so that the terminal can be restored.
        raw.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        tcsetattr(input, OptionalActions::Now, &raw).map_err(|e| format!("the terminal cannot be set: {e}"))?;
        let screen = Screen { before };
        // Show the alternate screen, hide the cursor.
        put("\x1b[?1049h\x1b[?25l");
        Ok(screen)
    }

    /// The size of the terminal: columns and lines.
    pub fn size(&self) -> (usize, usize) {
        match tcgetwinsize(stdio::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
            _ => (80, 24),
        }
    }

    /// Shows these lines from the top, replacing everything shown before.
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

    /// Waits up to `time` for keys and returns those that were pressed.
    pub fn keys(&self, time: Duration) -> Vec<Key> {
        let wait = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        let input = stdio::stdin();
        match poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&wait)) {
            Ok(0) => return Vec::new(),
            Ok(_) => {}
            // The terminal has been resized.
            Err(rustix::io::Errno::INTR) => return vec![Key::Resized],
            Err(_) => return vec![Key::Interrupt],
        }
        let mut typed = [0; 64];
        match rustix::io::read(input, &mut typed) {
            // The terminal has gone away.
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
    // If the terminal has gone away, the next attempt to read a key notices it.
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
        // Parsing ends, whatever the input.
        for broken in [&b"\x1b["[..], b"\xe2\x82", b"\xff\xff", b"\x1b[12;", b"\0"] {
            assert!(Key::parse(broken).iter().all(|key| *key == Key::Unknown), "{broken:?}");
        }
    }
}
