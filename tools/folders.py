"""Writes the list of folders into shmq/README.md: ``python -m tools.folders``.

The text is the first line of each package's docstring, the order that of their imports: a folder
uses only folders above it.
"""

from __future__ import annotations

import ast
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

from tools.imports import read_imports

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "shmq"
PAGE = PACKAGE / "README.md"

#: Folders whose subfolders are listed instead.
GROUPS = ("model", "host", "disk", "client", "extras")
#: A folder that is not a package of Python.
CORE = "C11: every operation on the shared memory of queues, streams and groups."

_BEGIN, _END = "<!-- folders -->\n\n", "\n<!-- end of folders -->"


def list_folders() -> list[str]:
    """The folders of the list, by path from shmq, in no order."""
    found = []
    for path in sorted(PACKAGE.iterdir()):
        if path.name in GROUPS:
            found += [f"{path.name}/{each.name}" for each in _folders_of(path)]
            if any(each.stem != "__init__" for each in path.glob("*.py")):
                found.append(path.name)
        elif path.is_dir() and path.name != "__pycache__":
            found.append(path.name)
    return found


def render(page: str) -> str:
    """The page with the present list."""
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return before + _BEGIN + "\n".join(_table()) + "\n" + _END + after


def _table() -> Iterator[str]:
    uses = find_uses()
    yield "| folder | contents | uses |"
    yield "| --- | --- | --- |"
    for folder in _in_order(uses):
        used = ", ".join(f"`{each}`" for each in sorted(uses[folder])) or "nothing"
        yield f"| `{folder}` | {describe(folder)} | {used} |"


def describe(folder: str) -> str:
    """The first line of the package's docstring. Raises AssertionError if there is none."""
    if folder == "core":
        return CORE
    text = ast.get_docstring(ast.parse((PACKAGE / folder / "__init__.py").read_text()))
    assert text, f"shmq/{folder}/__init__.py has no docstring"
    return re.sub(r":(?:mod|func|class):", "", text.partition("\n")[0]).replace("``", "`")


def find_uses() -> dict[str, set[str]]:
    """The folders that each folder imports from."""
    folders = list_folders()
    uses: dict[str, set[str]] = {folder: set() for folder in folders}
    for module, targets in read_imports(PACKAGE).items():
        folder = _folder_of(module, folders)
        if folder is not None:
            uses[folder] |= {_folder_of(target, folders) or folder for target in targets} - {folder}
    uses["native"].add("core")
    return uses


def _in_order(uses: dict[str, set[str]]) -> list[str]:
    """The kernel, then the extras; each folder after those it uses, otherwise by name."""
    sorter = graphlib.TopologicalSorter(uses)
    sorter.prepare()
    order: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        order += ready
        sorter.done(*ready)
    return sorted(order, key=lambda folder: folder.startswith("extras/"))


def _folders_of(path: Path) -> list[Path]:
    return [each for each in sorted(path.iterdir()) if (each / "__init__.py").exists()]


def _folder_of(module: str, folders: list[str]) -> str | None:
    """The listed folder that the module or package is in."""
    path = module.removeprefix("shmq.").replace(".", "/")
    while path and path not in folders:
        path = path.rpartition("/")[0]
    return path or None


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text()))
