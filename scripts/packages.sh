#!/usr/bin/env bash
# Installs the Debian packages of the given groups (build, test, check, package, image, full), or says exactly what to install.
# A package counts as present when the command it brings is found, so a machine set up by other means is left alone.
set -euo pipefail

# group: package=command (or package=/path)
wanted=$(cat <<'LIST'
build gcc=cc
build g++=c++
build libc6-dev=/usr/include/stdio.h
build pkg-config=pkg-config
test haproxy=haproxy
test haproxy-doc=/usr/share/doc/haproxy/configuration.txt.gz
test nginx=nginx
test libnginx-mod-http-modsecurity=/usr/lib/nginx/modules/ngx_http_modsecurity_module.so
test modsecurity-crs=/usr/share/modsecurity-crs/owasp-crs.load
test curl=curl
test openssl=openssl
test nghttp2-client=h2load
test gnutls-bin=gnutls-cli
test socat=socat
test patchelf=patchelf
test python3=python3
test valgrind=valgrind
test c-icap=c-icap
test libc-icap-mod-virus-scan=/usr/lib/x86_64-linux-gnu/c_icap/virus_scan.so
test clamav-daemon=clamd
test squid-openssl=squid
test sslsplit=sslsplit
test tshark=tshark
test apache2-utils=ab
test iproute2=ip
test iptables=iptables
test linux-perf=perf
test groff-base=groff
test zsh=zsh
test fish=fish
check shellcheck=shellcheck
check pyflakes3=pyflakes3
check mypy=mypy
package dpkg-dev=dpkg-shlibdeps
package binutils=strip
package lintian=lintian
package debootstrap=debootstrap
package systemd-container=systemd-nspawn
image buildah=buildah
image crun=crun
full wrk=wrk
full hatop=hatop
full prometheus-haproxy-exporter=prometheus-haproxy-exporter
full chromium=chromium
full prometheus=promtool
full golang-go=go
full testssl.sh=testssl
full slowhttptest=slowhttptest
full python3-venv=/usr/share/doc/python3-venv
LIST
)

missing=()
while read -r group entry; do
    case " $* " in *" $group "*) ;; *) continue ;; esac
    package=${entry%%=*} proof=${entry#*=}
    case $proof in
        /*) [ -e "$proof" ] || missing+=("$package") ;;
        *) PATH=$PATH:/usr/sbin:/sbin:/usr/local/go/bin command -v "$proof" >/dev/null || missing+=("$package") ;;
    esac
done <<<"$wanted"
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" = 0 ]; then
    as_root=()
elif sudo -n true 2>/dev/null; then
    as_root=(sudo -n)
else
    echo "These packages are missing and this user may not install them. Run:" >&2
    echo "    sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 1
fi
if ! command -v apt-get >/dev/null; then
    echo "Not a Debian machine: install what brings these packages' commands: ${missing[*]}" >&2
    exit 1
fi

echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
# policy-rc.d keeps the packages from starting services on the machine's ports; an existing one is respected.
guard=/usr/sbin/policy-rc.d
if [ ! -e $guard ]; then
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee $guard >/dev/null
    "${as_root[@]}" chmod +x $guard
    trap '"${as_root[@]}" rm -f $guard' EXIT
fi
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
