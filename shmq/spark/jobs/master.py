"""The master of a job: whether its URL is valid, and whether it can be reached."""

from __future__ import annotations

import contextlib
import re
import socket
from pathlib import Path
from typing import Any, Final

from shmq.errors import ConnectionLost

__all__ = ["form", "reach"]

_FORM: Final = re.compile(
    r"local|local\[(\*|\d+)(, *\d+)?\]|local-cluster\[\d+, *\d+, *\d+\]|"
    r"spark://[^\s:/,]+:\d+(,[^\s:/,]+:\d+)*|yarn|k8s://\S+"
)

#: How long a master may take to answer, in seconds. Spark itself gives up after a minute
#: without saying why.
_PATIENCE: Final = 10.0


def form(value: Any, _: Path) -> str:
    """A master URL that Spark knows. Raises a :class:`ValueError` that says what is allowed."""
    if not isinstance(value, str) or not _FORM.fullmatch(value):
        raise ValueError('"local[N]", "local[*]", "spark://HOST:PORT", "yarn" or "k8s://…"')
    return value


def reach(master: str | None) -> None:
    """Check that one of the masters in a ``spark://`` URL accepts a connection.

    Raises :class:`~shmq.ConnectionLost` with the last master's reason if none does.
    """
    if master is None or not master.startswith("spark://"):
        return
    why = ""
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        try:
            with contextlib.closing(socket.create_connection((host, int(port)), _PATIENCE)):
                return
        except (OSError, OverflowError) as error:
            why = f"{place}: {getattr(error, 'strerror', None) or error}"
    raise ConnectionLost(
        f"no master of Spark answers at {master} ({why}): start it, or change master in [spark]"
    )
