//! The forms that change the state of servers, and the tokens that show that a form was sent from this page.

use super::{Page, view::View};
use crate::html::Text;
use aws_lc_rs::{digest, hmac, rand};
use penstock_proxy::ServiceRequest;
use penstock_proxy::snapshot::Row;
use std::fmt::Write as _;

/// The actions of HAProxy's page that are supported here.
const ACTIONS: &[(&str, &str)] = &[
    ("ready", "Set state to READY"),
    ("drain", "Set state to DRAIN"),
    ("maint", "Set state to MAINT"),
    ("hrunn", "Health: force UP"),
    ("hnolb", "Health: force NOLB"),
    ("hdown", "Health: force DOWN"),
    ("shutdown", "Kill sessions"),
];

/// Opens the form around a proxy's table.
pub fn open(out: &mut String, view: &View) {
    let _ = write!(out, "<form action=\"{}\" method=\"post\">", Text(&view.link()));
}

/// The actions below a proxy's table, and the end of the form.
pub fn close(out: &mut String, page: &Page<'_>, row: &Row) {
    let (proxy, name) = (row.proxy.0, Text(&row.proxy_name));
    let _ = write!(
        out,
        "<div class=\"actions\"><label for=\"a{proxy}\">With the selected servers of {name}:</label>\
         <select id=\"a{proxy}\" name=\"action\"><option value=\"\"></option>"
    );
    for (value, text) in ACTIONS {
        let _ = write!(out, "<option value=\"{value}\">{text}</option>");
    }
    let _ = write!(
        out,
        "</select><input type=\"hidden\" name=\"b\" value=\"#{}\"><input type=\"hidden\" name=\"token\" value=\"{}\">\
         <button type=\"submit\">Apply</button></div></form>",
        row.iid,
        Text(page.token)
    );
}

/// The CSS class and the message for the result code of an action.
pub fn outcome(code: &str) -> (&'static str, &'static str) {
    match code {
        "DONE" => ("", "Done."),
        "NONE" => ("bad", "Nothing has changed."),
        "PART" => ("bad", "Only some of the servers took it."),
        "DENY" => ("bad", "You may not do that here."),
        "FORM" => {
            ("bad", "The form was sent from another site, or before a reload. Nothing has changed; please try again.")
        }
        "ERRP" => ("bad", "The form was not understood."),
        "EXCD" => ("bad", "Too many servers at once."),
        _ => ("bad", "Unexpected result."),
    }
}

/// The key from which this process derives the tokens of its forms.
#[derive(Clone, Debug)]
pub struct FormKey(hmac::Key);

impl FormKey {
    /// Generates a random key.
    pub fn new() -> FormKey {
        let random = rand::SystemRandom::new();
        // Without random numbers from the system, handshakes would fail too.
        FormKey(hmac::Key::generate(hmac::HMAC_SHA256, &random).expect("the system has random numbers"))
    }

    /// The token in the forms of a proxy's page, known only to those who can read the page.
    pub fn token(&self, proxy: &str) -> String {
        hex(&hmac::sign(&self.0, proxy.as_bytes()).as_ref()[..16])
    }

    /// Whether a form is accepted. A correct token shows that it was sent from this page. A form without a token may come from a
    /// program, and is accepted unless its fields show, as those of every browser do, that a page of another site sent it.
    pub fn admits(&self, request: &ServiceRequest<'_>, token: Option<&str>) -> bool {
        match token {
            Some(token) => {
                let known = self.token(&request.proxy.name);
                let hash = |text: &str| digest::digest(&digest::SHA256, text.as_bytes());
                // Hashes are compared, so that the time reveals nothing about the token.
                hash(token).as_ref() == hash(&known).as_ref()
            }
            None => !is_from_elsewhere(|name| request.field(name)),
        }
    }
}

impl Default for FormKey {
    fn default() -> Self {
        FormKey::new()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether the header fields of a request show that a page of another site sent it.
fn is_from_elsewhere<'a>(field: impl Fn(&str) -> Option<&'a [u8]>) -> bool {
    if field("sec-fetch-site").is_some_and(|site| !matches!(site, b"same-origin" | b"none")) {
        return true;
    }
    let Some(origin) = field("origin").or_else(|| field("referer")) else { return false };
    let host = String::from_utf8_lossy(field("host").unwrap_or_default()).into_owned();
    let origin = String::from_utf8_lossy(origin).into_owned();
    // `null` has no host.
    let from = origin.split_once("://").map(|(_, rest)| rest.split('/').next().unwrap_or_default());
    from.is_none_or(|from| !from.eq_ignore_ascii_case(&host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_another_site_is_known_and_a_program_is_let_in() {
        let elsewhere = |fields: &[(&str, &'static str)]| {
            is_from_elsewhere(|name| fields.iter().find(|(n, _)| *n == name).map(|(_, value)| value.as_bytes()))
        };
        for (fields, is) in [
            (&[("host", "lb:8404")][..], false),
            (&[("host", "lb:8404"), ("origin", "http://lb:8404")], false),
            (&[("host", "lb:8404"), ("origin", "http://lb")], true),
            (&[("host", "lb:8404"), ("origin", "https://evil.example")], true),
            (&[("host", "lb:8404"), ("origin", "null")], true),
            (&[("host", "LB"), ("referer", "https://lb/haproxy?stats")], false),
            (&[("host", "lb"), ("referer", "https://lb.evil.example/lb/")], true),
            (&[("host", "lb"), ("origin", "https://lb"), ("sec-fetch-site", "same-site")], true),
            (&[("host", "lb"), ("sec-fetch-site", "cross-site")], true),
            (&[("host", "lb"), ("origin", "https://lb"), ("sec-fetch-site", "same-origin")], false),
        ] {
            assert_eq!(elsewhere(fields), is, "{fields:?}");
        }
    }

    #[test]
    fn a_token_is_of_one_process_and_one_proxy() {
        let (one, other) = (FormKey::new(), FormKey::new());
        assert_eq!(one.token("a"), one.token("a"));
        assert_ne!(one.token("a"), one.token("b"));
        assert_ne!(one.token("a"), other.token("a"));
        assert_eq!(one.token("a").len(), 32);
    }
}
