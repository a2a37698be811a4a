#!/usr/bin/env bash
# Tests the Debian packages as users would, in a bare bookworm: install, start, send a request, upgrade under traffic, purge; and replacing Debian's
# haproxy by penstock-haproxy, and back. The packages contain the binary of scripts/release.sh, or PENSTOCK_BIN. Needs root. Everything runs in
# separate namespaces, which end with this script; the bare system is kept in target for the next run.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/packages.sh build test package

work=$PWD/target/test-packages
if [ "${1:-}" != inside ]; then
    [ "$(id -u)" = 0 ] || { echo "this needs root: a chroot and namespaces" >&2; exit 1; }
    rm -rf --one-file-system "$work"
    mkdir -p "$work"
    trap 'rm -rf --one-file-system "$work"' EXIT
    number=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
    for n in 1 2; do
        PENSTOCK_FAST=1 PENSTOCK_VERSION=$number~test$n-1 scripts/deb.sh >/dev/null
        for package in penstock penstock-haproxy; do
            mv target/debian/${package}_*.deb "$work/$package-$n.deb"
        done
    done
    lintian --allow-root --fail-on error "$work"/*-2.deb
    if [ ! -e target/bookworm-packages.tar ]; then
        scripts/bookworm.sh "$work/root"
        # Fetch all dependencies of these packages and of Debian's once, because the tests have no network.
        cp /etc/resolv.conf "$work/root/etc/resolv.conf"
        printf '#!/bin/sh\nexit 101\n' >"$work/root/usr/sbin/policy-rc.d"
        chmod +x "$work/root/usr/sbin/policy-rc.d"
        chroot "$work/root" env DEBIAN_FRONTEND=noninteractive sh -c 'apt-get -qq update && apt-get install -qq -y --no-install-recommends systemd-sysv haproxy &&
            apt-get -qq -y purge haproxy && apt-get -qq --download-only -y --no-install-recommends install haproxy' >"$work/apt.log" 2>&1 ||
            { tail "$work/apt.log"; exit 1; }
        tar c -C "$work/root" . >target/bookworm-packages.tar.new
        mv target/bookworm-packages.tar.new target/bookworm-packages.tar
        rm -rf --one-file-system "$work/root"
    fi
    mkdir "$work/root"
    tar x -C "$work/root" -f target/bookworm-packages.tar
    status=0
    unshare --mount --pid --net --uts --ipc --fork --kill-child --mount-proc "$0" inside || status=$?
    [ $status = 0 ] && scripts/test-systemd.sh "$work" || status=1
    exit $status
fi

root=$work/root
ip link set lo up
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/run"
mount --rbind /dev "$root/dev"
mkdir -p "$root/packages"
cp "$work"/*.deb "$root/packages"
port=8080
origin=8081

passed=0
ok() {
    passed=$((passed + 1))
    echo "ok: $1"
}
fail() {
    echo "FAILED: $1" >&2
    tail -n 20 "$work/service.log" >&2
    exit 1
}
in_root() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive "$@"; }
quietly() { in_root "$@" >"$work/said" 2>&1 || { cat "$work/said"; fail "$*"; }; }
until_true() { # until_true WHAT COMMAND...
    local what=$1 end=$((SECONDS + 30))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || fail "waited in vain until $what"
        sleep 0.05
    done
}
# Lists everything that a package could leave behind: each file with its kind, mode and owner, and the users.
listed() {
    (cd "$root" && find . -xdev \( -path ./var/lib/dpkg -o -path ./var/cache -o -path ./var/log -o -path ./packages -o -path ./tmp \
        -o -path ./proc -o -path ./dev -o -path ./run -o -path './etc/*-' -o -path './var/lib/systemd/deb-systemd-helper*' \) -prune -o \
        -printf '%y %m %u %p\n' && find run -printf '%y %m %u %p\n') | grep -v ' run/lock\| run/systemd\| run/adduser' | sort
    sort "$root/etc/passwd" "$root/etc/group" "$root/etc/shadow" "$root/etc/gshadow"
    find "$root/var/lib/systemd" -name '*penstock*' -o -name '*haproxy*'
}
# Runs the unit's command line as systemd would.
start() { # start UNIT: sets $master to the id of its process
    local unit=$root/lib/systemd/system/$1.service line
    line=$(
        eval "$(sed -n 's/^Environment=//p' "$unit" | sed 's/" "/"\n"/g' | sed 's/^"\([A-Z]*\)=\(.*\)"$/\1="\2"/')"
        # shellcheck disable=SC1090
        . <(grep -v '^#' "$root/etc/default/$1" || true)
        eval "echo $(sed -n 's/^ExecStart=//p' "$unit")"
    )
    # Not through a function of this script: its shell would receive the signals instead of the process.
    # shellcheck disable=SC2086
    chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C $line 2>>"$work/service.log" &
    master=$!
}
stop() { # the signal may kill a master that has only just started
    kill -TERM "$master"
    local status=0
    wait "$master" || status=$?
    [ $status = 0 ] || [ $status = 143 ] || fail "the service ended with status $status"
}
site() { # site FILE: adds a site to the configuration
    printf '\nfrontend site\n    bind 127.0.0.1:%s\n    default_backend servers\nbackend servers\n    server one 127.0.0.1:%s\n' $port $origin >>"$1"
}
answers() { [ "$(curl -s --max-time 5 http://127.0.0.1:$port/)" = "from the origin" ]; }
# A server behind the service, and four concurrent clients that send each request on a new connection until they are told to stop.
cat >"$work/traffic.py" <<'PY'
import http.client, http.server, signal, sys, threading

what, port = sys.argv[1], int(sys.argv[2])
if what == "origin":
    class Origin(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "15")
            self.end_headers()
            self.wfile.write(b"from the origin")
        def log_message(self, *_):
            pass
    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = 1024
    Server(("127.0.0.1", port), Origin).serve_forever()

end, good, bad, lock = threading.Event(), 0, [], threading.Lock()
signal.signal(signal.SIGTERM, lambda *_: end.set())
def client():
    global good
    while not end.is_set():
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", "/", headers={"Connection": "close"})
            answer = connection.getresponse()
            is_good = answer.status == 200 and answer.read() == b"from the origin"
            why = f"status {answer.status}"
            connection.close()
        except OSError as e:
            is_good, why = False, repr(e)
        with lock:
            if is_good:
                good += 1
            else:
                bad.append(why)
threads = [threading.Thread(target=client) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(f"{good} requests, {len(bad)} failed", *bad[:3])
sys.exit(1 if bad or good < 100 else 0)
PY
python3 "$work/traffic.py" origin $origin &
until_true "the origin answers" curl -s http://127.0.0.1:$origin/
children() { cat /proc/"$master"/task/*/children | tr ' ' '\n' | sed '/^$/d'; }
# Reloads with SIGUSR2 under traffic: the worker must be a new one that runs the current file, and no client may have been turned away.
reload_with_traffic() { # reload_with_traffic COMMAND-BEFORE-THE-SIGNAL...
    python3 "$work/traffic.py" clients $port >"$work/traffic" &
    local clients=$! before
    before=$(children)
    "$@"
    kill -USR2 "$master"
    is_replaced() { local now; now=$(children) && [ -n "$now" ] && [ "$(wc -w <<<"$now")" = 1 ] && [ "$now" != "$before" ]; }
    until_true "another worker serves alone" is_replaced
    [ "/proc/$(children)/exe" -ef "$root/usr/sbin/penstock" ] || fail "the worker is not of the file that is installed"
    sleep 0.5 # of traffic with the new worker alone
    kill -TERM $clients
    wait $clients || { cat "$work/traffic"; fail "requests were lost"; }
    echo "    $(cat "$work/traffic")"
}

