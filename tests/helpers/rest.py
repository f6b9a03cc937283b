"""The REST interface on a fabric that is only a state, request by request without a server."""

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012
from webob import Response

from sopa_ryu.channel.messages import FlowLabels
from sopa_ryu.fabric.state import FabricState
from sopa_ryu.rest.access import Tokens
from sopa_ryu.rest.answers import request_of
from sopa_ryu.rest.application import RestApplication
from tests.helpers.stub_fabric import StubFabric
from tests.models.front import FrontInMemory
from topologies import Clos, FatTree


class Rest:
    """The interface of a fabric, all of whose switches have been heard or none, and requests to it.

    Attributes:
        directory: The files with tokens.
    """

    def __init__(
        self,
        directory: Path,
        tree: Clos | None = None,
        fabric: type[StubFabric] = StubFabric,
        *,
        host_tokens_only: bool = False,
        read_token: bool = False,
        heard: bool = True,
    ) -> None:
        self.directory = directory
        self.state = FabricState(tree or FatTree(4), epoch=1)
        for switch in self.state.tree.switches() if heard else ():
            self.state.switch_heard(switch, {}, 0)
        self.state.settle(0)
        self.fabric = fabric(self.state)
        tokens = Tokens(directory, host_tokens_only=host_tokens_only, read_token=read_token)
        self.application = RestApplication(self.fabric, tokens)
        self.front = FrontInMemory(self.fabric, tokens, self.application)

    def secret(self, name: str) -> str:
        """Return what a file of tokens has: ``token`` (the operators'), ``agent-token`` or ``agent-secret``."""
        return (self.directory / name).read_text().strip()

    def ask(
        self,
        method: str,
        path: str,
        body: Any = b"",
        *,
        authorization: str | None = "operator",
        peer: str = "192.0.2.9",
        **headers: str,
    ) -> Response:
        """Send a request, below ``/sopa/v1/`` unless its path begins with a slash; names of headers have underscores.

        ``authorization`` is the header, None for none; "operator" stands for the operators' token.
        """
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if authorization is not None:
            operator = f"Bearer {self.secret('token')}"
            headers["Authorization"] = operator if authorization == "operator" else authorization
        target = path if path.startswith("/") else f"/sopa/v1/{path}"
        if headers.get("Upgrade"):
            headers |= {"Connection": "Upgrade", "Sec-WebSocket-Key": "A" * 22 + "==", "Sec-WebSocket-Version": "13"}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = [(name.lower(), value) for name, value in ({"Host": "localhost"} | headers).items()]
        return self.front.ask(request_of(method, target, named, data, peer, "http", "HTTP/1.1"))

    def get(self, path: str, **more: Any) -> Response:
        """Send a GET request without a token."""
        return self.ask("GET", path, authorization=None, **more)

    def check(self, body: Any, schema: str) -> None:
        """Check an answer by a schema of the interface's document, such as ``Trace``."""
        document = self.get("/openapi.json").json
        registry: Registry[Any] = Registry().with_resource("urn:sopa", DRAFT202012.create_resource(document))
        validator = Draft202012Validator({"$ref": f"urn:sopa#/components/schemas/{schema}"}, registry=registry)
        validator.validate(body)


def problem(response: Response) -> dict[str, Any]:
    """Check that an answer is a problem document (RFC 9457), and return it."""
    assert response.content_type == "application/problem+json"
    body: dict[str, Any] = response.json
    assert set(body) == {"type", "title", "status", "detail"}
    assert body["status"] == response.status_int
    return body


def refused(response: Response, status: int, text: str = "") -> None:
    """Check that an answer is a problem document with a status and a text."""
    assert problem(response)["status"] == status, response.body
    assert text in response.json["detail"]


def flow_labels(text: str) -> FlowLabels:
    """Read how a script writes an agent's labels of a flow: policy, exactness, length and labels."""
    policy, exact, length, *labels = text.split()
    return FlowLabels(policy, exact == "exact", int(length), tuple((int(it[0]), int(it[2])) for it in labels))
