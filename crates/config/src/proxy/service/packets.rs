//! A service in mode tcp: what its lines cannot have, since the device sees packets, and is no end of a connection.

use crate::{
    args::{Parsed, Reported},
    model::{Bind, ListenAddress, Proxy, Server, ServerHost, ServerNamespace, ServerPort},
    surroundings::Surroundings,
};
use std::net::IpAddr;

pub(super) fn check(proxy: &Proxy, around: &mut Surroundings) -> Parsed {
    for bind in &proxy.binds {
        let word = match bind {
            Bind { tls: Some(_), .. } => "ssl",
            Bind { accept_proxy: true, .. } => "accept-proxy",
            Bind { proto: Some(_), .. } => "proto",
            _ => continue,
        };
        around
            .diagnostics
            .error(bind.span, format!("'{word}' cannot be on a 'bind' line of a service in mode tcp"))
            .hint("what comes back there is what was sent to the device, in the clear");
        return Err(Reported);
    }
    for server in &proxy.servers {
        let settings = &server.settings;
        let word = match settings {
            settings if settings.prepared_tls().is_some() => "ssl",
            settings if settings.proxy_header_version().is_some() => "send-proxy",
            settings if settings.proto.is_some() => "proto",
            _ => "",
        };
        if !word.is_empty() {
            around
                .diagnostics
                .error(server.span, format!("'{word}' cannot be on a 'server' line of a service in mode tcp"))
                .hint("the device sees what clients and servers say, in the clear, and nothing else");
            return Err(Reported);
        }
        let ServerHost::Ip(ip) = server.host else {
            around
                .diagnostics
                .error(server.span, "a server of a service in mode tcp needs an IP address")
                .hint("write the address of the service's 'bind' line, to which the device passes packets on");
            return Err(Reported);
        };
        if let Some(bind) = proxy.binds.iter().find(|bind| is_direct(server, ip, bind)) {
            around
                .diagnostics
                .error(server.span, "what is sent there arrives at the service's 'bind' line without passing a device")
                .hint(format!(
                    "that is at line {}: one of them has to be in another network namespace",
                    bind.span.line
                ));
            return Err(Reported);
        }
        if let ServerPort::Fixed(port) = server.port
            && !proxy.binds.iter().any(|bind| may_arrive(bind, ip, port))
        {
            around
                .diagnostics
                .warning(server.span, "what is sent there comes back to no 'bind' line of this service")
                .hint("the address is that of the 'bind' line at the other side of the device");
        }
    }
    Ok(())
}

/// Whether a connection to this address may be one to the `bind` line.
fn may_arrive(bind: &Bind, to: IpAddr, port: u16) -> bool {
    bind.addresses.iter().any(|address| match &address.value {
        ListenAddress::Ip { ip, first, last } => {
            (*first..=*last).contains(&port) && (*ip == to || ip.is_unspecified() || bind.transparent)
        }
        // What they are is not known yet.
        _ => true,
    })
}

/// Whether the server's address is that of the `bind` line, in the same network namespace.
fn is_direct(server: &Server, to: IpAddr, bind: &Bind) -> bool {
    let namespace = match &server.settings.namespace {
        Some(ServerNamespace::Named(name)) => Some(&name.value),
        Some(ServerNamespace::OfClient(_)) => return false,
        None => None,
    };
    let ServerPort::Fixed(port) = server.port else { return false };
    let is_there = |at: &ListenAddress| match at {
        ListenAddress::Ip { ip, first, last } => {
            let is_own = *ip == to || ip.is_unspecified() && to.is_loopback();
            is_own && (*first..=*last).contains(&port)
        }
        _ => false,
    };
    namespace == bind.namespace.as_ref().map(|name| &name.value)
        && bind.addresses.iter().any(|address| is_there(&address.value))
}
