"""The file of the schemas of a namespace."""

from __future__ import annotations

from pathlib import Path

import pytest

import shmq
from tests.support.namespaces import SHM

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.fixture
def file(namespace: str, broker: shmq.Broker) -> Path:
    broker.create_queue("q")
    broker.set_schema("q", SCHEMA)
    return SHM / f"schemas.shmq@{namespace}"


def test_the_file_is_this_users_alone_and_goes_with_the_last_schema(
    file: Path, broker: shmq.Broker
) -> None:
    assert file.stat().st_mode & 0o777 == 0o600
    broker.create_queue("other")
    broker.set_schema("other", SCHEMA)
    broker.delete_queue("q")
    assert [each.version for each in broker.schemas("other")] == [1]
    broker.delete_queue("other")
    assert not file.exists()


@pytest.mark.parametrize("at", [0, 4, 8, 16, 30])
def test_any_damage_is_an_error_with_the_file(file: Path, broker: shmq.Broker, at: int) -> None:
    raw = bytearray(file.read_bytes())
    raw[at] ^= 0x40
    file.write_bytes(raw)

    with pytest.raises(shmq.SegmentError, match=r"schemas\.shmq@"):
        broker.schemas("q")
    with pytest.raises(shmq.SegmentError):
        broker.set_schema("q", SCHEMA)


def test_a_file_that_is_cut_off_is_damaged(file: Path, broker: shmq.Broker) -> None:
    whole = file.read_bytes()
    for size in (0, 3, 19, len(whole) - 1):
        file.write_bytes(whole[:size])
        with pytest.raises(shmq.DamagedSegment):
            broker.schemas("q")


def test_a_file_that_others_may_write_is_foreign(file: Path, broker: shmq.Broker) -> None:
    file.chmod(0o666)
    with pytest.raises(shmq.ForeignSegment):
        broker.schemas("q")


def test_a_directory_in_its_place_is_foreign(file: Path, broker: shmq.Broker) -> None:
    file.unlink()
    file.mkdir(0o700)
    try:
        with pytest.raises(shmq.ForeignSegment, match="not a regular file"):
            broker.schemas("q")
    finally:
        file.rmdir()


def test_a_file_that_is_longer_than_it_says_is_not_read(file: Path, broker: shmq.Broker) -> None:
    with file.open("r+b") as grown:
        grown.truncate(1 << 50)
    with pytest.raises(shmq.DamagedSegment, match=f"it has {1 << 50} bytes"):
        broker.schemas("q")


def test_what_a_dead_writer_left_aside_blocks_no_other(file: Path, broker: shmq.Broker) -> None:
    aside = file.with_name(f"{file.name}@new")
    aside.write_bytes(b"half")
    aside.chmod(0o600)

    assert broker.set_schema("q", {**SCHEMA, "title": "again"}) == 2
    assert not aside.exists()


def test_what_a_dead_deleter_left_is_not_inherited(
    file: Path, broker: shmq.Broker, namespace: str
) -> None:
    kept = file.read_bytes()
    broker.delete_queue("q")
    file.touch(0o600)
    file.write_bytes(kept)

    broker.create_queue("q")

    assert broker.schemas("q") == []
