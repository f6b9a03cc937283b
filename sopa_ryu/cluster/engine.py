"""The engine, etcd, as controllers use it: blocking, for green threads and for threads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import TypeVar

from sopa_ryu.cluster import gateway
from sopa_ryu.cluster.address import NO_ACCESS, Access, Endpoint, EngineAddress, check_access
from sopa_ryu.cluster.gateway import Answer, Condition, Contents, HistoryGone, Kept, Request, WatchReader, Written
from sopa_ryu.cluster.nodes import Nodes, Troubles, failure
from sopa_ryu.cluster.troubles import HINTS, LATE, LATE_HINT, EngineError, Kind, Trouble, TroubleError

__all__ = ["Access", "Condition", "Contents", "Engine", "EngineAddress", "EngineError", "Kept", "Kind", "Written"]

T = TypeVar("T")

LOG = logging.getLogger("sopa.cluster")

MAX_QUIET_SECONDS = 0.5
"""After so long without a change a watch asks its node whether it still has a quorum."""


class Engine:
    """A client of the engine. It stays with one node while that answers, and goes on with the next one otherwise.

    All methods raise `EngineError`. Several threads may use one client.

    Args:
        timeout: Seconds in which a node has to answer. What may be repeated is asked of each node once, so that a call takes at
            most as many times as long as there are nodes; renewals of leases wait half as long for each.

    Attributes:
        granted: Seconds for which the last lease was granted; etcd's least is a bit more than its election timeout.

    Raises:
        AddressError: If a certificate is given without its key, or a user without a password.
        EngineError: If files for TLS cannot be read.
    """

    def __init__(self, address: EngineAddress, access: Access = NO_ACCESS, timeout: float = 1.0) -> None:
        check_access(access)
        self.address = address
        self.granted = 0
        self._name = address.name
        self._timeout = timeout
        self._nodes = Nodes(address, access, timeout)
        self._closed = False

    # -- leases ---------------------------------------------------------------------------------------------------------

    def grant(self, seconds: int, patience: float | None = None) -> int:
        """Return a new lease; `granted` says for how long it is, ``patience`` how long a node may take, as for `write`."""
        lease, self.granted = _understood(gateway.lease_of, self._ask(gateway.grant(seconds), patience))
        return lease

    def renew(self, lease: int) -> bool:
        """Renew a lease; return False if it is gone."""
        answer = self._nodes.ask_any(gateway.renewal(lease), self._timeout / 2, absent=True)
        return answer is not None and _understood(gateway.renewed, answer)

    def revoke(self, lease: int) -> None:
        """End a lease, with its keys; one that is gone is no error."""
        self._nodes.ask_any(gateway.revocation(lease), self._timeout, absent=True)

    # -- keys -----------------------------------------------------------------------------------------------------------

    def read(self, patience: float | None = None) -> Contents:
        """Return all keys of the cluster. No write that was answered is missing: a slow one holds this up."""
        answer = self._ask(gateway.all_keys(self._name), patience)
        return _understood(partial(gateway.contents_of, name=self._name), answer)

    def write(
        self,
        puts: Mapping[str, str],
        unless: Sequence[Condition] = (),
        lease: int = 0,
        deletes: Sequence[str] = (),
        seconds: float | None = None,
    ) -> Written | None:
        """Write and delete keys together.

        Args:
            unless: All must hold.
            lease: For those of the keys that end with their writer (`records.leased`).
            seconds: How long a node may take, if not as long as for other requests: a slow disk makes writes slow.

        Returns:
            None if a condition did not hold or the lease is gone: nothing was written.

        Raises:
            EngineError: If `EngineError.unknown`, it may have been written, or may still be, also after a later write: one that
                must not be undone like that compares the key's revision (`Condition.modified`).
        """
        request = gateway.transaction(self._name, puts, unless, lease, deletes)
        answer = self._nodes.ask_any(request, seconds or self._timeout, absent=True)
        return None if answer is None else gateway.written(answer)

    def watch(self, revision: int) -> Iterator[Contents]:
        """Yield the changes after a revision, until an error or `close`.

        An empty one comes first, and whenever nothing has changed for `MAX_QUIET_SECONDS`: then the node has just shown that it has
        a quorum. Where the engine has no history back to the revision, or went back behind it, all keys come (`Contents.whole`).

        Raises:
            EngineError: If no node serves the watch.
        """
        troubles: Troubles = []
        signed_in_anew = False
        while not self._closed:
            node = self._nodes.present
            try:
                with closing(self._changes(node, revision)) as changes:
                    for number, contents in enumerate(changes):
                        if number:  # it was more than accepted
                            troubles.clear()
                            signed_in_anew = False
                        revision = contents.revision
                        yield contents
            except HistoryGone:
                LOG.warning(
                    "the engine has no changes after revision %d, or went back behind it: all keys are read anew",
                    revision,
                )
                contents = self.read()
                revision = contents.revision
                yield contents
            except TroubleError as error:
                if self._closed:
                    return
                if error.trouble.sign_in and self._nodes.has_user and not signed_in_anew:
                    signed_in_anew = True
                    self._nodes.forget_token()
                    continue
                troubles.append((node, error.trouble))
                if len(troubles) >= len(self._nodes):
                    raise failure(troubles) from error
                self._nodes.leave(node, error.trouble.text)

    def close(self) -> None:
        """Close all connections; watches end."""
        self._closed = True
        self._nodes.close()

    def _ask(self, request: Request, seconds: float | None = None) -> Answer:
        answer = self._nodes.ask_any(request, seconds or self._timeout)
        assert answer is not None
        return answer

    def _changes(self, node: Endpoint, revision: int) -> Generator[Contents]:
        """Yield what a watch at one node says, and an empty one whenever it was quiet and the node is well."""
        self._look(node, revision)
        stream = self._nodes.stream(node, gateway.watch(self._name, revision))
        try:
            reader = WatchReader(self._name, revision)
            quiet = min(MAX_QUIET_SECONDS, self._timeout / 2)
            while True:
                try:
                    data = stream.receive(quiet if reader.created else self._timeout)
                except TroubleError:
                    reader.ended()
                    raise
                if data is not None:
                    for contents in reader.feed(data):
                        problem = self._nodes.other(reader.cluster)
                        if problem is not None:
                            raise TroubleError(problem)
                        yield contents
                elif reader.created:
                    self._look(node, reader.revision)
                    yield Contents(reader.revision, {})
                else:
                    raise TroubleError(Trouble(Kind.UNREACHABLE, LATE, late=True, hint=LATE_HINT))
        finally:
            self._nodes.discard(stream)

    def _look(self, node: Endpoint, revision: int) -> None:
        """Check that a node has a quorum, which is the condition of its answer, and everything up to a revision."""
        answer = self._nodes.ask(node, gateway.count(self._name), self._timeout / 2)
        if isinstance(answer, Trouble):
            raise TroubleError(answer)
        if answer.revision < revision:
            raise HistoryGone


def _understood(read: Callable[[Answer], T], answer: Answer) -> T:
    try:
        return read(answer)
    except (ValueError, AttributeError, TypeError, KeyError) as error:
        what = f"an answer is not as etcd writes it ({type(error).__name__}: {error})"
        raise EngineError(f"engine: {Kind.MALFORMED}: {what}; {HINTS[Kind.MALFORMED]}", Kind.MALFORMED) from error
