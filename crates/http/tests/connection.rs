//! What `Connection` says, and what it may not say.

use penstock_http::{
    Connection, Known, Limits, Persistence, RequestHead, Version, expects_continue, may_upgrade_to, receive_hop_by_hop,
    remove_hop_by_hop, set_connection,
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
    receive_hop_by_hop(&mut head.fields);
    // A rule runs in between: what it says stays, though the client has named it.
    head.fields.set(b"x-mine", b"ours").unwrap();
    remove_hop_by_hop(&mut head.fields, false);
    let left: Vec<_> = head.fields.iter().map(|field| (field.name, field.value)).collect();
    let expected = [
        (&b"host"[..], &b"a"[..]),
        (b"x-forwarded-for", b"1.2.3.4"),
        (b"cookie", b"a=b"),
        (b"content-length", b"5"),
        (b"x-mine", b"ours"),
    ];
    assert_eq!(left, expected);
}

#[test]
fn nothing_is_upgraded_to_a_protocol_that_carries_http() {
    let left = |upgrade: &str| {
        let mut head = head(&format!(
            "Connection: Upgrade\r\nUpgrade: {upgrade}\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        ));
        receive_hop_by_hop(&mut head.fields);
        let upgrade = Connection::of(&head.fields).upgrade;
        (upgrade, head.fields.known(Known::Upgrade).map(|value| String::from_utf8_lossy(value).into_owned()))
    };
    for carries in ["h2c", "H2C", "h2", "h2c-14", "HTTP/2.0", "http/1.1", "TLS/1.0, HTTP/1.1"] {
        assert_eq!(left(carries), (false, None), "{carries}");
    }
    assert_eq!(left("websocket"), (true, Some("websocket".to_owned())));
    assert_eq!(left("h2c, foo ,TLS/1.0,bar"), (true, Some("foo, bar".to_owned())));
    assert!(may_upgrade_to(b"websocket") && !may_upgrade_to(b"h2c"));
}

#[test]
fn of_te_only_trailers_go_on() {
    let left = |fields: &str| {
        let mut head = head(fields);
        remove_hop_by_hop(&mut head.fields, false);
        assert!(head.fields.all_known(Known::Te).all(|value| value == b"trailers"));
        head.fields.all_known(Known::Te).count()
    };
    assert_eq!(left("TE: gzip\r\n"), 0);
    assert_eq!(left("TE: Trailers\r\n"), 0);
    assert_eq!(left("TE: deflate;q=0.5, trailers\r\n"), 1);
    assert_eq!(left("TE: trailers\r\nTE: gzip\r\nTE: trailers\r\n"), 2);
}

#[test]
fn upgrade_counts_only_beside_an_upgrade_field() {
    let upgraded = head(
        "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
    );
    assert!(Connection::of(&upgraded.fields).upgrade);
    let mut bare = head("Connection: Upgrade\r\n");
    assert!(!Connection::of(&bare.fields).upgrade);
    remove_hop_by_hop(&mut bare.fields, false);
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
