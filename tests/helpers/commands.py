"""The command ``sopa`` in this process: to start Python for each would take most of a test's time."""

import gc
import os
import warnings

from click.testing import CliRunner, Result

from experiments.emulation.processes import ControllerProcess
from sopa_ryu.cli import main


def sopa(*words: str, **variables: str) -> Result:
    """Run a command as it is typed, with these variables of the environment and no other of SOPA's."""
    others = {name: None for name in os.environ if name.startswith("SOPA_")}
    with warnings.catch_warnings():
        # a command's connections end with its process
        warnings.simplefilter("ignore", ResourceWarning)
        done = CliRunner().invoke(main, words, prog_name="sopa", env=others | variables)
        gc.collect()
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def ask(controller: ControllerProcess, *words: str, **variables: str) -> Result:
    """Run a command that asks a controller, with the operators' token."""
    own = {"SOPA_CONTROLLER": controller.url, "SOPA_TOKEN_FILE": str(controller.token_file)}
    return sopa(*words, **own | variables)
