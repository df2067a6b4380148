"""Rows that are staged for a queue, and published in it exactly once, batch by batch.

What a publisher stages lies as chunks in a queue beside the target, its staging queue. There
is a marker, too, which says up to which batch it is settled what is published, and of which
parts; and a message without a meaning, the turn, which whoever publishes holds. How the rows
of a chunk move is the core's (shmq/core/queue/transfer.h).
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple

from shmq.api.options import MAX_ARENA, QueueOptions, check_whole
from shmq.client.shared import durable_wait
from shmq.codec.codecs import CODECS, unpack_properties
from shmq.errors import Full, InvalidOption

__all__ = [
    "CommitProgress",
    "check_batch",
    "check_owner",
    "check_part",
    "check_publisher",
    "options_for",
    "publish",
    "sealed",
    "stage",
    "sweep",
]

#: What tells the three kinds of messages in a staging queue apart.
_CHUNK, _TURN, _MARKER = (CODECS.index(codec) for codec in ("bytes", "text", "json"))

#: The room that a staging queue has at least, in bytes: memory is only taken for what is
#: staged, and a larger bound may be chosen later.
_ROOM: Final = 4 << 30
#: What the marker and the turn may take beside the rows, in bytes.
_BESIDE: Final = 1 << 20
#: How many chunks it holds.
_CHUNKS: Final = 1 << 16
#: The longest name of a part, in bytes of UTF-8.
_LONGEST_PART: Final = 200
#: How long a publish waits for another one, at a time, in seconds.
_PAUSE: Final = 0.005
#: How long what was published is waited for to be on disk, where no timeout says so, in
#: seconds.
_WRITTEN: Final = 30.0


class Marker(NamedTuple):
    """Batches below are published; of this one, these parts are, or are to be."""

    batch: int
    parts: list[str]
    at: int
    sequence: int


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Chunk:
    """A chunk in a staging queue, as it says itself."""

    batch: int
    sequence: int
    part: str
    at: int
    waits: bool


def options_for(target: str, staging_bytes: int) -> QueueOptions:
    """Those of a staging queue. Raises InvalidOption."""
    check_whole("staging_bytes", staging_bytes, 1 << 16, MAX_ARENA - _BESIDE)
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


def check_publisher(publisher: str) -> str:
    """Return it. Raises InvalidOption, TypeError."""
    return _check_text("publisher", publisher)


def check_part(part: str) -> str:
    """Return it. Raises InvalidOption, TypeError."""
    return _check_text("part", part)


def check_batch(batch: int) -> int:
    """Return it. Raises InvalidOption, TypeError."""
    return check_whole("batch", batch, 0, (1 << 63) - 1)


def _check_text(what: str, text: str) -> str:
    if not isinstance(text, str):
        raise TypeError(f"{what}={text!r:.80} must be a str, not {type(text).__name__}")
    if not 0 < len(text.encode("utf-8", "replace")) <= _LONGEST_PART:
        raise InvalidOption(
            f"{what}={text!r:.80} must be 1 to {_LONGEST_PART} bytes of UTF-8, and has "
            f"{len(text.encode('utf-8', 'replace'))}"
        )
    return text


class CommitProgress:
    """How far a publish has come."""

    def __init__(self, until: float | None, most: int | None = None) -> None:
        #: When it ends unfinished, on time.monotonic(); None: never.
        self.until = until
        #: The rows that became messages.
        self.rows = 0
        self._most = most

    @property
    def left(self) -> float | None:
        """The seconds that it may still take; None: without limit."""
        return None if self.until is None else max(0.0, self.until - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether its time is over."""
        return self.left == 0.0

    def moved(self, rows: int, queue: str) -> None:
        """Count rows. Raises Full if these were as many as are to be moved at once."""
        self.rows += rows
        if self._most is not None and self.rows >= self._most:
            raise Full(f"{self.rows} rows of queue {queue!r} are published, and more are to come")


# ---- what lies in a staging queue ----


def _marker(queue: Any) -> Marker | None:
    """The newest marker; None if nothing was sealed yet."""
    newest = None
    for at, sequence, _, _ in queue.listing(_MARKER):
        copy = queue.copy_at(at, sequence)
        if copy is not None:
            told = copy.body
            marker = Marker(told["batch"], told["parts"], at, sequence)
            if newest is None or marker.batch > newest.batch:
                newest = marker
    return newest


