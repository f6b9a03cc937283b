"""``make flood``: every kind of flood for a running controller, until one does harm or the time is over."""

import sys
import tempfile
from pathlib import Path

import click

from tests.floods.clients import ENDLESS
from tests.floods.measure import withstand
from tests.helpers.fabrics import running


@click.command()
@click.argument("words", nargs=-1)
@click.option("--seconds", type=click.FloatRange(1), default=30.0, show_default=True, help="Time for each kind.")
@click.option("--rounds", type=click.IntRange(1), default=1, show_default=True, help="How often all kinds in turn.")
def main(words: tuple[str, ...], seconds: float, rounds: int) -> None:
    """Flood a controller of a k=4 fabric with what clients can send, without a token or with a host's (root).

    WORDS select the kinds that contain one of them: openflow, "rest pings". Answers to another client, memory, switches and an
    agent are watched all the time, over all floods of the same controller.
    """
    kinds = [kind for kind in ENDLESS if not words or any(word in kind for word in words)]
    if not kinds:
        raise click.UsageError(f"no such kind; there are {', '.join(ENDLESS)}")
    with tempfile.TemporaryDirectory() as directory, running(4, Path(directory)) as fabric:
        try:
            for _ in range(rounds):
                for kind in kinds:
                    click.echo(str(withstand(fabric, kind, seconds)))
        except AssertionError as error:
            click.echo(f"FAILED: {error}\n{fabric.controller.log_tail(40)}", err=True)
            sys.exit(1)


if __name__ == "__main__":
    main()
