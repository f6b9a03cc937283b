"""Imports run in one direction, and pure modules touch nothing (docs/architecture.md, section 2)."""

import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCTION = ("topologies", "flowrules", "sopa_ryu")
LAYERS = [
    {"topologies"},
    {"flowrules"},
    {"sopa_ryu.runtime"},
    {"sopa_ryu.events"},
    {"sopa_ryu.fabric", "sopa_ryu.agent.paths"},
    {"sopa_ryu.channel", "sopa_ryu.southbound", "sopa_ryu.agent.kernel", "sopa_ryu.options"},
    {f"sopa_ryu.agent.{room}" for room in ("host", "label", "probing", "scatter", "slots")} | {"sopa_ryu.health"},
    {"sopa_ryu.agent", "sopa_ryu.arbiter", "sopa_ryu.rest"},
    {"sopa_ryu.cluster"},
    {"sopa_ryu.web", "sopa_ryu.exposure", "sopa_ryu.pki"},
    {"sopa_ryu.front"},
    {"sopa_ryu.cluster.relay"},
    {"sopa_ryu.cli"},
    {"sopa_ryu.cli.fabric"},
    {"sopa_ryu.app", "sopa_ryu.manager"},
]
"""Each may import those before it; two of one layer do not know each other, and nobody here the lab and experiments."""
IMPURE = {"asyncio", "eventlet", "select", "threading", "mininet", "os", "pyroute2", "requests", "ryu"}
IMPURE |= {"socket", "subprocess"}
MININET_FILE = "topologies.fattree"  # for mn --custom: its topology is the lab's


@cache
def modules() -> dict[str, Path]:
    files = (file for package in (*PRODUCTION, "experiments") for file in (ROOT / package).rglob("*.py"))
    return {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file for file in files}


@cache
def parsed(module: str) -> ast.Module:
    return ast.parse(modules()[module].read_text())


@cache
def imported(module: str) -> frozenset[str]:
    """Return what a module imports, anywhere in it; names out of modules with their module."""
    statements = [node for node in ast.walk(parsed(module)) if isinstance(node, ast.Import | ast.ImportFrom)]
    return frozenset(
        alias.name if isinstance(node, ast.Import) else f"{node.module}.{alias.name}" for node in statements for alias in node.names
    )


@cache
def own(module: str) -> set[str]:
    names = {name if name in modules() else name.rpartition(".")[0] for name in imported(module)}
    return {name for name in names if name in modules() and name != module}


def package(module: str) -> str:
    """Return the package of a module; modules directly in ``sopa_ryu`` stand for themselves."""
    if modules()[module].name == "__init__.py" or module.rpartition(".")[0] == "sopa_ryu":
        return module
    return module.rpartition(".")[0]


def test_every_package_imports_only_lower_layers() -> None:
    rank = {name: number for number, layer in enumerate(LAYERS) for name in layer}
    for module in modules():
        if package(module) not in rank:
            continue
        for name in own(module):
            below = package(name)
            if below != package(module) and below != "sopa_ryu" and module != MININET_FILE:
                assert rank.get(below, len(LAYERS)) < rank[package(module)], f"{module} imports {name}"


def test_modules_import_each_other_in_no_circle() -> None:
    # a package's own module stands for what it gathers: only imports of other modules count
    graph = {module: {name for name in own(module) if not module.startswith(f"{name}.")} for module in modules()}
    assert len(list(TopologicalSorter(graph).static_order())) == len(graph)


LIBRARY = "sopa_ryu.runtime.library"
EDGES = ("controller", "ofp", "nicira", "DEAD", "MAIN", "set_ev", "Protocol", "OFP")


def test_one_module_names_the_openflow_library_and_two_edges_know_its_events_and_messages() -> None:
    for module in modules():
        named = {name.partition(".")[0] for name in imported(module)} & {"ryu", "os_ken"}
        assert not named, module
        if module.startswith("sopa_ryu"):
            known = {name for name in imported(module) if name.startswith(tuple(f"{LIBRARY}.{its}" for its in EDGES))}
            southbound = {f"sopa_ryu.southbound.{edge}" for edge in ("openflow", "instructions", "parsing", "datapath")}
            assert not known or module in {"sopa_ryu.app", "sopa_ryu.manager"} | southbound, module


def is_pure(module: str) -> bool:
    docstring = ast.get_docstring(parsed(module)) or ""
    return docstring.endswith((" Pure.", " pure.")) or "Pure.\n" in docstring or " Pure:" in docstring


def test_pure_modules_import_nothing_that_waits_or_touches_the_machine() -> None:
    pure = [module for module in modules() if is_pure(module)]
    assert len(pure) > 50
    assert [module for module in pure if {name.partition(".")[0] for name in imported(module)} & IMPURE] == []
    assert [module for module in pure if LIBRARY in own(module)] == []
