#!/usr/bin/env bash
# Builds the penstock to install, target/install/penstock: a first build counts what it does while scripts/train.py works it, the second is
# compiled by those counts (profile-guided optimisation), which saves some 5 to 15 % of the CPU time of a request (docs/measurements/guided.md).
# PENSTOCK_COUNTS names the counts of a former build, target/profile/counts, to build the same binary again without the first half.
# It needs llvm-profdata of the compiler's LLVM; without it this is a plain release, and says so.
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
# Both builds have the same options but for these, or a function's counts would not be found by its name. With --target, what
# only runs at build time is left alone.
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
