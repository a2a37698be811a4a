//! A way with delay, jitter and loss between client and server, each in a network namespace: by the kernel's netem, or where
//! it has none, by a forwarder of ours between two TUN devices.

use super::{
    contestant::{program, said},
    forwarder::Forwarder,
    place::{Namespace, Placement, inside},
    setup::Network,
};
use std::{
    fs::File,
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
};

/// The network that RFC 2544 sets aside for benchmarks; it is inside the namespaces only.
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
const CLIENT: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// The device on both sides.
const DEVICE: &str = "lab0";

/// Both namespaces and the way between them. Dropping this takes them away.
pub(super) struct Link {
    /// First of the fields, as it must end before the namespaces go.
    _forwarder: Option<Forwarder>,
    network: Network,
    server: Side,
    client: Side,
    how: String,
}

/// A namespace of ours.
struct Side {
    ip: PathBuf,
    name: String,
    handle: Namespace,
}

impl Drop for Side {
    fn drop(&mut self) {
        let _ = said(&self.ip, &["netns", "delete", &self.name]);
    }
}

impl Side {
    fn new(ip: &PathBuf, role: &str) -> Result<Side, String> {
        let name = format!("penstock-bench-{}-{role}", std::process::id());
        command(ip, &format!("netns add {name}"))?;
        let mut side = Side { ip: ip.clone(), name, handle: None };
        let path = format!("/run/netns/{}", side.name);
        let file = File::open(&path).map_err(|e| format!("{path}: {e}"))?;
        side.handle = Some(Arc::new(file.into()));
        side.run("link set lo up")?;
        Ok(side)
    }

    /// `ip`, inside.
    fn run(&self, words: &str) -> Result<(), String> {
        command(&self.ip, &format!("-n {} {words}", self.name))
    }

    fn address(&self, own: Ipv4Addr, peer: Ipv4Addr) -> Result<(), String> {
        self.run(&format!("addr add {own} peer {peer} dev {DEVICE}"))?;
        self.run(&format!("link set {DEVICE} up mtu 1500 txqueuelen 10000"))
    }
}

/// Runs a program; what it says when it fails.
fn command(program: &PathBuf, words: &str) -> Result<(), String> {
    let mut command = Command::new(program);
    let output = command.args(words.split(' ')).stdin(Stdio::null()).output();
    let output = output.map_err(|e| format!("{}: {e}", program.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(format!("{} {words}: {}", program.display(), text.trim()))
}

impl Link {
    /// Makes it.
    ///
    /// # Errors
    /// Only root may; or the system refuses.
    pub(super) fn new(network: &Network, placement: &Placement) -> Result<Link, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("client and server are put into network namespaces, which only root may make".into());
        }
        let ip = program("ip", None).map_err(|why| format!("{why} (iproute2): namespaces are made with it"))?;
        let (server, client) = (Side::new(&ip, "server")?, Side::new(&ip, "client")?);
        let by_kernel =
            if network.own { Err("--own-network was asked for".to_owned()) } else { netem(network, &server, &client) };
        let (how, forwarder) = match by_kernel {
            Ok(()) => ("the kernel's netem on both ends of a veth pair".to_owned(), None),
            Err(why) => {
                let open = |side: &Side| {
                    let opened =
                        inside(&[], &side.handle, || penstock_sys::tun::open(DEVICE)).and_then(|opened| opened);
                    opened.map_err(|e| format!("cannot open a TUN device: {e}"))
                };
                let (near, far) = (open(&client)?, open(&server)?);
                let forwarder = Forwarder::start(near, far, network, &placement.clients)?;
                (
                    format!("penstock's own forwarder between two TUN devices, which keeps packets in order ({why})"),
                    Some(forwarder),
                )
            }
        };
        server.address(SERVER, CLIENT)?;
        client.address(CLIENT, SERVER)?;
        let how = format!("Delay, jitter and loss are made by {how}.");
        Ok(Link { _forwarder: forwarder, network: *network, server, client, how })
    }

    /// The server's namespace.
    pub(super) fn server(&self) -> Namespace {
        self.server.handle.clone()
    }

    /// The client's.
    pub(super) fn client(&self) -> Namespace {
        self.client.handle.clone()
    }

    /// The address on which the server listens.
    #[allow(clippy::unused_self)]
    pub(super) fn address(&self) -> IpAddr {
        IpAddr::V4(SERVER)
    }

    /// A sentence: what makes the delay.
    pub(super) fn how(&self) -> &str {
        &self.how
    }

    /// By name, for the reader.
    pub(super) fn parameters(&self) -> Vec<(String, String)> {
        let ms = |time: std::time::Duration| format!("{} ms", time.as_secs_f64() * 1000.0);
        vec![
            ("delay of a round trip".into(), ms(self.network.delay)),
            ("jitter of a round trip".into(), ms(self.network.jitter)),
            ("loss in each direction".into(), format!("{} %", self.network.loss * 100.0)),
        ]
    }
}

