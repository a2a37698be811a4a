#!/usr/bin/env bash
# Tests the image: its conventions, and that it serves, reloads and drains when started according to its settings, in
# a chroot and namespaces. Uses the binary of scripts/release.sh, or PENSTOCK_BIN. Needs root.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/packages.sh build test image
work=$PWD/target/test-image
if [ "${1:-}" != inside ]; then
    [ "$(id -u)" = 0 ] || { echo "this needs root: a chroot and namespaces" >&2; exit 1; }
    rm -rf --one-file-system "$work"
    mkdir -p "$work/layout" "$work/root"
    trap 'rm -rf --one-file-system "$work"' EXIT
    scripts/image.sh
    tar x -C "$work/layout" -f target/image/penstock.tar
    # The image has one layer.
    python3 - "$work" <<'PY'
import json, pathlib, subprocess, sys
work = pathlib.Path(sys.argv[1])
blob = lambda digest: work / "layout/blobs" / digest.replace(":", "/")
manifest = json.loads(blob(json.loads((work / "layout/index.json").read_text())["manifests"][0]["digest"]).read_text())
config = json.loads(blob(manifest["config"]["digest"]).read_text())["config"]
wanted = {"User": "haproxy", "WorkingDir": "/var/lib/haproxy", "StopSignal": "SIGUSR1", "Entrypoint": ["docker-entrypoint.sh"],
          "Cmd": ["haproxy", "-f", "/usr/local/etc/haproxy/haproxy.cfg"]}
for name, value in wanted.items():
    assert config.get(name) == value, f"{name} is {config.get(name)}, not {value}"
assert any(word.startswith("PATH=/usr/local/sbin:") for word in config["Env"]), config["Env"]
for layer in manifest["layers"]:
    subprocess.run(["tar", "xf", blob(layer["digest"]), "-C", work / "root"], check=True)
print("ok: user, working directory, stop signal, entry point and command are those of the official image")
PY
    unshare --mount --pid --net --fork --kill-child --mount-proc "$0" inside
    exit
fi

root=$work/root
ip link set lo up
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
fail() {
    echo "FAILED: $1" >&2
    exit 1
}
until_true() { # until_true WHAT COMMAND...
    local what=$1 end=$((SECONDS + 30))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || fail "waited in vain until $what"
        sleep 0.05
    done
}
site() { # site WORD: writes a configuration that answers with WORD
    printf 'defaults\n  mode http\n  timeout client 5s\n  timeout server 5s\n  timeout connect 5s\nfrontend f\n  bind 127.0.0.1:8080\n' >"$root/usr/local/etc/haproxy/haproxy.cfg"
    echo "  http-request return status 200 content-type text/plain string $1" >>"$root/usr/local/etc/haproxy/haproxy.cfg"
}
answers() { [ "$(curl -s --max-time 5 http://127.0.0.1:8080/)" = "$1" ]; }
site first
# Starts the image according to its settings: user, directory, entry point and command.
chroot --userspec=99:99 "$root" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    sh -c 'cd /var/lib/haproxy && exec docker-entrypoint.sh haproxy -f /usr/local/etc/haproxy/haproxy.cfg' 2>"$work/log" &
main=$!
until_true "it answers" answers first
[ "$(awk '/^Uid/ { print $2 }' /proc/$main/status)" = 99 ] || fail "it is not of the user haproxy"
[ "$(cat /proc/$main/comm)" = haproxy ] || fail "the process is $(cat /proc/$main/comm)"
echo "ok: serves as the user haproxy"
case "$(tr '\0' ' ' </proc/$main/cmdline)" in
"haproxy -W -db -f "*) echo "ok: the entry point puts 'haproxy -W -db' in front" ;;
*) fail "it was started as $(tr '\0' ' ' </proc/$main/cmdline)" ;;
esac
if [ -n "$(cat /proc/$main/task/*/children)" ]; then
    site second
    kill -USR2 $main
    until_true "the reload is done" answers second
    echo "ok: SIGUSR2 reloads"
else
    fail "-W -db started no master"
fi
kill -USR1 $main
status=0
wait $main || status=$?
[ $status = 0 ] || fail "SIGUSR1 ended it with status $status"
echo "ok: SIGUSR1, the image's stop signal, ends it with status 0"
version=$(chroot "$root" docker-entrypoint.sh -v | head -1)
case "$version" in "HAProxy version "*) echo "ok: options alone are haproxy's: $version" ;; *) fail "-v gives '$version'" ;; esac
[ "$(chroot "$root" docker-entrypoint.sh echo hello)" = hello ] || fail "another command is not run as it is"
echo "ok: another command is run as it is"
