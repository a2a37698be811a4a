//! Requests that a proxy is asked for, and that come back from it.

use super::{Parts, RequestHead, TargetForm};
use crate::{authority::split_authority, error::Error, fields::Known};

/// The target that a request has of its own, while another one stands in its place.
#[derive(Clone, Debug)]
pub struct OwnTarget {
    target: Vec<u8>,
    parts: Parts,
    assembled: bool,
}

impl OwnTarget {
    /// The scheme, if that of the target is sent to servers.
    fn sent_scheme(&self) -> Option<&[u8]> {
        let is_sent = self.parts.form == TargetForm::Absolute && !self.assembled;
        is_sent.then(|| &self.target[..self.parts.scheme_len])
    }
}

impl RequestHead {
    /// The target by which a proxy is asked for this request (RFC 9112, 3.2.2 and 3.2.4): with a scheme and the one host that the request names.
    ///
    /// # Errors
    /// If the request does not name one host, or is one for a tunnel.
    pub fn target_for_proxy(&self, scheme: &[u8]) -> Result<Vec<u8>, Error> {
        if self.form() == TargetForm::Authority {
            return Err(Error::Target);
        }
        if self.fields.all_known(Known::Host).nth(1).is_some() {
            return Err(Error::ManyHosts);
        }
        let host = self.host().ok_or(Error::NoHost)?;
        if split_authority(host).ok_or(Error::Authority)?.host.is_empty() {
            return Err(Error::NoHost);
        }
        let path = if self.form() == TargetForm::Asterisk { b"" } else { self.path_and_query() };
        Ok([scheme, b"://", host, path].concat())
    }

    /// Puts another target in place of the request's own. Other than one that HTTP/2 has brought, it is sent in full.
    ///
    /// # Errors
    /// As [`RequestHead::set_target`].
    pub fn replace_target(&mut self, target: &[u8]) -> Result<OwnTarget, Error> {
        let own = OwnTarget { target: self.target.clone(), parts: self.parts, assembled: self.assembled };
        self.set_target(target)?;
        Ok(own)
    }

    /// Gives the request back the target that it has of its own.
    pub fn restore_target(&mut self, own: OwnTarget) {
        (self.target, self.parts, self.assembled) = (own.target, own.parts, own.assembled);
    }

