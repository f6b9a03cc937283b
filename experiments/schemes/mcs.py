"""Multi-Channel Scatter: both hosts scatter each connection over channels, filter acknowledgements, and respond to ECN marks.

TCP has the settings of Linux: what it would take for a loss does not reach it. Channels that are source ports need nothing of the
network but a hash of ports, so the same agents run over routers and switches that know nothing of them.

A burst takes one channel as a whole. Linux makes bursts of what it sends in a millisecond, and in addition, where round trips are
short, of up to 64 KB: 50 us on a link of 10 Gbit/s, but 130 ms on one of the lab. So the lab has bursts of a millisecond only:
single packets at its rates.
"""

from experiments.schemes.bgp import OWN_HASH
from experiments.schemes.scheme import Fabric, Scheme
from sopa_ryu.channel.mcs import DEFAULT_CHANNELS, ChannelKind

_SHORT_BURSTS = {"ipv4/tcp_tso_rtt_log": "0", "ipv4/tcp_min_tso_segs": "1"}

SCHEMES = (
    Scheme("mcs", "MCS: 8 channels per connection, each a candidate path; weights and windows by ECN marks",
           policy="mcs", channels=DEFAULT_CHANNELS, ecn=True, sysctls=_SHORT_BURSTS),
    Scheme("mcs-ports", "MCS over the Linux routers of bgp: each channel a source port, which routers hash",
           policy="mcs", channels=DEFAULT_CHANNELS, channel_kind=ChannelKind.PORTS, ecn=True, sysctls=_SHORT_BURSTS,
           fabric=Fabric.ROUTERS, router_sysctls=OWN_HASH),
    Scheme("sopa-feedback", "sopa with the weights of MCS by marks: 16 channels, no window control, no filter of ACKs",
           policy="mcs", policy_options=("--mcs-without=window", "--mcs-without=filter"), channels=16, ecn=True,
           fr_threshold=10, min_rtt_window=1, sysctls=_SHORT_BURSTS),
    Scheme("mcs-ports-ovs", "MCS over ecmp: each channel a source port, which switches hash",
           policy="mcs", channels=DEFAULT_CHANNELS, channel_kind=ChannelKind.PORTS, ecn=True, sysctls=_SHORT_BURSTS),
)  # fmt: skip
