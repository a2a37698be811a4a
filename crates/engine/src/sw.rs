//! The engine `sw`: eight operations at a time in the lanes of a vector, on the worker's own thread.
//!
//! A turn spends at most [`TURN_BUDGET`], by the [`Costs`] measured at start and by the clock. Key exchanges and
//! ECDSA signatures are calls of some tens of microseconds; RSA is a state machine that advances by steps and continues in the
//! next turn. Short work goes first, but takes at most half a turn while long work waits, and each size of long work has its
//! share of every turn, so that neither starves the other.

mod costs;
mod exchange;
mod key;
mod long;
mod turn;

use crate::{
    Algorithm, Answer, Answers, Class, Classes, Curve, Describe, Engine, Failure, Forecast, Next, Op, OpId, Private,
    Scheme, Secret, SigningKey, Work, encode,
};
use aws_lc_rs::{digest, rand};
pub(crate) use costs::RSA_2048;
pub use costs::{Cost, Costs};
use exchange::Pairs;
use key::LaneKey;
pub(crate) use key::Prepared;
pub use key::prepare;
use long::{Long, RSA_LANES};
use penstock_lanes::{LANES, Lanes, mlkem768, p256, p384};
use std::{
    collections::VecDeque,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};
pub use turn::TURN_BUDGET;
use turn::{PLANNED, Turn};
use zeroize::Zeroizing;

type Batch = Vec<(OpId, Rc<Op>)>;

/// The engine of one worker.
pub struct Sw {
    lanes: Lanes,
    costs: Costs,
    classes: Classes,
    /// Reads the clock. Not the thread's CPU clock, which is a system call; a thread that is not running ends its turn as well.
    clock: fn() -> Duration,
    pairs: Pairs,
    /// Short work: batches of one call each.
    short: VecDeque<(Class, Batch)>,
    /// Long work: RSA in progress, by size.
    long: [Option<Long>; long::SIZES.len()],
    /// The RSA size that goes first in the next turn.
    first: usize,
    /// The RSA size for which the last turn had no room.
    waited: Option<usize>,
    /// Whether the last turn did nothing.
    idle: bool,
}

impl Sw {
    /// An engine on these lanes, with costs as measured on this machine, for these classes of those it can serve.
    pub fn new(lanes: Lanes, costs: Costs, classes: Classes) -> Sw {
        Sw {
            lanes,
            costs,
            classes,
            clock: turn::now,
            pairs: Pairs::new(lanes),
            short: VecDeque::new(),
            long: Default::default(),
            first: 0,
            waited: None,
            idle: false,
        }
    }

    /// Computes a whole batch at once, without a budget: for measurements.
    fn compute(&mut self, class: Class, batch: Batch) {
        if long::place(class).is_some() {
            let mut long = Long::new(batch, Cost::default());
            let mut turn = Turn::begin(Duration::default, Duration::ZERO, false);
            while !long.is_done() {
                long.advance(self.lanes, &mut turn, Duration::MAX, &mut Vec::new());
            }
        } else {
            self.run_short(class, &batch);
        }
    }

    /// Does the calls that fit before `until`.
    fn advance_short(&mut self, turn: &mut Turn, until: Duration, answers: &mut Answers) {
        while let Some((class, batch)) = self.short.front() {
            // Pairs for a whole batch are a call by themselves, where none were left from the one before.
            if let Some(curve) = fresh_pairs(*class)
                && self.pairs.left(curve) < batch.len()
            {
                let cost = self.costs.of(Class::of(Work::KeyGen(curve))).lanes;
                if !turn.has_room(cost, until) {
                    return;
                }
                self.pairs.make(curve);
                turn.charge(cost);
            }
            let cost = self.costs.of(call_of(*class)).lanes;
            if !turn.has_room(cost, until) {
                return;
            }
            let Some((class, batch)) = self.short.pop_front() else { return };
            let results = self.run_short(class, &batch);
            answers.extend(batch.into_iter().map(|(id, _)| id).zip(results));
            turn.charge(cost);
        }
    }

