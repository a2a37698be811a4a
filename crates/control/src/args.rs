//! The arguments of a command, and its payload.

use penstock_config::bytes_of;
use std::{collections::VecDeque, str::FromStr};

/// Why a command is not carried out, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub String);

impl Refusal {
    /// A refusal with this sentence.
    pub fn new(sentence: impl Into<String>) -> Refusal {
        Refusal(sentence.into())
    }
}

/// The input of a command's parser.
#[derive(Debug, Default)]
pub struct Args {
    words: VecDeque<String>,
    payload: Option<Vec<u8>>,
}

impl Args {
    /// Arguments made of words, and of a payload if there is one.
    pub fn new(words: impl IntoIterator<Item = String>, payload: Option<Vec<u8>>) -> Args {
        Args { words: words.into_iter().collect(), payload }
    }

    /// The next word.
    pub fn word(&mut self) -> Option<String> {
        self.words.pop_front()
    }

    /// The next word as the bytes that the client sent, which need not be text.
    pub fn bytes(&mut self) -> Option<Vec<u8>> {
        self.word().map(|word| bytes_of(&word).into_owned())
    }

    /// The next word as the bytes that the client sent.
    ///
    /// # Errors
    ///
    /// `missing`, if there is none.
    pub fn require_bytes(&mut self, missing: &str) -> Result<Vec<u8>, Refusal> {
        self.bytes().ok_or_else(|| Refusal::new(missing))
    }

    /// The next word, which is not taken.
    pub fn peek(&self) -> Option<&str> {
        self.words.front().map(String::as_str)
    }

    /// The next word.
    ///
    /// # Errors
    ///
    /// `missing`, if there is none.
    pub fn require(&mut self, missing: &str) -> Result<String, Refusal> {
        self.word().ok_or_else(|| Refusal::new(missing))
    }

    /// Takes the next word if it equals `word`; returns whether it did.
    pub fn take(&mut self, word: &str) -> bool {
        let is_next = self.peek() == Some(word);
        if is_next {
            self.words.pop_front();
        }
        is_next
    }

    /// Takes this word wherever it is; returns whether it was there.
    pub fn take_anywhere(&mut self, word: &str) -> bool {
        let place = self.words.iter().position(|here| here == word);
        place.and_then(|place| self.words.remove(place)).is_some()
    }

    /// The next word as a number.
    ///
    /// # Errors
    ///
    /// `wrong`, if there is none or it is not a number.
    pub fn number<T: FromStr>(&mut self, wrong: &str) -> Result<T, Refusal> {
        self.word().and_then(|word| word.parse().ok()).ok_or_else(|| Refusal::new(wrong))
    }

    /// Takes all remaining words.
    pub fn rest(&mut self) -> Vec<String> {
        std::mem::take(&mut self.words).into()
    }

    /// Whether no word is left.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Takes the payload, whose lines are as they were sent.
    pub fn payload(&mut self) -> Option<Vec<u8>> {
        self.payload.take()
    }
}
