//! Commands about certificates, crt-lists, authorities, OCSP responses and ticket keys.
//!
//! Parsing and checking keys, and rebuilding the tables for handshakes, happens on a thread of its own.

mod json;
mod responder;
mod text;

use super::{Answer, Executor, Piece, answer::Pieces};
use penstock_control::{Certificates, Level, Severity, TlsFile, Verb};
use penstock_proxy::certificates::{AuthorityKind, Store, StoreError};

impl Executor {
    pub(super) fn certificates(&self, command: Certificates, level: Level) -> Answer {
        let store = self.handle.certificates().clone();
        if matches!(command, Certificates::TicketKeys { which: Some(_), .. }) && level < Level::Admin {
            // HAProxy shows them to every client; but with them, recorded traffic can be decrypted.
            return Answer::error("Permission denied");
        }
        Answer::beside("certificates", move |pieces| match answer(&store, command, pieces) {
            Ok(()) => {}
            Err(sentence) => {
                pieces.say(Severity::Error, sentence);
            }
        })
    }
}

/// Carries out a command; an error is the sentence for the client.
fn answer(store: &Store, command: Certificates, pieces: &Pieces) -> Result<(), String> {
    use Certificates as C;
    let data = |text: String| {
        pieces.give(Piece::Data(text.into_bytes()));
        Ok(())
    };
    match command {
        C::List { kind: TlsFile::Certificate, json } => {
            let files = store.certificates();
            data(if json { json::certificates(&files) } else { text::certificates(&files) })
        }
        C::List { kind, json } => {
            let (transaction, files) = store.authorities(authority(kind));
            data(match json {
                true => json::authorities(transaction.as_ref(), &files),
                false => text::authorities(kind, transaction.as_ref(), &files),
            })
        }
        C::Show { kind: TlsFile::Certificate, file, json } => match store.certificate(&file) {
            Ok(view) => data(if json { json::certificate(&view) } else { text::certificate(&view) }),
            Err(unknown) => {
                // The response of a certificate, named like its file.
                let certificate = file.strip_suffix(".ocsp").filter(|name| store.certificate(name).is_ok());
                let Some(certificate) = certificate else { return Err(unknown.to_string()) };
                match store.response(certificate) {
                    Ok(view) => data(if json { json::response(&view) } else { text::response(&view) }),
                    Err(_) => Ok(()),
                }
            }
        },
        C::Show { kind, file, json } => {
            let view = store.authority(authority(kind), &file).map_err(sentence)?;
            data(if json { json::authority(&view) } else { text::authority(&view) })
        }
        C::Change { kind: TlsFile::Certificate, file, verb } => change_certificate(store, &file, verb, pieces),
        C::Change { kind, file, verb } => change_authority(store, kind, &file, verb, pieces),
        C::Dump(file) => {
            let dump = store.dump_certificate(&file).map_err(sentence)?;
            data(dump.to_string())
        }
        C::Lists { json } => {
            let names = store.crt_lists();
            data(if json { json::names(&names) } else { text::lines(&names) })
        }
        C::ShowList { list, numbered, json } => {
            let entries = store.crt_list(&list).map_err(sentence)?;
            data(if json { json::crt_list(&entries) } else { text::crt_list(&list, numbered, &entries) })
        }
        C::AddLine { list, line } => {
            let (certificate, instances) = store.add_to_crt_list(&list, &line).map_err(sentence)?;
            let dots = ".".repeat(instances);
            data(format!("Inserting certificate '{certificate}' in crt-list '{list}'{dots}\nSuccess!\n"))
        }
        C::RemoveLine { list, certificate, line } => {
            store.remove_from_crt_list(&list, &certificate, line).map_err(sentence)?;
            said(pieces, format!("Entry '{certificate}' deleted in crtlist '{list}'!"))
        }
        C::Names { frontend, expired, json } => {
            let mut names = store.names(frontend.as_deref());
            names.retain(|name| !expired || name.expired);
            data(if json { json::names_of_frontends(&names) } else { text::names(&names) })
        }
        C::Providers { json: true } => data(json::names(&[PROVIDER.to_owned()])),
        C::Providers { json: false } => data(format!("Loaded providers : \n\t- {PROVIDER}\n")),
        C::Responses { json } => {
            let views = store.responses();
            data(if json { json::responses(&views) } else { text::responses(&views) })
        }
        C::Response { which, base64, json } => {
            let view = store.response(&which).map_err(sentence)?;
            data(match (json, base64) {
                (true, _) => json::response(&view),
                (_, true) => text::base64(&view.der),
                _ => text::response(&view),
            })
        }
        C::SetResponse(response) => {
            store.set_response(&response).map_err(sentence)?;
            pieces.say(Severity::Info, "OCSP Response updated!");
            Ok(())
        }
        C::Updates { json: true } => data(json::names(&[])),
        C::Updates { json: false } => data(text::UPDATES.to_owned()),
        C::UpdateResponse(file) => {
            let (url, question) = store.ocsp_question(&file).map_err(sentence)?;
            let response = responder::ask(&url, &question)?;
            store.staple(&response).map_err(sentence)?;
            let view = store.response(&file).map_err(sentence)?;
            data(text::response(&view))
        }
        C::TicketKeys { which, json } => {
            let mut files = store.ticket_keys();
            let named = which.as_deref().filter(|which| *which != "*");
            let id = named.and_then(|which| which.strip_prefix('#')?.parse().ok());
            files.retain(|file| named.is_none_or(|which| which == file.file || id == Some(file.id)));
            if files.is_empty() && named.is_some() {
                return Err("'show tls-keys' unable to locate referenced filename".into());
            }
            let secret = which.is_some();
            data(if json { json::ticket_keys(&files, secret) } else { text::ticket_keys(&files, secret) })
        }
        C::AddTicketKey { which, key } => {
            store.add_ticket_key(&which, &key).map_err(sentence)?;
            pieces.say(Severity::Info, "TLS ticket key updated!");
            Ok(())
        }
    }
}

