//! What `Connection` and its relatives say, and what is taken out before a message is sent on.

use crate::bytes::list;
use crate::fields::{Fields, Known};
use crate::head::Version;
use crate::request::RequestHead;

/// What the `Connection` field lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// `close`
    pub close: bool,
    /// `keep-alive`
    pub keep_alive: bool,
    /// `upgrade`, which counts only beside an `Upgrade` field.
    pub upgrade: bool,
    /// Whether there is anything else: names of fields that end with this connection.
    pub others: bool,
}

/// Whether a connection may carry another message after this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// The connection may carry another message.
    KeepAlive,
    /// The connection ends.
    Close,
}

impl Connection {
    /// Reads the `Connection` fields of a message.
    pub fn of(fields: &Fields) -> Connection {
        let mut connection = Connection::default();
        for value in fields.all_known(Known::Connection) {
            // Most values are a single word, for which no list need be made.
            if !connection.takes(value) {
                for option in list(value) {
                    connection.others |= !connection.takes(option);
                }
            }
        }
        connection.upgrade &= fields.has(Known::Upgrade);
        connection
    }

    /// Notes an option, if it is one of those with a meaning of their own; returns whether it is.
    fn takes(&mut self, option: &[u8]) -> bool {
        let is = |word: &[u8]| option == word || option.eq_ignore_ascii_case(word);
        let known = if is(b"close") {
            &mut self.close
        } else if is(b"keep-alive") {
            &mut self.keep_alive
        } else if is(b"upgrade") {
            &mut self.upgrade
        } else {
            return false;
        };
        *known = true;
        true
    }

    /// RFC 9112 section 9.3: 1.1 persists unless told otherwise, 1.0 only when asked to.
    pub fn persistence(self, version: Version) -> Persistence {
        match version {
            _ if self.close => Persistence::Close,
            Version::Http10 if !self.keep_alive => Persistence::Close,
            _ => Persistence::KeepAlive,
        }
    }
}

/// Takes out of a message just received what its sender meant for this connection alone: the fields that `Connection`
/// names (RFC 9110 section 7.6.1), and offers to go on in a protocol that carries HTTP (see [`may_upgrade_to`]).
///
/// This happens before the first rule: what a rule sets afterwards is ours, and a client cannot have it dropped by naming it
/// (CVE-2022-31813). `Connection` itself stays for rules to see, without `close` and `keep-alive`, as in HAProxy: what these
/// mean has been noted.
///
/// A field of [`Known`] that is not itself about the connection stays even when named, and so does what a proxy says of a client:
/// `Connection: X-Forwarded-For` is a known trick to have a proxy drop what the proxy before it said.
pub fn receive_hop_by_hop(fields: &mut Fields) {
    let connection = if fields.has(Known::Connection) { Connection::of(fields) } else { Connection::default() };
    if connection.others {
        let mut named: Vec<Vec<u8>> = Vec::new();
        for option in fields.all_known(Known::Connection).flat_map(list) {
            let option = option.to_ascii_lowercase();
            if Known::of(&option) == Known::Other && !is_said_of_a_client(&option) {
                named.push(option);
            }
        }
        fields.remove_if(|field| named.iter().any(|name| name == field.name));
    }
    if connection.close || connection.keep_alive {
        forget_persistence(fields);
    }
    if fields.all_known(Known::Upgrade).flat_map(list).any(|protocol| !may_upgrade_to(protocol)) {
        let left: Vec<&[u8]> =
            fields.all_known(Known::Upgrade).flat_map(list).filter(|it| may_upgrade_to(it)).collect();
        let left = left.join(&b", "[..]);
        fields.remove_known(Known::Upgrade);
        if !left.is_empty() {
            fields.append(b"upgrade", &left).expect("parts of a valid value make a valid value");
        }
    }
}

