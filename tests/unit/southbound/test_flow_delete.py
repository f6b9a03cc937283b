"""An entry is removed alone, not with all that its match covers."""

from ryu.ofproto import ofproto_v1_3
from ryu.ofproto.ofproto_protocol import ProtocolDesc

from sopa_ryu.fabric.messages import Installed
from sopa_ryu.southbound.openflow import flow_delete


def test_an_entry_is_removed_by_its_table_priority_and_match() -> None:
    switch = ProtocolDesc(ofproto_v1_3.OFP_VERSION)
    message = flow_delete(switch, Installed(1, 40, 7, (("eth_type", 0x800),)))
    assert (message.command, message.table_id, message.priority) == (ofproto_v1_3.OFPFC_DELETE_STRICT, 1, 40)
    assert list(message.match.items()) == [("eth_type", 0x800)]
