"""``sopa token``: the tokens of hosts, and what it says if it cannot make them."""

from ipaddress import IPv4Address
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from sopa_ryu.agent.agent_options import AgentOptions
from sopa_ryu.channel.client import ClientOptionError
from sopa_ryu.channel.host_tokens import arbiter_token, host_token, token_of
from sopa_ryu.cli import main
from sopa_ryu.fabric.state_directory import keep_fabric
from topologies import Aliases, FatTree

ADDRESS = IPv4Address("10.0.0.2")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "agent-secret"
    file.write_text("a secret\n")
    return file


def test_its_lines_are_what_an_agent_reads(secret: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["token", "h0_0_2", "10.2.1.3", f"--secret-file={secret}"])
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["10.0.0.2", "10.2.1.3"]
    file = tmp_path / "agent-token"
    file.write_text(done.stdout)
    options = AgentOptions(("http://192.0.2.1:8080",), token_file=file)
    assert options.controller("", ADDRESS).headers() == {"Authorization": f"Bearer {host_token('a secret', ADDRESS)}"}
    with pytest.raises(ClientOptionError, match=r"it has no token for 10\.0\.0\.4"):
        options.token(IPv4Address("10.0.0.4"))


def test_either_address_of_a_host_names_it_and_its_alias(secret: Path) -> None:
    def told(host: str) -> str:
        return CliRunner().invoke(main, ["token", host, f"--secret-file={secret}"]).output

    assert told("fd53:4f50:4100:201::3") == told("10.2.1.3") == f"10.2.1.3 {host_token('a secret', IPv4Address('10.2.1.3'))}\n"
    keep_fabric(secret.parent, FatTree(4, "2001:db8:1::/48"), Aliases({"h2_1_3": "web-1", "a0_1": "leaf.12"}))
    assert told("2001:db8:1:201::3") == told("web-1") == told("10.2.1.3")
    for wrong, said in (("web-2", "'web-2' is no switch or host"), ("leaf.12", "a0_1 is a switch")):
        assert said in told(wrong), told(wrong)
    for wrong in ("fd53:4f50:4100:201::3", "2001:db8:1:201::1", "2001:db8:1:201::1:3", "2001:db8:1:201::3/64"):
        assert told(wrong).startswith("Error: ")


def test_the_arbiters_token_opens_no_hosts_channel(secret: Path) -> None:
    done = CliRunner().invoke(main, ["token", "--arbiter", f"--secret-file={secret}"])
    assert done.stdout == arbiter_token("a secret") + "\n"
    assert done.stdout.strip() not in {host_token("a secret", ADDRESS), "a secret"}


@given(st.text(max_size=80))
def test_a_token_file_of_any_content_gives_one_word_or_is_refused(text: str) -> None:
    try:
        token = token_of(text, ADDRESS)
    except ValueError:
        return
    assert token.split() == [token]
