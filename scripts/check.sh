#!/usr/bin/env bash
# What a commit must pass, and what CI runs: format and lints of Rust, shell and Python, then every test.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/packages.sh build test check
echo "== format and lints"
git log --format=%s origin/main..HEAD 2>/dev/null | awk 'length > 72 { print "subject of more than 72 characters: " $0; long = 1 } END { exit long }'
cargo fmt --all --check
cargo clippy --workspace --all-targets -- -D warnings
shellcheck scripts/*.sh .ci/run
pyflakes3 scripts
scripts/pages.py --check
(cd scripts && mypy --no-error-summary ./*.py && mypy --no-error-summary --disallow-untyped-defs library)
exec scripts/test.sh
