//! The process's hardware: opened once, tested with known answers, shared by the workers.

use super::{DEADLINE, Hw, Pace, pace};
use crate::{
    Algorithm, Answer, Class, Classes, Curve, Engine, Failure, Next, Op, OpId, Private, Scheme, Secret, SigningKey,
    Work, native,
    sw::{self, Costs},
};
use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair},
};
use penstock_lanes::Lanes;
use penstock_qat::{Channel, Deflater, Device, Options, Unavailable};
use std::{
    fmt,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

/// A device that has been opened and has given the known answers.
pub struct Hardware {
    device: Arc<Device>,
    workers: usize,
    can: [bool; Class::COUNT],
    pace: Pace,
}

/// Why no device can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// The device cannot be opened.
    Unavailable(Unavailable),
    /// No known answer came out right: the first class that was tried, and what was wrong with its result.
    Useless(Class, Failure),
}

impl Unusable {
    /// Whether a later attempt may succeed: another process may release the device, for example.
    pub fn may_pass(&self) -> bool {
        use Unavailable::*;
        matches!(self, Unusable::Unavailable(NoDevice | NotStarted(..) | NoInstance(0) | NoMemory))
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unusable::Unavailable(why) => why.fmt(f),
            Unusable::Useless(class, Failure::Wrong) => write!(f, "the device answers wrongly ({})", class.name()),
            Unusable::Useless(class, _) => write!(f, "the device does not answer ({})", class.name()),
        }
    }
}

impl std::error::Error for Unusable {}

/// How often each known answer is asked for; the first time warms the device up.
const TRIALS: u64 = 4;

impl Hardware {
    /// Checks that there is a library which sees a device, without opening it: for a process that will fork, or will not serve.
    ///
    /// # Errors
    /// Why it could not be used.
    pub fn probe(options: &Options) -> Result<(), Unusable> {
        Device::probe(options).map_err(Unusable::Unavailable)
    }

    /// Opens the device for this many workers and asks for known answers. Takes some milliseconds, and a tenth of a second for each
    /// class that it does not answer.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn open(options: &Options, workers: usize) -> Result<Arc<Hardware>, Unusable> {
        let hardware = Hardware::opened(options, workers)?;
        if hardware.device.instances().is_empty() {
            return Err(Unusable::Unavailable(Unavailable::NoInstance(0)));
        }
        Ok(Arc::new(hardware.tried_out()?))
    }

    /// Opens the device for compression alone.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn open_for_compression(options: &Options, workers: usize) -> Result<Arc<Hardware>, Unusable> {
        Ok(Arc::new(Hardware::opened(&Options { compression: true, ..options.clone() }, workers)?))
    }

    fn opened(options: &Options, workers: usize) -> Result<Hardware, Unusable> {
        let device = Device::open(options).map_err(Unusable::Unavailable)?;
        Ok(Hardware { device, workers, can: [false; Class::COUNT], pace: Pace::default() })
    }

    fn tried_out(mut self) -> Result<Hardware, Unusable> {
        let has = self.device.capabilities();
        self.can = Class::ALL.map(|class| match class.work() {
            Work::Sign(Algorithm::Rsa2048 | Algorithm::Rsa3072 | Algorithm::Rsa4096) => has.rsa,
            Work::Sign(Algorithm::EcdsaP256 | Algorithm::EcdsaP384) => has.ecdsa,
            Work::KeyGen(curve) | Work::Derive(curve) | Work::Agree(curve) => match curve {
                Curve::X25519 => has.x25519,
                Curve::P256 | Curve::P384 => has.ecdh,
            },
            _ => false,
        });
        self.try_out()?;
        Ok(self)
    }

    /// Asks for the known answers. A class that fails is not used, nor are those of its kind; if all fail, the device has failed.
    fn try_out(&mut self) -> Result<(), Unusable> {
        let mut failed = None;
        let mut engine = Hw::new(self, Classes::default(), Lanes::portable(), Costs::assumed());
        for op in known() {
            let class = op.class();
            debug_assert!(pace::weight(class) > 0);
            if !self.can(class) {
                continue;
            }
            for serial in 0..TRIALS {
                if let Err(failure) = ask(&mut engine, &op, serial) {
                    failed.get_or_insert((class, failure));
                    for kin in Class::ALL.into_iter().filter(|kin| are_kin(*kin, class)) {
                        self.can[kin as usize] = false;
                    }
                    break;
                }
            }
        }
        self.pace = engine.pace;
        match failed {
            Some((class, failure)) if !self.can.contains(&true) => Err(Unusable::Useless(class, failure)),
            _ => Ok(()),
        }
    }

    /// Whether the device computes operations of this class, and gave the known answer for it.
    pub fn can(&self, class: Class) -> bool {
        self.can[class as usize]
    }

    /// Whether giving the device operations of a class costs the processor clearly less than computing them. Compares an
    /// operation's share of a call to the lanes, or the library's time, with the check of the answer and the cost of a request.
    pub fn pays(&self, class: Class, costs: &Costs, lanes: Lanes) -> bool {
        /// Writing and reading numbers, a call and its callback: some microseconds.
        const WAY: Duration = Duration::from_micros(6);
        let cost = costs.of(class);
        let computed = match lanes.is_accelerated() {
            true => cost.native.min(cost.lanes / sw::full(class)),
            false => cost.native,
        };
        let requests = super::requests(class) as u32;
        let check = match class.work() {
            // By the public exponent, 65537: 17 multiplications beside the signature's thousands.
            Work::Sign(algorithm) if algorithm.is_rsa() => cost.native / 20,
            // Verifying costs two to three signatures.
            Work::Sign(_) => cost.native * 5 / 2,
            // Whether a point is on its curve, and one in 64 computed again.
            _ => cost.native / 64 + Duration::from_micros(4),
        };
        self.can(class) && WAY * requests + check < computed / 2
    }

    /// Times it took for the known answers.
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// Time for one operation, as measured when the device was opened.
    pub fn took(&self, class: Class) -> Option<Duration> {
        self.pace.least(class)
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// A worker's share of the instances for compression, if there are any.
    pub(super) fn deflater(&self) -> Option<Deflater> {
        self.device.deflater(self.workers, node())
    }

    pub(super) fn channel(&self) -> Channel {
        self.device.channel(self.workers, node())
    }
}

