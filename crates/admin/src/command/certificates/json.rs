//! The answers in JSON.

use base64::Engine as _;
use penstock_proxy::certificates::{
    AuthorityFile, AuthorityView, CertificateFile, CertificateView, Described, ListedEntry, NameView, ResponseView,
    TicketKeysView,
};
use serde_json::{Value, json};

pub(super) fn names(names: &[String]) -> String {
    line(&json!(names))
}

pub(super) fn certificates(files: &CertificateFile) -> String {
    line(&json!({"transaction": files.transaction, "certificates": files.names}))
}

pub(super) fn authorities(transaction: Option<&AuthorityFile>, files: &[AuthorityFile]) -> String {
    let file = |file: &AuthorityFile| json!({"name": file.name, "count": file.count});
    let files: Vec<Value> = files.iter().map(file).collect();
    line(&json!({"transaction": transaction.map(file), "files": files}))
}

pub(super) fn certificate(view: &CertificateView) -> String {
    let chain: Vec<Value> = view.chain.iter().map(described).collect();
    line(&json!({
        "filename": view.name, "status": view.status.word(), "chain": chain, "ocsp_response_key": view.ocsp_key,
    }))
}

fn described(one: &Described) -> Value {
    let names: Vec<&String> = one.alternative_names.iter().filter(|name| !name.is_empty()).collect();
    json!({
        "serial": one.serial, "not_before": one.not_before, "not_after": one.not_after,
        "subject_alternative_names": names, "algorithm": one.algorithm, "sha1_fingerprint": one.fingerprint,
        "subject": one.subject, "issuer": one.issuer,
    })
}

pub(super) fn authority(view: &AuthorityView) -> String {
    let certificates: Vec<Value> = view.certificates.iter().map(|(_, one)| described(one)).collect();
    let lists = view.lists.iter().map(|(_, list)| {
        let revoked = list.revoked.iter().map(|(serial, since)| json!({"serial": serial, "since": since}));
        json!({
            "version": list.version, "signature_algorithm": list.signature_algorithm, "issuer": list.issuer,
            "last_update": list.last_update, "next_update": list.next_update,
            "revoked": revoked.collect::<Vec<Value>>(),
        })
    });
    let lists: Vec<Value> = lists.collect();
    line(&json!({
        "filename": view.name, "status": view.status.word(), "certificates": certificates, "revocation_lists": lists,
    }))
}

pub(super) fn crt_list(entries: &[ListedEntry]) -> String {
    let entry = |entry: &ListedEntry| {
        json!({
            "certificate": entry.certificate, "line": entry.line, "settings": entry.settings, "filters": entry.filters,
        })
    };
    line(&json!(entries.iter().map(entry).collect::<Vec<Value>>()))
}

pub(super) fn names_of_frontends(names: &[NameView]) -> String {
    let name = |name: &NameView| {
        json!({
            "frontend": name.frontend, "bind": name.place, "sni": name.name, "negative_filters": name.excluded,
            "type": name.kind, "filename": name.certificate, "not_after": name.not_after, "not_before": name.not_before,
        })
    };
    line(&json!(names.iter().map(name).collect::<Vec<Value>>()))
}

pub(super) fn responses(views: &[ResponseView]) -> String {
    line(&json!(views.iter().map(response_value).collect::<Vec<Value>>()))
}

pub(super) fn response(view: &ResponseView) -> String {
    line(&response_value(view))
}

fn response_value(view: &ResponseView) -> Value {
    let answer = view.answer.as_ref().map(|answer| {
        json!({
            "responder": answer.responder, "produced_at": answer.produced_at, "status": answer.status,
            "this_update": answer.this_update, "next_update": answer.next_update,
            "base64": base64::engine::general_purpose::STANDARD.encode(&view.der),
        })
    });
    json!({
        "key": view.key, "filename": view.certificate, "issuer_name_hash": view.issuer_name_hash,
        "issuer_key_hash": view.issuer_key_hash, "serial": view.serial, "response": answer,
    })
}

pub(super) fn ticket_keys(files: &[TicketKeysView], secret: bool) -> String {
    let file = |file: &TicketKeysView| {
        let keys = secret.then(|| file.keys.iter().map(|key| key.to_string()).collect::<Vec<String>>());
        json!({"id": file.id, "file": file.file, "keys": keys})
    };
    line(&json!(files.iter().map(file).collect::<Vec<Value>>()))
}

fn line(value: &Value) -> String {
    format!("{value}\n")
}
