"""Foreign files in the data directory stop no queue but the one of their name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq.api.options import DEAD_LETTER_ROOM, MAX_ARENA, QueueOptions
from shmq.disk.persistence.recovery import Decision, recover
from shmq.disk.storage.disk import Disk
from shmq.host.namespace.data_directory import DataDirectory
from tests.support.queue_files import HASH_KEY, Building, put

SEGMENT = "x@0000000000000001.dmsq"
Recover = Callable[[], dict[str, Decision]]


def file(name: str, **options: Any) -> bytes:
    """A segment of the queue, with one message."""
    given = {**QueueOptions(capacity=64, durability="journal").as_dict(), **options}
    key = HASH_KEY + len(name)  # each queue has its own
    return bytes(Building(name=name, hash_key=key, options=given).batch(put(1)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with one sound queue, "good"."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    (folder / "good@0000000000000001.dmsq").write_bytes(file("good"))
    return folder


@pytest.fixture
def recovered(folder: Path, namespace: str) -> Iterator[Recover]:
    directory = DataDirectory(namespace, Disk(folder))

    def run() -> dict[str, Decision]:
        directory.ready()
        return recover(directory)

    yield run
    directory.close()


def is_alone(broker: shmq.Broker) -> bool:
    """Whether "good" came back, and nothing else."""
    with broker.queue("good") as queue:
        return [one.name for one in broker.list_queues()] == ["good"] and queue.stats().depth == 1


@pytest.mark.parametrize("name", ["x.dmsq", SEGMENT])
@pytest.mark.parametrize("kind", ["directory", "symlink", "fifo"])
def test_what_is_no_file_is_reported_and_the_others_come_back(
    kind: str, name: str, folder: Path, recovered: Recover, broker: shmq.Broker
) -> None:
    if kind == "directory":
        (folder / name).mkdir()
    elif kind == "symlink":
        (folder / name).symlink_to(folder / "good@0000000000000001.dmsq")
    else:
        os.mkfifo(folder / name)

    decisions = recovered()

    assert f"{folder / name} cannot be read: " in str(decisions["x"].error)
    assert is_alone(broker)


@pytest.mark.parametrize("name", [".x.dmsq.tmp", "good.dmsq.0123456789abcdef"])
def test_a_directory_where_a_file_is_to_go_is_left(
    name: str, folder: Path, recovered: Recover, broker: shmq.Broker
) -> None:
    (folder / name).mkdir()

    recovered()

    assert is_alone(broker)
    assert (folder / name).is_dir()


def test_a_directory_with_the_name_of_a_file_of_a_queue_that_is_there(
    folder: Path, recovered: Recover, broker: shmq.Broker
) -> None:
    recovered()
    (folder / "good.dmsq").mkdir()

    recovered()

    assert is_alone(broker)
    (folder / "good.dmsq").rmdir()  # it stands in the way of a delete


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"colour": "blue"}, "unknown option 'colour'"),
        ({"capacity": "lots"}, "capacity='lots' must be an int"),
        ({"capacity": 1 << 40}, "capacity=1099511627776 is out of range"),
        ({"arena_bytes": 1 << 63}, "arena_bytes=9223372036854771712 is out of range"),
        ({"snapshot_interval": float("nan")}, "snapshot_interval=nan s is out of range"),
        ({"durability": ["journal"]}, "durability=['journal'] must be one of"),
        ({"dead_letter": "../x"}, "dead_letter='../x'"),
    ],
)
def test_options_that_no_queue_can_have_are_an_error_of_that_queue(
    options: dict[str, Any], what: str, folder: Path, recovered: Recover, broker: shmq.Broker
) -> None:
    (folder / SEGMENT).write_bytes(file("x", **options))

    decisions = recovered()

    assert f"queue 'x' cannot be made as its files say: {what}" in str(decisions["x"].error)
    assert is_alone(broker)


@pytest.mark.parametrize("name", ["a b", "ü", "x" * 101])
def test_a_name_that_no_queue_can_have(
    name: str, folder: Path, recovered: Recover, broker: shmq.Broker
) -> None:
    (folder / f"{name}@0000000000000001.dmsq").write_bytes(file(name))

    decisions = recovered()

    assert isinstance(decisions[name].error, shmq.InvalidName)
    assert is_alone(broker)


def test_the_dead_letters_of_the_largest_queue_come_back(
    folder: Path, recovered: Recover, broker: shmq.Broker
) -> None:
    largest = MAX_ARENA + DEAD_LETTER_ROOM
    (folder / SEGMENT).write_bytes(file("x", arena_bytes=largest, dead_letter=None))

    recovered()

    with broker.queue("x") as queue:
        assert queue.options.arena_bytes == largest
