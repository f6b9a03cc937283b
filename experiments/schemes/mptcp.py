"""Multipath TCP of the kernel with 8 subflows over ECMP (Raiciu et al., SIGCOMM 2011, section 4)."""

from experiments.schemes.scheme import Scheme

SCHEME = Scheme("mptcp", "multipath TCP with 8 subflows over ecmp", subflows=8)
