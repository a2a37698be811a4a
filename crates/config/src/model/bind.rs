//! Where connections come from: `bind` (manual section 5.1).

use crate::{
    model::{Account, BindTls},
    span::{Span, Spanned},
};
use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

/// An address to listen on or to log to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// IP addresses: `*:80`, `127.0.0.1:80`, `[::]:80`, `:::443`, with `first..=last` ports. Port 0 is refused.
    Ip {
        /// The address; `0.0.0.0` where none is given.
        ip: IpAddr,
        /// The first port.
        first: u16,
        /// The last port; equal to the first where no range is given.
        last: u16,
    },
    /// A host name, `host:80`, resolved at start.
    Host {
        /// The host's name.
        host: String,
        /// The first port.
        first: u16,
        /// The last port.
        last: u16,
    },
    /// `unix@/path` or `/path`.
    Unix(PathBuf),
    /// `abns@name`, with the zeros behind it, or `abnsz@name`.
    Abstract(String),
    /// `fd@3`: an inherited listening descriptor.
    Fd(i32),
}

impl ListenAddress {
    /// How many sockets it stands for: one for each of its ports.
    fn sockets(&self) -> u32 {
        match self {
            ListenAddress::Ip { first, last, .. } | ListenAddress::Host { first, last, .. } => {
                u32::from(last.saturating_sub(*first)) + 1
            }
            ListenAddress::Unix(_) | ListenAddress::Abstract(_) | ListenAddress::Fd(_) => 1,
        }
    }

    /// The place among these of the socket with this local address, if it is one of them.
    fn place_of(&self, local: SocketAddr) -> Option<u32> {
        let (first, last) = match self {
            ListenAddress::Ip { ip, first, last } => {
                let is_here = match (ip, local.ip().to_canonical()) {
                    (IpAddr::V6(any), _) if any.is_unspecified() => true,
                    (any, here) if any.is_unspecified() => here.is_ipv4(),
                    (ip, here) => ip.to_canonical() == here,
                };
                is_here.then_some((*first, *last))?
            }
            // Its address was found out at start.
            ListenAddress::Host { first, last, .. } => (*first, *last),
            ListenAddress::Unix(_) | ListenAddress::Abstract(_) | ListenAddress::Fd(_) => return None,
        };
        (first..=last).contains(&local.port()).then(|| u32::from(local.port() - first))
    }
}

impl Bind {
    /// The number of the socket on which a connection has this local address, of the `bind` line that is the last of these. As in HAProxy, sockets
    /// without an `id` are numbered through the lines of a frontend, from 1, one for each address and port.
    pub fn listener_id(lines: &[Bind], local: Option<SocketAddr>) -> u32 {
        let Some((own, before)) = lines.split_last() else { return 0 };
        if let Some(id) = own.id {
            return id;
        }
        let sockets = |line: &Bind| line.addresses.iter().map(|address| address.value.sockets()).sum::<u32>();
        let mut number = 1 + before.iter().map(sockets).sum::<u32>();
        let first = number;
        for address in &own.addresses {
            if let Some(place) = local.and_then(|local| address.value.place_of(local)) {
                return number + place;
            }
            number += address.value.sockets();
        }
        first
    }
}

/// A name in the abstract namespace as it is written: `abnsz@` has no zeros behind it.
pub fn shown_abstract(name: &str) -> String {
    match name.trim_end_matches('\0') {
        bare if bare.len() < name.len() => format!("abns@{bare}"),
        bare => format!("abnsz@{bare}"),
    }
}

/// `bind`.
#[derive(Clone, Debug)]
pub struct Bind {
    /// The addresses, separated by commas in the file.
    pub addresses: Vec<Spanned<ListenAddress>>,
    /// `name`.
    pub name: Option<String>,
    /// `ssl` and everything that belongs to it; `None` for clear text.
    pub tls: Option<BindTls>,
    /// What belongs to `ssl` on a line without it: without effect, but its files have to be there.
    pub idle_tls: Option<BindTls>,
    /// `ssl-on-connect`: TLS begins inside a CONNECT, and everything else is in clear text.
    pub ssl_on_connect: bool,
    /// `accept-proxy`.
    pub accept_proxy: bool,
    /// `interface`.
    pub interface: Option<String>,
    /// `namespace`: the network namespace to listen in, if it is another one.
    pub namespace: Option<Spanned<String>>,
    /// `backlog`.
    pub backlog: Option<u32>,
    /// `maxconn`.
    pub maxconn: Option<u32>,
    /// `v6only`.
    pub v6only: bool,
    /// `v4v6`.
    pub v4v6: bool,
    /// `transparent`.
    pub transparent: bool,
    /// `defer-accept`.
    pub defer_accept: bool,
    /// `tfo`.
    pub tfo: bool,
    /// `tcp-ut`.
    pub tcp_ut: Option<Duration>,
    /// `mss`.
    pub mss: Option<u32>,
    /// `proto h2` on clear text: prior-knowledge HTTP/2.
    pub proto: Option<String>,
    /// `mode` of a unix socket, octal.
    pub mode: Option<u32>,
    /// `user` or `uid` of a unix socket.
    pub user: Option<Account>,
    /// `group` or `gid` of a unix socket.
    pub group: Option<Account>,
    /// `id`.
    pub id: Option<u32>,
    /// `guid-prefix`: its sockets are called by it, `-` and their place on the line.
    pub guid_prefix: Option<Spanned<String>>,
    /// Where the `bind` line is in the configuration.
    pub span: Span,
}

impl Bind {
    /// A socket with every setting at its default.
    pub fn new(addresses: Vec<Spanned<ListenAddress>>, span: Span) -> Self {
        Bind {
            addresses,
            name: None,
            tls: None,
            idle_tls: None,
            ssl_on_connect: false,
            accept_proxy: false,
            interface: None,
            namespace: None,
            backlog: None,
            maxconn: None,
            v6only: false,
            v4v6: false,
            transparent: false,
            defer_accept: false,
            tfo: false,
            tcp_ut: None,
            mss: None,
            proto: None,
            mode: None,
            user: None,
            group: None,
            id: None,
            guid_prefix: None,
            span,
        }
    }

    /// Offers HTTP/2 and HTTP/1.1 over TLS, or the one that `proto` names, unless the line says what it offers (manual of 3.0,
    /// section 5.1, `alpn`).
    pub(crate) fn offer_http(&mut self) {
        let Some(tls) = &mut self.tls else { return };
        let offered: &[&str] = match self.proto.as_deref() {
            Some("h1") => &["http/1.1"],
            Some("h2") => &["h2"],
            _ => &["h2", "http/1.1"],
        };
        tls.conf.alpn.get_or_insert_with(|| offered.iter().map(|&name| name.to_owned()).collect());
    }
}
