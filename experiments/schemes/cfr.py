"""What the paper of CFR compares: a slot and a path for every packet, and two TCPs (Li et al., 2015, section 5).

Packets of a flow take several paths, and those to a near host and to a far one leave in different slots: TCP is that of `sopa`.
Slots are granted two batches ahead, for what sockets have taken from applications by then: they may take that much from the
beginning.
"""

from experiments.schemes.scheme import Fabric, Scheme
from experiments.schemes.slots import Slots

_SEND_BUFFERS = {"ipv4/tcp_wmem": "4096 131072 4194304"}

SCHEMES = (
    Scheme("cfr", "an arbiter gives each packet of data a slot and a path, so that no link carries two at a time",
           policy="cfr", fr_threshold=10, min_rtt_window=1, slots=Slots(), sysctls=_SEND_BUFFERS),
    Scheme("tcp", "ecmp by its name in the CFR paper: NewReno, one path per flow", fabric=Fabric.SIMULATOR),
    Scheme("dctcp", "ecmp with DCTCP and switches that mark packets in long queues", ecn=True, fabric=Fabric.SIMULATOR),
)  # fmt: skip
