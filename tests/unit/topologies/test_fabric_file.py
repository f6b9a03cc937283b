"""Fabric files: what they describe, and each line that is wrong with what would mend it."""

from __future__ import annotations

import json
import random
import sys
import textwrap
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.helpers.random_fabrics import random_fabric
from topologies import Clos, FatTree, TopologyError
from topologies.fabric_file import MAX_BYTES, SCHEMA, SHOWN, FabricFileError, dump, load, parse
from topologies.identity import RANGES
from topologies.located_yaml import Problem

EXAMPLES = sorted((Path(__file__).parents[3] / "deploy/fabrics").glob("*.yaml"))
NUMBERS = "pods: 4\nedges: 4\naggregations: 2\ncores: 8\nhosts: 4\n"
"""Five lines, so that what follows begins in line 6."""
SCHEME: dict[str, Any] = json.loads(SCHEMA.read_text())


def problems(text: str) -> list[tuple[int, str, str]]:
    """Return line, key, and the whole of what is said about each problem."""
    with pytest.raises(FabricFileError) as caught:
        parse(textwrap.dedent(text), "a.yaml")
    return [(one.line, one.key, f"{one.text}: {one.mend}") for one in caught.value.problems]


def fits_the_schema(text: str) -> bool:
    return jsonschema.Draft202012Validator(SCHEME).is_valid(yaml.safe_load(text))


# -- right ones -------------------------------------------------------------------------------------------------------


def test_a_file_is_the_fabric_that_it_describes() -> None:
    text = f"""{NUMBERS}
mbit: {{host: 10000, edge: 2.5e+4, aggregation: 40000.0}}
links:   # exceptions
  a0_0-c0_1: 10000
  e1_0-a1_1: absent
  "h0_0_2-e0_0": 0.5
gateways:
- h3_0_2
no_label: ['h0_0_3']
"""
    found = parse(text)
    assert found.fabric == Clos(
        pods=4,
        edges=4,
        aggregations=2,
        cores=8,
        hosts=4,
        mbit={"host": 10000, "edge": 25000, "aggregation": 40000},
        links={"a0_0-c0_1": 10000, "e1_0-a1_1": "absent", "h0_0_2-e0_0": 0.5},
        gateways=["h3_0_2"],
        no_label=["h0_0_3"],
    )
    assert found.lines["cores"] == 4
    assert (found.lines["links"], found.lines["links.e1_0-a1_1"]) == (8, 10)
    assert (found.lines["mbit.edge"], found.lines["gateways.h3_0_2"], found.lines["no_label"]) == (7, 13, 14)
    assert fits_the_schema(text)


@pytest.mark.parametrize(
    "rest", ["links:\n", "links: {}\n", "mbit: ~\n", "gateways:\n  # none yet\n", "no_label: []\n"]
)
def test_a_key_whose_lines_are_all_comments_is_as_none(rest: str) -> None:
    assert parse(NUMBERS + rest).fabric == Clos(4, 4, 2, 8, 4)
    assert fits_the_schema(NUMBERS + rest)


def test_a_fat_trees_file_is_the_fat_tree() -> None:
    assert parse("{pods: 4, edges: 2, aggregations: 2, cores: 4, hosts: 2}").fabric == FatTree(4)


def test_json_is_a_fabric_file() -> None:
    tree = random_fabric(3, rates=True)
    assert parse(json.dumps(tree.document())).fabric == tree


@pytest.mark.parametrize("content", [b"\xef\xbb\xbf" + NUMBERS.encode(), NUMBERS.replace("\n", "\r\n").encode()])
def test_a_file_of_another_system_is_read(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "a.yaml"
    file.write_bytes(content)
    assert load(file) == Clos(4, 4, 2, 8, 4)


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.lists(st.floats(1e-3, 1e9), min_size=3, max_size=3))
@example(1, [0.0010000000000000002, 0.1 + 0.2, 999999999.9999999])
def test_what_is_dumped_is_loaded_again(seed: int, rates: list[float]) -> None:
    choose = random.Random(seed)
    document = random_fabric(seed, rates=bool(seed % 2)).document()
    hosts = list(Clos(**document).hosts())
    for key in ("gateways", "no_label"):
        document[key] = [Clos.name(host) for host in choose.sample(hosts, min(len(hosts), choose.randrange(4)))]
    if seed % 3:
        document["mbit"] = dict(zip(("host", "edge", "aggregation"), rates, strict=True))
    tree = Clos(**document)
    text = dump(tree)
    assert parse(text).fabric == tree
    assert parse(json.dumps(tree.document())).fabric == tree
    assert fits_the_schema(json.dumps(tree.document()))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_every_example_is_a_fabric(file: Path) -> None:
    tree = load(file)
    assert parse(dump(tree)).fabric == tree
    assert fits_the_schema(file.read_text())


