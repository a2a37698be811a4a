//! The engine `hw`: operations are given to a QuickAssist device one by one as they come, and its answers are collected in the
//! worker's turns.
//!
//! An operation is one request, or two where it makes a key pair and uses it. Requests that the device has no room for wait
//! here, in order. Every answer is checked before it leaves (see [`check`]); the queue redoes and counts wrong and missing
//! ones. While answers are due, the worker's loop does not sleep: its timers have a resolution of a millisecond,
//! and an answer takes a fraction of that.

mod check;
mod compressor;
mod hardware;
mod key;
mod pace;
mod report;

use crate::{
    Algorithm, Answer, Answers, Class, Classes, Curve, Describe, Engine, Failure, Forecast, Next, Op, OpId, Private,
    Scheme, Secret, SigningKey, Work, encode,
    sw::{Costs, Prepared},
    worker::thread_cpu_ns,
};
use aws_lc_rs::{digest, rand};
use check::{Samples, Signed};
pub use compressor::{CompressionCounters, CompressionReport, Compressor, Deflation, PieceId};
pub use hardware::{Hardware, Unusable};
use key::DeviceKey;
pub use pace::Pace;
use penstock_lanes::{Lanes, rsa::RsaSize};
use penstock_qat::{self as qat, Channel, Outcome, Refused, Request};
pub use penstock_qat::{Health, Options, Summary, Unavailable, deflate::PIECE_MAX};
pub use report::{DeviceCounters, DeviceReport};
use slab::Slab;
use std::{
    collections::VecDeque,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

/// Time after which a started operation is redone natively: a hundred times what a busy card takes.
pub const DEADLINE: Duration = Duration::from_millis(100);
/// Time after which an operation that finds no room is computed by the library. The device is not blamed: others fill its rings.
const PATIENCE: Duration = Duration::from_millis(20);
/// Time that one turn may spend on checking answers; the rest of a turn's 300 µs is for unplanned work.
const CHECKS: Duration = Duration::from_micros(200);
/// Resolution of the worker's timers.
const TICK: Duration = Duration::from_millis(1);

/// The engine of one worker.
pub struct Hw {
    channel: Channel,
    classes: Classes,
    lanes: Lanes,
    costs: Costs,
    pace: Pace,
    pending: Slab<Pending>,
    /// Indexes into [`Hw::pending`] of operations with a request that the device had no room for.
    waiting: VecDeque<usize>,
    /// Answers still to be checked.
    answered: VecDeque<Pending>,
    signed: VecDeque<Signed>,
    samples: Samples,
    /// Work in progress, in units of [`pace`].
    backlog: u32,
    counters: DeviceCounters,
}

/// An operation in progress.
struct Pending {
    id: OpId,
    op: Rc<Op>,
    since: Instant,
    /// Work that was in progress when the operation was submitted.
    behind: u32,
    /// Which of the operation's requests are still to be submitted: the only one or that for the base point, and that for the
    /// peer's point.
    unsubmitted: [bool; 2],
    /// Requests without an answer.
    missing: u8,
    failed: Option<Failure>,
    is_late: bool,
    answers: [Option<qat::Answer>; 2],
    /// RSA: the padded message.
    encoded: Vec<u8>,
    /// The private half of a fresh pair, or a signature's nonce.
    scalar: Secret,
}

impl Hw {
    /// The engine of one worker, on its share of the hardware.
    pub fn new(hardware: &Hardware, classes: Classes, lanes: Lanes, costs: Costs) -> Hw {
        Hw {
            channel: hardware.channel(),
            classes: classes.and(|class| hardware.can(class)),
            lanes,
            costs,
            pace: hardware.pace(),
            pending: Slab::new(),
            waiting: VecDeque::new(),
            answered: VecDeque::new(),
            signed: VecDeque::new(),
            samples: Samples::default(),
            backlog: 0,
            counters: DeviceCounters::default(),
        }
    }

    /// Number of operations of `class` that the device would take now.
    fn room(&self, class: Class) -> usize {
        if self.waiting.is_empty() { self.channel.room() / requests(class) } else { 0 }
    }

    /// Submits requests while there is room, the oldest first.
    fn pump(&mut self, answers: &mut Answers) {
        while let Some(&place) = self.waiting.front() {
            let pending = &mut self.pending[place];
            for part in [0, 1] {
                if !pending.unsubmitted[part] {
                    continue;
                }
                let deadline = pending.since + DEADLINE;
                match submit(&mut self.channel, pending, (place * 2 + part) as u64, part, deadline) {
                    Ok(()) => {
                        pending.unsubmitted[part] = false;
                        pending.missing += 1;
                    }
                    Err(Refused::Full) => return,
                    Err(Refused::Down | Refused::Failed(_)) => {
                        pending.unsubmitted = [false; 2];
                        pending.failed = Some(Failure::Device);
                        break;
                    }
                }
            }
            self.waiting.pop_front();
            if pending.missing == 0 {
                self.end(place, answers);
            }
        }
        self.counters.depth_max = self.counters.depth_max.max(self.channel.depth() as u64);
    }

    /// Takes the device's answers.
    fn collect(&mut self, now: Instant, answers: &mut Answers) {
        let (pending, mut over) = (&mut self.pending, Vec::new());
        self.channel.poll(now, |tag, outcome| {
            let (place, part) = (tag as usize / 2, tag as usize % 2);
            let Some(operation) = pending.get_mut(place) else { return };
            operation.missing -= 1;
            match outcome {
                Outcome::Answered(answer) => operation.answers[part] = Some(answer),
                Outcome::Failed(_) => operation.failed = Some(Failure::Device),
                Outcome::Late => operation.is_late = true,
            }
            if operation.missing == 0 && operation.unsubmitted == [false; 2] {
                over.push(place);
            }
        });
        for place in over {
            self.end(place, answers);
        }
        while let Some(&place) = self.waiting.front()
            && now >= self.pending[place].since + PATIENCE
        {
            self.waiting.pop_front();
            let pending = &mut self.pending[place];
            (pending.unsubmitted, pending.failed) = ([false; 2], Some(Failure::Internal));
            if pending.missing == 0 {
                self.end(place, answers);
            }
        }
    }

    /// Handles an operation whose requests have all ended.
    fn end(&mut self, place: usize, answers: &mut Answers) {
        let pending = self.pending.remove(place);
        let class = pending.op.class();
        self.backlog -= pace::weight(class);
        if pending.is_late {
            // The queue knows by its own clock: it redoes and counts it.
            return;
        }
        if let Some(failure) = pending.failed {
            answers.push((pending.id, Err(failure)));
            return;
        }
        self.pace.learn(class, pending.behind, pending.since.elapsed());
        self.answered.push_back(pending);
    }

    /// Checks as many answers as there is time for, and releases those that are right.
    fn check(&mut self, spent: Duration, answers: &mut Answers) {
        let until = thread_cpu_ns() + CHECKS.saturating_sub(spent).as_nanos() as u64;
        while let Some(pending) = self.answered.pop_front() {
            match finish(pending, &mut self.samples) {
                Finished::Signed(signed) => self.signed.push_back(signed),
                Finished::Answer(id, result) => {
                    if matches!(result, Err(Failure::Wrong)) {
                        self.samples.restart();
                    }
                    answers.push((id, result));
                    if thread_cpu_ns() >= until {
                        return;
                    }
                }
            }
        }
        while !self.signed.is_empty() {
            let right = check::signatures(self.lanes, self.signed.make_contiguous());
            for right in right {
                let Some(signed) = self.signed.pop_front() else { break };
                let result = if right { Ok(Answer::Signature(signed.signature)) } else { Err(Failure::Wrong) };
                answers.push((signed.pending.id, result));
            }
            if thread_cpu_ns() >= until {
                return;
            }
        }
    }

    fn accept(&mut self, id: OpId, op: Rc<Op>, now: Instant) -> Result<(), Rc<Op>> {
        let Some((encoded, scalar)) = prepare(self.lanes, &op) else { return Err(op) };
        let class = op.class();
        let unsubmitted = match &*op {
            Op::Agree { .. } => [true, true],
            Op::Derive { .. } => [false, true],
            _ => [true, false],
        };
        self.counters.given[class as usize] += 1;
        let pending = Pending {
            id,
            op,
            since: now,
            behind: self.backlog,
            unsubmitted,
            missing: 0,
            failed: None,
            is_late: false,
            answers: [None, None],
            encoded,
            scalar,
        };
        self.backlog += pace::weight(class);
        self.waiting.push_back(self.pending.insert(pending));
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.answered.is_empty() && self.signed.is_empty()
    }
}

/// Number of requests that an operation needs.
fn requests(class: Class) -> usize {
    if matches!(class.work(), Work::Agree(_)) { 2 } else { 1 }
}

/// The device's name for a curve; X25519 has a call of its own.
fn weierstrass(curve: Curve) -> Option<qat::Curve> {
    match curve {
        Curve::X25519 => None,
        Curve::P256 => Some(qat::Curve::P256),
        Curve::P384 => Some(qat::Curve::P384),
    }
}

fn curve_of(key: &SigningKey) -> qat::Curve {
    if key.algorithm() == Algorithm::EcdsaP384 { qat::Curve::P384 } else { qat::Curve::P256 }
}

/// What is computed before the device is asked: the padded message, the nonce, or the private half of a fresh pair.
fn prepare(lanes: Lanes, op: &Op) -> Option<(Vec<u8>, Secret)> {
    match op {
        Op::Sign { key, scheme, message } => match DeviceKey::of(key)? {
            DeviceKey::Rsa(numbers) => {
                let size = RsaSize::from_bytes(numbers.len)?;
                Some((encode::encode(lanes, *scheme, message, size)?, Secret::default()))
            }
            DeviceKey::Scalar(_) => Some((Vec::new(), fresh_scalar(curve_of(key))?)),
        },
        Op::KeyGen { curve } => Some((Vec::new(), fresh(*curve)?)),
        // What is sent to a device lies on the curve: a device need not look.
        Op::Agree { curve, peer } if check::is_point(*curve, peer) => Some((Vec::new(), fresh(*curve)?)),
        Op::Derive { private: Private::Scalar(curve, _), peer } if check::is_point(*curve, peer) => {
            Some((Vec::new(), Secret::default()))
        }
        _ => None,
    }
}

fn fresh(curve: Curve) -> Option<Secret> {
    match weierstrass(curve) {
        Some(curve) => fresh_scalar(curve),
        None => random(curve.secret_len()),
    }
}

/// A uniformly random scalar: the first random number that lies in range.
fn fresh_scalar(curve: qat::Curve) -> Option<Secret> {
    std::iter::repeat_with(|| random(curve.bytes()))
        .take(8)
        .flatten()
        .find(|scalar| qat::is_scalar(curve, scalar.expose()))
}

fn random(len: usize) -> Option<Secret> {
    let mut bytes = vec![0; len];
    rand::fill(&mut bytes).ok()?;
    Some(Secret::from(bytes))
}

/// Submits one of the two requests of an operation.
fn submit(channel: &mut Channel, pending: &Pending, tag: u64, part: usize, deadline: Instant) -> Result<(), Refused> {
    const UNFIT: Result<(), Refused> = Err(Refused::Down);
    let multiply = |channel: &mut Channel, curve: Curve, scalar: &Secret, point: Option<&[u8]>| match weierstrass(curve)
    {
        Some(curve) => {
            // An uncompressed point begins with a byte that says so.
            let point = point.map(|point| &point[1..]);
            channel.submit(&Request::Multiply { curve, scalar: scalar.expose(), point }, tag, deadline)
        }
        None => {
            let Ok(scalar) = scalar.expose().try_into() else { return UNFIT };
            let Ok(point) = point.map(TryInto::try_into).transpose() else { return UNFIT };
            channel.submit(&Request::X25519 { scalar, point }, tag, deadline)
        }
    };
    match &*pending.op {
        Op::Sign { key, scheme, message } => match DeviceKey::of(key) {
            Some(DeviceKey::Rsa(key)) => channel.submit(&Request::Rsa { key, input: &pending.encoded }, tag, deadline),
            Some(DeviceKey::Scalar(private)) => {
                let Some(hash) = encode::hash(*scheme) else { return UNFIT };
                let digest = digest::digest(hash, message);
                let (curve, nonce) = (curve_of(key), pending.scalar.expose());
                let request = Request::Ecdsa { curve, key: private.expose(), nonce, digest: digest.as_ref() };
                channel.submit(&request, tag, deadline)
            }
            None => UNFIT,
        },
        Op::KeyGen { curve } => multiply(channel, *curve, &pending.scalar, None),
        Op::Agree { curve, peer } => multiply(channel, *curve, &pending.scalar, (part == 1).then_some(peer.as_slice())),
        Op::Derive { private: Private::Scalar(curve, scalar), peer } => multiply(channel, *curve, scalar, Some(peer)),
        _ => UNFIT,
    }
}

enum Finished {
    /// An RSA signature, which is checked together with others.
    Signed(Signed),
    /// An answer that has been checked.
    Answer(OpId, Result<Answer, Failure>),
}

/// Assembles an answer, and checks it unless it is checked together with others.
fn finish(mut pending: Pending, samples: &mut Samples) -> Finished {
    let [first, second] = std::mem::take(&mut pending.answers);
    let id = pending.id;
    let result = match &*pending.op {
        Op::Sign { scheme, .. } if check::is_rsa(*scheme) => {
            let signature = first.map(|[signature, _]| signature.to_vec()).unwrap_or_default();
            return Finished::Signed(Signed { pending, signature });
        }
        Op::Sign { key, scheme, message } => first
            .map(|[r, s]| encode::ecdsa_der(&r, &s))
            .filter(|signature| key.verify(*scheme, message, signature))
            .map(Answer::Signature)
            .ok_or(Failure::Wrong),
        op => exchanged(op, std::mem::take(&mut pending.scalar), first, second, samples),
    };
    Finished::Answer(id, result)
}

/// Checks the result of a key exchange.
fn exchanged(
    op: &Op,
    fresh: Secret,
    base: Option<qat::Answer>,
    product: Option<qat::Answer>,
    samples: &mut Samples,
) -> Result<Answer, Failure> {
    let (curve, scalar, peer) = match op {
        Op::KeyGen { curve } => (*curve, &fresh, None),
        Op::Agree { curve, peer } => (*curve, &fresh, Some(peer.as_slice())),
        Op::Derive { private: Private::Scalar(curve, scalar), peer } => (*curve, scalar, Some(peer.as_slice())),
        _ => return Err(Failure::Internal),
    };
    let public = base.map(|base| whole(curve, &base).ok_or(Failure::Wrong)).transpose()?;
    let shared = match product {
        Some(product) => {
            whole(curve, &product).ok_or(Failure::Wrong)?;
            let [x, _] = product;
            // The mark of a low-order point (RFC 7748, 6.1), which is the peer's fault: the library has the last word.
            if curve == Curve::X25519 && x.iter().all(|byte| *byte == 0) {
                return Err(Failure::PeerKey);
            }
            Some(Secret::from(x.to_vec()))
        }
        None => None,
    };
    let known = || check::agrees(curve, scalar, public.as_deref(), peer.zip(shared.as_ref()));
    if samples.next(op.class()) && !known() {
        return Err(Failure::Wrong);
    }
    match (public, shared) {
        (Some(public), Some(secret)) => Ok(Answer::Agreed { public, secret }),
        (Some(public), None) => Ok(Answer::Pair { public, private: Private::Scalar(curve, fresh) }),
        (None, Some(secret)) => Ok(Answer::Shared(secret)),
        (None, None) => Err(Failure::Internal),
    }
}

/// A point from the device in TLS's encoding; `None` if it is not on the curve.
fn whole(curve: Curve, [x, y]: &qat::Answer) -> Option<Vec<u8>> {
    if curve == Curve::X25519 {
        return check::is_reduced(x).then(|| x.to_vec());
    }
    let point = [&[4], x.as_slice(), y.as_slice()].concat();
    check::is_point(curve, &point).then_some(point)
}

/// Whether a device can use the key. Also prepares the form of the key in which the lanes check its signatures.
fn has_key(key: &Arc<SigningKey>, scheme: Scheme, lanes: Lanes) -> bool {
    if lanes.is_accelerated() && check::is_rsa(scheme) {
        Prepared::of(key).soon(key);
    }
    DeviceKey::of(key).is_some() && encode::hash(scheme).is_some()
}

impl Engine for Hw {
    fn suspect(&mut self) {
        self.counters.suspected += 1;
        self.samples.suspect();
    }

    fn start(&mut self, batch: &mut Vec<(OpId, Rc<Op>)>, now: Instant) {
        // What cannot be asked, as for a peer's point off its curve, is the native library's to refuse.
        let refused = std::mem::take(batch).into_iter().filter_map(|(id, op)| {
            let op = self.accept(id, op, now).err()?;
            Some((id, op))
        });
        *batch = refused.collect();
    }

    fn run(&mut self, now: Instant, spent: Duration, answers: &mut Answers) {
        self.pump(answers);
        self.collect(now, answers);
        self.pump(answers);
        self.check(spent, answers);
    }

    fn next(&self, now: Instant) -> Next {
        if !self.answered.is_empty() || !self.signed.is_empty() {
            return Next::Soon;
        }
        if self.is_idle() {
            return Next::Idle;
        }
        // Due within a tick, or overdue by less: the loop goes on. A device that is silent does not keep it awake.
        let due = |pending: &Pending| pending.since + self.pace.predict(pending.op.class(), pending.behind);
        match self.pending.iter().map(|(_, pending)| due(pending)).min() {
            Some(due) if due > now + TICK => Next::At(due - TICK),
            Some(due) if now > due + TICK => Next::At(now + TICK),
            _ => Next::Soon,
        }
    }
}

impl Forecast for Hw {
    /// Each operation is submitted by itself: the ring is the batch.
    fn lanes(&self, class: Class) -> usize {
        usize::from(self.classes.contains(class) && self.channel.is_up())
    }

    fn most(&self, class: Class) -> usize {
        self.room(class)
    }

    fn native_time(&self, class: Class) -> Duration {
        self.costs.of(class).native
    }

    fn serves(&self, op: &Op) -> bool {
        match op {
            Op::Sign { key, scheme, .. } => has_key(key, *scheme, self.lanes),
            Op::KeyGen { .. } => true,
            Op::Agree { curve, peer } | Op::Derive { private: Private::Scalar(curve, _), peer } => {
                peer.len() == curve.public_len()
            }
            _ => false,
        }
    }

    fn is_busy(&self, class: Class) -> bool {
        self.room(class) == 0
    }

    /// Every answer is checked before it is given.
    fn checks(&self, _: Class) -> bool {
        true
    }

    fn predict(&self, class: Class, ahead: usize) -> Duration {
        self.pace.predict(class, self.backlog + pace::weight(class) * ahead as u32)
    }
}

impl Describe for Hw {
    fn name(&self) -> &'static str {
        "hw"
    }

    fn device(&self) -> Option<DeviceReport> {
        let mut counters = self.counters.clone();
        counters.depth = self.channel.depth() as u64;
        counters.ring_full = self.channel.times_full();
        Some(DeviceReport::new(self.channel.device(), counters))
    }
}
