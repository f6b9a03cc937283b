#!/usr/bin/env bash
# Tests the Debian packages in dist/, in roots that debootstrap makes: alone and together, their daemons, upgrade, removal and purge.
#
#   [SOPA_PACKAGES=DIRECTORY] scripts/test_deb.sh [PYTEST_ARGUMENT...]
#
# Debian for it is in build/deb/chroot (made once in some minutes; make clean removes it). The roots are overlays on it in a
# mount namespace of their own, so that nothing stays mounted, however the tests end.
set -euo pipefail

PACKAGES=(debootstrap qemu-system-x86 e2fsprogs)
SUITE=bookworm
MIRROR=http://deb.debian.org/debian

cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$PWD/build/deb
chroot=$work/chroot

die() {
    printf 'test-deb: %s\n' "$*" >&2
    exit 1
}

say() {
    printf 'test-deb: %s\n' "$*"
}

((EUID == 0)) || die "only root can make roots: sudo make test-deb"
missing=()
for package in "${PACKAGES[@]}"; do
    dpkg-query --show --showformat='${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^[ih]i' || missing+=("$package")
done
if ((${#missing[@]})); then
    say "installing ${missing[*]}"
    DEBIAN_FRONTEND=noninteractive apt-get --quiet update >/dev/null || die "apt-get update failed (is there a network?)"
    DEBIAN_FRONTEND=noninteractive apt-get --quiet --option DPkg::Lock::Timeout=600 \
        install --yes --no-install-recommends "${missing[@]}" </dev/null | grep -E '^(Need to get|Setting up) ' || true
fi

mkdir -p "$work"
# A root that is there is whole: it gets its name when it is.
if [[ ! -d $chroot ]]; then
    rm -rf "$chroot.part"
    say "making a Debian in $chroot (some minutes, once)"
    debootstrap --variant=minbase "$SUITE" "$chroot.part" "$MIRROR" >"$work/debootstrap.log" ||
        die "debootstrap failed: $work/debootstrap.log says why"
    mv "$chroot.part" "$chroot"
fi

SOPA_MOUNTS_OUTSIDE=$(readlink /proc/self/ns/mnt)
SOPA_ROOTS=$(mktemp --directory "$work/roots-XXXXXX")
export SOPA_MOUNTS_OUTSIDE SOPA_ROOTS SOPA_PACKAGES=${SOPA_PACKAGES-$PWD/dist}
trap 'rm -rf --one-file-system "$SOPA_ROOTS"' EXIT
unshare --mount --propagation private .venv/bin/pytest -p no:cacheprovider --timeout=1200 tests/packages "$@"