    /// Does the pieces of RSA that fit before [`PLANNED`], each size with its share of the time. Returns the first size for which
    /// there was no room at all.
    fn advance_long(&mut self, turn: &mut Turn, answers: &mut Answers) -> Option<usize> {
        let mut waiting = self.long.iter().flatten().count() as u32;
        let mut without = None;
        for place in 0..long::SIZES.len() {
            let number = (self.first + place) % long::SIZES.len();
            let Some(long) = &mut self.long[number] else { continue };
            let share = turn.spent() + turn.left(PLANNED) / waiting.max(1);
            waiting -= 1;
            // A first piece that is larger than its share takes of the others', who have theirs in the next turn.
            let mut until = PLANNED;
            while !long.is_done() && turn.has_room(long.piece(), until) {
                long.advance(self.lanes, turn, share, answers);
                until = share;
            }
            if until == PLANNED {
                without.get_or_insert(number);
            }
            self.long[number].take_if(|long| long.is_done());
        }
        self.first = (self.first + 1) % long::SIZES.len();
        without
    }

    /// Runs one turn that has already spent `spent`; returns the total.
    fn turn(&mut self, spent: Duration, answers: &mut Answers) -> Duration {
        let mut turn = Turn::begin(self.clock, spent, spent.is_zero() || self.idle);
        // Every other turn may begin with what had no room in the one before, or large pieces would wait for ever.
        let waited = self.waited.take();
        if let Some(long) = waited.and_then(|size| self.long[size].as_mut()) {
            long.advance(self.lanes, &mut turn, PLANNED / 2, answers);
        }
        let has_long = self.long.iter().any(Option::is_some);
        self.advance_short(&mut turn, if has_long { PLANNED / 2 } else { PLANNED }, answers);
        let without = self.advance_long(&mut turn, answers);
        if waited.is_none() {
            self.waited = without;
        }
        self.idle = turn.spent() == spent;
        turn.spent()
    }

    fn run_short(&mut self, class: Class, batch: &Batch) -> Vec<Result<Answer, Failure>> {
        match class.work() {
            Work::Sign(algorithm) => self.sign_ecdsa(algorithm, batch),
            Work::KemEncapsulate => self.encapsulate(batch),
            _ => self.exchange(batch),
        }
    }

    fn sign_ecdsa(&mut self, algorithm: Algorithm, batch: &Batch) -> Vec<Result<Answer, Failure>> {
        let mut random = [[0; 32]; LANES];
        if rand::fill(random.as_flattened_mut()).is_err() {
            return batch.iter().map(|_| Err(Failure::Internal)).collect();
        }
        let digests: Vec<digest::Digest> = batch.iter().filter_map(|(_, op)| hashed(op)).collect();
        let keys: Vec<&[u8]> = batch.iter().filter_map(|(_, op)| scalar(op)).collect();
        macro_rules! sign {
            ($curve:ident) => {{
                let jobs: Vec<_> = keys
                    .iter()
                    .zip(&digests)
                    .zip(&random)
                    .filter_map(|((key, digest), random)| {
                        Some($curve::SignJob { key: (*key).try_into().ok()?, digest: digest.as_ref(), random })
                    })
                    .collect();
                if jobs.len() != batch.len() {
                    return batch.iter().map(|_| Err(Failure::Internal)).collect();
                }
                let signatures = $curve::sign(self.lanes, &jobs).into_iter();
                let der = |r: &[u8], s: &[u8]| Answer::Signature(encode::ecdsa_der(r, s));
                signatures.map(|rs| rs.map(|(r, s)| der(&r, &s)).map_err(|_| Failure::Internal)).collect()
            }};
        }
        if algorithm == Algorithm::EcdsaP256 { sign!(p256) } else { sign!(p384) }
    }

