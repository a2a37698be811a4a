//! What rules may look up in the rest of the process.

use crate::{
    observe::counters::{Part, sum_cells},
    process::{
        fault::{self, Fault},
        handle::State,
    },
    worker::state::Worker,
};
use penstock_backends::server::Operational;
use penstock_config::{Span, model::ProxyId};
use penstock_rules::{BackendLoad, ConnFacts, FrontendLoad, Kind, PacketFields, ServerLoad, ServerRef, TcpInfo, World};
use std::net::{IpAddr, SocketAddr, UdpSocket};

impl World for Worker {
    fn head_bytes(&self) -> usize {
        self.shared.config.global.tune.bufsize
    }

    fn at_rule(&self, rule: Option<(Kind, Span)>) {
        self.pulse().at_rule(rule);
        if rule.is_some() && self.planted == Some(Fault::Rule) {
            fault::spin();
        }
    }

    fn backend(&self, id: ProxyId) -> BackendLoad {
        let Some(backend) = self.shared.backends.get(id) else { return BackendLoad::default() };
        let queued: u32 = backend.servers().iter().map(|server| server.queued()).sum();
        let unbound = backend.waiting_anywhere();
        let (mut free, mut slots) = (0, 0);
        for server in backend.servers().iter().filter(|server| server.is_usable()) {
            let settings = &server.config.settings;
            let (taken, maxconn) = (i64::from(server.served()), settings.conns_max());
            match maxconn {
                0 => free = -1,
                max if free >= 0 => free += (i64::from(max) - taken).max(0),
                _ => {}
            }
            match (maxconn, settings.maxqueue) {
                (0, _) | (_, 0) => slots = -1,
                (max, queue) if slots >= 0 => {
                    slots += i64::from(max) - taken + i64::from(queue) - i64::from(server.queued());
                }
                _ => {}
            }
        }
        BackendLoad {
            usable_servers: backend.usable_servers(),
            conn: backend.sessions(),
            queue: unbound,
            queue_total: unbound + queued,
            sess_rate: self.shared.counters.sum(id, Part::Backend, self.now_ms()).session_rate.rate,
            conn_free: free,
            conn_slots: slots,
        }
    }

    fn frontend(&self, id: ProxyId) -> FrontendLoad {
        let Some(limits) = self.shared.limits.frontends.get(id) else { return FrontendLoad::default() };
        let totals = self.shared.counters.sum(id, Part::Frontend, self.now_ms());
        FrontendLoad {
            conn: limits.frontend.current(),
            sess_rate: totals.session_rate.rate,
            req_rate: totals.request_rate.rate,
        }
    }

    fn listener(&self, id: ProxyId, conn: &ConnFacts) -> u32 {
        let limits = self.shared.limits.frontends.get(id);
        limits.and_then(|limits| limits.binds.get(conn.bind as usize)).map_or(0, |bind| bind.current())
    }

    fn server(&self, at: ServerRef) -> ServerLoad {
        let backend = self.shared.backends.get(at.proxy);
        let found = backend.and_then(|backend| Some((backend.get(at.server)?, backend.view_server(at.server)?)));
        let Some((server, view)) = found else { return ServerLoad::default() };
        let settings = &server.config.settings;
        let free = match settings.conns_max() {
            0 => -1,
            max => (i64::from(max) - i64::from(server.served())).max(0),
        };
        ServerLoad {
            // Whatever its weight, and also while it drains.
            up: !view.status.admin.maint()
                && (view.status.check.is_none() || view.status.state != Operational::Stopped),
            conn: server.served(),
            conn_free: free,
            queue: server.queued(),
            sess_rate: sum_cells(&server.with.cells, self.now_ms()).session_rate.rate,
            weight: view.weight,
            initial_weight: settings.weight,
            user_weight: view.status.weight,
        }
    }

    fn find_backend(&self, name: &[u8]) -> Option<ProxyId> {
        self.shared.program.backend_named(name)
    }

    fn find_server(&self, name: &[u8]) -> Option<ServerRef> {
        let slash = name.iter().position(|byte| *byte == b'/')?;
        let proxy = self.find_backend(&name[..slash])?;
        let backend = self.shared.backends.get(proxy)?;
        let server = backend.server(std::str::from_utf8(&name[slash + 1..]).ok()?)?;
        Some(server.at)
    }

    fn tcp_info(&self, socket: Option<i32>, peer: Option<SocketAddr>) -> Option<TcpInfo> {
        let info = penstock_sys::tcp_info(socket?, peer?)?;
        Some(TcpInfo {
            rtt_us: info.tcpi_rtt,
            rttvar_us: info.tcpi_rttvar,
            unacked: info.tcpi_unacked,
            sacked: info.tcpi_sacked,
            lost: info.tcpi_lost,
            retrans: info.tcpi_retrans,
            fackets: info.tcpi_fackets,
            reordering: info.tcpi_reordering,
        })
    }

    /// Without the right to set it (CAP_NET_ADMIN for marks), packets stay as they are, as in HAProxy.
    fn mark_packets(&self, socket: Option<i32>, peer: Option<SocketAddr>, fields: PacketFields) {
        if let Some((socket, peer)) = socket.zip(peer) {
            let _ = penstock_sys::mark_packets_of(socket, peer, fields.mark, fields.tos);
        }
    }

    fn connections(&self) -> u32 {
        self.shared.limits.process.current()
    }

    /// Each worker has its own sequence.
    fn random(&self) -> u64 {
        self.rng.borrow_mut().u64(..)
    }

    fn utc_offset_s(&self, unix_s: i64) -> i32 {
        // It can only change at the start of a quarter of an hour.
        let quarter = unix_s.div_euclid(900);
        let (known, offset) = self.zone.get();
        if known == quarter {
            return offset;
        }
        let offset = penstock_sys::local_offset(unix_s);
        self.zone.set((quarter, offset));
        offset
    }

    fn hostname(&self) -> &str {
        &self.shared.hostname
    }

    fn pid(&self) -> u32 {
        std::process::id()
    }

    fn thread(&self) -> u32 {
        self.id as u32
    }

    fn stopping(&self) -> bool {
        self.handle.state() != State::Running
    }

    /// The system only lets a socket be bound to a local address.
    fn is_local(&self, ip: IpAddr) -> bool {
        ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()
    }
}
