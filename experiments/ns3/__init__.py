"""The fat-tree in ns-3: hosts with its TCP, switches and links of our own (``src/``). `simulate` runs one workload."""

from .cache import Cache, directory
from .campaign import run_simulations
from .options import OPTIONS, OptionError, parse
from .program import SimulatorError, build
from .simulate import DEFAULT_MBIT, SHARE, SIMULATED, check, simulate

__all__ = [
    "DEFAULT_MBIT",
    "OPTIONS",
    "SHARE",
    "SIMULATED",
    "Cache",
    "OptionError",
    "SimulatorError",
    "build",
    "check",
    "directory",
    "parse",
    "run_simulations",
    "simulate",
]
