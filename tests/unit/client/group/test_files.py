"""Files in /dev/shm that are named as a group, and are none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import shmq
from shmq.api.names import SHM
from shmq.client.local.broker import LocalBroker


@pytest.fixture
def broker(namespace: str) -> Iterator[LocalBroker]:
    with shmq.connect(namespace) as broker:
        assert isinstance(broker, LocalBroker)
        yield broker


@pytest.fixture
def junk(namespace: str) -> Iterator[Path]:
    path = SHM / f"group.shmq@{namespace}@junk@g"
    path.touch()
    yield path
    path.unlink()


@pytest.fixture
def folder(namespace: str) -> Iterator[Path]:
    """In place of a group of a stream that is gone."""
    path = SHM / f"group.shmq@{namespace}@{7:016x}@g"
    path.mkdir()
    yield path
    path.rmdir()


def test_what_is_no_group_does_not_stop_a_delete(
    broker: LocalBroker, junk: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stream = broker.create_stream("s", 1)
    stream.group("g")
    broker.delete_stream("s")
    assert junk.exists()
    assert folder.exists()
    assert f"{folder} is a directory" in caplog.text
    assert broker.create_stream("s", 1).groups() == []


def test_a_folder_in_place_of_a_group_is_told_of(broker: LocalBroker, namespace: str) -> None:
    stream = broker.create_stream("s", 1)
    path = SHM / f"group.shmq@{namespace}@{stream.identity:016x}@g"
    path.mkdir()
    try:
        for call in (stream.group, stream.share, stream.delete_group):
            with pytest.raises(shmq.ForeignSegment, match=r"@g"):
                call("g")
        assert [group.problem is None for group in stream.groups()] == [False]
    finally:
        path.rmdir()
