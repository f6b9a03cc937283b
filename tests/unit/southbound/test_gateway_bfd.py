"""BFD at the ports to gateways: where it is enabled, how, and whose silence counts."""

import pytest

from sopa_ryu.fabric.state import FabricState
from sopa_ryu.southbound import bfd
from tests.models.memory_ovsdb import MemoryOvsdb
from topologies import Clos, Host, Reason, Switch
from topologies import ovsdb as ovsdb_client

TREE = Clos(pods=1, edges=3, aggregations=2, cores=0, hosts=2, gateways=["h0_1_2", "h0_2_3"])
ONE, OTHER = TREE.gateways
ADDRESSES = {TREE.name(switch): {switch} for switch in TREE.switches()}


def end_of(host: Host) -> tuple[Switch, int]:
    edge = TREE.edge_of(host)
    return edge, TREE.port(edge, host)


@pytest.fixture
def ovsdb(monkeypatch: pytest.MonkeyPatch) -> MemoryOvsdb:
    its = MemoryOvsdb(TREE, TREE.name)
    monkeypatch.setattr(ovsdb_client, "transact", its.transact)
    return its


def test_it_is_enabled_at_the_ports_to_gateways_only_with_the_addresses_of_rack_and_host(ovsdb: MemoryOvsdb) -> None:
    found = bfd.enable_gateways(ADDRESSES, TREE, 100)
    assert (found.enabled, found.on, found.answers, found.problems) == (2, 2, {}, {})
    assert {end for end, settings in ovsdb.bfd.items() if settings} == {end_of(ONE), end_of(OTHER)}
    intervals = {"enable": "true", "min_tx": "100", "min_rx": "100"}
    addresses = {"bfd_src_ip": "10.0.1.1", "bfd_dst_ip": "10.0.1.2", "bfd_local_dst_mac": TREE.mac(ONE)}
    assert intervals.items() | addresses.items() <= ovsdb.bfd[end_of(ONE)].items()
    again = bfd.enable_gateways(ADDRESSES, TREE, 100)
    assert (again.enabled, again.on) == (0, 2)


def test_what_an_operator_has_set_stays(ovsdb: MemoryOvsdb) -> None:
    own = {"enable": "true", "min_tx": "1000", "bfd_dst_ip": "10.0.1.9"}
    ovsdb.bfd[end_of(ONE)] = dict(own)
    assert bfd.enable_gateways(ADDRESSES, TREE, 100).enabled == 1
    assert ovsdb.bfd[end_of(ONE)] == own


def test_a_database_that_fails_does_not_affect_others(ovsdb: MemoryOvsdb) -> None:
    ovsdb.refusing.add("e0_1")
    found = bfd.enable_gateways(ADDRESSES, TREE, 100)
    assert found.on == 1
    assert list(found.problems) == ["e0_1"]


def test_a_gateway_answers_while_its_session_is_up_and_has_shut_down_what_it_says_so_of(ovsdb: MemoryOvsdb) -> None:
    ovsdb.status[end_of(ONE)] = {"state": "up", "remote_state": "up"}
    ovsdb.status[end_of(OTHER)] = {"state": "down", "remote_state": "down"}
    assert bfd.enable_gateways(ADDRESSES, TREE, 100).answers == {ONE: True}
    ovsdb.status[end_of(ONE)] = {"state": "down", "remote_state": "admin_down"}
    assert bfd.enable_gateways(ADDRESSES, TREE, 100).answers == {ONE: False}


def test_silence_counts_only_of_a_host_that_has_answered() -> None:
    state = FabricState(TREE, epoch=1)
    for switch in TREE.switches():
        state.switch_heard(switch, {}, 0)
        state.switch_ready(switch, 0)
    state.settle(0)
    for host in (ONE, OTHER):
        state.port_changed(*end_of(host), Reason.SILENT, 1)
    assert not state.failures
    state.port_changed(*end_of(ONE), None, 2)
    state.gateway_answers(ONE, True, 3)
    state.gateway_answers(OTHER, False, 3)
    assert not state.failures
    for host in (ONE, OTHER):
        state.port_changed(*end_of(host), Reason.SILENT, 4)
    assert dict(state.failures) == {"h0_1_2-e0_1": "silent"}
    state.gateway_answers(ONE, False, 5)
    state.tick(1000)
    assert not state.failures
    state.port_changed(*end_of(OTHER), Reason.DOWN, 1001)  # without a cable it is away, whether it speaks BFD or not
    assert dict(state.failures) == {"h0_2_3-e0_2": "down"}
