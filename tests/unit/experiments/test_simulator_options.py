"""``--set NAME=VALUE``: each option is read with its unit, and nothing else is."""

import pytest

from experiments.ns3.simulation_options import OPTIONS, OptionError, parse


def test_every_default_is_a_value_of_its_option() -> None:
    for name, option in OPTIONS.items():
        assert option.parse(option.default) is not None, name
        assert option.description


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ((), {}),
        (("spread=1ms",), {"spread": 1_000_000}),
        (("spread=0.5us", "first-path=random"), {"spread": 500, "first-path": "random"}),
        (("slow-start-threshold=65535",), {"slow-start-threshold": 65_535}),
        (("loss-recovery=ns-3.20",), {"loss-recovery": "ns-3.20"}),
        (("hedera-period=0ns", "series=0ns"), {}),
        (("series=1ms", "ecn=0", "failure-notice=0"), {"series": 1_000_000, "ecn": 0, "failure-notice": 0}),
        (("hedera-period=5s",), {"hedera-period": 5_000_000_000}),
        (("send-buffer=65536", "receive-buffer=65536"), {"send-buffer": 65_536, "receive-buffer": 65_536}),
    ],
)
def test_values_are_those_that_the_simulator_reads(words: tuple[str, ...], found: dict[str, int | str]) -> None:
    assert parse(words) == found


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("spraed=1ms",), "did you mean spread"),
        (("spread",), "write spread=VALUE"),
        (("spread=",), "as in 0ns"),
        (("spread=1",), "as in 0ns"),
        (("spread=-1ms",), "as in 0ns"),
        (("spread=101s",), "to 100s"),
        (("spread=1ms", "spread=2ms"), "twice"),
        (("first-path=left",), "one of sender, receiver, random, zero"),
        (("initial-window=0",), "from 1 to 1000"),
        (("initial-window=²",), "a whole number"),
        (("timestamps=yes",), "from 0 to 1"),
        (("receive-buffer=65536",), "must not be below send-buffer"),
        (("loss-recovery=tahoe",), "one of ns-3.37, ns-3.20"),
        (("loss-recovery=ns-3.20", "congestion=Cubic"), "requires congestion NewReno, not Cubic"),
        (("congestion=ns3::TcpBogus",), "one of NewReno"),
    ],
)
def test_anything_else_is_refused_with_what_would_do(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        parse(words)
