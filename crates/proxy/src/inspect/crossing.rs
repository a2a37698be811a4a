//! Requests that pass a device (`mode http`): sent to it by one exchange, and brought back by another, on a connection to the `bind` lines of
//! the service. A token in a field of the request says which belong together; it is good for one return.
//!
//! A device of packets (`mode tcp`) passes on a connection itself: what arrives has the addresses of what was sent, and is recognised by them.

use crate::{process::returning::Awaited, server::Server, servers::private::Own};
use aws_lc_rs::rand;
use penstock_config::model::ProxyId;
use penstock_http::{Fields, OwnTarget};
use penstock_rules::{ConnFacts, LogFacts, ServerConnFacts, Session, Txn};
use std::{
    collections::{HashMap, hash_map::Entry},
    fmt::Write,
    net::SocketAddr,
    pin::pin,
    rc::Rc,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

/// The field that holds the token; in a response, it says that a request was not known where it came back.
pub(crate) const FIELD: &[u8] = b"penstock-return";

/// Distinguishes a request at a device. It cannot be guessed.
type Token = [u8; 16];

/// The two ends of a connection that a device passes on: they are the same on both of its sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Path {
    from: SocketAddr,
    to: SocketAddr,
}

impl Path {
    /// `None` if the connection is not one of IP.
    pub fn new(from: Option<SocketAddr>, to: Option<SocketAddr>) -> Option<Path> {
        // A socket for both kinds of addresses shows those of IPv4 as mapped ones, and its peer's does not.
        let plain = |at: SocketAddr| SocketAddr::new(at.ip().to_canonical(), at.port());
        Some(Path { from: plain(from?), to: plain(to?) })
    }
}

/// What distinguishes something that is at a device.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Mark {
    Token(Token),
    Path(ProxyId, Path),
}

/// What is at devices: at most one for each exchange that waits for one.
#[derive(Default)]
pub(crate) struct Crossings {
    all: Mutex<HashMap<Mark, Crossing>>,
    /// Wakes those who have a connection and do not know it yet.
    added: Notify,
}

/// What the exchange that brings a request back is to know of the one that sent it.
pub(crate) struct Crossing {
    pub service: ProxyId,
    pub frontend: ProxyId,
    pub bind: usize,
    pub facts: ConnFacts,
    pub session: Session,
    /// Requests before this one on the client's connection.
    pub requests: u64,
    pub backend: ProxyId,
    pub txn: Txn,
    pub told: Told,
    /// The request's own target, if a proxy was asked for it by another one.
    pub own_target: Option<OwnTarget>,
    /// Of a connection in `mode tcp`: who waits for it to be connected to its server.
    pub stream: Option<oneshot::Sender<Report>>,
    /// Its room among the connections that come back, until it is claimed.
    pub _awaited: Awaited,
}

/// Where the exchange behind a device reports to the one before it.
pub(crate) type Told = Arc<Mutex<Option<Report>>>;

/// What became of a request behind a device.
pub(crate) struct Report {
    /// The status of the response that went to the device.
    pub status: u16,
    /// What tells whether the body is another one.
    pub body: BodyFacts,
    /// Whether that was made here: an error page; of a connection, whether it has no server.
    pub made_here: bool,
    pub log: LogFacts,
    pub server: Option<Arc<Server>>,
    pub server_conn: ServerConnFacts,
    pub server_status: Option<u16>,
    /// What services behind the device have said.
    pub verdicts: String,
    pub threat: Option<Vec<u8>>,
}

/// What a response says of its body.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct BodyFacts {
    length: Option<Vec<u8>>,
    encoding: Option<Vec<u8>>,
    etag: Option<Vec<u8>>,
}

impl BodyFacts {
    pub fn of(fields: &Fields) -> BodyFacts {
        let said = |name: &[u8]| fields.get(name).map(<[u8]>::to_vec);
        BodyFacts { length: said(b"content-length"), encoding: said(b"content-encoding"), etag: said(b"etag") }
    }
    /// Whether these facts are about two bodies. What one of them does not say may be the same.
    pub fn are_of_another(&self, other: &BodyFacts) -> bool {
        let differ = |one: &Option<Vec<u8>>, two: &Option<Vec<u8>>| {
            one.as_ref().zip(two.as_ref()).is_some_and(|(one, two)| one != two)
        };
        differ(&self.length, &other.length) || differ(&self.etag, &other.etag) || self.encoding != other.encoding
    }
}

