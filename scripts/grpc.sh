#!/usr/bin/env bash
# grpc-go through penstock, HTTP/2 on both sides: 20,000 messages in each direction as fast as they go, and 5,000 at one a
# millisecond. A client of grpc-go measures the bandwidth by PINGs, which a count of frames must not take for a flood.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
export PATH=$PATH:/usr/sbin:/sbin:/usr/local/go/bin
tools=$PWD/target/grpc
mkdir -p "$tools"
scripts/packages.sh build test full || exit 1
penstock=${PENSTOCK_BIN:-target/release/penstock}
[ -x "$penstock" ] || cargo build --release -p penstock || exit 1

if ! (cd scripts/grpc && GOPATH=$tools/go GOFLAGS="-buildvcs=false -modcacherw" go build -o "$tools/grpc" .) 2>"$tools/said"; then
    echo "SKIP: grpc-go cannot be built: $(tail -1 "$tools/said")" | tee -a "${PENSTOCK_SKIPS:-/dev/null}"
    exit 0
fi

work=$(mktemp -d)
started=()
trap 'kill "${started[@]}" 2>/dev/null; rm -rf "$work"' EXIT
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
server=$(free_port) front=$(free_port)
"$tools/grpc" -listen "127.0.0.1:$server" &
started+=($!)
cat >"$work/cfg" <<CONFIG
global
    nbthread 1
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
frontend f
    bind 127.0.0.1:$front proto h2
    default_backend b
backend b
    server s1 127.0.0.1:$server proto h2
CONFIG
"$penstock" -db -f "$work/cfg" >"$work/out" 2>&1 &
started+=($!)
for port in "$server" "$front"; do
    for _ in $(seq 100); do (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break; sleep 0.1; done
done

passed=0 failed=0
stream() { # name, arguments...
    local name=$1 word=ok
    shift
    if timeout 120 "$tools/grpc" -to "127.0.0.1:$front" "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)) word=FAILED; fi
    echo "test grpc $name ... $word"
}
stream fast -messages 20000
stream one-a-millisecond -messages 5000 -pause 1ms
word=ok
[ $failed = 0 ] || word=FAILED
echo "test result: $word. $passed passed; $failed failed; 0 ignored"
[ $failed = 0 ]
