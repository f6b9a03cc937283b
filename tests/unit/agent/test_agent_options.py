"""The agent's options: a controller's address that cannot be one is refused with a line that says what to write."""

from __future__ import annotations

from ipaddress import IPv4Address
from urllib.parse import parse_qs, urlsplit

import pytest

from sopa_ryu.agent.agent_options import AgentError, Options
from sopa_ryu.agent.mcs import McsOptions
from sopa_ryu.channel import mcs
from sopa_ryu.channel.mcs import ChannelKind, Variant

HOST = IPv4Address("10.0.0.2")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8080",
        "ftp://127.0.0.1",
        "http://",
        "http://[::1",
        "http://127.0.0.1:port",
        "http://127.0.0.1:99999",
    ],
)
def test_a_malformed_controller_url_is_refused_with_what_to_write(url: str) -> None:
    options = Options((url,))

    with pytest.raises(AgentError, match="write http://ADDRESS:8080"):
        options.channel(HOST, url)


@pytest.mark.parametrize(
    ("url", "channel"),
    [
        ("http://127.0.0.1:8080", "ws://127.0.0.1:8080/"),
        ("http://[::1]:8080/", "ws://[::1]:8080/"),
        ("https://controller", "wss://controller/"),
    ],
)
def test_the_channel_follows_the_controllers_scheme(url: str, channel: str) -> None:
    assert Options((url,)).channel(HOST, url).startswith(channel)


def test_the_channels_url_says_the_policy() -> None:
    url = "http://127.0.0.1:8080"
    plain = Options((url,))
    scattering = Options((url,), mcs=McsOptions(4, ChannelKind.PORTS))
    assert plain.channel(HOST, url).endswith("?carrier=mac&policy=round-robin&probes=1")
    assert scattering.channel(HOST, url).endswith("?carrier=mac&policy=mcs&mcs=1&channel-kind=ports&probes=1")
    assert mcs.requested(parse_qs(urlsplit(scattering.channel(HOST, url)).query)) == (
        "mcs",
        Variant(1, "ports"),
    )
