"""The disk's use follows what the queue holds, however much goes through it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

import shmq
from shmq.disk.persistence.segment_writer import WriteSizes
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.paths import catalog
from tests.support.queue_chain import chain
from tests.system.persistence.test_writer import synced, writing

#: Puts and acknowledgements, and how many the queue holds at most.
CHURN = 10_000_000
HELD = 1_000
#: Of how many rounds one waits for the disk, so that all of it is written there.
WRITTEN = 20

SIZES = WriteSizes(segment=4 << 20, ahead=64 << 10)


@pytest.mark.watchdog(600)
def test_ten_million_puts_and_acks_leave_a_few_segments_and_one_message_pins_none(
    broker: shmq.Broker, namespace: str, tmp_path: Path
) -> None:
    disk = Disk(tmp_path)
    queue = broker.create_queue(
        "q", durability="journal", capacity=4 * HELD, dead_letter=None, priorities=2
    )
    most = 0
    with writing(namespace, disk, SIZES) as writer:
        stays = queue.put(b"stays", priority=0, confirm="disk").sequence
        bodies = [b"%016d" % number for number in range(HELD)]
        for turn in range(CHURN // HELD):
            confirm: Literal["memory", "disk"] = "memory" if turn % WRITTEN else "disk"
            queue.put_many(bodies, priority=1, confirm=confirm)
            assert queue.ack_many(queue.get_many(HELD)) == []
            if turn % 100 == 0:
                most = max(most, _length(disk))
        synced(queue)
        written = queue.stats().journal_bytes
        writer.snapshot("q")
        files = catalog(disk.names())["q"]
        length = _length(disk)
    assert queue.stats().acked == CHURN
    assert written > 8 * SIZES.segment, "a good part of it went to the disk"
    assert most < 6 * SIZES.segment
    assert length < SIZES.segment and len(files.segments) <= 1
    assert list(chain(disk, "q")) == [stays]


def _length(disk: Disk) -> int:
    total = 0
    for name in disk.names():
        try:
            total += disk.path(name).stat().st_size
        except FileNotFoundError:
            continue
    return total
