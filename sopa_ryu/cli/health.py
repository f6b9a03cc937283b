"""``sopa health``: loss and delay of links, by probes."""

from __future__ import annotations

import click

from sopa_ryu.cli.client import Body, Controller, with_controller
from sopa_ryu.cli.output import BAD, add, json_option, new_table, present, show

SHOWN = 64
"""Links without loss that are listed; --json has all."""


@click.command()
@click.option("--suspects", is_flag=True, help="List only links that are suspect.")
@with_controller
@json_option
def health(controller: Controller, suspects: bool, as_json: bool) -> None:
    """Show what probes say of the links between switches: loss in each direction, delay, and which are suspect.

    Agents probe the paths between racks, and the controller finds the links that explain what was lost. A suspect has a
    certainty: the probability that it is this link and no other. --sopa-suspect of the controller says what follows.

    \b
    Examples:
      sopa health
      sopa health --suspects
      sopa health --json | jq '.links[] | select(.suspect)'

    \b
    Exit status:
      0   no link is suspect
      1   no answer
      2   wrong usage
      3   a link is suspect
    """
    body = controller.listing("/health?suspects=1" if suspects else "/health", "links")
    present(body, as_json, [link for link in body["links"] if _is_bad(link)], _show)


def _is_bad(link: Body) -> bool:
    return bool(link["suspect"] or link["action"])


def _show(body: Body) -> None:
    click.echo(in_short(body))
    links = sorted(body["links"], key=lambda link: (not _is_bad(link), -_worst(link)))
    shown = [link for link in links if _is_bad(link)] + [link for link in links if not _is_bad(link)][:SHOWN]
    if not shown:
        return
    table = new_table("link", "loss up", "loss down", "delay", "", right=("loss up", "loss down", "delay"))
    for link in shown:
        delay = None if link["delay_us"] is None else f"{link['delay_us']:.0f} us"
        loss = (_percent(link["loss"][way]) for way in ("up", "down"))
        add(table, link["name"], *loss, delay, _note(link), style=BAD if _is_bad(link) else None)
    show(table)
    if len(shown) < len(links):
        click.echo(f"and {len(links) - len(shown)} more: sopa health --json")


def in_short(body: Body) -> str:
    """Return one line about all links."""
    if not body["probing"]:
        return "no agent probes paths: links are not judged"
    waits = "" if body["running"] else "; the estimator has found nothing out yet: if that lasts, see the controller's log"
    found = f"{body['suspects']} suspect" if body["suspects"] else "none suspect"
    unknown = body.get("unknown") if body["running"] else None
    unseen = f", {unknown} unknown (no probe crosses them)" if unknown else ""
    return f"{body['probing']} hosts probe {body['streams']} paths, {found}{unseen} (policy {body['policy']}){waits}"


def _note(link: Body) -> str:
    notes = [link["action"]] if link["action"] else []
    if link["suspect"]:
        certainty = "above 99.9%" if link["confidence"] > 0.999 else f"{link['confidence']:.1%}"
        notes.append(f"suspect, certainty {certainty}, reported by {link['hosts']} hosts")
    return ", ".join(notes)


def _worst(link: Body) -> float:
    return max(link["loss"]["up"] or 0.0, link["loss"]["down"] or 0.0)


def _percent(share: float | None) -> str | None:
    if share is None:
        return None
    return f"{share:.3%}" if share >= 1e-5 else "0"
