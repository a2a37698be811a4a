//! Certificates, crt-lists, authorities, revocation lists, OCSP responses and ticket keys, stored by file name like in
//! HAProxy, with references back to the lines that use them; and the runtime API's operations on them.
//!
//! Everything here runs beside the workers, one command at a time. What handshakes read is rebuilt and swapped in once
//! nothing can fail any more, so that a failed command has changed nothing.

mod authorities;
mod certificates;
mod crt_lists;
mod error;
mod files;
mod lines;
mod servers;
mod staples;
mod tickets;

pub use authorities::{AuthorityFile, AuthorityKind, AuthorityView, RevocationView};
pub use certificates::{CertificateFile, CertificateView, Described, NameView, Status};
pub use crt_lists::ListedEntry;
pub use error::{Refusal, StoreError};
pub use lines::check_stores;
pub use staples::{AnswerView, ResponseView, response_key};
pub use tickets::{TICKET_KEYS, TicketKeysView};

pub(crate) use lines::acceptor;
pub(crate) use servers::connector;

use crate::{
    certificate::{Certificate, Extras, Material},
    forge::{Forgeries, Kept},
    tickets::{KeyRing, SessionCache},
};
use authorities::Authority;
use crt_lists::List;
use lines::Line;
use penstock_config::{
    Config, Diagnostics,
    model::{CrtStore, Global},
};
use servers::Server;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// All the files that the TLS settings of a configuration use. Cheap to clone; every clone is the same store.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    settings: Settings,
    state: Mutex<State>,
}

/// What does not change at run time.
struct Settings {
    global: Global,
    crt_stores: Vec<CrtStore>,
    extras: Extras,
    cache: Arc<SessionCache>,
    /// The ticket keys of lines that name no file.
    ring: Arc<KeyRing>,
    /// The certificates made for clients.
    forged: Arc<Kept>,
}

#[derive(Default)]
struct State {
    certificates: BTreeMap<String, Slot>,
    lists: BTreeMap<String, List>,
    /// CA files and CRL files share one set of names.
    authorities: BTreeMap<String, Authority>,
    /// Key rings of `tls-ticket-keys` files, in the order of their first use.
    rings: Vec<(String, Arc<KeyRing>)>,
    lines: Vec<Line>,
    servers: Vec<Server>,
    /// Certificates whose errors have been reported.
    refused: BTreeSet<String>,
    certificate_change: Option<(String, Material)>,
    ca_change: Option<(String, Authority)>,
    crl_change: Option<(String, Authority)>,
    /// A counter for numbering groups and list entries.
    numbers: u64,
}

/// A certificate's place in the store.
#[derive(Default)]
struct Slot {
    /// `None` between `new ssl cert` and its first commit.
    certificate: Option<Arc<Certificate>>,
    /// The lines that present it, and its order among their certificates.
    instances: Vec<(usize, u64)>,
}

impl Store {
    /// An empty store for one configuration. Files are loaded when [`crate::Acceptor::build`] and
    /// [`crate::Connector::build`] come across them.
    pub fn new(config: &Config) -> Store {
        let global = config.global.clone();
        let settings = Settings {
            extras: Extras::new(global.ssl_load_extra_files.as_deref(), global.ssl_load_extra_del_ext),
            cache: SessionCache::new(global.tune.ssl_cachesize as usize, global.tune.ssl_lifetime),
            ring: KeyRing::rotating(global.tune.ssl_lifetime),
            forged: Kept::new(global.tune.ssl_ctx_cache_size as usize),
            crt_stores: config.crt_stores.clone(),
            global,
        };
        Store { inner: Arc::new(Inner { settings, state: Mutex::default() }) }
    }

    /// How often a session was looked for in the cache, and how often it was not there.
    pub fn session_lookups(&self) -> (u64, u64) {
        self.settings().cache.lookups()
    }

    /// How many certificates were made for clients.
    pub fn forgeries(&self) -> Forgeries {
        self.settings().forged.counts()
    }

    fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// A lock suffices: commands are few and short, and none runs on a worker.
    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }
}

/// The errors reported since `from`, as one sentence.
fn complaint(diagnostics: &Diagnostics) -> Option<String> {
    let errors = diagnostics.list.iter().filter(|d| d.severity == penstock_config::Severity::Error);
    let said: Vec<&str> = errors.map(|d| d.message.as_str()).collect();
    (!said.is_empty()).then(|| said.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Acceptor, Memory};
    use penstock_config::{
        Span, Spanned,
        model::{Bind, BindTls},
    };

    fn named(name: &str) -> String {
        let key = rcgen::KeyPair::generate().unwrap();
        let cert = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap().self_signed(&key).unwrap();
        cert.pem() + &key.serialize_pem()
    }

    #[test]
    fn nothing_of_a_replaced_certificate_stays() {
        let store = Store::new(&Config::default());
        let files = Memory([("/a.pem".into(), named("a.test").into_bytes())].into());
        let crt = vec![Spanned { value: "/a.pem".into(), span: Span::default() }];
        let tls = BindTls { crt, ..BindTls::default() };
        let bind = Bind { tls: Some(tls), ..Bind::new(Vec::new(), Span::default()) };
        let said = &mut Diagnostics::default();
        let acceptor = Acceptor::build(&Config::default(), &bind, &store, &files, said).unwrap();
        for number in 0..20 {
            let table = acceptor.live.load_full();
            // Like a handshake, which builds what rustls needs.
            let before = Arc::downgrade(&table.defaults[0].certificate);
            assert!(!table.defaults[0].built().leaf.is_empty());
            drop(table);
            store.set_certificate("/a.pem", &named(&format!("a{number}.test"))).unwrap();
            store.commit_certificate("/a.pem").unwrap();
            assert!(before.upgrade().is_none(), "commit {number}");
        }
        let state = store.state();
        assert_eq!(state.certificates["/a.pem"].instances.len(), 1);
        let table = state.lines[0].live.load();
        let names: Vec<String> = table.names.all().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a19.test", "rcgen self signed cert"]);
        assert_eq!((table.defaults.len(), state.lines[0].instances.len()), (1, 1));
    }
}
