//! Which server takes a request: `balance` and `hash-type`, with HAProxy's choice in HAProxy's order.
//!
//! A [`Balancer`] is pure and belongs to one backend; [`crate::server::Backend`] keeps it behind one short lock that
//! all workers share. One rotation a worker would need no lock, but then sixteen workers with twenty long connections
//! spread them badly, and the order would not be the one users know; the lock is held for a tree step.

mod first;
mod key;
mod leastconn;
mod map;
mod ring;
mod roundrobin;

pub use key::Subject;

use crate::hash::HashValue as _;
use penstock_config::model::{Balance, HashType};

/// Weights are refined by this factor where they may change while servers run, so that a slow start is smooth.
pub(crate) const WEIGHT_SCALE: u32 = 16;
/// The largest effective weight: 256 refined.
const EFFECTIVE_MAX: u32 = 256 * WEIGHT_SCALE;

/// One server as the algorithms see it.
#[derive(Clone, Debug, Default)]
pub struct Member {
    /// `id`, by which the ring places it and `first` orders it.
    pub id: u32,
    /// `backup`.
    pub backup: bool,
    /// `weight`, as configured or set since.
    pub weight: u32,
    /// `maxconn`, 0 for none.
    pub maxconn: u32,
    /// `minconn`, equal to `maxconn` where the limit is not dynamic.
    pub minconn: u32,
    /// `maxqueue`, 0 for none.
    pub maxqueue: u32,
    /// Requests it serves now.
    pub served: u32,
    /// Requests that wait for it.
    pub queued: u32,
    /// Its slow start, while that lasts.
    pub ramp: Option<Ramp>,
    /// Its state lets it take requests.
    ready: bool,
    /// Its effective weight; none is 0.
    eweight: u32,
    /// The weight of its group that stands before it, for `hash-balance-factor`.
    cumulative: u32,
}

impl Member {
    /// An idle server without limits.
    pub fn new(id: u32, weight: u32, backup: bool) -> Member {
        Member { id, weight, backup, ..Member::default() }
    }

    /// It may be chosen.
    pub fn usable(&self) -> bool {
        self.ready && self.eweight > 0
    }

    /// Its limit now: between `minconn` and `maxconn` by how full the backend is, less during a slow start.
    pub fn limit(&self, load: &Load) -> u32 {
        let full = load.sessions >= load.fullconn || self.minconn == self.maxconn;
        let max = if full {
            self.maxconn
        } else {
            let share = u64::from(load.sessions) * u64::from(self.maxconn) / u64::from(load.fullconn);
            self.minconn.max(u32::try_from(share).unwrap_or(u32::MAX))
        };
        match self.ramp {
            Some(ramp) => (u64::from(max) * u64::from(100 * ramp.elapsed / ramp.whole) / 100).max(1) as u32,
            None => max,
        }
    }

    /// A slot is free and nobody waits for it.
    pub fn has_room(&self, load: &Load) -> bool {
        self.maxconn == 0 || (self.queued == 0 && self.served < self.limit(load))
    }
}

/// How far a slow start has come, in seconds; `whole` is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ramp {
    /// Since the server came up.
    pub elapsed: u32,
    /// `slowstart`.
    pub whole: u32,
}

/// How busy the whole backend is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// Requests that are in the backend, queued ones included.
    pub sessions: u32,
    /// `fullconn`.
    pub fullconn: u32,
}

/// What one choice depends on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Demand {
    /// The hash of its key, where the algorithm has one and the request carries it.
    pub hash: Option<u32>,
    /// The server that just failed this request.
    pub avoid: Option<usize>,
    /// See [`Load`].
    pub load: Load,
}

/// Counts and weights of the servers that may be chosen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Active servers.
    pub active: u32,
    /// Backup servers.
    pub backup: u32,
    /// Effective weight of the active servers.
    pub weight_active: u32,
    /// Effective weight of the backup servers.
    pub weight_backup: u32,
    /// The one backup that serves, unless `allbackups`.
    pub first_backup: Option<usize>,
    /// Effective weight of the group in use.
    pub weight: u32,
    /// Number of servers in use.
    pub used: u32,
}

#[derive(Debug)]
enum Algorithm {
    RoundRobin(roundrobin::RoundRobin),
    LeastConn(leastconn::LeastConn),
    First(first::First),
    /// `static-rr` and the map-based hashes.
    Map(map::Map),
    /// The consistent hashes and `random`.
    Ring(ring::Ring),
}

/// The balancing of one backend.
#[derive(Debug)]
pub struct Balancer {
    members: Vec<Member>,
    totals: Totals,
    algorithm: Algorithm,
    allbackups: bool,
    /// `balance` is by a key.
    hashed: bool,
    /// With one server in use every key counts as 0, found or not: by any key but that of `url_param`. It matters for a
    /// lone backup, whose table has the other backups in it.
    lone_is_zero: bool,
    /// Draws of `random`.
    draws: Option<u32>,
    /// `hash-balance-factor`.
    factor: u32,
    /// Requests served by all servers.
    served: u32,
    /// Weights are divided by `wmult` and multiplied by `wdiv`.
    wmult: u32,
    wdiv: u32,
    random: u64,
}

