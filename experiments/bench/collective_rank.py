"""A rank of the collective operations, for Debian's Python with mpi4py: rank 0 prints the seconds of each as JSON."""

import importlib
import json
import sys
import time
from array import array
from collections.abc import Callable


def main(size: int) -> None:
    """Perform each operation once on vectors of so many bytes, after a small one that opens the connections."""
    MPI = importlib.import_module("mpi4py.MPI")  # not imported: packages have what is, and this is Debian's
    world = MPI.COMM_WORLD
    floats = size // 4 // world.size * world.size
    mine, sums, others = (array("f", [value]) * floats for value in (1.0, 0.0, 0.0))
    operations: dict[str, Callable[[], object]] = {
        "all-reduce": lambda: world.Allreduce([mine, MPI.FLOAT], [sums, MPI.FLOAT]),
        "all-gather": lambda: world.Allgather([mine[: floats // world.size], MPI.FLOAT], [others, MPI.FLOAT]),
        "all-to-all": lambda: world.Alltoall([mine, MPI.FLOAT], [others, MPI.FLOAT]),
    }
    found = {}
    world.Alltoall(bytearray(world.size), bytearray(world.size))
    for name, operation in operations.items():
        world.Barrier()
        begin = time.monotonic()
        operation()
        world.Barrier()
        found[name] = round(time.monotonic() - begin, 3)
    if set(sums) != {float(world.size)}:
        raise SystemExit("the sums are wrong")
    if world.rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]))
