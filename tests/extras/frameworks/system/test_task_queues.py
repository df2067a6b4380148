"""The handles that the threads of a framework share for their puts."""

from __future__ import annotations

import pytest

import shmq
from shmq.extras.frameworks.task_queues import Connection, TaskQueues


def test_the_later_of_two_threads_that_find_a_queue_deleted_leaves_the_new_handle_open(
    target: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = TaskQueues(Connection(target), "", {})
    queues.put("jobs", b"before")
    forget = TaskQueues.forget
    others: list[shmq.Queue] = []

    def forget_later(self: TaskQueues, name: str, *more: shmq.Queue) -> None:
        """`forget` of a thread that comes to it when another one has the new handle."""
        monkeypatch.setattr(TaskQueues, "forget", forget)
        self.put(name, b"of the other thread")
        others.append(self.queue(name))
        forget(self, name, *more)

    monkeypatch.setattr(TaskQueues, "forget", forget_later)
    with shmq.connect(namespace) as broker:
        broker.delete_queue("jobs")
    queues.put("jobs", b"of this thread")
    assert others == [queues.queue("jobs")]
    assert [bytes(each.body) for each in others[0].peek()] == [
        b"of the other thread",
        b"of this thread",
    ]
    queues.close()
