"""What REST needs of a cluster: who leads, for reports, and for requests that only the leader may answer. Pure.

`sopa_ryu.cluster.leadership` implements `ClusterControl`. It is not imported here: a controller without a cluster loads none of it.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Protocol

from sopa_ryu.channel.protocol import LEADER_HEADER
from sopa_ryu.rest.operations import Problem

RETRY_SECONDS = 1
ALONE = "this controller is of no cluster: it was started without --sopa-cluster"


class UndecidedError(RuntimeError):
    """A change that was not made, because the engine does not answer or another member leads by now; the text says which."""


class ClusterControl(Protocol):
    """A member of a cluster, as REST, page and metrics use it."""

    @property
    def is_leader(self) -> bool:
        """Whether this member leads: only then it may change anything."""

    def leader_url(self) -> str | None:
        """Return the URL of the leader's REST, without a path; None while nobody leads."""

    def report(self) -> dict[str, Any]:
        """Return the body of ``GET /cluster``."""

    def step_down(self) -> None:
        """Give up the leadership, so that another member takes it; `UndecidedError` if this member does not lead any more."""


def in_short(cluster: ClusterControl) -> dict[str, Any]:
    """Return the field ``cluster`` of ``GET /fabric``."""
    report = cluster.report()
    return {
        "role": "leader" if cluster.is_leader else "standby",
        "term": report["term"],
        "leader": report["leader"],
    }


def for_page(cluster: ClusterControl) -> dict[str, Any]:
    """Return what the page says of a cluster: `in_short`, the members that are away, and whether etcd answers."""
    report = cluster.report()
    away = [member["name"] for member in report["members"] if member["role"] == "away"]
    return {**in_short(cluster), "away": away, "engine": report["engine"]["reachable"]}


def check_leads(cluster: ClusterControl | None, request_path: str) -> None:
    """Raise `Problem` if another member has to answer a request that changes something: 307 to the leader, or 503 without one.

    Args:
        request_path: Path and query, as the client has sent them.
    """
    if cluster is None or cluster.is_leader:
        return
    url = cluster.leader_url()
    if url is None:
        raise undecided("no member leads the cluster now: nothing has changed")
    detail = f"this controller stands by: the leader is at {url}, send the request there"
    raise Problem(HTTPStatus.TEMPORARY_REDIRECT, detail, {"Location": url.rstrip("/") + request_path})


def check_takes_channels(cluster: ClusterControl | None) -> None:
    """Raise `Problem` (409) if this member stands by: agents and the arbiter need the leader, or a relay."""
    if cluster is None or cluster.is_leader:
        return
    url = cluster.leader_url()
    where = f"the leader is at {url}" if url is not None else "no member leads the cluster now"
    raise Problem(HTTPStatus.CONFLICT, f"this controller stands by: {where}", {LEADER_HEADER: url or ""})


def undecided(text: str) -> Problem:
    """Return the problem of a change that was not made, and may be asked for again soon."""
    return Problem(HTTPStatus.SERVICE_UNAVAILABLE, f"{text}; try again", {"Retry-After": str(RETRY_SECONDS)})
