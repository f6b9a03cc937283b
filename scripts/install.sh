#!/usr/bin/env bash
# Installs what is missing and nothing else: Debian packages, .venv with the pinned requirements and this
# project, the eBPF objects, the arbiter's library, and links to the commands in /usr/local/bin. Safe to run at any time, twice at
# once, and after having been killed; when nothing is missing it takes a fraction of a second.
#
#   --quiet       say nothing when there is nothing to do
#   --keep-links  leave links in /usr/local/bin that belong to another checkout
set -euo pipefail

PYTHON=/usr/bin/python3 # Debian's: its dist-packages have Mininet
PACKAGES=(
    # switches, hosts and the tools that build and look at them
    openvswitch-switch mininet iproute2 net-tools procps ethtool iperf3 iputils-ping nftables tcpdump util-linux
    # fabric files for mn, which runs Debian's Python
    python3-yaml
    # the eBPF compiler and headers, and the library that loads what it made
    clang llvm libbpf-dev libbpf1 linux-libc-dev
    # the compiler of the arbiter's library
    g++
    # what only tests need: the browser on the live page, certificates, and systemd's own checks of the units
    chromium chromium-driver openssl systemd libseccomp2
    # .venv
    python3 python3-venv ca-certificates
)
# The lab and tests start nodes of their own, and tests need promtool only, so Debian's services are neither started nor enabled.
WITHOUT_SERVICE=(etcd-server etcd-client prometheus)
declare -A SERVICES=([etcd-server]=etcd [prometheus]=prometheus)
COMMANDS=(sopa ryu-manager)
LINKS=/usr/local/bin
POLICY=/usr/sbin/policy-rc.d
POLICY_MARK='# SOPA install: temporary'

quiet=no
keep_links=no
for argument; do
    case $argument in
    --quiet) quiet=yes ;;
    --keep-links) keep_links=yes ;;
    *)
        echo "install: unknown argument $argument (there are --quiet and --keep-links)" >&2
        exit 2
        ;;
    esac
done

cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
venv=$root/.venv

say() { echo "install: $*"; }
warn() { echo "install: $*" >&2; }
die() {
    warn "$@"
    exit 1
}

# Settings of the caller's that would send packages elsewhere.
unset PYTHONHOME PYTHONPATH PIP_TARGET PIP_PREFIX PIP_ROOT PIP_CONSTRAINT PIP_REQUIREMENT
export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

# One install at a time. The lock is on the directory itself, so there is no file to leave behind.
# Commands that may leave daemons running are started without it (9<&-).
exec 9<"$root"
if ! flock --nonblock 9; then
    say "waiting for another install in $root to end"
    flock 9
fi

# ---------------------------------------------------------------------------------------- Debian packages

command -v dpkg-query >/dev/null || die "this is not Debian (no dpkg-query); the project is made for Debian 12 and 13"

package_versions() {
    dpkg-query --show --showformat='${Package} ${db:Status-Abbrev} ${Version}\n' "${PACKAGES[@]}" "${WITHOUT_SERVICE[@]}" \
        2>/dev/null || true
}

find_missing() {
    local package
    versions=$(package_versions)
    missing=()
    for package; do
        present "$package" || missing+=("$package")
    done
}

present() { [[ $'\n'$versions == *$'\n'"$1 "[ih]i* ]]; }

start_no_services() {
    trap remove_policy EXIT
    trap 'exit 130' INT TERM HUP
    if [[ ! -e $POLICY ]]; then
        printf '#!/bin/sh\n%s\nexit 101\n' "$POLICY_MARK" >"$POLICY"
        chmod 755 "$POLICY"
    fi
}

start_services() {
    remove_policy
    trap - EXIT INT TERM HUP
}

remove_policy() {
    if grep -qsF "$POLICY_MARK" "$POLICY"; then rm -f "$POLICY"; fi
}

apt() {
    local log=$1
    shift
    DEBIAN_FRONTEND=noninteractive apt-get --quiet --option DPkg::Lock::Timeout=600 "$@" 9<&- </dev/null 2>&1 |
        tee --append "$log" | { grep --line-buffered -E '^(Need to get|Setting up) ' || true; } | sed -u 's/^/    /'
}

