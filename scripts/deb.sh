#!/usr/bin/env bash
# Makes the Debian packages of the last commit, penstock and penstock-haproxy, in target/debian, from the binary that scripts/release.sh builds or that
# PENSTOCK_BIN names. PENSTOCK_VERSION sets their version; the default is that of Cargo.toml if the commit has its tag, else one that sorts before it,
# with the commit's time. PENSTOCK_FAST=1 makes larger packages in less time, for a test.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/packages.sh build package
# shellcheck source=scripts/reproducible.sh
. scripts/reproducible.sh
export LC_ALL=C TZ=UTC

tool=3.8.0
if [ "$(target/tools/bin/cargo-deb --version 2>/dev/null)" != $tool ]; then
    CARGO_TARGET_DIR=target/tools/build cargo install cargo-deb --version $tool --locked --quiet --root target/tools
    rm -rf target/tools/build
fi

# shellcheck source=scripts/binary.sh
. scripts/binary.sh

number=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
version=${PENSTOCK_VERSION:-}
if [ -z "$version" ]; then
    version=$number-1
    if [ "$(git tag --points-at HEAD "v$number" 2>/dev/null)" = "" ]; then
        version=$number~git$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M%S)-1
    fi
fi

made=target/package
rm -rf $made target/debian
mkdir -p $made
cp "$PENSTOCK_BIN" $made/penstock
strip --strip-unneeded --remove-section=.comment $made/penstock
# Of the command, and of the files in which bash and fish look for its completion.
ln -s penstock $made/haproxy
ln -s penstock.fish $made/haproxy.fish
scripts/third-party.py | gzip -9n >$made/third-party.gz
gzip -9n <CHANGELOG.md >$made/changelog.gz
for package in penstock penstock-haproxy; do
    cat >$made/changelog-$package <<LOG
$package ($version) unstable; urgency=medium

  * What changed is in /usr/share/doc/$package/changelog.gz.

 -- the penstock maintainers <maintainers@penstock.example>  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
LOG
done
fast=()
[ -z "${PENSTOCK_FAST:-}" ] || fast=(--fast)
make_deb() {
    target/tools/bin/cargo-deb --quiet --no-build --no-strip -p penstock --deb-version "$version" --output target/debian "${fast[@]}" "$@"
}
make_deb
make_deb --variant haproxy
ls target/debian/*.deb
