#!/usr/bin/env bash
# The tests of crate qat under valgrind: memory shared with a library that writes into it later. The device is the double. (The engine's
# tests do not run there: rustix looks for the system's clock page, which valgrind hides.)
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/packages.sh build test
# A leak is memory that nobody can find any more. What is kept on purpose, until the process ends, is still to be found.
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="valgrind --quiet --error-exitcode=99 --leak-check=full --show-leak-kinds=definite \
    --errors-for-leak-kinds=definite --fair-sched=yes"
cargo test -p penstock-qat --no-fail-fast -- --test-threads=1 "$@"
