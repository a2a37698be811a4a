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
    /// An OCSP response, by its key.
    Response(String),
    /// A file of ticket keys.
    TicketKeys(String),
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
        self.json().to_string()
    }

    /// The lines of changes that have to be made together: the first says how many follow, so that a part is not taken for all.
    pub fn lines(together: &[Event]) -> String {
        let mut text = String::new();
        for (at, event) in together.iter().enumerate() {
            let mut object = event.json();
            if at == 0 && together.len() > 1 {
                object["more"] = json!(together.len() - 1);
            }
            text.push_str(&object.to_string());
            text.push('\n');
        }
        text
    }

    fn json(&self) -> Json {
        let mut object = json!({ "words": self.given.words });
        if let Some(payload) = &self.given.payload {
            object["payload"] = json!(text_of(payload));
        }
        if let Some((file, digest)) = &self.file {
            object["file"] = json!(file);
            object["sha256"] = json!(digest);
        }
        object
    }

    /// Parses a line; `None` if it is none of these. Also returns how many of the next lines belong to it.
    pub fn parse(line: &str) -> Option<(Event, usize)> {
        let object: Json = serde_json::from_str(line).ok()?;
        let text = |value: &Json| value.as_str().map(str::to_owned);
        let words = object["words"].as_array()?.iter().map(text).collect::<Option<Vec<_>>>()?;
        let payload = text(&object["payload"]).map(|text| bytes_of(&text).into_owned());
        let file = text(&object["file"]).map(|file| (file, text(&object["sha256"])));
        let more = object["more"].as_u64().unwrap_or(0);
        Some((Event { given: Given { words, payload }, file }, usize::try_from(more).unwrap_or(usize::MAX)))
    }
}
