#!/usr/bin/env bash
# Fuzzes every target of fuzz/ for FUZZ_SECONDS each (3 unless told), or only those named as arguments.
# The stable compiler instruments for libFuzzer as cargo-fuzz does on nightly, only without a sanitizer: the targets are
# safe Rust, where what can go wrong is a panic, an overflow (debug assertions are on), a loop or memory without bound.
set -uo pipefail
cd "$(dirname "$0")/../fuzz" || exit
seconds=${FUZZ_SECONDS:-3}
host=$(rustc -vV | sed -n 's/^host: //p')

# --target keeps these flags from build scripts and procedural macros.
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Cdebug-assertions -Ccodegen-units=1"
# FUZZ_FEATURES=lanes adds the target that needs them.
cargo build --quiet --release --target "$host" --features "${FUZZ_FEATURES:-}" || exit 1

targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(basename -s .rs fuzz_targets/*.rs)
passed=0 failed=0
for target in "${targets[@]}"; do
    # Not built by an earlier run with other features, either.
    if [ "$target" = lanes ] && [[ ${FUZZ_FEATURES:-} != *lanes* ]]; then continue; fi
    mkdir -p "corpus/$target" "artifacts/$target"
    seeds=()
    [ ! -d "seeds/$target" ] || seeds=("seeds/$target")
    if "target/$host/release/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 \
        -artifact_prefix="artifacts/$target/" -print_final_stats=1 "corpus/$target" "${seeds[@]}" >"artifacts/$target.log" 2>&1; then
        passed=$((passed + 1))
        echo "test fuzz $target ... ok, $(sed -n 's/^stat::number_of_executed_units: *//p' "artifacts/$target.log") runs"
    else
        failed=$((failed + 1))
        echo "test fuzz $target ... FAILED"
        tail -20 "artifacts/$target.log"
    fi
done
word=ok
[ $failed = 0 ] || word=FAILED
echo "test result: $word. $passed passed; $failed failed; 0 ignored"
[ $failed = 0 ]