/// What `balance` says of a whole backend.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `balance`.
    pub balance: Balance,
    /// `hash-type`.
    pub hash_type: HashType,
    /// `hash-balance-factor`.
    pub factor: u32,
    /// `option allbackups`.
    pub allbackups: bool,
    /// Where `random` starts.
    pub seed: u64,
}

impl Balancer {
    /// All `members` are ready; the caller then says which are not.
    pub fn new(settings: &Settings, mut members: Vec<Member>) -> Balancer {
        let (hashed, draws) = match settings.balance {
            Balance::RoundRobin | Balance::StaticRr | Balance::LeastConn | Balance::First => (false, None),
            Balance::Random(draws) => (false, Some(draws.max(1))),
            _ => (true, None),
        };
        let ring = draws.is_some() || hashed && settings.hash_type.consistent;
        let is_map = settings.balance == Balance::StaticRr || hashed && !ring;
        let (wmult, wdiv) = if is_map { (map::common_divisor(&members), 1) } else { (1, WEIGHT_SCALE) };
        for member in &mut members {
            member.ready = true;
            member.eweight = (member.weight * wdiv).div_ceil(wmult);
        }
        let mut balancer = Balancer {
            algorithm: Algorithm::Map(map::Map::default()),
            totals: Totals::default(),
            allbackups: settings.allbackups,
            hashed,
            lone_is_zero: hashed && !matches!(settings.balance, Balance::UrlParam { .. }),
            draws,
            factor: settings.factor,
            served: 0,
            wmult,
            wdiv,
            random: settings.seed | 1,
            members,
        };
        balancer.recount();
        balancer.algorithm = match &settings.balance {
            Balance::RoundRobin => {
                Algorithm::RoundRobin(roundrobin::RoundRobin::new(&balancer.members, &balancer.totals))
            }
            Balance::LeastConn => Algorithm::LeastConn(leastconn::LeastConn::new(&balancer.members)),
            Balance::First => Algorithm::First(first::First::new(&balancer.members)),
            _ if is_map => Algorithm::Map(map::Map::new(&balancer.members, &balancer.totals)),
            _ => Algorithm::Ring(ring::Ring::new(&balancer.members)),
        };
        balancer
    }

    /// The servers.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Counts and weights.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// An effective weight as users write weights.
    pub fn displayed_weight(&self, eweight: u32) -> u32 {
        (eweight * self.wmult).div_ceil(self.wdiv)
    }

    /// The effective weight of a server as users write weights.
    pub fn weight_of(&self, server: usize) -> u32 {
        self.displayed_weight(self.members[server].eweight)
    }

    /// Weights may be changed while servers run, and slow starts have an effect.
    pub fn is_dynamic(&self) -> bool {
        self.wdiv == WEIGHT_SCALE
    }

    /// A full queue of the backend means that every server is full, so that there is no use in looking.
    fn fills_every_server(&self) -> bool {
        matches!(self.algorithm, Algorithm::RoundRobin(_) | Algorithm::First(_))
            || matches!(self.algorithm, Algorithm::Map(_)) && !self.hashed
    }

    /// The server for a request: `None` when none is usable or, for the algorithms that look, when all are full.
    /// `waiting` is the number of requests in the backend's own queue.
    pub fn choose(&mut self, demand: &Demand, waiting: u32) -> Option<usize> {
        if self.totals.weight == 0 {
            return None;
        }
        if waiting > 0 && self.served > 0 && waiting != demand.load.sessions && self.fills_every_server() {
            return None;
        }
        let lone_backup = (self.totals.active == 0).then_some(self.totals.first_backup).flatten();
        match &mut self.algorithm {
            Algorithm::Map(map) if self.totals.used == 1 && self.lone_is_zero => map.by_hash(0),
            Algorithm::Map(map) => match demand.hash.filter(|_| self.hashed) {
                Some(hash) => map.by_hash(hash),
                None => map.rotate(&self.members, demand),
            },
            _ if lone_backup.is_some() && self.draws.is_none() => lone_backup,
            Algorithm::RoundRobin(rotation) => rotation.next(&self.members, &self.totals, demand),
            Algorithm::LeastConn(tree) => tree.next(&self.members, &self.totals, demand),
            Algorithm::First(order) => order.next(&self.members, &self.totals, demand),
            Algorithm::Ring(ring) => {
                let slots = ring::Slots { factor: self.factor, served: self.served, weight: self.totals.weight };
                let group = self.totals.active == 0;
                match (self.draws, demand.hash) {
                    (Some(draws), _) => ring::draw(draws, &self.members, demand, || match lone_backup {
                        Some(server) => Some(server),
                        None => ring.by_hash(group, next_random(&mut self.random), &self.members, demand.avoid, slots),
                    }),
                    (None, Some(hash)) => ring.by_hash(group, hash, &self.members, demand.avoid, slots),
                    (None, None) => ring.rotate(group, &self.members, demand),
                }
            }
        }
    }

