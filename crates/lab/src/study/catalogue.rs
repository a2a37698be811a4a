//! The studies: what each repeats, and the parameters it repeats it with. Everything here is a default.

use crate::load::{Mode, TlsPlan, TlsVersion};
use serde::{Deserialize, Serialize};

/// What a certificate's key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Key {
    /// RSA of 2048 bits.
    Rsa2048,
    /// RSA of 4096 bits.
    Rsa4096,
    /// ECDSA on P-256.
    EcdsaP256,
}

impl Key {
    /// All kinds of key.
    pub const ALL: [Key; 3] = [Key::Rsa2048, Key::Rsa4096, Key::EcdsaP256];

    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Key::Rsa2048 => "RSA-2048",
            Key::Rsa4096 => "RSA-4096",
            Key::EcdsaP256 => "ECDSA P-256",
        }
    }
}

/// The backend of the server under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// No backend: the server answers by itself.
    None,
    /// A backend in clear text.
    Clear,
    /// A backend that speaks TLS: every request is encrypted again.
    Encrypted,
    /// The same, with a certificate for every name it is asked for.
    Named,
}

/// The way from the clients through the server under test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// Clients connect to it, and their TLS ends there.
    #[default]
    Server,
    /// It is an explicit proxy: clients ask it for tunnels, and it decrypts what is in them.
    Tunnel {
        /// How many services it asks about each request and each response.
        services: usize,
        /// What the clients ask for.
        names: Names,
    },
    /// It passes the bytes on.
    Passed,
}

/// The names that clients ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// All the same.
    One,
    /// Each connection one that nobody has asked for before.
    New,
}

/// One kind of work, a group of bars.
#[derive(Clone, Debug)]
pub struct Case {
    /// The case's name in figures and tables.
    pub name: String,
    /// The key of the certificate.
    pub key: Key,
    /// What the client insists on.
    pub tls: TlsPlan,
    /// What one unit of work is.
    pub mode: Mode,
    /// The path that is requested.
    pub path: String,
    /// The kind of server behind that answers.
    pub origin: Origin,
    /// What the server under test does with connections.
    pub way: Way,
    /// Bytes of the body that is expected.
    pub bytes: u64,
}

/// How the load of a cell is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Procedure {
    /// A fixed number of connections, each beginning again when it has finished.
    Connections,
    /// Concurrency is searched for the highest rate at which no unit takes longer than the bound.
    Search,
    /// Arrivals at rising rates, over a network with delay, jitter and loss.
    Rates,
}

/// What the first figure shows, and what is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Units a second.
    Rate,
    /// Gbit/s of bodies.
    Gbits,
    /// CPU time of the server for a unit, µs.
    CpuUs,
}

/// One study.
pub struct Study {
    /// The study's name, as typed.
    pub name: &'static str,
    /// What the study shows, in one line.
    pub doc: &'static str,
    /// How the load is chosen.
    pub procedure: Procedure,
    /// The figure that counts.
    pub measure: Measure,
    /// The kinds of work.
    pub cases: fn() -> Vec<Case>,
    /// Cores of the server, one after the other.
    pub steps: &'static [usize],
    /// Cores are taken from each socket in turn, one of each unless told otherwise.
    pub across_sockets: bool,
    /// Threads of each core, if it has as many.
    pub threads_per_core: usize,
    /// Threads of the clients.
    pub client_threads: usize,
    /// Threads of the backend servers; 0 if there are none.
    pub origin_threads: usize,
    /// Connections at once, over all clients.
    pub connections: usize,
    /// Length of a window, seconds.
    pub seconds: f64,
    /// Windows of each cell, in turns.
    pub rounds: usize,
    /// What a reader must know: where this departs from what it repeats.
    pub note: &'static str,
}

