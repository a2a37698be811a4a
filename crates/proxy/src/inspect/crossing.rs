//! Requests that pass a device (`mode http`): sent to it by one exchange, and brought back by another, on a connection to the `bind` lines of
//! the service. A token in a field of the request says which belong together; it is good for one return.

use crate::{process::returning::Awaited, server::Server, servers::private::Own};
use aws_lc_rs::rand;
use penstock_config::model::ProxyId;
use penstock_http::Fields;
use penstock_rules::{ConnFacts, LogFacts, ServerConnFacts, Session, Txn};
use std::{
    collections::HashMap,
    fmt::Write,
    rc::Rc,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::time::Instant;

/// The field that holds the token; in a response, it says that a request was not known where it came back.
pub(crate) const FIELD: &[u8] = b"penstock-return";

/// Distinguishes a request at a device. It cannot be guessed.
type Token = [u8; 16];

/// The requests that are at devices: at most one for each exchange that waits for one.
#[derive(Default)]
pub(crate) struct Crossings(Mutex<HashMap<Token, Crossing>>);

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
    /// Its room among the connections that come back, until it is claimed.
    pub _awaited: Awaited,
}

/// Where the exchange behind a device reports to the one before it.
pub(crate) type Told = Arc<Mutex<Option<Report>>>;

/// What became of a request behind a device.
pub(crate) struct Report {
    /// The status of the response that went to the device.
    pub status: u16,
    /// Whether that was made here: an error page.
    pub made_here: bool,
    pub log: LogFacts,
    pub server: Option<Arc<Server>>,
    pub server_conn: ServerConnFacts,
    pub server_status: Option<u16>,
    /// What services behind the device have said.
    pub verdicts: String,
    pub threat: Option<Vec<u8>>,
}

pub(crate) fn lock(told: &Told) -> MutexGuard<'_, Option<Report>> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Crossings {
    fn all(&self) -> MutexGuard<'_, HashMap<Token, Crossing>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Expects the request to come back; `None` if there is no randomness for a token.
    pub fn expect(self: &Arc<Self>, crossing: Crossing) -> Option<Expected> {
        let mut token = Token::default();
        rand::fill(&mut token).ok()?;
        self.all().insert(token, crossing);
        Some(Expected { crossings: self.clone(), token })
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
        let token = token.filter(|token| all.get(token).is_some_and(|crossing| crossing.service == service))?;
        all.remove(&token)
    }
}

/// A request that is expected to come back. When this is dropped, it no longer is.
pub(crate) struct Expected {
    crossings: Arc<Crossings>,
    token: Token,
}

impl Expected {
    /// The token, as the field holds it.
    pub fn token(&self) -> String {
        let mut text = String::with_capacity(2 * self.token.len());
        for byte in self.token {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
    /// Stops expecting it; whether it had not come back.
    pub fn recall(&self) -> bool {
        self.crossings.all().remove(&self.token).is_some()
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
    pub expected: Expected,
    /// Whether the request has come back, once that is settled.
    pub is_back: Option<bool>,
    pub told: Told,
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
        let expected = &self.expected;
        *self.is_back.get_or_insert_with(|| !expected.recall())
    }
}

/// The exchange has its request from a device.
pub(crate) struct Back {
    pub told: Told,
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

    #[test]
    fn what_no_exchange_waits_for_is_forgotten() {
        let crossings = Arc::new(Crossings::default());
        let token = crossings.expect(crossing()).unwrap().token();
        assert!(crossings.claim(SERVICE, &mut fields(&[&token])).is_none());
        assert!(crossings.all().is_empty());
    }
}
