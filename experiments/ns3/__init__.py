"""The fat-tree in ns-3: hosts with its TCP, switches and links of our own (``src/``). `simulate` runs one workload."""

from .campaign import run_simulations
from .program import SimulatorError, build
from .simulate import DEFAULT_MBIT, SHARE, SIMULATED, check, simulate

__all__ = ["DEFAULT_MBIT", "SHARE", "SIMULATED", "SimulatorError", "build", "check", "run_simulations", "simulate"]
