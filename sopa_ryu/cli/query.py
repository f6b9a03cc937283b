"""``sopa status``, ``paths``, ``failures``, ``wiring``, ``agents`` and the lists of the plan: queries of a controller over REST."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NoReturn

import click

from sopa_ryu.cli.client import Body, Controller, Refused, between, shown, with_controller
from sopa_ryu.cli.common import at_clock, fabric_of, fail
from sopa_ryu.cli.health import in_short
from sopa_ryu.cli.names import elements
from sopa_ryu.cli.names import hosts as host_names
from sopa_ryu.cli.output import BAD, PENDING, add, json_option, new_table, present, show

SHOWN = 8  # failures, or switches that are not connected, in one line
PROTOCOLS = {"icmp": 1, "tcp": 6, "udp": 17, "icmp6": 58}


@click.command()
@with_controller
@json_option
def status(controller: Controller, as_json: bool) -> None:
    """Show the state of the fabric and what has failed.

    \b
    Examples:
      sopa status
      sopa status --controller http://192.0.2.1:8080
      sopa status --json | jq .version
      sopa status >/dev/null && echo all is well

    \b
    Exit status:
      0   every switch is connected and set up right, nothing has failed, is drained or suspect, gateways, a cluster's
          leader and the arbiter are there, and every host has an agent, once one has, that follows
      1   no answer
      2   wrong usage
      3   otherwise
    """
    body = controller.get("/fabric")
    if body.get("cluster", {}).get("role") == "standby" and controller.ask_leader():
        body = controller.get("/fabric")
    wrong = body.get("troubles", body["failures"] or body["missing"])  # a controller of before has no such field
    present(body, as_json, wrong, partial(_fabric, None if as_json else shown(_health(controller))))


def _health(controller: Controller) -> Body | None:
    """Return what is known of suspect links; None from a controller of before probes."""
    try:
        return controller.get("/health", suspects=1)
    except Refused:
        return None


def _fabric(health: Body | None, body: Body) -> None:
    total, missing = sum(body["switches"].values()), body["missing"]
    what = f"fat-tree      k={body['k']}" if body["k"] is not None else f"fabric        {fabric_of(body).title}"
    ipv6 = f", IPv6 {body['prefix6']}" if "prefix6" in body else ""
    click.echo(f"{what}, {total} switches, {body['hosts']} hosts, carrier {body['carrier']}{ipv6}")
    has_switches = not body.get("no_switches")
    if has_switches:
        click.echo(f"connected     {body['connected']} of {total} switches")
    else:
        click.echo("switches      none is this controller's: what is excluded is by hosts and drains")
    if (cluster := body.get("cluster")) is not None:
        who = f"{cluster['leader']} leads" if cluster["leader"] is not None else "no member leads: nothing new is decided"
        click.echo(f"cluster       {who}; a {cluster['role']} answers, term {cluster['term']}: sopa cluster")
    waits = "" if body["settled"] else " (waiting for switches before it reports failures)"
    click.echo(f"version       {body['version']}{waits}")
    named = [f"{failure['kind']} {failure['name']} {failure['reason']}" for failure in body["failures"]]
    click.echo(f"failures      {_some(named, body['failures_total'], 'sopa failures') or 'none'}")
    if body.get("troubles"):
        click.echo(f"not well      {'; '.join(each['text'] for each in body['troubles'])}")
    if has_switches:
        click.echo(f"BFD           {body['bfd']['detail']}")
        click.echo(f"set-up        {body['setup']['detail']}")
    if health is not None and health["probing"]:
        click.echo(f"probes        {in_short(health)}")
        for link in [link for link in health["links"] if link["suspect"]][:SHOWN]:
            click.echo(f"suspect       {link['name']} loses packets: sopa health --suspects")
    for problem in body["setup"]["problems"][:SHOWN]:
        click.echo(f"wrong         {problem['switch']}: {problem['problem']}. Mend: {problem['mend']}")
    for gateway in body.get("gateways", ()):
        if gateway["away"]:
            click.echo(f"gateway       {gateway['name']} is away, others have its flows: {gateway['away']}")
    if "arbiter" in body:
        click.echo(f"arbiter       {_arbiter(body['arbiter'])}")
    if missing:
        click.echo(f"missing       {_some(missing, len(missing), 'sopa status --json')}")
    if body["no_channel"]:
        forwarding = _some(body["no_channel"], len(body["no_channel"]), "sopa status --json")
        click.echo(f"no channel    {forwarding}: forwarding by the rules they have; check the management network")
    if body["management"]["fault"]:
        click.echo(f"management    {body['management']['detail']}: no path is withdrawn for that")
    for rejected in body["rejected"]:
        click.echo(f"ignored       {rejected['dpid']}: {rejected['reason']}")


def _arbiter(arbiter: Body) -> str:
    if not arbiter["connected"]:
        return f"gone, it was at {arbiter['peer']}: hosts of policy cfr send without slots once their leases end"
    reports = arbiter["reports"]
    text = f"connected from {arbiter['peer']}, term {arbiter['term']}"
    if "participants" in reports:
        text += (
            f"; {reports['participants']} hosts take part, slots of {reports.get('slot_ms', 0):g} ms, "
            f"leases of {reports.get('lease_ms', 0)} ms, load {reports.get('load', 0):.0%}, "
            f"{reports.get('granted_cells', 0)} granted, {reports.get('late_batches', 0)} batches late, "
            f"{reports.get('rejected_datagrams', 0)} datagrams rejected"
        )
    return text


def _some(names: list[str], total: int, rest: str) -> str:
    first = names[:SHOWN]
    return ", ".join(first) + (f" and {total - len(first)} more: {rest}" if total > len(first) else "")


def protocol_of(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    """Return the number of a protocol that is given by name or number."""
    if value is None:
        return None
    if value.lower() in PROTOCOLS:
        return PROTOCOLS[value.lower()]
    if not (value.isascii() and value.isdigit()) or int(value) > 255:
        raise click.BadParameter(f"{value!r} is not a protocol: {', '.join(PROTOCOLS)}, or a number from 0 to 255")
    return int(value)


@click.command()
@click.argument("src", required=False, shell_complete=host_names)
@click.argument("dst", required=False, shell_complete=host_names)
@click.option("--without", multiple=True, metavar="NAME", shell_complete=elements,
              help="What if this link or switch were drained, too? May be repeated. Without SRC and DST: the whole "
              "fabric.")  # fmt: skip
@click.option(
    "--packets", type=click.IntRange(1, 10_000), metavar="N", help="Show the path of each of the first N packets of a flow."
)
@click.option("--protocol", metavar="P", callback=protocol_of,
              help="The flow's protocol: tcp, udp, icmp, icmp6, or a number. TCP by default.")  # fmt: skip
@click.option("--sport", type=click.IntRange(0, 65535), metavar="PORT",
              help="The flow's source port. Without ports, the first packet takes the first path.")  # fmt: skip
@click.option("--dport", type=click.IntRange(0, 65535), metavar="PORT", help="The flow's destination port.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), metavar="N",
              help="The --seed of the sending host's agent. 1 by default, like the agent's.")  # fmt: skip
@with_controller
@json_option
def paths(
    controller: Controller,
    src: str | None,
    dst: str | None,
    without: tuple[str, ...],
    packets: int | None,
    protocol: int | None,
    sport: int | None,
    dport: int | None,
    seed: int | None,
    as_json: bool,
) -> None:
    """Show the candidate paths between two hosts, given by name or by addresses of one family, in round-robin order.

    Where links have different rates, or some are absent, failed or drained, paths may have different shares of a flow's packets.
    Then the column "weight" says which.

    \b
    Examples:
      sopa paths h0_0_2 h2_1_3
      sopa paths 10.0.0.2 10.2.1.3
      sopa paths h0_0_2 h2_1_3 --packets 8 --sport 40000 --dport 5201
      sopa paths h0_0_2 h2_1_3 --without c0_0      what if c0_0 were drained
      sopa paths --without c0_0                    the same for the whole fabric: pairs without a path, capacity left

    \b
    Exit status:
      0   no path is excluded (without SRC and DST: no pair of racks loses its last path)
      1   no answer, or no such host
      2   wrong usage
      3   a path is excluded: an element on it has failed or is drained (a pair of racks loses its last path)
    """
    if src is None and without:
        show_impact(controller, without, as_json)
    if src is None or dst is None:
        raise click.UsageError(f"Missing argument '{'SRC' if src is None else 'DST'}'.")
    flow = {"protocol": protocol, "sport": sport, "dport": dport, "seed": seed}
    if packets is None and any(value is not None for value in flow.values()):
        raise click.UsageError("--protocol, --sport, --dport and --seed describe the flow of --packets: give --packets too")
    body = controller.get("/paths", src=src, dst=dst, packets=packets, without=",".join(without) or None, **flow)
    title = f"{between(src, dst)}: {body['kind']}, {len(body['candidates'])} of {body['total']} paths, version {body['version']}"
    present(body, as_json, body["excluded"], partial(_packets if packets else _candidates, title))


def show_impact(controller: Controller, names: Sequence[str], as_json: bool) -> NoReturn:
    """Print what the fabric would be left with; the exit status is 3 if a pair of racks loses its last path."""
    body = controller.get("/impact", without=",".join(names))
    lost = (body["left"]["pairs_without_path"] or 0) > (body["now"]["pairs_without_path"] or 0)
    present(body, as_json, lost, impact)


def impact(body: Body) -> None:
    """Print what the fabric is left with: as planned, now, and without some elements, if any are named."""
    columns = {"planned": "planned", "now": "now", **({"left": f"without {', '.join(body['without'])}"} if body["without"] else {})}
    table = new_table("", *columns.values(), wrap=(columns.get("left", ""),))
    its = [body[name] for name in columns]
    add(table, "pairs of racks without a path", *(each["pairs_without_path"] for each in its))
    add(table, "racks cut off", *(", ".join(each["cut_off"]) or "none" for each in its))
    add(table, "fewest paths of a pair", *(each["fewest_paths"] for each in its))
    unit = "Mbit/s" if body["in_mbit"] else "links"
    add(table, "between two halves, at most", *(each["bisection"] and f"{each['bisection']:g} {unit}" for each in its))
    for level in its[0]["oversubscription"]:
        add(table, f"oversubscription, {level}", *(_oversubscribed(each["oversubscription"].get(level)) for each in its))
    show(table)
    if body["hosts_without_agent"]:
        click.echo(f"{body['hosts_without_agent']} hosts have no agent (sopa agents --missing): switches lead their packets around")


def _oversubscribed(worst: Body | None) -> str | None:
    if worst is None:
        return None
    return f"nothing above {worst['switch']}" if worst["ratio"] is None else f"{worst['ratio']:g} at {worst['switch']}"


def _candidates(title: str, body: Body) -> None:
    click.echo(title)
    weighted = len({path["weight"] for path in body["candidates"]}) > 1
    kind, label = ("uSIDs", "usids") if any("usids" in path for path in body["candidates"]) else ("label", "option")
    columns = ("path", "up", kind, *(("weight",) if weighted else ()), "switches")
    table = new_table(*columns, right=("path", "weight"), wrap=("switches",))
    for turn, path in enumerate(body["candidates"]):
        weight = (f"{path['weight']:.1%}",) if weighted else ()
        add(table, turn, _up(path), path.get(label), *weight, " ".join(path["hops"]))
    for path in body["excluded"]:
        reason = f"excluded: {path['reason']}"
        add(table, None, _up(path), None, *((None,) if weighted else ()), reason, style=BAD)
    show(table)


def _packets(title: str, body: Body) -> None:
    click.echo(title)
    table = new_table("packet", "path", "up", "label", "switches", right=("packet", "path"), wrap=("switches",))
    for number, turn in enumerate(body["packets"], 1):
        path = body["candidates"][turn]
        add(table, number, turn, _up(path), path["option"], " ".join(path["hops"]))
    show(table)


def _up(path: Body) -> str:
    return ", ".join(map(str, path["up"])) or "-"


@click.command()
@with_controller
@json_option
def failures(controller: Controller, as_json: bool) -> None:
    """List failed and drained elements, with the remaining hold-down of restored ones.

    \b
    Examples:
      sopa failures
      sopa failures --json | jq -r '.failures[].name'

    \b
    Exit status:
      0   nothing has failed or is drained
      1   no answer
      2   wrong usage
      3   something has failed or is drained
    """
    body = controller.listing("/failures", "failures")
    if as_json or not body["failures"]:
        present(body, as_json, body["failures"], _failures)
    try:
        body["impact"] = controller.get("/impact")
    except Refused:
        body["impact"] = None  # a relay, or a controller of before, has none
    present(body, as_json, body["failures"], _failures)


def drain_text(drain: Body) -> str:
    """Return who has drained an element, why, and until when, as far as that is known."""
    until = "" if drain["until"] is None else f"until {at_clock(drain['until'])}"
    return "; ".join(filter(None, (drain["actor"] and f"drained by {drain['actor']}", drain["reason"], until)))


def _failures(body: Body) -> None:
    if not body["failures"]:
        click.echo("nothing has failed")
        return
    table = new_table("name", "kind", "reason", "since", "back in use in", "", right=("back in use in",), wrap=("",))
    common = {link: group["switch"] for group in body.get("groups", ()) for link in group["links"]}
    for group in body.get("groups", ()):
        add(table, group["switch"], "switch", f"its {len(group['links'])} links have failed: look at it", style=BAD)
    for failure in body["failures"]:
        held = failure.get("held_seconds")
        style = PENDING if held is not None or failure["reason"] == "drained" else BAD
        since, drain, rack = failure.get("since"), failure.get("drain"), failure.get("rack")
        common_to = f"of {common[failure['name']]}" if failure["name"] in common else ""
        notes = (drain_text(drain) if drain else common_to, rack and f"rack {rack}")
        add(table, failure["name"], failure["kind"], failure["reason"], since and at_clock(since), _seconds(held),
            "; ".join(filter(None, notes)), style=style)  # fmt: skip
    show(table)
    if body["impact"] is not None:
        impact(body["impact"])


@click.command()
@with_controller
@json_option
def wiring(controller: Controller, as_json: bool) -> None:
    """List the links whose cabling differs from the plan.

    LLDP probes detect cables that lead to another port of the fabric (swapped), to an unknown device (foreign), or nowhere
    (missing).

    \b
    Exit status:
      0   no link is known to differ
      1   no answer
      2   wrong usage
      3   a link differs from the plan
    """
    body = controller.listing("/wiring", "problems")
    present(body, as_json, body["problems"], _wiring)


def _wiring(body: Body) -> None:
    click.echo(f"{body['right']} of {body['links']} links are as planned, {body['unchecked']} are not checked yet")
    if body["refused"]:
        click.echo(f"links came up with a wrong neighbour {body['refused']} times")
    if body["problems"]:
        table = new_table("link", "problem", "found", wrap=("found",))
        for problem in body["problems"]:
            add(table, problem["link"], problem["kind"], problem["detail"], style=BAD)
        show(table)


@click.command()
@click.option("--missing", is_flag=True, help="List the hosts without an agent instead.")
@with_controller
@json_option
def agents(controller: Controller, missing: bool, as_json: bool) -> None:
    """List the connected agents, with the version that each has in force and its lag.

    Packets of a host without an agent are hashed per flow. --missing lists such hosts. In a cluster those of the leader are
    listed, and those of relays are counted.

    \b
    Examples:
      sopa agents
      sopa agents --missing
      sopa agents --json | jq '.agents[] | select(.lag > 0)'

    \b
    Exit status:
      0   every agent has the current version in force (--missing: every host has an agent)
      1   no answer
      2   wrong usage
      3   an agent is behind, or uses another carrier than the fabric's (--missing: a host has no agent)
    """
    if missing:
        body = controller.listing("/hosts", "hosts")
        without = [host for host in body["hosts"] if not host["agent"]]
        present({**body, "total": len(without), "hosts": without}, as_json, without, _without_agent)
    body = controller.listing("/agents", "agents")
    fabric = controller.get("/fabric")
    others = [agent for agent in body["agents"] if agent["carrier"] not in (None, fabric["carrier"])]
    present(body, as_json, _behind(body) or others, partial(_agents, fabric))


def _behind(body: Body) -> int:
    found: int = body["behind"] + sum(relay["waiting"] for relay in body.get("relays", ()))
    return found


def _agents(fabric: Body, body: Body) -> None:
    relayed = sum(relay["agents"] for relay in body.get("relays", ()))
    at = f", {relayed} of them at relays (sopa cluster)" if relayed else ""
    click.echo(
        f"{body['total'] + relayed} of {fabric['hosts']} hosts have an agent{at}, version {body['version']}; {_behind(body)} behind"
    )
    if any(body["refused"].values()):
        counts = ", ".join(f"{count} {what}" for what, count in body["refused"].items() if count)
        click.echo(f"rejected: {counts} (see the controller's log)")
    if not body["agents"]:
        return
    carrier = fabric["carrier"]
    numbers = ("version", "behind by", "acknowledged after", "last contact")
    table = new_table("host", "address", "from", "carrier", "policy", "sprayed", *numbers, "", right=numbers)
    for agent in body["agents"]:
        took = agent["acknowledged_ms"]
        wrong = agent["carrier"] not in (None, carrier)
        behind = f"{agent['lag']} for {_seconds(agent['lag_seconds'])}" if agent["lag"] else "0"
        notes = [f"the fabric's carrier is {carrier}"] if wrong else []
        notes += [f"{agent['refused']} of its messages were rejected"] if agent["refused"] else []
        notes += [f"it has rejected {agent['refuses']} messages"] if agent["refuses"] else []
        add(table, agent["host"], agent["address"], agent["peer"], agent["carrier"], agent.get("policy"), agent.get("spray"),
            agent["version"], behind, None if took is None else f"{took:.1f} ms", f"{_seconds(agent['last_contact_seconds'])} ago",
            "; ".join(notes),
            style=BAD if wrong or agent["lag"] else None)  # fmt: skip
    show(table)


def _without_agent(body: Body) -> None:
    if not body["hosts"]:
        click.echo("every host has an agent")
        return
    table = new_table("host", "address", "at", "port", right=("port",))
    for host in body["hosts"]:
        add(table, host["name"], host["address"], host["switch"], host["port"])
    show(table)


@click.command()
@with_controller
@json_option
def switches(controller: Controller, as_json: bool) -> None:
    """List the switches of the plan, those that are not well first.

    \b
    Examples:
      sopa switches
      sopa switches --json | jq -r '.switches[] | select(.connected | not).name'

    \b
    Exit status:
      0   every switch is connected, and none has failed or is drained
      1   no answer
      2   wrong usage
      3   otherwise
    """
    body = controller.listing("/switches", "switches")
    present(body, as_json, any(map(_is_unwell, body["switches"])), _switches)


def _is_unwell(switch: Body) -> bool:
    return bool(switch["failure"] or not switch["connected"])


def _switches(body: Body) -> None:
    table = new_table("switch", "level", "datapath id", "address", "rules of version", "", right=("rules of version",))
    for switch in sorted(body["switches"], key=lambda switch: not _is_unwell(switch)):
        note = switch["failure"] or ("" if switch["connected"] else "not connected")
        add(table, switch["name"], switch["level"], switch["dpid"], switch["address"], switch["rules_version"], note,
            style=_style(note))  # fmt: skip
    show(table)


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=elements)
@with_controller
@json_option
def links(controller: Controller, names: tuple[str, ...], as_json: bool) -> None:
    """List links with their traffic: failed and drained ones first, then by load.

    NAME is a link, or a switch or host: its links. Without a name all are listed. "up" is what leaves the lower end. A load is
    the larger direction's share of the capacity, if that is known. Ports are those of the lower and of the upper end.

    \b
    Examples:
      sopa links | head
      sopa links e0_0
      sopa links --json | jq -r '.links[] | select(.failure).name'

    \b
    Exit status:
      0   none of these links has failed or is drained
      1   no answer, or no such link, switch or host
      2   wrong usage
      3   otherwise
    """
    body = controller.listing("/links", "links")
    if names:
        try:
            own = {name: controller.aliases.own(name) for name in names}
        except ValueError as error:
            fail(str(error))
        of = {name: [link for link in body["links"] if its in (link["name"], *_ends(link))] for name, its in own.items()}
        if absent := [name for name, its in of.items() if not its]:
            fail(f"no link is {absent[0]}, and none leads to it: give a link, switch or host, such as e0_0-a0_0, e0_0 or h0_0_2")
        body["links"] = list({link["name"]: link for its in of.values() for link in its}.values())
        body["total"] = len(body["links"])
    present(body, as_json, any(link["failure"] for link in body["links"]), _links)


def _ends(link: Body) -> tuple[str, str]:
    return link["lower"]["name"], link["upper"]["name"]


def _load(link: Body) -> float | None:
    """Return the share of the capacity that the larger direction takes."""
    rates, capacity = (link["up_bits_per_second"], link["down_bits_per_second"]), link["capacity_bits_per_second"]
    return max(rates) / capacity if capacity and None not in rates else None


def _turn(link: Body) -> tuple[bool, float, float]:
    return not link["failure"], -(_load(link) or 0), -(link["up_bits_per_second"] or 0)


def _links(body: Body) -> None:
    numbers = ("up", "down", "capacity", "load")
    table = new_table("link", "ports", *numbers, "", right=numbers)
    for link in sorted(body["links"], key=_turn):
        ports = ", ".join(str(link[end]["port"] or "-") for end in ("lower", "upper"))
        bits = (link[f"{what}_bits_per_second"] for what in ("up", "down", "capacity"))
        rates = (each if each is None else _rate(each) for each in bits)
        load = _load(link)
        add(table, link["name"], ports, *rates, load if load is None else f"{load:.0%}", link["failure"] or "",
            style=_style(link["failure"]))  # fmt: skip
    show(table)


def _rate(bits: float) -> str:
    for size, unit in ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
        if bits >= size:
            return f"{bits / size:.4g} {unit}"
    return f"{bits:.0f} bit/s"


def _style(failure: str | None) -> str | None:
    return (PENDING if failure == "drained" else BAD) if failure else None


@click.command()
@with_controller
@json_option
def hosts(controller: Controller, as_json: bool) -> None:
    """List the hosts of the plan: addresses, where each is attached, and whether it has an agent.

    \b
    Examples:
      sopa hosts
      sopa hosts | grep 10.2.1.3

    \b
    Exit status:
      0   every host has an agent
      1   no answer
      2   wrong usage
      3   a host has none: sopa agents --missing lists only those
    """
    body = controller.listing("/hosts", "hosts")
    present(body, as_json, any(not host["agent"] for host in body["hosts"]), _hosts)


def _hosts(body: Body) -> None:
    ipv6 = any("address6" in host for host in body["hosts"])
    addresses = ("address", *(("IPv6 address",) if ipv6 else ()))
    table = new_table("host", *addresses, "MAC address", "at", "port", "agent", "", right=("port",))
    for host in body["hosts"]:
        its = [host[key] for key in ("address", "address6") if key in host]
        add(table, host["name"], *its, host["mac"], host["switch"], host["port"], "yes" if host["agent"] else "no",
            "gateway" if host.get("gateway") else "", style=None if host["agent"] else BAD)  # fmt: skip
    show(table)


@click.command()
@with_controller
@json_option
def drains(controller: Controller, as_json: bool) -> None:
    """List what is drained: since when, by whom, why, and until when.

    \b
    Examples:
      sopa drains
      sopa drains --json | jq -r '.drains[]' | xargs sopa restore

    \b
    Exit status:
      0   nothing is drained
      1   no answer
      2   wrong usage
      3   something is drained
    """
    body = controller.listing("/drains", "drains")
    present(body, as_json, body["drains"], _drains)


def _drains(body: Body) -> None:
    if not body["drains"]:
        click.echo("nothing is drained")
        return
    table = new_table("name", "since", "by", "until", "reason", wrap=("reason",))
    for name in body["drains"]:
        its = body.get("details", {}).get(name, {})  # a controller of before has none
        since, until = its.get("since"), its.get("until")
        add(table, name, since and at_clock(since), its.get("actor") or None, until and at_clock(until), its.get("reason", ""))
    show(table)


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f} s"
