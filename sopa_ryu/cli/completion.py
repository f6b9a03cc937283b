"""``sopa completion``: the script by which a shell completes commands, options and the fabric's names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


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