def test_the_examples_are_those_that_are_named() -> None:
    assert [file.stem for file in EXAMPLES] == ["fat-tree", "leaf-spine", "three-tier", "two-racks"]
    leaf_spine = load(EXAMPLES[1])
    assert (leaf_spine.edges, leaf_spine.aggregations, leaf_spine.host_count) == (32, 4, 1536)


def test_the_schema_has_the_ranges_of_the_address_plan() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEME)
    for key, (least, most) in RANGES.items():
        its = SCHEME["properties"][key]
        assert (its["minimum"], its["maximum"]) == (least, most)


# -- wrong ones -------------------------------------------------------------------------------------------------------


SEEN_BY_EDITORS = {
    "pod: 3", "mbit: 10000", "mbit: {hosts: 1}", "mbit: {host: 0}", "mbit: {host: '10'}", "links: [e0_0-a0_0]",
    "links: {e0_0: 1}", "links: {c0_1-a0_0: 1}", "links: {h0_0_2-e0_0: absent}", "links: {e0_0-a0_0: missing}",
    "gateways: h0_0_2", "gateways: [e0_0]", "gateways: [h0_0_2, h0_0_2]", "no_label: [{h0_0_2: 1}]",
}  # fmt: skip
"""What an editor with the schema underlines, too."""


