"""``sopa hint``."""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path

import click

from sopa_ryu.agent.hint_protocol import DEFAULT_WITHIN_MS, MAX_SIZE, MAX_WITHIN_MS, MIN_WITHIN_MS
from sopa_ryu.cli.common import fail


class Destination(click.ParamType[tuple[IPv4Address, int]]):
    """An IPv4 address and a TCP port."""

    name = "ADDRESS:PORT"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[IPv4Address, int]:
        """Return address and port, or end with a usage error."""
        address, _, port = str(value).rpartition(":")
        try:
            destination = IPv4Address(address)
        except ValueError:
            self.fail(f"{value!r} is no IPv4 address and port, as in 10.1.0.2:5001", param, ctx)
        if not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
            self.fail(f"{port!r} is no port", param, ctx)
        return destination, int(port)


@click.command()
@click.argument("destination", type=Destination())
@click.option("--bytes", "size", required=True, type=click.IntRange(1, MAX_SIZE), metavar="N",
              help="What the connection has still to send; what is written and not sent yet is part of it.")  # fmt: skip
@click.option("--own-port", type=click.IntRange(1, 65535), metavar="PORT",
              help="The connection's port at this host. Default: that of the only connection to DESTINATION.")  # fmt: skip
@click.option("--within", type=click.IntRange(MIN_WITHIN_MS, MAX_WITHIN_MS), default=DEFAULT_WITHIN_MS, show_default=True,
              metavar="MS", help="The hint is void when nothing more is written for so long.")  # fmt: skip
@click.option("--socket", "path", type=click.Path(dir_okay=False, path_type=Path), metavar="PATH",
              help="The agent's socket (--hints). Default: that of this network namespace in /run/sopa.")  # fmt: skip
def hint(destination: tuple[IPv4Address, int], size: int, own_port: int | None, within: int, path: Path | None) -> None:
    """Tell this host's agent what a TCP connection is going to send, for slots that are granted before it is written.

    The agent (--policy cfr) asks the arbiter for slots by what TCP's sockets hold. An application that knows how much it is going
    to write says so, here or by sopa_ryu.agent.hint_client (docs/cfr.md). The connection has to be one of the same user, but
    for root. Prints the bytes that count: fewer if a link carries fewer in a second.

    \b
    Example:
      sopa hint 10.1.0.2:5001 --bytes 1000000
      sopa hint 10.1.0.2:5001 --bytes 1000000 --own-port 40000 --within 200
    """
    from sopa_ryu.agent.hint_client import tell
    from sopa_ryu.agent.hint_place import default_path
    from sopa_ryu.agent.hint_protocol import Hint, HintError
    from sopa_ryu.agent.host_settings import STATE_DIR
    from sopa_ryu.agent.kernel.netns import cookie

    try:
        its = tell(path or default_path(STATE_DIR, cookie()), Hint(*destination, own_port or 0, size, within))
    except HintError as error:
        fail(str(error))
    click.echo(f"{its.size} bytes from port {its.own_port}")
