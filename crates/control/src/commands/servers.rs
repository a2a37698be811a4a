//! Commands about servers and their backends.

use crate::{Args, Level, Refusal, table::Entry};
use std::net::IpAddr;

/// A command about servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Servers {
    /// Lists the backends.
    Backends {
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Shows the state of servers that a reload preserves, for one backend or all.
    State {
        /// The backend's name.
        backend: Option<String>,
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Shows connections to servers, for one backend or all.
    Connections {
        /// The backend's name.
        backend: Option<String>,
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Shows the weight of a server, by `backend/server`.
    Weight(String),
    /// Changes a server, by `backend/server`; the refusal is reported only once the server has been found.
    Set(String, Result<Change, Refusal>),
}

/// A change to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Puts it in service.
    Ready,
    /// Accepts no new clients.
    Drain,
    /// Takes it out of service.
    Maint,
    /// Sets its weight, as written: a number, or a percentage of the configured one.
    Weight(String),
    /// Sets its limit of connections, as written.
    MaxConn(String),
    /// Sets the result of its checks.
    Health(Health),
    /// Sets the result of its agent, up or down; `None` if the word says neither.
    Agent(Option<bool>),
    /// Enables or disables its checks.
    Checked(bool),
    /// Enables or disables its agent.
    AgentAsked(bool),
    /// Changes its address.
    Address {
        /// The address as it was written.
        address: String,
        /// The port as written: a number, or an offset with a sign.
        port: Option<String>,
    },
    /// Changes its host name, which is then resolved.
    Fqdn(String),
    /// Changes the port of its checks, as written.
    CheckPort(String),
    /// Changes the address of its checks, and optionally the port.
    CheckAddress(String, Option<String>),
    /// Changes the address of its agent, and optionally the port.
    AgentAddress(String, Option<String>),
    /// Changes the port of its agent, as written.
    AgentPort(String),
    /// Changes what its agent is sent.
    AgentSend(String),
    /// Enables or disables TLS to it; `None` if the word says neither.
    Tls(Option<bool>),
    /// Ends its sessions.
    ShutdownSessions,
}

/// A result of checks, as set by an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Passed.
    Up,
    /// Passed, but only for clients tied to it.
    Stopping,
    /// Failed.
    Down,
}

const USAGE: &str = "usage: set server <backend>/<server> addr | agent | agent-addr | agent-port | agent-send | check-addr | check-port | \
     fqdn | health | ssl | state | weight";

pub(crate) const ENTRIES: &[Entry<Servers>] = &[
    one("disable agent", "disable agent", "disable agent checks", |args| {
        named(args, |_| Ok(Change::AgentAsked(false)))
    }),
    one("disable health", "disable health", "disable health checks", |args| {
        named(args, |_| Ok(Change::Checked(false)))
    }),
    one(
        "disable server",
        "disable server (DEPRECATED)",
        "disable a server for maintenance (use 'set server' instead)",
        |args| named(args, |_| Ok(Change::Maint)),
    ),
    one("enable agent", "enable agent", "enable agent checks", |args| named(args, |_| Ok(Change::AgentAsked(true)))),
    one("enable health", "enable health", "enable health checks", |args| named(args, |_| Ok(Change::Checked(true)))),
    one(
        "enable server",
        "enable server  (DEPRECATED)",
        "enable a disabled server (use 'set server' instead)",
        |args| named(args, |_| Ok(Change::Ready)),
    ),
    Entry::new("get weight", "get weight <bk>/<srv>", "report a server's current weight", |args| {
        Ok(Servers::Weight(args.word().unwrap_or_default()))
    }),
    one("set maxconn server", "set maxconn server <bk>/<srv>", "change a server's maxconn setting", |args| {
        named(args, |args| Ok(Change::MaxConn(args.require("Require <maxconn>.")?)))
    }),
    one("set server", "set server <bk>/<srv> [opts]", "change a server's state, weight, address or ssl", |args| {
        named(args, change)
    })
    // What is sent to an agent may contain a password.
    .secret_after("agent-send"),
    one(
        "set weight",
        "set weight <bk>/<srv>  (DEPRECATED)",
        "change a server's weight (use 'set server' instead)",
        |args| named(args, weight),
    ),
    Entry::new("show backend", "show backend", "list backends in the current running config", |args| {
        Ok(Servers::Backends { json: args.take("json") })
    }),
    Entry::new(
        "show servers conn",
        "show servers conn [<backend>]",
        "dump server connections status (all or for a single backend)",
        |args| {
            let json = args.take_anywhere("json");
            Ok(Servers::Connections { backend: args.word(), json })
        },
    ),
    Entry::new(
        "show servers state",
        "show servers state [<backend>]",
        "dump volatile server information (all or for a single backend)",
        |args| {
            let json = args.take_anywhere("json");
            Ok(Servers::State { backend: args.word(), json })
        },
    ),
    one("shutdown sessions server", "shutdown sessions server <bk>/<srv>", "kill sessions on a server", |args| {
        named(args, |_| Ok(Change::ShutdownSessions))
    }),
];

