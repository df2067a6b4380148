"""The master of a job: whether it can be one, and whether it is there."""

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

#: How long a master may take to answer, in seconds. Spark itself gives up after a minute, and
#: then does not say why.
_PATIENCE: Final = 10.0


def form(value: Any, _: Path) -> str:
    """A master as Spark knows them. Raises :class:`ValueError` with what it must be."""
    if not isinstance(value, str) or not _FORM.fullmatch(value):
        raise ValueError('"local[N]", "local[*]", "spark://HOST:PORT", "yarn" or "k8s://…"')
    return value


def reach(master: str | None) -> None:
    """Make sure that one of the masters of ``spark://`` takes a connection.

    Raises :class:`~shmq.ConnectionLost` with the reason of the last if none does.
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