impl fmt::Debug for Hardware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hardware({:?})", self.device.instances())
    }
}

/// The NUMA node of this thread's processors, if they are all on one. A worker is bound to its processors before it opens
/// its engine.
fn node() -> Option<u32> {
    let allowed = rustix::thread::sched_getaffinity(None).ok()?;
    let on = |node: u32| {
        let list = std::fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist")).ok()?;
        let ranges = list.trim().split(',').filter_map(|range| {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            Some(from.parse::<usize>().ok()?..=to.parse().ok()?)
        });
        Some(ranges.flatten().filter(|cpu| allowed.is_set(*cpu)).count())
    };
    let counts: Vec<usize> = (0..).map_while(on).collect();
    let mut nodes = (0..).zip(&counts).filter(|(_, count)| **count > 0);
    // With one node there is nothing to choose.
    nodes.next().map(|(node, _)| node).filter(|_| nodes.next().is_none() && counts.len() > 1)
}

/// Submits one request and waits for its answer.
fn ask(engine: &mut Hw, op: &Rc<Op>, serial: u64) -> Result<(), Failure> {
    let began = Instant::now();
    let mut batch = vec![(OpId::sample(serial), op.clone())];
    engine.start(&mut batch, began);
    if !batch.is_empty() {
        return Err(Failure::Device);
    }
    let mut answers = Vec::new();
    while answers.is_empty() && began.elapsed() < 2 * DEADLINE {
        engine.run(Instant::now(), Duration::ZERO, &mut answers);
        if engine.next(Instant::now()) != Next::Soon {
            std::thread::sleep(Duration::from_micros(20));
        }
    }
    let answer = answers.pop().ok_or(Failure::Device)?.1?;
    let known = match (&**op, &answer) {
        (Op::Derive { .. }, Answer::Shared(secret)) => {
            matches!(native::compute(op), Ok(Answer::Shared(known)) if known.expose() == secret.expose())
        }
        _ => op.accepts(&answer),
    };
    if known { Ok(()) } else { Err(Failure::Wrong) }
}

/// A request of each kind, whose answer decides for all classes of that kind. The keys are fresh, or published test keys.
fn known() -> Vec<Rc<Op>> {
    let ecdsa = |algorithm| {
        let der = EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new()).ok()?;
        SigningKey::from_der(der.as_ref().to_vec()).ok()
    };
    let keys = [
        (SigningKey::from_der(sw::RSA_2048.to_vec()).ok(), Scheme::RsaPssSha256),
        (ecdsa(&ECDSA_P256_SHA256_ASN1_SIGNING), Scheme::EcdsaP256Sha256),
        (ecdsa(&ECDSA_P384_SHA384_ASN1_SIGNING), Scheme::EcdsaP384Sha384),
    ];
    let mut questions = Vec::new();
    for (key, scheme) in keys {
        let Some(key) = key else { continue };
        questions.push(Op::Sign { key: key.into(), scheme, message: b"is this signed rightly?".to_vec() });
    }
    for curve in [Curve::X25519, Curve::P256, Curve::P384] {
        let Ok(Answer::Pair { public: peer, .. }) = native::compute(&Op::KeyGen { curve }) else { continue };
        let private = Private::Scalar(curve, Secret::from(vec![0x42; curve.secret_len()]));
        questions.push(Op::Derive { private, peer });
    }
    questions.into_iter().map(Rc::new).collect()
}

/// Whether two classes are computed by the same function of a device, so that they stand or fall together: RSA of any size, a
/// signature on one curve, key exchange on one curve.
fn are_kin(one: Class, other: Class) -> bool {
    match (one.work(), other.work()) {
        (Work::Sign(one), Work::Sign(other)) => one == other || one.is_rsa() && other.is_rsa(),
        (one, other) => one.curve().is_some() && one.curve() == other.curve(),
    }
}
