# shellcheck shell=bash
# Debian packages for the other scripts, which source this file after they have set `script`, the name in their messages.

die() {
    printf '%s: %s\n' "${script:?}" "$*" >&2
    exit 1
}

say() {
    printf '%s: %s\n' "${script:?}" "$*"
}

# are_installed PACKAGE...: sets `missing` to those that are not.
are_installed() {
    local package
    missing=()
    for package in "$@"; do
        dpkg-query --show --showformat='${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^[ih]i' || missing+=("$package")
    done
    ((${#missing[@]} == 0))
}

# install_missing HOW_LONG PACKAGE...: installs those that are not there; only root can.
install_missing() {
    local how_long=$1
    shift
    if are_installed "$@"; then return; fi
    ((EUID == 0)) || die "Debian packages are missing, and only root can install them: \
sudo apt-get install --no-install-recommends ${missing[*]}"
    say "installing ${missing[*]} ($how_long)"
    DEBIAN_FRONTEND=noninteractive apt-get --quiet update >/dev/null || die "apt-get update failed (is there a network?)"
    DEBIAN_FRONTEND=noninteractive apt-get --quiet --option DPkg::Lock::Timeout=600 \
        install --yes --no-install-recommends "${missing[@]}" </dev/null | grep -E '^(Need to get|Setting up) ' || true
    are_installed "$@" || die "could not be installed: ${missing[*]}; apt-get install ${missing[*]} says why"
}

# make_debian DIRECTORY [SUITE]: a root there by debootstrap, if it is missing; by default of this machine's release. One that is there
# is whole: it gets its name when it is.
make_debian() {
    local root=$1 suite=${2-$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)}
    if [[ -d $root ]]; then return; fi
    rm -rf "$root.part"
    mkdir -p "$(dirname "$root")"
    say "making a Debian in $root (some minutes, once)"
    debootstrap --variant=minbase "$suite" "$root.part" http://deb.debian.org/debian >"$root.log" ||
        die "debootstrap failed (is there a network?): $root.log says why"
    mv "$root.part" "$root"
}
