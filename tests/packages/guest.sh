#!/bin/bash
# The job of the guest of tests/packages/test_systemd.py: the units of the installed packages under systemd, step by step.
set -uo pipefail
exec </dev/null >/dev/ttyS0 2>&1

trap 'echo "=== failed: $step"; journalctl --no-pager --lines=60 --unit "sopa-*"; echo o >/proc/sysrq-trigger; sleep 60' EXIT
step=start

step() {
    step=$*
    echo "=== $step"
}

eventually() { # COMMAND...: until it succeeds, for ten minutes
    local end=$((SECONDS + 600))
    until "$@"; do
        ((SECONDS < end)) || {
            echo "not in time: $*"
            exit 1
        }
        sleep 0.5
    done
}

be() { # VALUE COMMAND...: the command prints the value
    local value=$1 found
    shift
    found=$("$@")
    [[ $found == "$value" ]] || {
        echo "$* prints '$found' instead of '$value'"
        return 1
    }
}

same() { be "$@" || exit 1; }

threshold() { sysctl -n net.ipv4.tcp_reordering; }
filters() { tc filter show dev host0 egress | grep -c sopa_egress; }
pid() { systemctl show --property=MainPID --value "$1"; }
answers() { sopa status >/dev/null 2>&1; (($? == 3)); } # no switch is connected
attached() { (($(filters) > 0)) && [[ $(threshold) == 10 ]]; }
known() { grep -q '"total": 1' <<<"$(sopa agents --json)"; } # its status says that switches are missing
restarted() { [[ $(pid "$1") != "$2" && $(pid "$1") != 0 ]]; }

step "two interfaces"
modprobe -a veth macvlan sch_ingress cls_bpf || exit 1
ip link add host0 type veth peer name peer0 || exit 1
ip link add edge0 type veth peer name edge1 || exit 1
ip address add 10.0.0.2/8 dev host0
for name in host0 peer0 edge0 edge1; do ip link set "$name" up; done
same 3 threshold

step "nothing is enabled or runs after the installation"
same "" systemctl list-units --all --plain --no-legend 'sopa-*'
[[ ! -e /etc/systemd/system/multi-user.target.wants/sopa-controller.service ]] || exit 1

step "systemd accepts the units"
systemd-analyze verify sopa-controller.service sopa-arbiter.service sopa-relay.service sopa-agent@host0.service sopa-parser@edge0.service || exit 1

step "the controller starts as user sopa"
systemctl enable --now sopa-controller || exit 1
eventually answers
same sopa ps --no-headers --format user --pid "$(pid sopa-controller)"
same 700 stat --format=%a /var/lib/sopa

step "an agent starts, and its controller knows it"
sed -i 's,^SOPA_CONTROLLER=.*,SOPA_CONTROLLER=http://127.0.0.1:8080,' /etc/sopa/agent.env
(umask 077 && sopa token h0_0_2 >/etc/sopa/agent-token) || exit 1
systemctl enable --now sopa-agent@host0 || exit 1
eventually attached
eventually known
echo "resident: $(ps --no-headers --format rss --pid "$(pid sopa-agent@host0)") KB"

step "a killed agent is started again, and takes over"
before=$(pid sopa-agent@host0)
systemctl kill --signal=KILL sopa-agent@host0
attached || exit 1
eventually restarted sopa-agent@host0 "$before"
eventually known
same 1 filters

step "a killed controller is started again"
before=$(pid sopa-controller)
systemctl kill --signal=KILL sopa-controller
eventually restarted sopa-controller "$before"
eventually known

step "a parser"
systemctl enable --now sopa-parser@edge0 || exit 1
ip link show edge0 | grep -q xdp || exit 1
systemctl stop sopa-parser@edge0
! ip link show edge0 | grep -q xdp || exit 1
systemctl start sopa-parser@edge0 || exit 1

step "a stop puts back"
systemctl stop sopa-agent@host0 || exit 1
same inactive systemctl is-active sopa-agent@host0
same success systemctl show --property=Result --value sopa-agent@host0
same 3 threshold
same 0 filters
! ip -o link show | grep -q ': sopa' || exit 1
systemctl start sopa-agent@host0
eventually attached

step "an upgrade restarts what runs"
agent=$(pid sopa-agent@host0) controller=$(pid sopa-controller)
rm -f /usr/sbin/policy-rc.d
dpkg --install /root/*+1_amd64.deb || exit 1
eventually restarted sopa-agent@host0 "$agent"
eventually restarted sopa-controller "$controller"
eventually known
sopa --version | grep -q '+1$' || exit 1
same enabled systemctl is-enabled sopa-agent@host0
same enabled systemctl is-enabled sopa-controller

step "a purge stops, puts back and leaves nothing"
dpkg --purge sopa-agent sopa-controller || exit 1
same 3 threshold
same 0 filters
! ip link show edge0 | grep -q xdp || exit 1
same "" systemctl list-units --plain --no-legend --state=active 'sopa-*'
same "" find / -xdev -path /root -prune -o -path /var/log -prune -o -name '*sopa*' -print
same "" grep sopa /etc/passwd /etc/group

trap - EXIT
echo "=== all done"
echo o >/proc/sysrq-trigger
sleep 60
