//! What `Connection` says, and what it may not say.

use penstock_http::{
    Connection, Known, Limits, Persistence, RequestHead, Version, expects_continue, remove_hop_by_hop, set_connection,
};

fn head(lines: &str) -> RequestHead {
    let mut head = RequestHead::new();
    let raw = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
    head.parse(raw.as_bytes(), &Limits::default()).unwrap();
    head
}

#[test]
fn connection_cannot_name_away_what_the_proxy_says() {
    let lines = "Connection: close, X-Mine, X-Forwarded-For, Cookie, Content-Length, Host\r\nX-Mine: 1\r\n\
                 X-Forwarded-For: 1.2.3.4\r\nCookie: a=b\r\nContent-Length: 5\r\nKeep-Alive: 5\r\nProxy-Connection: x\r\n";
    let mut head = head(lines);
    let connection = Connection::of(&head.fields);
    assert!(connection.close && connection.others);
    remove_hop_by_hop(&mut head.fields, connection, false);
    let left: Vec<_> = head.fields.iter().map(|field| field.name).collect();
    assert_eq!(left, [&b"host"[..], b"x-forwarded-for", b"cookie", b"content-length"]);
}

#[test]
fn upgrade_counts_only_beside_an_upgrade_field() {
    let upgraded = head("Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: a\r\n");
    assert!(Connection::of(&upgraded.fields).upgrade);
    let mut bare = head("Connection: Upgrade\r\n");
    assert!(!Connection::of(&bare.fields).upgrade);
    remove_hop_by_hop(&mut bare.fields, Connection::default(), false);
    assert!(!bare.fields.has(Known::Connection));
}

#[test]
fn persistence_is_the_default_of_1_1_and_asked_for_in_1_0() {
    let of = |lines: &str, version| Connection::of(&head(lines).fields).persistence(version);
    assert_eq!(of("", Version::Http11), Persistence::KeepAlive);
    assert_eq!(of("Connection: Close\r\n", Version::Http11), Persistence::Close);
    assert_eq!(of("", Version::Http10), Persistence::Close);
    assert_eq!(of("Connection: keep-alive\r\n", Version::Http10), Persistence::KeepAlive);
    assert_eq!(of("Connection: keep-alive\r\nConnection: close\r\n", Version::Http10), Persistence::Close);
}

#[test]
fn our_own_connection_field_is_written_where_the_version_does_not_say_it() {
    use Persistence::{Close, KeepAlive};
    use Version::{Http10, Http11};
    let written = |version, peer, persistence, upgrade| {
        let mut head = head("");
        set_connection(&mut head.fields, version, peer, persistence, upgrade);
        head.fields.known(Known::Connection).map(<[u8]>::to_vec)
    };
    assert_eq!(written(Http11, Http11, KeepAlive, false), None);
    assert_eq!(written(Http11, Http11, Close, false), Some(b"close".to_vec()));
    assert_eq!(written(Http11, Http10, KeepAlive, false), Some(b"keep-alive".to_vec()));
    assert_eq!(written(Http10, Http11, KeepAlive, false), Some(b"keep-alive".to_vec()));
    assert_eq!(written(Http10, Http10, Close, false), None);
    assert_eq!(written(Http11, Http11, KeepAlive, true), Some(b"upgrade".to_vec()));
}

#[test]
fn only_1_1_waits_for_100_continue() {
    let mut head = head("Expect: 100-Continue\r\n");
    assert!(expects_continue(&head));
    head.set_version(Version::Http10);
    assert!(!expects_continue(&head));
}
