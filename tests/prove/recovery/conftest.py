"""A persistence process for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.prove.recovery.tools import Persist, running_writer


@pytest.fixture
def persist(namespace: str, tmp_path: Path) -> Iterator[Persist]:
    """``shmq persist`` of the test's namespace, begun."""
    with running_writer(namespace, tmp_path / "data") as running:
        yield running
