"""Text that a terminal shows and does not obey."""

from __future__ import annotations

__all__ = ["one_line", "printable"]


def printable(text: str, keep: str = "") -> str:
    """``text`` with every character escaped that is neither printable nor in ``keep``."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode()
        for char in text
    )


def one_line(text: str) -> str:
    """``text`` on one line, escaped as by :func:`printable`."""
    return printable(" ".join(text.split()))
