"""Aliases: what they name, and how names are shown."""

import json
import logging
import re

from hypothesis import given
from hypothesis import strategies as st

from sopa_ryu.runtime.log_names import LogNames
from topologies import Aliases, FatTree

TREE = FatTree(4)
NODES = [TREE.name(node) for nodes in (TREE.switches(), TREE.hosts()) for node in nodes]
ALIASES = st.dictionaries(st.sampled_from(NODES), st.from_regex(r"[a-c](-[a-c1]){0,2}", fullmatch=True), max_size=8)


def read(aliases: Aliases, text: str) -> list[str]:
    """Return the own names as which a text may be read."""
    try:
        return [aliases.own(text)]
    except ValueError as error:
        return re.sub("it may be |: write which", "", f"{error}").split(" or ")


@given(ALIASES.filter(lambda names: len(set(names.values())) == len(names)))
def test_what_is_shown_is_read_as_the_own_name_or_refused(names: dict[str, str]) -> None:
    aliases = Aliases(names)
    again = Aliases.of_listed(json.loads(json.dumps(aliases.listed())))
    assert (again.names, again.tag) == (aliases.names, aliases.tag)
    for name in (*NODES, *map(TREE.name, TREE.links())):
        assert aliases.own(name) == name
        alias = aliases.alias(name)
        shown = name if alias is None else f"{name} ({alias})"
        assert aliases.within(f"link {name}: down") == f"link {shown}: down"
        assert aliases.within(aliases.within(f"{name}, {name}-eth1 and /run/{name}")) == f"{shown}, {name}-eth1 and /run/{name}"
        if alias is not None:
            assert name in read(aliases, alias)


def test_log_lines_have_aliases_but_for_the_json_of_events() -> None:
    aliases = Aliases({"a0_1": "leaf-12"})
    said = []
    for name in ("sopa", "sopa.events"):
        record = logging.makeLogRecord({"name": name, "msg": "version %d: %s down", "args": (2, "a0_1-c1_0")})
        assert LogNames(lambda: aliases).filter(record)
        said.append(record.getMessage())
    assert said == ["version 2: a0_1-c1_0 (leaf-12-c1_0) down", "version 2: a0_1-c1_0 down"]