    fn encapsulate(&self, batch: &Batch) -> Vec<Result<Answer, Failure>> {
        let mut random = Zeroizing::new([[0; mlkem768::BYTES]; LANES]);
        if rand::fill(random.as_flattened_mut()).is_err() {
            return batch.iter().map(|_| Err(Failure::Internal)).collect();
        }
        let jobs: Vec<_> = batch
            .iter()
            .zip(random.iter())
            .map(|((_, op), random)| match &**op {
                Op::KemEncapsulate { peer } => mlkem768::EncapsulateJob { key: peer, random },
                // A key of no length fails its own lane.
                _ => mlkem768::EncapsulateJob { key: &[], random },
            })
            .collect();
        let answer = |made: mlkem768::Encapsulated| Answer::Agreed {
            public: made.ciphertext.to_vec(),
            secret: Secret::from(made.secret.expose().to_vec()),
        };
        let made = mlkem768::encapsulate(self.lanes, &jobs).into_iter();
        made.map(|made| made.map(answer).map_err(|_| Failure::Internal)).collect()
    }

    fn exchange(&mut self, batch: &Batch) -> Vec<Result<Answer, Failure>> {
        let mut fresh: Vec<Option<(Vec<u8>, Secret)>> = Vec::with_capacity(batch.len());
        for (_, op) in batch {
            fresh.push(match &**op {
                Op::Agree { curve, .. } | Op::KeyGen { curve } => self.pairs.take(*curve),
                _ => None,
            });
        }
        let mut jobs: Vec<(&Secret, &[u8])> = Vec::with_capacity(batch.len());
        let mut on = None;
        for ((_, op), fresh) in batch.iter().zip(&fresh) {
            match (&**op, fresh) {
                (Op::Agree { curve, peer }, Some((_, scalar))) => {
                    on = Some(*curve);
                    jobs.push((scalar, peer));
                }
                (Op::Derive { private: Private::Scalar(curve, scalar), peer }, _) => {
                    on = Some(*curve);
                    jobs.push((scalar, peer));
                }
                _ => {}
            }
        }
        let mut secrets = on.map_or_else(Vec::new, |curve| exchange::derive(self.lanes, curve, &jobs)).into_iter();
        drop(jobs);
        let mut answers = Vec::with_capacity(batch.len());
        for ((_, op), fresh) in batch.iter().zip(fresh) {
            answers.push(match (&**op, fresh) {
                (Op::KeyGen { curve }, Some((public, scalar))) => {
                    Ok(Answer::Pair { public, private: Private::Scalar(*curve, scalar) })
                }
                (Op::Agree { .. }, Some((public, _))) => match secrets.next() {
                    Some(Ok(Answer::Shared(secret))) => Ok(Answer::Agreed { public, secret }),
                    _ => Err(Failure::Internal),
                },
                (Op::Derive { private: Private::Scalar(..), .. }, _) => {
                    secrets.next().unwrap_or(Err(Failure::Internal))
                }
                _ => Err(Failure::Internal),
            });
        }
        answers
    }
}

/// Number of operations of `class` that fill a call.
pub(crate) fn full(class: Class) -> u32 {
    if long::place(class).is_some() { RSA_LANES as u32 } else { LANES as u32 }
}

/// The curve on which operations of this class use fresh key pairs.
fn fresh_pairs(class: Class) -> Option<Curve> {
    match class.work() {
        Work::KeyGen(curve) | Work::Agree(curve) => Some(curve),
        _ => None,
    }
}

/// The cost of a batch's call, once its key pairs are at hand.
fn call_of(class: Class) -> Class {
    match class.work() {
        Work::Agree(curve) => Class::of(Work::Derive(curve)),
        _ => class,
    }
}

fn hashed(op: &Op) -> Option<digest::Digest> {
    match op {
        Op::Sign { scheme, message, .. } => Some(digest::digest(encode::hash(*scheme)?, message)),
        _ => None,
    }
}

fn scalar(op: &Op) -> Option<&[u8]> {
    match op {
        Op::Sign { key, .. } => match Prepared::of(key).get()? {
            LaneKey::Scalar(scalar) => Some(scalar.expose()),
            LaneKey::Rsa(_) => None,
        },
        _ => None,
    }
}

