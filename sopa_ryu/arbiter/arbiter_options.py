"""The options of an arbiter."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from sopa_ryu.arbiter.schedule import Timing
from sopa_ryu.channel.client import ClientOptionError
from sopa_ryu.channel.host_tokens import arbiter_token
from sopa_ryu.channel.slots import PORT
from sopa_ryu.runtime.option_fields import FILE, REQUIRED, Address, option, seed_option, urls

MIN_SLOT_MS, MAX_SLOT_MS = 3, 4000
"""Shorter ones are over before a host has noticed that they have begun; longer ones do not fit into a grant's 32 bits."""
SECRET_FILE = Path("/var/lib/sopa/agent-secret")


class ArbiterError(RuntimeError):
    """The arbiter cannot work with its options on this machine."""


@dataclass(frozen=True)
class ArbiterOptions:
    """The options of an arbiter."""

    # fmt: off
    controllers: tuple[str, ...] = option(REQUIRED, "URL of the controller: http://192.0.2.1:8080. May be repeated for a cluster's "
        "controllers (no relays): the leader takes the arbiter.", name="controller", multiple=True, callback=urls, metavar="URL")
    listen: tuple[str, int] = option(REQUIRED, f"Address and UDP port where agents reach the arbiter: 192.0.2.1:{PORT}",
        type=Address(PORT))
    slot: float = option(10, "Length of a slot in milliseconds: long enough for a packet at the rate of hosts' links.",
        type=click.FloatRange(MIN_SLOT_MS, MAX_SLOT_MS), metavar="MS")
    rate: float | None = option(None, "Rate of hosts' links in Mbit/s. Default: that of the fabric file, otherwise what the "
        "controller knows of their ports.", type=click.FloatRange(0.1, 1e6), metavar="MBIT")
    lease: int | None = option(None, "Milliseconds without a datagram after which a host sends without slots, and a silent host "
        "gets none. Default: 8 batches of 4 slots, at least 100.", type=click.IntRange(20, 600_000), metavar="MS")
    secret_file: Path | None = option(None, "The fabric's secret, agent-secret in the controller's --sopa-state-dir, from which "
        f"hosts' tokens are derived. Default: {SECRET_FILE} if it exists. Without it nothing is authenticated.", type=FILE,
        envvar="SOPA_AGENT_SECRET_FILE")
    token_file: Path | None = option(None, "The arbiter's token for the controller, as sopa token --arbiter prints it. Default: "
        "derived from the secret.", type=FILE, envvar="SOPA_ARBITER_TOKEN_FILE")
    ca_file: Path | None = option(None, "Certificate authorities (PEM) of an https controller. Default: the system's.", type=FILE,
        envvar="SOPA_CA_FILE")
    metrics_port: int | None = option(None, "Serve Prometheus metrics at /metrics on this port. Default: off.",
        type=click.IntRange(1, 65535), envvar="SOPA_ARBITER_METRICS_PORT", metavar="PORT")
    metrics_host: str = option("127.0.0.1", "Address where metrics are served.", envvar="SOPA_ARBITER_METRICS_HOST",
        metavar="ADDRESS")
    seed: int = seed_option()
    # fmt: on

    @property
    def timing(self) -> Timing:
        """The lengths of slots and leases."""
        return Timing.of(self.slot, self.lease)

    def secret(self) -> str | None:
        """Return the fabric's secret; None without a file. `ArbiterError` if it cannot be read."""
        return None if self.secret_file is None else _read(self.secret_file, "the fabric's secret")

    def token(self) -> str | None:
        """Return the token for the controller's channel; None if there is none. Read anew for each connection."""
        try:
            if self.token_file is not None:
                return _read(self.token_file, "the token")
            secret = self.secret()
        except ArbiterError as error:
            raise ClientOptionError(str(error)) from error
        return None if secret is None else arbiter_token(secret)


def _read(file: Path, what: str) -> str:
    try:
        text = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ArbiterError(f"{what} cannot be read from {file}: {error}") from error
    if not text:
        raise ArbiterError(f"{file} is empty")
    return text
