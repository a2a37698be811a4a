//! The parameters of a run: the study's own, changed by what was asked for.

use super::catalogue::{Case, Measure, Procedure, Study, find};
use crate::agents::{Address, Identity};
use std::{net::IpAddr, path::PathBuf, time::Duration};

/// What was asked for; whatever is empty is the study's default.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// The study's name.
    pub study: String,
    /// The short form: one core, seconds.
    pub quick: bool,
    /// The directory for the results.
    pub out: PathBuf,
    /// What was typed.
    pub command: String,
    /// Cores of the server, one after the other.
    pub steps: Vec<usize>,
    /// Processors of the server.
    pub server_cores: Vec<u32>,
    /// Processors of the clients.
    pub client_cores: Vec<u32>,
    /// Processors of the backend servers.
    pub origin_cores: Vec<u32>,
    /// The contestants that take part.
    pub contestants: Vec<String>,
    /// Only cases whose names contain one of these.
    pub cases: Vec<String>,
    /// Length of a window.
    pub seconds: Option<f64>,
    /// Windows of each cell.
    pub rounds: Option<usize>,
    /// Connections at once.
    pub connections: Option<usize>,
    /// Rates that are offered.
    pub rates: Vec<f64>,
    /// The rate that cores are counted for.
    pub target_rate: Option<f64>,
    /// No latency over this, seconds.
    pub bound: Option<f64>,
    /// The way between client and server.
    pub network: Network,
    /// Machines that make the load, instead of this one.
    pub agents: Vec<Address>,
    /// This machine's identity towards the agents.
    pub identity: Option<Identity>,
    /// The address on which servers listen; loopback by default.
    pub listen: Option<IpAddr>,
    /// Whether to record call stacks.
    pub perf: bool,
    /// penstock's binary.
    pub penstock: PathBuf,
    /// HAProxy's binary, where it is not found by itself.
    pub haproxy: Option<PathBuf>,
    /// nginx's binary, where it is not found by itself.
    pub nginx: Option<PathBuf>,
    /// Squid's binary, where it is not found by itself.
    pub squid: Option<PathBuf>,
    /// SSLsplit's binary, where it is not found by itself.
    pub sslsplit: Option<PathBuf>,
    /// c-icap's binary, where it is not found by itself.
    pub c_icap: Option<PathBuf>,
    /// The directory of libqat, for penstock's modes with a device.
    pub qat_libraries: Option<PathBuf>,
}

/// Delay, jitter and loss of a way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// The delay of a round trip.
    pub delay: Duration,
    /// How far each packet's delay may be off, of a round trip.
    pub jitter: Duration,
    /// Share of packets that are lost in each direction.
    pub loss: f64,
    /// Whether to use our own forwarder even where the kernel has netem.
    pub own: bool,
}

impl Default for Network {
    fn default() -> Network {
        Network { delay: Duration::from_millis(50), jitter: Duration::from_millis(4), loss: 0.001, own: false }
    }
}

/// The parameters of a run.
pub struct Setup {
    /// The study.
    pub study: &'static Study,
    /// The kinds of work.
    pub cases: Vec<Case>,
    /// Cores of the server, one after the other.
    pub steps: Vec<usize>,
    /// Threads of the clients.
    pub client_threads: usize,
    /// Connections at once, over all clients.
    pub connections: usize,
    /// Length of a window, seconds.
    pub seconds: f64,
    /// Windows of each cell.
    pub rounds: usize,
    /// The longest latency allowed.
    pub bound: Duration,
    /// Rates that are offered; empty: shares of the fastest contestant's.
    pub rates: Vec<f64>,
    /// The number of rates that are offered.
    pub rate_count: usize,
    /// The rate that cores are counted for.
    pub target_rate: Option<f64>,
    /// The way between client and server.
    pub network: Option<Network>,
}

/// Seconds and rates that are believed.
const USABLE: std::ops::RangeInclusive<f64> = 0.01..=1e9;
/// Latency of the rate that counts as sustained, seconds.
const BOUND: f64 = 2.0;
/// The default rate for which cores are counted.
const TARGET_RATE: f64 = 15_000.0;
/// The rate that cores are counted for in the short form: a core of any server of this decade does a few hundred.
const TARGET_RATE_QUICK: f64 = 2000.0;
/// The short form: windows of a second, two of each cell, no more connections than a core has use for.
const QUICK: (f64, usize, usize) = (1.0, 2, 64);

/// Connections in the short form of a study of rates: with a round trip of 50 ms, a core has use for more than `QUICK` says.
const QUICK_FAR: usize = 400;
/// How many rates are offered, up to that of the fastest, in the long form and the short one.
const RATES: (usize, usize) = (8, 3);

