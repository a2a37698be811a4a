//! Answers to commands: sentences and data, in pieces as they become available.

use penstock_control::Severity;
use std::{
    future::poll_fn,
    task::{Context, Poll},
};
use tokio::sync::mpsc;

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A sentence about the command's result.
    Say(Severity, String),
    /// Data.
    Data(Vec<u8>),
}

/// The answer to a command, which yields one piece after another.
#[expect(clippy::type_complexity, reason = "what makes the next piece stands here alone")]
pub struct Answer(Box<dyn FnMut(&mut Context<'_>) -> Poll<Option<Piece>>>);

/// How many pieces may wait for a client that reads slowly.
const PIECES_AHEAD: usize = 4;

impl Answer {
    /// The command was carried out, and there is nothing to report.
    pub fn nothing() -> Answer {
        Answer::pieces(std::iter::empty())
    }

    /// A sentence.
    pub fn say(severity: Severity, sentence: impl Into<String>) -> Answer {
        Answer::pieces(std::iter::once(Piece::Say(severity, sentence.into())))
    }

    /// The command was refused, for this reason.
    pub fn error(sentence: impl Into<String>) -> Answer {
        Answer::say(Severity::Error, sentence)
    }

    /// The command was carried out, with this remark.
    pub fn info(sentence: impl Into<String>) -> Answer {
        Answer::say(Severity::Info, sentence)
    }

    /// A short piece of data.
    pub fn data(text: impl Into<Vec<u8>>) -> Answer {
        Answer::pieces(std::iter::once(Piece::Data(text.into())))
    }

    /// Pieces that are available at once.
    pub fn pieces(mut pieces: impl Iterator<Item = Piece> + 'static) -> Answer {
        Answer::poll(move |_| Poll::Ready(pieces.next()))
    }

    /// Lines of data, several per piece.
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

    /// Pieces that may have to be waited for; `None` is the end.
    pub fn poll(next: impl FnMut(&mut Context<'_>) -> Poll<Option<Piece>> + 'static) -> Answer {
        Answer(Box::new(next))
    }

    /// The pieces that `work` produces on a thread of its own. If the client leaves, giving the next piece fails.
    pub fn beside(name: &str, work: impl FnOnce(&Pieces) + Send + 'static) -> Answer {
        let (sender, mut receiver) = mpsc::channel(PIECES_AHEAD);
        let thread = std::thread::Builder::new().name(name.into());
        match thread.spawn(move || work(&Pieces(sender))) {
            Ok(_) => Answer::poll(move |cx| receiver.poll_recv(cx)),
            Err(e) => Answer::error(format!("cannot start a thread: {e}")),
        }
    }

    /// The next piece; `None` after the last one.
    pub async fn next(&mut self) -> Option<Piece> {
        poll_fn(|cx| (self.0)(cx)).await
    }
}

/// Approximate length of a piece of a long answer.
const PIECE: usize = 8 << 10;

/// The receiver of the pieces of [`Answer::beside`].
pub struct Pieces(mpsc::Sender<Piece>);

impl Pieces {
    /// Passes on a piece, waiting while the client has not read the previous ones; returns false once the client is
    /// gone.
    pub fn give(&self, piece: Piece) -> bool {
        self.0.blocking_send(piece).is_ok()
    }

    /// Passes on a sentence; see [`Pieces::give`].
    pub fn say(&self, severity: Severity, sentence: impl Into<String>) -> bool {
        self.give(Piece::Say(severity, sentence.into()))
    }
}
