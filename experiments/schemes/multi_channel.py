"""What the paper of MCS compares it with (Li, Bi, Wang, IFIP Networking 2017, section VI.A), besides multipath TCP."""

from experiments.schemes.scheme import Fabric, Scheme

SCHEMES = (
    Scheme("ecmp-vcc", "ecmp with the window control of MCS alone, its paper's baseline",
           channels=1, ecn=True, fabric=Fabric.SIMULATOR),
    Scheme("per-packet", "round-robin over all paths, a reorder buffer at the receiver, and DCTCP", fabric=Fabric.SIMULATOR),
)  # fmt: skip