/// All studies.
pub static STUDIES: &[Study] = &[
    Study {
        name: "handshake-modes",
        doc: "full handshakes a second without a request, by mode, cores and threads",
        procedure: Procedure::Connections,
        measure: Measure::Rate,
        cases: || vec![handshake("TLS 1.2 ECDHE-RSA-AES256-GCM-SHA384, RSA-2048", Key::Rsa2048, tls12(AES256_RSA))],
        steps: &[2, 4, 8],
        across_sockets: false,
        threads_per_core: 2,
        client_threads: 16,
        origin_threads: 0,
        // Two sets of 2000 from each of two clients.
        connections: 8000,
        seconds: 300.0,
        rounds: 3,
        note: "",
    },
    Study {
        name: "cores-saved",
        doc: "cores that a fixed rate of full handshakes needs under each mode",
        procedure: Procedure::Connections,
        measure: Measure::Rate,
        cases: || vec![handshake("TLS 1.2 ECDHE-RSA-AES256-GCM-SHA384, RSA-2048", Key::Rsa2048, tls12(AES256_RSA))],
        steps: &[1, 2, 4, 8, 16],
        across_sockets: false,
        threads_per_core: 2,
        client_threads: 16,
        origin_threads: 0,
        connections: 8000,
        seconds: 60.0,
        rounds: 3,
        note: "",
    },
    Study {
        name: "cpu-against-rate",
        doc: "connections a second over the server's CPU use as load rises, with delay, jitter and loss on the way",
        procedure: Procedure::Rates,
        measure: Measure::CpuUs,
        cases: || {
            let name = "TLS 1.2 ECDHE-RSA-AES256-GCM-SHA384, RSA-2048, empty responses";
            vec![request(name, Key::Rsa2048, tls12(AES256_RSA), "/empty", Origin::Clear, 0)]
        },
        // Eight threads, two to a core.
        steps: &[4],
        across_sockets: false,
        threads_per_core: 2,
        client_threads: 16,
        origin_threads: 16,
        connections: 4000,
        seconds: 30.0,
        rounds: 3,
        note: "Delay and jitter are those of a round trip: each direction has half of them; the loss is that of each direction.",
    },
    Study {
        name: "max-rate",
        doc: "the highest rate that is sustained with no latency over the bound, searched by concurrency",
        procedure: Procedure::Search,
        measure: Measure::Rate,
        cases: || {
            let case = |key: Key, suite| {
                let name = format!("ECDHE {}", key.name());
                request(&name, key, tls12(suite), "/handshake", Origin::None, 0)
            };
            vec![case(Key::Rsa2048, AES128_RSA), case(Key::Rsa4096, AES128_RSA), case(Key::EcdsaP256, AES128_ECDSA)]
        },
        steps: &[1],
        across_sockets: true,
        threads_per_core: 1,
        client_threads: 16,
        origin_threads: 0,
        connections: 4096,
        seconds: 120.0,
        rounds: 1,
        note: "TLS 1.2 AES128-GCM-SHA256 stands for the paper's AES-128 with SHA-1, which no server should offer any more.",
    },
    Study {
        name: "core-scaling",
        doc: "that rate for ECDSA by cores, on logarithmic axes, and where it stops being bound by the CPU",
        procedure: Procedure::Search,
        measure: Measure::Rate,
        cases: || {
            let tls = tls12(AES128_ECDSA);
            vec![request("ECDHE ECDSA P-256", Key::EcdsaP256, tls, "/handshake", Origin::None, 0)]
        },
        steps: &[1, 2, 4, 8, 16, 32],
        across_sockets: false,
        threads_per_core: 1,
        client_threads: 32,
        origin_threads: 0,
        connections: 4096,
        seconds: 120.0,
        rounds: 1,
        note: "TLS 1.2 AES128-GCM-SHA256 stands for the paper's AES-128 with SHA-1, which no server should offer any more.",
    },
    Study {
        name: "handshake",
        doc: "one request on each new connection: requests a second, latency percentiles",
        procedure: Procedure::Connections,
        measure: Measure::Rate,
        cases: || {
            let tls = tls13("TLS_AES_256_GCM_SHA384");
            vec![request("TLS 1.3 AES-256-GCM, RSA-2048", Key::Rsa2048, tls, "/handshake", Origin::None, 0)]
        },
        steps: &[8],
        across_sockets: false,
        threads_per_core: 2,
        client_threads: 16,
        origin_threads: 0,
        connections: 1600,
        seconds: 30.0,
        rounds: 5,
        note: "",
    },
    Study {
        name: "throughput",
        doc: "bytes of responses a second over kept connections, by size",
        procedure: Procedure::Connections,
        measure: Measure::Gbits,
        cases: || {
            let case = |(name, bytes): &(&str, u64)| Case {
                mode: Mode::Download,
                ..request(
                    name,
                    Key::Rsa2048,
                    tls13("TLS_AES_256_GCM_SHA384"),
                    &format!("/data_{name}"),
                    Origin::Clear,
                    *bytes,
                )
            };
            SIZES.iter().map(case).collect()
        },
        steps: &[4],
        across_sockets: false,
        threads_per_core: 2,
        client_threads: 8,
        origin_threads: 16,
        connections: 400,
        seconds: 30.0,
        rounds: 3,
        note: "Files come from nginx in clear text behind the server; nginx as a contestant is a proxy too.",
    },
    Study {
        name: "offload",
        doc: "the most HTTPS GET transactions and bytes a second that fixed cores carry, to clear-text servers and re-encrypted",
        procedure: Procedure::Connections,
        measure: Measure::Rate,
        cases: || {
            let tls = || tls12(AES128_RSA);
            let bulk = |name: &str, origin| Case {
                mode: Mode::Download,
                ..request(name, Key::Rsa2048, tls(), "/data_1MB", origin, 1 << 20)
            };
            vec![
                request("GET, new connection, clear", Key::Rsa2048, tls(), "/data_1KB", Origin::Clear, 1 << 10),
                request(
                    "GET, new connection, re-encrypted",
                    Key::Rsa2048,
                    tls(),
                    "/data_1KB",
                    Origin::Encrypted,
                    1 << 10,
                ),
                bulk("1 MB bodies, clear", Origin::Clear),
                bulk("1 MB bodies, re-encrypted", Origin::Encrypted),
            ]
        },
        steps: &[4],
        across_sockets: false,
        threads_per_core: 2,
        client_threads: 16,
        origin_threads: 16,
        connections: 1000,
        seconds: 60.0,
        rounds: 3,
        note: "TLS 1.2 ECDHE-RSA-AES128-GCM-SHA256 with RSA-2048. A transaction is a new connection, a full handshake and one GET. nginx \
               keeps its connections to the backend servers; the others, by option httpclose, make a new one for each transaction.",
    },
    Study {
        name: "orchestration",
        doc: "transactions and bytes a second that fixed cores decrypt, have inspected by a chain of services, and encrypt again; forging; bypass",
        procedure: Procedure::Connections,
        measure: Measure::Rate,
        cases: orchestration,
        steps: &[4],
        across_sockets: false,
        threads_per_core: 2,
        client_threads: 16,
        origin_threads: 16,
        connections: 64,
        seconds: 30.0,
        rounds: 5,
        note: "TLS 1.3 with AES-128-GCM is what clients offer. A transaction is a new connection, a full handshake and one GET. 'Clear' is a server that ends \
               TLS; all else, up to 'passed on', is an explicit proxy: clients ask for a tunnel by CONNECT, the proxy validates the server, presents a \
               certificate that its authority (of the key's kind) has signed, and passes requests and responses each through so many services, \
               c-icap's echo by ICAP; 1 MB bodies are on kept connections. With 'new names' every connection asks for a name that nobody has asked \
               for before; SSLsplit, which knows no tunnels, is connected to directly, and asks for another key share than it is sent. 'Passed on' is penstock with a rule on the ClientHello that bypasses decryption and the chain, beside penstock-tcp.",
    },
];

