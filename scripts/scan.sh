#!/usr/bin/env bash
# Third-party scanners against a running penstock: h2spec (Go module), sslyze (PyPI) and testssl.sh (Debian).
# What one cannot install is named and left out; what one finds fails the run.
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH=$PATH:/usr/sbin:/sbin:/usr/local/go/bin
tools=$PWD/target/scanners
mkdir -p "$tools"
scripts/packages.sh build test full || exit 1
[ -x target/release/penstock ] || cargo build --release -p penstock

work=$(mktemp -d)
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 \
    -keyout "$work/key" -out "$work/crt" 2>/dev/null
cat "$work/crt" "$work/key" >"$work/site.pem"
cat >"$work/haproxy.cfg" <<CONFIG
global
    nbthread 1
defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
frontend f
    bind 127.0.0.1:$port ssl crt $work/site.pem alpn h2,http/1.1
    http-request return status 200 content-type text/plain string "hello from the scanned site"
CONFIG
target/release/penstock -db -f "$work/haproxy.cfg" >"$work/out" 2>&1 &
proxy=$!
trap 'kill $proxy; rm -rf "$work"' EXIT
for _ in $(seq 100); do curl -sk -o /dev/null "https://127.0.0.1:$port/" && break; sleep 0.1; done
kill -0 $proxy || { cat "$work/out"; exit 1; }

failed=0
verdict() { # name, outcome
    if [ "$2" = 0 ]; then echo "test scan $1 ... ok"; else echo "test scan $1 ... FAILED"; failed=$((failed + 1)); fi
}

if GOBIN=$tools GOPATH=$tools/go go install github.com/summerwind/h2spec/cmd/h2spec@v2.2.1 2>"$work/go"; then
    "$tools/h2spec" -h 127.0.0.1 -p "$port" -t -k >"$work/h2spec" 2>&1
    grep -E '^[0-9]+ tests' "$work/h2spec"
    grep -q '146 tests, 146 passed, 0 skipped, 0 failed' "$work/h2spec"
    verdict h2spec $?
else
    echo "SKIP: h2spec cannot be installed: $(tail -1 "$work/go")" | tee -a "${PENSTOCK_SKIPS:-/dev/null}"
fi

if [ -x "$tools/venv/bin/sslyze" ] || { python3 -m venv "$tools/venv" && "$tools/venv/bin/pip" install -q sslyze; }; then
    "$tools/venv/bin/sslyze" --mozilla_config intermediate "127.0.0.1:$port" >"$work/sslyze" 2>&1
    # A certificate made on the spot is trusted by nobody: only what the profile says of the protocol counts.
    sed -n '/COMPLIANCE AGAINST/,$p' "$work/sslyze"
    ! sed -n '/COMPLIANCE AGAINST/,$p' "$work/sslyze" | grep -E '^ *\* ' | grep -qvE 'certificate|validity|trust'
    verdict sslyze $?
else
    echo "SKIP: sslyze cannot be installed" | tee -a "${PENSTOCK_SKIPS:-/dev/null}"
fi

testssl --quiet --color 0 --warnings batch --severity HIGH -p -s -f -U "127.0.0.1:$port" >"$work/testssl" 2>&1
grep -E 'VULNERABLE|NOT ok' "$work/testssl" | grep -vE 'not vulnerable|chain of trust|self.signed' >"$work/findings"
cat "$work/findings"
[ ! -s "$work/findings" ]
verdict testssl $?

[ $failed = 0 ]
