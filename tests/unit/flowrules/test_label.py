"""The option word, byte by byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrules import label

HOPS = st.lists(st.integers(0, 254), max_size=2).map(tuple)


def test_the_word_is_type_158_length_4_and_two_hops() -> None:
    assert label.option((0, 1)) == "9e040001"
    assert label.option((3,)) == "9e0403ff"
    assert label.option(()) == "9e04ffff"
    assert label.carrier_mac((0, 1)) == "02:53:9e:04:00:01"
    # RFC 791, section 3.1: copied 1, class 0, number 30
    assert (label.OPTION_TYPE >> 7, label.OPTION_TYPE >> 5 & 3, label.OPTION_TYPE & 31) == (1, 0, 30)


@given(HOPS)
def test_what_is_written_is_read_back(up: tuple[int, ...]) -> None:
    assert label.parse_mac(label.carrier_mac(up)) == label.hop_bytes(up)


@pytest.mark.parametrize("up", [(255,), (-1,), (0, 256), (1, 2, 3)])
def test_what_does_not_fit_the_word_is_refused(up: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="at most two"):
        label.option(up)


@pytest.mark.parametrize("mac", ["02:53:9e:05:00:00", "02:00:0a:00:00:02", "02:53:9e:04:00", ""])
def test_any_other_address_carries_no_word(mac: str) -> None:
    assert label.parse_mac(mac) is None
