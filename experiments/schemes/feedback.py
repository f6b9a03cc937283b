"""Senders with DCTCP that change paths by what comes back: what else there is for hosts over switches that hash."""

from experiments.schemes.scheme import Fabric, Scheme

SCHEMES = (
    Scheme("plb", "ecmp, and a flow takes another path after congested rounds (Linux' tcp_plb, SIGCOMM 2022)",
           fabric=Fabric.SIMULATOR),
    Scheme("reps", "a random path per packet, but first again those that came back without a mark (REPS, 2024)",
           fabric=Fabric.SIMULATOR),
)  # fmt: skip
