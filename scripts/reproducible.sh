# Sourced from the root of the tree by scripts that build what is installed: two builds of one commit shall give the same bytes, wherever
# the tree stands and whatever the clock says. Sets SOURCE_DATE_EPOCH and CFLAGS; $remap is for RUSTFLAGS.
# shellcheck shell=bash

# The date of what is built is that of its commit; the builder's own wins, as it does everywhere.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date -r CHANGELOG.md +%s)}
export SOURCE_DATE_EPOCH
cargo_home=${CARGO_HOME:-$HOME/.cargo}
remap="--remap-path-prefix=$PWD=/penstock --remap-path-prefix=$cargo_home=/cargo --remap-path-prefix=$(rustc --print sysroot)=/rust"
# The C of aws-lc has paths in its assertions.
CFLAGS="${CFLAGS:-} -ffile-prefix-map=$PWD=/penstock -ffile-prefix-map=$cargo_home=/cargo"
export CFLAGS remap
