"""The engine's nodes: which one is asked, signing in, and what a failed request means."""

from __future__ import annotations

import logging
import ssl

from sopa_ryu.cluster import gateway
from sopa_ryu.cluster.address import Access, Endpoint, EngineAddress
from sopa_ryu.cluster.connections import Connections
from sopa_ryu.cluster.gateway import Answer, Request
from sopa_ryu.cluster.stream import Stream
from sopa_ryu.cluster.troubles import HINTS, EngineError, Kind, Trouble
from sopa_ryu.runtime.listeners import SparingLog

LOG = logging.getLogger("sopa.cluster")
_WORST = (Kind.REFUSED, Kind.FULL, Kind.NO_QUORUM, Kind.MALFORMED, Kind.UNREACHABLE)
"""Which of several nodes' problems says most."""

OTHER_ENGINE = "correct the engine's address; if the engine was made anew or restored, restart this process"

Troubles = list[tuple[Endpoint, Trouble]]


class Nodes:
    """The nodes of the engine. One of them is asked as long as it answers.

    Args:
        timeout: Seconds to connect, and to sign in.

    Raises:
        EngineError: If files for TLS cannot be read.
    """

    def __init__(self, address: EngineAddress, access: Access, timeout: float) -> None:
        self._name, self._all = address.name, address.endpoints
        self._access, self._timeout = access, timeout
        self._tls = _tls(access)
        self._connections = Connections(self._tls)
        self._present = 0
        self._token: str | None = None  # "" if the engine has no users enabled
        self._cluster = 0
        self._known: set[Endpoint] = set()  # they were asked which engine they belong to
        self._say = SparingLog(LOG).warning
        self._streams: set[Stream] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._all)

    @property
    def present(self) -> Endpoint:
        """The node that is asked now."""
        return self._all[self._present]

    def leave(self, node: Endpoint, why: str) -> None:
        """Ask the next node from now on."""
        self._known.discard(node)
        if self._closed or self.present != node or len(self._all) == 1:
            return  # another thread was faster
        self._present = (self._present + 1) % len(self._all)
        self._say(f"{node} {why}", "engine: %s: %s; %s is asked from now on", node, why, self.present)

    def close(self) -> None:
        """Close all connections; streams end."""
        self._closed = True
        for stream in tuple(self._streams):
            stream.close()
        self._connections.close()

    # -- requests -------------------------------------------------------------------------------------------------------

    def ask_any(self, request: Request, seconds: float, absent: bool = False) -> Answer | None:
        """Ask one node after another.

        Args:
            seconds: Limit for each node.
            absent: Return None if the request's lease does not exist.

        Raises:
            EngineError: If none answers, or one may have done what must not be done twice.
        """
        troubles: Troubles = []
        first = self._present
        for index in range(first, first + len(self._all)):
            node = self._all[index % len(self._all)]
            answer = self.ask(node, request, seconds)
            if isinstance(answer, Answer):
                return answer
            if answer.no_lease and absent:
                return None
            troubles.append((node, answer))
            if answer.kind == Kind.FULL:  # which is true of all
                break
            self.leave(node, answer.text)
            if answer.perhaps_done and not request.repeatable:
                raise failure(troubles, unknown=True)
        raise failure(troubles)

    def ask(self, node: Endpoint, request: Request, seconds: float) -> Answer | Trouble:
        """Ask one node, with a new token if it wants one; a write is not the first that it is asked."""
        if not request.repeatable and node not in self._known:
            told = self.ask(node, gateway.count(self._name), seconds)
            if isinstance(told, Trouble):
                return told._replace(perhaps_done=False)
        problem = self.sign_in(node)
        if problem is not None:
            return problem
        answer = self._post(node, request, seconds)
        if isinstance(answer, Trouble) and answer.sign_in and self._access.user is not None:
            self.forget_token()
            return self.sign_in(node) or self._post(node, request, seconds)
        return answer

    def stream(self, node: Endpoint, request: Request) -> Stream:
        """Return the stream that answers a request, or raise `TroubleError`; `discard` it afterwards."""
        stream = Stream(node, request, gateway.headers(self._token or ""), self._tls, self._timeout)
        self._streams.add(stream)
        return stream

    def discard(self, stream: Stream) -> None:
        """Close a stream."""
        self._streams.discard(stream)
        stream.close()

    def other(self, cluster: int) -> Trouble | None:
        """Return what is wrong if a node belongs to another engine than those before: two of them would have two leaders."""
        self._cluster = self._cluster or cluster
        if cluster == self._cluster:
            return None
        return Trouble(
            Kind.REFUSED,
            f"it belongs to another engine (cluster id {cluster:x}) than the nodes before it ({self._cluster:x})",
            perhaps_done=True,
            hint=OTHER_ENGINE,
        )

    # -- users ----------------------------------------------------------------------------------------------------------

    @property
    def has_user(self) -> bool:
        """True if the nodes are asked as a user, with a token."""
        return self._access.user is not None

    def forget_token(self) -> None:
        """Sign in before the next request."""
        self._token = None

    def sign_in(self, node: Endpoint) -> Trouble | None:
        """Get a token if there is a user and none yet; return what went wrong."""
        access = self._access
        if access.user is None or access.password_file is None or self._token is not None:
            return None
        try:
            password = access.password_file.read_text().partition("\n")[0]
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            return Trouble(Kind.REFUSED, f"the password cannot be read from {access.password_file}: {why}")
        answer = self._post(node, gateway.sign_in(access.user, password), self._timeout)
        if isinstance(answer, Answer):
            self._token = gateway.token_of(answer)
            return None
        if answer.no_users:
            LOG.warning(
                "the engine has no users enabled: every client that reaches it can write; enable them by `etcdctl auth enable`; "
                "the password of %s is not used",
                access.user,
            )
            self._token = ""
            return None
        return answer._replace(perhaps_done=False, sign_in=False)

    def _post(self, node: Endpoint, request: Request, seconds: float) -> Answer | Trouble:
        if self._closed:
            return Trouble(Kind.UNREACHABLE, "this client was closed")
        response = self._connections.post(node, request, gateway.headers(self._token or ""), seconds)
        if isinstance(response, Trouble):
            return response
        answer = gateway.answer(response.status, response.content)
        if isinstance(answer, Trouble):
            return answer
        problem = self.other(answer.cluster)
        if problem is not None:
            return problem
        self._known.add(node)
        return answer


def failure(troubles: Troubles, unknown: bool = False) -> EngineError:
    """Return the error that says what is wrong with each node, and what to do."""
    worst = min((trouble for _, trouble in troubles), key=lambda trouble: _WORST.index(trouble.kind))
    kind, hint = worst.kind, worst.hint or HINTS[worst.kind]
    nodes = "; ".join(f"{node}: {trouble.text}" for node, trouble in troubles)
    perhaps = " (whether it was written is not known)" if unknown else ""
    late = any(trouble.late for _, trouble in troubles)
    return EngineError(f"engine: {kind}{perhaps}: {nodes}; {hint}", kind, unknown, late, cause=f"{kind}: {worst.text}")


def _tls(access: Access) -> ssl.SSLContext | None:
    if not access.tls:
        return None
    try:
        context = ssl.create_default_context(cafile=access.ca)
        if access.cert is not None:
            context.load_cert_chain(access.cert, access.key)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(str(file) for file in (access.ca, access.cert, access.key) if file is not None)
        raise EngineError(f"{files} cannot be used for TLS with the engine: {error}", Kind.REFUSED) from error
    return context