fn orchestration() -> Vec<Case> {
    let tls = || tls13("TLS_AES_128_GCM_SHA256");
    let get = |what: &str, key, origin, way| Case {
        way,
        ..request(&format!("GET: {what}"), key, tls(), "/data_1KB", origin, 1 << 10)
    };
    let bulk = |what: &str, origin, way| Case {
        mode: Mode::Download,
        way,
        ..request(&format!("1 MB: {what}"), Key::Rsa2048, tls(), "/data_1MB", origin, 1 << 20)
    };
    let one = |services| Way::Tunnel { services, names: Names::One };
    // SSLsplit's only group is P-256.
    let forged = |what: &str, key| {
        let mut case = get(what, key, Origin::Named, Way::Tunnel { services: 0, names: Names::New });
        case.tls.groups.push("p256".into());
        case
    };
    let (rsa, encrypted) = (Key::Rsa2048, Origin::Encrypted);
    vec![
        get("clear", rsa, Origin::Clear, Way::Server),
        get("re-encrypted", rsa, encrypted, one(0)),
        get("one service", rsa, encrypted, one(1)),
        get("two services", rsa, encrypted, one(2)),
        get("three services", rsa, encrypted, one(3)),
        forged("new names, RSA-2048", rsa),
        forged("new names, ECDSA P-256", Key::EcdsaP256),
        bulk("clear", Origin::Clear, Way::Server),
        bulk("re-encrypted", encrypted, one(0)),
        bulk("one service", encrypted, one(1)),
        bulk("two services", encrypted, one(2)),
        bulk("three services", encrypted, one(3)),
        get("passed on", rsa, encrypted, Way::Passed),
    ]
}

