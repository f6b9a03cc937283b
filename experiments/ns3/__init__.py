"""The simulator: a Clos fabric in ns-3. Hosts run its TCP; switches and links are classes of ``src/``. `simulate` runs one plan."""

from experiments.ns3.ns3_backend import run_simulations
from experiments.ns3.program import SimulatorError, build, digest
from experiments.ns3.simulate import DEFAULT_MBIT, SECONDS_SHARE, SIMULATED, check, simulate
from experiments.ns3.simulation_options import DEFAULT_QUEUE, OPTIONS, SimulationOptionError, parse, sized

__all__ = [
    "DEFAULT_MBIT",
    "DEFAULT_QUEUE",
    "OPTIONS",
    "SECONDS_SHARE",
    "SIMULATED",
    "SimulationOptionError",
    "SimulatorError",
    "build",
    "check",
    "digest",
    "parse",
    "run_simulations",
    "simulate",
    "sized",
]
