"""How many traces a controller has, and keeps; what else it does with them, scripts of REST show (tests/unit/rest/scripts/rest)."""

import pytest

from sopa_ryu.channel.agent_session import AgentSession
from sopa_ryu.channel.trace_desk import MAX_KEPT, MAX_RUNNING, Asked, BusyError, Trace, TraceDesk
from topologies import FatTree, Host

TREE = FatTree(6)
*HOSTS, LAST = TREE.hosts()


def begin(desk: TraceDesk, host: Host) -> Trace:
    session = AgentSession(host, "", "10.0.0.2", None, None, 0.0, 0.0)
    session.probes = True
    return desk.begin(session, (host, LAST), TREE.ip(LAST), Asked(((0, 0), (1, 0)), 3, 10.0), 1, 0.0)


def test_all_hosts_together_have_so_many_traces_and_old_ones_make_room_for_new_ones() -> None:
    desk = TraceDesk()
    running = begin(desk, HOSTS[0])
    for _ in range(100):
        desk.cancel(begin(desk, HOSTS[1]), 0.0)
    assert len(desk._by_number) == 1 + MAX_KEPT
    assert desk.find(running.number, 0.0) is running
    for host in HOSTS[1:MAX_RUNNING]:
        begin(desk, host)
    assert len(desk) == MAX_RUNNING
    with pytest.raises(BusyError):
        begin(desk, HOSTS[MAX_RUNNING])
