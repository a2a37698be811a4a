//! The engine `sw`: eight operations at a time in the lanes of a vector, on the worker's own thread.
//!
//! A turn does at most [`TURN_BUDGET`] of it, as estimated from the [`Costs`] measured at start: key exchanges and ECDSA
//! signatures are calls of some tens of microseconds; RSA is a state machine that advances by steps and goes on in the next
//! turn. Short work goes first but never takes more than half a turn while long work waits, and of long work each size
//! advances in every turn: neither starves the other.

mod costs;
mod encode;
mod exchange;
mod key;

use crate::plan::Classes;
use crate::{Answer, Answers, Class, Engine, Failure, Next, Op, OpId, Private, Scheme, Secret, SigningKey};
use aws_lc_rs::{digest, rand};
pub use costs::{Cost, Costs};
use exchange::Pairs;
use key::LaneKey;
pub(crate) use key::Prepared;
use penstock_lanes::{
    LANES, LaneError, Lanes, p256, p384,
    rsa::{Progress, RsaBatch, RsaJob},
};
use std::{
    collections::VecDeque,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

/// Most public-key work of one turn: what other connections of the worker may be held up by.
pub const TURN_BUDGET: Duration = Duration::from_micros(300);
/// What of it is planned as work of the lanes. The rest is for what a plan does not see: messages encoded, batches packed,
/// tasks woken, and a processor that is slower than when it was measured.
const PLANNED: Duration = Duration::from_micros(220);
/// RSA operations that fill a vector, the two halves of each in a lane of their own.
const RSA_LANES: usize = LANES / 2;

type Batch = Vec<(OpId, Rc<Op>)>;

/// The engine of one worker.
pub struct Sw {
    lanes: Lanes,
    costs: Costs,
    classes: Classes,
    pairs: Pairs,
    /// Batches of one call each.
    short: VecDeque<(Class, Batch)>,
    /// RSA under way: 2048, 3072, 4096 bits.
    long: [Option<Long>; 3],
}

/// An RSA batch under way.
struct Long {
    ops: Vec<OpId>,
    work: RsaBatch,
    step: Duration,
}

impl Sw {
    /// An engine on these lanes, with costs as measured on this machine, for these classes of those it can serve.
    pub fn new(lanes: Lanes, costs: Costs, classes: Classes) -> Sw {
        Sw { lanes, costs, classes, pairs: Pairs::new(lanes), short: VecDeque::new(), long: Default::default() }
    }

    /// A whole batch at once, without a budget: for measuring.
    fn compute(&mut self, class: Class, mut batch: Batch) {
        if is_long(class) {
            self.start_rsa(class, &mut batch);
            self.long.iter_mut().for_each(|place| drop(place.take().map(|long| long.work.finish())));
        } else {
            self.run_short(class, &batch);
        }
    }

    fn start_rsa(&mut self, class: Class, batch: &mut Batch) {
        let mut encoded = Vec::with_capacity(batch.len());
        // What cannot be encoded stays in the batch, for the native library to refuse.
        let mut place = 0;
        while let Some((id, op)) = batch.get(place) {
            match encode_rsa(self.lanes, op) {
                Some(input) => encoded.push((*id, batch.remove(place).1, input)),
                None => place += 1,
            }
        }
        let jobs: Vec<RsaJob<'_>> = encoded
            .iter()
            .filter_map(|(_, op, input)| match &**op {
                Op::Sign { key, .. } => match key.prepared.get()? {
                    LaneKey::Rsa(key) => Some(RsaJob { key, input }),
                    LaneKey::Scalar(_) => None,
                },
                _ => None,
            })
            .collect();
        if jobs.is_empty() {
            return;
        }
        let work = RsaBatch::new(self.lanes, &jobs);
        let passes = jobs.len().div_ceil(RSA_LANES) as u32;
        let step = self.costs.of(class).lanes * passes / work.steps_left().max(1) as u32;
        let ops = encoded.into_iter().map(|(id, ..)| id).collect();
        self.long[long_place(class)] = Some(Long { ops, work, step });
    }

    /// Advances RSA batches, each by its share of `time`.
    fn run_long(&mut self, time: Duration, answers: &mut Answers) {
        let under_way = self.long.iter().flatten().count() as u32;
        for place in &mut self.long {
            let Some(long) = place else { continue };
            let steps = (time / under_way).as_nanos() / long.step.as_nanos().max(1);
            if long.work.advance(steps.max(1) as usize) == Progress::Done
                && let Some(done) = place.take()
            {
                let results = done.work.finish().into_iter().map(|result| match result {
                    Ok(signature) => Ok(Answer::Signature(signature)),
                    Err(LaneError::Fault) => Err(Failure::Wrong),
                    Err(_) => Err(Failure::Internal),
                });
                answers.extend(done.ops.into_iter().zip(results));
            }
        }
    }

    fn run_short(&mut self, class: Class, batch: &Batch) -> Vec<Result<Answer, Failure>> {
        match class {
            Class::EcdsaP256 | Class::EcdsaP384 => self.sign_ecdsa(class, batch),
            _ => self.exchange(batch),
        }
    }

    fn sign_ecdsa(&mut self, class: Class, batch: &Batch) -> Vec<Result<Answer, Failure>> {
        let mut random = [[0; 32]; LANES];
        for random in &mut random {
            if rand::fill(random).is_err() {
                return batch.iter().map(|_| Err(Failure::Internal)).collect();
            }
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
        if class == Class::EcdsaP256 { sign!(p256) } else { sign!(p384) }
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

fn long_place(class: Class) -> usize {
    match class {
        Class::Rsa2048 => 0,
        Class::Rsa3072 => 1,
        _ => 2,
    }
}

fn is_long(class: Class) -> bool {
    matches!(class, Class::Rsa2048 | Class::Rsa3072 | Class::Rsa4096)
}

fn encode_rsa(lanes: Lanes, op: &Op) -> Option<Vec<u8>> {
    match op {
        Op::Sign { key, scheme, message } => match key.prepared.get()? {
            LaneKey::Rsa(numbers) => encode::encode(lanes, *scheme, message, numbers.size()),
            LaneKey::Scalar(_) => None,
        },
        _ => None,
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
        Op::Sign { key, .. } => match key.prepared.get()? {
            LaneKey::Scalar(scalar) => Some(scalar.expose()),
            LaneKey::Rsa(_) => None,
        },
        _ => None,
    }
}

/// Whether lanes have the key, which is ordered if not.
fn is_prepared(key: &Arc<SigningKey>, scheme: Scheme) -> bool {
    if key.class() == Class::EcdsaP256 || key.class() == Class::EcdsaP384 {
        key.prepare();
    } else {
        key.prepared.soon(key);
    }
    key.prepared.get().is_some() && encode::hash(scheme).is_some()
}

impl Engine for Sw {
    fn name(&self) -> &'static str {
        "sw"
    }

    fn lanes(&self, class: Class) -> usize {
        use Class::*;
        if !self.classes.contains(class) {
            return 0;
        }
        match class {
            Rsa2048 | Rsa3072 | Rsa4096 => RSA_LANES,
            EcdsaP256 | EcdsaP384 => LANES,
            X25519KeyGen | P256KeyGen | P384KeyGen => LANES,
            X25519Derive | P256Derive | P384Derive => LANES,
            X25519Agree | P256Agree | P384Agree => LANES,
            RsaOther | SignOther | MlKemKeyGen | MlKemEncapsulate | MlKemDecapsulate => 0,
        }
    }

    fn most(&self, class: Class) -> usize {
        if self.lanes(class) == 0 { 0 } else { LANES }
    }

    fn break_even(&self, class: Class) -> usize {
        // What the native library cannot leave in the middle is computed in lanes at any fill.
        let cost = self.costs.of(class);
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
            Op::KemKeyGen | Op::KemEncapsulate { .. } | Op::KemDecapsulate { .. } => false,
        }
    }

    fn worth_alone(&self, class: Class, others: bool) -> bool {
        others && self.costs.of(class).native > TURN_BUDGET
    }

    fn is_busy(&self, class: Class) -> bool {
        if is_long(class) {
            self.long[long_place(class)].is_some()
        } else {
            self.short.iter().any(|(other, _)| *other == class)
        }
    }

    /// RSA is checked by its public exponent before it leaves its batch. The rest is computed by the same processor as the
    /// native library's, which nobody checks either.
    fn checks(&self, _: Class) -> bool {
        true
    }

    fn at_hand(&mut self, op: &Op) -> Option<Answer> {
        let Op::KeyGen { curve } = op else { return None };
        let (public, scalar) = self.pairs.take(*curve)?;
        Some(Answer::Pair { public, private: Private::Scalar(*curve, scalar) })
    }

    fn start(&mut self, batch: &mut Batch, _: Instant) {
        let Some(class) = batch.first().map(|(_, op)| op.class()) else { return };
        if is_long(class) {
            if !self.is_busy(class) {
                self.start_rsa(class, batch);
            }
        } else {
            self.short.push_back((class, std::mem::take(batch)));
        }
    }

    fn run(&mut self, _: Instant, spent: Duration, answers: &mut Answers) {
        let mut left = PLANNED.saturating_sub(spent);
        let mut first = true;
        while let Some((class, _)) = self.short.front() {
            let cost = self.costs.of(*class).lanes;
            let kept = if self.long.iter().any(Option::is_some) { PLANNED / 2 } else { Duration::ZERO };
            // One call is made in any case, or what costs more than its share would never be.
            if !first && cost + kept > left {
                break;
            }
            let Some((class, batch)) = self.short.pop_front() else { break };
            let results = self.run_short(class, &batch);
            answers.extend(batch.into_iter().map(|(id, _)| id).zip(results));
            left = left.saturating_sub(cost);
            first = false;
        }
        self.run_long(left, answers);
    }

    fn next(&self, _: Instant) -> Next {
        if self.short.is_empty() && self.long.iter().all(Option::is_none) { Next::Idle } else { Next::Soon }
    }
}
