"""The versions of servers of NATS."""

from __future__ import annotations

import re
from typing import Final

from shmq.errors import ShmqError

Version = tuple[int, int, int]

#: The oldest version that can do all that is asked of it; an older one ignores parts silently.
OLDEST: Final[Version] = (2, 12, 0)


def parse_version(text: str) -> Version:
    """The first version in a text such as ``nats-server: v2.14.0``. Raises ShmqError."""
    found = re.search(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})", text)
    if found is None:
        raise ShmqError(f"{text.strip()[:80]!r} names no version of nats-server")
    return int(found[1]), int(found[2]), int(found[3])
