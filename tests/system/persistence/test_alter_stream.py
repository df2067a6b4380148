"""Altered options of a durable stream, in its files."""

from __future__ import annotations

from pathlib import Path

import pytest

import shmq
from shmq.client.local.stream import attach
from shmq.host.namespace.namespace import Namespace
from tests.support.memory_loss import bring_back, lose_memory
from tests.support.waiting import eventually
from tests.support.writer_process import running_writer

RING = 64 << 10


def test_altered_options_come_back(namespace: str) -> None:
    with shmq.connect(namespace) as broker, running_writer(namespace) as writer:
        stream = broker.create_stream("s", 2, ring_bytes=RING, durability="journal")
        stream.append(b"before", partition=1, confirm="disk")
        for size in (2, 3, 4):
            broker.alter_stream("s", ring_bytes=size * RING, segment_bytes=size * RING)
            assert broker.alter_stream("s", retention_seconds=size * 100.0).confirm == "memory"
        stream.append_many([b"x" * 1000] * 300, partition=1, block=True, confirm="disk")
        stream.close()
        writer.kill()
        folder: Path = writer.folder
        lose_memory(namespace)
        bring_back(namespace, folder)
        with broker.stream("s") as again:
            options = again.options
            assert (options.ring_bytes, options.segment_bytes) == (4 * RING, 4 * RING)
            assert options.retention_seconds == 400.0
            assert again.offsets()[1].latest == 301
            assert bytes(next(iter(again.read(1, 0))).value) == b"before"
            assert attach(Namespace.of(namespace), "s").logs[1].ring_bytes == 4 * RING


def test_what_was_altered_without_a_writer_is_in_the_files_of_the_next(namespace: str) -> None:
    with shmq.connect(namespace) as broker:
        stream = broker.create_stream("s", 1, ring_bytes=RING, durability="journal")
        broker.alter_stream("s", ring_bytes=2 * RING)
        with running_writer(namespace) as writer:
            stream.append(b"x", confirm="disk")
            assert broker.alter_stream("s").ring_bytes == 2 * RING  # waits for the files
            stream.close()
            writer.kill()
            lose_memory(namespace)
            bring_back(namespace, writer.folder)
            assert broker.stream("s").options.ring_bytes == 2 * RING


def test_a_shorter_retention_removes_files(namespace: str) -> None:
    with shmq.connect(namespace) as broker, running_writer(namespace):
        stream = broker.create_stream(
            "s", 1, ring_bytes=RING, segment_bytes=RING, durability="journal"
        )
        for _ in range(10):
            stream.append_many([b"x" * 1000] * 50, confirm="disk")
        assert stream.offsets()[0].earliest == 0

        broker.alter_stream("s", retention_bytes=2 * RING)
        stream.append(b"x", confirm="disk")

        def is_shorter() -> bool:
            stream.append(b"x")
            return stream.offsets()[0].earliest > 0

        eventually(is_shorter, "old files are removed")


def test_options_are_not_said_to_be_on_disk_until_they_are(
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shmq.connect(namespace) as broker, running_writer(namespace):
        broker.create_stream("s", 1, ring_bytes=RING, durability="journal").append(
            b"x", confirm="disk"
        )
        monkeypatch.setattr("shmq.client.shared.durability._WRITTEN", -1.0)
        with pytest.raises(shmq.NotConfirmed, match=r"'s' .*not known to be on disk"):
            broker.alter_stream("s", ring_bytes=2 * RING)
        monkeypatch.undo()
        assert broker.alter_stream("s", ring_bytes=2 * RING).ring_bytes == 2 * RING