impl Setup {
    /// Puts the study's own parameters and the wishes together.
    ///
    /// # Errors
    /// A sentence: there is no such study or case, or a value that nothing can be measured with.
    pub fn new(wish: &Wish) -> Result<Setup, String> {
        let study = find(&wish.study)?;
        let (seconds, rounds, mut connections) =
            if wish.quick { QUICK } else { (study.seconds, study.rounds, study.connections) };
        if wish.quick && study.procedure == Procedure::Rates {
            connections = QUICK_FAR;
        }
        let wanted =
            |case: &Case| wish.cases.is_empty() || wish.cases.iter().any(|part| case.name.contains(part.as_str()));
        let mut cases: Vec<Case> = (study.cases)().into_iter().filter(wanted).collect();
        if cases.is_empty() {
            let names: Vec<String> = (study.cases)().into_iter().map(|case| case.name).collect();
            return Err(format!("'{}' is in the name of no case: {}", wish.cases.join("', '"), names.join("; ")));
        }
        if wish.quick && wish.cases.is_empty() && study.measure == Measure::Gbits {
            // Smallest, middle and largest tell the same in a third of the time.
            cases.retain(|case| ["1KB", "100KB", "10MB"].contains(&case.name.as_str()));
        }
        if study.procedure == Procedure::Rates && !wish.agents.is_empty() {
            return Err(format!("{} makes its own network between client and server: no agents", study.name));
        }
        let steps = match (&wish.steps[..], wish.quick) {
            ([], true) => vec![1],
            ([], false) => study.steps.to_vec(),
            (asked, _) => asked.to_vec(),
        };
        let target_rate = (study.name == "cores-saved")
            .then(|| wish.target_rate.unwrap_or(if wish.quick { TARGET_RATE_QUICK } else { TARGET_RATE }));
        let seconds = wish.seconds.unwrap_or(seconds);
        let bound = wish.bound.unwrap_or(BOUND);
        if let Some(bad) = [seconds, bound]
            .into_iter()
            .chain(wish.rates.iter().copied())
            .chain(wish.target_rate)
            .find(|n| !USABLE.contains(n))
        {
            return Err(format!(
                "nothing can be measured with {bad}: windows, bounds and rates are above zero, and finite"
            ));
        }
        let setup = Setup {
            cases,
            steps,
            client_threads: study.client_threads,
            connections: wish.connections.unwrap_or(connections),
            seconds,
            rounds: wish.rounds.unwrap_or(rounds),
            bound: Duration::from_secs_f64(bound),
            rates: wish.rates.clone(),
            rate_count: if wish.quick { RATES.1 } else { RATES.0 },
            target_rate,
            network: (study.procedure == Procedure::Rates).then_some(wish.network),
            study,
        };
        if setup.steps.is_empty() || setup.steps.contains(&0) || !setup.steps.is_sorted() {
            return Err("cores of the server must rise, from 1".into());
        }
        if setup.rounds == 0 || setup.connections == 0 {
            return Err("nothing can be measured with no rounds or no connections".into());
        }
        Ok(setup)
    }

    /// By name, for the reader.
    #[must_use]
    pub fn parameters(&self) -> Vec<(String, String)> {
        let mut all = vec![
            ("window", format!("{} s", self.seconds)),
            ("windows of each cell, in turns", self.rounds.to_string()),
            (
                "connections at once",
                match self.study.procedure {
                    Procedure::Connections => self.connections.to_string(),
                    Procedure::Search => format!("searched, up to {}", self.connections),
                    Procedure::Rates => format!("as arrivals need, up to {}", self.connections),
                },
            ),
            ("threads of the clients", format!("{}, one a processor at most", self.client_threads)),
        ];
        if self.study.procedure == Procedure::Search {
            all.push(("no latency over", format!("{} s", self.bound.as_secs_f64())));
        }
        if let Some(rate) = self.target_rate {
            all.push(("rate that cores are counted for", format!("{rate}/s")));
        }
        all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(study: &str) -> Wish {
        Wish { study: study.into(), ..Wish::default() }
    }

    #[test]
    fn the_papers_parameters_are_the_defaults() {
        let setup = Setup::new(&wish("handshake")).unwrap();
        assert_eq!((setup.steps.as_slice(), setup.connections, setup.seconds), (&[8][..], 1600, 30.0));
        let setup = Setup::new(&wish("max-rate")).unwrap();
        assert_eq!((setup.bound, setup.seconds, setup.cases.len()), (Duration::from_secs(2), 120.0, 3));
        assert_eq!(Setup::new(&wish("cores-saved")).unwrap().target_rate, Some(15_000.0));
        let network = Setup::new(&wish("cpu-against-rate")).unwrap().network.unwrap();
        assert_eq!(
            (network.delay, network.jitter, network.loss),
            (Duration::from_millis(50), Duration::from_millis(4), 0.001)
        );
    }

    #[test]
    fn what_is_asked_for_wins_over_both_forms() {
        let quick = Setup::new(&Wish { quick: true, ..wish("throughput") }).unwrap();
        assert_eq!((quick.steps.as_slice(), quick.cases.len(), quick.seconds), (&[1][..], 3, 1.0));
        let asked = Wish {
            quick: true,
            seconds: Some(0.2),
            steps: vec![1, 2],
            cases: vec!["2MB".into()],
            ..wish("throughput")
        };
        let setup = Setup::new(&asked).unwrap();
        assert_eq!((setup.seconds, setup.steps, setup.cases.len()), (0.2, vec![1, 2], 1));
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(Setup::new(&wish("x")).is_err());
        assert!(Setup::new(&Wish { steps: vec![2, 1], ..wish("handshake") }).is_err());
        assert!(Setup::new(&Wish { rounds: Some(0), ..wish("handshake") }).is_err());
        assert!(Setup::new(&Wish { seconds: Some(f64::NAN), ..wish("handshake") }).is_err());
        assert!(Setup::new(&Wish { bound: Some(-1.0), ..wish("max-rate") }).is_err());
        let why = Setup::new(&Wish { cases: vec!["3MB".into()], ..wish("throughput") }).err().unwrap();
        assert!(why.contains("'3MB'") && why.contains("10MB"), "{why}");
    }
}
