#!/usr/bin/env bash
# Makes an image of the last commit, target/image/penstock.tar (an OCI archive). It follows the conventions of the official haproxy image, so that it
# can replace that in a compose file, a pod or a Dockerfile. Uses the binary that scripts/release.sh builds or that PENSTOCK_BIN names. Needs root.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/packages.sh build image
# shellcheck source=scripts/reproducible.sh
. scripts/reproducible.sh
# shellcheck source=scripts/binary.sh
. scripts/binary.sh

made=target/image
rm -rf --one-file-system $made
mkdir -p $made
root=$made/root
trap 'rm -rf --one-file-system $made/root $made/storage $made/run' EXIT
scripts/bookworm.sh $root
# Remove what Debian's slim images lack too (manuals, translations, lists of packages), and everything that depends on when this was made.
rm -rf $root/usr/share/{doc,man,info,locale,lintian} $root/var/cache/* $root/var/lib/apt/lists/* $root/var/log/* $root/etc/resolv.conf $root/etc/hostname
rm -f $root/etc/machine-id
install -D -m 755 "$PENSTOCK_BIN" $root/usr/local/sbin/penstock
strip --strip-unneeded --remove-section=.comment $root/usr/local/sbin/penstock
ln -s penstock $root/usr/local/sbin/haproxy
install -D -m 755 packaging/image/docker-entrypoint.sh $root/usr/local/bin/docker-entrypoint.sh
ln -s /usr/local/bin/docker-entrypoint.sh $root/
install -d -m 755 $root/usr/local/etc/haproxy/errors
install -m 644 packaging/etc/errors/*.http $root/usr/local/etc/haproxy/errors/
# The user id of the official image, which may own files in volumes.
chroot $root groupadd --gid 99 --system haproxy
chroot $root useradd --gid haproxy --home-dir /var/lib/haproxy --no-create-home --system --uid 99 --shell /usr/sbin/nologin haproxy
install -d -o 99 -g 99 $root/var/lib/haproxy
install -d $root/usr/share/doc/penstock
install -m 644 packaging/deb/copyright $root/usr/share/doc/penstock/copyright
scripts/third-party.py | gzip -9n >$root/usr/share/doc/penstock/third-party.gz
# The file contains the day on which the password was last changed.
sed -i "s/^\(haproxy:[^:]*\):[0-9]*:/\1:$((SOURCE_DATE_EPOCH / 86400)):/" $root/etc/shadow
rm -f $root/etc/*-

in_store() { buildah --storage-driver vfs --root "$PWD/$made/storage" --runroot "$PWD/$made/run" "$@"; }
container=$(in_store from scratch)
in_store add --quiet "$container" $root / >/dev/null
number=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
in_store config --user haproxy --workingdir /var/lib/haproxy --stop-signal SIGUSR1 \
    --entrypoint '["docker-entrypoint.sh"]' --cmd 'haproxy -f /usr/local/etc/haproxy/haproxy.cfg' \
    --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin --env "PENSTOCK_VERSION=$number" \
    --label org.opencontainers.image.title=penstock --label "org.opencontainers.image.version=$number" \
    --label "org.opencontainers.image.revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)" "$container"
in_store commit --quiet --timestamp "$SOURCE_DATE_EPOCH" "$container" "oci-archive:$PWD/$made/penstock.tar:penstock:$number" >/dev/null
echo $made/penstock.tar
