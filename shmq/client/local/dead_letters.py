"""Moving messages between queues: to dead-letter queues, and back by a redrive.

The core implements the steps that make a move happen exactly once (shmq/core/queue/transfer.h).
This module decides what the moved message contains, what happens to the copies that a dead mover
left, and between which queues messages move.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from shmq.api import DeadLetter
from shmq.api.names import staging_target
from shmq.api.options import QueueOptions
from shmq.client.local.queue_segments import ensure_dead_letters
from shmq.client.transaction.recover import is_transaction, settle_copy
from shmq.errors import (
    Full,
    LockTimeout,
    NoSpace,
    NoSuchQueue,
    QueueDeleted,
    SegmentError,
    ShmqError,
)
from shmq.host.namespace.namespace import Namespace
from shmq.model.codec.codecs import pack_properties, unpack_properties
from shmq.native import _clock as time
from shmq.native import _core

if TYPE_CHECKING:
    from shmq.api import DeadLetter
    from shmq.model.expression.parse import Where

log = logging.getLogger("shmq")

_Queue = TypeVar("_Queue", bound=_core.Handle)

#: How long a move waits for a journal, in seconds.
_WRITTEN = 5.0

#: The pause after a dead-letter queue was full, in seconds.
_PAUSE = 0.05

_REASONS = ("", "rejected", "max_deliveries", "expired")


class TakenDeadLetter(NamedTuple):
    """A message that the mover has taken; it is moved on, or put back."""

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
    """Opens the other queues that a move needs."""

    def queue_of(self, source: _core.Handle) -> _core.Handle:
        """The source's dead-letter queue."""

    def open_by_name(self, name: str) -> _core.Handle | None:
        """The queue of that name; None if there is none."""

    def open_by_id(self, hash_key: int) -> Source | None:
        """The queue of that id; None if there is none."""

    def settle_copy(self, target: _core.Handle, process: int, sequence: int) -> None:
        """Publish or void an orphaned copy of a transaction of that process."""


class Source(Protocol):
    """The queue that an orphaned copy came from."""

    @property
    def transfer(self) -> _core.Transfer:
        """Tells whether the queue still has the message, or that row of a chunk."""

    def finish_moves(self) -> None:
        """Complete or undo the moves from it that dead processes left."""

    def close(self) -> None:
        """Detach."""


class DeadLetters(Generic[_Queue]):
    """Moves the dead letters of one queue, and opens the queues that they move between.

    It holds no reference to the queue itself; each method takes it as an argument. So a handle that
    is garbage collected without a close is detached at once.
    """

    def __init__(
        self, namespace: Namespace, open_queue: Callable[[Namespace, str, _core.Segment], _Queue]
    ) -> None:
        self._namespace = namespace
        self._open_queue = open_queue
        self._queue: _Queue | None = None
        #: When to retry messages that could not move, on time.monotonic().
        self.retry_at = 0.0

    def move_dying(self, source: _core.Handle, limit: int) -> None:
        """Move up to ``limit`` dying messages; those that cannot move now are retried later."""
        if time.monotonic() < self.retry_at:
            return
        try:
            if move_to_dead_letters(source, self, limit):
                return
        except (ShmqError, OSError) as error:
            if source.segment.deleted:
                return
            log.warning("queue %s: dead letters wait, %s", source.name, error)
            self._queue = None
        self.retry_at = time.monotonic() + _PAUSE

    def queue_of(self, source: _core.Handle) -> _Queue:
        """The source's dead-letter queue, recreated if it was deleted.

        Raises QueueDeleted if the source was: then the dead-letter queue may be gone for good.
        """
        if self._queue is None or self._queue.segment.deleted:
            options = QueueOptions(**source.segment.options)
            assert options.dead_letter is not None
            with self._namespace.locked():
                if source.segment.deleted:
                    raise QueueDeleted(f"queue {source.name!r} was deleted")
                segment = ensure_dead_letters(self._namespace, source.name, options)
            self._queue = self._open_queue(self._namespace, options.dead_letter, segment)
        return self._queue

    def open_by_name(self, name: str) -> _Queue | None:
        """Open the queue of that name; None if there is none."""
        try:
            return self._open_queue(self._namespace, name, self._namespace.open_segment(name))
        except (NoSuchQueue, SegmentError):
            return None

    def open_by_id(self, hash_key: int) -> Any:
        """Open the queue with that hash key; None if there is none."""
        name = self._namespace.find(hash_key)
        return None if name is None else self.open_by_name(name)

    def settle_copy(self, target: _core.Handle, process: int, sequence: int) -> None:
        """Publish or void an orphaned copy of a transaction of that process."""
        settle_copy(self._namespace, target, process, sequence)

    def close(self) -> None:
        """Detach from the dead-letter queue."""
        if self._queue is not None:
            self._queue.close()
            self._queue = None


