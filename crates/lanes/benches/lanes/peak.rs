//! What the multiplier can do at best: independent VPMADD52 on registers.

/// Vector multiplications a microsecond, the fastest of many tries.
pub fn multiplications_per_us() -> Option<f64> {
    #[cfg(target_arch = "x86_64")]
    if penstock_lanes::Lanes::detect().is_accelerated() {
        const LOOPS: u64 = 4000;
        let best = (0..200)
            .map(|_| {
                let start = std::time::Instant::now();
                // SAFETY: the token says the instruction is there.
                unsafe { burst(LOOPS) };
                start.elapsed().as_secs_f64() * 1e6
            })
            .fold(f64::INFINITY, f64::min);
        return Some((LOOPS * 16) as f64 / best);
    }
    None
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512ifma")]
fn burst(loops: u64) {
    // SAFETY: registers only, all declared.
    unsafe {
        core::arch::asm!(
            "2:",
            "vpmadd52luq zmm0, zmm16, zmm17", "vpmadd52huq zmm1, zmm16, zmm17",
            "vpmadd52luq zmm2, zmm16, zmm17", "vpmadd52huq zmm3, zmm16, zmm17",
            "vpmadd52luq zmm4, zmm16, zmm17", "vpmadd52huq zmm5, zmm16, zmm17",
            "vpmadd52luq zmm6, zmm16, zmm17", "vpmadd52huq zmm7, zmm16, zmm17",
            "vpmadd52luq zmm8, zmm16, zmm17", "vpmadd52huq zmm9, zmm16, zmm17",
            "vpmadd52luq zmm10, zmm16, zmm17", "vpmadd52huq zmm11, zmm16, zmm17",
            "vpmadd52luq zmm12, zmm16, zmm17", "vpmadd52huq zmm13, zmm16, zmm17",
            "vpmadd52luq zmm14, zmm16, zmm17", "vpmadd52huq zmm15, zmm16, zmm17",
            "dec {n}", "jnz 2b",
            n = inout(reg) loops => _,
            out("zmm0") _, out("zmm1") _, out("zmm2") _, out("zmm3") _, out("zmm4") _, out("zmm5") _, out("zmm6") _,
            out("zmm7") _, out("zmm8") _, out("zmm9") _, out("zmm10") _, out("zmm11") _, out("zmm12") _,
            out("zmm13") _, out("zmm14") _, out("zmm15") _,
        );
    }
}
