"""Record what outside users rely on: ``python -m tests.contract.record [PART]...`` (root).

The files in ``tests/contract/recorded`` are what the tests compare this version with, so recording makes every difference
disappear. Record only when a contract changes deliberately (a field, a command or an option is added, or one is withdrawn after
it was announced), name the parts that change, read the difference that ``git diff`` shows line by line, and commit it together with
the change and with ``docs/architecture.md``, which describes the contracts.

The first recording is of the version before packages were divided into subpackages (commit 8f2c538), on Open vSwitch 3.1.0, with
click 8.5.1. It was made by this program, run by that version's own Python, with that version's modules put under the names by which
this program imports them.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.contract import fabric, plain, values


def record(wanted: list[str]) -> None:
    for name, part in plain.PARTS.items():
        if not wanted or name in wanted:
            print(values.save(name, part()))
    if not wanted or set(wanted) & set(fabric.PARTS):
        with tempfile.TemporaryDirectory() as directory:
            for name, part in fabric.collect(Path(directory)).items():
                if not wanted or name in wanted:
                    print(values.save(name, part))


if __name__ == "__main__":
    record(sys.argv[1:])
