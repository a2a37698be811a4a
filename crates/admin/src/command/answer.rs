//! Answers: sentences and data, in pieces as they come to be.

use penstock_control::Severity;
use std::{
    future::poll_fn,
    task::{Context, Poll},
};
use tokio::sync::mpsc;

/// Part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A sentence about what was done.
    Say(Severity, String),
    /// Data.
    Data(Vec<u8>),
}

/// The answer to a command, whose pieces come one after the other.
#[expect(clippy::type_complexity, reason = "what makes the next piece stands here alone")]
pub struct Answer(Box<dyn FnMut(&mut Context<'_>) -> Poll<Option<Piece>>>);

/// How many pieces wait for a client that reads slowly.
const PIECES_AHEAD: usize = 4;

impl Answer {
    /// It was done, and there is nothing to say.
    pub fn nothing() -> Answer {
        Answer::pieces(std::iter::empty())
    }

    /// A sentence.
    pub fn say(severity: Severity, sentence: impl Into<String>) -> Answer {
        Answer::pieces(std::iter::once(Piece::Say(severity, sentence.into())))
    }

    /// It was not done, and why.
    pub fn error(sentence: impl Into<String>) -> Answer {
        Answer::say(Severity::Error, sentence)
    }

    /// It was done, and this is worth knowing.
    pub fn info(sentence: impl Into<String>) -> Answer {
        Answer::say(Severity::Info, sentence)
    }

    /// Data that is short.
    pub fn data(text: impl Into<Vec<u8>>) -> Answer {
        Answer::pieces(std::iter::once(Piece::Data(text.into())))
    }

    /// Pieces that are there when they are asked for.
    pub fn pieces(mut pieces: impl Iterator<Item = Piece> + 'static) -> Answer {
        Answer::poll(move |_| Poll::Ready(pieces.next()))
    }

    /// Lines of data, some at a time.
    pub fn lines(mut lines: impl Iterator<Item = String> + 'static) -> Answer {
        Answer::pieces(std::iter::from_fn(move || {
            let mut piece = String::new();
            while piece.len() < PIECE {
                match lines.next() {
                    Some(line) => piece.push_str(&line),
                    None => break,
                }
            }
            (!piece.is_empty()).then(|| Piece::Data(piece.into_bytes()))
        }))
    }

    /// Pieces that are waited for: `None` is the end.
    pub fn poll(next: impl FnMut(&mut Context<'_>) -> Poll<Option<Piece>> + 'static) -> Answer {
        Answer(Box::new(next))
    }

    /// The pieces that `work` gives out on a thread of its own. A client that leaves makes its next piece fail.
    pub fn beside(name: &str, work: impl FnOnce(&Pieces) + Send + 'static) -> Answer {
        let (sender, mut receiver) = mpsc::channel(PIECES_AHEAD);
        let thread = std::thread::Builder::new().name(name.into());
        match thread.spawn(move || work(&Pieces(sender))) {
            Ok(_) => Answer::poll(move |cx| receiver.poll_recv(cx)),
            Err(e) => Answer::error(format!("cannot start a thread: {e}")),
        }
    }

    /// The next piece, `None` after the last one.
    pub async fn next(&mut self) -> Option<Piece> {
        poll_fn(|cx| (self.0)(cx)).await
    }
}

/// About how long a piece of a long answer is.
const PIECE: usize = 8 << 10;

/// Where the work of [`Answer::beside`] gives its pieces.
pub struct Pieces(mpsc::Sender<Piece>);

impl Pieces {
    /// Gives a piece, and waits while the client has not read those before; false once it is gone.
    pub fn give(&self, piece: Piece) -> bool {
        self.0.blocking_send(piece).is_ok()
    }

    /// The same for a sentence.
    pub fn say(&self, severity: Severity, sentence: impl Into<String>) -> bool {
        self.give(Piece::Say(severity, sentence.into()))
    }
}
