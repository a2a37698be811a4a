//! A line of the file, and what it is about.

use super::{FilesRead, Given};
use aws_lc_rs::digest;
use penstock_config::{bytes_of, text_of};
use serde_json::{Value as Json, json};

/// The digest of a file: SHA-256, in hexadecimal digits.
pub fn digest_of(bytes: &[u8]) -> String {
    let digest = digest::digest(&digest::SHA256, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What changes are about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    /// A file of TLS, with its kind.
    Tls(&'static str, String),
    /// A crt-list.
    List(String),
    /// A map or an ACL.
    Patterns(String),
    /// A server, as `backend/server`.
    Server(String),
}

/// A change that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The command.
    pub given: Given,
    /// The file that it is about, and the digest of what the process had read there; no digest if it had read no such file.
    pub file: Option<(String, Option<String>)>,
}

impl Event {
    pub(super) fn of_file(given: Given, file: &str, files: &FilesRead<'_>) -> Event {
        Event { given, file: Some((file.to_owned(), (files.digest)(file))) }
    }

    /// The line, without its end.
    pub fn line(&self) -> String {
        let mut object = json!({ "words": self.given.words });
        if let Some(payload) = &self.given.payload {
            object["payload"] = json!(text_of(payload));
        }
        if let Some((file, digest)) = &self.file {
            object["file"] = json!(file);
            object["sha256"] = json!(digest);
        }
        object.to_string()
    }

    /// Parses a line; `None` if it is none of these.
    pub fn parse(line: &str) -> Option<Event> {
        let object: Json = serde_json::from_str(line).ok()?;
        let text = |value: &Json| value.as_str().map(str::to_owned);
        let words = object["words"].as_array()?.iter().map(text).collect::<Option<Vec<_>>>()?;
        let payload = text(&object["payload"]).map(|text| bytes_of(&text).into_owned());
        let file = text(&object["file"]).map(|file| (file, text(&object["sha256"])));
        Some(Event { given: Given { words, payload }, file })
    }
}
