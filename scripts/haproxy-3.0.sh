#!/usr/bin/env bash
# Unpacks Debian 13's haproxy 3.0 with its manual and its own C library into target/haproxy-3.0: the second reference of the
# scenario tests, beside Debian 12's 2.6. Nothing is installed, and no root is needed. Where the archive cannot be had, a line on
# standard error says so, and the scenarios about 3.0 are compared with what was recorded from it.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$PWD/target/haproxy-3.0
[ -x "$folder/haproxy" ] && "$folder/haproxy" -v >/dev/null 2>&1 && exit 0

echo "unpacking Debian 13's haproxy 3.0 into target/haproxy-3.0"
skip() {
    echo "SKIP: haproxy 3.0 is not to be had ($1): its recorded transcripts serve" | tee -a "${PENSTOCK_SKIPS:-/dev/null}" >&2
    exit 0
}
command -v apt-get >/dev/null || skip "this is not a Debian machine"
[ "$(dpkg --print-architecture)" = amd64 ] || skip "this is not amd64"

# The archive that this machine uses for its own packages.
archive=$(awk '/^URIs:/ { print $2; exit } /^deb / { for (i = 2; i <= NF; i++) if ($i ~ /^[a-z]+:\/\//) { print $i; exit } }' \
    /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list 2>/dev/null || true)
rm -rf "$folder"
mkdir -p "$folder"/{lists/partial,cache/archives/partial,root}
cd "$folder"
echo "deb ${archive:-http://deb.debian.org/debian} trixie main" >sources.list
options=(-o Dir::Etc::sourcelist="$folder/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::Lists="$folder/lists"
    -o Dir::Cache="$folder/cache" -o APT::Sandbox::User= -o Debug::NoLocking=1)
timeout 120 apt-get "${options[@]}" -qq update || skip "the archive does not answer"
for package in haproxy haproxy-doc libc6 libssl3t64 libpcre2-8-0 liblua5.4-0 zlib1g libcrypt1 libzstd1 libcap2 libsystemd0; do
    version=$(apt-cache "${options[@]}" madison "$package" | awk -F'|' 'NR == 1 { gsub(/ /, "", $2); print $2 }')
    timeout 120 apt-get "${options[@]}" -qq download "$package=$version" || skip "$package cannot be fetched"
done
for archive in *.deb; do dpkg -x "$archive" root; done
rm -rf ./*.deb lists cache

library=$folder/root/usr/lib/x86_64-linux-gnu
if command -v patchelf >/dev/null; then
    # A master executes its own file again at a reload: that file then finds its loader and its libraries by itself.
    patchelf --set-interpreter "$library/ld-linux-x86-64.so.2" --force-rpath --set-rpath "$library" root/usr/sbin/haproxy
    ln -s root/usr/sbin/haproxy haproxy
else
    # shellcheck disable=SC2016 # "$@" belongs to the script that is written
    printf '#!/bin/sh\nexec %s/ld-linux-x86-64.so.2 --library-path %s %s/root/usr/sbin/haproxy "$@"\n' "$library" "$library" "$folder" >haproxy
    chmod +x haproxy
fi
./haproxy -v | head -1
