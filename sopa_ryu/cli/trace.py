"""``sopa trace``: probes on exact paths, and the way of a flow."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from ipaddress import ip_address
from typing import Any, NoReturn

import click

from flowrules.hashed_way import FiveTuple
from sopa_ryu.channel.messages import MAX_COUNT, MIN_INTERVAL_MS
from sopa_ryu.cli.client import Body, Controller, between, shown, with_controller
from sopa_ryu.cli.common import fabric_of
from sopa_ryu.cli.names import hosts
from sopa_ryu.cli.output import BAD, NOT_RIGHT, add, json_option, new_table, print_json, show
from sopa_ryu.cli.query import protocol_of
from topologies import Clos, Host, Switch

LOOK_SECONDS = 0.25
"""How often the controller is asked what has come back."""
SHOWN_PACKETS = 16
OVS_SECONDS = 10.0
_MOST_HOPS = 8
_WITH_PORTS = {6: "tcp", 17: "udp", 132: "sctp"}
_BY_FAMILY = {4: ("", "ip", "nw"), 6: ("6", "ipv6", "ipv6")}
"""What Open vSwitch appends to a protocol's name, and how it calls the family and its addresses, by the version of IP."""
NO_ANSWER = 1
"""Exit status: all probes on a path were lost."""


class Up(click.ParamType[Any]):
    """The uplinks of a path: ``1,0``."""

    name = "J,I"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        if isinstance(value, list):
            return value
        if not re.fullmatch(r"[0-9]{1,3}(,[0-9]{1,3})?", value):
            self.fail(f"{value!r} is no path: write its uplinks as sopa paths shows them, such as 1,0", param, ctx)
        return [int(hop) for hop in value.split(",")]


@click.command()
@click.argument("src", shell_complete=hosts)
@click.argument("dst", shell_complete=hosts)
@click.option("--up", "ups", type=Up(), multiple=True, metavar="J,I",
              help="Trace this candidate path, by its uplinks as sopa paths shows them. May be repeated.")  # fmt: skip
@click.option("--all", "every", is_flag=True, help="Trace all candidate paths. Without it there may be 64 at most.")
@click.option("--count", type=click.IntRange(1, MAX_COUNT), default=20, show_default=True, metavar="N",
              help="Probes of each path.")  # fmt: skip
@click.option("--interval", type=click.FloatRange(MIN_INTERVAL_MS, 1000), default=10.0, show_default=True, metavar="MS",
              help="Milliseconds from one probe to the next, of all paths together. It is more where links are slow.")  # fmt: skip
@click.option("--flow", is_flag=True, help="Show which way a flow takes, instead: SRC and DST are HOST:PORT, or [IPV6]:PORT.")
@click.option("--protocol", metavar="P", callback=protocol_of,
              help="With --flow: tcp, udp, icmp, icmp6, or a number. TCP by default.")  # fmt: skip