class Targets(Generic[_Queue]):
    """The queues that dead letters return to, opened on demand and closed together."""

    def __init__(self, letters: DeadLetters[_Queue], may: Callable[[str], bool]) -> None:
        self._letters = letters
        self._may = may
        self._found: dict[str, _Queue | None] = {}
        self._opened: list[_Queue] = []
        self._others = True

    def only(self, queue: _Queue) -> None:
        """Return only the dead letters of this queue."""
        self._found[queue.name] = queue
        self._others = False

    def of(self, letter: DeadLetter | None) -> _Queue | None:
        """The queue that the letter came from; None if it must not or cannot return."""
        if letter is None:
            return None
        if letter.queue not in self._found and self._others and self._may(letter.queue):
            queue = self._letters.open_by_name(letter.queue)
            self._found[letter.queue] = queue
            if queue is not None:
                self._opened.append(queue)
        return self._found.get(letter.queue)

    def close(self) -> None:
        """Detach from the queues that were opened."""
        while self._opened:
            self._opened.pop().close()


def redrive(
    source: _core.Handle,
    letters: Iterable[tuple[int, int]],
    targets: Targets[_Queue],
    most: int,
    meant: Where | None,
) -> int:
    """Move dead letters back, oldest first, until a target is full.

    ``letters`` has the sequence number and the slot of each.
    """
    moved = 0
    deleted: set[_core.Handle] = set()
    now = time.time()
    ordered = sorted(letters)
    if ordered:
        last = ordered[:most][-1] if meant is None else ordered[-1]
        wait_until_written(source, last[0])
    for sequence, at in ordered:
        if moved == most:
            break
        copy = source.inspection.copy_at(at, sequence)
        if copy is not None and meant is not None and not meant.matches(copy, now):
            continue
        target = targets.of(copy.dead) if copy is not None else None
        if target is None or target in deleted:
            continue
        row = source.transfer.take(at, sequence)
        if row is None:
            continue
        try:
            send_back(source, target, TakenDeadLetter(*row))
        except QueueDeleted:  # the letter stays
            deleted.add(target)
            continue
        except (Full, NoSpace):
            if not moved:
                raise
            break
        moved += 1
    return moved


def move_to_dead_letters(source: _core.Handle, opener: QueueOpener, limit: int) -> bool:
    """Move up to ``limit`` dying messages; False if the dead-letter queue is full.

    A dying message without a reason was being redriven, or its rows were being published, when its
    mover died: it is put back once the copies that the mover may have left are removed.
    """
    for _ in range(limit):
        row = source.transfer.take_dead()
        if row is None:
            return True
        taken = TakenDeadLetter(*row)
        try:
            if taken.came:
                wait_until_written(source, taken.sequence)
            if taken.reason:
                _move_one(source, opener.queue_of(source), taken)
            else:
                _put_back(source, opener, taken)
        except BaseException as error:
            _leave(source, taken, error)
            if isinstance(error, Full | NoSpace):
                return False
            raise
    return True


