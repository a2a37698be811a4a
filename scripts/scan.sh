#!/usr/bin/env bash
# Third-party scanners against a running penstock: h2spec (a Go module), sslyze (PyPI) and testssl.sh (Debian).
# What one cannot install is named and left out; what one finds fails the run. testssl.sh looks at Debian's haproxy too, on
# the same configuration: penstock may have no finding that haproxy has not.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
export PATH=$PATH:/usr/sbin:/sbin:/usr/local/go/bin
tools=$PWD/target/scanners
mkdir -p "$tools"
scripts/packages.sh build test full || exit 1
cargo build --release -p penstock || exit 1

work=$(mktemp -d)
started=()
trap 'kill "${started[@]}" 2>/dev/null; [ -n "${SCAN_KEEP:-}" ] || rm -rf "$work"' EXIT
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# A certificate of an authority of our own, which sslyze is told to trust.
openssl req -x509 -newkey rsa:2048 -nodes -days 90 -subj "/CN=scan authority" -addext keyUsage=critical,keyCertSign \
    -keyout "$work/ca.key" -out "$work/ca" 2>/dev/null
openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout "$work/key" -out "$work/csr" 2>/dev/null
printf '%s\n' subjectAltName=DNS:localhost,IP:127.0.0.1 authorityKeyIdentifier=keyid keyUsage=digitalSignature \
    extendedKeyUsage=serverAuth >"$work/extensions"
openssl x509 -req -days 90 -in "$work/csr" -CA "$work/ca" -CAkey "$work/ca.key" -CAcreateserial -out "$work/crt" \
    -extfile "$work/extensions" 2>/dev/null
cat "$work/crt" "$work/key" >"$work/site.pem"

declare -A port_tls port_clear
serve() { # program, name: starts it; its ports are in port_tls and port_clear
    local tls clear
    tls=$(free_port) clear=$(free_port)
    cat >"$work/$2.cfg" <<CONFIG
global
    nbthread 1
    ssl-default-bind-options ssl-min-ver TLSv1.2
    ssl-default-bind-ciphers ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305
    ssl-default-bind-ciphersuites TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256
defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
    timeout http-request 5s
frontend f
    bind 127.0.0.1:$tls ssl crt $work/site.pem alpn h2,http/1.1
    bind 127.0.0.1:$clear proto h2
    default_backend slow
backend slow
    server s1 127.0.0.1:$origin
CONFIG
    "$1" -db -f "$work/$2.cfg" >"$work/$2.out" 2>&1 &
    started+=($!)
    for _ in $(seq 100); do curl -sk -o /dev/null "https://127.0.0.1:$tls/" && break; sleep 0.1; done
    kill -0 "${started[-1]}" || { cat "$work/$2.out"; exit 1; }
    port_tls[$2]=$tls
    port_clear[$2]=$clear
}

# Not at once: h2spec sends what is wrong with some requests in a second packet, and wants to be told before the answer.
origin=$(free_port)
python3 - "$origin" 2>/dev/null <<'PYTHON' &
import http.server, sys, time
class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.rfile.read(int(self.headers.get("content-length") or 0))
        time.sleep(0.05)
        self.send_response(200)
        self.send_header("content-length", "27")
        self.end_headers()
        self.wfile.write(b"hello from the scanned site")
    do_POST = do_HEAD = do_PUT = do_GET
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
PYTHON
started+=($!)
serve target/release/penstock penstock
serve haproxy haproxy

passed=0 failed=0
verdict() { # name, outcome
    if [ "$2" = 0 ]; then passed=$((passed + 1)) word=ok; else failed=$((failed + 1)) word=FAILED; fi
    echo "test scan $1 ... $word"
}
skip() { echo "SKIP: $1" | tee -a "${PENSTOCK_SKIPS:-/dev/null}"; }

all_of_h2spec() { # name, arguments...
    local name=$1
    shift
    timeout 300 "$tools/h2spec" -h 127.0.0.1 -o 5 -S "$@" >"$work/h2spec" 2>&1
    tail -1 "$work/h2spec"
    grep -q '^146 tests, 146 passed, 0 skipped, 0 failed' "$work/h2spec"
    local outcome=$?
    [ $outcome = 0 ] || sed -n '/^Failures:/,$p' "$work/h2spec"
    verdict "$name" $outcome
}

if [ -x "$tools/h2spec" ] || GOBIN=$tools GOPATH=$tools/go GOFLAGS="-buildvcs=false -modcacherw" \
    go install github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible 2>"$work/go"; then
    all_of_h2spec h2spec-tls -p "${port_tls[penstock]}" -t -k
    all_of_h2spec h2spec-clear -p "${port_clear[penstock]}"
else
    skip "h2spec cannot be installed: $(tail -1 "$work/go")"
fi

if [ -x "$tools/venv/bin/sslyze" ] || { python3 -m venv "$tools/venv" && "$tools/venv/bin/pip" install -q sslyze; }; then
    timeout 300 "$tools/venv/bin/sslyze" --mozilla_config intermediate --certinfo_ca_file "$work/ca" "localhost:${port_tls[penstock]}" \
        >"$work/sslyze" 2>&1
    sed -n '/COMPLIANCE AGAINST/,$p' "$work/sslyze"
    grep -q 'OK - Compliant' "$work/sslyze"
    verdict sslyze $?
else
    skip "sslyze cannot be installed"
fi

findings() { # port, file: "id severity" of whatever testssl.sh holds against the server, sorted
    timeout 600 testssl --quiet --color 0 --warnings off --severity LOW --jsonfile "$2.json" "127.0.0.1:$1" >"$2.out" 2>&1
    python3 - "$2.json" <<'PYTHON' | sort -u >"$2"
import json, sys
for finding in json.load(open(sys.argv[1])):
    if finding["severity"] in ("LOW", "MEDIUM", "HIGH", "CRITICAL"):
        print(finding["id"], finding["severity"], finding["finding"])
PYTHON
}
findings "${port_tls[penstock]}" "$work/of-penstock" &
findings "${port_tls[haproxy]}" "$work/of-haproxy"
wait $!
# The id alone is compared: a finding's text has figures of the run.
echo "testssl.sh: $(wc -l <"$work/of-penstock") findings, of haproxy $(wc -l <"$work/of-haproxy")"
join -v 1 "$work/of-penstock" "$work/of-haproxy" >"$work/only-penstock"
cat "$work/only-penstock"
# A scan that broke off has no result of its last step, the clients it simulates.
grep -q 'Running client simulations' "$work/of-penstock.out" && [ ! -s "$work/only-penstock" ]
verdict testssl $?

word=ok
[ $failed = 0 ] || word=FAILED
echo "test result: $word. $passed passed; $failed failed; 0 ignored"
[ $failed = 0 ]
