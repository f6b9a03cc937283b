"""Commands as they are typed wrongly, before anything is changed or asked; the option --fabric; lists of several pages."""

import re
from pathlib import Path
from typing import Any

import click
import httpx
from click.testing import CliRunner

from experiments.cli.lab_isolation import fabric_options
from sopa_ryu.cli import main
from sopa_ryu.cli.client import Controller
from sopa_ryu.cli.common import chosen_fabric
from tests.helpers.golden import Script, Step, each_script
from topologies import Clos, FatTree
from topologies.identity import PREFIX6
from topologies.structure import fabric_of

AGENT = ["--iface", "nowhere0", "--controller", "http://127.0.0.1:1"]


def handle(step: Step) -> str:
    """Type a command, an agent's with an interface and a controller; return its exit status and its last line."""
    words = [*step.words, *(f"{option}={value}" for option, value in step.options.items())]
    done = CliRunner().invoke(main, [step.command, *(AGENT if step.command == "agent" else []), *words])
    last = done.output.splitlines()[-1].removeprefix("Error: ")
    return f"{done.exit_code}: {re.sub('[.] There are .*?[.] ', '. ', last)}"  # the interfaces of this machine


@each_script(__file__, "usage")
def test_usage(script: Script) -> None:
    script.play(handle)


@click.command()
@fabric_options
def command(k: int, fabric: Clos | None, **_others: Any) -> None:
    click.echo(repr(chosen_fabric(k, fabric)))


def test_it_is_the_fabric_and_without_it_is_a_fat_tree_but_both_are_a_usage_error(tmp_path: Path) -> None:
    leaf_spine, file = Clos(pods=1, edges=3, aggregations=2, cores=0, hosts=2), tmp_path / "fabric.yaml"
    file.write_text("{pods: 1, edges: 3, aggregations: 2, cores: 0, hosts: 2}\n")
    for words, tree in (([], FatTree(4)), (["--k", "6"], FatTree(6)), (["--fabric", str(file)], leaf_spine)):
        both = fabric_of({**tree.document(), "prefix6": str(PREFIX6)})
        assert CliRunner().invoke(command, words).output == f"{both!r}\n"
    for k in ("4", "6"):
        done = CliRunner().invoke(command, ["--fabric", str(file), "--k", k])
        assert done.exit_code == 2
        assert "--k and --fabric exclude each other" in done.stderr


def reading(versions: list[int]) -> tuple[list[str], int]:
    """Return the list of two pages whose answers are of these versions, and how many were asked for."""
    asked: list[int] = []

    def answer(request: httpx.Request) -> httpx.Response:
        version = versions[len(asked)]
        second = "offset" in request.url.params
        asked.append(version)
        link = {} if second else {"Link": f'<{request.url.path}?offset=2>; rel="next"'}
        items = [f"{name} of {version}" for name in (("c",) if second else ("a", "b"))]
        return httpx.Response(200, headers=link, json={"version": version, "epoch": 1, "total": 3, "changes": items})

    client = Controller("http://192.0.2.1")
    client._client = httpx.Client(transport=httpx.MockTransport(answer))
    return client.listing("/changes", "changes")["changes"], len(asked)


def test_a_list_has_the_items_of_all_pages_and_is_read_again_if_it_has_changed_between_them() -> None:
    assert reading([1, 1]) == (["a of 1", "b of 1", "c of 1"], 2)
    assert reading([1, 2, 2, 2]) == (["a of 2", "b of 2", "c of 2"], 4)
