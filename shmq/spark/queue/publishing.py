"""What the tasks have staged becomes messages, all of it, or is taken back."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import shmq
from shmq.api.names import staging_name, staging_target
from shmq.errors import Full, NotConfirmed, ShmqError

if TYPE_CHECKING:
    from shmq.spark.queue.sink import Sink
    from shmq.spark.queue.staging import Staged

__all__ = ["discard", "publish"]

log = logging.getLogger("shmq")

#: How long each of several queues that are full is waited for at a time, in seconds.
_TURN: Final = 0.1


@dataclasses.dataclass(slots=True)
class _QueueBatch:
    """What one queue gets of a batch."""

    queue: str
    publisher: shmq.StagedPublisher
    batch: int
    parts: list[str]

    def publish(self, timeout: float | None) -> bool:
        """Whether all of it is published now, and written where a journal is to have it.

        Raises :class:`~shmq.NotConfirmed` if there is no timeout and the disk fails.
        """
        try:
            self.publisher.commit_batch(self.batch, self.parts, timeout=timeout)
        except Full:
            return False
        except NotConfirmed:
            if timeout is None:
                raise
            return False
        return True


def publish(sink: Sink, messages: Iterable[Staged | None], *, forget: bool) -> None:
    """Publish what the tasks have staged, in the order of their partitions.

    Waits while a queue is full; one that is holds up no other. ``forget``: there is no next
    batch of the publisher. Raises :class:`~shmq.Full` if there was no room in time; then the
    batch is as it is, and publishing it again goes on.
    """
    with sink.address.connect() as broker:
        shares = _shares(broker, messages)
        _publish_all(shares, sink.timeout)
        if forget:
            for share in shares:
                share.publisher.discard()


def _shares(broker: shmq.Broker, messages: Iterable[Staged | None]) -> list[_QueueBatch]:
    shares: dict[str, _QueueBatch] = {}
    staged = [message for message in messages if message is not None]
    for message in sorted(staged, key=lambda message: message.batch_id.partition):
        batch_id = message.batch_id
        for name in message.queues:
            if name not in shares:
                publisher = broker.queue(name).staged_publisher(batch_id.publisher)
                shares[name] = _QueueBatch(name, publisher, batch_id.batch, [])
            shares[name].parts.append(batch_id.part)
    return list(shares.values())


def _publish_all(shares: Sequence[_QueueBatch], timeout: float | None) -> None:
    until = None if timeout is None else time.monotonic() + timeout
    waiting = [share for share in shares if not share.publish(0)]
    while waiting:
        left = None if until is None else max(0.0, until - time.monotonic())
        turn = left if len(waiting) == 1 else _TURN if left is None else min(_TURN, left)
        waiting = [share for share in waiting if not share.publish(turn)]
        if waiting and until is not None and time.monotonic() >= until:
            names = ", ".join(repr(share.queue) for share in waiting)
            raise Full(
                f"there was no room in {names} for all of the batch, or its journal did not have "
                f"it, within publishTimeout={timeout:g} s: have its messages consumed, or wait "
                f"longer"
            )


def discard(sink: Sink, publisher: str, messages: Iterable[Staged | None]) -> None:
    """Remove all that a publisher has staged which nobody else goes by. Never fails.

    Where the rows name their queues, those that no task has told of are found by what is
    staged beside them.
    """
    names = {name for message in messages if message is not None for name in message.queues}
    try:
        with sink.address.connect() as broker:
            there = broker.queue_names()
            names |= {sink.topic} if sink.topic is not None else _targets(there, publisher)
            for name in names.intersection(there):
                with broker.queue(name) as queue:
                    queue.staged_publisher(publisher).discard()
    except (ShmqError, OSError) as error:
        log.warning("what %s has staged in %s stays there: %s", publisher, sink.address, error)


def _targets(there: Iterable[str], publisher: str) -> set[str]:
    """The queues for which the publisher has staged something."""
    targets = ((name, staging_target(name)) for name in there)
    return {
        target for name, target in targets if target and name == staging_name(target, publisher)
    }
