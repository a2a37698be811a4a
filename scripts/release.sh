#!/usr/bin/env bash
# Builds the binary to install, target/install/penstock, with profile-guided optimisation: a first build counts what it executes under the load of
# scripts/train.py, and the second is optimised for those counts, which saves some 5 to 15 % of a request's CPU time (docs/measurements/guided.md).
# PENSTOCK_COUNTS names the counts of an earlier build (its target/profile/counts), to build the same binary again without the first step.
# Needs llvm-profdata for the compiler's version of LLVM; without it, makes a plain release build and says so.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/packages.sh build test

# shellcheck source=scripts/reproducible.sh
. scripts/reproducible.sh

host=$(rustc -vV | sed -n 's/^host: //p')
llvm=$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
profdata=$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata
[ -x "$profdata" ] || profdata=/usr/lib/llvm-$llvm/bin/llvm-profdata
mkdir -p target/install
commit="commit $(git rev-parse --short HEAD || echo unknown)"
if [ ! -x "$profdata" ]; then
    echo "A PLAIN RELEASE: llvm-profdata for LLVM $llvm is missing. Have it by one of:" >&2
    echo "    rustup component add llvm-tools" >&2
    echo "    sudo apt-get install llvm-$llvm" >&2
    RUSTFLAGS=$remap cargo build --release --target "$host" --bin penstock
    cp "target/$host/release/penstock" target/install/penstock
    echo "$commit, without a profile" >target/install/how
    exit
fi

profile=$PWD/target/profile
# Apart from these flags both builds must have the same options, so that each function's counts are found by its name. Because of
# --target, the flags do not affect code that only runs at build time.
build() {
    CARGO_TARGET_DIR=target/guided RUSTFLAGS="$1 $remap" cargo build --release --target "$host" --bin penstock
    cp "target/guided/$host/release/penstock" "$2"
}
if [ -n "${PENSTOCK_COUNTS:-}" ]; then
    [ "$PENSTOCK_COUNTS" -ef "$profile/counts" ] || { mkdir -p "$profile" && cp "$PENSTOCK_COUNTS" "$profile/counts"; }
else
    rm -rf "$profile"
    mkdir -p "$profile"
    echo "1/3 a build that counts"
    build "-Cprofile-generate=$profile" "$profile/penstock"
    echo "2/3 its work, some seconds"
    LLVM_PROFILE_FILE=$profile/%p.profraw scripts/train.py "$profile/penstock"
    "$profdata" merge -o "$profile/counts" "$profile"/*.profraw
    rm "$profile"/*.profraw
fi
echo "3/3 the build that is guided by it"
build "-Cprofile-use=$profile/counts" target/install/penstock
echo "$commit, guided by a profile" >target/install/how
echo "target/install/penstock"