/// The answer to `show ssl providers`: there is no OpenSSL here.
const PROVIDER: &str = "aws-lc";

fn change_certificate(store: &Store, file: &str, verb: Verb, pieces: &Pieces) -> Result<(), String> {
    match verb {
        Verb::New => {
            store.new_certificate(file).map_err(sentence)?;
            said(pieces, format!("New empty certificate store '{file}'!"))
        }
        Verb::Set(payload) | Verb::Add(payload) => {
            let set = store.set_certificate(file, &payload).map_err(|e| format!("{e}\nCan't update {file}!"))?;
            let (certificate, new) = set;
            said(pieces, format!("Transaction {} for certificate {certificate}!", created(new)))
        }
        Verb::Commit => {
            let instances = store.commit_certificate(file).map_err(|e| format!("{e}\nCan't commit {file}!"))?;
            committed(pieces, file, instances)
        }
        Verb::Abort => {
            store.abort_certificate(file).map_err(sentence)?;
            said(pieces, format!("Transaction aborted for certificate '{file}'!"))
        }
        Verb::Delete => {
            store.delete_certificate(file).map_err(sentence)?;
            said(pieces, format!("Certificate '{file}' deleted!"))
        }
    }
}

fn change_authority(store: &Store, file_kind: TlsFile, file: &str, verb: Verb, pieces: &Pieces) -> Result<(), String> {
    let kind = authority(file_kind);
    let word = kind.word();
    let set = |payload: &str, add: bool| {
        let set = store.set_authority(kind, file, payload, add);
        let new = set.map_err(|e| format!("{e}\nCan't update {file}!"))?;
        said(pieces, format!("transaction {} for {word} {file}!", created(new)))
    };
    match verb {
        Verb::New => {
            store.new_authority(kind, file).map_err(sentence)?;
            said(pieces, format!("New {word} file created '{file}'!"))
        }
        Verb::Set(payload) => set(&payload, false),
        Verb::Add(payload) => set(&payload, true),
        Verb::Commit => {
            let instances = store.commit_authority(kind, file).map_err(|e| format!("{e}\nCan't commit {file}!"))?;
            committed(pieces, file, instances)
        }
        Verb::Abort => {
            store.abort_authority(kind, file).map_err(sentence)?;
            // HAProxy uses the same word for all kinds.
            said(pieces, format!("Transaction aborted for certificate '{file}'!"))
        }
        Verb::Delete => {
            store.delete_authority(kind, file).map_err(sentence)?;
            said(pieces, format!("{word} file '{file}' deleted!"))
        }
    }
}

fn said(pieces: &Pieces, sentence: String) -> Result<(), String> {
    pieces.say(Severity::Notice, sentence);
    Ok(())
}

/// HAProxy writes a dot for each place where the file is used.
fn committed(pieces: &Pieces, file: &str, instances: usize) -> Result<(), String> {
    let dots = ".".repeat(instances);
    pieces.give(Piece::Data(format!("Committing {file}{dots}\nSuccess!\n").into_bytes()));
    Ok(())
}

fn created(new: bool) -> &'static str {
    if new { "created" } else { "updated" }
}

fn sentence(error: StoreError) -> String {
    error.to_string()
}

fn authority(kind: TlsFile) -> AuthorityKind {
    match kind {
        TlsFile::Crl => AuthorityKind::Crl,
        // Certificates have functions of their own.
        TlsFile::Ca | TlsFile::Certificate => AuthorityKind::Ca,
    }
}