/// Whether the key is prepared for lanes; if not, has it prepared.
fn is_prepared(key: &Arc<SigningKey>, scheme: Scheme) -> bool {
    let prepared = Prepared::of(key);
    if matches!(key.algorithm(), Algorithm::EcdsaP256 | Algorithm::EcdsaP384) {
        prepared.now(key);
    }
    let is_ready = prepared.get().is_some();
    if !is_ready {
        prepared.soon(key);
    }
    is_ready && encode::hash(scheme).is_some()
}

impl Engine for Sw {
    fn at_hand(&mut self, op: &Op) -> Option<Answer> {
        let Op::KeyGen { curve } = op else { return None };
        let (public, scalar) = self.pairs.take(*curve)?;
        Some(Answer::Pair { public, private: Private::Scalar(*curve, scalar) })
    }

    fn start(&mut self, batch: &mut Batch, _: Instant) {
        let Some(class) = batch.first().map(|(_, op)| op.class()) else { return };
        match long::place(class) {
            None => self.short.push_back((class, std::mem::take(batch))),
            Some(place) if self.long[place].is_none() => {
                self.long[place] = Some(Long::new(std::mem::take(batch), self.costs.of(class)));
            }
            Some(_) => {}
        }
    }

    fn run(&mut self, _: Instant, spent: Duration, answers: &mut Answers) {
        self.turn(spent, answers);
    }

    fn next(&self, _: Instant) -> Next {
        if self.short.is_empty() && self.long.iter().all(Option::is_none) { Next::Idle } else { Next::Soon }
    }
}

impl Forecast for Sw {
    fn lanes(&self, class: Class) -> usize {
        if self.classes.contains(class) && class.assumed().is_some() { full(class) as usize } else { 0 }
    }

    fn most(&self, class: Class) -> usize {
        if self.lanes(class) == 0 { 0 } else { LANES }
    }

    fn break_even(&self, class: Class) -> usize {
        let cost = self.costs.of(class);
        // A native call cannot be left in the middle.
        if cost.native > TURN_BUDGET { 1 } else { cost.break_even() }
    }

    fn native_time(&self, class: Class) -> Duration {
        self.costs.of(class).native
    }

    fn serves(&self, op: &Op) -> bool {
        match op {
            Op::Sign { key, scheme, .. } => is_prepared(key, *scheme),
            Op::Agree { curve, peer } => peer.len() == curve.public_len(),
            Op::Derive { private: Private::Scalar(curve, _), peer } => peer.len() == curve.public_len(),
            // A pair the native library made is its own.
            Op::Derive { private: Private::Native(..), .. } => false,
            Op::KeyGen { .. } => true,
            Op::KemEncapsulate { peer } => peer.len() == mlkem768::KEY,
            Op::KemKeyGen | Op::KemDecapsulate { .. } => false,
        }
    }

    fn worth_alone(&self, class: Class, others: bool) -> bool {
        let cost = self.costs.of(class);
        cost.break_even() == 1 || (others && cost.native > TURN_BUDGET)
    }

    fn is_busy(&self, class: Class) -> bool {
        match long::place(class) {
            Some(place) => self.long[place].is_some(),
            None => self.short.iter().any(|(other, _)| *other == class),
        }
    }

    /// RSA results are checked with the public exponent before they leave their batch. The rest is computed by the same processor
    /// as the native library's results, which are not checked either.
    fn checks(&self, _: Class) -> bool {
        true
    }

    /// The measured cost of all calls before it: those queued, what is left of those in progress, and its own.
    fn predict(&self, class: Class, ahead: usize) -> Duration {
        let call = |class| self.costs.of(class).lanes;
        let short: Duration = self.short.iter().map(|(class, _)| call(*class)).sum();
        let long: Duration = self.long.iter().flatten().map(Long::left).sum();
        short + long + call(class) * (ahead / full(class) as usize + 1) as u32
    }
}

impl Describe for Sw {
    fn name(&self) -> &'static str {
        "sw"
    }
}

#[cfg(test)]
mod tests;