/// How the names begin under which a proxy tells the next one, or a server, who its client is, beside those of [`Known`]
/// (RFC 9440 for `Client-Cert`; the others are custom).
const OF_A_CLIENT: &[&str] = &[
    "cf-connecting-ip",
    "client-cert",
    "fastly-client-ip",
    "remote-",
    "ssl-client-",
    "true-client-ip",
    "x-auth",
    "x-client-",
    "x-cluster-client-ip",
    "x-forwarded-",
    "x-original-",
    "x-real-ip",
    "x-remote-",
    "x-ssl-",
    "x-tls-",
    "x-user",
];

/// Whether a field of this name, in lower case, is what a proxy says of a client.
pub(crate) fn is_said_of_a_client(name: &[u8]) -> bool {
    OF_A_CLIENT.iter().any(|begin| name.starts_with(begin.as_bytes()))
}

/// Takes `close` and `keep-alive` out of `Connection`, and the field with them where nothing else is left.
fn forget_persistence(fields: &mut Fields) {
    let noted = |option: &[u8]| option.eq_ignore_ascii_case(b"close") || option.eq_ignore_ascii_case(b"keep-alive");
    // Nearly always they are all there is.
    if fields.all_known(Known::Connection).all(noted) {
        fields.remove_known(Known::Connection);
        return;
    }
    for position in (0..fields.len()).rev() {
        let field = fields.at(position).expect("a position below the length");
        if field.known != Known::Connection || !list(field.value).any(noted) {
            continue;
        }
        let left: Vec<&[u8]> = list(field.value).filter(|option| !noted(option)).collect();
        let left = left.join(&b", "[..]);
        fields.set_value_at(position, &left).expect("parts of a valid value make a valid value");
    }
    fields.remove_if(|field| field.name == b"connection" && field.value.is_empty());
}

/// Whether a connection may be handed over to this protocol (`Upgrade`, and `:protocol` of HTTP/2's extended CONNECT).
///
/// Not to one that carries HTTP: in its tunnel requests would reach the server that no rule has seen. RFC 9113 section 3.1
/// has ended `h2c`, and no client needs the others.
pub fn may_upgrade_to(protocol: &[u8]) -> bool {
    let begins = |word: &[u8]| protocol.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    !(begins(b"h2") || begins(b"http/") || begins(b"tls/"))
}

/// Takes out of a message to be sent what ends with the connection it came on: `Connection`, `Keep-Alive`,
/// `Proxy-Connection`, and of `TE` all but `trailers`, which we can keep. `Upgrade` stays when `upgrade` is set, and the
/// caller writes the `Connection: upgrade` of its own side.
pub fn remove_hop_by_hop(fields: &mut Fields, upgrade: bool) {
    if fields.has(Known::Te) {
        // Each field for itself, and in lower case alone, as HAProxy reads it.
        let accept_trailers =
            fields.all_known(Known::Te).filter(|v| list(v).any(|coding| coding == b"trailers")).count();
        fields.remove_known(Known::Te);
        for _ in 0..accept_trailers {
            fields.append(b"te", b"trailers").expect("a token and a token");
        }
    }
    fields.remove_known(Known::Connection);
    fields.remove_known(Known::KeepAlive);
    fields.remove_known(Known::ProxyConnection);
    fields.remove_known(Known::Http2Settings);
    if !upgrade {
        fields.remove_known(Known::Upgrade);
    }
}

/// Writes the `Connection` field of our own side, in the words HAProxy uses: nothing where the version's default says it already.
/// `version` is that of the message to be sent, `peer` that of its recipient.
pub fn set_connection(fields: &mut Fields, version: Version, peer: Version, persistence: Persistence, upgrade: bool) {
    let value: &[u8] = match persistence {
        _ if upgrade => b"upgrade",
        Persistence::Close if version != Version::Http10 => b"close",
        Persistence::KeepAlive if version == Version::Http10 || peer == Version::Http10 => b"keep-alive",
        _ => return,
    };
    fields.set(b"connection", value).expect("a token and a token");
}

/// Whether the client waits for `100 Continue` before it sends its body (RFC 9110 section 10.1.1).
pub fn expects_continue(head: &RequestHead) -> bool {
    head.version() != Version::Http10
        && head.fields.all_known(Known::Expect).any(|value| value.eq_ignore_ascii_case(b"100-continue"))
}
