#!/usr/bin/env bash
# Measures penstock beside Debian's haproxy and writes docs/measurements; arguments go to scripts/bench.py.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PATH:/usr/sbin:/sbin
scripts/packages.sh build test
cargo build --release -p penstock -p penstock-tests --bins
exec python3 scripts/bench.py "$@"