@with_controller
@json_option
def trace(
    controller: Controller,
    src: str,
    dst: str,
    ups: tuple[list[int], ...],
    every: bool,
    count: int,
    interval: float,
    flow: bool,
    protocol: int | None,
    as_json: bool,
) -> None:
    """Send probes on candidate paths between two hosts, and show loss and delay by path and by link.

    The agent of SRC sends them, and that of DST turns them round onto the same switches, so delays are there and back. What a link
    costs follows from the differences between paths. Links that the same paths cross are in one row: no difference tells them
    apart. Rows other than the first show by how much they are slower than the fastest one next to them.

    With --flow, show which links the packets of a flow take. Those of a labelled flow take its paths in turn, from a start of its
    own. A flow that switches hash takes one path. It needs no packets, and no agent for a hashed flow.

    \b
    Examples:
      sopa trace h0_0_2 h2_1_3
      sopa trace 10.0.0.2 10.2.1.3 --up 0,1 --up 1,1 --count 100
      sopa trace --flow h0_0_2:40000 h2_1_3:5201
      sopa trace --flow '[fd53:4f50:4100::2]:40000' '[fd53:4f50:4100:201::3]:5201'
      sopa trace --all h0_0_2 h2_1_3 --json | jq '.links[] | select(.loss > 0)'

    \b
    Exit status:
      0   no links are known to lose probes
      1   no answer on a path, or from the controller; no such host; no agent that can send probes
      2   wrong usage
      3   links lose probes; with --flow: not known for sure, no way, or switches do otherwise
    """
    if flow:
        if ups or every:
            raise click.UsageError("--flow excludes --up and --all: a flow takes the paths that it takes")
        _flow(controller, src, dst, protocol, as_json)
    if protocol is not None:
        raise click.UsageError("--protocol is that of --flow")
    if ups and every:
        raise click.UsageError("--up and --all exclude each other")
    asked: Body = {"src": src, "dst": dst, "all": every, "count": count, "interval_ms": interval}
    body = _followed(controller, asked | ({"up": list(ups)} if ups else {}))
    if as_json:
        print_json(body)
    else:
        _show(between(src, dst), shown(body))
    if body["problem"]:
        click.echo(f"Error: the trace has ended early: {body['problem']}", err=True)
    if body["problem"] or any(path["sent"] and path["lost"] == path["sent"] for path in body["paths"]):
        sys.exit(NO_ANSWER)
    sys.exit(NOT_RIGHT if any(group["loss"] for group in body["links"]) else 0)


def _followed(controller: Controller, asked: Body) -> Body:
    """Begin a trace and follow it to its end; Ctrl-C ends it and leaves what came so far."""
    body, began = controller.send("POST", "/traces", asked), time.monotonic()
    try:
        while body["state"] == "running":
            _progress(body, time.monotonic() - began)
            time.sleep(LOOK_SECONDS)
            body = controller.get(f"/traces/{body['id']}")
    except KeyboardInterrupt:
        body = controller.send("DELETE", f"/traces/{body['id']}")
    finally:
        if sys.stderr.isatty():
            click.echo("\r\033[K", err=True, nl=False)
    return body


def _progress(body: Body, elapsed: float) -> None:
    if not sys.stderr.isatty():
        return
    if "probes" in body:
        # on slow links an agent sends later than it was asked to, so that all probes stay within their share
        decided, probes = body["decided"], body["probes"]
        left = elapsed * (probes - decided) / decided if decided else probes * body["interval_ms"] / 1000
        text = f"{decided} of {probes} probes on {len(body['paths'])} paths, {left:.0f} s left; Ctrl-C ends it"
    else:
        text = "asking the agent"
    click.echo(f"\r\033[K{text}", err=True, nl=False)


def _show(ends: str, body: Body) -> None:
    what = f"{body['decided']} of {body['probes']} probes on {len(body['paths'])} paths, version {body['version']}"
    click.echo(f"{ends}: {body['kind']}, {what}; delays in microseconds, there and back")
    numbers = ("sent", "lost", "out", "back", "min", "median", "p99")
    weighted = len({path["weight"] for path in body["paths"]}) > 1
    columns = ("up", *(("weight",) if weighted else ()), *numbers)
    table = new_table(*columns, "switches", right=columns[1:], wrap=("switches",))
    for path in body["paths"]:
        weight = (f"{path['weight']:.1%}",) if weighted else ()
        cells = (_text(path["up"]), *weight, *_numbers(path), " ".join(path["hops"]))
        add(table, *cells, style=BAD if path["lost"] and path["lost"] == path["sent"] else None)
    show(table)
    click.echo("By difference:")
    table = new_table("paths", "sent", "lost", "loss", *numbers[4:], "links", right=("paths", "loss", *numbers), wrap=("links",))
    for at, group in enumerate(body["links"]):
        delays = [_delay(group[name], added=at > 0) for name in ("min_us", "median_us", "p99_us")]
        loss = f"{group['loss']:.1%}" if group["loss"] else None
        cells = (len(group["paths"]), group["sent"], group["lost"], loss, *delays, " ".join(group["links"]))
        add(table, *cells, style=BAD if group["loss"] else None)
    show(table)
    if body["undecided"]:
        click.echo(f"{body['undecided']} lost probes are too few to say which links lost them: raise --count")
    for path in body["excluded"]:
        click.echo(f"Not traced: {_text(path['up'])}, excluded: {path['reason']}")
    first = body["order"]["paths"][:SHOWN_PACKETS]
    order = " ".join(_text(up) for up in first)
    rest = body["order"]["length"] - len(first)
    click.echo(
        f"A flow's packets take the paths in turn, each flow from a start of its own: {order}{f' and {rest} more' if rest else ''}"
    )


