"""``sopa watch`` and ``sopa events``: failures and recoveries as they happen, and what has happened before."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime

import click

from sopa_ryu.cli.client import Body, Controller, NoAnswer, Refused, shown, with_controller
from sopa_ryu.cli.common import Time, fabric_of
from sopa_ryu.cli.names import elements
from sopa_ryu.cli.output import BAD, GOOD, PENDING

EVERY_SECONDS = 1.0
CONFIRM_SECONDS = 3.0
"""How long the line of a version waits for the confirmation of agents and switches."""
ABOUT = ("epoch", "settled", "connected", "missing", "rejected", "bfd")
"""Fields of the fabric whose change makes a line; the others change with the version."""


@click.command()
@click.option("--last", type=click.IntRange(0), default=10, show_default=True, metavar="N",
              help="Begin with the last N versions.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@with_controller
def watch(controller: Controller, last: int, as_json: bool) -> None:
    """Follow failures and recoveries, a line for each version of the fabric, until Ctrl-C.

    A line has what failed and what healed. It has the milliseconds until the last agent acknowledged the version, and until the
    last switch confirmed its rules (installed). The command continues across restarts of the controller and times without an
    answer.

    With --json each line has an "event". "fabric" has the body of GET /sopa/v1/fabric. "change" has an item of GET
    /sopa/v1/changes with the "epoch" of the controller that made it. "unreachable" has a "detail".

    \b
    Examples:
      sopa watch
      sopa watch --last 0 --json | jq -c 'select(.event == "change") | .failed'

    \b
    Exit status:
      0   ended by Ctrl-C
      1   no answer when it was started
      2   wrong usage
    """
    follow = FeedFollower(controller, _print_json if as_json else _print_line, last)
    try:
        follow.look()
        while True:
            time.sleep(EVERY_SECONDS)
            follow.look_again()
    except KeyboardInterrupt:
        if not as_json:
            click.echo()  # behind the terminal's ^C


@click.command()
@click.option("--since", type=Time(), default="1d", show_default=True, metavar="TIME",
              help="Events from then on: 30m, 1h or 2d ago, 18:00, or 2026-11-27T06:00.")  # fmt: skip
@click.option("--element", metavar="NAME", shell_complete=elements, help="Only events of this link, switch or host.")
@click.option("--follow", is_flag=True, help="Go on with events as they happen, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@with_controller
def events(controller: Controller, since: float, element: str | None, follow: bool, as_json: bool) -> None:
    """Show what has happened, the oldest first: failures, healings, drains, switches, agents, leaders, refusals.

    A line has the time, what it was, the element, why, and by whom. Events are kept on the controller's disk, and outlive its
    restarts. In a cluster each member keeps what it has seen: all have the fabric's versions and drains, the leader has the agents.

    \b
    Examples:
      sopa events --since 1h
      sopa events --element a0_0-c0_0 --since 2d
      sopa events --json --since 03:00 | jq -c 'select(.kind == "drained")'

    \b
    Exit status:
      0   all that is known was shown
      1   no answer
      2   wrong usage
    """
    page: Body = {"more": True, "last": 0}
    asked, url = "", controller.url
    try:
        while page["more"] or follow:
            if not page["more"]:
                time.sleep(EVERY_SECONDS)
            try:
                page = controller.get("/events", since=f"{since:.3f}", element=element, after=page["last"])
                asked = ""
            except (NoAnswer, Refused) as error:
                if not (follow and page["last"]):
                    raise
                if not asked:
                    click.secho(f"{_clock(time.time())}  {error.message}", fg=BAD, err=True)
                asked = error.message
                continue
            if controller.url != url:  # another member has other numbers
                page, url = {"more": True, "last": 0}, controller.url
                continue
            for event in page["events"]:
                since = event["at"]
                click.echo(json.dumps(event) if as_json else event_line(shown(event)))
    except KeyboardInterrupt:
        if not as_json:
            click.echo()


def event_line(event: Body) -> str:
    colour = {"failed": BAD, "switch lost": BAD, "refused": BAD, "suspect": BAD, "drained": PENDING}
    colour |= dict.fromkeys(("healed", "cleared", "restored"), GOOD)
    kind = click.style(f"{event['kind']:<16}", fg=colour.get(event["kind"]))
    whose = (("by" if event["kind"] in ("drained", "restored") else "at"), event["actor"])
    more = [event["cause"] or "", " ".join(whose) if event["actor"] and event["kind"] != "leader" else ""]
    more.append("" if event["version"] is None else f"version {event['version']}")
    return f"{_clock(event['at'])}  {kind} {event['element'] or '-':<14} {'; '.join(filter(None, more))}".rstrip()


class FeedFollower:
    """The events of a controller: compares each answer with the one before, and begins with the ``last`` versions."""

    def __init__(self, controller: Controller, report: Callable[[str, Body], None], last: int) -> None:
        self._controller = controller
        self._report = report
        self._last = last
        self._etags = {"/fabric": "", "/changes": ""}
        self._fabric: Body = {}
        self._changes: Body | None = None
        self._reported: tuple[int, int] | None = None  # epoch and version
        self._waiting: dict[int, float] = {}  # since when a version has waited to be confirmed
        self._reachable = True

    def look(self) -> None:
        """Report what is new; raise `NoAnswer` without an answer."""
        fabric, changes = self._ask("/fabric"), self._ask("/changes")
        if changes is not None:
            self._changes = changes
        if self._changes is not None:
            self._report_changes(self._changes)
        if fabric is not None:
            before, self._fabric = self._fabric, fabric
            if not self._reachable or any(fabric.get(what) != before.get(what) for what in ABOUT):
                self._report("fabric", fabric)
        elif not self._reachable:
            self._report("fabric", self._fabric)
        self._reachable = True

    def look_again(self) -> None:
        """Report what is new, or once that there is no answer, or that there is an answer again."""
        try:
            self.look()
        except (NoAnswer, Refused) as error:
            if self._reachable:
                self._report("unreachable", {"detail": error.message})
            self._reachable = False

    def _ask(self, path: str) -> Body | None:
        body, self._etags[path] = self._controller.get_if_changed(path, self._etags[path])
        return body

    def _report_changes(self, body: Body) -> None:
        epoch, changes = body["epoch"], sorted(body["changes"], key=lambda change: change["version"])
        if self._reported is None:
            changes = changes[len(changes) - min(self._last, len(changes)) :]
            self._reported = (epoch, changes[0]["version"] - 1 if changes else body["version"])
        if self._reported[0] != epoch:  # the controller was restarted: versions begin at 1 again
            self._reported = (epoch, 0)
            self._waiting.clear()
        for change in changes:
            version = change["version"]
            if version <= self._reported[1]:
                continue
            if not self._confirmed(change):
                return  # the later ones wait too: lines are in order
            self._report("change", {**change, "epoch": epoch})
            self._reported = (epoch, version)
            self._waiting.pop(version, None)

    def _confirmed(self, change: Body) -> bool:
        acknowledged = change["acknowledged_ms"] is not None or not change["agents"]
        if acknowledged and change["installed_ms"] is not None:
            return True
        since = self._waiting.setdefault(change["version"], time.monotonic())
        return time.monotonic() - since >= CONFIRM_SECONDS


def _print_json(event: str, body: Body) -> None:
    click.echo(json.dumps({"event": event, **body}))


def _print_line(event: str, body: Body) -> None:
    if event == "change":
        failed = {shown(name): reason for name, reason in body["failed"].items()}
        click.echo(change_line({**shown(body), "failed": failed}))
    elif event == "fabric":
        click.echo(f"{_clock(time.time())}  {fabric_text(body)}")
    else:
        click.secho(f"{_clock(time.time())}  {body['detail']}", fg=BAD)


def change_line(change: Body) -> str:
    parts = [click.style(f"{name} {reason}", fg=PENDING if reason == "drained" else BAD)
             for name, reason in change["failed"].items()]  # fmt: skip
    parts += [click.style(f"{name} healed", fg=GOOD) for name in change["healed"]]
    agents = "no agents" if not change["agents"] else f"acknowledged {_ms(change['acknowledged_ms'])}"
    return (
        f"{_clock(change['at'])}  version {change['version']}: {', '.join(parts) or 'no change'}; "
        f"{agents}, installed {_ms(change['installed_ms'])}"
    )


def fabric_text(body: Body) -> str:
    total = sum(body["switches"].values())
    failed = body["failures_total"]
    what = fabric_of(body).title if body["k"] is None else f"k={body['k']}"
    text = f"{what}, version {body['version']}: {body['connected']} of {total} switches connected, "
    text += f"{failed} failed or drained" if failed else "nothing has failed"
    return text if body["settled"] else f"{text}; the controller waits for switches before it reports failures"


def _clock(at: float) -> str:
    moment = datetime.fromtimestamp(at)
    clock = moment.strftime("%H:%M:%S.%f")[:-3]
    return clock if moment.date() == datetime.now().date() else f"{moment.date()} {clock}"


def _ms(value: float | None) -> str:
    return "not yet" if value is None else f"after {value:.1f} ms"
