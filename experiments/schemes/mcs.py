"""Multi-Channel Scatter: both hosts scatter each connection over channels, filter acknowledgements, and respond to ECN marks.

TCP has the settings of Linux: what it would take for a loss does not reach it. Channels that are source ports need nothing of the
network but a hash of ports, so the same agents run over routers and switches that know nothing of them.
"""

from experiments.schemes.bgp import OWN_HASH
from experiments.schemes.scheme import Fabric, Scheme

CHANNELS = 8

SCHEMES = (
    Scheme("mcs", "MCS: 8 channels per connection, each a candidate path; weights and windows by ECN marks",
           policy="mcs", channels=CHANNELS, ecn=True),
    Scheme("mcs-ports", "MCS over the Linux routers of bgp: each channel a source port, which routers hash",
           policy="mcs", channels=CHANNELS, channel_kind="ports", ecn=True, fabric=Fabric.ROUTERS, router_sysctls=OWN_HASH),
    Scheme("mcs-ports-ovs", "MCS over ecmp: each channel a source port, which switches hash",
           policy="mcs", channels=CHANNELS, channel_kind="ports", ecn=True),
)  # fmt: skip
