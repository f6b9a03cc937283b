"""DCTCP of a lab's hosts, where Linux has none; what it does is in tests/lab/test_emulation.py."""

import socket

import pytest

from experiments.emulation.dctcp import dctcp
from experiments.emulation.traffic.transfers import TransferError


def test_it_is_there_for_as_long_as_it_is_held() -> None:
    with dctcp() as name, socket.socket() as one:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        if name != "dctcp":
            with pytest.raises(TransferError, match="another experiment on this machine"), dctcp():
                pass
    if name != "dctcp":  # Linux' own
        with socket.socket() as one, pytest.raises(FileNotFoundError):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
