"""Fabric files: what they describe, and each line that is wrong with what would mend it."""

import contextlib
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.helpers.golden import Script, Step, each_script
from tests.helpers.random_fabrics import random_fabric
from topologies import Clos, TopologyError
from topologies.fabric_file import MAX_BYTES, SCHEMA, FabricFileError, dump, load, parse
from topologies.identity import RANGES
from topologies.located_yaml import YamlProblem

EXAMPLES = sorted((Path(__file__).parents[3] / "deploy/fabrics").glob("*.yaml"))
NUMBERS = "pods: 4\nedges: 4\naggregations: 2\ncores: 8\nhosts: 4\n"
"""Five lines, so that what follows begins in line 6."""
SCHEME: dict[str, Any] = json.loads(SCHEMA.read_text())


def fits_the_schema(text: str | bytes) -> bool:
    return jsonschema.Draft202012Validator(SCHEME).is_valid(yaml.safe_load(text))


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
        *(4, 4, 2, 8, 4),
        mbit={"host": 10000, "edge": 25000, "aggregation": 40000},
        links={"a0_0-c0_1": 10000, "e1_0-a1_1": "absent", "h0_0_2-e0_0": 0.5},
        gateways=["h3_0_2"],
        no_label=["h0_0_3"],
    )
    lines = {"cores": 4, "links": 8, "links.e1_0-a1_1": 10, "mbit.edge": 7, "gateways.h3_0_2": 13, "no_label": 14}
    assert lines.items() <= found.lines.items()
    assert fits_the_schema(text)


NOTHING = ["links:\n", "links: {}\n", "mbit: ~\n", "gateways:\n  # none yet\n", "no_label: []\n"]
OF_OTHER_SYSTEMS = [b"\xef\xbb\xbf" + NUMBERS.encode(), NUMBERS.replace("\n", "\r\n").encode()]


@pytest.mark.parametrize("content", [*((NUMBERS + each).encode() for each in NOTHING), *OF_OTHER_SYSTEMS])
def test_keys_of_comments_alone_and_other_systems_files_change_nothing(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "a.yaml"
    file.write_bytes(content)
    assert load(file) == Clos(4, 4, 2, 8, 4)
    assert fits_the_schema(content)


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
    data = json.dumps(tree.document())
    for again in (parse(dump(tree)).fabric, parse(data).fabric, Clos.from_document(json.loads(data))):
        assert again == tree
        assert (again.document(), hash(again)) == (tree.document(), hash(tree))
        assert [again.capacity(link) for link in tree.links()] == [tree.capacity(link) for link in tree.links()]
    assert not document["gateways"] or tree != Clos(**{**document, "gateways": []})
    assert fits_the_schema(data)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_every_example_is_a_fabric(file: Path) -> None:
    tree = load(file)
    assert parse(dump(tree)).fabric == tree
    assert fits_the_schema(file.read_text())


def test_the_schema_has_the_ranges_of_the_address_plan() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEME)
    for key, (least, most) in RANGES.items():
        its = SCHEME["properties"][key]
        assert (its["minimum"], its["maximum"]) == (least, most)


@each_script(__file__, "fabric_file")
def test_what_is_wrong_is_said_with_its_line_and_what_mends_it(tmp_path: Path, script: Script) -> None:
    file = tmp_path / "a.yaml"

    def handle(step: Step) -> str:
        """Read the five numbers with lines ``also``, with another ``number``, or a ``file`` with these lines only."""
        lines = [] if step.command == "file" else NUMBERS.splitlines()
        if step.command == "number":
            key, value = step.words
            lines = [f"{key}: {value}" if line.startswith(key) else line for line in lines]
        else:
            lines += [word.encode("latin-1", "backslashreplace").decode("unicode_escape") for word in step.words]
        content = "".join(f"{line}\n" for line in lines).encode("latin-1")
        file.write_bytes(content)
        with pytest.raises(FabricFileError) as caught:
            load(file)
        said = str(caught.value).replace(f"{file}:", "")
        with contextlib.suppress(yaml.YAMLError, ValueError):
            said += "" if fits_the_schema(content) else "\n(so says the schema)"
        return said

    script.play(handle)


def test_a_file_that_is_too_long_or_cannot_be_read_is_said(tmp_path: Path) -> None:
    large = tmp_path / "a.yaml"
    large.write_bytes(b" " * (MAX_BYTES + 1))
    for file, said in (
        (large, ":1: has more than 1 MiB"),
        (tmp_path / "none.yaml", ": cannot be read: No such file or directory"),
        (tmp_path, ": cannot be read: Is a directory"),
    ):
        with pytest.raises(TopologyError, match=f"^{file}{said}"):
            load(file)


HUGE = [(NUMBERS.replace("hosts: 4", f"hosts: {'9' * 5000}"), "^a.yaml:5: hosts: .* not 99999")]
HUGE += [(text, "nested too deep") for text in ("[" * 200_000, "{a: " * 100_000, "- " * 100_000)]
HUGE += [("a: &a [*a,*a,*a,*a]\n" * 500, "alias")]


@pytest.mark.parametrize(("text", "said"), HUGE)
def test_depth_aliases_and_digits_cost_no_more_than_their_length(text: str, said: str) -> None:
    with pytest.raises(FabricFileError, match=said):
        parse(text, "a.yaml")


def test_a_python_without_pyyaml_says_which_package_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(TopologyError, match=r"a\.yaml: this Python has no PyYAML .*: apt-get install python3-yaml"):
        parse(NUMBERS, "a.yaml")


@given(st.text(max_size=300))
def test_any_text_is_a_fabric_or_a_clear_error(text: str) -> None:
    found: Sequence[YamlProblem] | None = None
    try:
        parse(text)
    except FabricFileError as error:
        found = error.problems
    assert found is None or (found and all(one.line >= 1 and one.mend for one in found))