pub(crate) fn lock(told: &Told) -> MutexGuard<'_, Option<Report>> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Crossings {
    fn all(&self) -> MutexGuard<'_, HashMap<Mark, Crossing>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Expects the request to come back; `None` if there is no randomness for a token.
    pub fn expect(self: &Arc<Self>, crossing: Crossing) -> Option<Expected> {
        let mut token = Token::default();
        rand::fill(&mut token).ok()?;
        let mark = Mark::Token(token);
        self.all().insert(mark, crossing);
        Some(Expected { crossings: self.clone(), mark })
    }
    /// Expects what is sent on a connection to come back on one of the same addresses; `None` if there is another one of them.
    pub fn expect_on(self: &Arc<Self>, path: Path, crossing: Crossing) -> Option<Expected> {
        let mark = Mark::Path(crossing.service, path);
        match self.all().entry(mark) {
            Entry::Occupied(_) => return None,
            Entry::Vacant(place) => place.insert(crossing),
        };
        self.added.notify_waiters();
        Some(Expected { crossings: self.clone(), mark })
    }
    /// Waits until it is known what comes back to the service with these addresses; whether it is a connection in `mode tcp`.
    pub async fn arrival(&self, service: ProxyId, path: Path) -> bool {
        loop {
            let mut added = pin!(self.added.notified());
            added.as_mut().enable();
            if let Some(crossing) = self.all().get(&Mark::Path(service, path)) {
                return crossing.stream.is_some();
            }
            added.await;
        }
    }
    /// What comes back to this service with these addresses. It does so once.
    pub fn claim_on(&self, service: ProxyId, path: Path) -> Option<Crossing> {
        self.all().remove(&Mark::Path(service, path))
    }
    /// The request that comes back to this service with these fields, which lose the token. It does so once.
    pub fn claim(&self, service: ProxyId, fields: &mut Fields) -> Option<Crossing> {
        let token = {
            let mut all = fields.get_all(FIELD);
            let only = all.next().filter(|_| all.next().is_none());
            only.and_then(parse)
        };
        fields.remove(FIELD);
        let mut all = self.all();
        let mark = Mark::Token(token?);
        all.get(&mark).filter(|crossing| crossing.service == service)?;
        all.remove(&mark)
    }
}

/// A request that is expected to come back. When this is dropped, it no longer is.
pub(crate) struct Expected {
    crossings: Arc<Crossings>,
    mark: Mark,
}

