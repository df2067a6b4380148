"""Groups that another process deletes once an observer has listed them."""

from __future__ import annotations

from typing import Any

import pytest

from shmq.client.local.stream import LocalStream


def delete_before_opening(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete each group that this process opens, just before it does."""
    open_group = LocalStream.open_group

    def open_deleted(stream: LocalStream, name: str, *how: Any) -> Any:
        stream.delete_group(name)
        return open_group(stream, name, *how)

    monkeypatch.setattr(LocalStream, "open_group", open_deleted)
