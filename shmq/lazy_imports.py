"""Packages that load their names on first use (PEP 562)."""

from __future__ import annotations

import importlib
import sys

from shmq.errors import descriptors

TYPE_CHECKING = False  # that of typing, whose import would cost as much as the interpreter's start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

__all__ = ["on_demand"]


def on_demand(
    package: str, places: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__getattr__`` and the ``__dir__`` of a package that exports ``places``.

    ``places`` maps each public name to the module that it is loaded from, once.
    """
    own = vars(sys.modules[package])

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with descriptors:
            found = own[name] = getattr(importlib.import_module(places[name]), name)
        return found

    def names() -> list[str]:
        return sorted(places)

    return find, names
