//! What operations cost on this machine, natively and in lanes, and so from which fill on lanes pay.

use crate::{Answer, Class, Curve, Op, Private, Scheme, Secret, SigningKey, class::Assumed, native};
use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm},
};
use penstock_lanes::{LANES, Lanes};
use std::{rc::Rc, time::Duration};

/// The costs of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// One operation, by the native library.
    pub native: Duration,
    /// One call to the lanes, however many operations it holds; for RSA, one of two to four.
    pub lanes: Duration,
    /// One call to the lanes with one operation: RSA has an arrangement of its own for it.
    pub single: Duration,
}

impl Cost {
    /// The fewest operations for which a call costs no more than as many native ones.
    pub fn break_even(&self) -> usize {
        if self.single <= self.native {
            return 1;
        }
        let native = self.native.as_nanos().max(1);
        (self.lanes.as_nanos().div_ceil(native) as usize).max(2)
    }

    /// The cost of a call with this many operations; for RSA, of as many calls of four as it takes.
    pub fn call(&self, operations: usize) -> Duration {
        if operations == 1 { self.single } else { self.lanes }
    }
}

/// The costs of every class that lanes serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs([Cost; Class::COUNT]);

/// Most time that measuring may take, and most of it for one class.
const MEASURE_MAX: Duration = Duration::from_millis(45);
const CLASS_MAX: Duration = Duration::from_micros(1500);

/// A published test key of the library: it is timed, and signs nothing.
pub(crate) const RSA_2048: &[u8] = include_bytes!("rsa2048.der");

impl Costs {
    /// The costs on the machine that this was written on.
    pub fn assumed() -> Costs {
        let assumed = |assumed: Assumed| Cost { native: assumed.native, lanes: assumed.lanes, single: assumed.single };
        Costs(Class::ALL.map(|class| class.assumed().map_or_else(Cost::default, assumed)))
    }

    /// Measures this machine, in less than 50 ms of CPU time; defaults stand for what there is no time for. The quickest of several runs
    /// counts, since noise only ever slows a run down.
    pub fn measure(lanes: Lanes) -> Costs {
        let mut costs = Costs::assumed();
        // The thread's random generator is seeded by making these, which every process pays for once.
        let samples = samples();
        let began = cpu_time();
        let mut engine = super::Sw::new(lanes, costs, Default::default());
        for (class, op) in samples {
            if cpu_time() - began > MEASURE_MAX {
                break;
            }
            let batch: super::Batch =
                (0..engine_batch(class)).map(|serial| (crate::OpId::sample(serial), op.clone())).collect();
            let native = quickest(began, || drop(native::compute(&op)));
            let lanes = quickest(began, || engine.compute(class, batch.clone()));
            let single = match super::long::place(class) {
                Some(_) => quickest(began, || engine.compute(class, batch[..1].to_vec())),
                None => lanes,
            };
            if let (Some(native), Some(lanes), Some(single)) = (native, lanes, single) {
                costs.0[class as usize] = Cost { native, lanes, single };
            }
        }
        // Preparing a larger key takes longer than measuring may: larger sizes keep their proportions.
        let (assumed, measured) = (Costs::assumed().of(Class::Rsa2048), costs.of(Class::Rsa2048));
        for class in [Class::Rsa3072, Class::Rsa4096] {
            let cost = &mut costs.0[class as usize];
            cost.native = cost.native.mul_f64(measured.native.div_duration_f64(assumed.native));
            cost.lanes = cost.lanes.mul_f64(measured.lanes.div_duration_f64(assumed.lanes));
            cost.single = cost.single.mul_f64(measured.single.div_duration_f64(assumed.single));
        }
        costs
    }

    /// The costs of one class.
    pub fn of(&self, class: Class) -> Cost {
        self.0[class as usize]
    }

    /// The costs on a machine that is slower by a given factor.
    #[must_use]
    pub fn times(self, factor: u32) -> Costs {
        let slower = |cost: Cost| Cost {
            native: cost.native * factor,
            lanes: cost.lanes * factor,
            single: cost.single * factor,
        };
        Costs(self.0.map(slower))
    }

