"""Copies the docstrings of the contracts to the implementations, where ``help`` looks for them."""

from __future__ import annotations

import inspect

__all__ = ["document"]


def document(kind: type, promised: type) -> None:
    """Give the methods of ``kind`` the docstrings of the contract ``promised``."""
    for name, method in vars(promised).items():
        if inspect.isfunction(method) and not name.startswith("_"):
            getattr(kind, name).__doc__ = method.__doc__
