//! Compression by a QuickAssist device, for one worker: pieces are given to it one by one, and its answers are collected in the
//! worker's turns, as those of handshakes are. Nothing of an answer is checked here.

use super::{DEADLINE, Hardware};
use penstock_qat::{Deflated, Deflater, Refused, Summary, deflate::PIECE_MAX};
use slab::Slab;
use std::{
    cell::RefCell,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

/// What is configured of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deflation {
    /// The shortest piece that is given to the device.
    pub least: usize,
    /// Whether a device was demanded.
    pub demanded: bool,
}

/// A worker's use of the device for compression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct CompressionCounters {
    /// Bytes that the device has compressed rightly.
    pub bytes_device: u64,
    /// Bytes of the same kinds of bodies that software has compressed, since the pieces were short, the device full or unusable, or its
    /// answer of no use.
    pub bytes_software: u64,
    /// Pieces given to the device.
    pub pieces: u64,
    /// Pieces whose answer was wrong, late, or an error: software has compressed them again.
    pub wrong: u64,
    pub late: u64,
    pub failed: u64,
    /// Pieces for which there was no room.
    pub full: u64,
    /// Times the device was taken out of service for a while.
    pub benched: u64,
    /// Pieces in progress.
    pub depth: u64,
}

impl CompressionCounters {
    /// Adds the counters of another worker.
    pub fn add(&mut self, other: &CompressionCounters) {
        let CompressionCounters { bytes_device, bytes_software, pieces, wrong, late, failed, full, benched, depth } =
            other;
        self.bytes_device += bytes_device;
        self.bytes_software += bytes_software;
        self.pieces += pieces;
        self.wrong += wrong;
        self.late += late;
        self.failed += failed;
        self.full += full;
        self.benched += benched;
        self.depth += depth;
    }
}

/// What operators see of it.
#[derive(Clone, Debug)]
pub struct CompressionReport {
    /// The use by one worker, or by all.
    pub counters: CompressionCounters,
    /// The instances; none while no device is in use.
    pub instances: Vec<Summary>,
}

/// A piece that was given to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceId(usize);

/// One worker's way to the device, if there is one.
#[derive(Default)]
pub struct Compressor(RefCell<Inner>);

#[derive(Default)]
struct Inner {
    deflater: Option<Deflater>,
    /// The shortest piece, if compression by a device is configured.
    least: Option<usize>,
    pieces: Slab<Piece>,
    counters: CompressionCounters,
    /// Woken when there is something to collect.
    driver: Option<Waker>,
    /// Failures in a row.
    failures: u32,
    benched: Option<Instant>,
    /// How long the device is left alone the next time.
    pause: Duration,
}

enum Piece {
    Waiting(Option<Waker>),
    Over(Option<Vec<u8>>),
    /// Nobody waits for it.
    Forgotten,
}

/// Failures in a row after which the device is left alone; a wrong answer is enough by itself.
const FAILURES: u32 = 4;
/// As for handshakes: a second, then at intervals that double up to a minute.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

