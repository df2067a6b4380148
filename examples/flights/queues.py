"""The queues of the job."""

from __future__ import annotations

import contextlib
from typing import Any, Final, Self

import shmq
from examples.flights.errors import DemoError

__all__ = ["COUNTED", "FLIGHTS", "PATIENCE", "RESULTS", "Queues"]

#: One message per flight, from the producers to the consumers.
FLIGHTS: Final = "flights"
#: One message per batch of flights added up, from the consumers to the ledger.
RESULTS: Final = "results"
#: One message per flight that is counted, from the ledger to Spark.
COUNTED: Final = "counted"
#: How long a put waits for space before it gives up, in seconds.
PATIENCE: Final = 60.0

# Nothing may be dropped: a full queue makes its producers wait, and a message comes
# back as often as it must. A dead consumer's leases return at once, so the timeout is
# only for one that hangs, and is long enough never to catch one that is merely slow.
_KEEP: Final[dict[str, Any]] = {
    "overflow": "block",
    "max_deliveries": None,
    "dead_letter": None,
    "visibility_timeout": 600.0,
}
_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    # A flight's body and its group are under 30 bytes: twice the 64 that each takes.
    FLIGHTS: {"capacity": 32_768, "arena_bytes": 4 << 20, **_KEEP},
    # Short, so that the consumers stay close to what is counted.
    RESULTS: {"capacity": 32, "arena_bytes": 1 << 20, **_KEEP},
    # It holds all flights by the end; its room is made for them.
    COUNTED: dict(_KEEP),
}
#: Bytes of arena that a message of a flight takes in it, at most.
_RESULT_BYTES: Final = 256


# Sums are on disk before the flights in them are acknowledged. A flight's producer says
# itself when it wants to know that it is.
_DURABLE: Final[dict[str, dict[str, Any]]] = {
    FLIGHTS: {"durability": "journal"},
    RESULTS: {"durability": "journal", "confirm": "disk"},
    COUNTED: {"durability": "journal", "confirm": "disk"},
}


class Queues:
    """The queues of flights and of results, as the process that counts has them.

    A context: they are made at its begin, with journals if they are ``durable``, and deleted
    at its end. Entering raises :class:`DemoError` if the namespace has a queue that is in the
    way: one of such a name and, as durable ones may lose the namespace's memory, any other.
    """

    flights: shmq.Queue
    results: shmq.Queue
    #: None where nothing is to be archived.
    counted: shmq.Queue | None = None

    def __init__(self, namespace: str, *, durable: bool = False, archived: int = 0) -> None:
        """With room for so many flights that are to be archived, if any are."""
        self._namespace = namespace
        self._durable = durable
        self._archived = archived
        self._broker = shmq.connect(namespace)

    def leave(self) -> None:
        """Let go of them: this process has no part in the namespace any more."""
        self._broker.close()

    def find(self) -> None:
        """Have them again. Raises :class:`~shmq.NoSuchQueue` if they are not there."""
        self._broker = shmq.connect(self._namespace)
        self.flights, self.results = map(self._broker.queue, (FLIGHTS, RESULTS))
        if self._archived:
            self.counted = self._broker.queue(COUNTED)

    def retire(self) -> None:
        """Delete the queues of the workers, which ends them; what is counted stays."""
        for name in (FLIGHTS, RESULTS):
            self._broker.delete_queue(name)

    def _make(self, name: str, **more: Any) -> shmq.Queue:
        durable = _DURABLE[name] if self._durable else {}
        return self._broker.create_queue(name, **_OPTIONS[name], **durable, **more)

    def _refuse_others(self) -> None:
        there = set(self._broker.queue_names())
        taken = there if self._durable else there & _OPTIONS.keys()
        if taken:
            raise DemoError(
                f"the namespace {self._namespace!r} has a queue {min(taken)!r} already: "
                "choose another with --namespace"
            )

    def _delete(self) -> None:
        with shmq.connect(self._namespace) as broker:
            for name in _OPTIONS:
                with contextlib.suppress(shmq.NoSuchQueue):
                    broker.delete_queue(name)

    def __enter__(self) -> Self:
        try:
            self._refuse_others()
        except BaseException:
            self._broker.close()
            raise
        try:
            self.flights, self.results = map(self._make, (FLIGHTS, RESULTS))
            if self._archived:
                room = _RESULT_BYTES * self._archived + (1 << 20)
                self.counted = self._make(COUNTED, capacity=self._archived, arena_bytes=room)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._broker.close()
        self._delete()