install_packages() {
    local log
    log=$(mktemp)
    say "installing Debian packages: $*"
    if ! apt "$log" update; then
        tail -n 20 "$log" >&2
        die "apt-get update failed (is there a network?); its whole output is in $log"
    fi
    if ! apt "$log" install --yes --no-install-recommends "$@"; then
        # Most often a system service that cannot start here, or an earlier dpkg that was interrupted. The lab
        # runs its own Open vSwitch, so finish without starting any service.
        warn "the packages' set-up did not end well; trying again without starting services"
        start_no_services
        DEBIAN_FRONTEND=noninteractive dpkg --configure -a >>"$log" 2>&1 9<&- </dev/null || true
        apt "$log" install --yes --no-install-recommends --fix-broken "$@" || true
        start_services
    fi
    check_installed "$log" "$@"
    rm -f "$log"
}

install_without_services() {
    local log package service
    log=$(mktemp)
    say "installing Debian packages without their services: $*"
    apt "$log" update || true # what is missing after all is said below
    start_no_services
    apt "$log" install --yes --no-install-recommends "$@" || true
    for package; do
        service=${SERVICES[$package]-}
        [[ $service ]] || continue
        systemctl disable "$service.service" >>"$log" 2>&1 9<&- || warn "$service may start with the machine: systemctl disable $service"
    done
    start_services
    check_installed "$log" "$@"
    rm -f "$log"
}

