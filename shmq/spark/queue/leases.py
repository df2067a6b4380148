"""The leases that the driver's side of a stream holds.

One process beside the driver plans every batch of a stream. It leases the messages in the name of
the query, as the run of an epoch, which is the number of the batch. So the leases outlive it: the
next start of the query takes them over, with exactly the same messages, and the process that had
them before can lease, settle and extend nothing any more, whether it is dead, hangs, or goes on.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

import shmq
from shmq.errors import LeaseExpired, ShmqError
from shmq.spark.queue.offset import Offset, QueueOffset
from shmq.spark.shared.address import Address
from shmq.spark.shared.handles import GONE, LOOK, Handles
from shmq.spark.shared.subscription import Subscription

_log = logging.getLogger("shmq.spark")

#: The longest first lease of a new query, in seconds: if its driver is killed before Spark has
#: logged the offset, nobody knows the query's name, and only time ends the leases.
_FIRST: Final = 60.0

_GONE: Final = "another consumer took them, or they were removed"


@dataclasses.dataclass(frozen=True, slots=True)
class LeasedMessages:
    """Leased messages of one queue: their epoch, the queue's identity, and the run."""

    epoch: int
    identity: int
    run: shmq.Run

    def __len__(self) -> int:
        return len(self.run)

    @property
    def offset(self) -> QueueOffset:
        """What the offset of the batch says of them."""
        return QueueOffset(self.identity, len(self.run))


