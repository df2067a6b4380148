"""Imports and includes point down only.

A folder is a layer, or a subject within one. Between folders imports never go in a circle,
so there is an order in which each needs only those below it; nor do they between modules. Both
are read from the tree: there is no list of modules to be kept. An import counts wherever it
stands: inside a function, or for types alone. A stub imports nothing: it describes the
compiled modules to type checkers, in the contract's words.
"""

from __future__ import annotations

import graphlib
import re
from pathlib import Path

import pytest

from tools.imports import read_imports

ROOT = Path(__file__).resolve().parents[2]

INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)

#: A C function that other files can call, where it is defined; comments and declarations, which
#: call nothing; and the names of such functions.
C_FUNCTION = re.compile(
    r"^(?!static (?!inline ))\w[\w *]*\b(shmq_\w+)\([^;{]*\)\s*\{", re.MULTILINE
)
C_NO_CALL = re.compile(r"/\*.*?\*/|^\w[\w *]*\b\w+\([^;{]*\);", re.DOTALL | re.MULTILINE)
C_NAME = re.compile(r"(?<!struct )(?<!enum )(?<!union )\bshmq_\w+")

Graph = dict[str, set[str]]


def read_includes(core: Path) -> Graph:
    """Each source and header of the core with the headers that it includes."""
    return {
        str(path.relative_to(core)): set(INCLUDE.findall(path.read_text()))
        for path in sorted(core.rglob("*.[ch]"))
    }


def read_calls(folder: Path) -> Graph:
    """Each noun of a folder of the core, its source and header, with those that it calls."""
    texts = {
        path.stem: "".join(
            C_NO_CALL.sub("", part.read_text()) for part in sorted(folder.glob(f"{path.stem}.[ch]"))
        )
        for path in folder.glob("*.c")
    }
    owner = {name: stem for stem, text in texts.items() for name in C_FUNCTION.findall(text)}
    return {
        stem: {owner[name] for name in C_NAME.findall(text) if name in owner} - {stem}
        for stem, text in texts.items()
    }


def by_module_folder(graph: Graph, package: Path) -> Graph:
    """The folders of modules, with those that they import from.

    What stands at the top of the package is a layer of its own, each module of it.
    """

    def folder(module: str) -> str:
        path = package.parent / module.replace(".", "/")
        parent = module.rpartition(".")[0]
        return module if path.is_dir() or parent == package.name else parent

    return _merged(graph, folder)


def by_folder(graph: Graph) -> Graph:
    """The folders of files, with those that they include from."""
    return _merged(graph, lambda path: path.rpartition("/")[0])


def _merged(graph: Graph, folder: object) -> Graph:
    assert callable(folder)
    merged: Graph = {}
    for name, targets in graph.items():
        merged.setdefault(folder(name), set()).update(map(folder, targets))
    return {name: targets - {name} for name, targets in merged.items()}


def first_cycle(graph: Graph) -> list[str]:
    """The nodes of one circle; empty if there is none."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_modules_import_each_other_in_no_circle() -> None:
    assert first_cycle(read_imports(ROOT / "shmq")) == []


def test_folders_import_from_each_other_in_no_circle() -> None:
    package = ROOT / "shmq"
    assert first_cycle(by_module_folder(read_imports(package), package)) == []


def test_folders_of_the_core_include_from_each_other_in_no_circle() -> None:
    assert first_cycle(by_folder(read_includes(ROOT / "shmq/core"))) == []


def test_headers_include_each_other_in_no_circle() -> None:
    assert first_cycle(read_includes(ROOT / "shmq/core")) == []


@pytest.mark.parametrize(
    "folder", sorted({path.parent for path in ROOT.glob("shmq/core/*/*.c")}), ids=lambda f: f.name
)
def test_files_of_the_core_call_each_other_in_no_circle(folder: Path) -> None:
    assert first_cycle(read_calls(folder)) == []


def test_calls_between_files_are_found() -> None:
    assert {"produce", "settle"} <= read_calls(ROOT / "shmq/core/server")["dispatch"]


def test_an_include_names_its_folder() -> None:
    includes = read_includes(ROOT / "shmq/core")
    assert set().union(*includes.values()) <= set(includes)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package in which everything is as it should be."""
    root = tmp_path / "shmq"
    for name, text in {
        "__init__.py": "from shmq.client.broker import connect\n",
        "errors.py": "import queue\n",
        "client/__init__.py": "",
        "client/broker.py": "from shmq import errors\nfrom shmq.native._core import Segment\n",
        "native/_core.pyx": "cimport cython\nfrom shmq.errors import (\n    Full,\n)\ncdef int n\n",
        "native/_more.pxi": "from shmq.api import names as _names  # here\n",
        "api/names.py": "",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_sound_package_has_nothing_to_report(package: Path) -> None:
    graph = read_imports(package)
    assert graph["shmq.client.broker"] == {"shmq.errors", "shmq.native._core"}
    assert graph["shmq.native._core"] == {"shmq.errors"}
    assert graph["shmq.native._more"] == {"shmq.api.names"}
    assert first_cycle(graph) == first_cycle(by_module_folder(graph, package)) == []


@pytest.mark.parametrize(
    ("name", "text", "folders"),
    [
        ("errors.py", "import shmq.client", {"shmq.errors", "shmq.client"}),
        ("errors.py", "def f():\n    from shmq import Full", {"shmq", "shmq.errors"}),
        ("client/broker.py", "import shmq", {"shmq", "shmq.client"}),
        ("native/_core.pyx", "from shmq.client import x", {"shmq.native", "shmq.client"}),
        ("native/_c.pxd", "from shmq.client cimport x", {"shmq.native", "shmq.client"}),
        ("api/more.py", "from shmq.native import _more", {"shmq.api", "shmq.native"}),
    ],
)
def test_an_import_that_points_up_closes_a_circle_of_folders(
    package: Path, name: str, text: str, folders: set[str]
) -> None:
    if name == "errors.py":
        (package / "client/low.py").write_text("from shmq import errors")
    (package / name).write_text(text)
    if name == "client/broker.py":
        (package / "__init__.py").write_text("from shmq.client.broker import connect")
    if name.startswith("native"):
        (package / "client/uses.py").write_text("from shmq.native import _core")
    assert folders <= set(first_cycle(by_module_folder(read_imports(package), package)))


def test_modules_of_one_folder_that_import_each_other_are_reported(package: Path) -> None:
    (package / "client/one.py").write_text("from shmq.client import two")
    (package / "client/two.py").write_text("from shmq.client.one import x")
    assert set(first_cycle(read_imports(package))) == {"shmq.client.one", "shmq.client.two"}


def test_files_that_call_each_other_are_reported(tmp_path: Path) -> None:
    (tmp_path / "lock.c").write_text("int shmq_lock(struct shmq_put *q)\n{\n    return 0;\n}\n")
    (tmp_path / "put.c").write_text("/* */\nint shmq_put(int n)\n{\n    return shmq_lock(n);\n}\n")
    assert read_calls(tmp_path) == {"lock": set(), "put": {"lock"}}
    (tmp_path / "lock.h").write_text("static inline int f(void) { return shmq_put(1); }\n")
    assert set(first_cycle(read_calls(tmp_path))) == {"lock", "put"}


def test_an_include_that_points_up_is_reported(tmp_path: Path) -> None:
    for name, text in {
        "base/clock.h": "#include <time.h>\n",
        "queue/slot.h": '#include "base/clock.h"\n',
        "base/clock.c": '#include "base/clock.h"\n#include "queue/slot.h"\n',
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert set(first_cycle(by_folder(read_includes(tmp_path)))) == {"base", "queue"}
