//! What the compiler made of the kernels: every function compiled for AVX-512 is disassembled, and must have no gather,
//! no division, no jump to a computed address, no call but to another kernel, to libc's copies and fills (of constant
//! lengths), to a constant and to panics (of checks on public indices), and no more conditional jumps than are documented here: its
//! loops and those checks. A planted function that has all that is forbidden must be refused.
//!
//! The code is this test's own: `profile.dev` compiles the crate as optimised as a release. Needs binutils.
#![cfg(target_arch = "x86_64")]

mod common;

use common::TestKey;
use penstock_lanes::rsa::{HashFunction, PublicJob, RsaBatch, RsaJob, encode_pss, raise};
use penstock_lanes::{Lanes, mlkem768, p256, p384, x25519};
use std::collections::{BTreeMap, HashMap};
use std::process::Command;

/// Conditional jumps that a kernel may have (of its instances the one with most): loops with constant bounds and checks of
/// public indices, unless it says otherwise. One that is not named here has none. What a change of a kernel adds must be
/// looked at before it is added here.
#[rustfmt::skip]
const JUMPS: &[(&str, usize)] = &[
    ("Absorb", 5),
    ("Accept", 28), // public: rejects numbers of the matrix seed
    ("AddMessage", 1),
    ("BaseRow", 4),
    ("Binomial", 1),
    ("Bits", 1),
    ("Bytes", 12),
    ("Choose", 10), // lanes and powers, each checked to be inside the table
    ("Compress", 2),
    ("Compress10", 4),
    ("Compress4", 2),
    ("Decode12", 3),
    ("Difference", 1),
    ("ExtendTable", 2),
    ("FixedBase", 21), // 15 of them a development build's check that what a load copies does not overlap
    ("Garner", 10), // blocks of ten digits; limbs, of a prime and of the result; which lanes that has, by the pass
    ("Gather", 9),
    ("InnerProduct", 3),
    ("KeccakF1600", 1),
    ("Ladder", 1),
    ("LookUp", 4), // a share of digits, counted, each checked to be inside the table; none, where all were looked up
    ("MontMul", 8), // blocks of ten digits, the first and last of which differ; products of halves
    ("MontReduce", 3),
    ("MontSqr", 9),
    ("MontSqrs", 13), // as MontSqr; a window's squarings, counted; whether there is a digit to look up, checked to be inside
    ("Multiply", 14), // the table's making and scanning, windows, doublings
    // Rows and entries of the table, each checked to be inside it. The last is the test of the loop over the rows (of which there is a
    // constant number), which the compiler repeats behind the first row, but not in incremental builds: those cut the crate into
    // other units, so that less is inlined before loops are turned.
    ("MultiplyBase", 73),
    ("Pack", 9), // limbs, of each number checked to be inside
    ("PackWindows", 7), // public: the exponents' limbs, counted
    ("Prepare", 3),
    ("Recode", 12),
    ("Same", 1),
    ("SingleChoose", 2), // the powers, counted
    ("SingleGather", 18), // limbs, each checked to be inside
    ("SingleMultiply", 1), // rows
    ("SingleScatter", 3), // limbs, each checked to be inside
    ("SingleSquare", 10), // rows, block by block
    ("SubtractOnce", 2),
    ("Turn", 4), // the table, by digits; the place of a form and of what is looked up, checked to be inside
    ("Unpack", 2),
    ("Words", 92), // key and message bytes, rows of eight
];

/// References to every operation, so that all kernels are linked into this program.
#[test]
fn every_operation_runs() {
    let lanes = Lanes::detect();
    for name in ["rsa2048-1", "rsa3072-1", "rsa4096-1"] {
        let key = TestKey::load(name).prepare();
        for hash in [HashFunction::Sha256, HashFunction::Sha384, HashFunction::Sha512] {
            let encoded = encode_pss(lanes, key.size(), hash, &vec![1; hash.bytes()], &vec![2; hash.bytes()]);
            let jobs = [RsaJob { key: &key, input: &encoded }; 2];
            let signature = RsaBatch::new(lanes, &jobs[..1]).finish().remove(0).unwrap();
            assert_eq!(RsaBatch::new(lanes, &jobs).finish(), [Ok(signature.clone()), Ok(signature.clone())]);
            let job = PublicJob { key: key.public(), input: &signature };
            assert_eq!(raise(lanes, &[job]), [Ok(encoded)]);
        }
    }
    let (scalar, long) = ([7; 32], [7; 48]);
    let public = x25519::public_keys(lanes, &[&scalar])[0];
    assert!(x25519::derive(lanes, &[x25519::DeriveJob { scalar: &scalar, peer: &public }])[0].is_ok());
    macro_rules! curve {
        ($curve:ident, $scalar:expr) => {
            let public = $curve::public_keys(lanes, &[$scalar])[0].unwrap();
            assert!($curve::derive(lanes, &[$curve::DeriveJob { scalar: $scalar, peer: &public }])[0].is_ok());
            let job = $curve::SignJob { key: $scalar, digest: &[3; 32], random: &[4; 16] };
            assert!($curve::sign(lanes, &[job])[0].is_ok());
        };
    }
    curve!(p256, &scalar);
    curve!(p384, &long);
    let job = mlkem768::EncapsulateJob { key: &[0; mlkem768::KEY], random: &scalar };
    assert!(mlkem768::encapsulate(lanes, &[job])[0].is_ok());
}

