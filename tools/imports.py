"""Reads which modules of the package import which, from their sources."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Container
from pathlib import Path

#: Cython's imports of our own modules, which Python can read once cimport is import.
CYTHON_IMPORT = re.compile(r"^[ \t]*((?:from|c?import)[ ]+shmq[^(\n]*(?:\([^)]*\))?)", re.MULTILINE)


def read_imports(package: Path) -> dict[str, set[str]]:
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


def _module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(path: Path) -> tuple[str, ...]:
    """Every dotted name that the file imports; of ``from a import b``, ``a.b``."""
    text = path.read_text()
    if path.suffix != ".py":
        text = "\n".join(CYTHON_IMPORT.findall(text)).replace("cimport", "import")
    return _names_in(text, str(path))


@functools.cache
def _names_in(text: str, path: str) -> tuple[str, ...]:
    names: list[str] = []
    for node in ast.walk(ast.parse(text, path)):
        if isinstance(node, ast.Import):
            names += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import hides what it points at"
            names += (f"{node.module}.{alias.name}" for alias in node.names)
    return tuple(names)


def _nearest(target: str, modules: Container[str]) -> str | None:
    """The module that the dotted name is or lies in; None if it is not ours."""
    while target and target not in modules:
        target = target.rpartition(".")[0]
    return target or None
