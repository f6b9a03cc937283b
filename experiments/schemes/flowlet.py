"""A new random path after each gap in a flow (Vanini et al., LetFlow, NSDI 2017), drawn by the sender.

A gap has to be longer than paths differ in delay. That is some queue's worth of packets: at the lab's rates milliseconds, where it
is microseconds at 10 Gbit/s.
"""

from experiments.schemes.scheme import Scheme

SCHEME = Scheme(
    "flowlet", "a new random path after a gap of 20 ms", policy="flowlet", policy_options=("--flowlet-gap=20000",)
)
