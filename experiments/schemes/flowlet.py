"""Flowlets (Vanini et al., LetFlow, NSDI 2017): the sender draws a new path after each gap in a flow.

A gap has to be longer than the difference of path delays, that is of some packets in queues: milliseconds at the rates
of the lab, microseconds at 10 Gbit/s.
"""

from experiments.schemes.scheme import Scheme

SCHEME = Scheme(
    "flowlet", "a new random path after a gap of 20 ms", policy="flowlet", policy_options=("--flowlet-gap=20000",)
)