@pytest.mark.parametrize(
    ("rest", "key", "said"),
    [
        ("pod: 3", "pod", "did you mean pods?"),
        ("spines: 3", "spines", "is no key of a fabric file: a fabric has pods, edges"),
        ("hosts: 5", "hosts", "is there twice, first in line 5: remove one of them"),
        ("<<: {hosts: 3}", "<<", "is no key"),
        ("mbit: 10000", "mbit", "must be a mapping, not 10000: mbit has the links above host, edge, aggregation"),
        ("mbit: {hosts: 1}", "mbit.hosts", "is no level: did you mean host?"),
        ("mbit: {host: 0}", "mbit.host", "must be a number of Mbit/s from 0.001 to 1,000,000,000, not 0"),
        ("mbit: {host: -1}", "mbit.host", "not -1"),
        ("mbit: {host: .inf}", "mbit.host", "not .inf"),
        ("mbit: {host: .nan}", "mbit.host", "not .nan"),
        ("mbit: {host: 1e99}", "mbit.host", "not 1e99"),
        ("mbit: {host: '10'}", "mbit.host", "not '10'"),
        ("mbit: {host: 10 Gbit/s}", "mbit.host", "not 10 Gbit/s"),
        ("mbit: {host: absent}", "mbit.host", "not absent"),
        ("mbit: {host: 1, host: 2}", "mbit.host", "is there twice, first in line 6"),
        ("links: {a0_0-c0_9: 1}", "links.a0_0-c0_9", "core switches are c0_0 to c1_3"),
        ("links: {a0_0-c01: 1}", "links.a0_0-c01", "'c01' is no switch or host"),
        ("links: {x: 1}", "links.x", "is no link: name both ends, the lower one first, as e0_0-a0_0"),
        ("links: {e0_0: 1}", "links.e0_0", "is no link"),
        ("links: {c0_1-a0_0: 1}", "links.c0_1-a0_0", "is named from its upper end: call it a0_0-c0_1"),
        ("links: {e0_0-h0_0_2: 1}", "links.e0_0-h0_0_2", "call it h0_0_2-e0_0"),
        ("links: {e0_0-c0_0: 1}", "links.e0_0-c0_0", "not cabled together: above e0_0 are a0_0 to a0_1"),
        ("links: {e0_0-a1_0: 1}", "links.e0_0-a1_0", "above e0_0 are a0_0 to a0_1"),
        ("links: {h0_0_2-e0_1: 1}", "links.h0_0_2-e0_1", "h0_0_2 is at e0_0"),
        ("links: {h0_0_2-e0_0: absent}", "links.h0_0_2-e0_0", "a host's link cannot be absent: remove it"),
        ("links: {e0_0-a0_0: missing}", "links.e0_0-a0_0", "or absent, not missing: give its rate, or absent"),
        ("links: {e0_0-a0_0: no}", "links.e0_0-a0_0", "not no"),
        ("links: {e0_0-a0_0: [1]}", "links.e0_0-a0_0", "is nested too deep"),
        ("links: {e0_0-a0_0: 1, e0_0-a0_0: absent}", "links.e0_0-a0_0", "is there twice, first in line 6"),
        ("links: [e0_0-a0_0]", "links", "must be a mapping, not a list: links has single links, as {a0_0-c0_1: 10000"),
        ("gateways: h0_0_2", "gateways", "must be a list, not h0_0_2: gateways: [h0_0_2] lists names of hosts"),
        ("gateways: [h0_0_2, h0_0_2]", "gateways.h0_0_2", "is there twice, first in line 6: remove one of them"),
        ("gateways: [h0_0_9]", "gateways.h0_0_9", "hosts are h0_0_2 to h3_3_5"),
        ("gateways: [e0_0]", "gateways.e0_0", "e0_0 is a switch, not a host"),
        ("gateways: [10.0.0.2]", "gateways.10.0.0.2", "is an address: call it h0_0_2"),
        ("no_label: [{h0_0_2: 1}]", "no_label", "is nested too deep"),
        ("no_label: &a [h0_0_2]", "no_label", "&a is an anchor: leave it out"),
        ("no_label: *a", "no_label", "*a is an alias: write out what it stands for"),
        ("no_label: !!set [h0_0_2]", "no_label", "is a tag: leave it out"),
        ('"\\e[31m\\n": 3', "\x1b[31m\n", "is no key"),
    ],
)
def test_what_is_wrong_is_said_with_its_line_and_what_mends_it(rest: str, key: str, said: str) -> None:
    [(line, its_key, text)] = problems(NUMBERS + rest + "\n")
    assert (line, its_key) == (6, key)
    assert said in text
    assert rest not in SEEN_BY_EDITORS or not fits_the_schema(NUMBERS + rest)


@pytest.mark.parametrize(
    ("rest", "line", "said"),
    [
        ("links: {e0_0-a0_0: 1", 7, "is no YAML"),
        ("  links: {}", 6, "is no YAML"),
        ("links:\n\te0_0-a0_0: 1", 7, "indent with spaces"),
        ("---\npods: 3", 6, "a second document starts here"),
        ("? [a]\n: 1", 6, "is nested too deep"),
    ],
)
def test_a_form_that_is_none_is_said_with_its_line(rest: str, line: int, said: str) -> None:
    [(its_line, key, text)] = problems(f"{NUMBERS}{rest}\n")
    assert (its_line, key) == (line, "")
    assert said in text


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("pods", "0", "must be a number from 1 to 255, not 0: addresses are 10.POD.EDGE.HOST"),
        ("pods", "256", "not 256"),
        (
            "edges",
            "300",
            "must be a number from 1 to 255, not 300: edge switches of one pod; more of them need more pods",
        ),
        ("aggregations", "255", "must be a number from 1 to 254"),
        ("cores", "3", "must be a multiple of aggregations (2), not 3"),
        ("cores", "0", "must be at least 2, since 4 pods need core switches between them"),
        ("cores", "510", "must be at most 508, 254 for each aggregation switch of a pod"),
        ("hosts", "253", "must be a number from 1 to 252, not 253: hosts of one edge switch, .2 to .253 of its /24"),
        ("hosts", "-4", "not -4"),
        ("hosts", "4.0", "not 4.0: write it in decimal digits, without quotes"),
        ("hosts", "'4'", "not '4'"),
        ("hosts", "04", "not 04"),
        ("hosts", "0x4", "not 0x4"),
        ("hosts", "1_0", "not 1_0"),
        ("hosts", "yes", "not yes"),
        ("hosts", "1:30", "not 1:30"),
        ("hosts", "9" * 5000, "not 99999"),
        ("hosts", "", "not ''"),
        ("hosts", "[4]", "not a list"),
    ],
)
def test_a_number_that_cannot_be_is_said(key: str, value: str, said: str) -> None:
    lines = [f"{key}: {value}" if line.startswith(key) else line for line in NUMBERS.splitlines()]
    [(line, its_key, text)] = problems("\n".join(lines))
    assert (line, its_key) == (1 + list(RANGES).index(key), key)
    assert said in text