def _chunks(queue: Any) -> list[Chunk]:
    """All chunks, by batch and in the order in which they were staged."""
    found = []
    for at, sequence, waits, meta in queue.listing(_CHUNK):
        headers = unpack_properties(meta).get("headers")
        if headers and "batch" in headers and "part" in headers:
            found.append(Chunk(headers["batch"], sequence, headers["part"], at, waits))
    return sorted(found)


def check_owner(queue: Any, publisher: str) -> None:
    """See to it that the staging queue is this publisher's, and has its turn.

    Needs the registry lock. Raises InvalidOption if it is another one's.
    """
    turns = queue.listing(_TURN)
    if not turns:
        queue.put(publisher, False)
        return
    copy = queue.copy_at(turns[0][0], turns[0][1])
    if copy is not None and copy.body != publisher:
        raise InvalidOption(
            f"the staging queue {queue.name!r} is that of the publisher {copy.body!r}, not of "
            f"{publisher!r}: choose another name for one of them"
        )


# ---- staging ----


def stage(
    queue: Any, batch: int, part: str, chunks: Sequence[tuple[bytes, int]], most: int
) -> None:
    """Stage chunks, each with its count of rows, for a batch, unless that is sealed.

    Raises Full, and then has staged none.
    """
    marker = _marker(queue)
    if marker is not None and marker.batch >= batch:
        return
    size = sum(len(chunk) for chunk, _ in chunks)
    if queue.used + size > most and marker is not None:
        _sweep(queue, marker)
    if queue.used + size > most:
        raise _no_room(queue, size, most)
    before = queue.last_sequence
    try:
        for chunk, count in chunks:
            headers = {"batch": batch, "part": part, "rows": count}
            queue.put(chunk, False, headers=headers)
    except BaseException as error:
        _unstage(queue, batch, part, before)
        if isinstance(error, Full):
            raise _no_room(queue, size, most) from None
        raise


def _unstage(queue: Any, batch: int, part: str, before: int) -> None:
    """Remove what a call that failed has staged of the part: a part has one who stages it."""
    for chunk in _chunks(queue):
        if chunk.batch == batch and chunk.part == part and chunk.sequence > before:
            queue.remove(chunk.at, chunk.sequence)


def _no_room(queue: Any, size: int, most: int) -> Full:
    return Full(
        f"{size} bytes of rows have no room in the staging queue {queue.name!r}: {queue.used} of "
        f"{most} bytes are taken; publish smaller batches, or discard the queue and stage with "
        f"larger staging_bytes"
    )


# ---- publishing ----


def publish(target: Any, queue: Any, batch: int, parts: Sequence[str], how: CommitProgress) -> None:
    """Publish the parts of a batch, unless that was done.

    What an earlier batch has left is published first. Raises Full if there was no room, or
    another one published, until the time was over; and NotConfirmed.
    """
    with _turn(queue, how):
        marker = _marker(queue)
        if marker is not None and marker.batch > batch:
            return
        if marker is not None:
            _finish(target, queue, marker, how)
        if marker is None or marker.batch < batch:
            _finish(target, queue, _seal(queue, batch, parts), how)
        wait_until_written(target, how)


def sweep(queue: Any, keep: str | None) -> int:
    """Remove what is staged for batches that are not sealed: how many chunks that were.

    But for the parts whose names begin with ``keep``.
    """
    marker = _marker(queue)
    swept = 0
    for chunk in _chunks(queue):
        if (marker is None or chunk.batch > marker.batch) and not (
            keep is not None and chunk.part.startswith(keep)
        ):
            swept += queue.remove(chunk.at, chunk.sequence)
    return swept


def sealed(queue: Any) -> int | None:
    """The newest batch of which it is settled what is published."""
    marker = _marker(queue)
    return None if marker is None else marker.batch


@contextlib.contextmanager
def _turn(queue: Any, how: CommitProgress) -> Iterator[None]:
    """Hold the publisher's turn: who publishes does so alone, so that the order is kept."""
    receipt = _take_turn(queue)
    while receipt is None:
        if how.is_over:
            raise Full(
                f"what is staged in {queue.name!r} is being published by another process, which "
                f"has not come to an end in time: try again"
            )
        time.sleep(_PAUSE)
        receipt = _take_turn(queue)
    try:
        yield
    finally:
        queue.untake(receipt)


