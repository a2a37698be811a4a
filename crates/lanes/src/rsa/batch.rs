//! The private operation on one to eight jobs, in steps.

use super::key::{RsaKey, RsaSize};
use super::mont::{Columns, Modulus, half_form, mont_mul, mont_mul_by_halves, mont_reduce, mont_sqr, mont_sqrs};
use super::pack::{lane_to_be, pack_into, pack_modulus, pack_windows, subtract_once, unpack};
use super::single::Single;
use super::table::{POWERS, Table, WINDOW};
use super::verify::{CHECK_STEPS, Check};
use crate::cpu::{Implementation, Task};
use crate::vector::{Digit, Lane8, Vector, kernel};
use crate::{LANES, LaneError, Lanes, declassify, limbs};
use core::cell::RefCell;
use zeroize::Zeroize;

/// One private operation: `input^d mod n`.
#[derive(Clone, Copy)]
pub struct RsaJob<'a> {
    /// The key, of the batch's size.
    pub key: &'a RsaKey,
    /// The input, big-endian, as long as the modulus and below it: an encoded message.
    pub input: &'a [u8],
}

/// The progress of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Steps remain.
    Working {
        /// The number of steps.
        steps_left: usize,
    },
    /// The results are ready.
    Done,
}

/// Private operations in progress, on up to eight jobs. Up to four jobs cost half as much as eight; a single one, which
/// is arranged differently (see `single.rs`), costs still less.
///
/// The work is divided into steps of a few microseconds each (a window of the exponents, or one squaring of the final
/// check), so that a caller with other work decides how long to stay away: on AVX-512 a step of the largest size takes
/// less than 20 µs, so ten never exceed 200.
///
/// Each result is checked before it is returned, by raising it to the public exponent: a wrong CRT result would reveal
/// the primes (Boneh, DeMillo, Lipton 1997), so it is destroyed and replaced by [`LaneError::Fault`].
pub struct RsaBatch {
    lanes: Lanes,
    kind: Kind,
    /// `None` only during drop.
    work: Option<Box<dyn Work>>,
    steps_left: usize,
}

/// Batches of the same kind can use the same memory.
type Kind = (Implementation, RsaSize);

thread_local! {
    /// The memory of this thread's last batch of each kind, zeroed. It is up to a quarter of a megabyte, and requesting
    /// it from the system again costs a few percent of a batch's time.
    static SPARE: RefCell<Vec<(Kind, Box<dyn Work>)>> = const { RefCell::new(Vec::new()) };
}

impl RsaBatch {
    /// How many of a batch's steps check its results; they come last.
    pub const CHECK_STEPS: usize = CHECK_STEPS;

    /// Starts a batch. Panics unless there are 1 to 8 jobs.
    ///
    /// An input of the wrong length or not below its modulus, or a key of another size than the first, fails that lane
    /// alone.
    pub fn new(lanes: Lanes, jobs: &[RsaJob<'_>]) -> RsaBatch {
        assert!((1..=LANES).contains(&jobs.len()), "a batch takes 1 to 8 jobs");
        let size = jobs[0].key.size();
        let kind = (lanes.implementation(), size);
        let spare = SPARE.with_borrow_mut(|spare| {
            let at = spare.iter().position(|(of, _)| *of == kind)?;
            Some(spare.swap_remove(at).1)
        });
        let mut work = spare.unwrap_or_else(|| lanes.run(Empty { size }));
        work.start(jobs);
        lanes.clear_registers();
        RsaBatch { lanes, kind, steps_left: work.steps(), work: Some(work) }
    }

    fn work(&mut self) -> &mut dyn Work {
        &mut **self.work.as_mut().expect("it is not dropped")
    }

    /// Does up to `steps` steps.
    pub fn advance(&mut self, steps: usize) -> Progress {
        for _ in 0..steps.min(self.steps_left) {
            self.work().step();
            self.steps_left -= 1;
        }
        self.lanes.clear_registers();
        if self.steps_left == 0 { Progress::Done } else { Progress::Working { steps_left: self.steps_left } }
    }

    /// How many steps remain.
    pub fn steps_left(&self) -> usize {
        self.steps_left
    }

    /// The results in the order of the jobs, each as long as the modulus, big-endian. Does any remaining steps first.
    pub fn finish(mut self) -> Vec<Result<Vec<u8>, LaneError>> {
        self.advance(usize::MAX);
        self.work().results()
    }
}

impl Drop for RsaBatch {
    fn drop(&mut self) {
        let Some(mut work) = self.work.take() else { return };
        work.clear();
        // A thread that is ending has no spares any more: then the memory is freed.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if !spare.iter().any(|(of, _)| *of == self.kind) {
                spare.push((self.kind, work));
            }
        });
    }
}