class Leases(Handles[shmq.Queue]):
    """The leases of one stream, one batch at a time."""

    def __init__(
        self, address: Address, subscription: Subscription, chosen: Mapping[str, Any]
    ) -> None:
        super().__init__(address, subscription, chosen)
        self._seconds: float = chosen["leaseTimeout"]
        self._claims: dict[str, shmq.Claim] = {}
        self._held: dict[str, LeasedMessages] = {}
        self._lock = threading.Lock()  # guards _held, whose leases another thread extends
        self._prolonging: threading.Thread | None = None
        self._closed = threading.Event()
        self._stats: dict[str, shmq.QueueStats] = {}
        self._counted = -math.inf

    def depths(self) -> dict[str, int]:
        """The number of visible messages in each queue."""
        depths = {}
        for name in self.names():
            with self._gone_is_fine(name):
                depths[name] = self._handle(name).qsize()
        return depths

    def report(self) -> dict[str, Any]:
        """What waits in the queues: how many messages, for how long, and how often again.

        ``oldest`` is the age in seconds of the message that has waited longest, ``redelivered``
        the number of repeated deliveries since the queues were made. Both are of the last second:
        for the age the queues look at all their messages.
        """
        depths = self.depths()
        backlog, now = sum(depths.values()), time.monotonic()
        if now - self._counted >= LOOK:
            self._stats, self._counted = {}, now
            for name in depths:
                with self._gone_is_fine(name):
                    self._stats[name] = self._handle(name).stats()
        seen = self._stats.values()
        oldest = max((each.oldest_age for each in seen), default=0.0) if backlog else 0.0
        return {
            "backlog": backlog,
            "oldest": round(oldest, 3),
            "redelivered": sum(each.redelivered for each in seen),
            "queues": depths,
        }

    def begin(self, done: Offset) -> None:
        """Take over all queues that are not the query's yet; ``done`` is its last whole batch.

        What an earlier driver leased after it returns: Spark has never logged that batch.
        """
        for name in self.names():
            if name not in self._claims:
                with self._gone_is_fine(name):
                    self._take_over(name, done.query, done.epoch, 0)

    def take(self, name: str, epoch: int, rows: int, size: int | None) -> LeasedMessages | None:
        """Lease up to ``rows`` messages, ending with the one that exceeds ``size`` bytes in all."""
        if name not in self._claims:
            return None
        with self._gone_is_fine(name):
            queue = self._handle(name)
            run = queue.bulk().lease_run(
                rows,
                max_bytes=size,
                seconds=self._seconds if epoch > 1 else min(self._seconds, _FIRST),
                claim=self._claims[name],
                epoch=epoch,
            )
            if len(run):
                return self._hold(name, LeasedMessages(epoch, queue.identity, run))
        return None

    def again(self, name: str, offset: Offset) -> LeasedMessages | None:
        """Take over the messages of a batch. Raises ShmqError if some are gone.

        A message is gone if another consumer has got it since. With failOnDataLoss=false the
        rest is leased, and the log says how many are missing.
        """
        wanted = offset.queues[name]
        held, why = self._take(name, offset)
        count = len(held) if held else 0
        if count < wanted.count:
            message = (
                f"{wanted.count - count:,} of the {wanted.count:,} messages of batch "
                f"{offset.epoch} are no longer available in the queue {name!r} ({why})"
            )
            if self._strict:
                raise ShmqError(
                    f"{message}. The batch has to be read again, as Spark has not committed it; "
                    f"with failOnDataLoss=false it goes on without them"
                )
            _log.warning("%s: the batch goes on without them", message)
        return self._hold(name, held) if held else None

    def settle(self, offset: Offset) -> int:
        """Acknowledge a batch that Spark has committed, and stop extending its leases.

        Returns the number of messages acknowledged now, not counting earlier ones. Raises
        LeaseExpired if another driver of the query has taken over.
        """
        count = 0
        for name, wanted in offset.queues.items():
            held = self._release(name, offset.epoch)
            with self._gone_is_fine(name):
                queue = self._handle(name)
                if queue.identity != wanted.identity:
                    continue
                if held is not None:
                    count += len(held) - self._ack(name, offset, held)
                elif name not in self._claims:
                    count += self._take_over(name, offset.query, offset.epoch, 0).settled
        return count

    def held(self, offset: Offset) -> Mapping[str, LeasedMessages] | None:
        """The held messages if they are exactly those of the offset, else None."""
        with self._lock:
            held = dict(self._held)
        alike = all(each.epoch == offset.epoch for each in held.values())
        same = {name: each.offset for name, each in held.items()} == dict(offset.queues)
        return held if alike and same else None

    def close(self) -> None:
        """Detach. The leases stay with the query: its next start takes them over."""
        self._closed.set()
        super().close()

    def _open(self, broker: shmq.Broker, name: str) -> shmq.Queue:
        return broker.queue(name)

    def _take_over(self, name: str, query: str, settled: int, epoch: int) -> shmq.Takeover:
        taken = (
            self._handle(name)
            .bulk()
            .take_over(query, settled=settled, epoch=epoch, seconds=self._seconds)
        )
        self._claims[name] = taken.claim
        return taken

    def _take(self, name: str, offset: Offset) -> tuple[LeasedMessages | None, str]:
        """The messages of the batch that can be leased now, and why the rest cannot."""
        try:
            queue = self._handle(name)
            if queue.identity != offset.queues[name].identity:
                return None, "which was deleted and recreated"
            taken = self._take_over(name, offset.query, offset.epoch - 1, offset.epoch)
        except GONE:
            self._forget(name)
            return None, "which was deleted"
        return LeasedMessages(offset.epoch, queue.identity, taken.run), _GONE

    def _ack(self, name: str, offset: Offset, held: LeasedMessages) -> int:
        """Acknowledge held messages; returns how many could not be.

        Where receipts are refused, the leases have run out, or the queue was recovered in the
        meantime: its messages are found by the name. Or another driver has the name: LeaseExpired.
        """
        bulk = self._handle(name).bulk()
        refused = bulk.ack_run(held.run.receipts)
        if refused:
            bulk.is_claimed(self._claims[name])
            refused -= self._take_over(name, offset.query, offset.epoch, 0).settled
        return refused

    def _hold(self, name: str, held: LeasedMessages) -> LeasedMessages:
        with self._lock:
            self._held[name] = held
        if self._prolonging is None:
            self._prolonging = threading.Thread(
                target=self._extend_leases, name="shmq-leases", daemon=True
            )
            self._prolonging.start()
        return held

    def _release(self, name: str, epoch: int) -> LeasedMessages | None:
        """Stop extending the queue's leases for that batch, and return them."""
        with self._lock:
            held = self._held.get(name)
            return self._held.pop(name) if held and held.epoch == epoch else None

    def _extend_leases(self) -> None:
        """Extend the leases as long as the process lives, first those of a new query."""
        pause = min(self._seconds, _FIRST) / 3
        while not self._closed.wait(pause):
            pause = self._seconds / 3
            with self._lock:
                for name, held in self._held.items():
                    try:
                        self._extend(name, held)
                    except (ShmqError, LookupError) as error:
                        if self._closed.is_set():  # in the meantime: the handles are closed
                            return
                        _log.warning(
                            "the leases of the queue %r are not prolonged: %s", name, error
                        )

    def _extend(self, name: str, held: LeasedMessages) -> None:
        bulk = self._handles[name].bulk()
        if bulk.extend_run(held.run.receipts, self._seconds):
            bulk.is_claimed(self._claims[name])
            raise LeaseExpired("some of them have ended")

    def _forget(self, name: str) -> None:
        with self._lock:
            self._held.pop(name, None)
        self._claims.pop(name, None)
        super()._forget(name)