def test_several_problems_are_said_at_a_time_in_the_order_of_the_lines() -> None:
    text = """\
        # what a colleague typed
        pods: 300
        edges: 4
        aggregations: two
        core: 8
        mbit: {host: 0}
        gateways: [h0_0_2, h0_0_2]
        """
    found = [(line, key) for line, key, _ in problems(text)]
    assert found == [
        (2, "cores"),
        (2, "hosts"),
        (2, "pods"),
        (4, "aggregations"),
        (5, "core"),
        (6, "mbit.host"),
        (7, "gateways.h0_0_2"),
    ]


def test_of_very_many_problems_the_first_are_listed() -> None:
    links = "".join(f"  e9_{number}-a0_0: 1\n" for number in range(100))
    with pytest.raises(FabricFileError) as caught:
        parse(f"{NUMBERS}links:\n{links}", "a.yaml")
    said = str(caught.value).splitlines()
    assert len(said) == SHOWN + 1
    assert said[0].startswith("a.yaml:7: links.e9_0-a0_0: ")
    assert said[-1] == "a.yaml: and 80 more"


def test_what_a_file_contains_moves_no_cursor() -> None:
    with pytest.raises(FabricFileError) as caught:
        parse(NUMBERS + '"\\e[31m\\n": 3\n', "a.yaml")
    assert str(caught.value).startswith("a.yaml:6: \\x1b[31m\\x0a: is no key")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", ":1: is empty: a fabric has pods, edges"),
        (b"# nothing\n", ":1: is empty"),
        (b"- 3\n", ":1: is no mapping of keys to values"),
        (b"fabric\n", ":1: is no mapping"),
        (NUMBERS.encode() + b"# caf\xe9\n", ":6: the byte 0xe9 is no UTF-8: save the file in UTF-8"),
        (NUMBERS.encode("utf-16"), ":1: the byte 0xff is no UTF-8"),
        (NUMBERS.encode() + b"# \0\n", ":6: the character 0x0 is no text: remove it"),
        (b" " * (MAX_BYTES + 1), ":1: has more than 1 MiB"),
    ],
)
def test_a_file_that_is_none_is_said(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "a.yaml"
    file.write_bytes(content)
    with pytest.raises(FabricFileError) as caught:
        load(file)
    assert str(caught.value).startswith(f"{file}{said}")


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match=r"none\.yaml: cannot be read: No such file or directory"):
        load(tmp_path / "none.yaml")
    with pytest.raises(TopologyError, match="cannot be read: Is a directory"):
        load(tmp_path)


@pytest.mark.parametrize("text", ["[" * 200_000, "{a: " * 100_000, "- " * 100_000, "a: &a [*a,*a,*a,*a]\n" * 500])
def test_depth_and_aliases_cost_no_more_than_their_length(text: str) -> None:
    assert any("nested too deep" in said or "alias" in said for _, _, said in problems(text))


def test_a_python_without_pyyaml_says_which_package_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(TopologyError, match=r"a\.yaml: this Python has no PyYAML .*: apt-get install python3-yaml"):
        parse(NUMBERS, "a.yaml")


@given(st.text(max_size=300))
def test_any_text_is_a_fabric_or_a_clear_error(text: str) -> None:
    try:
        parse(text)
        found = []
    except FabricFileError as error:
        found = list(error.problems) or [Problem(0, "", "", "")]
    assert all(one.line >= 1 and one.mend for one in found)
