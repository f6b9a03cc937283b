"""What a port's description says of it: administratively down, without a link, or not LIVE because BFD hears nothing."""

import pytest
from ryu.ofproto.ofproto_v1_3 import OFPPC_PORT_DOWN, OFPPS_LINK_DOWN, OFPPS_LIVE
from ryu.ofproto.ofproto_v1_3_parser import OFPPort

from sopa_ryu.southbound.openflow import port_trouble
from topologies.failures import Reason


@pytest.mark.parametrize(
    ("config", "state", "trouble"),
    [
        (0, OFPPS_LIVE, None),
        (0, 0, Reason.SILENT),
        (0, OFPPS_LINK_DOWN, Reason.DOWN),
        (0, OFPPS_LINK_DOWN | OFPPS_LIVE, Reason.DOWN),
        (OFPPC_PORT_DOWN, OFPPS_LIVE, Reason.DOWN),
    ],
)
def test_a_port_is_silent_that_is_up_and_not_live(config: int, state: int, trouble: Reason | None) -> None:
    port = OFPPort(1, "02:00:00:00:00:01", b"port1", config, state, 0, 0, 0, 0, 0, 0)
    assert port_trouble(port) is trouble
