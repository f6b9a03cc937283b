"""The schemes, but for those with an application of the controller. Hosts without a policy have no agent: switches hash flows."""

from experiments.schemes.scheme import Fabric, Scheme, Slots
from sopa_ryu.channel.mcs import DEFAULT_CHANNELS, ChannelKind

OWN_HASH = {"ipv4/fib_multipath_hash_policy": "3", "ipv4/fib_multipath_hash_fields": "55"}
"""The custom hash (policy 3) over addresses, protocol and ports, with a seed per router.

The L4 hash of Linux (policy 1) reuses the hash that is stored with a packet, and a packet from a socket of the same machine has
one: in a lab all routers select alike, and half of the core switches carry nothing. Routers on separate machines hash on their own.
"""
HANDED_ON_HASH = {"ipv4/fib_multipath_hash_policy": "1"}
SEND_BUFFERS = {"ipv4/tcp_wmem": "4096 262144 4194304"}
"""More than `send_buffers.BATCHES` batches of the lab's slots, which have the same packets at any rate."""
SHORT_BURSTS = {"ipv4/tcp_tso_rtt_log": "0", "ipv4/tcp_min_tso_segs": "1"}
"""A burst takes one channel as a whole. Linux makes bursts of what it sends in a millisecond, and in addition, where round trips
are short, of up to 64 KB: 50 us on a link of 10 Gbit/s, but 130 ms on one of the lab. So the lab has bursts of a millisecond only:
single packets at its rates."""