const fn one(
    words: &'static str,
    usage: &'static str,
    help: &'static str,
    parse: fn(&mut Args) -> Result<Servers, Refusal>,
) -> Entry<Servers> {
    Entry::new(words, usage, help, parse).level(Level::Admin).changes("server")
}

/// Parses a change of the server that the first argument names; if that is missing, it is reported before any other
/// error.
fn named(args: &mut Args, change: fn(&mut Args) -> Result<Change, Refusal>) -> Result<Servers, Refusal> {
    let server = args.word().unwrap_or_default();
    Ok(Servers::Set(server, change(args)))
}

fn weight(args: &mut Args) -> Result<Change, Refusal> {
    Ok(Change::Weight(args.require("Require <weight> or <weight%>.")?))
}

/// Parses what follows `set server B/S`.
fn change(args: &mut Args) -> Result<Change, Refusal> {
    let what = args.word().unwrap_or_default();
    let port = |args: &mut Args| args.take("port").then(|| args.word().unwrap_or_default());
    match what.as_str() {
        "weight" => weight(args),
        "state" => match args.word().as_deref() {
            Some("ready") => Ok(Change::Ready),
            Some("drain") => Ok(Change::Drain),
            Some("maint") => Ok(Change::Maint),
            _ => Err(Refusal::new("'set server <srv> state' expects 'ready', 'drain' and 'maint'.")),
        },
        "health" => match args.word().as_deref() {
            Some("up") => Ok(Change::Health(Health::Up)),
            Some("stopping") => Ok(Change::Health(Health::Stopping)),
            Some("down") => Ok(Change::Health(Health::Down)),
            _ => Err(Refusal::new("'set server <srv> health' expects 'up', 'stopping', or 'down'.")),
        },
        "agent" => match args.word().as_deref() {
            Some("up") => Ok(Change::Agent(Some(true))),
            Some("down") => Ok(Change::Agent(Some(false))),
            _ => Ok(Change::Agent(None)),
        },
        "addr" => {
            let address = args.require("set server <b>/<s> addr requires an address and optionally a port.")?;
            Ok(Change::Address { address, port: port(args) })
        }
        "fqdn" => Ok(Change::Fqdn(args.require("set server <b>/<s> fqdn requires a FQDN.")?)),
        "check-port" => Ok(Change::CheckPort(args.require("set server <b>/<s> check-port requires a port.")?)),
        "check-addr" => {
            let address = args.require("set server <b>/<s> check-addr requires an address and optionally a port.")?;
            Ok(Change::CheckAddress(address, port(args)))
        }
        "agent-addr" => {
            let address = args.require("set server <b>/<s> agent-addr requires an address and optionally a port.")?;
            Ok(Change::AgentAddress(address, port(args)))
        }
        "agent-port" => Ok(Change::AgentPort(args.require("set server <b>/<s> agent-port requires a port.")?)),
        "agent-send" => Ok(Change::AgentSend(args.word().unwrap_or_default())),
        "ssl" => match args.word().as_deref() {
            Some("on") => Ok(Change::Tls(Some(true))),
            Some("off") => Ok(Change::Tls(Some(false))),
            _ => Ok(Change::Tls(None)),
        },
        _ => Err(Refusal::new(USAGE)),
    }
}

/// Parses an IP address as `set server addr` accepts it: no names.
pub fn address_of(written: &str) -> Option<IpAddr> {
    written.parse().ok()
}
