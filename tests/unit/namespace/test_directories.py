"""Where the durable data of namespaces is."""

from __future__ import annotations

from pathlib import Path

import pytest

from shmq.host.namespace.data_directory import chosen_directory
from shmq.host.namespace.directory_record import state_directory


def test_a_namespace_has_another_directory_than_the_group_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHMQ_STATE_DIR", str(tmp_path))
    monkeypatch.delenv("SHMQ_DATA_DIR", raising=False)
    assert state_directory("web/orders") == tmp_path / "@web"
    assert chosen_directory("web") == tmp_path / "web"

    monkeypatch.setenv("SHMQ_DATA_DIR", str(tmp_path))
    assert chosen_directory("web/orders") == tmp_path / "@web" / "orders"
    assert chosen_directory("web") == tmp_path / "web"