def wait_until_written(source: _core.Handle, sequence: int) -> None:
    """Wait until messages from another queue are in this queue's journal, before they move on.

    Only the copies record where a message came from. If the journal of the last queue has its copy
    and that of the queue in between has not, after a power cut the message is both at its origin
    and at its destination. The wait is short, and skipped if no writer exists.
    """
    if source.segment.options["durability"] == "journal" and source.journal.writer:
        source.journal.wait_synced(sequence, _WRITTEN)


def _put_back(source: _core.Handle, opener: QueueOpener, taken: TakenDeadLetter) -> None:
    letter = unpack_properties(taken.meta).get("dead")
    name = letter["queue"] if letter else staging_target(source.name)
    target = opener.open_by_name(name) if name else None
    if target is not None:
        with contextlib.closing(target):
            moved = 0 if letter else taken.deliveries  # counts the rows of a chunk that were moved
            target.transfer.void_copies(source.segment.hash_key, taken.sequence, moved)
    source.transfer.untake(taken.receipt)


def _move_one(source: _core.Handle, target: _core.Handle, taken: TakenDeadLetter) -> None:
    properties = unpack_properties(taken.meta)
    error = properties.pop("error", None)
    properties["dead"] = {
        "reason": _REASONS[taken.reason],
        "queue": source.name,
        "deliveries": taken.deliveries,
        "at": int(taken.died_at * 1000),
        **({} if error is None else {"error": error}),
    }
    ttl = source.segment.options["dead_letter_ttl"]
    move(source, target, taken, pack_properties(properties), None, ttl)


def send_back(
    dead_letter_queue: _core.Handle, target: _core.Handle, taken: TakenDeadLetter
) -> None:
    """Move a taken dead letter to the queue it came from. Raises Full, NoSpace."""
    try:
        properties = unpack_properties(taken.meta)
        properties.pop("dead", None)
        meta = pack_properties(properties) if properties else b""
        move(dead_letter_queue, target, taken, meta, properties.get("group"))
    except BaseException as error:
        _leave(dead_letter_queue, taken, error)
        raise


def move(
    source: _core.Handle,
    target: _core.Handle,
    taken: TakenDeadLetter,
    meta: bytes,
    group: str | None,
    ttl: float | None = None,
) -> None:
    """Move a taken message, which then expires in ``ttl`` seconds, or never.

    Raises Full, NoSpace, after putting it back in the source; and LockTimeout, after which another
    process completes or undoes the move.
    """
    try:
        staged = target.transfer.stage_copy(
            taken.body,
            meta,
            taken.codec,
            taken.priority,
            group,
            ttl,
            source.segment.hash_key,
            taken.sequence,
        )
    except BaseException:
        source.transfer.untake(taken.receipt)
        raise
    try:
        source.transfer.hand_over(target, taken.receipt, staged)
    except BaseException as error:
        # Interrupted before or after the commit point: the source tells which.
        target.transfer.disown(staged)
        _leave(source, taken, error)
        raise


def _leave(source: _core.Handle, taken: TakenDeadLetter, error: BaseException) -> None:
    """Leave the taken message, unless it has moved, to its next mover, after the error."""
    if isinstance(error, LockTimeout):  # one wait for the lock is enough
        source.transfer.disown(taken.receipt)
    else:
        source.transfer.give_up(taken.receipt)


def resolve_orphans(target: _core.Handle, opener: QueueOpener) -> None:
    """Resolve copies whose mover died: void them if the source still has the message.

    The source's next mover removes void copies; this function starts it.
    """
    sources: dict[int, Source | None] = {}
    void: set[tuple[int, int]] = set()
    with contextlib.ExitStack() as stack:
        for receipt, origin_queue, origin_sequence, row in target.transfer.orphans():
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
                target.transfer.publish_copy(receipt)


def _is_void(source: Source | None, sequence: int, row: int | None) -> bool:
    if source is None:
        return False
    try:
        if not source.transfer.still_moves(sequence, row):
            return False
        source.finish_moves()
    except (QueueDeleted, NoSuchQueue):
        return False
    return True
