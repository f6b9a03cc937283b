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
more_than_none() { # METRIC [LABEL]: of the agent's metrics
    python3 -c 'import sys, urllib.request
lines = urllib.request.urlopen("http://127.0.0.1:9158/metrics").read().decode().splitlines()
found = [float(line.split()[-1]) for line in lines if line.startswith(sys.argv[1]) and all(part in line for part in sys.argv[2:])]
sys.exit(sum(found) <= 0)' "$@" 2>/dev/null
}
scatters() { tc filter show dev host0 egress | grep -q sopa_mcs; }
granting() { grep -q '^arbiter .*connected from' <<<"$(sopa status 2>&1)"; }
priorities() { ps --no-headers -L --format rtprio --pid "$(pid sopa-agent@host0)" | tr --delete ' -' | sort --numeric-sort --unique | xargs; }
of_cluster() { sopa cluster --json 2>/dev/null | python3 -c "import json, sys; print($1)" 2>/dev/null; } # EXPRESSION of json.load(sys.stdin)
leads() { [[ $(of_cluster 'json.load(sys.stdin)["leader"]') == c1 ]]; }
has_relay() { [[ $(of_cluster 'len(json.load(sys.stdin)["relays"])') == 1 ]]; }
at_relay() { grep -q '^1 of 16 hosts have an agent, 1 of them at relays .* 0 behind' <<<"$(sopa agents 2>&1)"; }
judges() { grep -q '"running": true' <<<"$(sopa health --json 2>&1)"; }
agent_options() { # OPTION...: of the agents, which start again
    sed -i "s,^SOPA_AGENT_OPTIONS=.*,SOPA_AGENT_OPTIONS=$*," /etc/sopa/agent.env
    systemctl restart sopa-agent@host0 || exit 1
}
complaints() { journalctl --no-pager --output=cat --unit "$1" --grep='not permitted|Permission denied|Traceback|No module|no real-time|cannot be begun'; }
kill_unit() { # UNIT: systemd starts it again
    local before
    before=$(pid "$1")
    systemctl kill --signal=KILL "$1"
    eventually restarted "$1" "$before"
}
restarted() { [[ $(pid "$1") != "$2" && $(pid "$1") != 0 ]]; }

step "two interfaces"
modprobe -a veth macvlan sch_ingress cls_bpf || exit 1
ip link add host0 type veth peer name peer0 || exit 1
ip link add edge0 type veth peer name edge1 || exit 1
ip address add 10.0.0.2/8 dev host0
ip netns add far
ip link set peer0 netns far
for name in host0 edge0 edge1; do ip link set "$name" up; done
for command in "link set lo up" "link set peer0 up" "address add 10.1.0.2/8 dev peer0"; do
    # shellcheck disable=SC2086 # words of a command
    ip -netns far $command || exit 1
done
same 3 threshold

step "nothing is enabled or runs after the installation"
same "" systemctl list-units --all --plain --no-legend 'sopa-*'
[[ ! -e /etc/systemd/system/multi-user.target.wants/sopa-controller.service ]] || exit 1

step "systemd accepts the units"
systemd-analyze verify sopa-controller.service sopa-arbiter.service sopa-relay.service sopa-agent@host0.service sopa-parser@edge0.service sopa-spreader.service || exit 1

