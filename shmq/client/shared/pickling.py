"""Pickled brokers and handles, which attach again where they are unpickled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def reduce(handle: Any, attach: Callable[..., Any], *arguments: Any) -> tuple[Any, ...]:
    """What ``__reduce__`` returns for a handle that ``attach`` opens; it keeps its ``default``."""
    if handle.default is None:
        return attach, arguments
    return _attach, (handle.default, attach, *arguments)


def _attach(default: Any, attach: Callable[..., Any], *arguments: Any) -> Any:
    handle = attach(*arguments)
    handle.default = default
    return handle
