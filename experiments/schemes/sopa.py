"""SOPA itself (the paper, section 3): interleaved round-robin by the sender, and a threshold that waits for what is overtaken."""

from experiments.schemes.scheme import Scheme

SCHEME = Scheme(
    "sopa", "round-robin over all paths, chosen by the sender; threshold 10", policy="round-robin", fr_threshold=10
)
