//! Tests of constant time: whole operations run on `Portable` under valgrind's memcheck with their secrets marked
//! undefined, so that every branch and every address that depends on a secret is reported (Langley's ctgrind). A
//! deliberate leak must be reported as well.

use crate::vector::{Lane8, Portable, Vector};
use core::arch::asm;
use std::process::Command;

/// A memcheck client request; it has no effect outside valgrind.
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

/// Takes a mutable reference, so that the compiler reads the value again.
pub(crate) fn public<T: ?Sized>(value: &mut T) {
    request(0x4d43_0002, core::ptr::from_mut(value).cast(), size_of_val(value));
}

fn leak() {
    let mut lanes = core::hint::black_box([3u64; 8]);
    secret(&mut lanes);
    if Portable::from_lanes(&lanes).add(Portable::splat(1)).to_lanes()[2] == 4 {
        println!("a branch on a secret");
    }
}

/// A whole signature (entering, windows, CRT and check) with every part of the key secret.
fn rsa() {
    use crate::rsa::{RsaBatch, RsaJob, RsaSize, any_key};
    let mut key = core::hint::black_box(any_key(RsaSize::Bits2048));
    for half in &mut key.halves {
        for part in [&mut half.prime.m, &mut half.prime.fold, &mut half.exponent, &mut half.one, &mut half.r3] {
            secret(&mut part[..]);
        }
        secret(&mut half.prime.k0);
    }
    secret(&mut key.qinv[..]);
    let job = RsaJob { key: &key, input: &[0x17; RsaSize::Bits2048.bytes()] };
    // One job alone, whose limbs lie along the vectors, and two in lanes. The key's numbers are not prime, so the
    // expected result is a fault.
    for jobs in [&[job][..], &[job; 2]] {
        assert_eq!(RsaBatch::new(crate::Lanes::portable(), jobs).finish()[0], Err(crate::LaneError::Fault));
    }
}

fn x25519() {
    let lanes = crate::Lanes::portable();
    let mut scalar = core::hint::black_box([0x5a; 32]);
    crate::x25519::public_keys(lanes, &[&scalar]); // makes the table
    secret(&mut scalar);
    core::hint::black_box(crate::x25519::public_keys(lanes, &[&scalar]));
    let job = crate::x25519::DeriveJob { scalar: &scalar, peer: &[9; 32] };
    assert!(crate::x25519::derive(lanes, &[job])[0].is_ok());
}

/// Public keys, exchanges and signatures, including nonces.
macro_rules! curve {
    ($curve:ident) => {
        fn $curve() {
            let lanes = crate::Lanes::portable();
            let mut scalar = core::hint::black_box([0x5a; crate::$curve::BYTES]);
            let peer = crate::$curve::public_keys(lanes, &[&scalar])[0].unwrap(); // makes the table
            secret(&mut scalar);
            assert!(crate::$curve::public_keys(lanes, &[&scalar])[0].is_ok());
            assert!(
                crate::$curve::derive(lanes, &[crate::$curve::DeriveJob { scalar: &scalar, peer: &peer }])[0].is_ok()
            );
            let mut random = core::hint::black_box([3; 16]);
            secret(&mut random);
            let job = crate::$curve::SignJob { key: &scalar, digest: &[0x66; 32], random: &random };
            assert!(crate::$curve::sign(lanes, &[job])[0].is_ok());
        }
    };
}

curve!(p256);
curve!(p384);

fn mlkem768() {
    let mut random = core::hint::black_box([0x77; 32]);
    secret(&mut random);
    // All zeros are a valid key: every coefficient is reduced.
    let job = crate::mlkem768::EncapsulateJob { key: &[0; crate::mlkem768::KEY], random: &random };
    let answer = crate::mlkem768::encapsulate(crate::Lanes::portable(), &[job]).remove(0);
    assert!(answer.is_ok());
}

/// The part that runs in a child process under valgrind.
#[test]
#[ignore = "run under valgrind by kernels_do_not_branch_on_secrets"]
fn child() {
    match std::env::var("CTGRIND").as_deref() {
        Ok("leak") => leak(),
        Ok("rsa") => rsa(),
        Ok("x25519") => x25519(),
        Ok("p256") => p256(),
        Ok("p384") => p384(),
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
    for case in ["leak", "rsa", "x25519", "p256", "p384", "mlkem768"] {
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
