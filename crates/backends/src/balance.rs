//! Selects the server for a request: `balance` and `hash-type`, making the same choices in the same order as HAProxy.
//!
//! A [`Balancer`] is pure and belongs to one backend; [`crate::server::Backend`] keeps it behind one short lock that
//! all workers share. A rotation per worker would need no lock, but sixteen workers with twenty long connections would
//! then spread them badly, and the order would not be the one users know. The lock is held for one tree operation.

mod key;

pub use key::Subject;

use crate::hash::HashValue as _;
use penstock_config::model::{Balance, BalanceKey, HashType};

/// The factor by which weights are refined if they may change at run time, so that a slow start is smooth.
const WEIGHT_SCALE: u32 = 16;
/// The largest effective weight: 256, refined.
const EFFECTIVE_MAX: u32 = 256 * WEIGHT_SCALE;

/// One server as the algorithms see it.
#[derive(Clone, Debug, Default)]
pub struct Member {
    /// `id`, which determines its order in `first`.
    pub id: u32,
    /// What determines its places on the ring: its `id`, or its address.
    pub ring_key: u32,
    /// `backup`.
    pub backup: bool,
    /// `weight`, as configured or set at run time.
    pub weight: u32,
    /// `maxconn`; 0 for no limit.
    pub maxconn: u32,
    /// `minconn`; equal to `maxconn` if the limit is not dynamic.
    pub minconn: u32,
    /// `maxqueue`; 0 for no limit.
    pub maxqueue: u32,
    /// How many requests the server is serving.
    pub served: u32,
    /// How many requests wait for the server.
    pub queued: u32,
    /// The progress of the server's slow start; `None` when it is not in one.
    pub ramp: Option<Ramp>,
    /// Whether the server's state lets it take requests.
    ready: bool,
    /// The server's effective weight, scaled as the algorithm needs it; 0 if the server has no weight.
    eweight: u32,
    /// The total weight of the servers before it in its group, for `hash-balance-factor`.
    cumulative: u32,
}

impl Member {
    /// An idle server without limits.
    pub fn new(id: u32, weight: u32, backup: bool) -> Member {
        Member { id, ring_key: ring_key_of_id(id), weight, backup, ..Member::default() }
    }

    /// Whether the server may be chosen: its state allows it and it has weight.
    pub fn usable(&self) -> bool {
        self.ready && self.eweight > 0
    }

    /// The current limit of requests to the server: between `minconn` and `maxconn` depending on the load of the backend, and
    /// during a slow start.
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

    /// Whether the server has a free slot that no queued request is waiting for.
    pub fn has_room(&self, load: &Load) -> bool {
        self.maxconn == 0 || (self.queued == 0 && self.served < self.limit(load))
    }
}

/// The progress of a slow start, in seconds; `whole` is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ramp {
    /// Time since the server came up.
    pub elapsed: u32,
    /// `slowstart`.
    pub whole: u32,
}

/// How busy the whole backend is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// Requests in the backend, including queued ones.
    pub sessions: u32,
    /// `fullconn`.
    pub fullconn: u32,
}

/// What one choice depends on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Demand {
    /// The hash of its key, if the algorithm uses one and the request contains it.
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
    /// The only backup that serves, unless `allbackups` is set.
    pub first_backup: Option<usize>,
    /// Effective weight of the group in use.
    pub weight: u32,
    /// Number of servers in use.
    pub used: u32,
}

/// What the algorithms see: the servers, and sums over them.
#[derive(Clone, Copy)]
struct View<'a> {
    members: &'a [Member],
    totals: &'a Totals,
    /// Requests served by all servers.
    served: u32,
}

impl View<'_> {
    /// Which group is in use: 0 for the active servers, 1 for the backups.
    fn group(&self) -> usize {
        usize::from(self.totals.active == 0)
    }

    /// The backup that replaces all servers on its own.
    fn lone_backup(&self) -> Option<usize> {
        self.totals.first_backup.filter(|_| self.totals.active == 0)
    }
}

