"""Record what outside users rely on: ``python -m tests.contract.record [PART]...`` (root).

Tests compare this version with ``tests/contract/recorded``, so recording makes every difference disappear. Record only when a
contract changes deliberately, name the parts, read ``git diff`` line by line, and commit it with the change and with
``docs/architecture.md``, which describes the contracts. The first recording is of commit 8f2c538, by that version's own modules.
"""

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
