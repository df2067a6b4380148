"""Rows that are staged for a queue, and committed to it exactly once, batch by batch.

A publisher stages its rows as chunks in a staging queue beside the target. That queue also holds a
marker, which says up to which batch the commit is decided, and of which parts; and an empty
message, the turn, which the committing process holds. The core moves the rows of a chunk
(shmq/core/queue/transfer.h).
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from shmq import api
from shmq.api.bulk import check_batch, check_part, check_publisher
from shmq.api.names import staging_name
from shmq.api.options import MAX_ARENA, MAX_STAGING_BYTES, STAGING_BYTES, QueueOptions, check_whole
from shmq.client.local.queue_segments import find_segment, remove_queue
from shmq.client.shared import durable_wait
from shmq.errors import Full, InvalidOption, NoSuchQueue, NotConfirmed, QueueDeleted
from shmq.host.namespace.namespace import Namespace
from shmq.model.codec.codecs import CODECS, unpack_properties
from shmq.native import _clock as time
from shmq.native import _core
from shmq.native.lock_holder import Holder

#: The codecs that distinguish the three kinds of messages in a staging queue.
_CHUNK, _TURN, _MARKER = (CODECS.index(codec) for codec in ("bytes", "text", "json"))

#: The least room of a staging queue, in bytes: memory is only taken for what is staged, and a
#: larger bound may be chosen later.
_ROOM: Final = 4 << 30
#: Room for the marker and the turn beside the rows, in bytes.
_BESIDE: Final = MAX_ARENA - MAX_STAGING_BYTES
#: The capacity of a staging queue, in chunks.
_CHUNKS: Final = 1 << 16
#: How long one wait for another process's commit lasts, in seconds.
_PAUSE: Final = 0.005
#: How long a sweep waits for a commit, or for another sweep, in seconds.
_SWEPT: Final = 0.1
#: How long to wait for committed rows to be on disk, without a timeout, in seconds.
_WRITTEN: Final = 30.0


class Marker(NamedTuple):
    """All batches below are committed; of this one these parts are committed, or will be."""

    batch: int
    parts: list[str]
    at: int
    sequence: int


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Chunk:
    """A chunk in a staging queue, by its own description."""

    batch: int
    sequence: int
    part: str
    at: int
    waits: bool


def _make_options(target: str, staging_bytes: int) -> QueueOptions:
    """The options of a staging queue. Raises InvalidOption."""
    check_whole("staging_bytes", staging_bytes, 1 << 16, MAX_STAGING_BYTES)
    arena = max(staging_bytes, _ROOM) + _BESIDE
    return QueueOptions.for_queue(
        target,
        {
            "capacity": _CHUNKS,
            "arena_bytes": arena,
            "max_message_bytes": arena,
            "max_deliveries": None,
            "dead_letter": None,
            "priorities": 1,
        },
    )


class _CommitProgress:
    """The progress of a batch's commit."""

    def __init__(self, until: float | None, most: int | None = None) -> None:
        #: When to stop unfinished, on time.monotonic(); None: never.
        self.until = until
        #: The rows that became messages.
        self.rows = 0
        self._most = most

    @property
    def left(self) -> float | None:
        """The seconds left; None: no limit."""
        return None if self.until is None else max(0.0, self.until - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether the time has expired."""
        return self.left == 0.0

    def moved(self, rows: int, queue: str) -> None:
        """Count rows. Raises Full once the limit of one call is reached."""
        self.rows += rows
        if self._most is not None and self.rows >= self._most:
            raise Full(f"{self.rows} rows of queue {queue!r} are committed, and more are to come")


class LocalStagedPublisher(api.StagedPublisher):
    """Implements :class:`shmq.api.StagedPublisher`."""

    def __init__(
        self,
        namespace: Namespace,
        target: Any,
        publisher: str,
        open_queue: Callable[[Namespace, str, _core.Segment], Any],
    ) -> None:
        self._namespace = namespace
        self._target = target
        self._publisher = check_publisher(publisher)
        self._open_queue = open_queue
        self._queue: Any = None

    @property
    def name(self) -> str:
        return self._publisher

    def stage(
        self,
        batch: int,
        part: str,
        rows: Sequence[api.Row] | api.Rows,
        *,
        staging_bytes: int = STAGING_BYTES,
    ) -> None:
        batch, part = check_batch(batch), check_part(part)
        chunks = iter(self._target.staging.chunks(rows))
        # Pack some of them before creating a queue: rows that can never fit are refused.
        chunks = itertools.chain([next(chunks)], chunks)
        _stage(self._ensure_staging_queue(staging_bytes), batch, part, chunks, staging_bytes)

    def commit_batch(
        self, batch: int, parts: Sequence[str], *, timeout: float | None = None
    ) -> int:
        timeout = _core.check_timeout(timeout)
        how = _CommitProgress(None if timeout is None else time.monotonic() + timeout)
        self._commit(batch, parts, how)
        return how.rows

    def commit_some(self, batch: int, parts: Sequence[str], most: int) -> tuple[int, str | None]:
        """As `commit_batch`, but without waiting, and with about ``most`` rows at a time.

        Returns how many became messages, and why it is not done yet; None: it is done.
        """
        how = _CommitProgress(time.monotonic(), most)
        try:
            self._commit(batch, parts, how)
        except (Full, NotConfirmed) as error:
            return how.rows, str(error)
        return how.rows, None

    def _commit(self, batch: int, parts: Sequence[str], how: _CommitProgress) -> None:
        batch = check_batch(batch)
        parts = [check_part(part) for part in parts]
        queue = self._queue_if_any()
        if queue is None:  # an error creates nothing
            _check_staged(self._staging_name, batch, parts, ())
            queue = self._ensure_staging_queue()
        _commit(self._target, queue, batch, parts, how)

    def sealed(self) -> int | None:
        queue = self._queue_if_any()
        marker = None if queue is None else _find_marker(queue)
        return None if marker is None else marker.batch

    def sweep(self, keep: str | None = None) -> int:
        queue = self._queue_if_any()
        if queue is None:
            return 0
        try:
            with _turn(queue, _CommitProgress(time.monotonic() + _SWEPT)):
                return _remove_unsealed(queue, keep)
        except Full:  # a commit or another sweep has the turn
            return 0

    def discard(self) -> None:
        queue = self._queue_if_any()
        if queue is None:
            return
        self._target.settle_rows(queue)
        self.close()
        with contextlib.suppress(NoSuchQueue), self._namespace.locked():
            remove_queue(self._namespace, queue.name)

    def close(self) -> None:
        """Detach from the staging queue."""
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.close()

    @property
    def _staging_name(self) -> str:
        return staging_name(self._target.name, self._publisher)

    def _queue_if_any(self) -> Any:
        """The staging queue; None if there is none. Raises ShmqError."""
        if self._queue is not None and not self._queue.segment.deleted:
            return self._queue
        name = self._staging_name
        segment = find_segment(self._namespace, name)
        if segment is None:
            return None
        queue = self._open_queue(self._namespace, name, segment)
        with self._namespace.locked():
            _check_owner(queue, self._publisher)
        self.close()
        self._queue = queue
        return queue

    def _ensure_staging_queue(self, staging_bytes: int = STAGING_BYTES) -> Any:
        """The staging queue, created if there is none. Raises ShmqError."""
        queue = self._queue_if_any()
        while queue is None:
            options = _make_options(self._target.name, staging_bytes)
            with self._namespace.locked():
                if self._target.segment.deleted:
                    raise QueueDeleted(f"queue {self._target.name!r} was deleted")
                if find_segment(self._namespace, self._staging_name) is None:
                    self._namespace.make_segment(self._staging_name, options)
            queue = self._queue_if_any()
        return queue


# ---- what lies in a staging queue ----


def _find_marker(queue: Any) -> Marker | None:
    """The newest marker; None if nothing was sealed yet."""
    before = None
    while True:
        listed = [(at, sequence) for at, sequence, _, _ in queue.staging.listing(_MARKER)]
        copies = [queue.inspection.copy_at(*place) for place in listed]
        # One that is gone by now was removed after a newer one was put.
        if None not in copies or listed == before:
            break
        before = listed
    markers = [
        Marker(copy.body["batch"], copy.body["parts"], *place)
        for place, copy in zip(listed, copies, strict=True)
        if copy is not None
    ]
    return max(markers, key=lambda marker: marker.batch, default=None)


def _list_chunks(queue: Any) -> list[Chunk]:
    """All chunks, by batch and in the order in which they were staged."""
    found = []
    for at, sequence, waits, meta in queue.staging.listing(_CHUNK):
        headers = unpack_properties(meta).get("headers")
        if headers and "batch" in headers and "part" in headers:
            found.append(Chunk(headers["batch"], sequence, headers["part"], at, waits))
    return sorted(found)


def _check_owner(queue: Any, publisher: str) -> None:
    """Ensure that the staging queue belongs to this publisher, and has its turn message.

    Needs the registry lock. Raises InvalidOption if it belongs to another publisher.
    """
    turns = queue.staging.listing(_TURN)
    if not turns:
        queue.put(publisher, False)
        return
    copy = queue.inspection.copy_at(turns[0][0], turns[0][1])
    if copy is not None and copy.body != publisher:
        raise InvalidOption(
            f"the staging queue {queue.name!r} is that of the publisher {copy.body!r}, not of "
            f"{publisher!r}: choose another name for one of them"
        )


# ---- staging ----


def _stage(
    queue: Any, batch: int, part: str, chunks: Iterable[tuple[bytes, int]], most: int
) -> None:
    """Stage chunks, each with its count of rows, for a batch, unless the batch is sealed.

    Raises Full, with none of them staged.
    """
    marker = _find_marker(queue)
    if marker is not None and marker.batch >= batch:
        return
    before = queue.last_sequence
    try:
        for chunk, count in chunks:
            if queue.staging.used + len(chunk) > most and marker is not None:
                _remove_uncommitted(queue, marker)
            if queue.staging.used + len(chunk) > most:
                raise _make_no_room(queue, len(chunk), most)
            headers = {"batch": batch, "part": part, "rows": count}
            try:
                queue.put(chunk, False, headers=headers)
            except Full:
                raise _make_no_room(queue, len(chunk), most) from None
    except BaseException:
        _unstage(queue, batch, part, before)
        raise


def _unstage(queue: Any, batch: int, part: str, before: int) -> None:
    """Remove what a failed call has staged of the part; only one process stages a part."""
    for chunk in _list_chunks(queue):
        if chunk.batch == batch and chunk.part == part and chunk.sequence > before:
            queue.staging.remove(chunk.at, chunk.sequence)


def _make_no_room(queue: Any, size: int, most: int) -> Full:
    return Full(
        f"{size} bytes of rows have no room in the staging queue {queue.name!r}: "
        f"{queue.staging.used} of {most} bytes are taken; commit smaller batches, or discard the "
        f"queue and stage with larger staging_bytes"
    )


# ---- committing ----


def _commit(
    target: Any, queue: Any, batch: int, parts: Sequence[str], how: _CommitProgress
) -> None:
    """Publish the parts of a batch, unless that was done.

    The rest of an earlier batch is published first. Raises Full if there was no room, or another
    process published, until the time was over; and NotConfirmed.
    """
    with _turn(queue, how):
        marker = _find_marker(queue)
        if marker is not None and marker.batch > batch:
            return
        if marker is not None:
            _finish(target, queue, marker, how)
        if marker is None or marker.batch < batch:
            _finish(target, queue, _seal(queue, batch, parts), how)
        _wait_until_written(target, how)


def _remove_unsealed(queue: Any, keep: str | None) -> int:
    """Remove the chunks of batches that are not sealed; returns how many. Needs the turn.

    Parts whose names begin with ``keep`` stay.
    """
    marker = _find_marker(queue)
    swept = 0
    for chunk in _list_chunks(queue):
        if (marker is None or chunk.batch > marker.batch) and not (
            keep is not None and chunk.part.startswith(keep)
        ):
            swept += queue.staging.remove(chunk.at, chunk.sequence)
    return swept


@contextlib.contextmanager
def _turn(queue: Any, how: _CommitProgress) -> Iterator[None]:
    """Hold the publisher's turn: only one process commits at a time, which keeps the order.

    Raises Full if another process has it until the time is over.
    """
    receipt = _take_turn(queue)
    while receipt is None:
        if how.is_over:
            raise _make_busy(queue)
        time.sleep(_PAUSE)
        receipt = _take_turn(queue)
    try:
        yield
    finally:
        queue.transfer.untake(receipt)


def _make_busy(queue: Any) -> Full:
    """The error of a commit that has waited in vain: who commits, and what to do about it."""
    who, remedy = "another process", "try again"
    for at, sequence, *_ in queue.staging.listing(_TURN):
        pid = queue.staging.find_mover(at, sequence)
        if pid:
            holder = Holder.of(pid)
            who = f"PID {holder.pid} ({holder.state}), {holder.name}"
            remedy = holder.remedy
    return Full(
        f"what is staged in {queue.name!r} is being committed by {who}, and that did not end in "
        f"time: {remedy}"
    )


def _take_turn(queue: Any) -> int | None:
    queue.tend()  # returns what a dead publisher held
    for at, sequence, waits, _ in queue.staging.listing(_TURN):
        taken = queue.transfer.take(at, sequence) if waits else None
        if taken is not None:
            return int(taken[0])
    return None


def _seal(queue: Any, batch: int, parts: Sequence[str]) -> Marker:
    """Decide which parts of the batch are committed. Needs the turn."""
    there = {chunk.part for chunk in _list_chunks(queue) if chunk.batch == batch}
    _check_staged(queue.name, batch, parts, there)
    body = {"batch": batch, "parts": list(parts)}
    try:
        queue.put(body, False, codec="json")
    except Full:
        _remove_uncommitted(queue, Marker(batch, list(parts), 0, 0))
        queue.put(body, False, codec="json")
    marker = _find_marker(queue)
    assert marker is not None
    for at, sequence, _, _ in queue.staging.listing(_MARKER):
        if sequence != marker.sequence:
            queue.staging.remove(at, sequence)
    return marker


def _check_staged(name: str, batch: int, parts: Sequence[str], there: Collection[str]) -> None:
    """Check that the ``parts`` are ``there``, in the staging queue ``name``.

    Raises InvalidOption.
    """
    missing = [part for part in parts if part not in there]
    if missing:
        raise InvalidOption(
            f"{len(missing)} of the {len(parts)} parts of batch {batch} are not in the staging "
            f"queue {name!r}, as {missing[0]!r}: they were never staged, or lost with the "
            f"memory; nothing was committed, stage the batch again"
        )


def _list_committed(queue: Any, marker: Marker) -> list[Chunk]:
    """The chunks of the batch that are left to publish.

    A process that looked for the marker before the batch was sealed may stage more of it at any
    time; that is not committed, and the next commit removes it.
    """
    parts = set(marker.parts)
    return [
        chunk
        for chunk in _list_chunks(queue)
        if chunk.batch == marker.batch and chunk.part in parts
    ]


def _remove_uncommitted(queue: Any, marker: Marker) -> None:
    """Remove the chunks that will never be committed, because their tasks failed."""
    parts = set(marker.parts)
    for chunk in _list_chunks(queue):
        if chunk.batch < marker.batch or (chunk.batch == marker.batch and chunk.part not in parts):
            queue.staging.remove(chunk.at, chunk.sequence)


def _finish(target: Any, queue: Any, marker: Marker, how: _CommitProgress) -> None:
    """Publish what is left of a sealed batch, in its order. Needs the turn."""
    place = {part: at for at, part in enumerate(marker.parts)}
    _settle_orphans(target, queue, how)
    _remove_uncommitted(queue, marker)
    while chunks := _list_committed(queue, marker):
        chunks.sort(key=lambda chunk: (place[chunk.part], chunk.sequence))
        for chunk in chunks:
            moved = target.staging.move_rows(queue, chunk.at, chunk.sequence, how.left)
            if moved is None:  # a dead publisher or an outsider has leased it
                if how.is_over:
                    raise _make_no_room_to_commit(target, queue, marker)
                queue.tend()
                time.sleep(_PAUSE)
                break
            how.moved(moved[0], target.name)
            if not moved[1]:
                raise _make_no_room_to_commit(target, queue, marker)
    _settle_orphans(target, queue, how)


def _settle_orphans(target: Any, queue: Any, how: _CommitProgress) -> None:
    """Complete what a dead publisher left half done, before anything is put after it."""
    while True:
        target.look_for_dead()
        origins = {origin for _, origin, _, _ in target.transfer.orphans()}
        if queue.segment.hash_key not in origins:
            return
        if how.is_over:
            raise Full(
                f"queue {target.name!r} has no room for more dedupe ids: rows wait for that "
                f"which were committed; commit the batch again"
            )
        time.sleep(_PAUSE)


def _make_no_room_to_commit(target: Any, queue: Any, marker: Marker) -> Full:
    left = len(_list_committed(queue, marker))
    stats = target.stats()
    messages = stats.depth + stats.delayed + stats.in_flight + stats.dying
    full = "its messages" if messages >= stats.capacity else "its arena"
    return Full(
        f"queue {target.name!r} has no room in {full}: {messages:,} of {stats.capacity:,} "
        f"messages, {stats.arena_used:,} of {stats.arena_bytes:,} bytes; {left} "
        f"chunk{'' if left == 1 else 's'} of batch {marker.batch} wait in {queue.name!r}: consume, "
        f"and commit the batch again"
    )


def _wait_until_written(target: Any, how: _CommitProgress) -> None:
    """Wait until the rows are on disk, if a journal must have them. Raises NotConfirmed."""
    if target.options.durability != "journal":
        return
    if not target.confirms_on_disk(None) and not target.has_writer():
        return
    last = target.last_sequence
    if not target.journal.wait_synced(last, _WRITTEN if how.left is None else how.left):
        raise durable_wait.not_confirmed(target, last, how.rows)
