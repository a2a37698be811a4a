//! How the head of a message changes that is compressed.

use penstock_config::model::CompressionAlgorithm;
use penstock_http::{Fields, Known, RequestHead, ResponseHead};

/// Marks a response as compressed; its length is then unknown.
pub fn mark_response(head: &mut ResponseHead, algorithm: CompressionAlgorithm) {
    let fields = &mut head.fields;
    code(fields, algorithm);
    // What is sent has other bytes than what the tag was made for (RFC 9110 section 8.8.1).
    let tag = fields.iter().position(|field| field.name == b"etag" && field.value.starts_with(b"\""));
    if let Some((at, tag)) = tag.and_then(|at| Some((at, fields.at(at)?.value))) {
        let weak = [b"W/", tag].concat();
        fields.set_value_at(at, &weak).expect("the value of a field with two characters more");
    }
    vary(fields);
}

/// Says once that what is sent depends on Accept-Encoding.
fn vary(fields: &mut Fields) {
    const BY: &[u8] = b"Accept-Encoding";
    let says = |value: &[u8]| value.split(|byte| *byte == b',').any(|name| name.trim_ascii().eq_ignore_ascii_case(BY));
    if fields.get_all(b"vary").any(says) {
        return;
    }
    let line = fields.iter().rposition(|field| field.name == b"vary");
    match line.and_then(|at| Some((at, fields.at(at)?.value))) {
        Some((at, value)) if !value.is_empty() => {
            let longer = [value, b",", BY].concat();
            fields.set_value_at(at, &longer).expect("the value of a field with a name more");
        }
        Some((at, _)) => fields.set_value_at(at, BY).expect("a value"),
        None => fields.append(b"vary", BY).expect("a name and a value"),
    }
}

/// Marks a request as compressed; its length is then unknown.
pub fn mark_request(head: &mut RequestHead, algorithm: CompressionAlgorithm) {
    code(&mut head.fields, algorithm);
}

fn code(fields: &mut Fields, algorithm: CompressionAlgorithm) {
    fields.remove_known(Known::ContentLength);
    if algorithm != CompressionAlgorithm::Identity {
        fields.append(b"content-encoding", algorithm.coding().as_bytes()).expect("a name and a value");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(fields: &Fields) -> String {
        let mut out = Vec::new();
        fields.write_to(&mut out);
        String::from_utf8(out).unwrap().replace("\r\n", "|")
    }

    #[test]
    fn a_head_says_how_its_body_is_coded_and_its_tag_is_weak() {
        let mut head = ResponseHead::from_status(200);
        for (name, value) in [("content-length", "10"), ("etag", "\"x\""), ("vary", "Cookie")] {
            head.fields.append(name.as_bytes(), value.as_bytes()).unwrap();
        }
        let mut identity = ResponseHead::from_status(200);
        mark_response(&mut identity, CompressionAlgorithm::Identity);
        assert_eq!(text(&identity.fields), "vary: Accept-Encoding|");
        mark_response(&mut head, CompressionAlgorithm::RawDeflate);
        assert_eq!(text(&head.fields), "etag: W/\"x\"|vary: Cookie,Accept-Encoding|content-encoding: deflate|");
    }

    #[test]
    fn a_weak_tag_stays() {
        let mut head = ResponseHead::from_status(200);
        head.fields.append(b"etag", b"W/\"x\"").unwrap();
        mark_response(&mut head, CompressionAlgorithm::Gzip);
        assert_eq!(head.fields.get(b"etag"), Some(&b"W/\"x\""[..]));
    }
}