echo "== penstock"
listed >"$work/before"
quietly dpkg -i /packages/penstock-1.deb
in_root getent passwd penstock >/dev/null || fail "there is no user penstock"
[ "$(stat -c %a,%G "$root/run/penstock" | sed 's/,.*//')" = 2775 ] || fail "/run/penstock is not as tmpfiles.d says"
[ -L "$root/etc/systemd/system/multi-user.target.wants/penstock.service" ] || fail "the unit is not enabled"
ok "installs: user, /run/penstock, the unit enabled"
quietly systemd-analyze verify --man=no /lib/systemd/system/penstock.service
grep -qi "penstock.service" "$work/said" && { cat "$work/said"; fail "systemd has something to say about the unit"; }
ok "systemd-analyze verify has nothing to say about the unit"
quietly penstock -c -f /etc/penstock/penstock.cfg
start penstock
until_true "it answers commands" in_root penstock ctl -f /etc/penstock/penstock.cfg show info
in_root penstock ctl -f /etc/penstock/penstock.cfg show info | grep -q '^Pid' || fail "no show info"
[ "$(ss -Htln | grep -vc ":$origin ")" = 0 ] || { ss -Htln; fail "it listens on the network as it comes"; }
stop
ok "as it comes it starts, answers commands on its socket, and listens on no port"
site "$root/etc/penstock/penstock.cfg"
start penstock
until_true "the site answers" answers
worker=$(children)
[ "$(awk '/^Uid/ { print $2 }' "/proc/$worker/status")" = "$(in_root id -u penstock)" ] || fail "the worker is not penstock's"
ok "a request goes through it; its worker is penstock's"
reload_with_traffic quietly dpkg -i /packages/penstock-2.deb
grep -q '^frontend site' "$root/etc/penstock/penstock.cfg" || fail "the upgrade lost the configuration"
ok "an upgrade and SIGUSR2 under traffic: configuration kept, the new version's worker, no request lost"
stop
quietly dpkg --purge penstock
listed >"$work/after"
diff "$work/before" "$work/after" || fail "purge leaves something"
ok "purge leaves nothing"

