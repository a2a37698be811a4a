//! Answers to commands: sentences and data, in pieces as they become available.

use penstock_control::Severity;
use std::{
    future::poll_fn,
    task::{Context, Poll},
};
use tokio::sync::{mpsc, oneshot};

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A sentence about the command's result.
    Say(Severity, String),
    /// Data.
    Data(Vec<u8>),
}

/// The answer to a command, which yields one piece after another.
pub struct Answer(Source);

/// The source of an answer's pieces.
#[expect(clippy::type_complexity, reason = "it stands here alone")]
enum Source {
    Here(Box<dyn FnMut(&mut Context<'_>) -> Poll<Option<Piece>>>),
    /// A thread of its own. The second channel closes when it has ended.
    Beside(mpsc::Receiver<Piece>, oneshot::Receiver<()>),
}

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

    /// Pieces that may not be available yet; `next` is polled for each, and gives `None` at the end.
    pub fn poll(next: impl FnMut(&mut Context<'_>) -> Poll<Option<Piece>> + 'static) -> Answer {
        Answer(Source::Here(Box::new(next)))
    }

    /// The pieces that `work` produces on a thread of its own. Once the client is gone, [`Pieces::give`] returns false.
    pub fn beside(name: &str, work: impl FnOnce(&Pieces) + Send + 'static) -> Answer {
        let ((sender, receiver), (ends, ended)) = (mpsc::channel(PIECES_AHEAD), oneshot::channel());
        let thread = std::thread::Builder::new().name(name.into());
        let spawned = thread.spawn(move || {
            let _ends: oneshot::Sender<()> = ends;
            work(&Pieces(sender));
        });
        match spawned {
            Ok(_) => Answer(Source::Beside(receiver, ended)),
            Err(e) => Answer::error(format!("cannot start a thread: {e}")),
        }
    }

    /// The next piece; `None` after the last one.
    pub async fn next(&mut self) -> Option<Piece> {
        match &mut self.0 {
            Source::Here(next) => poll_fn(next).await,
            Source::Beside(receiver, _) => receiver.recv().await,
        }
    }

    /// Discards the rest, and waits until the thread that produces it, if any, has ended.
    pub async fn end(self) {
        if let Source::Beside(receiver, ended) = self.0 {
            drop(receiver);
            let _ = ended.await;
        }
    }
}

/// Approximate length of a piece of a long answer.
pub(super) const PIECE: usize = 8 << 10;

/// The receiver of the pieces of [`Answer::beside`].
pub struct Pieces(mpsc::Sender<Piece>);

impl Pieces {
    /// Passes on a piece, waiting while the client has not read the previous ones; returns false once the client is
    /// gone.
    pub fn give(&self, piece: Piece) -> bool {
        self.0.blocking_send(piece).is_ok()
    }

    /// Whether the client is gone.
    pub fn are_unwanted(&self) -> bool {
        self.0.is_closed()
    }

    /// Passes on a sentence; see [`Pieces::give`].
    pub fn say(&self, severity: Severity, sentence: impl Into<String>) -> bool {
        self.give(Piece::Say(severity, sentence.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    };

    #[tokio::test]
    async fn work_beside_has_ended_when_nobody_wants_more() {
        let given = Arc::new(AtomicU64::new(0));
        let seen = given.clone();
        let mut answer = Answer::beside("test", move |pieces| {
            while pieces.give(Piece::Data(Vec::new())) {
                seen.fetch_add(1, Ordering::Relaxed);
            }
            seen.store(u64::MAX, Ordering::Relaxed);
        });
        assert_eq!(answer.next().await, Some(Piece::Data(Vec::new())));
        assert_ne!(given.load(Ordering::Relaxed), u64::MAX, "it works for as long as somebody wants more");
        answer.end().await;
        assert_eq!(given.load(Ordering::Relaxed), u64::MAX);
    }
}
