"""Commands that run in the namespaces of a lab."""

from __future__ import annotations

from collections.abc import Callable

import click

from sopa_ryu.cli.common import fail


def in_isolation(main_inside: Callable[[], int]) -> int:
    """Run a function in namespaces of its own and return its status. Lab errors become error messages of the command."""
    from experiments.emulation.processes import ProcessError
    from topologies.lab.batch_net import LabError
    from topologies.lab.isolation import IsolationError, MissingCommandError, isolated
    from topologies.lab.private_ovs import OvsError

    def guarded() -> int:
        try:
            return main_inside()
        except (LabError, MissingCommandError, OvsError, ProcessError) as error:
            click.echo(f"Error: {error}", err=True)
            return 1

    try:
        return isolated(guarded)
    except IsolationError as error:
        fail(str(error))