def _numbers(path: Body) -> tuple[Any, ...]:
    delays = (_delay(path[name]) for name in ("min_us", "median_us", "p99_us"))
    return path["sent"], path["lost"], path["lost_out"], path["lost_back"], *delays


def _delay(value: float | None, added: bool = False) -> str | None:
    return None if value is None else f"{'+' if added else ''}{value:.0f}"


def _text(up: list[int]) -> str:
    return ",".join(map(str, up)) or "-"


# -- a flow ---------------------------------------------------------------------------------------------------------------


def _flow(controller: Controller, src: str, dst: str, protocol: int | None, as_json: bool) -> NoReturn:
    (source, sport), (destination, dport) = _ended(src), _ended(dst)
    flow = {"protocol": 6 if protocol is None else protocol, "sport": sport, "dport": dport}
    body = _followed(controller, {"src": source, "dst": destination, "flow": flow})
    flow_answer = body["flow"]
    if flow_answer is None:
        click.echo(f"Error: the agent has not said which way the flow takes: {body['problem'] or 'it was interrupted'}", err=True)
        sys.exit(NO_ANSWER)
    real = None if flow_answer["labelled"] else _asked_here(controller, body)
    if as_json:
        print_json(body if real is None else body | {"switches": real})
    else:
        _show_flow(between(src, dst), shown(body), shown(real))
    way = [*flow_answer["ways"][0]["hops"]] if flow_answer["ways"] else []
    sys.exit(0 if flow_answer["exact"] and way and real in (None, way) else NOT_RIGHT)


def _ended(text: str) -> tuple[str, int]:
    bracketed = re.fullmatch(r"\[(.*)\]:?(.*)", text)
    # without brackets the last group of an IPv6 address is no port
    host, _, port = text.partition(":") if text.count(":") < 2 else (text, "", "")
    host, port = bracketed.groups() if bracketed else (host, port)
    if port and (not port.isdigit() or not port.isascii() or int(port) > 65535):
        raise click.UsageError(f"{text!r} is no HOST:PORT, such as h0_0_2:40000")
    return host, int(port or 0)


def _asked_here(controller: Controller, body: Body) -> list[str] | None:
    """Return the switches of the flow's way by Open vSwitch's own answer; None where it does not run here."""
    tree, flow = fabric_of(controller.get("/fabric")), body["flow"]
    ends = tree.host_called(body["src"]), tree.host_called(body["dst"])
    given = FiveTuple(ip_address(body["src"]), ip_address(body["dst"]), flow["protocol"], flow["sport"], flow["dport"])
    try:
        way = way_of(tree, ends[0], given)
    except NotHereError:
        return None
    return way[:-1] if way[-1] == tree.name(ends[1]) else way


