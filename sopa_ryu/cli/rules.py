"""``sopa rules``: the intended and the installed rules of a switch."""

from __future__ import annotations

import re
from functools import partial
from ipaddress import IPv4Network
from typing import Any

import click

from sopa_ryu.cli.client import Body, Controller, with_controller
from sopa_ryu.cli.names import switches
from sopa_ryu.cli.output import BAD, GOOD, add, json_option, new_table, present, show
from topologies.aliases import ALIAS

ETHERTYPES = {0x0800: "ip", 0x0806: "arp", 0x88CC: "lldp"}
# by the state of an entry or group: is it intended, is it installed
STATES = {
    "installed": ("yes", "yes"),
    "missing": ("yes", "NO"),
    "stale": ("NO", "yes"),
    "different": ("yes", "otherwise"),
    "learned": ("learned", "yes"),
}
RIGHT = ("installed", "learned")


@click.command()
@click.argument("switch", shell_complete=switches)
@click.option("--differences", is_flag=True, help="Show only missing, stale and different rules.")
@with_controller
@json_option
def rules(controller: Controller, switch: str, differences: bool, as_json: bool) -> None:
    """Show the intended and the installed flow entries and groups of a switch, with packet counts.

    The controller reads them from the switch. An entry that is intended but not installed is missing. One that is installed but
    not intended is stale. Both are shown in red, with a NO. Learned entries are not a difference.

    \b
    Examples:
      sopa rules e0_0
      sopa rules e0_0 --differences
      sopa rules e0_0 --json | jq '.entries[] | select(.state == "missing")'

    \b
    Exit status:
      0   exactly what is intended is installed
      1   no answer, no such switch, or the switch is not connected
      2   wrong usage
      3   a rule is missing, stale or different
    """
    if not re.fullmatch(ALIAS, switch):  # a name with slashes or dots alone must not become another path
        raise click.BadParameter(f"{switch!r} is not a switch name, such as e0_0", param_hint="SWITCH")
    body = controller.get(f"/switches/{switch}/rules")
    present(body, as_json, not body["right"], partial(_show, differences=differences))


def _show(body: Body, differences: bool) -> None:
    entries = [entry for entry in body["entries"] if not differences or entry["state"] not in RIGHT]
    groups = [group for group in body["groups"] if not differences or group["state"] not in RIGHT]
    wrong = sum(each["state"] not in RIGHT for each in (*body["entries"], *body["groups"]))
    click.echo(
        f"{body['switch']}: {len(body['entries'])} entries and {len(body['groups'])} groups, rules of version "
        f"{body['rules_version']} (the fabric's is {body['version']}); "
        f"{f'{wrong} differ from what is intended' if wrong else 'all as intended'}"
    )
    if entries:
        table = new_table("intended", "installed", "table", "priority", "match", "actions", "packets", "purpose",
                          right=("table", "priority", "packets"), wrap=("match", "actions", "purpose"))  # fmt: skip
        for entry in entries:
            row = (entry["table"], entry["priority"], match_text(entry["match"]), "; ".join(entry["does"]))
            add(table, *STATES[entry["state"]], *row, entry["packets"], entry["purpose"], style=_style(entry["state"]))
        show(table)
    if groups:
        table = new_table("intended", "installed", "group", "first live port of", right=("group",))
        for group in groups:
            ports = ", ".join(map(str, group["ports"]))
            add(table, *STATES[group["state"]], group["id"], ports, style=_style(group["state"]))
        show(table)


def _style(state: str) -> str | None:
    return {"installed": None, "learned": GOOD}.get(state, BAD)


def match_text(match: dict[str, Any]) -> str:
    """Return a match in the form ``ip, in_port=1, ipv4_src=10.0.0.0/24``."""
    parts: list[str] = []
    for field, value in match.items():
        if field == "eth_type":
            parts.insert(0, ETHERTYPES.get(value, f"eth_type={value:#06x}"))
        elif field.startswith("ipv4_") and "/" in str(value):
            parts.append(f"{field}={_prefix(value)}")
        else:
            parts.append(f"{field}={value}")
    return ", ".join(parts) or "any"


def _prefix(text: str) -> str:
    try:
        return str(IPv4Network(text))
    except ValueError:
        return text
