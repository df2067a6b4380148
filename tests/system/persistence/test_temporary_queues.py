"""Durable queues that end by themselves: their files go, too."""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Any

import pytest

import shmq
from tests.support.processes import Start
from tests.support.waiting import eventually
from tests.support.writer_process import WriterProcess


def files_of(writer_process: WriterProcess, queue: str) -> list[str]:
    return [path.name for path in writer_process.folder.rglob(f"{queue}@*")]


@pytest.mark.prove
@pytest.mark.parametrize(
    "options", [{"auto_delete": True}, {"expires": 0.5}], ids=["auto_delete", "expires"]
)
def test_the_files_of_a_killed_workers_queue_go_with_it(
    writer_process: WriterProcess,
    namespace: str,
    broker: shmq.Broker,
    start: Start,
    options: dict[str, Any],
) -> None:
    def work(pipe: Connection) -> None:
        queue = shmq.connect(namespace).create_queue(
            "t", durability="journal", dead_letter=None, **options
        )
        queue.put(b"1", confirm="disk")
        pipe.send(queue.get().sequence)
        pipe.recv()

    child = start(work)
    child.hear()
    assert files_of(writer_process, "t") != []

    child.kill()

    eventually(lambda: broker.list_queues() == [], "the queue goes")
    eventually(lambda: files_of(writer_process, "t") == [], "its files go")
    with pytest.raises(shmq.NoSuchQueue):
        broker.queue("t")
