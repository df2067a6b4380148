"""Moving messages between queues: dead letters out, and redriven ones back.

The steps that make a move happen exactly once are the core's (shmq/core/queue/transfer.h); here is
what the moved message carries, and what is done with copies that a dead mover left.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

from shmq.api.names import staging_target
from shmq.client.transaction.recover import is_transaction
from shmq.codec.codecs import pack_properties, unpack_properties
from shmq.errors import Full, NoSpace, NoSuchQueue, QueueDeleted

if TYPE_CHECKING:
    from shmq.native import _core

__all__ = [
    "TakenDeadLetter",
    "move",
    "move_to_dead_letters",
    "resolve_orphans",
    "wait_until_written",
]

#: How long a move waits for a journal, in seconds.
_WRITTEN = 5.0

_REASONS = ("", "rejected", "max_deliveries", "expired")


class TakenDeadLetter(NamedTuple):
    """A message that the mover has taken; it goes on, or back where it was."""

    receipt: int
    sequence: int
    body: bytes
    meta: bytes
    codec: int
    priority: int
    deliveries: int
    reason: int
    died_at: float
    came: bool


class QueueOpener(Protocol):
    """The other queues that a move needs, opened by whoever owns the source."""

    def dead_letter_queue(self) -> _core.Handle:
        """The source's dead-letter queue."""

    def open_by_name(self, name: str) -> _core.Handle | None:
        """A queue of the namespace, or None."""

    def open_by_id(self, hash_key: int) -> Source | None:
        """The queue of that id, or None."""

    def settle_copy(self, target: _core.Handle, process: int, sequence: int) -> None:
        """Decide on an orphaned copy of a transaction of that process."""


class Source(Protocol):
    """The queue that an orphaned copy came from."""

    def still_moves(self, seq: int, row: int | None = None) -> bool:
        """Whether it still has the message, or that row of a chunk."""

    def finish_moves(self) -> None:
        """Take over what dead processes were moving from it."""

    def close(self) -> None:
        """Detach."""


def move_to_dead_letters(source: _core.Handle, opener: QueueOpener, limit: int) -> bool:
    """Move up to ``limit`` dying messages; False if the dead-letter queue is full.

    A message without a reason to die was being redriven, or its rows published, when its
    mover died: it goes back to its place once the copies that the mover may have left are
    removed.
    """
    for _ in range(limit):
        row = source.take_dead()
        if row is None:
            return True
        taken = TakenDeadLetter(*row)
        try:
            if taken.came:
                wait_until_written(source, taken.sequence)
            if taken.reason:
                _move_one(source, opener.dead_letter_queue(), taken)
            else:
                _put_back(source, opener, taken)
        except BaseException as error:
            source.give_up(taken.receipt)
            if isinstance(error, Full | NoSpace):
                return False
            raise
    return True


def wait_until_written(source: _core.Handle, sequence: int) -> None:
    """Before messages that came from another queue move on: have them in their own journal.

    What came from where is in the copies alone. If a journal has the last of them and not the
    one between, a power cut leaves the message where it was and where it went. Waits for a
    moment at most, and for nobody where there is no writer.
    """
    if source.segment.options["durability"] == "journal" and source.journal_writer:
        source.wait_synced(sequence, _WRITTEN)


def _put_back(source: _core.Handle, opener: QueueOpener, taken: TakenDeadLetter) -> None:
    letter = unpack_properties(taken.meta).get("dead")
    name = letter["queue"] if letter else staging_target(source.name)
    target = opener.open_by_name(name) if name else None
    if target is not None:
        with contextlib.closing(target):
            moved = 0 if letter else taken.deliveries  # what counts the rows of a chunk
            target.void_copies(source.segment.hash_key, taken.sequence, moved)
    source.untake(taken.receipt)


def _move_one(source: _core.Handle, target: _core.Handle, taken: TakenDeadLetter) -> None:
    properties = unpack_properties(taken.meta)
    properties["dead"] = {
        "reason": _REASONS[taken.reason],
        "queue": source.name,
        "deliveries": taken.deliveries,
        "at": int(taken.died_at * 1000),
    }
    move(source, target, taken, pack_properties(properties), None)


def send_back(
    dead_letter_queues: _core.Handle, target: _core.Handle, taken: TakenDeadLetter
) -> None:
    """Move a dead letter, taken, to where it came from. Raises Full, NoSpace."""
    try:
        properties = unpack_properties(taken.meta)
        properties.pop("dead", None)
        meta = pack_properties(properties) if properties else b""
        move(dead_letter_queues, target, taken, meta, properties.get("group"))
    except BaseException:
        dead_letter_queues.give_up(taken.receipt)
        raise


def move(
    source: _core.Handle,
    target: _core.Handle,
    taken: TakenDeadLetter,
    meta: bytes,
    group: str | None,
) -> None:
    """Move a taken message. Raises Full, NoSpace; it is back in the source then."""
    try:
        staged = target.stage_copy(
            taken.body,
            meta,
            taken.codec,
            taken.priority,
            group,
            source.segment.hash_key,
            taken.sequence,
        )
    except BaseException:
        source.untake(taken.receipt)
        raise
    try:
        source.hand_over(target, taken.receipt, staged)
    except BaseException:
        # Interrupted before or after the commit point: the source knows.
        if source.still_moves(taken.sequence):
            target.abandon(staged)
            source.untake(taken.receipt)
        else:
            target.publish_copy(staged)
        raise


def resolve_orphans(target: _core.Handle, opener: QueueOpener) -> None:
    """Decide on copies whose mover died: void if the source still has the message.

    Void copies are removed by the source's next mover, which is set to work here.
    """
    sources: dict[int, Source | None] = {}
    void: set[tuple[int, int]] = set()
    with contextlib.ExitStack() as stack:
        for receipt, origin_queue, origin_sequence, row in target.orphans():
            if (origin_queue, origin_sequence) in void:
                continue
            if is_transaction(origin_sequence):
                opener.settle_copy(target, origin_queue, origin_sequence)
                void.add((origin_queue, origin_sequence))
                continue
            if origin_queue not in sources:
                source = opener.open_by_id(origin_queue) if origin_queue else None
                sources[origin_queue] = source
                if source is not None:
                    stack.callback(source.close)
            if _is_void(sources[origin_queue], origin_sequence, row):
                void.add((origin_queue, origin_sequence))
            else:
                target.publish_copy(receipt)


def _is_void(source: Source | None, sequence: int, row: int | None) -> bool:
    if source is None:
        return False
    try:
        if not source.still_moves(sequence, row):
            return False
        source.finish_moves()
    except (QueueDeleted, NoSuchQueue):
        return False
    return True


def pause_after_failure() -> float:
    """When to try again to bury, on time.monotonic(), after a dead-letter queue was full."""
    return time.monotonic() + 0.05