/// Everything that is forbidden, in one function.
#[inline(never)]
#[target_feature(enable = "avx512f")]
fn planted(table: &[u64; 64], index: core::arch::x86_64::__m512i, divisor: u64) -> u64 {
    use core::arch::x86_64::*;
    // SAFETY: the caller's indices are those of the table.
    let looked_up = unsafe { _mm512_i64gather_epi64::<8>(index, table.as_ptr().cast()) };
    let sum = _mm512_reduce_add_epi64(looked_up) as u64;
    if sum & 1 == 1 { planted_callee(sum / (divisor | 1)) } else { sum }
}

#[inline(never)]
fn planted_callee(x: u64) -> u64 {
    core::hint::black_box(x).wrapping_add(1)
}

/// This program, as binutils see it.
struct Program {
    /// By address: a function's name and instructions, with their addresses.
    functions: BTreeMap<u64, (String, Vec<(u64, String)>)>,
    /// What the words that calls go through point to.
    pointers: HashMap<u64, String>,
}

fn binutils(tool: &str, arguments: &[&str]) -> Option<String> {
    let out = Command::new(tool).args(arguments).arg(std::env::current_exe().unwrap()).output().ok()?;
    assert!(out.status.success(), "{tool}: {}", String::from_utf8_lossy(&out.stderr));
    Some(String::from_utf8_lossy(&out.stdout).into_owned())
}

impl Program {
    fn read() -> Option<Program> {
        let text = binutils("objdump", &["-d", "-C", "--no-show-raw-insn", "--section=.text"])?;
        let mut functions = BTreeMap::new();
        for function in text.split("\n\n") {
            let Some((head, body)) = function.trim_start().split_once('\n') else { continue };
            let Some((address, name)) = head.trim_end_matches(">:").split_once(" <") else { continue };
            let instructions = body.lines().filter_map(|line| {
                let (address, instruction) = line.split_once('\t')?;
                let address = u64::from_str_radix(address.trim().trim_end_matches(':'), 16).ok()?;
                Some((address, instruction.trim().to_owned()))
            });
            let address = u64::from_str_radix(address, 16).unwrap();
            functions.insert(address, (name.to_owned(), instructions.collect()));
        }
        let mut pointers = HashMap::new();
        for line in binutils("objdump", &["-R"])?.lines() {
            let mut words = line.split_whitespace();
            let (Some(slot), Some(_), Some(target)) = (words.next(), words.next(), words.next()) else { continue };
            let Ok(slot) = u64::from_str_radix(slot, 16) else { continue };
            let local = target.strip_prefix("*ABS*+0x").and_then(|target| u64::from_str_radix(target, 16).ok());
            let name = match local {
                Some(address) => functions.get(&address).map(|(name, _): &(String, _)| name.clone()),
                None => Some(target.to_owned()),
            };
            pointers.extend(name.map(|name| (slot, name)));
        }
        Some(Program { functions, pointers })
    }

    /// What `call`, `jmp` or `mov` names: the symbol, or what the word at the address in objdump's remark points to.
    fn target(&self, instruction: &str) -> String {
        if let Some((_, remark)) = instruction.split_once("# ") {
            let slot = u64::from_str_radix(remark.split(' ').next().unwrap(), 16).unwrap();
            return self.pointers.get(&slot).cloned().unwrap_or_else(|| format!("unknown, through {slot:#x}"));
        }
        instruction.split_once('<').map_or(instruction, |(_, name)| name).trim_end_matches('>').to_owned()
    }

    /// What is wrong with a function, and its conditional jumps.
    fn judge(&self, instructions: &[(u64, String)]) -> (Vec<String>, usize) {
        let (mut wrong, mut jumps) = (Vec::new(), 0);
        let first = instructions[0].0;
        let last = instructions[instructions.len() - 1].0;
        // Registers that hold the address of a function.
        let mut held: HashMap<&str, String> = HashMap::new();
        for (_, instruction) in instructions {
            let mnemonic = instruction.split_whitespace().next().unwrap_or("");
            if mnemonic == "mov" && instruction.contains("(%rip)") {
                let register = instruction.split(" #").next().unwrap().rsplit(',').next().unwrap().trim();
                held.insert(register, self.target(instruction));
            }
            let transfers = mnemonic == "call" || mnemonic == "jmp";
            if transfers {
                let through = instruction.rsplit_once('*').map(|(_, register)| register);
                let target = match through {
                    Some(register) if register.starts_with('%') => {
                        held.get(register).cloned().unwrap_or_else(|| format!("unknown, in {register}"))
                    }
                    _ => self.target(instruction),
                };
                let address = instruction.split_whitespace().nth(1).and_then(|a| u64::from_str_radix(a, 16).ok());
                let inside = mnemonic == "jmp" && address.is_some_and(|a| (first..=last).contains(&a));
                let allowed = ["memcpy", "memset", "memmove", KERNEL, "core::panicking", "_fail", "Point<V>::neutral"];
                if !inside && !allowed.iter().any(|name| target.contains(name)) {
                    wrong.push(format!("{mnemonic} {target}"));
                }
            } else if mnemonic.starts_with('j') {
                jumps += 1;
            }
            let vector = mnemonic.trim_start_matches('v');
            let slow = ["div", "idiv", "sqrt", "gather", "scatter", "pgather", "pscatter"];
            if slow.iter().any(|slow| vector.starts_with(slow)) {
                wrong.push(instruction.clone());
            }
        }
        (wrong, jumps)
    }
}

