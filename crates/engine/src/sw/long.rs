//! RSA in progress: a batch in pieces, which are its start, step after step, and its results.

use super::{Batch, Cost, Prepared, turn::Turn};
use crate::{Answer, Answers, Class, Failure, Op, encode};
use penstock_lanes::{
    LANES, LaneError, Lanes,
    rsa::{RsaBatch, RsaJob},
};
use std::time::Duration;

/// RSA operations that fill a vector: each takes two lanes, one for each half.
pub(super) const RSA_LANES: usize = LANES / 2;
/// What of a batch's cost is its start (messages encoded, numbers packed) and what its results: 0.3 to 1.1 %, and 0.2 to
/// 0.8 %, by size (docs/measurements/lanes.md).
const START_SHARE: u32 = 64;
const RESULTS_SHARE: u32 = 96;

/// Time for which steps run before the clock is read. Whatever makes them slower than measured (cold caches, a busy neighbour on
/// the core) then lengthens a turn by half of this, not by half a turn.
const WITHOUT_A_LOOK: Duration = Duration::from_micros(50);

/// The classes computed here.
pub(super) const SIZES: [Class; 3] = [Class::Rsa2048, Class::Rsa3072, Class::Rsa4096];

/// The index of a class in [`SIZES`].
pub(super) fn place(class: Class) -> Option<usize> {
    SIZES.iter().position(|size| *size == class)
}

/// A batch in progress.
pub(super) struct Long {
    batch: Batch,
    /// The whole cost.
    cost: Duration,
    stage: Progress,
}

enum Progress {
    Waiting,
    Working { work: RsaBatch, step: Duration },
    Done,
}

impl Long {
    /// A batch of this cost, of which nothing is computed yet.
    pub fn new(batch: Batch, of: Cost) -> Long {
        let passes = batch.len().div_ceil(RSA_LANES) as u32;
        Long { cost: of.call(batch.len()) * passes, batch, stage: Progress::Waiting }
    }

    /// Whether the batch's answers have been taken.
    pub fn is_done(&self) -> bool {
        matches!(self.stage, Progress::Done)
    }

    /// The part of its cost that is left.
    pub fn left(&self) -> Duration {
        match &self.stage {
            Progress::Waiting => self.cost,
            Progress::Working { work, step } => *step * work.steps_left() as u32 + self.cost / RESULTS_SHARE,
            Progress::Done => Duration::ZERO,
        }
    }

    /// The cost of the next piece.
    pub fn piece(&self) -> Duration {
        match &self.stage {
            Progress::Waiting => self.cost / START_SHARE,
            Progress::Working { work, step } if work.steps_left() > 0 => *step,
            Progress::Working { .. } => self.cost / RESULTS_SHARE,
            Progress::Done => Duration::ZERO,
        }
    }

    /// Does the next piece: as many steps as fit before `until`, up to the next reading of the clock.
    pub fn advance(&mut self, lanes: Lanes, turn: &mut Turn, until: Duration, answers: &mut Answers) {
        let piece = self.piece();
        match &mut self.stage {
            Progress::Waiting => {
                self.start(lanes, answers);
                turn.charge(piece);
            }
            Progress::Working { work, step } if work.steps_left() > 0 => {
                let fit = turn.left(until).min(WITHOUT_A_LOOK).as_nanos() / step.as_nanos().max(1);
                let steps = (fit as usize).clamp(1, work.steps_left());
                work.advance(steps);
                turn.charge(piece * steps as u32);
            }
            Progress::Working { .. } => {
                self.finish(answers);
                turn.charge(piece);
            }
            Progress::Done => {}
        }
    }

    /// Packs the operations that lanes can compute. The others are answered with an error, so that the native library decides.
    fn start(&mut self, lanes: Lanes, answers: &mut Answers) {
        let encoded: Vec<Option<Vec<u8>>> = self.batch.iter().map(|(_, op)| encode_rsa(lanes, op)).collect();
        let mut inputs = encoded.iter();
        self.batch.retain(|(id, _)| {
            let fits = inputs.next().is_some_and(Option::is_some);
            if !fits {
                answers.push((*id, Err(Failure::Internal)));
            }
            fits
        });
        let inputs = encoded.iter().flatten();
        let job = |(key, input)| RsaJob { key, input };
        let jobs: Vec<RsaJob<'_>> =
            self.batch.iter().filter_map(|(_, op)| rsa_key(op)).zip(inputs.map(Vec::as_slice)).map(job).collect();
        self.stage = if jobs.is_empty() {
            Progress::Done
        } else {
            let work = RsaBatch::new(lanes, &jobs);
            let step = self.cost / work.steps_left().max(1) as u32;
            Progress::Working { work, step }
        };
    }

    fn finish(&mut self, answers: &mut Answers) {
        if let Progress::Working { work, .. } = std::mem::replace(&mut self.stage, Progress::Done) {
            let results = work.finish().into_iter().map(|result| match result {
                Ok(signature) => Ok(Answer::Signature(signature)),
                Err(LaneError::Fault) => Err(Failure::Wrong),
                Err(_) => Err(Failure::Internal),
            });
            answers.extend(self.batch.drain(..).map(|(id, _)| id).zip(results));
        }
    }
}

fn rsa_key(op: &Op) -> Option<&penstock_lanes::rsa::RsaKey> {
    match op {
        Op::Sign { key, .. } => Prepared::of(key).rsa(),
        _ => None,
    }
}

fn encode_rsa(lanes: Lanes, op: &Op) -> Option<Vec<u8>> {
    match op {
        Op::Sign { scheme, message, .. } => encode::encode(lanes, *scheme, message, rsa_key(op)?.size()),
        _ => None,
    }
}
