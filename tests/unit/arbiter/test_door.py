"""Which datagrams come in as demands, and what is said about the others."""

import logging
from ipaddress import IPv4Address

import pytest

from sopa_ryu.arbiter.door import LOG_NS, DemandDoor
from sopa_ryu.arbiter.schedule import RejectedError
from sopa_ryu.channel.host_tokens import host_token
from sopa_ryu.channel.slots import Demand, Grant, Wanted, write_demand, write_grant

SECRET = "a secret"
HOSTS = [IPv4Address(f"10.0.0.{number}") for number in (2, 3, 4)]
DEMAND = Demand(HOSTS[0], 1, 0, 1, 5, 0, (Wanted(HOSTS[1], 10, 5),))
GRANT = Grant(HOSTS[0], 1, 1, 1000, 100, 0, 4, 0, 0, 0, ())
TOKEN = host_token(SECRET, HOSTS[0])


def door(secret: str | None = SECRET) -> DemandDoor:
    return DemandDoor(secret, HOSTS.__contains__)


def test_a_demand_comes_in_from_its_host_and_from_outside_the_fabric() -> None:
    for sender in ("10.0.0.2", "192.0.2.9", "2001:db8::1"):
        assert door().read(write_demand(DEMAND, TOKEN), sender) == DEMAND
    assert door(None).read(write_demand(DEMAND, ""), "10.0.0.2") == DEMAND


@pytest.mark.parametrize(("datagram", "sender", "reason"), [
    (b"", "10.0.0.2", "malformed"),
    (write_grant(GRANT, TOKEN), "10.0.0.2", "malformed"),
    (write_demand(DEMAND, TOKEN)[:-1], "10.0.0.2", "token"),
    (write_demand(DEMAND, ""), "10.0.0.2", "token"),
    (write_demand(DEMAND, host_token(SECRET, HOSTS[1])), "10.0.0.2", "token"),
    (write_demand(DEMAND, TOKEN), "10.0.0.3", "foreign"),
    (write_demand(DEMAND._replace(host=IPv4Address("10.9.9.9")), TOKEN), "192.0.2.9", "foreign"),
    (write_demand(DEMAND._replace(entries=(Wanted(HOSTS[1], 5, 10),)), TOKEN), "10.0.0.2", "malformed"),
])  # fmt: skip
def test_anything_else_is_rejected_with_its_reason(datagram: bytes, sender: str, reason: str) -> None:
    with pytest.raises(RejectedError) as rejected:
        door().read(datagram, sender)
    assert rejected.value.reason == reason


def test_each_reason_is_logged_at_a_bounded_rate(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    its = door()
    for number in range(1000):
        its.reject(RejectedError("token", "it is forged"), "192.0.2.9", number)
    its.reject(RejectedError("foreign", "it is foreign"), "192.0.2.9", 1000)
    assert len(caplog.records) == 2
    its.reject(RejectedError("token", "it is forged"), "192.0.2.9", LOG_NS + 1)
    assert "999 more of this reason since the last line" in caplog.text
    assert its.rejected["token"] == 1001
