"""Shell completion of the names of switches, links and hosts, and ``sopa completion``: the script by which a shell completes."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

import click
from click.shell_completion import CompletionItem, get_completion_class

from sopa_ryu.cli.client import DEFAULT_URL, Body, Controller
from sopa_ryu.cli.common import fabric_of
from topologies import Aliases, Clos, FatTree, TopologyError
from topologies.aliases import NONE

SHELLS = ("bash", "zsh", "fish")
ANSWER_SECONDS = 0.5  # the Tab key must not block if the controller does not answer
MAX_NAMES = 2000
K_VARIABLE = "SOPA_K"


def switches(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    tree, aliases = _fabric(ctx)
    return _items(_switches(tree, aliases), incomplete)


def elements(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a switch or of a link between switches; links are offered after a complete switch name."""
    return _items(_elements(*_fabric(ctx), incomplete), incomplete, _given(ctx))


def drained(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    body = _ask(ctx, "/drains")
    return _items(body["drains"] if body else [], incomplete, _given(ctx))


def hosts(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a host's name, or its address if the text begins with a digit."""
    tree, aliases = _fabric(ctx)
    by_address = incomplete[:1].isdigit()
    names = (str(tree.ip(host)) if by_address else tree.name(host) for host in tree.hosts())
    return _items(chain(names, (alias for name, alias in aliases.names.items() if name.startswith("h"))), incomplete)


def _switches(tree: Clos, aliases: Aliases) -> Iterator[str]:
    """Yield own names, and then aliases."""
    yield from (tree.name(switch) for switch in tree.switches())
    yield from (alias for name, alias in aliases.names.items() if not name.startswith("h"))


def _elements(tree: Clos, aliases: Aliases, incomplete: str) -> Iterator[str]:
    yield from _switches(tree, aliases)
    for end in re.finditer("-|$", incomplete):
        with contextlib.suppress(ValueError):
            lower = incomplete[: end.start()]
            for link in tree.links_above(tree.switch(aliases.own(lower))):
                upper = tree.name(link.upper)
                yield from (f"{lower}-{name}" for name in (upper, aliases.names.get(upper)) if name is not None)


def _items(names: Iterable[str], incomplete: str, without: Iterable[str] = ()) -> list[CompletionItem]:
    given = set(without)
    fitting = (name for name in names if name.startswith(incomplete) and name not in given)
    return [CompletionItem(name) for name in islice(fitting, MAX_NAMES)]


def _given(ctx: click.Context) -> tuple[str, ...]:
    return tuple(ctx.params.get("names") or ())


def _fabric(ctx: click.Context) -> tuple[Clos, Aliases]:
    body = _ask(ctx, "/fabric")
    try:
        if body:
            return fabric_of(body), Aliases.of_listed((_ask(ctx, "/names") or {"names": ()})["names"])
        return FatTree(int(os.environ.get(K_VARIABLE, "4"))), NONE
    except (KeyError, TypeError, ValueError, TopologyError):
        return FatTree(4), NONE


def _ask(ctx: click.Context, path: str) -> Body | None:
    token_file, ca_file = (Path(file) if (file := ctx.params.get(name)) else None for name in ("token_file", "ca_file"))
    try:
        controller = Controller(ctx.params.get("url") or DEFAULT_URL, token_file, ca_file, ANSWER_SECONDS)
        return controller.get(path)
    except (click.ClickException, ValueError):
        return None


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script by which a shell completes commands, options and names.

    Names of switches, links and hosts come from the controller (--controller, or SOPA_CONTROLLER). If it does not answer within
    half a second, they are those of a fat-tree with k = SOPA_K, 4 by default.

    \b
    Examples:
      eval "$(sopa completion bash)"                                      for this shell
      sopa completion bash >/etc/bash_completion.d/sopa                   for every bash
      sopa completion zsh >/usr/local/share/zsh/site-functions/_sopa      for every zsh
      sopa completion fish >~/.config/fish/completions/sopa.fish          for your fish
    """
    main = click.get_current_context().find_root().command
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(main, {}, "sopa", "_SOPA_COMPLETE").source())
