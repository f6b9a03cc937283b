"""Flowcells (He et al., Presto, SIGCOMM 2015): the sender selects the next path after each 64 KB of a flow."""

from experiments.schemes.scheme import Scheme

SCHEME = Scheme("flowcell", "the next path after each 64 KB", policy="flowcell", policy_options=("--flowcell=65536",))