echo "== penstock-haproxy"
quietly apt-get install -y haproxy
site "$root/etc/haproxy/haproxy.cfg"
echo 'EXTRAOPTS="-S /run/haproxy-master.sock"' >>"$root/etc/default/haproxy"
cp "$root/etc/haproxy/haproxy.cfg" "$work/mine.cfg"
start haproxy
until_true "Debian's haproxy answers" answers
stop
quietly apt-get install -y /packages/penstock-haproxy-1.deb
in_root dpkg-query -W -f "\${Status}" haproxy | grep -q '^deinstall ok config-files' || fail "haproxy was not replaced"
cmp "$root/etc/haproxy/haproxy.cfg" "$work/mine.cfg" || fail "the configuration was changed"
grep -q '^EXTRAOPTS' "$root/etc/default/haproxy" || fail "/etc/default/haproxy was changed"
[ "$(readlink "$root/usr/sbin/haproxy")" = penstock ] || fail "haproxy is no link"
in_root haproxy -v | head -1 | grep -q '^HAProxy version' || fail "it does not call itself haproxy"
quietly haproxy -c -f /etc/haproxy/haproxy.cfg
ok "takes haproxy's place without a question; configuration and defaults kept"
quietly systemd-analyze verify --man=no /lib/systemd/system/haproxy.service
grep -qi "haproxy.service" "$work/said" && { cat "$work/said"; fail "systemd has something to say about the unit"; }
start haproxy
until_true "penstock answers in haproxy's place" answers
[ "$(pidof haproxy | wc -w)" = 2 ] || fail "pidof haproxy does not find master and worker"
ok "starts by the unit's line; pidof haproxy finds master and worker"
reload_with_traffic quietly dpkg -i /packages/penstock-haproxy-2.deb
ok "an upgrade and SIGUSR2 under traffic: no request lost"
stop
quietly apt-get install -y haproxy
in_root dpkg-query -W -f "\${Status}" penstock-haproxy | grep -q '^deinstall ok' || fail "penstock-haproxy was not replaced"
cmp "$root/etc/haproxy/haproxy.cfg" "$work/mine.cfg" || fail "the configuration was changed on the way back"
start haproxy
until_true "Debian's haproxy answers again" answers
stop
quietly dpkg --purge penstock-haproxy
cmp "$root/etc/haproxy/haproxy.cfg" "$work/mine.cfg" || fail "the purge took haproxy's configuration"
in_root getent passwd haproxy >/dev/null || fail "the purge took haproxy's user"
start haproxy
until_true "Debian's haproxy answers after the purge" answers
stop
ok "and back: haproxy takes its place again; a purge of penstock-haproxy takes nothing of haproxy's"
quietly apt-get install -y /packages/penstock-haproxy-2.deb
quietly dpkg --purge haproxy
left=$(find "$root/etc/haproxy/errors" -name '*.http' 2>/dev/null | wc -l)
quietly apt-get install -y --reinstall -o Dpkg::Options::=--force-confmiss /packages/penstock-haproxy-2.deb
[ -e "$root/etc/haproxy/haproxy.cfg" ] || fail "there is no configuration"
in_root getent passwd haproxy >/dev/null || fail "there is no user haproxy"
quietly haproxy -c -f /etc/haproxy/haproxy.cfg
ok "after a purge of Debian's haproxy ($left error files were left by it) a reinstallation puts back what that took"
quietly dpkg --purge penstock-haproxy
listed >"$work/after"
diff "$work/before" "$work/after" || fail "purge leaves something"
ok "purge leaves nothing"
echo "$passed passed, 0 failed"