def _show_flow(title: str, body: Body, real: list[str] | None) -> None:
    flow = body["flow"]
    click.echo(
        f"{title}: {body['kind']}, {'labelled' if flow['labelled'] else 'hashed'}, version {body['version']}. {flow['why']}."
    )
    if flow["ways"]:
        table = new_table("way", "up", "share", "links", right=("way", "share"), wrap=("links",))
        for number, way in enumerate(flow["ways"]):
            share = None if way["share"] is None else f"{way['share']:.1%}"
            add(table, number, _text(way["up"]), share, " ".join(way["links"]))
        show(table)
    else:
        click.echo("It has no way: its packets are dropped, or go unlabelled.")
    order = flow["order"]
    if len(order["ways"]) > 1:
        again = f", and again after {order['length']} packets" if order["length"] else ""
        click.echo(f"Its packets take the ways in this order: {' '.join(map(str, order['ways']))}{again}")
    if flow["others"]:
        click.echo(f"Other flows between these hosts may take {len(flow['others'])} other ways.")
    if real is not None:
        right = flow["ways"] and real == flow["ways"][0]["hops"]
        click.echo(f"Open vSwitch on this machine says {'the same' if right else 'otherwise: ' + ' '.join(real)} (ofproto/trace).")


# -- what Open vSwitch on this machine would do with a flow: its own answer (ofproto/trace), where it has the switches ---


class NotHereError(Exception):
    """Open vSwitch on this machine has no such switch, or does not answer."""


def way_of(tree: Clos, src: Host, flow: FiveTuple) -> list[str]:
    """Return the names of the switches that an unlabelled packet crosses, and of the host last.

    The environment's OVS_RUNDIR says which Open vSwitch is asked; `NotHereError` if it lacks one of the switches.
    """
    packet, ports = _packet(tree, src, flow), _ports()
    came_from: Switch | Host = src
    here: Switch | Host = tree.edge_of(src)
    names: list[str] = []
    while isinstance(here, Switch) and len(names) < _MOST_HOPS:
        names.append(tree.name(here))
        said = _appctl("ofproto/trace", tree.name(here), f"in_port={tree.port(here, came_from)},{packet}")
        port = _leaves_by(said, ports.get(tree.name(here), {}))
        if port is None:
            return names
        came_from, here = here, tree.neighbour(here, port)
    return [*names, tree.name(here)]


def _packet(tree: Clos, src: Host, flow: FiveTuple) -> str:
    suffix, family, of = _BY_FAMILY[flow.src.version]
    name = _WITH_PORTS.get(flow.protocol)
    ports = f",{name}_src={flow.sport},{name}_dst={flow.dport}" if name else ""
    kind = f"{name}{suffix}" if name else f"{family},nw_proto={flow.protocol}"
    return f"{kind},dl_src={tree.mac(src)},dl_dst=02:00:00:00:00:01,{of}_src={flow.src},{of}_dst={flow.dst},nw_ttl=64{ports}"


def _ports() -> dict[str, dict[int, int]]:
    """Return by switch the OpenFlow port of each port of the datapath."""
    found: dict[str, dict[int, int]] = {}
    bridge: dict[int, int] = {}
    for line in _appctl("dpif/show").splitlines():
        if head := re.fullmatch(r"  (\S+):\s*", line):
            bridge = found.setdefault(head[1], {})
        elif port := re.match(r"\s+\S+ (\d+)/(\d+):", line):
            bridge[int(port[2])] = int(port[1])
    return found


def _leaves_by(said: str, ports: dict[int, int]) -> int | None:
    """Return the OpenFlow port of the only output in the answer; None for a packet that is dropped."""
    actions = said.rpartition("Datapath actions: ")[2].partition("\n")[0]
    outside = re.sub(r"\([^()]*(\([^()]*\)[^()]*)*\)", "", actions)
    outputs = [int(part) for part in outside.split(",") if part.isdigit()]
    return ports.get(outputs[0]) if outputs else None


def _appctl(*words: str) -> str:
    try:
        done = subprocess.run(["ovs-appctl", *words], capture_output=True, text=True, check=False, timeout=OVS_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotHereError(f"ovs-appctl: {error}") from error
    if done.returncode:
        raise NotHereError(done.stderr.strip() or f"ovs-appctl ended with status {done.returncode}")
    return done.stdout