/// The files of the throughput study.
pub const SIZES: [(&str, u64); 10] = [
    ("1KB", 1 << 10),
    ("2KB", 2 << 10),
    ("4KB", 4 << 10),
    ("10KB", 10 << 10),
    ("100KB", 100 << 10),
    ("512KB", 512 << 10),
    ("1MB", 1 << 20),
    ("2MB", 2 << 20),
    ("4MB", 4 << 20),
    ("10MB", 10 << 20),
];

const AES256_RSA: &str = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384";
const AES128_RSA: &str = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
const AES128_ECDSA: &str = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";

/// The study of this name.
///
/// # Errors
/// If there is no such study; the message lists them.
pub fn find(name: &str) -> Result<&'static Study, String> {
    STUDIES.iter().find(|study| study.name == name).ok_or_else(|| {
        let names: Vec<_> = STUDIES.iter().map(|study| study.name).collect();
        format!("there is no study '{name}': {} are", names.join(", "))
    })
}

fn tls12(suite: &str) -> TlsPlan {
    TlsPlan {
        versions: vec![TlsVersion::V12],
        suites: vec![suite.into()],
        groups: vec!["p256".into()],
        ..TlsPlan::default()
    }
}

fn tls13(suite: &str) -> TlsPlan {
    let groups = vec!["x25519".into()];
    TlsPlan { versions: vec![TlsVersion::V13], suites: vec![suite.into()], groups, ..TlsPlan::default() }
}

fn handshake(name: &str, key: Key, tls: TlsPlan) -> Case {
    Case { mode: Mode::Handshake, ..request(name, key, tls, "/handshake", Origin::None, 0) }
}

fn request(name: &str, key: Key, tls: TlsPlan, path: &str, origin: Origin, bytes: u64) -> Case {
    Case { name: name.into(), key, tls, mode: Mode::Request, path: path.into(), origin, way: Way::Server, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_study_is_found_by_its_name_and_can_be_carried_out() {
        for study in STUDIES {
            let cases = (study.cases)();
            assert!(std::ptr::eq(find(study.name).unwrap(), study) && !cases.is_empty());
            assert!(study.steps.is_sorted() && study.rounds > 0 && study.seconds > 0.0);
            let needs_origin = cases.iter().any(|case| case.origin != Origin::None);
            assert_eq!(needs_origin, study.origin_threads > 0, "{}", study.name);
        }
        assert!(find("handshakes").err().unwrap().contains("handshake-modes, cores-saved"));
    }

    #[test]
    fn the_files_are_those_of_the_paper() {
        let sizes: Vec<&str> = SIZES.iter().map(|(name, _)| *name).collect();
        assert_eq!(sizes, ["1KB", "2KB", "4KB", "10KB", "100KB", "512KB", "1MB", "2MB", "4MB", "10MB"]);
    }
}
