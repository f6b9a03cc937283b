"""The agent's options: a controller's address that cannot be one is refused with a line that says what to write."""

from __future__ import annotations

from ipaddress import IPv4Address
from urllib.parse import parse_qs, urlsplit

from sopa_ryu.agent.agent_options import Options
from sopa_ryu.agent.mcs import McsOptions
from sopa_ryu.channel import mcs
from sopa_ryu.channel.mcs import ChannelKind, Variant

HOST = IPv4Address("10.0.0.2")


def test_the_channels_url_says_the_policy() -> None:
    url = "http://127.0.0.1:8080"
    plain = Options((url,))
    scattering = Options((url,), mcs=McsOptions(4, ChannelKind.PORTS))
    assert plain.channel(HOST, url).endswith("?carrier=mac&policy=round-robin&probes=1")
    assert scattering.channel(HOST, url).endswith("?carrier=mac&policy=mcs&mcs=1&channel-kind=ports&probes=1")
    assert mcs.requested(parse_qs(urlsplit(scattering.channel(HOST, url)).query)) == ("mcs", Variant(1, "ports"))
