"""The error of a put or an append that the disk did not confirm says what the disk did."""

from __future__ import annotations

import errno

import pytest

import shmq
from shmq.client.local.queue import LocalQueue
from shmq.client.local.stream import LocalStream
from shmq.native._core import Follower


def test_a_put_names_the_disks_error_although_the_disk_works_again_by_then(
    broker: shmq.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = broker.create_queue("q", durability="journal", dead_letter=None)
    assert isinstance(queue, LocalQueue)
    disk = Follower(queue)
    describe = LocalQueue._not_confirmed

    def work_again(self: LocalQueue, sequence: int, taken: int) -> shmq.ShmqError:
        disk.fail(0)
        return describe(self, sequence, taken)

    monkeypatch.setattr(LocalQueue, "_not_confirmed", work_again)
    disk.fail(errno.ENOSPC)

    with pytest.raises(shmq.NotConfirmed, match="No space left"):
        queue.put(b"", confirm="disk")
    with pytest.raises(shmq.NotConfirmed, match="wait longer"):
        queue.put(b"", confirm="disk", timeout=0.001)


def test_an_append_names_the_disks_error_although_the_disk_works_again_by_then(
    broker: shmq.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = broker.create_stream("s", durability="journal", partitions=1)
    assert isinstance(stream, LocalStream)
    disk = stream.logs[0]
    describe = LocalStream.why_unconfirmed

    def work_again(self: LocalStream, partition: int) -> str:
        disk.fail(0)
        return describe(self, partition)

    monkeypatch.setattr(LocalStream, "why_unconfirmed", work_again)
    disk.writer = stream._process_number()
    disk.fail(errno.ENOSPC)

    with pytest.raises(shmq.NotConfirmed, match="No space left"):
        stream.append(b"", confirm="disk")
    with pytest.raises(shmq.NotConfirmed) as caught:
        stream.append(b"", confirm="disk", timeout=0.001)
    assert "No space left" not in str(caught.value)