SCHEMES = (
    # SOPA (the paper, section 3): a fast-retransmit threshold that tolerates reordering
    Scheme("sopa", "round-robin over all candidate paths by the sender; threshold 10",
           policy="round-robin", fr_threshold=10, min_rtt_window=1),
    # equal-cost multi-path: each switch hashes addresses and ports of a flow, differently at each level
    Scheme("ecmp", "one path per flow; switches hash addresses and ports"),
    # BGP as operators run it: eBGP on every link, multipath, L4 hash, BFD (Lapukhov et al., RFC 7938)
    Scheme("bgp", "Linux routers with FRR: eBGP multipath, one path per flow by L4 hash",
           fabric=Fabric.ROUTERS, router_sysctls=OWN_HASH),
    Scheme("bgp-polarised", "bgp with one hash that all routers share (polarised)",
           fabric=Fabric.ROUTERS, router_sysctls=HANDED_ON_HASH),
    # the same paths on routers that are no OpenFlow switches: an outer header lists them as SRv6 uSIDs (RFC 9800)
    Scheme("sopa-srv6", "sopa over Linux routers: each packet's path is a uSID list (SRv6); threshold 10",
           policy="round-robin", fr_threshold=10, min_rtt_window=1, fabric=Fabric.SRV6, router_sysctls=OWN_HASH),
    Scheme("cfr-srv6", "cfr over the routers of sopa-srv6",
           policy="cfr", fr_threshold=10, min_rtt_window=1, slots=Slots(), sysctls=SEND_BUFFERS, fabric=Fabric.SRV6,
           router_sysctls=OWN_HASH),
    # no port marks: the outer header is Not-ECT (RFC 6040, compatibility mode), so weights follow losses alone
    Scheme("mcs-srv6", "mcs over the routers of sopa-srv6, without marks",
           policy="mcs", channels=DEFAULT_CHANNELS, sysctls=SHORT_BURSTS, fabric=Fabric.SRV6, router_sysctls=OWN_HASH),
    Scheme("ecmp-srv6", "the routers of sopa-srv6 without agents: one path per flow", fabric=Fabric.SRV6, router_sysctls=OWN_HASH),
    # multipath TCP of the kernel (Raiciu et al., SIGCOMM 2011, section 4)
    Scheme("mptcp", "multipath TCP with 8 subflows over ecmp", subflows=8),
    # random packet spraying (Dixit et al., INFOCOM 2013), with the default TCP of Linux
    Scheme("rps", "a random path per packet; threshold 3", policy="random"),
    # packet-level traffic splitting (Dixit et al., SIGCOMM 2011, section 2): switches select paths there and in the simulator, but
    # senders in the lab, which know no port's counter. So plts-cnt is the paper's in the simulator only
    Scheme("plts-rr", "PLTS-RR: round-robin per flow; threshold 3", policy="round-robin"),
    Scheme("plts-rnd", "PLTS-RND: a random path per packet; threshold 3", policy="random"),
    Scheme("plts-cnt", "PLTS-CNT in the simulator: the port that has carried the fewest bytes; in the lab least-used; threshold 3",
           policy="least-used"),
    Scheme("least-used", "the path that has carried the fewest bytes of the host, in the simulator of the flow; threshold 3",
           policy="least-used"),
    # Vanini et al., LetFlow, NSDI 2017. A gap has to be longer than the difference of path delays, that is of some packets in
    # queues: milliseconds at the rates of the lab, microseconds at 10 Gbit/s
    Scheme("flowlet", "a new random path after a gap of 20 ms", policy="flowlet", policy_options=("--flowlet-gap=20000",)),
    # He et al., Presto, SIGCOMM 2015
    Scheme("flowcell", "the next path after each 64 KB", policy="flowcell", policy_options=("--flowcell=65536",)),
    # digit-reversal bouncing (Cao et al., CoNEXT 2013): it needs IP in IP at hosts and core switches and a resequencing buffer
    # below TCP, which only the simulator has
    Scheme("drb", "the sender selects the core switch of each packet by IP in IP, the receiver resequences",
           fabric=Fabric.SIMULATOR),
    # baselines of the field as their papers have them, with the TCP of ecmp
    Scheme("letflow", "ecmp, and switches take a random uplink after a gap of 500 us in a flow (LetFlow, NSDI 2017)",
           fabric=Fabric.SIMULATOR),
    Scheme("drill", "switches take the shortest of 2 random queues and the last best; a reorder buffer (DRILL, SIGCOMM 2017)",
           fabric=Fabric.SIMULATOR),
    Scheme("adaptive", "adaptive routing: switches take the shortest queue for each packet; a reorder buffer",
           fabric=Fabric.SIMULATOR),
    Scheme("presto", "flowcell without a label, and the receiver puts flowcells in order (Presto, SIGCOMM 2015)",
           fabric=Fabric.SIMULATOR),
    Scheme("conweave", "the first switch moves a flow after a late reply, the last one keeps its order (ConWeave, SIGCOMM 2023)",
           fabric=Fabric.SIMULATOR),
    # senders with DCTCP that change paths by what comes back
    Scheme("plb", "ecmp, and a flow takes another path after congested rounds (Linux' tcp_plb, SIGCOMM 2022)",
           fabric=Fabric.SIMULATOR),
    Scheme("reps", "a random path per packet, but first again those that came back without a mark (REPS, 2024)",
           fabric=Fabric.SIMULATOR),
    # Multi-Channel Scatter: TCP has the settings of Linux, as what it would take for a loss does not reach it. Channels that are
    # source ports need nothing of the network but a hash of ports
    Scheme("mcs", "MCS: 8 channels per connection, each a candidate path; weights and windows by ECN marks",
           policy="mcs", channels=DEFAULT_CHANNELS, ecn=True, sysctls=SHORT_BURSTS),
    Scheme("mcs-ports", "MCS over the Linux routers of bgp: each channel a source port, which routers hash",
           policy="mcs", channels=DEFAULT_CHANNELS, channel_kind=ChannelKind.PORTS, ecn=True, sysctls=SHORT_BURSTS,
           fabric=Fabric.ROUTERS, router_sysctls=OWN_HASH),
    Scheme("sopa-feedback", "sopa with the weights of MCS by marks: 16 channels, no window control, no filter of ACKs",
           policy="mcs", policy_options=("--mcs-without=window", "--mcs-without=filter"), channels=16, ecn=True,
           fr_threshold=10, min_rtt_window=1, sysctls=SHORT_BURSTS),
    # the bitmap of the Ultra Ethernet simulator (ultraethernet/uet-htsim) under TCP: marks move packets, losses slow down. In the
    # lab no marks come back, as receivers do not see which path a packet has taken; the figure reps-cubic gains nothing by them
    Scheme("sopa-skip", "sopa, and a path loses 4 turns for a packet sent again, 15 for a timeout, in the simulator 1 for a mark",
           policy="sopa-skip", fr_threshold=10, min_rtt_window=1),
    Scheme("mcs-ports-ovs", "MCS over ecmp: each channel a source port, which switches hash",
           policy="mcs", channels=DEFAULT_CHANNELS, channel_kind=ChannelKind.PORTS, ecn=True, sysctls=SHORT_BURSTS),
    # what the paper of MCS compares it with (Li, Bi, Wang, IFIP Networking 2017, section VI.A), besides multipath TCP
    Scheme("ecmp-vcc", "ecmp with the window control of MCS alone, its paper's baseline",
           channels=1, ecn=True, fabric=Fabric.SIMULATOR),
    Scheme("per-packet", "round-robin over all paths, a reorder buffer at the receiver, and DCTCP", fabric=Fabric.SIMULATOR),
    # what the paper of CFR compares (Li et al., 2015, section 5): a slot and a path for every packet, and two TCPs. Packets of a
    # flow take several paths, and those to a near host and to a far one leave in different slots: TCP is that of sopa
    Scheme("cfr", "an arbiter gives each packet of data a slot and a path, so that no link carries two at a time",
           policy="cfr", fr_threshold=10, min_rtt_window=1, slots=Slots(), sysctls=SEND_BUFFERS),
    Scheme("tcp", "ecmp by its name in the CFR paper: NewReno, one path per flow", fabric=Fabric.SIMULATOR),
    Scheme("dctcp", "ecmp with DCTCP and switches that mark packets in long queues", ecn=True, fabric=Fabric.SIMULATOR),
)  # fmt: skip