    /// Brings a request that a proxy has sent on into the form that it had before the proxy was asked for it: `own` is the target that it had then.
    ///
    /// # Errors
    /// If there is no host for a target that needs one.
    pub fn come_from_proxy(&mut self, own: &OwnTarget) -> Result<(), Error> {
        match (self.form(), own.sent_scheme()) {
            (TargetForm::Absolute, Some(scheme)) => self.splice(0, scheme, self.parts.scheme_len),
            (TargetForm::Absolute, None) => {
                self.take_host_of_target()?;
                // Proxies write the slash that stands for no path.
                let is_whole = matches!(self.path_and_query(), b"" | b"/") && self.method() == b"OPTIONS";
                let is_asterisk = own.parts.form == TargetForm::Asterisk && is_whole;
                let path = if is_asterisk { b"*".to_vec() } else { self.path_and_query().to_vec() };
                self.set_target(&path)
            }
            (TargetForm::Origin | TargetForm::Asterisk, Some(scheme)) => {
                let target = self.target_for_proxy(scheme)?;
                self.set_target(&target)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Limits, RequestHead};

    fn parsed(start: &str, host: &str) -> RequestHead {
        let mut head = RequestHead::new();
        head.parse(format!("{start}\r\n{host}\r\n").as_bytes(), &Limits::default()).unwrap();
        head
    }

    fn sent(head: &RequestHead) -> String {
        let mut out = Vec::new();
        head.write_to(&mut out);
        String::from_utf8(out).unwrap().replace("\r\n", "|")
    }

    #[test]
    fn a_proxy_is_asked_with_a_host_and_what_it_sends_on_gets_its_form_back() {
        let http2 = |path: &str| {
            let mut head = RequestHead::new();
            head.start_http2(b"GET", b"https", Some(b"h.example"), path.as_bytes()).unwrap();
            head
        };
        let host = "host: h.example\r\n";
        for (mut head, scheme, asked, back, expected) in [
            (
                parsed("GET /a?b HTTP/1.1", host),
                "https",
                "GET https://h.example/a?b",
                "",
                "GET /a?b HTTP/1.1|host: h.example||",
            ),
            (http2("/a?b"), "https", "GET https://h.example/a?b", "", "GET /a?b HTTP/1.1|host: h.example||"),
            (http2("/a"), "http", "GET http://h.example/a", "", "GET /a HTTP/1.1|host: h.example||"),
            (
                parsed("GET http://h.example/a HTTP/1.1", host),
                "http",
                "GET http://h.example/a",
                "",
                "GET http://h.example/a HTTP/1.1|host: h.example||",
            ),
            // The device sees another scheme than the server.
            (
                parsed("GET https://h.example/a HTTP/1.1", host),
                "http",
                "GET http://h.example/a",
                "",
                "GET https://h.example/a HTTP/1.1|host: h.example||",
            ),
            // It sends on a path.
            (
                parsed("GET http://h.example/a HTTP/1.1", host),
                "http",
                "GET http://h.example/a",
                "GET /a HTTP/1.1",
                "GET http://h.example/a HTTP/1.1|host: h.example||",
            ),
            (
                parsed("GET /a HTTP/1.1", host),
                "http",
                "GET http://h.example/a",
                "GET /b HTTP/1.1",
                "GET /b HTTP/1.1|host: h.example||",
            ),
            (
                parsed("OPTIONS * HTTP/1.1", host),
                "http",
                "OPTIONS http://h.example",
                "",
                "OPTIONS * HTTP/1.1|host: h.example||",
            ),
            (
                parsed("OPTIONS / HTTP/1.1", host),
                "http",
                "OPTIONS http://h.example/",
                "",
                "OPTIONS / HTTP/1.1|host: h.example||",
            ),
            // HTTP/1.0 needs no Host where the target has one.
            (
                parsed("GET http://h.example/a HTTP/1.0", ""),
                "http",
                "GET http://h.example/a",
                "",
                "GET http://h.example/a HTTP/1.0||",
            ),
        ] {
            let before = sent(&head);
            let target = head.target_for_proxy(scheme.as_bytes()).unwrap();
            let own = head.replace_target(&target).unwrap();
            assert!(sent(&head).starts_with(&format!("{asked} HTTP/1.")), "{}", sent(&head));
            let start =
                if back.is_empty() { sent(&head).split('|').next().unwrap().to_owned() } else { back.to_owned() };
            let mut returned = parsed(&start, if before.contains("host:") { host } else { "" });
            returned.come_from_proxy(&own).unwrap();
            assert_eq!(sent(&returned), expected);
            head.restore_target(own);
            assert_eq!(sent(&head), before);
        }
    }

    #[test]
    fn the_host_that_a_proxy_names_is_the_request_s() {
        let mut head = parsed("GET /a HTTP/1.1", "host: h.example\r\n");
        let own = head.replace_target(&head.target_for_proxy(b"http").unwrap()).unwrap();
        let mut returned = parsed("GET http://other.example:81/b HTTP/1.1", "host: other.example:81\r\n");
        returned.come_from_proxy(&own).unwrap();
        assert_eq!(sent(&returned), "GET /b HTTP/1.1|host: other.example:81||");
    }

    #[test]
    fn no_proxy_is_asked_for_a_host_that_is_none() {
        for (start, host) in
            [("GET /a HTTP/1.0", ""), ("GET /a HTTP/1.1", "host:\r\n"), ("CONNECT h:1 HTTP/1.1", "host: h:1\r\n")]
        {
            assert!(parsed(start, host).target_for_proxy(b"http").is_err(), "{start} {host}");
        }
        let mut changed = parsed("GET /a HTTP/1.1", "host: h\r\n");
        changed.fields.append(b"host", b"other").unwrap();
        assert!(changed.target_for_proxy(b"http").is_err(), "two");
        changed.fields.set(b"host", b"h/b?").unwrap();
        assert!(changed.target_for_proxy(b"http").is_err(), "more than a host");
    }
}
