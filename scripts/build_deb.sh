#!/usr/bin/env bash
# Builds Debian packages of this checkout in dist/: sopa-controller, sopa-agent and sopa-tools, for the Debian that it runs on.
#
#   scripts/build_deb.sh [--arch arm64] [--version VERSION] [--out DIRECTORY]
#
#   --arch arm64       on amd64: for arm64, by a cross compiler; by default for this machine
#   --version VERSION  of the packages; by default what scripts/version.sh says of this checkout
#   --out DIRECTORY    instead of dist/
#
# The Python distributions inside are those of deploy/requirements.lock, checked by their hashes (scripts/lock.py). All times in the
# packages are that of the last commit, or SOURCE_DATE_EPOCH.
set -euo pipefail

PACKAGES=(debhelper dpkg-dev fakeroot clang llvm g++ libbpf-dev linux-libc-dev python3-venv ca-certificates)

cd "$(dirname "${BASH_SOURCE[0]}")/.."
script=deb
. scripts/debian.sh
work=$PWD/build/deb
environment=$work/environment
source=$work/sopa

native=$(dpkg --print-architecture)
arch=$native
version=$(scripts/version.sh)
out=$PWD/dist
while (($#)); do
    case $1 in
    --arch) arch=${2:?--arch needs an architecture} ;;
    --version) version=${2:?--version needs a version} ;;
    --out) out=$(realpath -m "${2:?--out needs a directory}") ;;
    *) die "unknown argument $1 (there are --arch, --version and --out)" ;;
    esac
    shift 2
done

case $native-$arch in
amd64-amd64 | arm64-arm64) ;;
amd64-arm64) PACKAGES+=(g++-aarch64-linux-gnu) ;;
*) die "no packages for $arch are built on $native: there are amd64, and arm64 on either" ;;
esac
install_missing "less than a minute" "${PACKAGES[@]}"
PYTHON=$(readlink -f /usr/bin/python3) # Debian's: packages run on it

"$PYTHON" scripts/lock.py --check

# One build at a time; without a file to leave behind.
mkdir -p "$work"
exec 9<"$work"
flock 9

unset PYTHONHOME PYTHONPATH PIP_TARGET PIP_PREFIX PIP_ROOT PIP_CONSTRAINT PIP_REQUIREMENT
export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
install_locked() {
    "$environment/bin/python" -m pip --quiet install --no-deps --no-build-isolation --require-hashes --no-compile "$@" 9<&-
}
stamp="$PYTHON $(sha256sum deploy/requirements.lock | cut -d' ' -f1)"
if [[ $(cat "$environment/stamp" 2>/dev/null) != "$stamp" ]]; then
    say "installing $(grep -c -- --hash deploy/requirements.lock) Python distributions by their hashes (a minute)"
    rm -rf "$environment"
    "$PYTHON" -m venv "$environment"
    # What builds the source distributions among them comes first; wheel needs packaging.
    names='packaging|'$(sed -n 's/^\([A-Za-z0-9_.-]*\)==.*/\1/p' requirements-build.txt | paste -sd'|')
    grep -E "^($names)==" deploy/requirements.lock >"$work/first.lock"
    install_locked --requirement "$work/first.lock"
    install_locked --requirement deploy/requirements.lock
    check=$("$environment/bin/python" -m pip check 9<&-) || die "the lock file lacks what its distributions ask for: $check"
    echo "$stamp" >"$environment/stamp"
fi
# What builds the packages runs here, and what they contain is another architecture's.
site=
if [[ $arch != "$native" ]]; then
    site=$work/$arch
    if [[ $(cat "$site/stamp" 2>/dev/null) != "$stamp" ]]; then
        say "installing the same for $arch"
        rm -rf "$site"
        mapfile -t wheels < <(PYTHONPATH=scripts "$PYTHON" -c 'import lock; print(*lock.ARM64, sep="\n")')
        install_locked --target "$site" "${wheels[@]}" --requirement deploy/requirements.lock
        echo "$stamp" >"$site/stamp"
    fi
fi

export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
say "building $version"
rm -rf "$source"
mkdir -p "$source"
git ls-files --cached --others --exclude-standard -z | xargs -0 ls -d 2>/dev/null |
    tar --create --files-from=- --mtime="@$SOURCE_DATE_EPOCH" | tar --extract --directory "$source"
cp -a "$source/deploy/debian" "$source/debian"
# --version gives the program the version, too.
sed -i "s/^__version__ = .*/__version__ = \"$version\"/" "$source/sopa_ryu/__init__.py"
cat >"$source/debian/changelog" <<EOF
sopa ($version) unstable; urgency=medium

  * CHANGELOG.md, beside this file, lists what has changed.

 -- $(sed -n 's/^Maintainer: //p' deploy/debian/control)  $(date --utc --rfc-email --date="@$SOURCE_DATE_EPOCH")
EOF
find "$source" -newermt "@$SOURCE_DATE_EPOCH" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
log=$work/build.log
if ! (cd "$source" && umask 022 &&
    SOPA_PYTHON=$environment/bin/python SOPA_SITE=$site dpkg-buildpackage --host-arch="$arch" --build=binary --no-sign --no-check-builddeps) >"$log" 2>&1 9<&-; then
    tail -n 40 "$log" >&2
    die "the build failed: $log"
fi
mkdir -p "$out"
for name in sopa-controller sopa-agent sopa-tools; do
    mv "$work/${name}_${version}_$arch.deb" "$out/"
    say "$out/${name}_${version}_$arch.deb, $(dpkg-deb --field "$out/${name}_${version}_$arch.deb" Installed-Size) KB installed"
done
rm -rf "$source" "$work"/sopa_"$version"_*
