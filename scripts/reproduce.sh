#!/usr/bin/env bash
# Builds the last commit twice, one build after the other, in two directories with names of different lengths, and compares the binaries and their
# packages byte by byte. PENSTOCK_PROFILE sets the profile (default: quick). The results are moved to target/reproduce, where differences can be
# examined, and the directories of the builds are deleted.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/packages.sh build package

profile=${PENSTOCK_PROFILE:-quick}
place=$PWD/target/reproduce
rm -rf "$place"
mkdir -p "$place"
trap 'rm -rf "$place/tree" "$place/another/and-deeper"' EXIT
# build TREE NAME: builds in TREE; the results are NAME.penstock and NAME.*.deb
build() (
    git clone -q --no-hardlinks . "$1"
    kept=$place/$2
    tools=$PWD/target/tools
    cd "$1"
    # shellcheck source=scripts/reproducible.sh
    . scripts/reproducible.sh
    RUSTFLAGS=$remap cargo build -q --profile "$profile" --target "$(rustc -vV | sed -n 's/^host: //p')" --bin penstock
    cp target/*/"${profile/#dev/debug}"/penstock "$kept.penstock"
    rm -rf target
    mkdir -p target "$tools"
    ln -s "$tools" target/tools
    PENSTOCK_BIN=$kept.penstock scripts/deb.sh >/dev/null
    for deb in target/debian/*.deb; do cp "$deb" "$kept.${deb##*/}"; done
    cd /
    rm -rf "$1"
)
build "$place/tree" one
build "$place/another/and-deeper" two

status=0
for one in "$place"/one.*; do
    two=$place/two.${one#"$place/one."}
    if cmp -s "$one" "$two"; then
        echo "the same: ${one##*/one.}, $(sha256sum <"$one" | cut -c 1-16)"
    else
        echo "DIFFERENT: $one $two" >&2
        status=1
    fi
done
exit $status
