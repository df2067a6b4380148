"""Imports point down only.

The layers are those of docs/architecture.md. A module may import its own layer and
those below, and the modules of one layer do not import each other in a circle. An
import counts wherever it stands: inside a function, or for types alone. A stub
imports nothing: it describes the core to type checkers, in the contract's words.
"""

from __future__ import annotations

import ast
import graphlib
import re
from collections.abc import Container, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

#: From the bottom to the top. A name stands for the module, or the package and all in
#: it; "shmq" is the package's __init__ alone.
LAYERS = (
    (
        "shmq.errors",
        "shmq.holders",
        "shmq.names",
        "shmq.on_demand",
        "shmq.protocol",
        "shmq.version",
    ),
    ("shmq.core",),
    (
        "shmq.persistence.disk",
        "shmq.persistence.writing",
        "shmq.persistence.catalog",
        "shmq.persistence.format",
        "shmq.persistence.stream_places",
        "shmq.persistence.stream_erasing",
        "shmq.persistence.stream_segment",
        "shmq.persistence.stream_files",
        "shmq.persistence.erasing",
    ),
    (
        "shmq.options",
        "shmq.stream_options",
        "shmq.stream_era",
        "shmq.codecs",
        "shmq.compression",
        "shmq.name_book",
        "shmq.registry",
        "shmq.stream_registry",
        "shmq.persistence.control",
        "shmq.persistence.directory",
        "shmq.persistence.inventory",
        "shmq.persistence.launch",
        "shmq.persistence.refusals",
        "shmq.repartition",
        "shmq.routing",
        "shmq.waiting",
        "shmq.contract",
        "shmq.schemas",
        "shmq.shape",
        "shmq.where",
        "shmq.record_where",
        "shmq.filters",
    ),
    ("shmq.client",),
    ("shmq.processes",),
    ("shmq.persistence",),
    ("shmq.server", "shmq.health", "shmq.stress", "shmq.mp"),
    ("shmq.workers",),
    ("shmq",),
    ("shmq.spark",),
    ("shmq.cli", "shmq.demo", "shmq.__main__"),
)

#: Cython's imports of our own modules, which Python can read once cimport is import.
CYTHON_IMPORT = re.compile(r"^[ \t]*((?:from|c?import)[ ]+shmq[^(\n]*(?:\([^)]*\))?)", re.MULTILINE)

Graph = dict[str, set[str]]


def read_graph(package: Path) -> Graph:
    """Each module of the package with those of the package that it imports."""
    files: dict[str, list[Path]] = {}
    for kind in ("py", "pyx", "pxd", "pxi"):
        for path in sorted(package.rglob(f"*.{kind}")):
            files.setdefault(_module_name(path, package.parent), []).append(path)
    return {
        name: {
            near
            for path in paths
            for target in _imports(path)
            if (near := _nearest(target, files)) and near != name
        }
        for name, paths in files.items()
    }


def upward_imports(graph: Graph) -> list[str]:
    """The imports that point up; raises LookupError for a module without a layer."""
    heights = {name: layer_of(name) for name in graph}
    return [
        f"{name} imports {target}"
        for name, targets in sorted(graph.items())
        for target in sorted(targets)
        if heights[target] > heights[name]
    ]


def layer_of(module: str) -> int:
    for height, names in enumerate(LAYERS):
        for name in names:
            if module == name or (name != "shmq" and module.startswith(f"{name}.")):
                return height
    raise LookupError(f"{module} belongs to no layer: give it a place in LAYERS")


def first_cycle(graph: Graph) -> list[str]:
    """The modules of one circle of imports; empty if there is none."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def _module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(path: Path) -> Iterator[str]:
    """Every dotted name that the file imports; of ``from a import b``, ``a.b``."""
    text = path.read_text()
    if path.suffix != ".py":
        text = "\n".join(CYTHON_IMPORT.findall(text)).replace("cimport", "import")
    for node in ast.walk(ast.parse(text, str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import hides what it points at"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _nearest(target: str, modules: Container[str]) -> str | None:
    """The module that the dotted name is or lies in; None if it is not ours."""
    while target and target not in modules:
        target = target.rpartition(".")[0]
    return target or None


def test_the_imports_of_the_package_point_down_only() -> None:
    assert upward_imports(read_graph(ROOT / "shmq")) == []


def test_the_imports_of_the_package_run_in_no_circle() -> None:
    assert first_cycle(read_graph(ROOT / "shmq")) == []


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package in which everything is as it should be."""
    root = tmp_path / "shmq"
    for name, text in {
        "__init__.py": "from shmq.client.broker import connect\n",
        "errors.py": "import queue\n",
        "client/__init__.py": "",
        "client/broker.py": "from shmq import errors\nfrom shmq.core._core import Segment\n",
        "core/_core.pyx": "cimport cython\nfrom shmq.errors import (\n    Full,\n)\ncdef int n\n",
        "core/_more.pxi": "from shmq import names as _names  # here\n",
        "names.py": "",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_sound_package_has_nothing_to_report(package: Path) -> None:
    graph = read_graph(package)
    assert graph["shmq.client.broker"] == {"shmq.errors", "shmq.core._core"}
    assert graph["shmq.core._core"] == {"shmq.errors"}
    assert graph["shmq.core._more"] == {"shmq.names"}
    assert upward_imports(graph) == []
    assert first_cycle(graph) == []


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("errors.py", "import shmq.client", "shmq.errors imports shmq.client"),
        ("errors.py", "def f():\n    from shmq import Full", "shmq.errors imports shmq"),
        ("client/broker.py", "import shmq", "shmq.client.broker imports shmq"),
        ("core/_core.pyx", "from shmq.client import x", "shmq.core._core imports shmq.client"),
        ("core/_c.pxd", "from shmq.client cimport x", "shmq.core._c imports shmq.client"),
        ("core/_core.pyx", "    import shmq", "shmq.core._core imports shmq"),
    ],
)
def test_an_import_that_points_up_is_reported(
    package: Path, name: str, text: str, found: str
) -> None:
    (package / name).write_text(text)
    assert upward_imports(read_graph(package)) == [found]


def test_modules_of_one_layer_that_import_each_other_are_reported(package: Path) -> None:
    (package / "client/one.py").write_text("from shmq.client import two")
    (package / "client/two.py").write_text("from shmq.client.one import x")
    assert set(first_cycle(read_graph(package))) == {"shmq.client.one", "shmq.client.two"}


def test_a_module_without_a_layer_is_reported(package: Path) -> None:
    (package / "stray.py").touch()
    with pytest.raises(LookupError, match=r"shmq\.stray belongs to no layer"):
        upward_imports(read_graph(package))
