"""The end of a micro-batch, as the offset that Spark keeps in the checkpoint.

The queues know which messages a batch has: the query has leased them in its name, as the run of an
epoch, which is the number of the batch. So the offset names the query and the epoch, and says for
each queue with messages in the batch which queue that is, how many they are, and how many tasks
read them: a replay has as many, as a sink may know a task's rows by the task's number. As JSON::

    {"version": 1, "query": "f0…9a", "epoch": 7,
     "queues": {"orders": {"id": "00c0…", "count": 3, "tasks": 1}}}

If the batch could not have all waiting messages, ``turn`` is the queue after which the next batch
continues to give out the messages that remain (:func:`shmq.spark.shared.shares.divide`).
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Self

from shmq.errors import ShmqError

VERSION: Final = 1

#: The most messages that a queue can hold.
MOST: Final = 1 << 24
#: The last epoch that a queue knows.
_LAST: Final = (1 << 32) - 1


@dataclasses.dataclass(frozen=True, slots=True)
class QueueOffset:
    """The messages of one queue in a batch: the queue's identity, and how many they are."""

    identity: int
    count: int
    #: How many tasks read them, whichever process plans the batch.
    tasks: int = dataclasses.field(default=1, compare=False)

    def as_json(self) -> dict[str, Any]:
        """The JSON that the checkpoint keeps."""
        return {"id": f"{self.identity:016x}", "count": self.count, "tasks": self.tasks}

    @classmethod
    def of_json(cls, given: Any) -> Self:
        """The inverse of :meth:`as_json`. Raises ValueError and its like for other JSON."""
        count, tasks = given["count"], given.get("tasks", 1)
        if type(count) is not int or not 0 < count <= MOST:
            raise ValueError(f"a count of {count!r}")
        if type(tasks) is not int or not 0 < tasks <= count:
            raise ValueError(f"{tasks!r} tasks")
        return cls(int(given["id"], 16), count, tasks)


@dataclasses.dataclass(frozen=True, slots=True)
class Offset:
    """The end of a micro-batch: its query, its number, counted from 1, and its queues by name."""

    query: str
    epoch: int
    queues: Mapping[str, QueueOffset]
    #: The queue that got the last remaining message of the batch; None: nothing remained.
    turn: str | None = None

    @classmethod
    def before_all(cls) -> Self:
        """Where a new query begins, with a name that no other one has."""
        return cls(secrets.token_hex(8), 0, MappingProxyType({}))

    def __len__(self) -> int:
        return sum(each.count for each in self.queues.values())

    def as_json(self) -> dict[str, Any]:
        """The JSON for Spark, always with the same keys in the same order."""
        queues = {name: self.queues[name].as_json() for name in sorted(self.queues)}
        found = {"version": VERSION, "query": self.query, "epoch": self.epoch, "queues": queues}
        return found if self.turn is None else {**found, "turn": self.turn}

    @classmethod
    def of_json(cls, given: Mapping[str, Any]) -> Self:
        """The offset in Spark's JSON. Raises ShmqError for JSON that is not of this source."""
        try:
            query, epoch = given["query"], given["epoch"]
            if given["version"] != VERSION or type(epoch) is not int or not 0 <= epoch <= _LAST:
                raise ValueError(f"version {given['version']!r}, epoch {epoch!r}")
            if type(query) is not str or not 0 < len(query) <= 100:
                raise ValueError(f"query {query!r:.100}")
            turn = given.get("turn")
            if turn is not None and type(turn) is not str:
                raise ValueError(f"turn {turn!r:.100}")
            queues = {name: QueueOffset.of_json(each) for name, each in given["queues"].items()}
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise ShmqError(
                f"the checkpoint has an offset that is not one of format('shmq') for queues, "
                f"version {VERSION}: {str(given)[:200]} ({error}); give the query a checkpoint of "
                f"its own"
            ) from None
        return cls(query, epoch, MappingProxyType(queues), turn)
