"""What a member is called."""

from __future__ import annotations

from pathlib import Path

__all__ = ["member_name"]


def member_name(given: str | None) -> str:
    """The name that was given, else that of the process. Raises TypeError."""
    if given is None:
        return _process_name()
    if not isinstance(given, str):
        raise TypeError(f"a member's name must be a str or None, not {type(given).__name__}")
    return given.encode(errors="replace").decode()


def _process_name() -> str:
    """The process's program, as the kernel knows it."""
    try:
        return Path("/proc/self/comm").read_text().strip()
    except OSError:
        return "?"
