"""What the arbiter's channel has that agents' have not: a term in snapshots, and a report in acknowledgements. Pure.

The controller gives every arbiter that it accepts a higher term, over its own restarts, too: it begins with the controller's epoch,
and an arbiter names the last term that it had, in case the controller's clock was set back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from sopa_ryu.channel import protocol
from sopa_ryu.channel.protocol import ProtocolError
from sopa_ryu.fabric.view import View

CHANNEL = "/sopa/v1/arbiter"
MAX_TERM = (1 << 63) - 1
_COUNT_BITS = 12  # arbiters of an epoch; the epoch has milliseconds, and JSON numbers 53 bits that every reader keeps
REPORTED = {
    "listen": str,
    "slot_ms": float,
    "lease_ms": int,
    "participants": int,
    "load": float,
    "batches": int,
    "late_batches": int,
    "granted_cells": int,
    "unplaced_cells": int,
    "rejected_datagrams": int,
}
"""The fields of an arbiter's report."""
_MAX_TEXT = 60
_MAX_NUMBER = 1 << 63


def next_term(epoch: int, last: int) -> int:
    """Return the term of the arbiter that is accepted next.

    Args:
        epoch: The controller's.
        last: The highest term that the controller knows of; 0 if none.

    >>> next_term(2, 0), next_term(2, 8193), next_term(1, 8194)
    (8193, 8194, 8195)
    """
    return max(epoch << _COUNT_BITS, last) + 1


def query(term: int) -> str:
    """Return the query of an arbiter's request: the last term that it had."""
    return urlencode({"term": term}) if term else ""


def asked_term(values: Mapping[str, list[str]]) -> int:
    """Return the term that a request names; 0 if none, or nothing that could have been one."""
    text = values.get("term", ["0"])[0]
    term = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
    return term if term < MAX_TERM else 0


def snapshot(view: View, term: int) -> str:
    """Return the message that brings an arbiter to a version, and tells its term."""
    return protocol.snapshot(view, None, None, term)


def term_of(text: str | bytes) -> int | None:
    """Return the term of a message that was received; None if it has none, `ProtocolError` if it is malformed."""
    message = json.loads(text)
    if message.get("type") != "snapshot":
        return None
    term = message.get("term")
    if isinstance(term, bool) or not isinstance(term, int) or not 0 < term <= MAX_TERM:
        raise ProtocolError(f"term is no number from 1 on: {term!r:.60}")
    return term


def ack(view: View | None, refused: int, report: Mapping[str, Any]) -> str:
    """Return an arbiter's acknowledgement, with its report."""
    return json.dumps({**json.loads(protocol.ack(view, refused)), "report": dict(report)})


def report_of(text: str | bytes) -> dict[str, Any]:
    """Return the fields of the report in an arbiter's message that are of the expected type and size."""
    try:
        report = json.loads(text).get("report")
    except (ValueError, AttributeError, RecursionError):
        return {}
    if not isinstance(report, dict):
        return {}
    return {name: report[name] for name, kind in REPORTED.items() if name in report and _is(report[name], kind)}


def _is(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return False
    if kind is str:
        return isinstance(value, str) and len(value) <= _MAX_TEXT and value.isprintable()
    numbers = (int, float) if kind is float else (int,)
    return isinstance(value, numbers) and 0 <= value < _MAX_NUMBER