def _take_turn(queue: Any) -> int | None:
    queue.tend()  # what a dead publisher held is back in its place
    for at, sequence, waits, _ in queue.listing(_TURN):
        taken = queue.take(at, sequence) if waits else None
        if taken is not None:
            return int(taken[0])
    return None


def _seal(queue: Any, batch: int, parts: Sequence[str]) -> Marker:
    """From here on it is settled which parts of the batch are published. Needs the turn."""
    there = {chunk.part for chunk in _chunks(queue) if chunk.batch == batch}
    check_staged(queue.name, batch, parts, there)
    body = {"batch": batch, "parts": list(parts)}
    try:
        queue.put(body, False, codec="json")
    except Full:
        _sweep(queue, Marker(batch, list(parts), 0, 0))
        queue.put(body, False, codec="json")
    marker = _marker(queue)
    assert marker is not None
    for at, sequence, _, _ in queue.listing(_MARKER):
        if sequence != marker.sequence:
            queue.remove(at, sequence)
    return marker


def check_staged(name: str, batch: int, parts: Sequence[str], there: Collection[str]) -> None:
    """See to it that the ``parts`` are ``there``, in the staging queue ``name``.

    Raises InvalidOption.
    """
    missing = [part for part in parts if part not in there]
    if missing:
        raise InvalidOption(
            f"{len(missing)} of the {len(parts)} parts of batch {batch} are not in the staging "
            f"queue {name!r}, as {missing[0]!r}: they were never staged, or lost with the "
            f"memory; nothing was published, stage the batch again"
        )


def _sweep(queue: Any, marker: Marker) -> None:
    """Remove the chunks that are never to be published, as their tasks failed."""
    for chunk in _chunks(queue):
        if chunk.batch < marker.batch or (
            chunk.batch == marker.batch and chunk.part not in marker.parts
        ):
            queue.remove(chunk.at, chunk.sequence)


def _finish(target: Any, queue: Any, marker: Marker, how: CommitProgress) -> None:
    """Publish what is left of a sealed batch, in its order. Needs the turn."""
    place = {part: at for at, part in enumerate(marker.parts)}
    _settle_orphans(target, queue, how)
    _sweep(queue, marker)
    while chunks := [chunk for chunk in _chunks(queue) if chunk.batch == marker.batch]:
        chunks.sort(key=lambda chunk: (place[chunk.part], chunk.sequence))
        for chunk in chunks:
            moved = target.move_rows(queue, chunk.at, chunk.sequence, how.left)
            if moved is None:  # a dead publisher has it, or somebody who has no business here
                if how.is_over:
                    raise _no_room_to_publish(target, queue, marker)
                queue.tend()
                time.sleep(_PAUSE)
                break
            how.moved(moved[0], target.name)
            if not moved[1]:
                raise _no_room_to_publish(target, queue, marker)
    _settle_orphans(target, queue, how)


def _settle_orphans(target: Any, queue: Any, how: CommitProgress) -> None:
    """Have what a dead publisher left half done settled, before anything comes behind it."""
    while True:
        target.look_for_dead()
        origins = {origin for _, origin, _, _ in target.orphans()}
        if queue.segment.hash_key not in origins:
            return
        if how.is_over:
            raise Full(
                f"queue {target.name!r} has no room for more dedupe ids: rows wait for that "
                f"which were published; publish again"
            )
        time.sleep(_PAUSE)


def _no_room_to_publish(target: Any, queue: Any, marker: Marker) -> Full:
    left = sum(1 for chunk in _chunks(queue) if chunk.batch == marker.batch)
    return Full(
        f"queue {target.name!r} is full: {left} chunk{'' if left == 1 else 's'} of batch "
        f"{marker.batch} wait in {queue.name!r}; consume, and publish again"
    )


def wait_until_written(target: Any, how: CommitProgress) -> None:
    """Have the rows on disk, where a journal is to have them. Raises NotConfirmed."""
    if target.options.durability != "journal":
        return
    if not target.confirms_on_disk(None) and not target.has_writer():
        return
    last = target.last_sequence
    if not target.wait_synced(last, _WRITTEN if how.left is None else how.left):
        raise durable_wait.not_confirmed(target, last, how.rows)
