# Sourced from the root of the tree by scripts that pack a penstock: sets PENSTOCK_BIN, unless it is set, to the one that scripts/release.sh builds of
# the last commit, which it is made to do where that has not been done.
# shellcheck shell=bash
if [ -z "${PENSTOCK_BIN:-}" ]; then
    PENSTOCK_BIN=target/install/penstock
    if [ "$(cut -d, -f1 target/install/how 2>/dev/null)" != "commit $(git rev-parse --short HEAD)" ]; then
        scripts/release.sh
    fi
fi
"$PENSTOCK_BIN" -vv | grep -q '^  guided *yes' || echo "note: $PENSTOCK_BIN is not guided by a profile (make release)" >&2
