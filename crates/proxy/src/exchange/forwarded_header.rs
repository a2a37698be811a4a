//! `option forwarded`: the Forwarded header field of RFC 7239.

use penstock_config::model::Forwarded;
use std::{
    fmt::Write,
    net::{IpAddr, SocketAddr},
};

/// The field's value, or `None` if none of its parts are known.
pub(crate) fn value(
    conf: &Forwarded,
    tls: bool,
    host: Option<&[u8]>,
    destination: Option<SocketAddr>,
    source: Option<SocketAddr>,
) -> Option<String> {
    let mut value = String::with_capacity(64);
    if conf.proto {
        pair(&mut value, "proto", if tls { "https" } else { "http" });
    }
    if let Some(host) = host.filter(|_| conf.host) {
        // Always in quotes, as in HAProxy.
        pair(&mut value, "host", &in_quotes(&String::from_utf8_lossy(host)));
    }
    for (name, wanted, port, address) in
        [("by", conf.by, conf.by_port, destination), ("for", conf.client, conf.client_port, source)]
    {
        if let Some(address) = address.filter(|_| wanted) {
            pair(&mut value, name, &node(address, port));
        }
    }
    (!value.is_empty()).then_some(value)
}

fn pair(value: &mut String, name: &str, text: &str) {
    if !value.is_empty() {
        value.push(';');
    }
    // Writing to a string cannot fail.
    let _ = write!(value, "{name}={text}");
}

/// RFC 7239, section 6: an IPv6 address is enclosed in brackets, and anything with a colon in quotes.
fn node(address: SocketAddr, port: bool) -> String {
    let text = match address.ip() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    quoted(&if port { format!("{text}:{}", address.port()) } else { text })
}

/// A token as it is, anything else as a quoted string (RFC 7230, section 3.2.6).
fn quoted(text: &str) -> String {
    let token = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
    if !text.is_empty() && text.bytes().all(token) {
        return text.to_owned();
    }
    in_quotes(text)
}

fn in_quotes(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_well_formed() {
        let v4: SocketAddr = "192.0.2.1:5000".parse().unwrap();
        let v6: SocketAddr = "[2001:db8::1]:443".parse().unwrap();
        let plain = Forwarded { proto: true, client: true, ..Forwarded::default() };
        assert_eq!(value(&plain, false, None, Some(v6), Some(v4)).unwrap(), "proto=http;for=192.0.2.1");
        assert_eq!(value(&plain, true, None, None, Some(v6)).unwrap(), "proto=https;for=\"[2001:db8::1]\"");
        let all = Forwarded { proto: true, host: true, by: true, by_port: true, client: true, client_port: true };
        assert_eq!(
            value(&all, true, Some(b"www.example.com:8443"), Some(v6), Some(v4)).unwrap(),
            "proto=https;host=\"www.example.com:8443\";by=\"[2001:db8::1]:443\";for=\"192.0.2.1:5000\""
        );
        assert_eq!(value(&all, true, Some(b"a\"b"), None, None).unwrap(), "proto=https;host=\"a\\\"b\"");
        assert_eq!(value(&all, false, Some(b"h"), None, None).unwrap(), "proto=http;host=\"h\"");
        let only_client = Forwarded { client: true, ..Forwarded::default() };
        assert_eq!(value(&only_client, true, None, Some(v4), None), None);
    }
}