step "the controller starts as user sopa, with certificates of sopa pki"
sopa pki /root/pki --k 4 --controller c1=127.0.0.1 --relay r1=127.0.0.1 || exit 1
for of in controllers/c1 relays/r1; do cp /root/pki/$of/* /etc/sopa/tls/ || exit 1; done
export SOPA_CONTROLLER=https://127.0.0.1:8080 SOPA_CA_FILE=/etc/sopa/tls/ca.pem
systemctl enable --now sopa-controller || exit 1
eventually answers
same sopa ps --no-headers --format user --pid "$(pid sopa-controller)"
same 700 stat --format=%a /var/lib/sopa

step "an agent starts, and its controller knows it"
sed -i 's,^SOPA_CONTROLLER=.*,SOPA_CONTROLLER=https://127.0.0.1:8080,' /etc/sopa/agent.env
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
kill_unit sopa-controller
eventually known

step "the arbiter starts as user sopa, with the fabric's secret"
# without a switch that has ever been connected, no version of the fabric is made, and nothing granted
sed -i 's,^#no_switches = .*,no_switches = True,' /etc/sopa/sopa.conf
systemctl restart sopa-controller || exit 1
eventually known
sed -i -e 's,^SOPA_CONTROLLER=.*,SOPA_CONTROLLER=https://127.0.0.1:8080,' -e 's,^SOPA_ARBITER_LISTEN=.*,SOPA_ARBITER_LISTEN=127.0.0.1:9160,' \
    -e 's,^SOPA_ARBITER_OPTIONS=.*,SOPA_ARBITER_OPTIONS=--slot 50 --rate 100 --lease 20000,' /etc/sopa/arbiter.env
systemctl enable --now sopa-arbiter || exit 1
same sopa ps --no-headers --format user --pid "$(pid sopa-arbiter)"
eventually granting

step "an agent of policy cfr begins slots, with a real-time priority"
sed -i 's,^#SOPA_AGENT_METRICS_PORT=,SOPA_AGENT_METRICS_PORT=,' /etc/sopa/agent.env
agent_options --policy cfr --arbiter 127.0.0.1:9160
ip netns exec far python3 -c 'import socket
its = socket.create_server(("", 9000)).accept()[0]
while its.recv(1 << 16): pass' &
eventually more_than_none sopa_agent_cfr_gate_closed
timeout 900 python3 -c 'import socket, time
for _ in range(600):
    try: its = socket.create_connection(("10.1.0.2", 9000)); break
    except OSError: time.sleep(1)
while True: its.sendall(bytes(1 << 16))' &
sends=$!
eventually more_than_none sopa_agent_cfr_slots_total 'outcome="used"'
kill "$sends"
same "10 50" priorities
complaints sopa-agent@host0 && exit 1

step "a killed arbiter is started again"
kill_unit sopa-arbiter
eventually granting
complaints sopa-arbiter && exit 1

step "an agent of policy mcs"
agent_options --policy mcs
eventually scatters
eventually known
complaints sopa-agent@host0 && exit 1
agent_options
eventually attached
systemctl disable --now sopa-arbiter || exit 1

step "a controller of a cluster, on Debian's etcd, with one of its switches"
modprobe openvswitch || exit 1
systemctl start etcd openvswitch-switch || exit 1
sed -i -e 's,^no_switches = .*,,' -e 's,^#cluster = .*,cluster = etcd://127.0.0.1:2379/sopa,' -e 's,^#cluster_member = .*,cluster_member = c1,' \
    -e 's,^#cluster_lease = .*,cluster_lease = 20,' /etc/sopa/sopa.conf
systemctl restart sopa-controller || exit 1
eventually leads
ovs-vsctl add-br br0 -- set bridge br0 protocols=OpenFlow13 fail_mode=secure other-config:datapath-id=0000000000010000 || exit 1
for port in 1 2 3 4; do
    ovs-vsctl add-port br0 "port$port" -- set interface "port$port" type=internal ofport_request="$port" || exit 1
    ip link set "port$port" up
done
ovs-vsctl set-ssl /root/pki/switches/e0_0/switch.key /root/pki/switches/e0_0/switch.pem /root/pki/switches/e0_0/controllers.pem
ovs-vsctl set-controller br0 ssl:127.0.0.1:6653

step "a relay, as user sopa, lets an agent know of the fabric"
sed -i -e 's,^SOPA_CLUSTER=.*,SOPA_CLUSTER=etcd://127.0.0.1:2379/sopa,' -e 's,^SOPA_RELAY_LISTEN=.*,SOPA_RELAY_LISTEN=127.0.0.1:8081,' -e '/^SOPA_CLUSTER_/d' /etc/sopa/relay.env
systemctl enable --now sopa-relay || exit 1
same sopa ps --no-headers --format user --pid "$(pid sopa-relay)"
eventually has_relay
sed -i 's,^SOPA_CONTROLLER=.*,SOPA_CONTROLLER=https://127.0.0.1:8081,' /etc/sopa/agent.env
export SOPA_CONTROLLER=https://127.0.0.1:8081
systemctl restart sopa-agent@host0 || exit 1
eventually at_relay
eventually judges # with a process of its own
sopa cluster
sopa agents
echo "resident: $(ps --no-headers --format rss --pid "$(pid sopa-relay)") KB"

step "a killed relay is started again, and its agent returns"
kill_unit sopa-relay
eventually at_relay
complaints sopa-relay && exit 1
complaints sopa-controller && exit 1
journalctl --no-pager --output=cat --unit sopa-relay | grep "HTTP Request" && exit 1

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
agent=$(pid sopa-agent@host0) controller=$(pid sopa-controller) relay=$(pid sopa-relay)
rm -f /usr/sbin/policy-rc.d
dpkg --install /root/*+1_amd64.deb || exit 1
eventually restarted sopa-agent@host0 "$agent"
eventually restarted sopa-controller "$controller"
eventually restarted sopa-relay "$relay"
eventually at_relay
sopa --version | grep -q '+1$' || exit 1
same enabled systemctl is-enabled sopa-agent@host0
same enabled systemctl is-enabled sopa-controller
same enabled systemctl is-enabled sopa-relay

step "a purge stops, puts back and leaves nothing"
dpkg --purge sopa-agent sopa-controller || exit 1
rm -r /etc/sopa # the keys, which are no package's
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
