#!/usr/bin/env bash
# Tests the units of the Debian packages under a real systemd, in a container that systemd-nspawn boots: start, reload, a killed worker, an upgrade, a bad
# configuration, stop; replacing haproxy, and going back to it. Part of scripts/test-packages.sh, which passes the location of the packages.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$1
root=$work/system
rm -rf --one-file-system "$root"
mkdir -p "$root"
tar x -C "$root" -f target/bookworm-packages.tar
rm -f "$root/usr/sbin/policy-rc.d"
mkdir "$root/packages"
cp "$work"/*.deb "$root/packages"
cat >"$root/etc/systemd/system/test.service" <<'UNIT'
[Unit]
After=basic.target
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=exec
ExecStart=/bin/bash /test
StandardOutput=file:/said
StandardError=file:/said
UNIT
mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
ln -s /etc/systemd/system/test.service "$root/etc/systemd/system/multi-user.target.wants/test.service"
cat >"$root/test" <<'TEST'
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
ok() { echo "ok: $1"; }
fail() {
    echo "FAILED: $1"
    systemctl --no-pager -l status penstock haproxy
    journalctl --no-pager -n 60
    exit 1
}
quietly() { "$@" >/tmp/said 2>&1 || { cat /tmp/said; fail "$*"; }; }
until_true() { # until_true WHAT COMMAND...
    local what=$1 end=$((SECONDS + 30))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || fail "waited in vain until $what"
        sleep 0.1
    done
}
property() { systemctl show -P "$1" "$2"; }
answers() { # answers WORD
    exec 3<>/dev/tcp/127.0.0.1/8080 || return 1
    printf 'GET / HTTP/1.0\r\n\r\n' >&3
    grep -q "$1" <&3
}
site() { # site FILE WORD
    sed -i '/^frontend site/,$d' "$1"
    printf 'frontend site\n    bind 127.0.0.1:8080\n    http-request return status 200 content-type text/plain string %s\n' "$2" >>"$1"
}
worker() { cat /proc/"$(property MainPID "$1")"/task/*/children; }
config=/etc/penstock/penstock.cfg

quietly dpkg -i /packages/penstock-1.deb
[ "$(property ActiveState penstock)" = active ] || fail "it was not started"
[ "$(property Type penstock)" = notify ] && [ -n "$(property StatusText penstock)" ] || fail "it told systemd nothing"
quietly penstock ctl -f $config show info
ok "installation starts it; systemd was told: $(property StatusText penstock)"

site $config first
main=$(property MainPID penstock)
quietly systemctl reload penstock
until_true "the reload is done" answers first
[ "$(property MainPID penstock)" = "$main" ] || fail "the reload made another master"
until_true "the log has the request" grep -q ' site ' <(journalctl --no-pager -t penstock)
ok "reloads; the log of a worker that is locked into /var/lib/penstock comes to the journal"

before=$(worker penstock)
kill -9 $before
replaced() { local now; now=$(worker penstock) && [ -n "$now" ] && [ "$now" != "$before" ] && answers first; }
until_true "the worker is replaced" replaced
[ "$(property MainPID penstock)" = "$main" ] && [ "$(property NRestarts penstock)" = 0 ] || fail "systemd started it again"
ok "a worker killed by kill -9 is replaced, and systemd has nothing to do"

before=$(worker penstock)
quietly dpkg -i /packages/penstock-2.deb
until_true "the upgrade's worker serves" replaced
[ "$(property MainPID penstock)" = "$main" ] || fail "the upgrade made another master"
until_true "the worker is of the new file" eval '[ "/proc/$(worker penstock | tr -d " ")/exe" -ef /usr/sbin/penstock ]'
ok "an upgrade reloads it: the same master, a worker of the new file"

echo nonsense >>$config
systemctl reload penstock 2>/dev/null && fail "a bad configuration was reloaded"
answers first && [ "$(property ActiveState penstock)" = active ] || fail "a bad configuration ended the service"
ok "a bad configuration: the reload fails, the service goes on"

site $config second
main=$(property MainPID penstock)
kill -9 "$main"
until_true "systemd starts it again" eval '[ "$(property MainPID penstock)" != '"$main"' ] && answers second'
ok "a master killed by kill -9: systemd starts it again"

quietly systemctl stop penstock
[ "$(property ActiveState penstock)" = inactive ] && [ "$(property Result penstock)" = success ] || fail "it ended as $(property Result penstock)"
pidof penstock >/dev/null && fail "processes are left"
ok "stops: $(property Result penstock), no process left"
quietly dpkg --purge penstock
systemctl cat penstock >/dev/null 2>&1 && fail "the unit is left"

config=/etc/haproxy/haproxy.cfg
quietly apt-get install -y haproxy
site $config site-of-haproxy
# Debian's unit reloads with /bin/kill, which this small system lacks.
quietly systemctl restart haproxy
until_true "haproxy answers" answers site-of-haproxy
quietly apt-get install -y /packages/penstock-haproxy-2.deb
until_true "penstock answers in its place" answers site-of-haproxy
[ "$(readlink "/proc/$(property MainPID haproxy)/exe")" = /usr/sbin/penstock ] || fail "the service is not penstock"
[ "$(property ActiveState haproxy)" = active ] || fail "the service is $(property ActiveState haproxy)"
quietly systemctl reload haproxy
until_true "it answers after a reload" answers site-of-haproxy
ok "penstock-haproxy takes the running service over, with 'daemon' in its configuration; haproxy.service reloads"
quietly apt-get install -y haproxy
until_true "haproxy answers again" answers site-of-haproxy
[ "$(readlink "/proc/$(property MainPID haproxy)/exe")" = /usr/sbin/haproxy ] || fail "the service is not haproxy"
ok "and back"
echo everything passed
TEST
echo "== under systemd"
timeout 300 systemd-nspawn --quiet --directory "$root" --private-network --register=no --keep-unit --boot >"$work/console" 2>&1 </dev/null || true
[ -e "$root/said" ] || { tail -30 "$work/console"; echo "no systemd could be booted here" >&2; exit 1; }
cat "$root/said"
[ "$(tail -1 "$root/said")" = "everything passed" ]
