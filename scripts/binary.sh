# Sourced from the root of the tree by scripts that package the binary. Unless PENSTOCK_BIN is set, sets it to the binary that scripts/release.sh
# builds from the last commit, and builds that if it has not been built yet.
# shellcheck shell=bash
if [ -z "${PENSTOCK_BIN:-}" ]; then
    PENSTOCK_BIN=target/install/penstock
    if [ "$(cut -d, -f1 target/install/how 2>/dev/null)" != "commit $(git rev-parse --short HEAD)" ]; then
        scripts/release.sh
    fi
fi
"$PENSTOCK_BIN" -vv | grep -q '^  guided *yes' || echo "note: $PENSTOCK_BIN is not guided by a profile (make release)" >&2
