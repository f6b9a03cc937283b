"""``sopa cluster``: the members of a cluster of controllers, and ``sopa cluster step-down``."""

from __future__ import annotations

import click

from sopa_ryu.cli.client import Body, Controller, with_controller
from sopa_ryu.cli.output import BAD, PENDING, add, json_option, new_table, present, print_json, show


@click.group(invoke_without_command=True)
@with_controller
@json_option
@click.pass_context
def cluster(context: click.Context, controller: Controller, as_json: bool) -> None:
    """Show the members of the cluster, who leads, how far behind the others are, the relays, and whether etcd answers.

    Any member or relay may be asked. A controller without --sopa-cluster is of no cluster.

    \b
    Examples:
      sopa cluster
      sopa cluster --controller http://192.0.2.1:8080 --controller http://192.0.2.2:8080
      sopa cluster --json | jq -r .leader
      sopa cluster step-down                 before maintenance of the leader's machine

    \b
    Exit status:
      0   a member leads, none is away, and etcd answers
      1   no answer, or no cluster
      2   wrong usage
      3   nobody leads, a member is away, or etcd does not answer
    """
    if context.invoked_subcommand is not None:
        return
    body = controller.get("/cluster")
    away = [member for member in body["members"] if member["role"] == "away"]
    present(body, as_json, body["leader"] is None or away or not body["engine"]["reachable"], _cluster)


def _cluster(body: Body) -> None:
    engine = body["engine"]
    leader = f"led by {body['leader']}" if body["leader"] is not None else "without a leader"
    since = "" if engine["reachable"] else ", as of when etcd answered last"
    click.echo(f"cluster       {body['name']}, {leader}, term {body['term']}{since}")
    click.echo(f"etcd          {'answers' if engine['reachable'] else engine['problem'] or 'does not answer'}")
    numbers = "behind by", "switches"
    table = new_table("member", "role", *numbers, "version", "at", right=numbers, wrap=("behind by", "version", "at"))
    for member in body["members"]:
        style = BAD if member["role"] == "away" else PENDING if member["lag"] else None
        add(table, *(member[name] for name in ("name", "role", "lag", "switches", "program", "url")), style=style)
    show(table)
    if body["relays"]:
        counts = "agents", "fabric version", "waiting"
        table = new_table("relay", *counts, "at", right=counts, wrap=(*counts, "at"))
        for relay in body["relays"]:
            style = PENDING if relay["waiting"] else None
            add(table, *(relay[name] for name in ("name", "agents", "version", "waiting", "url")), style=style)
        show(table)


@cluster.command("step-down")
@with_controller
@json_option
def step_down(controller: Controller, as_json: bool) -> None:
    """Let another member lead the cluster, as before maintenance of the leader's machine.

    The leader ends its last commit and gives up its lease. It does not compete for some seconds. Packets, agents and drains are
    not affected. Any member may be asked. This command requires the operator token.

    \b
    Exit status:
      0   the leader has given up
      1   no answer, no token, no cluster, or nobody leads
      2   wrong usage
    """
    body = controller.send("POST", "/cluster/step-down")
    if as_json:
        print_json(body)
    else:
        click.echo(f"the leader of cluster {body['name']} has given up, term {body['term']}; sopa cluster shows who leads")
