#!/bin/bash
# Installs what SOPA is compared with and Debian has: FRR. Its own service is neither started nor left enabled.
#
#   --quiet  say nothing when there is nothing to do
set -euo pipefail

POLICY=/usr/sbin/policy-rc.d
POLICY_MARK='# of scripts/install_peers.sh: no service is started meanwhile'

case ${1-} in
"" | --quiet) ;;
*)
    echo "usage: install_peers.sh [--quiet]" >&2
    exit 2
    ;;
esac

cd "$(dirname "${BASH_SOURCE[0]}")/.."
script=install-peers
. scripts/debian.sh

remove_policy() {
    if grep -qsF "$POLICY_MARK" "$POLICY"; then rm -f "$POLICY"; fi
}

if are_installed frr; then
    [[ ${1-} == --quiet ]] || say "everything is in place"
    exit 0
fi
((EUID == 0)) || die "FRR is missing and only root can install it: sudo make install-peers"
trap remove_policy EXIT
trap 'exit 130' INT TERM HUP
if [[ ! -e $POLICY ]]; then
    printf '#!/bin/sh\n%s\nexit 101\n' "$POLICY_MARK" >"$POLICY"
    chmod 755 "$POLICY"
fi
install_missing "5 MB, less than a minute" frr
[[ -x /usr/lib/frr/bgpd ]] || die "Debian's frr could not be installed: apt-get install frr says why"
# The package enables it even where systemd does not run now, as in an image: it would start with the next boot.
if command -v systemctl >/dev/null; then
    systemctl disable --quiet frr.service 2>/dev/null
else
    update-rc.d frr disable
fi
echo "install-peers: done; FRR's own service is off"
