//! Commands to the double: words and a number on each line of the file `commands` beside the library.

use std::time::Duration;

/// Declares [`Commands`] and how a line sets each.
macro_rules! commands {
    ($($(#[doc = $text:literal])+ $field:ident = $default:literal;)*) => {
        /// Everything it can be told. A number of "next" ones is counted down as they come.
        #[derive(Clone, Debug)]
        pub struct Commands { $($(#[doc = $text])+ pub $field: u64,)* }

        impl Default for Commands {
            fn default() -> Self {
                Commands { $($field: $default,)* }
            }
        }

        impl Commands {
            fn set(&mut self, word: &str, value: u64) {
                match word {
                    $(stringify!($field) => self.$field = value,)*
                    _ => eprintln!("the device double knows no command '{word}'"),
                }
            }
        }
    };
}

commands! {
    /// Whether there is a device.
    available = 1;
    /// Whether the library starts.
    starts = 1;
    /// Instances for crypto.
    instances = 2;
    /// The first process to start it has all instances, until it stops it.
    exclusive = 0;
    /// Instances for compression.
    compression = 1;
    /// NUMA nodes that instances are spread over.
    nodes = 1;
    /// Requests that a ring holds.
    ring = 64;
    /// Requests that an instance works on at once.
    engines = 4;
    /// What an RSA-2048 operation takes, µs; the others in proportion.
    service_us = 0;
    /// Whether it can do each kind.
    rsa = 1;
    /// As above.
    ecdsa = 1;
    /// As above.
    ecdh = 1;
    /// As above.
    x25519 = 1;
    /// Structures have another layout.
    layout = 0;
    /// Memory cannot be pinned.
    unpinnable = 0;
    /// The next answers have a wrong byte.
    wrong = 0;
    /// The next requests are never answered.
    silent = 0;
    /// The next requests are answered this late, instead of when they are done...
    late = 0;
    /// ... in ms.
    late_ms = 0;
    /// The next requests are answered with an error.
    fail = 0;
    /// The next submissions find the ring full.
    retry = 0;
    /// Compression has structures of another layout.
    deflate_layout = 0;
    /// Buffers of its own that each instance for compression is to be given.
    deflate_buffers = 0;
    /// The next pieces have a wrong byte in the middle.
    deflate_wrong = 0;
    /// The next pieces are said to be shorter than they are.
    deflate_short = 0;
    /// The next pieces find no room for their output.
    deflate_overflow = 0;
    /// The next pieces end in the middle of a byte, without a flush.
    deflate_unaligned = 0;
    /// The next pieces are answered with an error.
    deflate_fail = 0;
    /// The next submissions of pieces find the ring full.
    deflate_retry = 0;
    /// The next pieces are never answered.
    deflate_silent = 0;
    /// The next pieces are answered late, by `late_ms`.
    deflate_late = 0;
    /// 1: instances are being reset; 2: and have come back. Told once each, when events are polled.
    restart = 0;
    /// The device is lost: nothing is taken, nothing is answered.
    dead = 0;
}

/// How long kinds of operations take, relative to RSA-2048 in percent. A model: of no device in particular.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes of the modulus.
    Rsa(usize),
    Ecdsa,
    Multiply,
    X25519,
    /// Bytes of the piece.
    Deflate(usize),
}

impl Commands {
    /// Reads the file's text.
    pub fn parse(text: &str) -> Commands {
        let mut commands = Commands::default();
        for line in text.lines() {
            if let Some((word, value)) = line.trim().split_once(' ') {
                commands.set(word, value.trim().parse().unwrap_or(1));
            }
        }
        commands
    }

    /// How long an operation takes.
    pub fn service(&self, kind: Kind) -> Duration {
        if let Kind::Deflate(bytes) = kind {
            return Duration::from_micros(self.service_us * bytes as u64 / 65536);
        }
        let percent = match kind {
            Kind::Rsa(..=256) => 100,
            Kind::Rsa(..=384) => 300,
            Kind::Rsa(_) => 500,
            Kind::Ecdsa | Kind::Multiply => 40,
            Kind::X25519 => 20,
            Kind::Deflate(_) => 0,
        };
        Duration::from_micros(self.service_us * percent / 100)
    }
}

/// Uses up one of the next operations that a command applies to.
pub fn take(count: &mut u64) -> bool {
    let any = *count > 0;
    *count -= u64::from(any);
    any
}
