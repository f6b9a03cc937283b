#!/usr/bin/env bash
# Builds the Debian packages and tests them, in roots that debootstrap makes: alone and together, their daemons, under systemd in QEMU,
# upgrade, removal and purge.
#
#   [SOPA_PACKAGES=DIRECTORY] scripts/test_deb.sh [--suite trixie] [PYTEST_ARGUMENT...]
#
#   --suite trixie  Debian 13's packages, which make test-platforms has built, with its kernel and systemd
#   SOPA_PACKAGES   builds none, and tests those there
#
# Debian for it is in build/deb/chroot or build/platforms (made once in some minutes; make clean removes it). The roots are overlays on
# it in a mount namespace of their own, so that nothing stays mounted, however the tests end.
set -euo pipefail

PACKAGES=(debootstrap qemu-system-x86 e2fsprogs)

cd "$(dirname "${BASH_SOURCE[0]}")/.."
script=test-deb
. scripts/debian.sh
work=$PWD/build/deb
chroot=$work/chroot

suite=
if [[ ${1-} == --suite ]]; then
    suite=${2:?--suite needs the name of a release}
    chroot=$PWD/build/platforms/$suite
    SOPA_PACKAGES=${SOPA_PACKAGES-$PWD/build/platforms/dist}
    [[ -n $(find "$SOPA_PACKAGES" -name 'sopa-*.deb' -print -quit 2>/dev/null) ]] || die "$SOPA_PACKAGES has no packages: make test-platforms"
    shift 2
fi
((EUID == 0)) || die "only root can make roots: sudo make test-deb"
install_missing "70 MB, less than a minute" "${PACKAGES[@]}"

[[ ${SOPA_PACKAGES-} ]] || scripts/build_deb.sh
# packages are for the Debian that built them
make_debian "$chroot" ${suite:+"$suite"}

SOPA_MOUNTS_OUTSIDE=$(readlink /proc/self/ns/mnt)
mkdir -p "$work"
SOPA_ROOTS=$(mktemp --directory "$work/roots-XXXXXX")
export SOPA_MOUNTS_OUTSIDE SOPA_ROOTS SOPA_PACKAGES=${SOPA_PACKAGES:-$PWD/dist} SOPA_CHROOT=$chroot
trap 'rm -rf --one-file-system "$SOPA_ROOTS"' EXIT
unshare --mount --propagation private .venv/bin/pytest -p no:cacheprovider --timeout=1200 tests/packages "$@"
