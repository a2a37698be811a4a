//! OCSP responses that are stapled to certificates.

use super::{
    Store, StoreError,
    certificates::{base64_of, hex_lower, hex_upper, strip_sign, time},
    error::Refusal,
};
use crate::{
    certificate::now,
    ocsp::{self, Status, Unusable},
};
use x509_parser::{prelude::FromDer, time::ASN1Time, x509::X509Name};

/// An OCSP response as shown to operators, in OpenSSL's format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ResponseView {
    /// The response's name in the runtime API: the certificate's identity in DER, as hexadecimal.
    pub key: String,
    /// The first certificate that it is stapled to.
    pub certificate: String,
    pub issuer_name_hash: String,
    pub issuer_key_hash: String,
    pub serial: String,
    /// The response, if one has been set.
    pub answer: Option<AnswerView>,
    /// In DER; empty if none has been set.
    pub der: Vec<u8>,
}

/// The contents of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct AnswerView {
    pub responder: String,
    pub produced_at: String,
    pub status: &'static str,
    pub this_update: String,
    pub next_update: Option<String>,
}

impl Store {
    /// All responses and reserved places, sorted by key.
    pub fn responses(&self) -> Vec<ResponseView> {
        let state = self.state();
        let certificates =
            state.certificates.iter().filter_map(|(name, slot)| Some((name, slot.certificate.as_ref()?)));
        let mut views: Vec<ResponseView> = Vec::new();
        for (name, certificate) in certificates {
            let Some(id) = &certificate.ocsp_id else { continue };
            let key = hex_lower(&id.to_der());
            if views.iter().any(|view| view.key == key) {
                continue;
            }
            let der = certificate.response().unwrap_or_default();
            views.push(ResponseView {
                key,
                certificate: name.clone(),
                issuer_name_hash: hex_upper(&id.issuer_name),
                issuer_key_hash: hex_upper(&id.issuer_key),
                serial: hex_upper(strip_sign(&id.serial)),
                answer: shown(&der),
                der,
            });
        }
        views.sort_by(|a, b| a.key.cmp(&b.key));
        views
    }

    /// The response with that key, or of that certificate.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn response(&self, key_or_certificate: &str) -> Result<ResponseView, StoreError> {
        let found = self.responses().into_iter();
        let mut found = found.filter(|view| view.key == key_or_certificate || view.certificate == key_or_certificate);
        found.next().ok_or_else(|| StoreError::new(Refusal::Unknown, "Certificate ID does not match any certificate."))
    }

    /// The URI of a certificate's OCSP responder, and the request in DER.
    ///
    /// # Errors
    ///
    /// If there is no such certificate, it has no place for a response, or it names no responder.
    pub fn ocsp_question(&self, name: &str) -> Result<(String, Vec<u8>), StoreError> {
        let refuse = |text: &str| StoreError::new(Refusal::Unknown, format!("'update ssl ocsp-response' {text}"));
        let state = self.state();
        let found = state.certificates.get(name).and_then(|slot| slot.certificate.as_ref());
        let certificate = found.ok_or_else(|| refuse("only works on certificates that are in the store"))?;
        let id = certificate.ocsp_id.as_ref().ok_or_else(|| {
            refuse(
                "only works on certificates that already had a place for an OCSP response, and whose issuer is known",
            )
        })?;
        let url = ocsp::responder(certificate.leaf()).ok_or_else(|| refuse("found no OCSP URI in the certificate"))?;
        Ok((url, id.question()))
    }

    /// Staples a response (base64 of its DER) to the certificates it is about, from now on.
    ///
    /// # Errors
    ///
    /// If it is invalid, clients could not use it, or it is about no certificate that has a place for one.
    pub fn set_response(&self, base64: &str) -> Result<(), StoreError> {
        let der = base64_of(base64).ok_or_else(|| {
            StoreError::new(Refusal::BadInput, "'set ssl ocsp-response' received invalid base64 encoded response.")
        })?;
        self.staple(&der)
    }

    /// Like [`Store::set_response`], for the DER itself.
    ///
    /// # Errors
    ///
    /// As for that.
    pub fn staple(&self, der: &[u8]) -> Result<(), StoreError> {
        let refused = |why: Unusable| StoreError::new(Refusal::BadInput, why.at_run_time());
        let answer = ocsp::answer(der).map_err(refused)?;
        let state = self.state();
        let certificates = state.certificates.values().filter_map(|slot| slot.certificate.as_ref());
        let concerned: Vec<_> =
            certificates.filter(|certificate| certificate.ocsp_id.as_ref() == Some(&answer.id)).collect();
        if concerned.is_empty() {
            return Err(refused(Unusable::AnotherCertificate));
        }
        concerned.into_iter().try_for_each(|certificate| certificate.staple(der.to_vec(), now())).map_err(refused)
    }
}

/// The key (see [`ResponseView::key`]) of a response in base64; `None` if it is none that could be stapled.
pub fn response_key(base64: &str) -> Option<String> {
    let der = base64_of(base64)?;
    ocsp::answer(&der).ok().map(|answer| hex_lower(&answer.id.to_der()))
}

fn shown(der: &[u8]) -> Option<AnswerView> {
    let answer = ocsp::answer(der).ok()?;
    let at = |seconds: i64| ASN1Time::from_timestamp(seconds).map(|at| time(&at)).unwrap_or_default();
    let responder = answer.responder.and_then(|der| X509Name::from_der(der).ok());
    Some(AnswerView {
        responder: responder.map(|(_, name)| penstock_rules::x509::spaced(&name)).unwrap_or_default(),
        produced_at: at(answer.produced),
        status: match answer.status {
            Status::Good => "good",
            Status::Revoked => "revoked",
            Status::Unknown => "unknown",
        },
        this_update: at(answer.this_update),
        next_update: answer.next_update.map(at),
    })
}