const KERNEL: &str = "penstock_lanes::vector::avx512::with_features";

/// The kernels that functions are made of. The symbol does not say (each is an instance of one function), but the debug
/// information says which line was inlined into it, and the source above that line whose code it is.
fn kernel_names(functions: &[&Vec<(u64, String)>]) -> Vec<String> {
    let addresses: Vec<Vec<String>> = functions
        .iter()
        .map(|code| {
            let step = (code.len() / 10).max(1);
            code.iter().step_by(step).map(|(address, _)| format!("{address:#018x}")).collect()
        })
        .collect();
    let exe = std::env::current_exe().unwrap();
    let out =
        Command::new("addr2line").args(["-a", "-f", "-i", "-C", "-e"]).arg(&exe).args(addresses.concat()).output();
    let text = String::from_utf8_lossy(&out.expect("binutils has addr2line as well").stdout).into_owned();
    // After each address come pairs of lines, a function and a place in the source, from the innermost out.
    let mut places = HashMap::new();
    let mut at = "";
    let mut before = "";
    for line in text.lines() {
        if line.starts_with("0x") {
            (at, before) = (line, "");
        } else if line.contains("/src/vector/avx512.rs:") && !before.is_empty() {
            places.insert(at, before);
        } else if line.contains("/src/") && line.contains(".rs:") {
            before = line;
        }
    }
    let name = |place: &str| {
        let (file, line) = place.split(" (").next()?.rsplit_once(':')?;
        let source = std::fs::read_to_string(file).ok()?;
        let above: Vec<&str> = source.lines().take(line.parse().ok()?).collect();
        above.iter().rev().find_map(|line| {
            let after =
                line.split_once("Kernel<V> for ").or_else(|| line.trim_start().strip_prefix("fn ")?.split_once(" as "));
            let (_, after) = after?;
            Some(after.split(['<', ' ']).next()?.to_owned())
        })
    };
    addresses
        .iter()
        .map(|of_one| of_one.iter().find_map(|at| name(places.get(&at[..])?)).unwrap_or_else(|| "unnamed".to_owned()))
        .collect()
}

#[test]
fn kernels_have_no_call_gather_division_or_undocumented_jump() {
    if !Lanes::detect().is_accelerated() {
        skipped("no AVX-512 IFMA: nothing proves here that the kernels run");
        return;
    }
    let Some(program) = Program::read() else {
        skipped("objdump (binutils) is not installed: nobody has looked at the kernels' machine code");
        return;
    };
    let kernels: Vec<_> = program.functions.iter().filter(|(_, (name, _))| name == KERNEL).collect();
    assert!(kernels.len() > 25, "{}", kernels.len());
    let names = kernel_names(&kernels.iter().map(|(_, (_, code))| code).collect::<Vec<_>>());
    let mut complaints = Vec::new();
    for ((_, (_, code)), name) in kernels.iter().zip(&names) {
        let (wrong, jumps) = program.judge(code);
        println!("{name}: {} instructions, {jumps} conditional jumps, {wrong:?}", code.len());
        let documented = JUMPS.iter().find(|(known, _)| known == name).map_or(0, |(_, jumps)| *jumps);
        if !wrong.is_empty() {
            complaints.push(format!("{name}: {wrong:?}"));
        }
        if jumps > documented {
            complaints.push(format!("{name}: {jumps} conditional jumps, {documented} documented"));
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn a_planted_function_is_refused() {
    if !Lanes::detect().is_accelerated() {
        return;
    }
    // SAFETY: AVX-512 is there, and the indices are zeros.
    let sum = unsafe { planted(&[3; 64], core::mem::zeroed(), core::hint::black_box(2)) };
    assert_eq!(sum, 24);
    let Some(program) = Program::read() else { return };
    let (_, code) = program.functions.values().find(|(name, _)| name == "disassembly::planted").unwrap();
    let (wrong, jumps) = program.judge(code);
    for forbidden in ["planted_callee", "div", "gather"] {
        assert!(wrong.iter().any(|wrong| wrong.contains(forbidden)), "{forbidden} is not in {wrong:?}");
    }
    assert!(jumps > 0);
}

/// The test driver counts what is written to the file as skipped.
fn skipped(reason: &str) {
    eprintln!("SKIPPED: {reason}");
    if let Some(path) = std::env::var_os("PENSTOCK_SKIPS") {
        use std::io::Write;
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        let _ = file.and_then(|mut file| writeln!(file, "SKIP: {reason}"));
    }
}
