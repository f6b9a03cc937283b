"""Linux routers that have run what `sopa fabric srv6` prints, and nothing else."""

import re
from ipaddress import IPv4Address, IPv6Address

from tests.helpers.srv6_lab import ICMP6, SECRET, Srv6Lab
from tests.helpers.srv6_routers import Routers
from topologies import Clos, FatTree, Host
from topologies.identity import PREFIX6
from topologies.lab.isolation import isolated, require
from topologies.srv6 import source_prefix, usid_list

CLOSED = "h0_0_3"
WAYS_OUT = "h3_1_2", "h3_1_3"
TREE = Clos(**{**FatTree(4).document(), "no_label": [CLOSED], "gateways": WAYS_OUT, "prefix6": str(PREFIX6)})
"""k=4, both families, a host that may not choose paths, and two that lead out."""
OUTSIDE = {4: IPv4Address("198.51.100.7"), 6: IPv6Address("2001:db8::7")}
STRANGE = IPv6Address("fcbb:bb00:4000:8003:1080::")
"""Over a core switch that a0_0 has no cable to."""


def test_packets_follow_the_plan() -> None:
    require("ip", "nft", "sysctl")
    assert isolated(_follow) == 0


def _follow() -> int:
    src, closed, model = TREE.host("h0_0_2"), TREE.host(CLOSED), Routers(TREE)
    here = TREE.edge_of(src)
    asked: list[tuple[Host, IPv6Address, Host]] = []
    for dst in map(TREE.host, ("h2_1_3", "h0_1_2", CLOSED)):
        asked += [(src, usid_list(TREE, here, TREE.edge_of(dst), path.up), dst) for path in TREE.candidate_paths(src, dst)]
    asked += [(src, usid_list(TREE, here, here, up), src) for up in ((), (0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1))]
    nowhere = [(src, STRANGE, TREE.host("h2_0_2")), (closed, asked[0][1], asked[0][2])]
    with Srv6Lab(TREE) as lab:
        for number, (sender, to, dst) in enumerate((*asked, *nowhere)):
            for family in TREE.families:
                payload = b"%d %d SOPA" % (number, family.number)
                lab.send(sender, to, family.address(dst), payload)
                seen, received = lab.take(payload)
                way = model.follow(sender, to, family.address(dst))
                assert tuple(seen) == way.seen, (sender, to, family.number)
                assert received == ([] if number >= len(asked) else [(dst, family.number)]), way
        to = usid_list(TREE, here, TREE.switch("e3_1"), (1, 1))
        for version, outside in OUTSIDE.items():
            lab.send(src, to, outside, b"%d outside" % version)
            ((leads_out, its),) = lab.take(b"%d outside" % version)[1]
            assert (TREE.name(leads_out) in WAYS_OUT, its) == (True, version)
        own, router, left = source_prefix(TREE, src)[SECRET], IPv6Address("fcbb:bb00:4000::1"), IPv6Address("fcbb:bb00:8003:1080::")
        assert lab.errors == [(src, router, own, left)] * 2
        lab.send(src, source_prefix(TREE, closed)[SECRET], TREE.ip(closed), b"forged", ICMP6)
        assert lab.take(b"forged") == ([], [])
        assert len(lab.errors) == 2
        assert "counter packets 2 " in lab.run(here, "nft", "list", "table", "inet", "sopa_srv6")
        assert re.search(r"Ip6InNoRoutes\s+2\n", lab.run(TREE.switch("a0_0"), "cat", "/proc/net/snmp6"))
    return 0
