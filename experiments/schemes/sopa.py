"""SOPA (the paper, section 3): interleaved round-robin by the sender, and a fast-retransmit threshold that tolerates
reordering.
"""

from experiments.schemes.scheme import Scheme

SCHEME = Scheme(
    "sopa",
    "round-robin over all candidate paths by the sender; threshold 10",
    policy="round-robin",
    fr_threshold=10,
    min_rtt_window=1,
)
