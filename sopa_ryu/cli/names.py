"""Shell completion of the names of switches, links and hosts, and ``sopa completion``: the script by which a shell completes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import click
from click.shell_completion import CompletionItem, get_completion_class

from sopa_ryu.cli.client import DEFAULT_URL, Body, Controller
from sopa_ryu.cli.common import fabric_of
from topologies import Clos, FatTree, TopologyError

SHELLS = ("bash", "zsh", "fish")
ANSWER_SECONDS = 0.5  # the Tab key must not block if the controller does not answer
MAX_NAMES = 2000
K_VARIABLE = "SOPA_K"


def switches(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    tree = _tree(ctx)
    return _items((tree.name(switch) for switch in tree.switches()), incomplete)


def elements(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a switch or of a link between switches; links are offered after a complete switch name."""
    tree = _tree(ctx)
    return _items(_elements(tree, incomplete), incomplete, _given(ctx))


def drained(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    body = _ask(ctx, "/drains")
    return _items(body["drains"] if body else [], incomplete, _given(ctx))


def hosts(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a host's name, or its address if the text begins with a digit."""
    tree = _tree(ctx)
    by_address = incomplete[:1].isdigit()
    return _items((str(tree.ip(host)) if by_address else tree.name(host) for host in tree.hosts()), incomplete)


def _elements(tree: Clos, incomplete: str) -> Iterator[str]:
    yield from (tree.name(switch) for switch in tree.switches())
    try:
        lower = tree.switch(incomplete.partition("-")[0])
    except TopologyError:
        return
    yield from (tree.name(link) for link in tree.links_above(lower))


def _items(names: Iterable[str], incomplete: str, without: Iterable[str] = ()) -> list[CompletionItem]:
    given = set(without)
    fitting = (name for name in names if name.startswith(incomplete) and name not in given)
    return [CompletionItem(name) for name in islice(fitting, MAX_NAMES)]


def _given(ctx: click.Context) -> tuple[str, ...]:
    return tuple(ctx.params.get("names") or ())


def _tree(ctx: click.Context) -> Clos:
    body = _ask(ctx, "/fabric")
    try:
        return fabric_of(body) if body else FatTree(int(os.environ.get(K_VARIABLE, "4")))
    except (KeyError, TypeError, ValueError, TopologyError):
        return FatTree(4)


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
