"""What failed within Spark, in one line: the error at its root, not the traces around it."""

from __future__ import annotations

import re
from typing import Final

from shmq import errors
from shmq.errors import ShmqError

__all__ = ["failure_of"]

#: The last line of a Python traceback, wherever it stands in what Java tells.
_PYTHON: Final = re.compile(
    r"^\s*(?:Caused by: )?(?:[\w.]+: )?((?:\w+\.)*[A-Z]\w+): (.+)$", re.MULTILINE
)
_TRACEBACK: Final = "Traceback (most recent call last):"


def failure_of(error: Exception) -> Exception:
    """The error itself if it is one of shmq's, else one that says what was at its root."""
    if isinstance(error, ShmqError):
        return error
    text = str(error)
    if _TRACEBACK in text:
        last = text[text.rindex(_TRACEBACK) :]
        for found in _PYTHON.finditer(last):
            return _made(found[1].rpartition(".")[2], found[2].strip())
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return ShmqError(f"Spark: {line or type(error).__name__}")


def _made(name: str, told: str) -> ShmqError:
    """An error of shmq's as what it was, so that its exit code is; another one by its name."""
    kind = getattr(errors, name, None) if name in errors.__all__ else None
    if kind is None:
        return ShmqError(f"{name}: {told}")
    made: ShmqError = kind.__new__(kind)
    Exception.__init__(made, told)
    return made
