//! What identifies a stored response.

use penstock_http::{Known, RequestHead, TargetForm, Version};

/// The key of a request: its host and its target, byte for byte. `None` if the request names no host.
///
/// Nothing is normalised, so that no two requests that a server could tell apart share a response. A request in absolute form
/// keeps its `Host` field in the key too, since a server may look at either.
pub(crate) fn key_of(request: &RequestHead) -> Option<Vec<u8>> {
    let mut hosts = request.fields.all_known(Known::Host);
    let host = hosts.next();
    if hosts.any(|other| Some(other) != host) {
        return None;
    }
    let target = request.target();
    let mut key = Vec::with_capacity(target.len() + host.map_or(0, <[u8]>::len) + 1);
    match request.form() {
        TargetForm::Origin => key.extend_from_slice(host?),
        // HTTP/2 names the authority beside the path, and the server gets it as `Host`.
        TargetForm::Absolute if request.version() == Version::Http2 && authority(request) == host => {
            let path = request.path_and_query();
            key.extend_from_slice(host?);
            key.extend_from_slice(path);
            return Some(key);
        }
        TargetForm::Absolute => {
            // No host contains a space, so this cannot be mistaken for the key of a request in origin form.
            key.push(b' ');
            key.extend_from_slice(host.unwrap_or_default());
            key.push(b' ');
        }
        _ => return None,
    }
    key.extend_from_slice(target);
    Some(key)
}

/// The authority of an absolute target, as it is written.
fn authority(request: &RequestHead) -> Option<&[u8]> {
    let target = request.target();
    let before = &target[..target.len() - request.path_and_query().len()];
    before.windows(3).position(|window| window == b"://").map(|at| &before[at + 3..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(target: &str, hosts: &[&str]) -> Option<String> {
        let mut head = RequestHead::from_parts(b"GET", target.as_bytes(), Version::Http11).unwrap();
        for host in hosts {
            head.fields.append(b"host", host.as_bytes()).unwrap();
        }
        key_of(&head).map(|key| String::from_utf8(key).unwrap())
    }

    #[test]
    fn spellings_that_a_server_can_tell_apart_have_keys_of_their_own() {
        let keys = [
            key("/x", &["a"]),
            key("/x", &["A"]),
            key("/x", &["a:80"]),
            key("/x?", &["a"]),
            key("/%78", &["a"]),
            key("/x?q", &["a"]),
            key("http://a/x", &["a"]),
            key("http://a/x", &["evil"]),
            key("https://a/x", &["a"]),
        ];
        let distinct: std::collections::HashSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
        assert!(keys.iter().all(Option::is_some));
    }

    #[test]
    fn http2_shares_what_is_stored_with_http1() {
        let mut head = RequestHead::new();
        head.start_http2(b"GET", b"https", Some(b"a:8443"), b"/x?q").unwrap();
        assert_eq!(key_of(&head), key("/x?q", &["a:8443"]).map(String::into_bytes));
        head.fields.set(b"host", b"evil").unwrap();
        assert_ne!(key_of(&head), key("/x?q", &["a:8443"]).map(String::into_bytes));
        assert_ne!(key_of(&head), key("/x?q", &["evil"]).map(String::into_bytes));
    }

    #[test]
    fn a_request_without_a_host_or_with_two_has_no_key() {
        assert_eq!(key("/x", &[]), None);
        assert_eq!(key("/x", &["a", "b"]), None);
        let asterisk = RequestHead::from_parts(b"OPTIONS", b"*", Version::Http11).unwrap();
        assert_eq!(key_of(&asterisk), None);
    }
}
