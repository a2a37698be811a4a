//! The process's hardware: opened once, tested with known answers, shared by the workers.

use super::{DEADLINE, Hw, Pace, pace};
use crate::{
    Answer, Class, Curve, Engine, Failure, Next, Op, OpId, Private, Scheme, Secret, SigningKey, native,
    plan::Classes,
    sw::{self, Costs},
};
use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair},
};
use penstock_lanes::Lanes;
use penstock_qat::{Channel, Device, Options, Unavailable};
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
    /// It cannot be opened.
    Unavailable(Unavailable),
    /// It gave no known answer rightly: the first that was asked for, and what was wrong with the result.
    Useless(Class, Failure),
}

impl Unusable {
    /// Whether it may pass: another process holds the device and may release it.
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
        let device = Device::open(options).map_err(Unusable::Unavailable)?;
        let has = device.capabilities();
        let mut hardware = Hardware { device, workers, can: [false; Class::COUNT], pace: Pace::default() };
        for class in Class::ALL {
            use Class::*;
            hardware.can[class as usize] = match class {
                Rsa2048 | Rsa3072 | Rsa4096 => has.rsa,
                EcdsaP256 | EcdsaP384 => has.ecdsa,
                X25519KeyGen | X25519Derive | X25519Agree => has.x25519,
                P256KeyGen | P256Derive | P256Agree | P384KeyGen | P384Derive | P384Agree => has.ecdh,
                RsaOther | SignOther | MlKemKeyGen | MlKemEncapsulate | MlKemDecapsulate => false,
            };
        }
        hardware.try_out()?;
        Ok(Arc::new(hardware))
    }

    /// Asks for the known answers. A class that fails is not used, nor are those of its kind; if all fail, the device has failed.
    fn try_out(&mut self) -> Result<(), Unusable> {
        let mut failed = None;
        let mut engine = Hw::new(self, Classes::default(), Lanes::portable(), Costs::assumed());
        for (class, op, kin) in known() {
            if !self.can(class) {
                continue;
            }
            for serial in 0..TRIALS {
                if let Err(failure) = ask(&mut engine, &op, serial) {
                    failed.get_or_insert((class, failure));
                    kin.iter().for_each(|class| self.can[*class as usize] = false);
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

    /// Whether it computes operations of this class, and has done so rightly.
    pub fn can(&self, class: Class) -> bool {
        self.can[class as usize]
    }

    /// Whether giving it operations of a class costs the processor clearly less than computing them. Compares an operation's share of
    /// a call to the lanes, or the library's time, with the check of the answer and the cost of a request.
    pub fn pays(&self, class: Class, costs: &Costs, lanes: Lanes) -> bool {
        /// Writing and reading numbers, a call and its callback: some microseconds.
        const WAY: Duration = Duration::from_micros(6);
        let cost = costs.of(class);
        let computed = match lanes.is_accelerated() {
            true => cost.native.min(cost.lanes / sw::full(class)),
            false => cost.native,
        };
        let requests = super::requests(class) as u32;
        let check = match class {
            // By the public exponent, 65537: 17 multiplications beside the signature's thousands.
            Class::Rsa2048 | Class::Rsa3072 | Class::Rsa4096 => cost.native / 20,
            // Verifying costs two to three signatures.
            Class::EcdsaP256 | Class::EcdsaP384 => cost.native * 5 / 2,
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

/// A request of each kind, and the classes that stand or fall with its answer. The keys are fresh, or published test keys.
fn known() -> Vec<(Class, Rc<Op>, &'static [Class])> {
    use Class::*;
    let ecdsa = |algorithm| {
        let der = EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new()).ok()?;
        SigningKey::from_der(der.as_ref().to_vec()).ok()
    };
    let keys: [(Option<SigningKey>, Scheme, &'static [Class]); 3] = [
        (SigningKey::from_der(sw::RSA_2048.to_vec()).ok(), Scheme::RsaPssSha256, &[Rsa2048, Rsa3072, Rsa4096]),
        (ecdsa(&ECDSA_P256_SHA256_ASN1_SIGNING), Scheme::EcdsaP256Sha256, &[EcdsaP256]),
        (ecdsa(&ECDSA_P384_SHA384_ASN1_SIGNING), Scheme::EcdsaP384Sha384, &[EcdsaP384]),
    ];
    let mut questions = Vec::new();
    for (key, scheme, kin) in keys {
        let Some(key) = key else { continue };
        let op = Op::Sign { key: key.into(), scheme, message: b"is this signed rightly?".to_vec() };
        questions.push((op.class(), Rc::new(op), kin));
    }
    let curves: [(Curve, &'static [Class]); 3] = [
        (Curve::X25519, &[X25519KeyGen, X25519Derive, X25519Agree]),
        (Curve::P256, &[P256KeyGen, P256Derive, P256Agree]),
        (Curve::P384, &[P384KeyGen, P384Derive, P384Agree]),
    ];
    for (curve, kin) in curves {
        let Ok(Answer::Pair { public: peer, .. }) = native::compute(&Op::KeyGen { curve }) else { continue };
        let private = Private::Scalar(curve, Secret::from(vec![0x42; curve.secret_len()]));
        let op = Op::Derive { private, peer };
        questions.push((op.class(), Rc::new(op), kin));
    }
    debug_assert!(questions.iter().all(|(class, ..)| pace::weight(*class) > 0));
    questions
}
