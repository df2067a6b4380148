"""The leases that the driver's side of a stream holds.

One process beside the driver plans every batch of a stream and lives as long as the query. It
owns the leases: they end at once when it is killed, and the next start of the query leases
the same messages again by their sequence numbers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

import shmq
from shmq.errors import NoSuchQueue, QueueDeleted, ShmqError
from shmq.spark.queue.offset import Offset, QueueOffset
from shmq.spark.shared.address import Address
from shmq.spark.shared.subscription import Subscription

__all__ = ["LeasedMessages", "Leases"]

_log = logging.getLogger("shmq.spark")

#: How often the queues of a pattern are looked up again, in seconds.
_LOOK: Final = 1.0

#: The pauses before unavailable messages are requested again, in seconds: messages that a
#: killed process held over TCP return once the server has seen the connection end.
_PAUSES: Final = (0.05, 0.1, 0.2, 0.4)

#: The most bytes of sequence numbers in one request: the server limits the size of a frame.
_AT_ONCE: Final = 8 << 16

#: How many sequence numbers an error names.
_NAMED: Final = 10


@dataclasses.dataclass(frozen=True, slots=True)
class LeasedMessages:
    """Leased messages of one queue: their batch, receipts and slots.

    ``receipts`` are bytes of u64 and ``slots`` of u32, in the order of the sequence numbers.
    """

    batch: int
    taken: QueueOffset
    receipts: bytes
    slots: bytes


class Leases:
    """The leases of one stream, one batch at a time. One thread calls its methods."""

    def __init__(
        self, address: Address, subscription: Subscription, seconds: float, *, strict: bool
    ) -> None:
        self._address = address
        self._subscription = subscription
        self._seconds = seconds
        self._strict = strict
        self._broker: shmq.Broker | None = None
        self._queues: dict[str, shmq.Queue] = {}
        self._names: tuple[str, ...] = ()
        self._looked = 0.0
        self._held: dict[str, LeasedMessages] = {}
        self._lock = threading.Lock()  # guards _held, whose leases another thread extends
        self._prolonging: threading.Thread | None = None
        self._closed = threading.Event()

    def depths(self) -> dict[str, int]:
        """The number of visible messages in each queue."""
        depths = {}
        for name in self.names():
            with self._gone_is_fine(name):
                depths[name] = self._queue(name).qsize()
        return depths

    def report(self) -> dict[str, Any]:
        """What waits in the queues: how many messages, for how long, and how often again.

        ``oldest`` is the age in seconds of the message that has waited longest, ``redelivered``
        the number of repeated deliveries since the queues were made.
        """
        seen: dict[str, shmq.QueueStats] = {}
        for name in self.names():
            with self._gone_is_fine(name):
                seen[name] = self._queue(name).stats()
        return {
            "backlog": sum(each.depth for each in seen.values()),
            "oldest": round(max((each.oldest_age for each in seen.values()), default=0.0), 3),
            "redelivered": sum(each.redelivered for each in seen.values()),
            "queues": {name: each.depth for name, each in seen.items()},
        }

    def names(self) -> tuple[str, ...]:
        """The subscribed queues that exist. Raises NoSuchQueue for a named one that does not."""
        now = time.monotonic()
        fresh = now - self._looked < _LOOK
        if not fresh or not self._names:
            there = self._subscription.find(self._connected(), strict=self._strict)
            self._names, self._looked = there, now
        return self._names

    def take(self, name: str, batch: int, rows: int, size: int | None) -> LeasedMessages | None:
        """Lease up to ``rows`` messages, ending with the one that exceeds ``size`` bytes in all."""
        with self._gone_is_fine(name):
            queue = self._queue(name)
            run = queue.bulk().lease_run(rows, max_bytes=size, seconds=self._seconds)
            if run.sequences:
                held = LeasedMessages(
                    batch, QueueOffset(queue.identity, run.sequences), run.receipts, run.slots
                )
                self._hold(name, held)
                return held
        return None

    def again(self, name: str, taken: QueueOffset, batch: int) -> LeasedMessages | None:
        """Lease again exactly the messages of a batch. Raises ShmqError if some are gone.

        A message is gone if another consumer has got it since. With failOnDataLoss=false the
        rest is leased, and the missing messages are logged.
        """
        held, why = self._lease_taken(name, taken, batch)
        count = len(held.taken) if held else 0
        if count < len(taken):
            lost = _missing(taken, held)
            told = (
                f"{len(taken) - count:,} of the {len(taken):,} messages of batch {batch} are no "
                f"longer available in the queue {name!r} ({why}): {lost}"
            )
            if self._strict:
                raise ShmqError(
                    f"{told}. The batch has to be read again, as Spark has not committed it; with "
                    f"failOnDataLoss=false it goes on without them"
                )
            _log.warning("%s: the batch goes on without them", told)
        if held is not None:
            self._hold(name, held)
        return held

    def settle(self, offset: Offset) -> int:
        """Acknowledge a batch that Spark has committed, and stop extending its leases.

        Returns the number of messages acknowledged now, not counting earlier ones.
        """
        count = 0
        for name, taken in offset.queues.items():
            held = self._release(name, offset.batch)
            with self._gone_is_fine(name):
                queue = self._queue(name)
                settled = 0
                if held is not None:
                    settled = len(held.taken) - queue.bulk().ack_run(held.receipts)
                if settled < len(taken):
                    settled += self._settle_again(queue, taken, offset.batch)
                count += settled
        return count

    def held(self, offset: Offset) -> Mapping[str, LeasedMessages] | None:
        """The held messages if they are exactly those of the offset, else None."""
        with self._lock:
            held = dict(self._held)
        alike = {name: each.taken for name, each in held.items()} == dict(offset.queues)
        return held if alike else None

    def give_back(self) -> None:
        """Return all held messages to their queues."""
        for name, held in list(self._held.items()):
            self._release(name, held.batch)
            with self._gone_is_fine(name):
                self._queue(name).bulk().return_run(held.receipts)

    def close(self) -> None:
        """Detach: the held messages return to their queues at once."""
        self._closed.set()
        if self._broker is not None:
            self._broker.close()

    def _settle_again(self, queue: shmq.Queue, taken: QueueOffset, batch: int) -> int:
        """Acknowledge messages that an earlier process or a lost connection had leased."""
        if queue.identity != taken.identity:
            return 0
        held, _ = self._lease_taken(queue.name, taken, batch)
        return len(held.taken) - queue.bulk().ack_run(held.receipts) if held else 0

    def _lease_taken(
        self, name: str, taken: QueueOffset, batch: int
    ) -> tuple[LeasedMessages | None, str]:
        """The messages of the batch that can be leased now, and why the rest cannot."""
        try:
            queue = self._queue(name)
            if queue.identity != taken.identity:
                return None, "which was deleted and made anew"
            parts = list(self._lease_until_there(queue, taken.sequences))
        except (NoSuchQueue, QueueDeleted):
            self._forget(name)
            return None, "which was deleted"
        receipts = b"".join(part.receipts for part in parts)
        if not receipts:
            return None, "another consumer took them, or they were removed"
        order = np.concatenate([np.frombuffer(part.sequences, "<u8") for part in parts])
        places = _places(taken.sequences, order.tobytes())
        slots = np.frombuffer(b"".join(part.slots for part in parts), "<u4")[places]
        found = np.frombuffer(receipts, "<u8")[places]
        left = QueueOffset(taken.identity, order[places].tobytes())
        why = "another consumer took them, or they were removed"
        return LeasedMessages(batch, left, found.tobytes(), slots.tobytes()), why

    def _lease_until_there(self, queue: shmq.Queue, sequences: bytes) -> Iterator[shmq.Run]:
        wanted = sequences
        for pause in (*_PAUSES, None):
            found = []
            for start in range(0, len(wanted), _AT_ONCE):
                part = wanted[start : start + _AT_ONCE]
                run = queue.bulk().lease_again(part, seconds=self._seconds)
                yield run
                found.append(run.sequences)
            wanted = _without(wanted, b"".join(found))
            if not wanted or pause is None:
                return
            time.sleep(pause)

    def _hold(self, name: str, held: LeasedMessages) -> None:
        with self._lock:
            self._held[name] = held
        if self._prolonging is None:
            self._prolonging = threading.Thread(
                target=self._prolong, name="shmq-leases", daemon=True
            )
            self._prolonging.start()

    def _release(self, name: str, batch: int) -> LeasedMessages | None:
        """Stop extending the queue's leases for that batch, and return them."""
        with self._lock:
            held = self._held.get(name)
            return self._held.pop(name) if held and held.batch == batch else None

    def _prolong(self) -> None:
        """Extend the leases as long as the process lives."""
        while not self._closed.wait(self._seconds / 3):
            with self._lock:
                for name, held in self._held.items():
                    try:
                        self._queues[name].bulk().extend_run(held.receipts, self._seconds)
                    except (ShmqError, LookupError) as error:
                        _log.warning(
                            "the leases of the queue %r are not prolonged: %s", name, error
                        )

    def _connected(self) -> shmq.Broker:
        if self._broker is None:
            self._broker = self._address.connect()
        return self._broker

    def _queue(self, name: str) -> shmq.Queue:
        if name not in self._queues:
            self._queues[name] = self._connected().queue(name)
        return self._queues[name]

    def _forget(self, name: str) -> None:
        with self._lock:
            self._held.pop(name, None)
        self._looked = 0.0
        if name in self._queues:
            self._queues.pop(name).close()

    @contextlib.contextmanager
    def _gone_is_fine(self, name: str) -> Iterator[None]:
        """Ignore that the queue is deleted: the next lookup finds the current queues."""
        try:
            yield
        except (NoSuchQueue, QueueDeleted):
            self._forget(name)


def _without(wanted: bytes, found: bytes) -> bytes:
    """The wanted numbers that were not found, in their order."""
    numbers = np.frombuffer(wanted, "<u8")
    return numbers[~np.isin(numbers, np.frombuffer(found, "<u8"))].tobytes()


def _places(wanted: bytes, found: bytes) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """The index in ``found`` of each wanted number that is there, in the wanted order."""
    numbers, there = np.frombuffer(wanted, "<u8"), np.frombuffer(found, "<u8")
    order = np.argsort(there)
    numbers = numbers[np.isin(numbers, there)]
    return order[np.searchsorted(there, numbers, sorter=order)]


def _missing(taken: QueueOffset, held: LeasedMessages | None) -> str:
    """The missing sequence numbers, as text for an error."""
    lost = taken.sequences if held is None else _without(taken.sequences, held.taken.sequences)
    numbers = np.frombuffer(lost, "<u8")
    more = ", …" if len(numbers) > _NAMED else ""
    return "sequence " + ", ".join(map(str, numbers[:_NAMED].tolist())) + more
