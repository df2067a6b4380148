"""The queues of the job."""

from __future__ import annotations

import contextlib
from typing import Any, Final, Self

import shmq
from examples.flights.errors import DemoError

#: One message per flight, from the producers to the consumers.
FLIGHTS: Final = "flights"
#: One message per batch of tallies, from the consumers to the ledger.
RESULTS: Final = "results"
#: One message per counted flight, from the ledger to Spark.
COUNTED: Final = "counted"
#: How long a put waits for room, in seconds.
PATIENCE: Final = 60.0

# No message may be dropped: producers wait for a full queue, and redeliveries are unlimited.
# A dead consumer's leases end at once, so the visibility timeout matters only for a consumer
# that hangs; it is too long to affect a slow one.
_KEEP: Final[dict[str, Any]] = {
    "overflow": "block",
    "max_deliveries": None,
    "dead_letter": None,
    "visibility_timeout": 600.0,
}
_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    # A flight's body and its group are under 30 bytes: twice the 64 that each takes.
    FLIGHTS: {"capacity": 32_768, "arena_bytes": 4 << 20, **_KEEP},
    # Small, so that the consumers stay close to the ledger.
    RESULTS: {"capacity": 32, "arena_bytes": 1 << 20, **_KEEP},
    # It holds all flights at the end; its capacity is set from their number.
    COUNTED: dict(_KEEP),
}
#: The most bytes of arena that a flight's message takes in it.
_RESULT_BYTES: Final = 256


# Sums are on disk before their flights are acknowledged. The producer of flights asks for
# confirmation itself.
_DURABLE: Final[dict[str, dict[str, Any]]] = {
    FLIGHTS: {"durability": "journal"},
    RESULTS: {"durability": "journal", "confirm": "disk"},
    COUNTED: {"durability": "journal", "confirm": "disk"},
}


class Queues:
    """The queues of flights and of results, for the counting process.

    A context manager that makes the queues, with journals if ``durable``, and deletes them at
    its end. Entering raises :class:`DemoError` if the namespace has a queue with one of these
    names or, if ``durable``, any queue, because the run may lose the namespace's memory.
    """

    flights: shmq.Queue
    results: shmq.Queue
    #: None if nothing is archived.
    counted: shmq.Queue | None = None

    def __init__(self, namespace: str, *, durable: bool = False, archived: int = 0) -> None:
        """``archived``: how many flights will be archived; their queue has room for them."""
        self._namespace = namespace
        self._durable = durable
        self._archived = archived
        self._broker = shmq.connect(namespace)

    def leave(self) -> None:
        """Detach from the queues: this process leaves the namespace."""
        self._broker.close()

    def find(self) -> None:
        """Attach to the queues again. Raises :class:`~shmq.NoSuchQueue` if one is missing."""
        self._broker = shmq.connect(self._namespace)
        self.flights, self.results = map(self._broker.queue, (FLIGHTS, RESULTS))
        if self._archived:
            self.counted = self._broker.queue(COUNTED)

    def retire(self) -> None:
        """Delete the queues of the workers, which ends the workers; the counted flights stay."""
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