    /// A request is given to `server`.
    pub fn take(&mut self, server: usize) {
        self.members[server].served += 1;
        self.served += 1;
        self.reposition(server);
    }

    /// A request given to `server` is over.
    pub fn release(&mut self, server: usize) {
        let member = &mut self.members[server];
        debug_assert!(member.served > 0, "a slot is released once");
        member.served = member.served.saturating_sub(1);
        self.served = self.served.saturating_sub(1);
        self.reposition(server);
    }

    /// `queued` requests wait for `server`.
    pub fn set_queued(&mut self, server: usize, queued: u32) {
        self.members[server].queued = queued;
    }

    /// The limits of `server` were changed.
    pub fn set_limits(&mut self, server: usize, change: impl FnOnce(&mut Member)) {
        change(&mut self.members[server]);
    }

    /// The state or weight of `server` changed. In a slow start only a share of its weight counts, where weights are
    /// dynamic.
    pub fn update(&mut self, server: usize, ready: bool, weight: u32, ramp: Option<Ramp>) {
        let before = self.members[server].clone();
        let member = &mut self.members[server];
        member.ready = ready;
        member.weight = weight;
        member.ramp = ramp;
        let scale = match ramp {
            Some(ramp) if self.wdiv == WEIGHT_SCALE => (self.wdiv * ramp.elapsed + ramp.whole) / ramp.whole,
            _ => self.wdiv,
        };
        member.eweight = (weight * scale).div_ceil(self.wmult).min(EFFECTIVE_MAX);
        if (before.ready, before.eweight) == (member.ready, member.eweight) {
            return;
        }
        self.recount();
        match &mut self.algorithm {
            Algorithm::RoundRobin(rotation) => rotation.update(server, &before, &self.members, &self.totals),
            Algorithm::LeastConn(tree) => tree.update(server, &self.members),
            Algorithm::First(order) => order.update(server, &self.members),
            Algorithm::Map(map) => map.recompute(&self.members, &self.totals),
            Algorithm::Ring(ring) => ring.recompute(&self.members),
        }
    }

    fn reposition(&mut self, server: usize) {
        if let Algorithm::LeastConn(tree) = &mut self.algorithm {
            tree.reposition(server, &self.members);
        }
    }

    /// Which servers count, with what weight, and which backup stands alone.
    fn recount(&mut self) {
        let mut totals = Totals::default();
        for (index, member) in self.members.iter_mut().enumerate() {
            if !member.usable() {
                continue;
            }
            if member.backup {
                if totals.backup == 0 && !self.allbackups {
                    totals.first_backup = Some(index);
                }
                totals.backup += 1;
                member.cumulative = totals.weight_backup;
                totals.weight_backup += member.eweight;
            } else {
                totals.active += 1;
                member.cumulative = totals.weight_active;
                totals.weight_active += member.eweight;
            }
        }
        (totals.weight, totals.used) = match totals.first_backup {
            _ if totals.active > 0 => (totals.weight_active, totals.active),
            Some(lone) => (self.members[lone].eweight, 1),
            None => (totals.weight_backup, totals.backup),
        };
        self.totals = totals;
    }
}

/// xorshift64*: spread, not secrecy.
fn next_random(state: &mut u64) -> u32 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
}

/// The algorithm's name, as statistics show it.
pub fn name(balance: Option<&Balance>) -> &'static str {
    match balance {
        None | Some(Balance::RoundRobin) => "roundrobin",
        Some(Balance::StaticRr) => "static-rr",
        Some(Balance::LeastConn) => "leastconn",
        Some(Balance::First) => "first",
        Some(Balance::Source) => "source",
        Some(Balance::Uri { .. }) => "uri",
        Some(Balance::UrlParam { .. }) => "url_param",
        Some(Balance::Hdr { .. }) => "hdr",
        Some(Balance::Random(_)) => "random",
        Some(Balance::RdpCookie(_)) => "rdp-cookie",
        Some(Balance::Hash(_)) => "hash",
    }
}

/// The algorithm looks at the request: the next choice for the same one would be the same.
pub fn looks_at_requests(balance: Option<&Balance>) -> bool {
    !matches!(
        balance,
        None | Some(Balance::RoundRobin | Balance::StaticRr | Balance::LeastConn | Balance::First | Balance::Random(_))
    )
}

/// The hash of what `balance` looks at in a request; `None` where the algorithm has no key or the request lacks it.
pub fn hash_of(balance: &Balance, hash_type: &HashType, subject: &Subject<'_>) -> Option<u32> {
    if let Balance::Source = balance {
        return subject.source.map(|ip| hash_type.finish(key::fold_address(ip)));
    }
    key::extract(balance, subject).map(|key| hash_type.hash(key))
}

#[cfg(test)]
mod tests;
