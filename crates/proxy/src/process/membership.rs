//! Servers added and removed while the process runs: `add server` and `del server` of the runtime API.

use super::{
    compiled::Disk,
    handle::{Handle, Inner},
    states::Unused,
};
use crate::{
    server::{AddError, Expressions, Host, Parts, RemoveError, ServerRef},
    servers::{
        checks::plans,
        resolve::{self, at_start},
    },
    worker::control::{Control, Errand},
};
use penstock_config::{
    Diagnostics, Severity,
    model::{self, InitAddr, ProxyId, ServerHost},
};
use penstock_rules::{Compiler, ServerFacts};
use penstock_tls::Connector;
use std::{
    net::IpAddr,
    sync::{Arc, MutexGuard, PoisonError, atomic::Ordering},
    time::Instant,
};

/// Why a server was not added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddServerError {
    /// The words of the command are wrong; the text says how, as a sentence.
    Invalid(String),
    /// The backend does not accept it.
    Refused(AddError),
}

impl Handle {
    /// Adds a server to a backend: `words` are its address and settings, as in a `server` line, on top of the backend's
    /// `default-server`. It starts in maintenance, unless they say `enabled`, and its health is not checked before checks are enabled. A host name
    /// is resolved as its `init-addr` and `resolvers` say, by the system on the caller's thread.
    ///
    /// # Errors
    ///
    /// If there is no such backend, if it cannot accept the server, or if the words are wrong; then nothing has
    /// changed.
    pub fn add_server(&self, backend: &str, name: &str, words: &[String]) -> Result<ServerRef, AddServerError> {
        let shared = self.shared();
        let backend = self.backend(backend).ok_or(AddServerError::Refused(AddError::NoBackend))?;
        if !backend.has_dynamic_weights() {
            return Err(AddServerError::Refused(AddError::Static));
        }
        if backend.server(name).is_some() {
            return Err(AddServerError::Refused(AddError::NameTaken));
        }
        let mut config = shared.config.added_server(backend.proxy, name, words).map_err(AddServerError::Invalid)?;
        let source = Arc::make_mut(&mut config.settings).source.as_mut();
        source.map_or(Ok(()), at_start::resolve_source).map_err(AddServerError::Invalid)?;
        let made = self.inner.make(backend.proxy, &config).map_err(AddServerError::Invalid)?;
        let workers = self.inner.workers.len();
        let parts = |_: ServerRef, id: u32| {
            let facts = ServerFacts { name: config.name.clone(), id };
            let Made { expressions, connector, check_connector, .. } = made;
            Parts { expressions, connector, check_connector, ..Parts::new(facts, workers) }
        };
        let (address, check, agent) = (made.address, made.check, made.agent);
        let server = shared.backends.add(backend.proxy, config.clone(), parts, Instant::now());
        let server = server.map_err(AddServerError::Refused)?;
        match address {
            Address::Fixed => {}
            Address::Found(ip) => shared.backends.set_host(server.at, Some(ip)),
            Address::Unknown => shared.backends.start_unresolved(server.at),
        }
        if let Some(ip) = check {
            at_start::place_check(&server, ip);
        }
        if let Some(ip) = agent {
            at_start::place_agent(&server, ip);
        }
        let at = server.at;
        // Servers that are added before the process serves existed when the states were saved.
        let backend = shared.config.proxies[at.proxy].name.as_str();
        if let Some(saved) = self.unused_states().take(backend, name) {
            shared.backends.restore(at, &saved, Instant::now());
        }
        self.tell_first(Control::Server(server));
        Ok(at)
    }

    /// To be called once the changes from before the start are made: drops the saved states of servers that still do not exist, and
    /// returns a sentence that names them, if there are any.
    pub fn drop_unused_states(&self) -> Option<String> {
        std::mem::take(&mut *self.unused_states()).told()
    }

    fn unused_states(&self) -> MutexGuard<'_, Unused> {
        self.shared().unused_states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes a server: it must be in maintenance, have no requests, and be named by nothing else in the
    /// configuration. Its idle connections are closed within a second.
    ///
    /// # Errors
    ///
    /// If there is no such server, or if it cannot be removed; then nothing has changed.
    pub fn remove_server(&self, backend: &str, name: &str) -> Result<(), RemoveError> {
        let server = self.server(backend, name).ok_or(RemoveError::NoServer)?;
        self.shared().backends.remove(server.at).map(drop)
    }

