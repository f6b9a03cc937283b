"""``sopa status`` and ``sopa paths``: what a controller says over REST."""

from __future__ import annotations

import json
import sys
from typing import Any

import click
import httpx
from rich.console import Console
from rich.table import Table

from sopa_ryu.cli.common import fail

CONTROLLER = "http://127.0.0.1:8080"


@click.command()
@click.option("--controller", default=CONTROLLER, show_default=True, metavar="URL", help="Where the controller is.")
@click.option("--json", "as_json", is_flag=True, help="The controller's answer as it is.")
def status(controller: str, as_json: bool) -> None:
    """What the controller holds and what has failed.

    The exit status is 0 if every switch is connected and nothing has failed, 3 if not, and 1 without an answer.
    """
    body = ask(controller, "/fabric")
    if as_json:
        click.echo(json.dumps(body))
    else:
        total = sum(body["switches"].values())
        click.echo(f"fat-tree      k={body['k']}, {total} switches, {body['hosts']} hosts")
        click.echo(f"connected     {body['connected']} of {total} switches")
        click.echo(f"version       {body['version']}")
        failures = [f"{failure['kind']} {failure['name']} {failure['reason']}" for failure in body["failures"]]
        click.echo(f"failures      {', '.join(failures) or 'none'}")
        click.echo(f"BFD           {body['bfd']['detail']}")
        if body["missing"]:
            click.echo(f"not here      {', '.join(body['missing'])}")
        for rejected in body["rejected"]:
            click.echo(f"left alone    {rejected['dpid']}: {rejected['reason']}")
    healthy = not (body["failures"] or body["missing"] or body["rejected"])
    sys.exit(0 if healthy else 3)


@click.command()
@click.argument("src")
@click.argument("dst")
@click.option("--controller", default=CONTROLLER, show_default=True, metavar="URL", help="Where the controller is.")
@click.option("--json", "as_json", is_flag=True, help="The controller's answer as it is.")
def paths(src: str, dst: str, controller: str, as_json: bool) -> None:
    """The candidate paths between two hosts, by their addresses, in the order in which packets take them.

    \b
    Example:
      sopa paths 10.0.0.2 10.2.0.2
    """
    body = ask(controller, "/paths", src=src, dst=dst)
    if as_json:
        click.echo(json.dumps(body))
        return
    title = (
        f"{src} to {dst}: {body['kind']}, {len(body['candidates'])} of {body['total']} paths, version {body['version']}"
    )
    table = Table("turn", "up", "option word", "way", title=title, title_justify="left")
    for turn, path in enumerate(body["candidates"]):
        table.add_row(str(turn), ", ".join(map(str, path["up"])) or "-", path["option"], " ".join(path["hops"]))
    for path in body["excluded"]:
        table.add_row("-", ", ".join(map(str, path["up"])) or "-", "", f"excluded: {path['reason']}")
    Console(highlight=False).print(table)


def ask(controller: str, path: str, **params: str) -> Any:
    """The controller's answer to a GET below ``/sopa/v1``; ends the command with a clear message if there is none."""
    url = f"{controller.rstrip('/')}/sopa/v1{path}"
    try:
        response = httpx.get(url, params=params, timeout=10, trust_env=False)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        fail(f"no answer from {url}: {error}. Is the controller running there? (--controller URL)")
    try:
        body = response.json()
    except ValueError:
        fail(f"{url} is not a SOPA controller: it answers {response.status_code} {response.reason_phrase}")
    if response.status_code != 200:
        fail(str(body.get("detail", response.reason_phrase)))
    return body
