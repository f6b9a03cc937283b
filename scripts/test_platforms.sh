#!/usr/bin/env bash
# This checkout's last commit on Debian 13, from nothing, in a root that debootstrap makes: README's commands, tests and packages.
#
#   scripts/test_platforms.sh [PYTEST_ARGUMENT...]    make test without arguments
#
# Says what ran, how it ended and how long it took. The packages are then in build/platforms/dist. What debootstrap made and apt and pip
# downloaded stays in build/platforms (make clean removes it). The root is an overlay on it in namespaces of its own, so that nothing
# stays mounted or runs, however this ends. The kernel is this machine's.
set -euo pipefail

PACKAGES=(debootstrap git iproute2 ca-certificates)
SUITE=trixie

cd "$(dirname "${BASH_SOURCE[0]}")/.."
script=test-platforms
. scripts/debian.sh
work=$PWD/build/platforms
base=$work/$SUITE

# ------------------------------------------------------------------------------- in namespaces of its own

# Inside the root, in /sopa. Not by chroot, in which the kernel makes no user namespaces.
inside() {
    local variables
    mapfile -t variables < <(env | grep -i '_proxy=' || true)
    # shellcheck disable=SC2016 # the shell inside expands them
    env -i "${variables[@]}" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive PIP_CERT=/etc/machine.crt unshare --mount --propagation private \
        sh -c 'cd "$0" && pivot_root . mnt && umount --lazy /mnt && cd /sopa && exec "$@"' "$root" "$@" </dev/null
}

# The same without a network: what labs do stays here. Nothing is left below the new /sys: iproute2 would take its bpffs for one on top.
offline() {
    ip link set lo up
    umount --recursive --lazy "$root/sys"
    mount -t sysfs sysfs "$root/sys"
    mount -t bpf bpf "$root/sys/fs/bpf"
    mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
    inside "$@"
}

# step [offline] COMMAND...
step() {
    local status=0 begin=$SECONDS
    if [[ $1 == offline ]]; then
        shift
        say "$*"
        unshare --net --mount --propagation private "$0" --offline "$root" "$@" || status=$?
    else
        say "$*"
        inside "$@" || status=$?
    fi
    report+=("$(printf '%4d s, ended with %d: %s' $((SECONDS - begin)) "$status" "$*")")
    ((status == 0)) || failed=1
    return "$status"
}

in_root() {
    trap 'exit 130' INT TERM HUP # the first process of its namespace, with which all others end
    mount -t overlay overlay -o "lowerdir=$base,upperdir=$1/upper,workdir=$1/work" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs tmpfs "$root/dev/shm"
    mount -t tmpfs tmpfs "$root/run"
    mkdir "$root/run/lock"
    mount --bind "$work/archives" "$root/var/cache/apt/archives"
    mkdir -p "$root/root/.cache/pip"
    mount --bind "$work/pip" "$root/root/.cache/pip"
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    cp /etc/ssl/certs/ca-certificates.crt "$root/etc/machine.crt" # a proxy's authority may be among this machine's
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" # there is no init
    chmod 755 "$root/usr/sbin/policy-rc.d"
    shift

    report=()
    failed=0
    if step sh -c 'apt-get --quiet=2 update && apt-get --quiet=2 install --no-install-recommends git make >/dev/null' && step make install; then
        step make install-peers && step make install-ns3 || true
        step offline make demo ARGS='--duration 3' || true
        step offline scripts/test.sh "$@" || true
        step make deb && cp "$root"/sopa/dist/*.deb "$work/dist/" || true
    fi
    say "Debian $(cat "$root/etc/debian_version"), $(inside python3 --version), kernel $(uname -r)"
    printf '  %s\n' "${report[@]}"
    exit "$failed"
}

case ${1-} in
--in-root)
    root=$2/root
    in_root "${@:2}"
    ;;
--offline)
    root=$2
    offline "${@:3}"
    exit
    ;;
esac

# ------------------------------------------------------------------------------------------- on this machine

((EUID == 0)) || die "only root can make roots: sudo make test-platforms"
install_missing "less than a minute" "${PACKAGES[@]}"

mkdir -p "$work"/{archives/partial,pip,dist}
make_debian "$base" "$SUITE"

running=
# shellcheck disable=SC2329 # the trap calls it
finish() {
    trap '' INT TERM HUP
    # with it ends the first process of its namespace, and so all others
    [[ -z $running ]] || kill -KILL "$running" 2>/dev/null || true
    wait
    rm -rf --one-file-system "$run" 2>/dev/null || { sleep 1 && rm -rf --one-file-system "$run"; } # they may still be ending
}
run=$work/run-$$
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
for left in "$work"/run-*; do # of one that was killed
    [[ ! -d $left ]] || kill -0 "${left##*-}" 2>/dev/null || rm -rf --one-file-system "$left"
done
mkdir -p "$run"/{root,upper,work}
git clone --quiet . "$run/upper/sopa"
setsid unshare --mount --pid --fork --kill-child --propagation private "$PWD/scripts/test_platforms.sh" --in-root "$run" "$@" &
running=$!
wait "$running"