/// A pair of devices, half of everything on each.
fn netem(network: &Network, server: &Side, client: &Side) -> Result<(), String> {
    let tc = program("tc", None)?;
    command(
        &server.ip,
        &format!("link add {DEVICE} netns {} type veth peer name {DEVICE} netns {}", server.name, client.name),
    )?;
    let half = |time: std::time::Duration| time.as_micros() / 2;
    let (delay, jitter, loss) = (half(network.delay), half(network.jitter), network.loss * 100.0);
    for side in [server, client] {
        let words = format!(
            "-n {} qdisc add dev {DEVICE} root netem limit 100000 delay {delay}us {jitter}us loss {loss}%",
            side.name
        );
        if let Err(why) = command(&tc, &words) {
            server.run(&format!("link delete {DEVICE}"))?;
            let why = why.rsplit(": ").next().unwrap_or_default().trim_end_matches('.').to_owned();
            return Err(format!("the kernel has no netem: {why}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
        time::{Duration, Instant},
    };

    fn skipped(why: &str) {
        eprintln!("SKIP: {why}");
        if let Some(path) = std::env::var_os("PENSTOCK_SKIPS") {
            let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
            let _ = file.and_then(|mut file| writeln!(file, "SKIP: {why}"));
        }
    }

    #[test]
    fn a_round_trip_takes_the_delay_and_the_namespaces_go_with_the_link() {
        if !rustix::process::geteuid().is_root() || program("ip", None).is_err() {
            return skipped("network namespaces need root and iproute2");
        }
        let network =
            Network { delay: Duration::from_millis(40), jitter: Duration::from_millis(2), loss: 0.0, own: true };
        let link = Link::new(&network, &Placement::default()).unwrap();
        let names = [link.server.name.clone(), link.client.name.clone()];
        let listener = inside(&[], &link.server(), || TcpListener::bind((SERVER, 0)).unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut byte = [0];
            while stream.read(&mut byte).unwrap() == 1 {
                stream.write_all(&byte).unwrap();
            }
        });
        let began = Instant::now();
        let mut stream = inside(&[], &link.client(), || TcpStream::connect(address).unwrap()).unwrap();
        let connected = began.elapsed();
        let mut trips = Vec::new();
        for _ in 0..10 {
            let began = Instant::now();
            stream.write_all(b"x").unwrap();
            stream.read_exact(&mut [0]).unwrap();
            trips.push(began.elapsed());
        }
        drop(stream);
        answering.join().unwrap();
        // A busy machine makes it longer, nothing makes it shorter.
        let (least, most) = (trips.iter().min().unwrap(), trips.iter().max().unwrap());
        assert!(
            connected >= Duration::from_millis(38) && *least >= Duration::from_millis(38),
            "{connected:?} {trips:?}"
        );
        assert!(*least < Duration::from_millis(60), "{most:?} {trips:?}");
        drop(link);
        for name in names {
            assert!(!std::path::Path::new("/run/netns").join(&name).exists(), "{name} is still there");
        }
    }
}
