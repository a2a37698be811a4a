//! Options of sockets that the configuration sets, on either side.

use penstock_config::model::Probes;
use socket2::{SockRef, TcpKeepalive};
use std::{io, str::FromStr, time::Duration};

/// Has the system ask whether a silent peer is still there (`clitcpka-*`, `srvtcpka-*`; tcp(7)). What the configuration leaves open
/// stays as it is, or with `all` becomes the system's again.
pub(crate) fn keep_alive(socket: &SockRef<'_>, probes: Probes, all: bool) -> io::Result<()> {
    let Probes { mut count, mut idle, mut interval } = probes;
    if all {
        count = count.or_else(|| of_system("tcp_keepalive_probes"));
        idle = idle.or_else(|| of_system("tcp_keepalive_time").map(Duration::from_secs));
        interval = interval.or_else(|| of_system("tcp_keepalive_intvl").map(Duration::from_secs));
    }
    let mut keepalive = TcpKeepalive::new();
    if let Some(count) = count {
        keepalive = keepalive.with_retries(count);
    }
    if let Some(idle) = idle {
        keepalive = keepalive.with_time(idle);
    }
    if let Some(interval) = interval {
        keepalive = keepalive.with_interval(interval);
    }
    socket.set_tcp_keepalive(&keepalive)
}

fn of_system<N: FromStr>(name: &str) -> Option<N> {
    std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok()?.trim().parse().ok()
}

/// Sets the sizes of the system's buffers (`tune.rcvbuf.*`, `tune.sndbuf.*`), in bytes; the system doubles them. One that it does
/// not grant leaves its own, as in HAProxy.
pub(crate) fn size_buffers(socket: &SockRef<'_>, receive: Option<u32>, send: Option<u32>) {
    if let Some(size) = receive {
        let _ = socket.set_recv_buffer_size(size as usize);
    }
    if let Some(size) = send {
        let _ = socket.set_send_buffer_size(size as usize);
    }
}
