"""A queue with a journal that confirms in memory, and the same queue without one."""

from __future__ import annotations

import contextlib
import time
from typing import Any, ClassVar, Literal

from bench.disk import folder
from bench.disk.writer import Kept, kept
from bench.peers import shared_queue
from bench.stage import PATIENCE, Failed

#: The queues of this process; its sides are other processes.
_made: dict[str, tuple[Kept, contextlib.ExitStack]] = {}


class Durable(shared_queue.SharedQueue):
    """A queue in a namespace with a persistence writer."""

    durability: ClassVar[Literal["memory", "journal"]] = "journal"

    @classmethod
    def missing(cls) -> str | None:
        return super().missing() or folder.missing()

    def create(self) -> None:
        stack = contextlib.ExitStack()
        made = stack.enter_context(kept(durability=self.durability))
        _made[self.name] = made, stack
        self.name = made.name

    def open(self) -> Any:
        self.queue: Any = super().open()
        return self.queue

    def settle(self) -> None:
        """Wait until the journal has caught up; check that it is complete."""
        end = time.monotonic() + PATIENCE
        while self.durability == "journal":
            stats = self.queue.stats()
            if stats.journal_error is not None:
                raise Failed(f"the journal failed: {stats.journal_error}")
            if not (stats.journal_lag or stats.journal_waiting):
                break
            if time.monotonic() > end:
                raise Failed(f"the journal is {stats.journal_lag} messages behind")
            time.sleep(0.01)

    def remove(self) -> None:
        for asked, (made, stack) in list(_made.items()):
            if made.name == self.name:
                del _made[asked]
                stack.close()


class JournalWriter(Durable, shared_queue.OneByOne):
    """put, get, ack: one call each."""

    label = "shmq put, get, ack, journal"


class InMemory(Durable, shared_queue.OneByOne):
    """The same without durability; the writer is idle."""

    label = "shmq put, get, ack, memory"
    durability = "memory"


class JournaledBatches(Durable, shared_queue.Batches):
    """put_many, get_batch, ack: 64 messages each."""

    label = "shmq put_many, get_batch, ack(64), journal"


class BatchesInMemory(Durable, shared_queue.Batches):
    """The same without durability."""

    label = "shmq put_many, get_batch, ack(64), memory"
    durability = "memory"