check_installed() {
    local log=$1
    shift
    find_missing "$@"
    if ((${#missing[@]})); then
        tail -n 40 "$log" >&2
        die "these Debian packages could not be installed: ${missing[*]}; the whole output is in $log"
    fi
}

((EUID)) || remove_policy # left by an install that was killed
find_missing "${PACKAGES[@]}" "${WITHOUT_SERVICE[@]}"
if ((${#missing[@]})); then
    if ((EUID)); then
        die "Debian packages are missing and only root can install them. Run \`sudo make install\`, or
    sudo apt-get install --no-install-recommends ${missing[*]}
and \`make install\` again."
    fi
    find_missing "${PACKAGES[@]}"
    ((${#missing[@]} == 0)) || install_packages "${missing[@]}"
    find_missing "${WITHOUT_SERVICE[@]}"
    ((${#missing[@]} == 0)) || install_without_services "${missing[@]}"
fi

# -------------------------------------------------------------------------------------------------- .venv

[[ -x $PYTHON ]] || die "$PYTHON is missing; it is Debian's package python3"
# Without starting Python, which would be most of the time a run with nothing to do takes.
python=$(readlink -f "$PYTHON")
series=${python##*/python}
if [[ ! $series =~ ^3\.([0-9]+)$ ]] || ((BASH_REMATCH[1] < 11)); then
    die "$PYTHON is Python $series; 3.11 or later is needed (Debian 12 and 13 have it)"
fi

hash_of() { sha256sum "$@" | sha256sum | cut -d' ' -f1; }
stamped() { [[ -f $venv/.sopa-$1 && $(<"$venv/.sopa-$1") == "$2" ]]; }
stamp() { printf '%s\n' "$2" >"$venv/.sopa-$1"; }

changed=no
# Where it is and what made it: a .venv that was copied, or outlived its Python, does not work.
base="$root $python"
wanted=$(hash_of requirements-build.txt requirements.txt requirements-dev.txt)
own=$(hash_of setup.py pyproject.toml requirements.txt sopa_ryu/__init__.py)

writable() {
    [[ ! -e $venv || -w $venv ]] || die "$venv belongs to another user and is not up to date: run \`make install\` as that user"
    [[ -e $venv || -w $root ]] || die "$root is not writable: run \`make install\` as its owner"
}

pip() { "$venv/bin/python" -m pip --quiet "$@" 9<&-; }

# While Debian's packages are visible pip takes them for its own, so they are shown only when it is done.
show_debian() { "$PYTHON" -m venv --without-pip --system-site-packages "$venv"; }
hide_debian() { "$PYTHON" -m venv --without-pip "$venv"; }

if ! stamped base "$base" || ! stamped requirements "$wanted" || [[ ! -x $venv/bin/python ]]; then
    changed=yes
    writable
    if ! stamped base "$base" || [[ ! -f $venv/.sopa-requirements || ! -x $venv/bin/python ]]; then
        if [[ -e $venv || -L $venv ]]; then
            say "removing a .venv that is half made or made elsewhere"
            rm -rf "$venv"
        fi
        say "making .venv with $python"
        "$PYTHON" -m venv "$venv"
        stamp base "$base"
    else
        rm -f "$venv/.sopa-requirements"
        hide_debian
    fi
    rm -f "$venv/.sopa-project"
    say "installing $(cat requirements*.txt | grep -c ==) Python packages into .venv (less than a minute)"
    pip install --requirement requirements-build.txt
    # The lists are complete, so nothing is left to resolve; pip check says if that is no longer true.
    pip install --no-deps --no-build-isolation --requirement requirements.txt --requirement requirements-dev.txt
    check=$("$venv/bin/python" -m pip check 9<&-) ||
        die "requirements.txt lacks what its distributions ask of Python $series; add it there, or report this:
$check"
    show_debian
    stamp requirements "$wanted"
fi

# After Ryu, whose ryu-manager this replaces.
if ! stamped project "$own" || ! grep -qs sopa_ryu.manager "$venv/bin/ryu-manager" || [[ ! -x $venv/bin/sopa ]]; then
    changed=yes
    writable
    say "installing this project into .venv"
    rm -f "$venv/.sopa-project"
    pip install --no-deps --no-build-isolation --editable .
    grep -q sopa_ryu.manager "$venv/bin/ryu-manager" || die ".venv/bin/ryu-manager is not this project's"
    stamp project "$own"
fi

# ------------------------------------------------------------------------------------------- eBPF objects

if [[ -f sopa_ryu/agent/kernel/build.py ]]; then
    compilers=$(grep -E '^(clang|libbpf-dev|linux-libc-dev) ' <<<"$versions" || true)
    mapfile -t sources < <(find sopa_ryu/agent -name '*.[ch]' | LC_ALL=C sort)
    built=$(hash_of sopa_ryu/agent/kernel/build.py "${sources[@]}" <(echo "$compilers"))
    objects=present
    [[ -n $(find sopa_ryu/agent -name '*.o' -print -quit) ]] || objects=absent
    if [[ $objects == absent ]] || ! stamped bpf "$built"; then
        changed=yes
        writable
        say "building the eBPF objects"
        rm -f "$venv/.sopa-bpf"
        "$venv/bin/python" -m sopa_ryu.agent.kernel.build 9<&-
        stamp bpf "$built"
    fi
fi

# -------------------------------------------------------------------------------------- the arbiter's library

if [[ -f sopa_ryu/arbiter/build.py ]]; then
    compilers=$(grep -E '^g\+\+ ' <<<"$versions" || true)
    built=$(hash_of sopa_ryu/arbiter/build.py sopa_ryu/arbiter/allocator/*.{cc,h} <(echo "$compilers"))
    if [[ ! -f sopa_ryu/arbiter/allocator/libsopa_arbiter.so ]] || ! stamped arbiter "$built"; then
        changed=yes
        writable
        say "building the arbiter's library"
        rm -f "$venv/.sopa-arbiter"
        "$venv/bin/python" -m sopa_ryu.arbiter.build 9<&-
        stamp arbiter "$built"
    fi
fi

# --------------------------------------------------------------------------------------------- /usr/local

for command in "${COMMANDS[@]}"; do
    link=$LINKS/$command
    target=$venv/bin/$command
    there=$(readlink "$link" || true)
    if [[ $there == "$target" ]]; then
        continue
    elif ((EUID)); then
        [[ $quiet == yes ]] || say "not root: no link $link; use $target"
    elif [[ -e $link && $there != */.venv/bin/"$command" ]]; then
        warn "$link is not this project's and stays as it is: use $target"
    elif [[ -e $link && $keep_links == yes ]]; then
        continue
    else
        [[ ! -e $link ]] || say "$link was $there"
        mkdir -p "$LINKS"
        ln -sfn "$target" "$link"
        say "$link -> $target"
    fi
done

if [[ $changed == yes ]]; then
    say "done"
elif [[ $quiet == no ]]; then
    say "everything is in place"
fi
