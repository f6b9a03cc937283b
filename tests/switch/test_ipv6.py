"""IPv6 through the rules that the controller installed in real Open vSwitch."""

from collections.abc import Iterator

import pytest

from tests.helpers.commands import ask
from tests.helpers.fabrics import Fabric, running
from topologies import FatTree, Host
from topologies.identity import PREFIX6

pytestmark = pytest.mark.switch

SRC = Host(0, 0, 2)


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    with running(FatTree(4, str(PREFIX6)), tmp_path_factory.mktemp("fabric")) as its:
        yield its


def test_the_edge_switch_answers_solicitations_for_the_gateway_by_itself(fabric: Fabric) -> None:
    tree, gateway = fabric.tree, fabric.tree.families[1].gateway(SRC)
    for source, target, answered in ((tree.ip6(SRC), gateway, True), ("::", gateway, False), (tree.ip6(SRC), gateway + 2, False)):
        asked = f"icmp6,icmpv6_type=135,icmpv6_code=0,nw_ttl=255,ipv6_src={source},ipv6_dst=ff02::1:ff00:1,nd_target={target}"
        traced = fabric.trace(tree.edge_of(SRC), f"in_port=1,{asked},dl_src={tree.mac(SRC)},dl_dst=33:33:ff:00:00:01")
        assert traced.ports == [1] * answered
        whole = (
            f"ipv6(src={gateway},dst={source})",
            "nd_reserved=0xe0000000,nd_options_type=2",
            "nd(tll=02:00:00:00:00:01)",
            "type=136",
        )
        assert [said in traced.actions for said in whole] == [answered] * len(whole)


def test_what_is_installed_is_as_planned_and_hosts_have_both_addresses(fabric: Fabric) -> None:
    for name in ("e0_0", "a0_0", "c0_0"):
        rules = fabric.controller.get(f"/switches/{name}/rules").json()
        assert [entry for entry in rules["entries"] if entry["state"] not in ("installed", "learned")] == []
    hosts = fabric.controller.get("/hosts").json()["hosts"]
    assert hosts[-1]["address6"] == "fd53:4f50:4100:301::3"
    shown = [ask(fabric.controller, what).stdout for what in ("hosts", "status")]
    assert [text in said for text, said in zip((hosts[-1]["address6"], f"IPv6 {PREFIX6}"), shown, strict=True)] == [True, True]
