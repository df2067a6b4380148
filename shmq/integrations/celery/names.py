"""Names of AMQP as names of shmq, which have fewer characters."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["escape_name"]

_OTHERS: Final = re.compile(rb"[^A-Za-z0-9._-]")


def escape_name(name: str) -> str:
    """The name with ``:XX`` for each byte of UTF-8 that shmq has not in names, and for ``:``."""
    return _OTHERS.sub(lambda byte: b":%02X" % byte[0][0], name.encode()).decode()
