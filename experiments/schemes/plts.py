"""Packet-level traffic splitting (Dixit et al., SIGCOMM 2011, section 2), with the default TCP of Linux.

In the paper switches select paths packet by packet. Here the sender selects from the same paths for each packet.
"""

from experiments.schemes.scheme import Scheme

SCHEMES = (
    Scheme("plts-rr", "PLTS-RR: round-robin per flow; threshold 3", policy="round-robin"),
    Scheme("plts-rnd", "PLTS-RND: a random path per packet; threshold 3", policy="random"),
    Scheme("plts-cnt", "PLTS-CNT: the path that has carried the fewest bytes; threshold 3", policy="least-used"),
)
