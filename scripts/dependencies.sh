#!/usr/bin/env bash
# Licences, sources, bans and advisories of all dependencies, by the rules in deny.toml (cargo-deny).
set -uo pipefail
cd "$(dirname "$0")/.." || exit

tools=$PWD/target/tools
deny=$tools/bin/cargo-deny
[ -x "$deny" ] || cargo install --quiet --locked --root "$tools" cargo-deny || exit 1

# The lock file of fuzz/ is another one: the same rules.
for manifest in Cargo.toml fuzz/Cargo.toml; do
    "$deny" --manifest-path "$manifest" --config deny.toml check --hide-inclusion-graph licenses sources bans || exit 1
done
if "$deny" fetch db 2>/dev/null; then
    "$deny" --config deny.toml check --hide-inclusion-graph advisories || exit 1
else
    echo "SKIP: the advisory database cannot be fetched here" | tee -a "${PENSTOCK_SKIPS:-/dev/null}"
fi
