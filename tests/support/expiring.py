"""Keys of tables that expire at the worst moment."""

from __future__ import annotations

from typing import Any

import pytest

from shmq.client.local.table import LocalTable
from shmq.client.remote.table import RemoteTable


def expire_before_increments(patch: pytest.MonkeyPatch) -> None:
    """Make each key expire just before it is incremented: for every call it is deleted then."""
    for kind in (LocalTable, RemoteTable):
        increment = kind.increment

        def late(
            table: Any, key: str, *by: int, _increment: Any = increment, **how: Any
        ) -> int | None:
            table.delete(key)
            found: int | None = _increment(table, key, *by, **how)
            return found

        patch.setattr(kind, "increment", late)
