//! Network namespaces in which sockets are opened, besides the process's own.

use penstock_config::{
    Config, Diagnostics, Span, Spanned,
    model::{Bind, ServerNamespace, ServerSettings},
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use socket2::{Domain, Socket, Type};
use std::{fs::File, io, os::fd::AsFd, path::Path, sync::OnceLock};

/// The namespaces that a configuration names. They are opened before a `chroot`.
#[derive(Debug, Default)]
pub struct Namespaces {
    /// That of the process. Only there if others are.
    own: Option<File>,
    /// Its number, asked for once, since every address of a `bind` line is compared by it.
    own_number: OnceLock<Option<u64>>,
    others: Vec<Namespace>,
}

#[derive(Debug)]
struct Namespace {
    name: String,
    file: File,
    /// The kernel's number for it, if the kernel tells.
    number: Option<u64>,
}

/// Where `ip netns` gives namespaces their names.
const FOLDER: &str = "/var/run/netns";

impl Namespaces {
    /// Opens those that the configuration names; what cannot be opened is an error in `diagnostics`.
    pub(crate) fn open(config: &Config, diagnostics: &mut Diagnostics) -> Self {
        let mut namespaces = Namespaces::default();
        for Spanned { value: name, span } in named(config) {
            if namespaces.find(name).is_none()
                && let Err(e) = namespaces.add(name)
            {
                let message = format!("cannot open the network namespace '{name}': {e}");
                diagnostics.error(*span, message).hint(format!("'ip netns add {name}' makes it"));
            }
        }
        namespaces
    }

    fn add(&mut self, name: &str) -> io::Result<()> {
        let file = File::open(Path::new(FOLDER).join(name))?;
        if self.own.is_none() {
            self.own = Some(File::open("/proc/self/ns/net")?);
        }
        self.others.push(Namespace { name: name.to_owned(), file, number: None });
        // Without the right to enter it, opening a socket in it will say so.
        let probe = self.within(Some(name), || Socket::new(Domain::IPV4, Type::DGRAM.cloexec(), None));
        if let (Ok(Ok(probe)), Some(added)) = (probe, self.others.last_mut()) {
            added.number = penstock_sys::namespace_of(probe.as_fd());
        }
        Ok(())
    }

    fn find(&self, name: &str) -> Option<&Namespace> {
        self.others.iter().find(|namespace| namespace.name == name)
    }

    /// Calls `open` while the calling thread is in a namespace: sockets belong to the one in which they are made.
    ///
    /// # Errors
    /// If there is no such namespace, or the process may not enter it: CAP_SYS_ADMIN is needed.
    pub(crate) fn within<T>(&self, name: Option<&str>, open: impl FnOnce() -> T) -> io::Result<T> {
        let Some(name) = name else { return Ok(open()) };
        let (Some(own), Some(other)) = (&self.own, self.find(name)) else {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("the network namespace '{name}' is not open")));
        };
        let enter = |file: &File| move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network));
        // A thread that may not return does not go.
        enter(own)?;
        enter(&other.file)?;
        let opened = open();
        enter(own).expect("the thread has just been allowed to enter its own namespace");
        Ok(opened)
    }

    /// The kernel's number for the namespace of a `bind` line, or the process's own; `None` if the kernel does not tell.
    pub(crate) fn number_of(&self, bind: &Bind) -> Option<u64> {
        match &bind.namespace {
            Some(name) => self.find(&name.value)?.number,
            None => *self.own_number.get_or_init(|| {
                let probe = Socket::new(Domain::UNIX, Type::DGRAM.cloexec(), None).ok()?;
                penstock_sys::namespace_of(probe.as_fd())
            }),
        }
    }

    /// The name of a socket's namespace, if it is not the process's own.
    pub(crate) fn name_of(&self, socket: impl AsFd) -> Option<&str> {
        if self.others.is_empty() {
            return None;
        }
        let number = penstock_sys::namespace_of(socket.as_fd())?;
        self.others.iter().find(|other| other.number == Some(number)).map(|other| &*other.name)
    }

    /// The namespace that a client's connection comes from: the one that its PROXY header names, if it is known, or else that of
    /// its `bind` line.
    pub(crate) fn of_client<'a>(&'a self, told: Option<&[u8]>, bind: &'a Bind) -> Option<&'a str> {
        let told = told.and_then(|name| std::str::from_utf8(name).ok()).and_then(|name| self.find(name));
        told.map(|namespace| &*namespace.name).or(bind.namespace.as_ref().map(|name| &*name.value))
    }
}

/// The namespace in which connections to a server are made, if it is another one.
pub(crate) fn of_server<'a>(settings: &'a ServerSettings, of_client: Option<&'a str>) -> Option<&'a str> {
    match settings.namespace.as_ref()? {
        ServerNamespace::Named(name) => Some(&name.value),
        ServerNamespace::OfClient(_) => of_client,
    }
}

/// Every namespace that is named, where it is.
fn named(config: &Config) -> impl Iterator<Item = &Spanned<String>> {
    let peers = config.peers.iter().flat_map(|section| &section.binds);
    let logs = config.log_forwards.iter().flat_map(|section| section.binds.iter().chain(&section.datagrams));
    let binds = config.proxies.iter().flat_map(|proxy| &proxy.binds).chain(peers).chain(logs);
    let servers = config.proxies.iter().flat_map(|proxy| &proxy.servers);
    let of_servers = servers.filter_map(|server| match &server.settings.namespace {
        Some(ServerNamespace::Named(name)) => Some(name),
        Some(ServerNamespace::OfClient(_)) | None => None,
    });
    config.namespaces.iter().chain(binds.filter_map(|bind| bind.namespace.as_ref())).chain(of_servers)
}

/// The place of the first server whose connections are made in another namespace.
pub fn first_to_enter(config: &Config) -> Option<Span> {
    let servers = config.proxies.iter().flat_map(|proxy| &proxy.servers);
    servers
        .filter_map(|server| server.settings.namespace.as_ref())
        .map(|namespace| match namespace {
            ServerNamespace::Named(name) => name.span,
            ServerNamespace::OfClient(span) => *span,
        })
        .next()
}
