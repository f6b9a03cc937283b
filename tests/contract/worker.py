"""Runs ``sopa`` commands, one after the other, in one process: starting Python for each would take most of the test's time.

``python -m tests.contract.worker`` reads a JSON list of words from each line, and writes a JSON object for each.
"""

import json
import sys

from click.testing import CliRunner

from sopa_ryu.cli import main

for line in sys.stdin:
    done = CliRunner().invoke(main, json.loads(line), prog_name="sopa")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    print(json.dumps({"exit": done.exit_code, "stdout": done.stdout, "stderr": done.stderr}), flush=True)