/// A balance algorithm. One object serves one backend, behind its lock.
trait Algorithm: std::fmt::Debug + Send {
    /// The server for a request; `None` if the algorithm looks for room and there is none. Only called while some
    /// server is usable.
    fn choose(&mut self, view: View<'_>, demand: &Demand) -> Option<usize>;

    /// Called when the state or weight of `server` has changed; `before` is its previous state.
    fn update(&mut self, server: usize, before: &Member, view: View<'_>);

    /// Called when the number of requests on `server` has changed.
    fn moved(&mut self, _server: usize, _view: View<'_>) {}

    /// Called when a server has another [`Member::ring_key`].
    fn moved_on_ring(&mut self, _view: View<'_>) {}

    /// Drops what is stored about the server in `slot`, which is not ready: another may be put there.
    fn vacated(&mut self, _slot: usize) {}

    /// Whether a queue of the backend implies that every server is full, so that there is no need to look.
    fn fills_every_server(&self) -> bool {
        false
    }
}

/// The table entry of an algorithm.
struct Row {
    /// The word after `balance`.
    name: &'static str,
    /// Whether weights may change at run time.
    weights: fn(&Settings) -> Weights,
    build: fn(&Settings, View<'_>) -> Box<dyn Algorithm>,
}

/// The kinds of weights that algorithms use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weights {
    /// Weights may change at any time, and are refined by [`WEIGHT_SCALE`] so that a slow start is smooth.
    Dynamic,
    /// Weights are fixed by the configuration, and divided by their greatest common divisor, which keeps tables short.
    Fixed,
}

/// Declares the modules of the algorithms and collects their rows.
macro_rules! algorithms {
    ($($module:ident)+) => {
        $(mod $module;)+
        const ALGORITHMS: &[&[Row]] = &[$($module::ROWS),+];
    };
}

algorithms! { roundrobin leastconn first map ring hashed }

/// The entry of an algorithm, by its word. A word of the configuration that has none is a mistake that
/// `every_word_of_balance_has_its_algorithm` finds; then it is the default.
fn row(name: &str) -> &'static Row {
    let mut rows = ALGORITHMS.iter().copied().flatten();
    rows.find(|row| row.name == name).unwrap_or(&roundrobin::ROWS[0])
}

/// The balancing state of one backend.
#[derive(Debug)]
pub struct Balancer {
    members: Vec<Member>,
    /// The slots in use, in the order in which servers were added.
    order: Vec<usize>,
    totals: Totals,
    algorithm: Box<dyn Algorithm>,
    allbackups: bool,
    /// Requests served by all servers.
    served: u32,
    weights: Weights,
    /// Users' weights are the effective ones multiplied by `wdiv` and divided by `wmult`.
    wmult: u32,
    wdiv: u32,
}

/// The balance settings of a backend.
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
    /// The seed of `random`.
    pub seed: u64,
}

impl Balancer {
    /// A balancer whose `members` are all ready; the caller then reports those that are not.
    pub fn new(settings: &Settings, mut members: Vec<Member>) -> Balancer {
        let row = row(settings.balance.algorithm);
        let weights = (row.weights)(settings);
        let (wmult, wdiv) = match weights {
            Weights::Fixed => (common_divisor(&members), 1),
            Weights::Dynamic => (1, WEIGHT_SCALE),
        };
        for member in &mut members {
            member.ready = true;
            member.eweight = (member.weight * wdiv).div_ceil(wmult);
        }
        let order: Vec<usize> = (0..members.len()).collect();
        let totals = count(&mut members, &order, settings.allbackups);
        let algorithm = (row.build)(settings, View { members: &members, totals: &totals, served: 0 });
        Balancer { members, order, totals, algorithm, allbackups: settings.allbackups, served: 0, weights, wmult, wdiv }
    }

    /// Adds a server in `slot`, after all others in order. It is not ready. Only if weights are dynamic.
    pub fn insert(&mut self, slot: usize, member: Member) {
        debug_assert!(self.is_dynamic(), "a table is as long as the configuration made it");
        if slot == self.members.len() {
            self.members.push(member);
        } else {
            self.members[slot] = member;
        }
        self.order.push(slot);
        self.algorithm.vacated(slot);
    }

    /// Removes the server in `slot`, which is not ready and serves no request.
    pub fn remove(&mut self, slot: usize) {
        debug_assert!(!self.members[slot].usable() && self.members[slot].served == 0);
        self.members[slot] = Member::default();
        self.order.retain(|&other| other != slot);
        self.algorithm.vacated(slot);
    }

    /// The servers, by slot.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Counts and weights.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Converts an effective weight to the scale of users' weights.
    pub fn displayed_weight(&self, eweight: u32) -> u32 {
        (eweight * self.wmult).div_ceil(self.wdiv)
    }

    /// The effective weight of a server in the scale of users' weights.
    pub fn weight_of(&self, server: usize) -> u32 {
        self.displayed_weight(self.members[server].eweight)
    }

    /// Whether weights may change at run time, so that slow starts have an effect.
    pub fn is_dynamic(&self) -> bool {
        self.weights == Weights::Dynamic
    }

    /// Selects the server for a request; `None` if none is usable or, for algorithms that look for room, if all are
    /// full. `waiting` is the number of requests in the backend's own queue.
    pub fn choose(&mut self, demand: &Demand, waiting: u32) -> Option<usize> {
        if self.totals.weight == 0 {
            return None;
        }
        let full = waiting > 0 && self.served > 0 && waiting != demand.load.sessions;
        if full && self.algorithm.fills_every_server() {
            return None;
        }
        let (view, algorithm) = self.parts();
        algorithm.choose(view, demand)
    }

    fn parts(&mut self) -> (View<'_>, &mut dyn Algorithm) {
        (View { members: &self.members, totals: &self.totals, served: self.served }, self.algorithm.as_mut())
    }

    /// Counts a request that is given to `server`.
    pub fn take(&mut self, server: usize) {
        self.members[server].served += 1;
        self.served += 1;
        let (view, algorithm) = self.parts();
        algorithm.moved(server, view);
    }

    /// Counts the end of a request that was given to `server`.
    pub fn release(&mut self, server: usize) {
        let member = &mut self.members[server];
        debug_assert!(member.served > 0, "a slot is released once");
        member.served = member.served.saturating_sub(1);
        self.served = self.served.saturating_sub(1);
        let (view, algorithm) = self.parts();
        algorithm.moved(server, view);
    }

    /// Sets how many requests wait for `server`.
    pub fn set_queued(&mut self, server: usize, queued: u32) {
        self.members[server].queued = queued;
    }

    /// Changes the limits of `server`.
    pub fn set_limits(&mut self, server: usize, change: impl FnOnce(&mut Member)) {
        change(&mut self.members[server]);
    }

    /// Moves `server` to other places on the ring.
    pub fn set_ring_key(&mut self, server: usize, key: u32) {
        if self.members[server].ring_key != key {
            self.members[server].ring_key = key;
            let (view, algorithm) = self.parts();
            algorithm.moved_on_ring(view);
        }
    }

    /// Sets the state and weight of `server`. If weights are dynamic, only part of the weight counts during a slow
    /// start.
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
        self.totals = count(&mut self.members, &self.order, self.allbackups);
        let (view, algorithm) = self.parts();
        algorithm.update(server, &before, view);
    }
}

/// The key on the ring of a server without `hash-key`: no two servers share a point.
pub(crate) fn ring_key_of_id(id: u32) -> u32 {
    id.wrapping_mul(EFFECTIVE_MAX)
}

/// Determines which servers count, with what weight, and which backup serves alone.
fn count(members: &mut [Member], order: &[usize], allbackups: bool) -> Totals {
    let mut totals = Totals::default();
    let mut lone_weight = 0;
    for &index in order {
        let member = &mut members[index];
        if !member.usable() {
            continue;
        }
        if member.backup {
            if totals.backup == 0 && !allbackups {
                (totals.first_backup, lone_weight) = (Some(index), member.eweight);
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
        Some(_) => (lone_weight, 1),
        None => (totals.weight_backup, totals.backup),
    };
    totals
}

/// The greatest common divisor of all weights.
fn common_divisor(members: &[Member]) -> u32 {
    let gcd = members.iter().fold(0, |mut a, member| {
        let mut b = member.weight;
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    });
    gcd.max(1)
}

/// The hash of the key that `balance` takes from a request; `None` if the request lacks it.
pub fn hash_of(key: &BalanceKey, hash_type: &HashType, subject: &Subject<'_>) -> Option<u32> {
    if let BalanceKey::Source = key {
        return subject.source.map(|ip| hash_type.finish(key::fold_address(ip)));
    }
    key::extract(key, subject).map(|bytes| hash_type.hash(bytes))
}

#[cfg(test)]
mod tests;
