"""The workers of a stress run, as their starter sees them."""

from __future__ import annotations

from typing import Any

import pytest

from shmq.extras.stress.workers import WorkerEnded, WorkerProcesses


class Ending:
    """A process that ends with that code right after it was first asked for one."""

    def __init__(self, code: int) -> None:
        self._codes = [None, code]
        self.closed = False

    @property
    def exitcode(self) -> int | None:
        return self._codes.pop(0) if len(self._codes) > 1 else self._codes[0]

    def close(self) -> None:
        self.closed = True


def workers_with(process: Any) -> WorkerProcesses:
    workers = WorkerProcesses()
    workers._alive[1] = (process, print)
    return workers


def test_a_worker_that_ends_normally_while_it_is_checked_has_not_failed() -> None:
    process = Ending(0)
    workers = workers_with(process)

    workers.check()
    assert workers.alive == [1]
    workers.check()

    assert workers.alive == []
    assert process.closed


def test_a_worker_that_fails_while_it_is_checked_is_reported_by_the_next_check() -> None:
    workers = workers_with(Ending(1))

    workers.check()

    with pytest.raises(WorkerEnded, match="worker 1 ended by itself with 1"):
        workers.check()