impl Expected {
    /// The token, if there is one, as the field holds it.
    pub fn token(&self) -> String {
        let Mark::Token(token) = self.mark else { return String::new() };
        let mut text = String::with_capacity(2 * token.len());
        for byte in token {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
    /// Stops expecting it; whether it had not come back.
    pub fn recall(&self) -> bool {
        self.crossings.all().remove(&self.mark).is_some()
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.recall();
    }
}

fn parse(text: &[u8]) -> Option<Token> {
    let text = std::str::from_utf8(text).ok()?;
    let mut token = Token::default();
    if text.len() != 2 * token.len() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in token.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(token)
}

/// An exchange's part in the way of a request through devices. One that a device has brought back may send it to the next.
#[derive(Default)]
pub(crate) struct Passage {
    pub out: Option<Box<Out>>,
    pub back: Option<Box<Back>>,
}

/// The exchange has sent its request to a device.
pub(crate) struct Out {
    pub service: ProxyId,
    pub server: Arc<Server>,
    pub since: Instant,
    /// `None` as long as the connection is not there by whose addresses it is recognised.
    pub expected: Option<Expected>,
    /// What is expected once it is.
    pub pending: Option<Box<Crossing>>,
    /// Whether it is recognised by its connection, which then carries nothing else.
    pub is_by_path: bool,
    /// Whether the request has come back, once that is settled.
    pub is_back: Option<bool>,
    pub told: Told,
    /// The request's own target, if a proxy was asked for it by another one.
    pub own_target: Option<OwnTarget>,
    /// Whether the device has the response from elsewhere, although the request has not come back.
    pub is_elsewhere: bool,
    /// Whether the response that is sent on was made by us behind the device, which no rules for responses of servers see.
    pub made_here: bool,
    /// How long the device took, once it has answered: to have a place, to be connected to, to answer. The log shows what the server
    /// took instead.
    pub waited: Option<[i64; 3]>,
    /// How long the server took to answer.
    pub server_answered: i64,
    /// The connection to the server, for the log.
    pub server_conn: ServerConnFacts,
}

impl Out {
    /// Whether the request has come back from the device. From now on it does not any more.
    pub fn has_come_back(&mut self) -> bool {
        let expected = self.expected.as_ref();
        *self.is_back.get_or_insert_with(|| expected.is_some_and(|expected| !expected.recall()))
    }
    /// Whether the device has nothing to answer yet: the request has come back from it, and the server behind has not answered. From now on it
    /// does not come back any more.
    pub fn waits_for_its_server(&mut self) -> bool {
        self.has_come_back() && lock(&self.told).is_none()
    }
}

/// The exchange has its request from a device.
pub(crate) struct Back {
    pub told: Told,
    /// Of a connection in `mode tcp`: who waits for it to be connected to its server.
    pub stream: Option<oneshot::Sender<Report>>,
    pub of_device: OfDevice,
}

/// The connection with a device, while its exchange is carried out in the name of the client's.
pub(crate) struct OfDevice {
    pub frontend: ProxyId,
    pub bind: usize,
    pub facts: ConnFacts,
    pub session: Session,
    pub requests: u64,
    pub own: Rc<Own>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::returning::Returning;

    const SERVICE: ProxyId = ProxyId(1);

    fn crossing() -> Crossing {
        Crossing {
            service: SERVICE,
            frontend: ProxyId(0),
            bind: 0,
            facts: ConnFacts::default(),
            session: Session::default(),
            requests: 0,
            backend: ProxyId(2),
            txn: Txn::default(),
            told: Told::default(),
            own_target: None,
            stream: None,
            _awaited: Arc::new(Returning::default()).expect(),
        }
    }

    fn fields(tokens: &[&str]) -> Fields {
        let mut fields = Fields::new();
        fields.append(b"host", b"example.com").unwrap();
        for token in tokens {
            fields.append(FIELD, token.as_bytes()).unwrap();
        }
        fields
    }

    #[test]
    fn a_request_comes_back_once_to_its_service_with_its_token_alone() {
        let crossings = Arc::new(Crossings::default());
        let expected = crossings.expect(crossing()).unwrap();
        let other = crossings.expect(crossing()).unwrap();
        let (token, another, forged) = (expected.token(), other.token(), "0".repeat(32));
        let (token, another, forged) = (token.as_str(), another.as_str(), forged.as_str());
        assert_ne!(token, another);
        let (long, odd) = (format!("{token}0"), "z".repeat(32));
        let wrong: [&[&str]; 6] = [&[], &[forged], &[token, token], &[&token[1..]], &[&long], &[&odd]];
        for wrong in wrong {
            let mut fields = fields(wrong);
            assert!(crossings.claim(SERVICE, &mut fields).is_none(), "{wrong:?}");
            assert_eq!(fields.len(), 1, "what was the token does not go on");
        }
        assert!(crossings.claim(ProxyId(2), &mut fields(&[token])).is_none(), "to another service");
        assert!(crossings.claim(SERVICE, &mut fields(&[token])).is_some());
        assert!(crossings.claim(SERVICE, &mut fields(&[token])).is_none(), "a second time");
        assert!(!expected.recall() && other.recall(), "one came back, the other did not");
        assert!(crossings.claim(SERVICE, &mut fields(&[another])).is_none(), "after it was recalled");
    }

    #[tokio::test]
    async fn what_comes_back_by_its_addresses_does_so_once_to_its_service() {
        let crossings = Arc::new(Crossings::default());
        let path = |from: &str| Path::new(from.parse().ok(), "192.0.2.1:80".parse().ok()).unwrap();
        let (mapped, plain) = (path("[::ffff:192.0.2.9]:1000"), path("192.0.2.9:1000"));
        let waits = crossings.arrival(SERVICE, plain);
        let expected = {
            let mut waits = pin!(waits);
            let known = tokio::time::timeout(std::time::Duration::from_millis(5), waits.as_mut()).await;
            assert!(known.is_err(), "nothing is expected yet");
            let expected = crossings.expect_on(mapped, crossing()).unwrap();
            assert!(!waits.await, "a request, and no stream");
            expected
        };
        assert!(crossings.expect_on(plain, crossing()).is_none(), "another one with these addresses");
        assert!(crossings.claim_on(SERVICE, path("192.0.2.9:1001")).is_none(), "another port");
        assert!(crossings.claim_on(ProxyId(2), plain).is_none(), "to another service");
        assert!(crossings.claim_on(SERVICE, plain).is_some());
        assert!(crossings.claim_on(SERVICE, plain).is_none(), "a second time");
        assert!(!expected.recall());
        drop(crossings.expect_on(plain, crossing()).unwrap());
        assert!(crossings.all().is_empty());
    }

    #[test]
    fn bodies_differ_by_what_is_said_of_them() {
        let facts = |length: &str, encoding: &str, etag: &str| {
            let said = |text: &str| (!text.is_empty()).then(|| text.as_bytes().to_vec());
            BodyFacts { length: said(length), encoding: said(encoding), etag: said(etag) }
        };
        let plain = facts("10", "", "\"a\"");
        for other in
            [facts("11", "", "\"a\""), facts("10", "gzip", "\"a\""), facts("", "", "W/\"a\""), facts("", "gzip", "")]
        {
            assert!(plain.are_of_another(&other) && other.are_of_another(&plain), "{other:?}");
        }
        for same in [facts("10", "", "\"a\""), facts("", "", ""), facts("10", "", "")] {
            assert!(!plain.are_of_another(&same) && !same.are_of_another(&plain), "{same:?}");
        }
    }

    #[test]
    fn what_no_exchange_waits_for_is_forgotten() {
        let crossings = Arc::new(Crossings::default());
        let token = crossings.expect(crossing()).unwrap().token();
        assert!(crossings.claim(SERVICE, &mut fields(&[&token])).is_none());
        assert!(crossings.all().is_empty());
    }
}
