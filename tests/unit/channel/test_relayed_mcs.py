"""Messages of relays and their leader about hosts that run MCS; what follows from them, test_push_channel.py shows."""

from __future__ import annotations

import pytest

from sopa_ryu.channel import relayed
from sopa_ryu.channel.mcs_hosts import MAX_IN_SNAPSHOT
from sopa_ryu.channel.relayed_mcs import News
from tests.models.relayed_channels import HOSTS, RelayedChannels, scattering


def test_of_several_messages_to_a_relay_the_last_makes_the_list_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sopa_ryu.channel.relayed_mcs.MAX_HOSTS", 2)
    its = RelayedChannels(2)
    for place, host in enumerate(HOSTS[:6]):
        its.connect(scattering(host), f"r{place % 2}")
    its.pass_seconds(15)
    its.break_off("r1")
    uplink, _ = its.desk.entered("r1", "192.0.2.1", object())
    its.desk.received(uplink, relayed.hosts([]))
    assert uplink in its.desk.bring()
    parts = []
    while (text := its.desk.due(uplink)) is not None:
        parts += [news for news in relayed.read_down(text, len(HOSTS)) if isinstance(news, News)]
    assert [news.complete for news in parts] == [False, False, False, True]
    assert sorted(place for news in parts for places in news.added.values() for place in places) == list(range(6))


def test_a_list_for_all_hosts_of_a_large_fabric_is_none_of_a_snapshot() -> None:
    assert MAX_IN_SNAPSHOT < 27_648