    /// Returns these costs with one change: lanes pay for `class` from `fill` operations on.
    #[must_use]
    pub fn with_break_even(mut self, class: Class, fill: u32) -> Costs {
        let cost = &mut self.0[class as usize];
        cost.lanes = cost.native * fill;
        cost.single = cost.lanes;
        self
    }
}

/// The quickest of a few runs; `None` if measuring has taken too long already.
fn quickest(began: Duration, mut run: impl FnMut()) -> Option<Duration> {
    // The first run of a class builds its tables: it is not timed.
    run();
    let class_began = cpu_time();
    let mut best = None;
    for _ in 0..6 {
        let start = cpu_time();
        run();
        let end = cpu_time();
        best = Some(best.map_or(end - start, |best: Duration| best.min(end - start)));
        if end - class_began > CLASS_MAX || end - began > MEASURE_MAX {
            break;
        }
    }
    best
}

/// CPU time of this thread: on a busy machine, the wall clock would measure other processes.
fn cpu_time() -> Duration {
    Duration::from_nanos(crate::worker::thread_cpu_ns())
}

fn engine_batch(class: Class) -> u64 {
    if super::long::place(class).is_some() { super::RSA_LANES as u64 } else { LANES as u64 }
}

/// An operation of each class that can be measured, the most used first.
fn samples() -> Vec<(Class, Rc<Op>)> {
    let rsa = SigningKey::from_der(RSA_2048.to_vec()).ok().map(|key| (key, Scheme::RsaPssSha256));
    let ecdsa = |algorithm: &'static EcdsaSigningAlgorithm, scheme| {
        let der = EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new()).ok()?;
        Some((SigningKey::from_der(der.as_ref().to_vec()).ok()?, scheme))
    };
    let keys = [
        rsa,
        ecdsa(&ECDSA_P256_SHA256_ASN1_SIGNING, Scheme::EcdsaP256Sha256),
        ecdsa(&ECDSA_P384_SHA384_ASN1_SIGNING, Scheme::EcdsaP384Sha384),
    ];
    let sign = |(key, scheme): (SigningKey, Scheme)| {
        super::prepare(&key);
        Op::Sign { key: key.into(), scheme, message: b"how long does this take?".to_vec() }
    };
    let mut ops: Vec<Op> = keys.into_iter().flatten().map(sign).collect();
    for curve in [Curve::X25519, Curve::P256, Curve::P384] {
        let Ok(Answer::Pair { public: peer, .. }) = native::compute(&Op::KeyGen { curve }) else { continue };
        ops.push(Op::Agree { curve, peer: peer.clone() });
        // Any number below the order serves.
        let private = Private::Scalar(curve, Secret::from(vec![0x42; curve.secret_len()]));
        ops.push(Op::Derive { private, peer });
        ops.push(Op::KeyGen { curve });
    }
    if let Ok(Answer::KemPair { public: peer, .. }) = native::compute(&Op::KemKeyGen) {
        ops.insert(2, Op::KemEncapsulate { peer });
    }
    ops.into_iter().map(|op| (op.class(), Rc::new(op))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn break_even_is_the_fill_at_which_a_call_costs_no_more() {
        const NS: fn(u64) -> Duration = Duration::from_nanos;
        for (native, lanes, single, fill) in [
            (10, 40, 40, 4),
            (10, 41, 41, 5),
            (10, 10, 10, 1),
            (10, 3, 3, 1),
            (0, 5, 5, 5),
            (10, 12, 9, 1),
            (10, 9, 11, 2),
        ] {
            assert_eq!(Cost { native: NS(native), lanes: NS(lanes), single: NS(single) }.break_even(), fill);
        }
        assert_eq!(Costs::assumed().with_break_even(Class::Rsa2048, 3).of(Class::Rsa2048).break_even(), 3);
    }

    #[test]
    fn every_class_that_lanes_serve_has_a_cost() {
        use crate::Forecast;
        let engine = super::super::Sw::new(Lanes::detect(), Costs::assumed(), Default::default());
        for class in Class::ALL {
            assert_eq!(engine.lanes(class) > 0, engine.native_time(class) > Duration::ZERO, "{class:?}");
        }
    }
}
