# Sourced from the root of the tree by scripts that build what is installed, so that two builds of one commit give the same bytes, whatever
# the path of the tree and the time. Sets SOURCE_DATE_EPOCH and CFLAGS; $remap is for RUSTFLAGS.
# shellcheck shell=bash

# The date in the results is that of the commit, unless SOURCE_DATE_EPOCH is already set.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date -r CHANGELOG.md +%s)}
export SOURCE_DATE_EPOCH
cargo_home=${CARGO_HOME:-$HOME/.cargo}
remap="--remap-path-prefix=$PWD=/penstock --remap-path-prefix=$cargo_home=/cargo --remap-path-prefix=$(rustc --print sysroot)=/rust"
# The assertions in aws-lc's C code contain paths.
CFLAGS="${CFLAGS:-} -ffile-prefix-map=$PWD=/penstock -ffile-prefix-map=$cargo_home=/cargo"
export CFLAGS remap
