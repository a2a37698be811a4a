#!/usr/bin/env bash
# Measures the penstock of scripts/release.sh beside Debian's haproxy and writes docs/measurements; arguments go to scripts/bench.py.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PATH:/usr/sbin:/sbin
scripts/release.sh
PENSTOCK_BIN=$PWD/target/install/penstock exec python3 scripts/bench.py "$@"
