#!/usr/bin/env bash
# A bare Debian bookworm in the directory named, for tests of packages and for the image: unpacked from target/bookworm.tar, which is made first where
# it is missing. Needs root.
set -euo pipefail
kept=$(cd "$(dirname "$0")/.." && pwd)/target/bookworm.tar
if [ ! -e "$kept" ]; then
    making=$(mktemp -d "$(dirname "$kept")/bookworm.XXXXXX")
    trap 'rm -rf --one-file-system "$making"' EXIT
    # The mirror of this machine's own bookworm, or Debian's.
    # shellcheck disable=SC2016  # the fields are apt's, not the shell's
    mirror=$(apt-get indextargets --format '$(SITE) $(RELEASE)' 2>/dev/null | awk '$2 == "bookworm" { print $1; exit }')
    debootstrap --variant=minbase bookworm "$making/root" "${mirror:-http://deb.debian.org/debian}" >"$making/log" ||
        { tail "$making/log" >&2; exit 1; }
    tar c -C "$making/root" . >"$making/tar"
    mv "$making/tar" "$kept"
fi
mkdir -p "$1"
tar x -C "$1" -f "$kept"
