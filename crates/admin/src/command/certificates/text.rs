//! The answers in HAProxy's text formats.

use base64::Engine as _;
use penstock_control::TlsFile;
use penstock_proxy::certificates::{
    AuthorityFile, AuthorityView, CertificateFile, CertificateView, Described, ListedEntry, NameView, ResponseView,
    Status, TicketKeysView,
};
use std::fmt::Write as _;

/// `show ssl ocsp-updates`: no response is updated automatically.
pub(super) const UPDATES: &str = "OCSP Certid | Path | Next Update | Last Update | Successes | Failures | Last Update Status | Last Update Status (str)\n";

pub(super) fn lines(names: &[String]) -> String {
    names.iter().map(|name| format!("{name}\n")).collect()
}

pub(super) fn certificates(files: &CertificateFile) -> String {
    let transaction = files.transaction.iter().map(|name| format!("# transaction\n*{name}\n"));
    transaction.chain(["# filename\n".to_owned(), lines(&files.names)]).collect()
}

pub(super) fn authorities(kind: TlsFile, transaction: Option<&AuthorityFile>, files: &[AuthorityFile]) -> String {
    let line = |file: &AuthorityFile| match kind {
        TlsFile::Ca => format!("{} - {} certificate(s)\n", file.name, file.count),
        _ => format!("{}\n", file.name),
    };
    let transaction = transaction.map(|file| format!("# transaction\n{}", line(file)));
    transaction.into_iter().chain(["# filename\n".to_owned()]).chain(files.iter().map(line)).collect()
}

pub(super) fn certificate(view: &CertificateView) -> String {
    let mut text = format!("Filename: {}\nStatus: {}\n", view.name, view.status.word());
    if let Some((leaf, above)) = view.chain.split_first() {
        described(&mut text, leaf);
        for issuer in above {
            let _ = write!(text, "Chain Subject: {}\nChain Issuer: {}\n", issuer.subject, issuer.issuer);
        }
    }
    let _ = writeln!(text, "OCSP Response Key: {}", view.ocsp_key);
    text
}

fn described(text: &mut String, one: &Described) {
    let names = one.alternative_names.join(", ");
    let _ = write!(
        text,
        "Serial: {}\nnotBefore: {}\nnotAfter: {}\nSubject Alternative Name: {names}\nAlgorithm: {}\nSHA1 FingerPrint: \
         {}\nSubject: {}\nIssuer: {}\n",
        one.serial, one.not_before, one.not_after, one.algorithm, one.fingerprint, one.subject, one.issuer
    );
}

pub(super) fn authority(view: &AuthorityView) -> String {
    let head = format!("Filename: {}\nStatus: {}\n", view.name, view.status.word());
    let mut text = head.clone();
    for (number, one) in &view.certificates {
        // A space keeps this empty line from ending the answer.
        let _ = write!(text, " \nCertificate #{number}:\n");
        described(&mut text, one);
    }
    for (number, list) in &view.lists {
        let _ = write!(
            text,
            " \nCertificate Revocation List #{number}:\nVersion {}\nSignature Algorithm: {}\nIssuer: {}\nLast Update: {}\n",
            list.version, list.signature_algorithm, list.issuer, list.last_update
        );
        if let Some(next) = &list.next_update {
            let _ = writeln!(text, "Next Update: {next}");
        }
        text.push_str(if list.revoked.is_empty() { "No Revoked Certificates.\n" } else { "Revoked Certificates:\n" });
        for (serial, since) in &list.revoked {
            let _ = write!(text, "    Serial Number: {serial}\n        Revocation Date: {since}\n");
        }
    }
    // HAProxy shows nothing if the number is too high.
    if text == head && view.status != Status::Empty { String::new() } else { text }
}

pub(super) fn crt_list(name: &str, numbered: bool, entries: &[ListedEntry]) -> String {
    let mut text = format!("# {}\n", name.trim_end_matches('/'));
    for entry in entries {
        text.push_str(&entry.certificate);
        if numbered {
            let _ = write!(text, ":{}", entry.line);
        }
        if let Some(settings) = &entry.settings {
            let _ = write!(text, " [{settings}]");
        }
        entry.filters.iter().for_each(|filter| {
            let _ = write!(text, " {filter}");
        });
        text.push('\n');
    }
    text
}

pub(super) fn names(names: &[NameView]) -> String {
    let mut text = "# Frontend/Bind\tSNI\tNegative Filter\tType\tFilename\tNotAfter\tNotBefore\n".to_owned();
    for name in names {
        let excluded: Vec<String> = name.excluded.iter().map(|name| format!("!{name}")).collect();
        let excluded = if excluded.is_empty() { "-".to_owned() } else { excluded.join(" ") };
        let _ = writeln!(
            text,
            "{}/{}\t{}\t{excluded}\t{}\t{}\t{}\t{}",
            name.frontend, name.place, name.name, name.kind, name.certificate, name.not_after, name.not_before
        );
    }
    text
}

pub(super) fn responses(views: &[ResponseView]) -> String {
    let mut text = "# Certificate IDs\n".to_owned();
    for view in views {
        let _ = write!(
            text,
            "Certificate ID key : {}\n Certificate ID:\n   Issuer Name Hash: {}\n   Issuer Key Hash: {}\n   Serial Number: \
             {}\n",
            view.key, view.issuer_name_hash, view.issuer_key_hash, view.serial
        );
    }
    text
}

/// The part of `openssl ocsp -text` that shows a response's contents; its signature is not shown, as clients verify
/// that.
pub(super) fn response(view: &ResponseView) -> String {
    let Some(answer) = &view.answer else { return String::new() };
    let mut text = format!(
        "OCSP Response Data:\n    OCSP Response Status: successful (0x0)\n    Response Type: Basic OCSP Response\n    \
         Version: 1 (0x0)\n    Responder Id: {}\n    Produced At: {}\n    Responses:\n    Certificate ID:\n      Hash \
         Algorithm: sha1\n      Issuer Name Hash: {}\n      Issuer Key Hash: {}\n      Serial Number: {}\n    Cert Status: \
         {}\n    This Update: {}\n",
        answer.responder,
        answer.produced_at,
        view.issuer_name_hash,
        view.issuer_key_hash,
        view.serial,
        answer.status,
        answer.this_update
    );
    if let Some(next) = &answer.next_update {
        let _ = writeln!(text, "    Next Update: {next}");
    }
    text
}

pub(super) fn base64(der: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(der) + "\n"
}

pub(super) fn ticket_keys(files: &[TicketKeysView], secret: bool) -> String {
    let mut text = if secret { "# id secret\n" } else { "# id (file)\n" }.to_owned();
    for file in files {
        if !secret {
            let _ = writeln!(text, "{} ({})", file.id, file.file);
            continue;
        }
        let _ = writeln!(text, "# {} ({})", file.id, file.file);
        for (index, key) in file.keys.iter().enumerate() {
            let _ = writeln!(text, "{}.{index} {}", file.id, &**key);
        }
    }
    text
}
