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
    /// `q`, escape, Ctrl-C or Ctrl-D.
    Quit,
    /// The space bar.
    Pause,
    /// Another key, or the terminal has another size: draw again.
    Other,
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

    /// A key, if one is pressed within `time`.
    pub fn key(&self, time: Duration) -> Option<Key> {
        let wait = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        let input = stdio::stdin();
        match poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&wait)) {
            Ok(0) => return None,
            Ok(_) => {}
            // The terminal has changed its size.
            Err(rustix::io::Errno::INTR) => return Some(Key::Other),
            Err(_) => return Some(Key::Quit),
        }
        let mut typed = [0; 16];
        Some(match rustix::io::read(input, &mut typed) {
            // The terminal is gone.
            Ok(0) | Err(_) => Key::Quit,
            Ok(count) => match typed[0] {
                b'q' | b'Q' | 3 | 4 => Key::Quit,
                // Escape by itself; with more behind it, it is an arrow or its like.
                0x1b if count == 1 => Key::Quit,
                b' ' => Key::Pause,
                _ => Key::Other,
            },
        })
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
