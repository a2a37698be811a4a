#!/usr/bin/env bash
# Unpacks a bare Debian bookworm into the given directory, for the tests of packages and for the image. It comes from target/bookworm.tar, which is
# made first if it is missing. Needs root.
set -euo pipefail
kept=$(cd "$(dirname "$0")/.." && pwd)/target/bookworm.tar
if [ ! -e "$kept" ]; then
    making=$(mktemp -d "$(dirname "$kept")/bookworm.XXXXXX")
    trap 'rm -rf --one-file-system "$making"' EXIT
    # The mirror that this machine uses for bookworm, or else Debian's.
    # shellcheck disable=SC2016  # the fields are apt's, not the shell's
    mirror=$(apt-get indextargets --format '$(SITE) $(RELEASE)' 2>/dev/null | awk '$2 == "bookworm" { print $1; exit }')
    debootstrap --variant=minbase bookworm "$making/root" "${mirror:-http://deb.debian.org/debian}" >"$making/log" ||
        { tail "$making/log" >&2; exit 1; }
    tar c -C "$making/root" . >"$making/tar"
    mv "$making/tar" "$kept"
fi
mkdir -p "$1"
tar x -C "$1" -f "$kept"
