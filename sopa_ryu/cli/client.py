"""The client of a controller's REST interface, with an error message for each way in which a request can fail.

Of several controllers, or a cluster's relays, the first that answers is asked. What changes something is done by the cluster's
leader: another member, or a relay, answers such a request with 307 and the leader's URL. That URL comes from etcd, so the client
sends the token there only if it was given the URL, if both are on its own machine, or by https if it was given the authorities
of the leader's certificate; never over another scheme.

The default token file belongs to this machine's controller. The client sends its token only to a server on this machine that runs
as root or as the file's owner, or over https if --ca-file is given. Any other server that answers 401 does not get it.
"""

from __future__ import annotations

import functools
import os
import re
import ssl
import time
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import click
import httpx

from sopa_ryu.cli.common import fail
from sopa_ryu.rest.operations import ROOT
from sopa_ryu.runtime.clients import is_loopback, normal_origin
from sopa_ryu.runtime.foreign_text import printable
from sopa_ryu.runtime.option_fields import FILE, Command, urls
from topologies.aliases import NONE, Aliases

DEFAULT_URL = "http://127.0.0.1:8080"
DEFAULT_TOKEN_FILE = Path("/var/lib/sopa/token")
TIMEOUT_SECONDS = 10.0
TRIES = 3  # to read a list of several pages that changes while it is read, or to find who leads
REDIRECT_SECONDS = 0.5  # until a member is asked again that named one as leader which is not

Body = dict[str, Any]


class NoAnswer(click.ClickException):
    """No server, or another server than a controller, answers at the URL; exit status 1."""


