#!/usr/bin/env bash
# `make test`, then what takes longer: endurance scenarios, third-party scanners, long fuzzing, benchmarks.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
export PATH=$PATH:/usr/sbin:/sbin:/usr/local/go/bin

scripts/packages.sh build test check package image full || exit 1
failed=0
run() {
    echo "== $*"
    "$@" || failed=$((failed + 1))
}

run scripts/check.sh
run scripts/dependencies.sh
ulimit -n "$(ulimit -Hn)" # 10,000 idle connections
cargo build --release --bin penstock
PENSTOCK_ENDURANCE=1 PENSTOCK_BIN=$PWD/target/release/penstock run cargo test -p penstock-tests -- limits/
PENSTOCK_ENDURANCE=1 run cargo test --release -p penstock --test replacement
PENSTOCK_SECONDS=3600 PENSTOCK_SEED=$RANDOM PENSTOCK_ENOUGH=50 run cargo test --workspace --test differences
cargo build --release -p penstock-tests --bins
cargo build --release -p penstock-qat-double
PENSTOCK_TESTS=mutate PENSTOCK_BIN=$PWD/target/release/penstock run cargo test -p penstock-tests --test differential
run scripts/interop.py
run scripts/endurance.py
run scripts/runtime.py target/release/penstock
run scripts/memory.py --count 300 --commits 60 --lines 20000
run scripts/answers.py --check --entries 100000 --sessions 1000 --servers 500
run scripts/runtime-clients.py
run scripts/replacement.py --check --rounds 10
run scripts/memcheck.sh
for study in handshake-modes cores-saved cpu-against-rate max-rate core-scaling handshake throughput offload; do
    run target/release/penstock bench study $study --quick --out target/studies/$study
done
run scripts/load.py --check --rounds 4 --seconds 2
run scripts/grpc.sh
run scripts/scan.sh
run scripts/release.sh
run scripts/test-packages.sh
run scripts/test-image.sh
run scripts/reproduce.sh
FUZZ_FEATURES=lanes FUZZ_SECONDS=${FUZZ_SECONDS:-60} run scripts/fuzz.sh
run cargo bench -p penstock-lanes -- --dudect
run scripts/bench.sh
if [ $failed = 0 ]; then echo "everything passed"; else echo "$failed step(s) failed"; fi
[ $failed = 0 ]
