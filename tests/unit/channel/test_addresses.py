"""The order in which clients ask several URLs, their pauses, and how often they ping."""

import random
from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sopa_ryu.channel import addresses
from sopa_ryu.channel.addresses import Addresses, Loss, ordered
from tests.helpers.golden import Script, Step, each_script
from topologies import FatTree

RELAYS = [f"http://192.0.2.{number}:8080" for number in range(31, 35)]


@given(st.permutations(RELAYS), st.integers(2, 254))
def test_the_order_is_the_clients_whatever_the_options_order(urls: list[str], last: int) -> None:
    client = f"10.0.0.{last}"
    assert ordered(urls, client) == ordered(RELAYS, client)
    assert sorted(ordered([*urls, *urls], client)) == RELAYS
    more = ordered([*urls, "http://192.0.2.99:8080"], client)  # moves only those that it gets
    assert [url for url in more if url in RELAYS] == ordered(RELAYS, client)


def test_the_hosts_of_a_fabric_spread_evenly_and_those_of_a_relay_that_dies_do_too() -> None:
    clients = [str(FatTree(24).ip(host)) for host in FatTree(24).hosts()]
    orders = [ordered(RELAYS, client) for client in clients]
    fair = len(clients) / len(RELAYS)
    first = Counter(order[0] for order in orders)
    assert all(0.9 * fair < first[url] < 1.1 * fair for url in RELAYS)
    then = Counter(order[1] for order in orders if order[0] == RELAYS[0])
    assert len(then) == 3
    assert all(0.85 * first[RELAYS[0]] / 3 < count < 1.15 * first[RELAYS[0]] / 3 for count in then.values())


class Client:
    """A client of so many URLs in a fabric of so many hosts: what it asks next, when at the latest, and how long it waits."""

    def handle(self, step: Step) -> str:
        times = int(step.options.pop("times", "1"))
        return "\n".join(getattr(self, "do_" + step.command)(*step.words, **step.options) for _ in range(times))

    def do_client(self, count: str, hosts: str = "0") -> str:
        jitter = SimpleNamespace(uniform=lambda low, high: high)
        self.its, self.hosts = Addresses(RELAYS[: int(count)], "10.0.0.2", jitter), int(hosts)  # type: ignore[arg-type]  # jitter of a constant
        return self._asks(0.0)

    def do_rejected(self) -> str:
        return self._loses(Loss("rejected"))

    def do_silent(self) -> str:
        return self._loses(Loss("silent", error=TimeoutError()))

    def do_lost(self, seconds: str) -> str:
        """Let a channel be lost that was open for so long."""
        return self._loses(Loss("lost", float(seconds)))

    def _loses(self, loss: Loss) -> str:
        return self._asks(self.its.lost(loss, self.hosts)[0])

    def _asks(self, delay: float) -> str:
        when = f"in {delay:g} s" if delay else "now"
        return f"asks {self.its.urls.index(self.its.url)} {when}, for {self.its.open_seconds(self.hosts):g} s"


@each_script(__file__, "addresses")
def test_script(script: Script) -> None:
    script.play(Client().handle)


@given(st.integers(0, 100_000))
def test_pings_are_bounded_for_the_controller_and_dead_channels_for_the_agents(hosts: int) -> None:
    every, patience = addresses.ping_seconds(hosts), addresses.patience_seconds(hosts)
    assert addresses.MIN_PING_SECONDS <= every <= addresses.MAX_PING_SECONDS
    assert every == addresses.MAX_PING_SECONDS or hosts / every <= addresses.PINGS_A_SECOND * (1 + 1e-9)
    assert every + patience <= 10.0


def test_no_url_is_an_error() -> None:
    with pytest.raises(ValueError, match="needs the URL"):
        Addresses([], "10.0.0.2", random.Random(1))
