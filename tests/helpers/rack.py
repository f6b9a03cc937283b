"""Two hosts and a receiver on one bridge, with slow links: a network in which slots can be seen."""

import json
import uuid

from tests.helpers.veth import run

SENDERS = ("10.0.0.2", "10.0.1.2")
RECEIVER = "10.2.1.3"
MBIT = 4


class Rack:
    """Two hosts and a receiver, each in a namespace, on one bridge; every link has 4 Mbit/s."""

    def __init__(self) -> None:
        name = uuid.uuid4().hex[:6]
        self.switch = f"sopatest-s-{name}"
        self.ends = {address: f"sopatest-{n}-{name}" for n, address in enumerate((*SENDERS, RECEIVER))}

    def build(self) -> None:
        run(f"ip netns add {self.switch}")
        run(f"ip -n {self.switch} link add br0 type bridge")
        run(f"ip -n {self.switch} link set br0 up")
        # of the namespaces that are made from there: the iterators of the agent run through no more than these
        run(f"ip netns exec {self.switch} sysctl -qw net.ipv4.tcp_child_ehash_entries=64")
        for n, (address, name) in enumerate(self.ends.items()):
            run(f"nsenter --net=/run/netns/{self.switch} ip netns add {name}")
            run(f"ip link add eth0 netns {name} type veth peer name port{n} netns {self.switch}")
            run(f"ip netns exec {name} sysctl -qw net.ipv6.conf.all.disable_ipv6=1")
            run(f"ip -n {name} addr add {address}/8 dev eth0")
            run(f"ip -n {name} link set lo up")
            run(f"ip -n {self.switch} link set port{n} master br0")
            for where, interface in ((name, "eth0"), (self.switch, f"port{n}")):
                run(f"ip netns exec {where} ethtool -K {interface} tso off gro off")
                run(f"ip -n {where} link set {interface} up")
                run(f"ip netns exec {where} tc qdisc add dev {interface} root tbf rate {MBIT}mbit burst 3100 limit 150000")

    def remove(self) -> None:
        for name in (self.switch, *self.ends.values()):
            run(f"ip netns del {name}")

    def path(self, address: str) -> str:
        return f"/run/netns/{self.ends[address]}"

    def on(self, address: str, command: str) -> str:
        return run(f"ip netns exec {self.ends[address]} {command}")

    def queue(self) -> int:
        """The packets that wait for the link to the receiver."""
        shown = run(f"ip netns exec {self.switch} tc -s -j qdisc show dev port2")
        return max(int(qdisc.get("qlen", 0)) for qdisc in json.loads(shown))
