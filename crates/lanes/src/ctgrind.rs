//! Constant time, tried: kernels run on `Portable` under valgrind's memcheck with their secrets marked undefined, so
//! that every branch and every address that depends on one is reported (Langley's ctgrind). A planted leak must be.

use crate::ec::curves::P256;
use crate::ec::point::{Digits, Point, multiply};
use crate::rsa_kernels_on;
use crate::vector::{Digit, Lane8, Portable, Vector};
use core::arch::asm;
use std::process::Command;

/// A memcheck client request: nothing outside valgrind.
fn request(code: u64, memory: *const u8, length: usize) {
    let arguments = [code, memory as u64, length as u64, 0, 0, 0];
    // SAFETY: the sequence that valgrind/valgrind.h documents for amd64: rotations by 128 bits in all and an exchange of
    // a register with itself, without effect on a processor.
    unsafe {
        asm!(
            "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
            in("rax") &arguments, inout("rdx") 0u64 => _, inout("rdi") 0u64 => _,
        );
    }
}

fn secret<T: ?Sized>(value: &mut T) {
    request(0x4d43_0001, core::ptr::from_mut(value).cast(), size_of_val(value));
}

fn public<T: ?Sized>(value: &T) {
    request(0x4d43_0002, core::ptr::from_ref(value).cast(), size_of_val(value));
}

fn leak() {
    let mut lanes = core::hint::black_box([3u64; 8]);
    secret(&mut lanes);
    if Portable::from_lanes(&lanes).add(Portable::splat(1)).to_lanes()[2] == 4 {
        println!("a branch on a secret");
    }
}

fn rsa() {
    let mut numbers = core::hint::black_box([[0x0123_4567_89ab_cdefu64 >> 12; 8]; 20]);
    secret(&mut numbers);
    let digits: [Digit<Portable>; 20] = core::array::from_fn(|i| Digit::whole(Portable::from_lanes(&numbers[i])));
    public(&rsa_kernels_on(&digits));
}

fn x25519() {
    let mut scalar = core::hint::black_box([0x5a; 32]);
    crate::x25519::public_keys(crate::Lanes::portable(), &[&scalar]); // makes the table
    secret(&mut scalar);
    public(&crate::x25519::public_keys(crate::Lanes::portable(), &[&scalar])[0]);
    crate::x25519::on_secret_scalar(&scalar);
}

fn p256() {
    let mut scalars = core::hint::black_box([[0x000f_1234_5678_9abcu64; 5]; 8]);
    scalars.iter_mut().for_each(|scalar| scalar[4] = 0x1234);
    secret(&mut scalars);
    let digits = Digits::<Portable>::new::<P256, 5>(&scalars);
    // Any coordinates will do: the formulas do not look.
    let element = |limb: u64| [Digit::whole(Portable::splat(limb)); 5];
    public(&multiply::<Portable, P256, 5>(&digits, &Point { x: element(3), y: element(5), z: element(7) }));
}

fn mlkem768() {
    let mut random = core::hint::black_box([0x77; 32]);
    secret(&mut random);
    // Zeros are a key: every coefficient is reduced.
    let job = crate::mlkem768::EncapsulateJob { key: &[0; crate::mlkem768::KEY], random: &random };
    let answer = crate::mlkem768::encapsulate(crate::Lanes::portable(), &[job]).remove(0);
    public(&answer.expect("a good key").ciphertext);
}

/// What a child under valgrind runs.
#[test]
#[ignore = "run under valgrind by kernels_do_not_branch_on_secrets"]
fn child() {
    match std::env::var("CTGRIND").as_deref() {
        Ok("leak") => leak(),
        Ok("rsa") => rsa(),
        Ok("x25519") => x25519(),
        Ok("p256") => p256(),
        Ok("mlkem768") => mlkem768(),
        other => panic!("no such case: {other:?}"),
    }
}

#[test]
fn kernels_do_not_branch_on_secrets() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("skipped: valgrind is not installed");
        return;
    }
    let exe = std::env::current_exe().unwrap();
    for case in ["leak", "rsa", "x25519", "p256", "mlkem768"] {
        let out = Command::new("valgrind")
            .args(["-q", "--error-exitcode=99"])
            .arg(&exe)
            .args(["--ignored", "--exact", "ctgrind::child", "--test-threads=1"])
            .env("CTGRIND", case)
            .output()
            .unwrap();
        let report = String::from_utf8_lossy(&out.stderr);
        match case {
            "leak" => assert_eq!(out.status.code(), Some(99), "the planted leak was not caught: {report}"),
            _ => assert_eq!(out.status.code(), Some(0), "{case}: {report}"),
        }
    }
}
