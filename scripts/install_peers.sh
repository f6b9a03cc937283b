#!/bin/bash
# Installs what SOPA is compared with and Debian has: FRR. Its own service is neither started nor left enabled.
#
#   --quiet  say nothing when there is nothing to do
set -euo pipefail

POLICY=/usr/sbin/policy-rc.d
POLICY_MARK='# of scripts/install_peers.sh: no service is started meanwhile'

die() {
    printf 'install-peers: %s\n' "$*" >&2
    exit 1
}

case ${1-} in
"" | --quiet) ;;
*)
    echo "usage: install_peers.sh [--quiet]" >&2
    exit 2
    ;;
esac

remove_policy() {
    if grep -qsF "$POLICY_MARK" "$POLICY"; then rm -f "$POLICY"; fi
}

if dpkg-query --show --showformat='${db:Status-Abbrev}' frr 2>/dev/null | grep -q '^[ih]i'; then
    [[ ${1-} == --quiet ]] || echo "install-peers: everything is in place"
    exit 0
fi
((EUID == 0)) || die "FRR is missing and only root can install it: sudo make install-peers"
trap remove_policy EXIT
trap 'exit 130' INT TERM HUP
if [[ ! -e $POLICY ]]; then
    printf '#!/bin/sh\n%s\nexit 101\n' "$POLICY_MARK" >"$POLICY"
    chmod 755 "$POLICY"
fi
echo "install-peers: installing Debian's frr (5 MB, less than a minute)"
DEBIAN_FRONTEND=noninteractive apt-get --quiet update >/dev/null || die "apt-get update failed (is there a network?)"
DEBIAN_FRONTEND=noninteractive apt-get --quiet --option DPkg::Lock::Timeout=600 \
    install --yes --no-install-recommends frr </dev/null | grep -E '^(Need to get|Setting up) ' || true
[[ -x /usr/lib/frr/bgpd ]] || die "Debian's frr could not be installed: apt-get install frr says why"
# The package enables it even where systemd does not run now, as in an image: it would start with the next boot.
if command -v systemctl >/dev/null; then
    systemctl disable --quiet frr.service 2>/dev/null
else
    update-rc.d frr disable
fi
echo "install-peers: done; FRR's own service is off"