    /// Gives a server another name, which its `resolvers` section is asked for at once. Returns false if there is no such
    /// server, or if the name is not valid in DNS; then nothing has changed.
    pub fn set_fqdn(&self, at: ServerRef, name: &str) -> bool {
        let Some(server) = self.shared().backends.server(at).filter(|_| resolve::is_name(name)) else { return false };
        server.set_fqdn(Some(name));
        self.tell_first(Control::Errand(Errand::new(move |worker| resolve::resolve_for(worker, &server))));
        true
    }

    /// Tells the worker that checks servers and resolves names. One that has not started yet will see for itself; if it has
    /// ended, so has the process.
    fn tell_first(&self, message: Control) {
        if let Some(worker) = self.inner.workers.first().filter(|_| self.inner.begun.load(Ordering::SeqCst)) {
            let _ = worker.send(message);
        }
    }

    /// Why a server cannot be removed now; `None` if it can.
    pub fn keeps_server(&self, backend: &str, name: &str) -> Option<RemoveError> {
        match self.server(backend, name) {
            Some(server) => self.shared().backends.is_kept(server.at),
            None => Some(RemoveError::NoServer),
        }
    }
}

/// The parts of a server, made before it is visible to anyone.
struct Made {
    expressions: Expressions,
    connector: Option<Connector>,
    check_connector: Option<Connector>,
    address: Address,
    /// The addresses of its checks and of its agent, where they are given as names.
    check: Option<IpAddr>,
    agent: Option<IpAddr>,
}

/// The address of a server that is being added.
enum Address {
    /// An IP address or a socket's path, as written in its line.
    Fixed,
    /// A host name that has been resolved.
    Found(Host),
    /// A host name that has not been resolved yet.
    Unknown,
}

impl Inner {
    fn make(&self, proxy: ProxyId, server: &model::Server) -> Result<Made, String> {
        let shared = &self.shared;
        let mut diagnostics = Diagnostics::default();
        let tls = server.settings.prepared_tls();
        let connector = tls.and_then(|tls| {
            Connector::build(tls, server.span, &shared.certificates, &penstock_tls::Disk, &mut diagnostics)
        });
        let script = shared.program.checks[proxy].as_deref();
        let check_connector = plans::connector(script, server, &shared.certificates, &mut diagnostics);
        let expressions = {
            let mut compiler = Compiler::new(&shared.config, &Disk, &mut diagnostics);
            Expressions::compile(&server.settings, proxy, &mut compiler)
        };
        if let Some(error) = diagnostics.list.iter().find(|found| found.severity == Severity::Error) {
            return Err(error.message.clone());
        }
        let address = address_of(server)?;
        let resolved = |host: Option<&ServerHost>| match host {
            Some(ServerHost::Name(name)) => {
                at_start::system(name).ok_or_else(|| format!("could not resolve address '{name}'.")).map(Some)
            }
            _ => Ok(None),
        };
        let check = resolved(server.settings.check.addr.as_ref())?;
        let agent = resolved(server.settings.agent.as_ref().and_then(|agent| agent.addr.as_ref()))?;
        Ok(Made { expressions, connector, check_connector, address, check, agent })
    }
}

/// Finds the address of a server by the methods of its `init-addr`, in order.
fn address_of(server: &model::Server) -> Result<Address, String> {
    let ServerHost::Name(name) = &server.host else { return Ok(Address::Fixed) };
    let settings = &server.settings;
    let methods = match &settings.init_addr[..] {
        // A `resolvers` section will find it; nothing waits for the system's resolver.
        [] if settings.resolvers.is_some() => &[InitAddr::None][..],
        [] => &[InitAddr::Last, InitAddr::Libc],
        given => given,
    };
    let found = methods.iter().find_map(|method| match method {
        InitAddr::Last => None,
        InitAddr::Libc => at_start::system(name).map(|ip| Address::Found(Host::Ip(ip))),
        InitAddr::Ip(ip) => Some(Address::Found(Host::Ip(*ip))),
        InitAddr::None => Some(Address::Unknown),
    });
    found.ok_or_else(|| format!("could not resolve address '{name}'."))
}
