#!/usr/bin/env bash
# Tests the Debian packages in dist/, in roots that debootstrap makes: alone and together, their daemons, upgrade, removal and purge.
#
#   [SOPA_PACKAGES=DIRECTORY] scripts/test_deb.sh [PYTEST_ARGUMENT...]
#
# Debian for it is in build/deb/chroot (made once in some minutes; make clean removes it). The roots are overlays on it in a
# mount namespace of their own, so that nothing stays mounted, however the tests end.
set -euo pipefail

PACKAGES=(debootstrap qemu-system-x86 e2fsprogs)

cd "$(dirname "${BASH_SOURCE[0]}")/.."
script=test-deb
. scripts/debian.sh
work=$PWD/build/deb
chroot=$work/chroot

((EUID == 0)) || die "only root can make roots: sudo make test-deb"
install_missing "70 MB, less than a minute" "${PACKAGES[@]}"

make_debian "$chroot" # packages are for the Debian that built them

SOPA_MOUNTS_OUTSIDE=$(readlink /proc/self/ns/mnt)
SOPA_ROOTS=$(mktemp --directory "$work/roots-XXXXXX")
export SOPA_MOUNTS_OUTSIDE SOPA_ROOTS SOPA_PACKAGES=${SOPA_PACKAGES-$PWD/dist}
trap 'rm -rf --one-file-system "$SOPA_ROOTS"' EXIT
unshare --mount --propagation private .venv/bin/pytest -p no:cacheprovider --timeout=1200 tests/packages "$@"