class Refused(click.ClickException):
    """The controller has rejected the request by a problem document of an HTTP ``status``; exit status 1."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class Controller:
    """A controller's answers; errors end the command with a message.

    Of several URLs the first that answers is asked from then on, and after a change in a cluster the leader's: ``url``. The token
    is sent with write requests, and with reads once one was answered 401. The timeout, in seconds, is that of a connection and of
    each part of an answer.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        token_file: Path | None = None,
        ca_file: Path | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        self._urls = [each.rstrip("/") for each in ([url] if isinstance(url, str) else url)]
        self.url = self._urls[0]
        self._token_file, self._ca_file = token_file, ca_file
        self._reads_need_token = False
        # a proxy in the environment is for other networks, not for a controller
        self._client = httpx.Client(timeout=timeout, trust_env=False, verify=_authorities(self._urls, ca_file))

    def close(self) -> None:
        self._client.close()

    def get(self, path: str, **params: object) -> Body:
        """Return the answer to a GET below ``/sopa/v1``; of a list, the first page."""
        given = {name: str(value) for name, value in params.items() if value is not None}
        return _body(self._request("GET", f"{ROOT}{path}", params=given))

    @functools.cached_property
    def aliases(self) -> Aliases:
        """What operators call the elements of the fabric; nothing of a controller of before, or that does not answer now."""
        try:
            return Aliases.of_listed(self.listing("/names", "names")["names"])
        except (NoAnswer, Refused, KeyError):
            return NONE

    def text(self, path: str) -> bytes:
        """Return the answer to a GET of what is no JSON."""
        return self._checked(self._reach("GET", path)).content

    def ask_leader(self) -> bool:
        """Ask the leader of a cluster from now on; False if it is none of the given controllers, or nobody leads."""
        leading = {member["url"] for member in self.get("/cluster")["members"] if member["role"] == "leader"}
        self.url = next((url for url in self._urls if url in leading), self.url)
        return self.url in leading

    def listing(self, path: str, key: str) -> Body:
        """Return the answer with the whole list ``key`` in it, read page by page."""
        for _ in range(TRIES):
            whole, same = self._pages(path, key)
            if same:
                break
        return whole

    def get_if_changed(self, path: str, etag: str) -> tuple[Body | None, str]:
        """Return the answer, or None if it still has the given ETag, and its ETag."""
        response = self._request("GET", f"{ROOT}{path}", headers={"If-None-Match": etag} if etag else {})
        if response.status_code == httpx.codes.NOT_MODIFIED:
            return None, etag
        return _body(response), response.headers.get("ETag", "")

    def change(self, method: str, path: str, name: str, **params: object) -> Body:
        """Return the answer to a PUT or DELETE of the resource ``name``, with the token."""
        given = urlencode({name: value for name, value in params.items() if value is not None})
        return self.send(method, f"{path}/{quote(name, safe='')}{given and '?'}{given}")

    def send(self, method: str, path: str, body: Body | None = None) -> Body:
        """Return the answer to a POST with a body, or a DELETE, with the token."""
        return _body(self._request(method, f"{ROOT}{path}", json=body))

    def _pages(self, path: str, key: str) -> tuple[Body, bool]:
        response = self._request("GET", f"{ROOT}{path}")
        whole, same = _body(response), True
        while "next" in response.links:
            following = response.url.join(response.links["next"]["url"])
            response = self._checked(self._ask("GET", str(response.url.copy_with(raw_path=following.raw_path))))
            page = _body(response)
            same = same and all(page.get(what) == whole.get(what) for what in ("version", "epoch", "total"))
            whole[key] += page[key]
        return whole, same

    def _request(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Ask the first controller that answers, and the cluster's leader if that names it."""
        for tries in range(TRIES):
            if tries:
                time.sleep(REDIRECT_SECONDS)
            asked = response = self._reach(method, path, **more)
            if response.status_code == httpx.codes.TEMPORARY_REDIRECT:
                leader = self._leader(response)
                response = self._ask(method, leader + path, **more)
                if response.status_code == httpx.codes.TEMPORARY_REDIRECT:
                    continue  # it leads no more, or not yet
                self.url = leader  # it alone knows what came of it, as of a trace
            return self._checked(response)
        return self._checked(asked)

    def _reach(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Ask one controller after the other until one answers; what may have been done is not asked for again."""
        silent: NoAnswer | None = None
        for url in dict.fromkeys([self.url, *self._urls]):
            try:
                response = self._ask(method, url + path, **more)
            except NoAnswer as error:
                silent = silent or error
                if method != "GET" and not isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout):
                    raise
            else:
                self.url = url
                return response
        assert silent is not None
        raise silent

    def _leader(self, response: httpx.Response) -> str:
        """Return the URL of the leader that an answer names; `Refused` if the token may not be sent there."""
        named = response.headers.get("Location", "")
        try:
            leader = _origin(named)
        except ValueError:
            leader = ""
        if not leader or not self._may_have_token(leader, response.url):
            text = (
                f"{self.url} names {printable(leader or named, 100) or 'nothing'} as the leader, which is none of the given URLs: "
                "the token is not sent there. If a controller of yours is there, add its URL: --controller URL, or SOPA_CONTROLLER"
            )
            raise Refused(text, response.status_code)
        return leader

    def _may_have_token(self, leader: str, asked: httpx.URL) -> bool:
        parts = urlsplit(leader)
        if parts.scheme != asked.scheme:
            return False
        is_here = is_loopback(parts.hostname or "") and is_loopback(asked.host)
        return is_here or leader in map(_origin, self._urls) or (parts.scheme == "https" and self._ca_file is not None)

    def _ask(self, method: str, url: str, **more: Any) -> httpx.Response:
        """Ask one controller; a read has the token once it gives nobody an answer without."""
        headers = more.pop("headers", {})
        if method == "GET" and not self._reads_need_token:
            response = self._send(method, url, headers=headers, **more)
            if response.status_code != httpx.codes.UNAUTHORIZED or not self._authorization(url):
                return response
            self._reads_need_token = True
        return self._send(method, url, headers=headers | self._authorization(url), **more)

    def _send(self, method: str, url: str, **more: Any) -> httpx.Response:
        base = url.partition(ROOT)[0]
        try:
            return self._client.request(method, url, **more)
        except httpx.ConnectError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise NoAnswer(
                    f"the certificate at {base} cannot be trusted: {error}. Name the authority that signed it: "
                    "--ca-file FILE, or SOPA_CA_FILE"
                ) from error
            raise NoAnswer(_silence(base, error)) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise NoAnswer(_silence(base, error)) from error

    def _checked(self, response: httpx.Response) -> httpx.Response:
        """Return an answer, unless it is a problem document, or not a controller's."""
        if response.status_code in (httpx.codes.OK, httpx.codes.ACCEPTED, httpx.codes.NOT_MODIFIED):
            return response
        detail = _detail(response)
        if detail is None:
            raise NoAnswer(f"{self.url} is not a SOPA controller: it answers {response.status_code}")
        if response.status_code == httpx.codes.UNAUTHORIZED:
            detail = self._unauthorized(detail)
        raise Refused(detail, response.status_code)

    def _authorization(self, url: str) -> dict[str, str]:
        token = self._token() if self._token_file is not None or self._is_ours(url) else None
        return {} if token is None else {"Authorization": f"Bearer {token}"}

    def _is_ours(self, url: str) -> bool:
        """Tell whether this machine's controller answers at a URL, as far as that can be known without asking."""
        parts = urlsplit(url)
        if parts.scheme == "https" and self._ca_file is not None:
            return True
        try:
            listen = _listeners(parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
            return bool(listen) and listen <= {0, DEFAULT_TOKEN_FILE.stat().st_uid}
        except (OSError, ValueError):  # it has no such file, or the URL has a name
            return False

    def _token(self) -> str | None:
        """Return the token; None if no file is given and the default one cannot be read."""
        file = self._token_file or DEFAULT_TOKEN_FILE
        if self._token_file is None and not os.access(file, os.R_OK):
            return None
        try:
            token = file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it contains characters that no token has"
            fail(f"the token cannot be read from {file}: {why} (--token-file FILE, or SOPA_TOKEN_FILE)")
        if not token:
            fail(f"{file} is empty: copy the controller's token to it")
        return token

    def _unauthorized(self, detail: str) -> str:
        has_default = os.access(DEFAULT_TOKEN_FILE, os.R_OK)
        if self._token_file is not None or (has_default and self._is_ours(self.url)):
            sent = f"the token in {self._token_file or DEFAULT_TOKEN_FILE} is not this controller's"
        elif has_default:
            sent = (
                f"no token was sent: {DEFAULT_TOKEN_FILE} is for this machine's controller, which does not answer at {self.url}. "
                "If it is for that one, too, name it by --token-file FILE, or SOPA_TOKEN_FILE"
            )
        else:
            sent = "no token was sent: give its file by --token-file FILE, or SOPA_TOKEN_FILE"
            if DEFAULT_TOKEN_FILE.parent.exists() and os.geteuid() != 0:
                sent += f", or use sudo (root can read {DEFAULT_TOKEN_FILE})"
        return f"{sent}. The controller says: {detail}"


def _listeners(host: str, port: int) -> set[int]:
    """Return the users whose sockets listen at an address of this machine (proc_net_tcp(5)); `ValueError` if it is a name."""
    addresses = {ip_address(each) for each in (("127.0.0.1", "::1") if host == "localhost" else (host,))}
    users = set()
    for table in Path("/proc/net").glob("tcp*"):
        for line in table.read_text(encoding="ascii").splitlines()[1:]:
            _, local, _, state, _, _, _, user, *_ = line.split()
            words, number = local.split(":")
            if state == "0A" and int(number, 16) == port:
                address = ip_address(b"".join(bytes.fromhex(words[at : at + 8])[::-1] for at in range(0, len(words), 8)))
                if address in addresses or (address.is_unspecified and any(each.is_loopback for each in addresses)):
                    users.add(int(user))
    return users


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return normal_origin(f"{parts.scheme}://{parts.netloc}")


def _silence(url: str, error: Exception) -> str:
    text = str(error) or type(error).__name__
    hint = "Is the controller running there? (--controller URL, or SOPA_CONTROLLER)"
    if "WRONG_VERSION_NUMBER" in text:
        hint = "The controller does not use TLS there: write http:// instead of https://"
    elif "Server disconnected" in text or "reset by peer" in text or "EOF occurred" in text:
        hint = "If the controller uses TLS there, write https:// instead of http://"
        if urlsplit(url).scheme == "https":  # a server may reset the connection before its answer to the handshake is read
            hint = "If the controller does not use TLS there, write http:// instead of https://"
    return f"no answer from {url}: {text}. {hint}"


def _authorities(urls: Sequence[str], ca_file: Path | None) -> ssl.SSLContext | bool:
    if all(urlsplit(url).scheme != "https" for url in urls):
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        fail(f"the authorities cannot be read from {ca_file}: {error} (--ca-file FILE, or SOPA_CA_FILE)")


def _detail(response: httpx.Response) -> str | None:
    """Return the detail of a problem document; None if the answer is not one."""
    try:
        return str(response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return None


def _body(response: httpx.Response) -> Body:
    try:
        body = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise NoAnswer(f"{response.url.copy_with(query=None)} is not a SOPA controller's: the answer is not a JSON object")
    return body


def _completed(url: str, tls: bool) -> str:
    """Return the URL of what may be an address alone, such as ``192.0.2.1``: without authorities to trust it is no https URL."""
    if not re.fullmatch(r"(?!/)(\[[\w:.%]+\]|[\w.-]+)(:\d+)?", url):
        return url
    scheme, port = "https" if tls else "http", urlsplit(DEFAULT_URL).port
    return f"{scheme}://{url}" if re.search(r":\d+$", url) else f"{scheme}://{url}:{port}"


def _urls(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    tls = ctx.params.get("ca_file") is not None
    given = tuple(_completed(url, tls) for url in urls(ctx, param, values))
    for value in given:
        try:
            parts = urlsplit(value)
            right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
        except ValueError:
            right = False
        if not right:
            raise click.BadParameter(f"{value!r} is not a controller's URL, such as http://192.0.2.1:8080")
    return given


_URL_OPTION = click.option("--controller", "url", multiple=True, default=[DEFAULT_URL], show_default=True,
                           envvar="SOPA_CONTROLLER", show_envvar=True, metavar="URL", callback=_urls,
                           help="The controller's URL, or its address alone. May be repeated for a cluster's controllers or "
                           "relays. The first that answers is asked. Changes go to the leader, if it is one of them.")  # fmt: skip
_TOKEN_OPTION = click.option("--token-file", envvar="SOPA_TOKEN_FILE", show_envvar=True, type=FILE, metavar="FILE",
                             help="The operator token, which drain, restore and trace require, and with --sopa-read-token every "
                             "command. It is a copy of the file token in the controller's --sopa-state-dir, or one of sopa "
                             f"token --operator. For this machine's controller, by default {DEFAULT_TOKEN_FILE}.")  # fmt: skip
_CA_OPTION = click.option("--ca-file", is_eager=True, envvar="SOPA_CA_FILE", show_envvar=True, type=FILE, metavar="FILE",
                          help="The authorities, in PEM, that are trusted to sign the certificate of an https URL. "
                          "The system's by default.")  # fmt: skip


def shown(value: Any) -> Any:
    """Return what is to be printed, a text or an answer, with its alias behind each own name, by the command's controller."""
    controller = click.get_current_context().meta.get(__name__)
    return value if controller is None else controller.aliases.shown(value)


def between(src: str, dst: str) -> str:
    """Return the ends of a path for a title: own names, and their aliases."""
    aliases = click.get_current_context().meta[__name__].aliases
    return str(aliases.within(f"{aliases.own(src)} to {aliases.own(dst)}"))


def with_controller(command: Command) -> Command:
    """Add the options that locate the controller to a command, and pass the `Controller` as its first argument."""

    @functools.wraps(command)
    def connected(url: tuple[str, ...], token_file: Path | None, ca_file: Path | None, **rest: Any) -> Any:
        controller = click.get_current_context().meta[__name__] = Controller(url, token_file, ca_file)
        try:
            return command(controller, **rest)
        finally:
            controller.close()

    for option in (_CA_OPTION, _TOKEN_OPTION, _URL_OPTION):
        connected = option(connected)
    return connected  # type: ignore[return-value]