impl Compressor {
    /// Replaces the device. What the last one has not answered is answered without a result.
    pub fn install(&self, hardware: Option<&Hardware>, deflation: Option<Deflation>) {
        let old = self.0.borrow_mut().deflater.take();
        drop(old);
        let deflater = hardware.filter(|_| deflation.is_some()).and_then(Hardware::deflater);
        let mut inner = self.0.borrow_mut();
        inner.deflater = deflater;
        inner.least = deflation.map(|deflation| deflation.least);
        (inner.failures, inner.benched, inner.pause) = (0, None, PAUSE);
        let mut woken = Vec::new();
        inner.pieces.retain(|_, piece| {
            if let Piece::Waiting(waker) = piece {
                woken.extend(waker.take());
                *piece = Piece::Over(None);
            }
            !matches!(piece, Piece::Forgotten)
        });
        drop(inner);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Whether bodies may be given to a device.
    pub fn is_there(&self) -> bool {
        self.0.borrow().deflater.is_some()
    }

    /// Gives a piece to the device; `None` if it is better compressed here: it is short, there is no room, or no device in order.
    pub fn submit(&self, piece: &[u8]) -> Option<PieceId> {
        let inner = &mut *self.0.borrow_mut();
        let least = inner.least?;
        if !(least..=PIECE_MAX).contains(&piece.len()) {
            return None;
        }
        let now = Instant::now();
        if inner.benched.is_some_and(|until| now < until) {
            return None;
        }
        let deflater = inner.deflater.as_mut()?;
        let entry = inner.pieces.vacant_entry();
        let id = entry.key();
        match deflater.submit(piece, id as u64, now + DEADLINE) {
            Ok(()) => {}
            Err(Refused::Full) => {
                inner.counters.full += 1;
                return None;
            }
            Err(Refused::Down) => return None,
            Err(Refused::Failed(_)) => {
                inner.counters.failed += 1;
                inner.failed(now);
                return None;
            }
        }
        entry.insert(Piece::Waiting(None));
        inner.counters.pieces += 1;
        inner.driver.take().into_iter().for_each(Waker::wake);
        Some(PieceId(id))
    }

    /// What became of a piece: blocks, which are to be verified, or nothing, so that it is to be compressed here.
    pub fn poll_answer(&self, id: PieceId, cx: &mut Context<'_>) -> Poll<Option<Vec<u8>>> {
        let inner = &mut *self.0.borrow_mut();
        match inner.pieces.get_mut(id.0) {
            Some(Piece::Waiting(waker)) => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
            _ => match inner.pieces.try_remove(id.0) {
                Some(Piece::Over(blocks)) => Poll::Ready(blocks),
                _ => Poll::Ready(None),
            },
        }
    }

    /// Nobody waits for a piece any more.
    pub fn forget(&self, id: PieceId) {
        let inner = &mut *self.0.borrow_mut();
        match inner.pieces.get_mut(id.0) {
            Some(piece @ Piece::Waiting(_)) => *piece = Piece::Forgotten,
            _ => drop(inner.pieces.try_remove(id.0)),
        }
    }

    /// Notes that an answer was right: so many bytes are compressed.
    pub fn was_right(&self, bytes: usize) {
        let inner = &mut *self.0.borrow_mut();
        inner.counters.bytes_device += bytes as u64;
        inner.failures = 0;
        if inner.benched.is_none_or(|until| Instant::now() >= until) {
            inner.pause = PAUSE;
        }
    }

    /// Notes that an answer was wrong. The device is left alone for a while.
    pub fn was_wrong(&self) {
        let inner = &mut *self.0.borrow_mut();
        inner.counters.wrong += 1;
        inner.bench(Instant::now());
    }

    /// Notes that so many bytes were compressed here.
    pub fn was_here(&self, bytes: usize) {
        self.0.borrow_mut().counters.bytes_software += bytes as u64;
    }

    /// For the driver: ready while the device has pieces of this worker's.
    pub fn poll_work(&self, cx: &mut Context<'_>) -> Poll<()> {
        let inner = &mut *self.0.borrow_mut();
        if inner.is_busy() {
            return Poll::Ready(());
        }
        inner.driver = Some(cx.waker().clone());
        Poll::Pending
    }

    /// For the driver: collects answers; returns whether more are due.
    pub fn turn(&self, now: Instant) -> bool {
        let inner = &mut *self.0.borrow_mut();
        let Some(deflater) = &mut inner.deflater else { return false };
        let mut over = Vec::new();
        deflater.poll(now, |tag, outcome| over.push((tag as usize, outcome)));
        for (id, outcome) in over {
            let blocks = match outcome {
                Deflated::Answered(blocks) => Some(blocks),
                Deflated::Failed(_) => {
                    inner.counters.failed += 1;
                    None
                }
                Deflated::Late => {
                    inner.counters.late += 1;
                    None
                }
            };
            if blocks.is_none() {
                inner.failed(now);
            }
            match inner.pieces.get_mut(id) {
                Some(piece @ Piece::Waiting(_)) => {
                    if let Piece::Waiting(Some(waker)) = std::mem::replace(piece, Piece::Over(blocks)) {
                        waker.wake();
                    }
                }
                Some(Piece::Forgotten) => drop(inner.pieces.remove(id)),
                _ => {}
            }
        }
        inner.is_busy()
    }

    /// What operators see; `None` if compression by a device is not configured.
    pub fn report(&self) -> Option<CompressionReport> {
        let inner = self.0.borrow();
        inner.least?;
        let depth = inner.deflater.as_ref().map_or(0, Deflater::depth) as u64;
        let instances = inner.deflater.as_ref().map_or_else(Vec::new, |deflater| deflater.device().deflaters());
        Some(CompressionReport { counters: CompressionCounters { depth, ..inner.counters }, instances })
    }
}

impl Inner {
    fn is_busy(&self) -> bool {
        self.deflater.as_ref().is_some_and(|deflater| deflater.depth() > 0)
    }

    fn failed(&mut self, now: Instant) {
        self.failures += 1;
        if self.failures >= FAILURES {
            self.bench(now);
        }
    }

    fn bench(&mut self, now: Instant) {
        self.failures = 0;
        if self.benched.is_some_and(|until| now < until) {
            // Those pieces were given to it before.
            return;
        }
        self.counters.benched += 1;
        self.benched = Some(now + self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}