/// A batch of any size on any vector type.
trait Work: Send {
    /// Starts a batch, in memory that is new or cleared.
    fn start(&mut self, jobs: &[RsaJob<'_>]);
    fn steps(&self) -> usize;
    fn step(&mut self);
    fn results(&mut self) -> Vec<Result<Vec<u8>, LaneError>>;
    /// Zeroes everything derived from keys and inputs.
    fn clear(&mut self);
}

/// Memory for a batch.
struct Empty {
    size: RsaSize,
}

/// The type of a batch of one key size, which determines all its lengths.
macro_rules! batch_of {
    ($vector:ty, $size:expr) => {
        Batch<
            $vector,
            { $size.half_limbs() },
            { $size.limbs() },
            { $size.half_limbs().div_ceil(LANES) },
            { $size.limbs().div_ceil(LANES) },
        >
    };
}

impl Task for Empty {
    type Out = Box<dyn Work>;

    fn run<V: Lane8>(self) -> Box<dyn Work> {
        match self.size {
            RsaSize::Bits2048 => Box::new(<batch_of!(V, RsaSize::Bits2048)>::empty(self.size)),
            RsaSize::Bits3072 => Box::new(<batch_of!(V, RsaSize::Bits3072)>::empty(self.size)),
            RsaSize::Bits4096 => Box::new(<batch_of!(V, RsaSize::Bits4096)>::empty(self.size)),
        }
    }
}

/// Eight jobs of one key size; `batch_of` computes the lengths: the numbers of limbs in a prime and in a modulus, and those of the
/// vectors that hold them.
struct Batch<
    V: Vector,
    const PRIME: usize,
    const MODULUS: usize,
    const PRIME_VECTORS: usize,
    const MODULUS_VECTORS: usize,
> {
    jobs: usize,
    size: RsaSize,
    bad_input: u8,
    done: usize,
    /// Each pass takes four jobs.
    passes: [Box<Pass<V, PRIME>>; 2],
    /// Exponentiates in place of a pass if there is only one job.
    single: Box<Single<V, PRIME, PRIME_VECTORS>>,
    columns: Box<Columns<V>>,
    inputs: Box<[[u64; MODULUS]; LANES]>,
    check: Box<Check<V, MODULUS, MODULUS_VECTORS>>,
    /// The limbs of all lanes' results.
    limbs: Box<[[u64; 8]; MODULUS]>,
}

/// Four jobs: lanes 0 to 3 work modulo p, lanes 4 to 7 modulo q for the same jobs.
struct Pass<V: Vector, const H: usize> {
    modulus: Modulus<V, H>,
    one: [Digit<V>; H],
    r3: [Digit<V>; H],
    /// `q^-1 R mod p`, in lanes 0 to 3.
    qinv: [Digit<V>; H],
    /// `q`, in lanes 0 to 3.
    q: [Digit<V>; H],
    /// The inputs, each split in two: `low + high R`.
    input: [[Digit<V>; H]; 2],
    /// The windows of the exponents, highest first.
    windows: Vec<V>,
    /// The powers of the input.
    table: Table<V, H>,
    power: Box<[Digit<V>; H]>,
    scratch: Box<[Digit<V>; H]>,
}

impl<V: Lane8, const PRIME: usize, const MODULUS: usize, const PRIME_VECTORS: usize, const MODULUS_VECTORS: usize>
    Batch<V, PRIME, MODULUS, PRIME_VECTORS, MODULUS_VECTORS>
{
    fn empty(size: RsaSize) -> Self {
        Batch {
            jobs: 0,
            size,
            bad_input: 0,
            done: 0,
            passes: core::array::from_fn(|_| Box::new(Pass::empty(size))),
            single: Box::new(Single::new(POWERS)),
            columns: Box::new([V::default(); 160]),
            inputs: Box::new([[0; MODULUS]; LANES]),
            check: Box::new(Check::empty()),
            limbs: Box::new([[0; 8]; MODULUS]),
        }
    }

    /// How many passes have jobs.
    fn used(&self) -> usize {
        self.jobs.div_ceil(4)
    }

    /// The number of steps before the check: entering, computing the table beyond its first two entries, the windows,
    /// recombining.
    fn power_steps(&self) -> usize {
        1 + (POWERS - 2) + self.passes[0].windows.len() + 1
    }
}

impl<V: Lane8, const PRIME: usize, const MODULUS: usize, const PRIME_VECTORS: usize, const MODULUS_VECTORS: usize> Work
    for Batch<V, PRIME, MODULUS, PRIME_VECTORS, MODULUS_VECTORS>
{
    fn start(&mut self, jobs: &[RsaJob<'_>]) {
        (self.jobs, self.done, self.bad_input) = (jobs.len(), 0, 0);
        let size = self.size;
        // A lane without a job, or whose key has a different size, repeats the first job.
        let job = |lane: usize| match jobs.get(lane) {
            Some(job) if job.key.size() == size => job,
            _ => &jobs[0],
        };
        for (lane, limbs) in self.inputs.iter_mut().enumerate() {
            let same_size = jobs.get(lane).is_none_or(|job| job.key.size() == size);
            let job = job(lane);
            let fits = same_size && job.input.len() == size.bytes() && limbs::from_be(job.input, limbs);
            // Whether an input is in range is public, as the caller learns it.
            if !fits || limbs::less(limbs, &job.key.public.n.m) == 0 {
                limbs.fill(0);
                self.bad_input |= 1 << lane;
            }
        }
        let used = self.used();
        for (pass, lanes) in self.passes[..used].iter_mut().zip([0, 4]) {
            let keys = core::array::from_fn(|i| job(lanes + i).key);
            pass.start(keys, core::array::from_fn(|i| &self.inputs[lanes + i][..]));
        }
        let inputs = core::array::from_fn(|lane| &self.inputs[lane][..]);
        self.check.start(jobs.len(), core::array::from_fn(|lane| job(lane).key.public()), inputs);
    }

    fn steps(&self) -> usize {
        self.power_steps() + CHECK_STEPS
    }

    fn step(&mut self) {
        let at = self.done;
        self.done += 1;
        let power_steps = self.power_steps();
        if at >= power_steps {
            self.check.step(&mut self.columns, at - power_steps);
        } else {
            let (used, alone) = (self.used(), self.jobs == 1);
            for (i, pass) in self.passes[..used].iter_mut().enumerate() {
                pass.step(&mut self.columns, alone.then_some(&mut *self.single), at);
                if at + 1 == power_steps {
                    pass.recombine(&mut self.columns, i, &mut self.check.value);
                }
            }
        }
    }

    fn results(&mut self) -> Vec<Result<Vec<u8>, LaneError>> {
        let right = declassify::public(self.check.right());
        // Nothing leaves here from a lane whose result is wrong.
        unpack(&self.check.value, &mut self.limbs);
        (0..self.jobs)
            .map(|lane| {
                if self.bad_input >> lane & 1 == 1 {
                    return Err(LaneError::InputRange);
                }
                if right >> lane & 1 == 0 {
                    return Err(LaneError::Fault);
                }
                let mut bytes = vec![0; self.size.bytes()];
                lane_to_be(&self.limbs, lane, &mut bytes);
                Ok(bytes)
            })
            .collect()
    }

    fn clear(&mut self) {
        let used = self.used();
        self.passes[..used].iter_mut().for_each(|pass| pass.clear());
        if self.jobs == 1 {
            self.single.zeroize();
        }
        self.columns.zeroize();
        self.inputs.zeroize();
        self.check.clear();
        self.limbs.zeroize();
    }
}

impl<V: Lane8, const H: usize> Pass<V, H> {
    fn empty(size: RsaSize) -> Self {
        let zero = [Digit::whole(V::default()); H];
        Pass {
            modulus: Modulus { m: zero, fold: zero, k0: zero[0] },
            one: zero,
            r3: zero,
            qinv: zero,
            q: zero,
            input: [zero; 2],
            windows: vec![V::default(); (size.bits() / 2).div_ceil(WINDOW as usize)],
            table: Table::new(),
            power: Box::new(zero),
            scratch: Box::new(zero),
        }
    }

    fn start(&mut self, keys: [&RsaKey; 4], inputs: [&[u64]; 4]) {
        let half = |lane: usize| &keys[lane % 4].halves[lane / 4];
        pack_into(core::array::from_fn(|lane| &half(lane).exponent[..]), &mut self.scratch);
        pack_windows(&self.scratch, WINDOW, &mut self.windows);
        pack_modulus(core::array::from_fn(|lane| &half(lane).prime), &mut self.modulus);
        pack_into(core::array::from_fn(|lane| &half(lane).one[..]), &mut self.one);
        pack_into(core::array::from_fn(|lane| &half(lane).r3[..]), &mut self.r3);
        pack_into(core::array::from_fn(|lane| &keys[lane % 4].qinv[..]), &mut self.qinv);
        pack_into(core::array::from_fn(|lane| &keys[lane % 4].halves[1].prime.m[..]), &mut self.q);
        for (half, input) in self.input.iter_mut().enumerate() {
            pack_into(core::array::from_fn(|lane| &inputs[lane % 4][half * H..]), input);
        }
    }

    /// One step before the results are recombined; for a single job, `single` holds the powers.
    fn step<const Z: usize>(&mut self, columns: &mut Columns<V>, single: Option<&mut Single<V, H, Z>>, at: usize) {
        let first_window = POWERS - 1;
        let windows = first_window + self.windows.len();
        match single {
            _ if at == 0 => {
                self.enter(columns);
                if let Some(single) = single {
                    let [zero, one, ..] = self.table.powers_and_halves().0 else {
                        unreachable!("a table has 32 powers")
                    };
                    single.enter(&self.modulus, one);
                    single.begin_powers(zero);
                } else {
                    self.add_half(0);
                    self.add_half(1);
                }
            }
            None if at < first_window => self.add_power(columns, at + 1),
            None if at < windows => self.window(columns, at - first_window),
            None => {}
            Some(single) if at < first_window => single.add_power(at + 1),
            Some(single) if at == first_window => single.first_window(&self.windows[0]),
            Some(single) if at < windows => single.window(&self.windows[at - first_window], WINDOW),
            Some(single) => single.leave(&mut self.power),
        }
    }

    /// Converts the input to Montgomery's form: input / R, times R^3, / R.
    fn enter(&mut self, columns: &mut Columns<V>) {
        for (column, digit) in columns.iter_mut().zip(self.input.as_flattened()) {
            *column = digit.raw();
        }
        mont_reduce(columns, &self.modulus, &mut self.scratch);
        let (powers, _) = self.table.powers_and_halves();
        powers[0] = self.one;
        mont_mul(columns, &self.scratch, &self.r3, &self.modulus, &mut powers[1]);
    }

    /// Computes the second form of an existing power, if the table has second forms.
    fn add_half(&mut self, exponent: usize) {
        let (powers, halves) = self.table.powers_and_halves();
        if let Some(half) = halves.get_mut(exponent) {
            half_form(&powers[exponent], &self.modulus, half);
        }
    }

    fn add_power(&mut self, columns: &mut Columns<V>, exponent: usize) {
        let (powers, halves) = self.table.powers_and_halves();
        let (known, new) = powers.split_at_mut(exponent);
        let half = halves.get(1);
        // A squaring takes less time than a product, except for a product by halves.
        if half.is_none() && exponent.is_multiple_of(2) {
            mont_sqr(columns, &known[exponent / 2], &self.modulus, &mut new[0]);
        } else {
            multiply(columns, &known[exponent - 1], &known[1], half, &self.modulus, &mut new[0]);
        }
        self.add_half(exponent);
    }

    fn window(&mut self, columns: &mut Columns<V>, at: usize) {
        if at == 0 {
            self.table.turn(&self.windows);
            *self.power = *self.table.chosen(0).0;
            return;
        }
        mont_sqrs(columns, &mut self.power, &self.modulus, self.table.look_ahead(&self.windows, at));
        let (y, half) = self.table.chosen(at);
        multiply(columns, &self.power, y, half, &self.modulus, &mut self.scratch);
        core::mem::swap(&mut self.power, &mut self.scratch);
    }

    fn clear(&mut self) {
        self.modulus.zeroize();
        self.one.zeroize();
        self.r3.zeroize();
        self.qinv.zeroize();
        self.q.zeroize();
        self.input.zeroize();
        self.windows.as_mut_slice().zeroize();
        self.table.zeroize();
        self.power.zeroize();
        self.scratch.zeroize();
    }

    /// Recombines by Garner's formula: with `x = input^dp mod p` and `y = input^dq mod q`, the result is `y + q ((x -
    /// y) qinv mod p)`.
    fn recombine<const N: usize>(&mut self, columns: &mut Columns<V>, pass: usize, results: &mut [Digit<V>; N]) {
        // Converts out of Montgomery's form, fully reduced.
        let zero = [Digit::whole(V::default()); H];
        let mut one = zero;
        one[0] = Digit::whole(V::splat(1));
        mont_mul(columns, &self.power, &one, &self.modulus, &mut self.scratch);
        for _ in 0..2 {
            subtract_once(&mut self.scratch, &self.modulus.m);
        }
        let mut x = *self.scratch;
        // q is below 2 p, because it has at most half as many bits as n = p q. So x - y + 3 p is between zero and 4 p,
        // and the product is at most 2 p + 1.
        let mut sum = zero;
        difference(&x, &self.modulus.m, &mut sum);
        mont_mul(columns, &sum, &self.qinv, &self.modulus, &mut self.scratch);
        for _ in 0..2 {
            subtract_once(&mut self.scratch, &self.modulus.m);
        }
        // h q + y is an integer below n.
        garner(columns, &self.scratch, &self.q, &x, pass, results);
        x.zeroize();
        sum.zeroize();
    }
}

/// `result = x y / R mod m`, in the shorter way if y has a second form.
fn multiply<V: Vector, const H: usize>(
    columns: &mut Columns<V>,
    x: &[Digit<V>; H],
    y: &[Digit<V>; H],
    half: Option<&[Digit<V>; H]>,
    modulus: &Modulus<V, H>,
    result: &mut [Digit<V>; H],
) {
    match half {
        Some(half) => mont_mul_by_halves(x, y, half, modulus, result),
        None => mont_mul(columns, x, y, modulus, result),
    }
}

kernel! {
    /// `out = x - y + 3 m`, where y is x in the lanes of the other prime and at most `3 m`.
    fn difference as Difference<'a, V: Vector, const H: usize>(
        x: &'a [Digit<V>; H],
        m: &'a [Digit<V>; H],
        out: &'a mut [Digit<V>; H],
    ) {
        let mut carry = V::splat(0);
        for i in 0..H {
            let m = m[i].raw();
            let d = x[i].value().add(m.add(m).add(m)).sub(x[i].exchange::<4>().value()).add(carry);
            out[i] = Digit::low(d);
            carry = d.sar::<52>();
        }
    }
}

kernel! {
    /// `h q + y` as integers, where y is x in the lanes of the other prime: the results of a pass, in lanes 0 to 3.
    /// The results of the second pass go to lanes 4 to 7.
    fn garner as Garner<'a, V: Lane8, const H: usize, const N: usize>(
        columns: &'a mut Columns<V>,
        h: &'a [Digit<V>; H],
        q: &'a [Digit<V>; H],
        x: &'a [Digit<V>; H],
        pass: usize,
        results: &'a mut [Digit<V>; N],
    ) {
        super::mont::integer_product(columns, h, q);
        let mut carry = V::splat(0);
        for i in 0..N {
            let mut t = columns[i].add(carry);
            if i < H {
                t = t.add(x[i].exchange::<4>().value());
            }
            let digit = Digit::low(t);
            results[i] = if pass == 0 { digit } else { digit.exchange::<4>().or_if(V::mask_from_bits(0x0f), results[i]) };
            carry = t.shr::<52>();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rsa::any_key;
    use crate::vector::Portable;

    /// The memory of a batch, which the next one reuses, is cleared.
    #[test]
    fn nothing_of_a_batch_stays_in_its_memory() {
        let key = any_key(RsaSize::Bits2048);
        let input = [0x5a; 256];
        let mut batch = <batch_of!(Portable, RsaSize::Bits2048)>::empty(RsaSize::Bits2048);
        batch.start(&[RsaJob { key: &key, input: &input }; 5]);
        for _ in 0..batch.steps() {
            batch.step();
        }
        assert_eq!(batch.results()[4], Err(LaneError::Fault)); // no real key
        let is_zero = |digits: &[Digit<Portable>]| digits.iter().all(|digit| digit.raw().to_lanes() == [0; 8]);
        let secrets = |batch: &batch_of!(Portable, RsaSize::Bits2048)| -> Vec<bool> {
            let check = &batch.check;
            let mut all =
                vec![is_zero(&check.wanted_and_powers()), batch.inputs.as_flattened().iter().all(|limb| *limb == 0)];
            all.push(batch.limbs.as_flattened().iter().all(|limb| *limb == 0));
            all.push(batch.columns.iter().all(|column| column.to_lanes() == [0; 8]));
            for pass in &batch.passes {
                let modulus = &pass.modulus;
                all.extend(
                    [&modulus.m, &modulus.fold, &pass.one, &pass.r3, &pass.qinv, &pass.q].map(|part| is_zero(part)),
                );
                all.extend([&*pass.power, &*pass.scratch].map(|part| is_zero(part)));
                all.extend([is_zero(pass.input.as_flattened()), pass.table.is_zero()]);
                all.push(pass.windows.iter().all(|window| window.to_lanes() == [0; 8]));
            }
            all
        };
        assert_eq!(secrets(&batch).iter().filter(|zero| **zero).count(), 0, "{:?}", secrets(&batch));
        batch.clear();
        assert!(secrets(&batch).iter().all(|zero| *zero));
        batch.start(&[RsaJob { key: &key, input: &input }]);
        for _ in 0..batch.steps() {
            batch.step();
        }
        assert_eq!(batch.single.zeros(), 0);
        batch.clear();
        assert!(secrets(&batch).iter().all(|zero| *zero) && batch.single.zeros() == 6 + POWERS);
    }
}
