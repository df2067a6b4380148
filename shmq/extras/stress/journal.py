"""A worker's journal, and the check of all journals.

The journal is a file that SIGKILL cannot tear, with one write(2) a step: a record has 16 bytes and
never crosses a page, so a write that a kill cuts short ends between two records. The check finds
lost, duplicate, reordered and unexpected messages.
"""

from __future__ import annotations

import dataclasses
import heapq
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from shmq.native import _clock as time
from shmq.native.descriptors import open_file

#: kind << 61 | message, and the time.
_RECORD = struct.Struct("<QQ")
_KIND_SHIFT: Final = 61
_MESSAGE: Final = (1 << _KIND_SHIFT) - 1

#: A message's id is producer << 32 | its number among the messages of that producer.
NUMBER_BITS: Final = 32

#: About to put; put; delivered; about to acknowledge; acknowledged; about to give the
#: message back.
INTENT, PUT, GOT, ACKING, ACKED, RETURNED = range(6)


class Record(NamedTuple):
    """One step of a message: ``at`` in monotonic ns, the same clock for all processes."""

    at: int
    worker: int
    kind: int
    message: int


class Journal:
    """The records of one worker. Up to ``kept`` bytes are buffered, for runs without kills."""

    def __init__(self, directory: Path, worker: int, kept: int = 0) -> None:
        path = directory / f"{worker}.journal"
        self._fd = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._kept = kept
        self._waiting = bytearray()

    def write(self, kind: int, *messages: int) -> None:
        """Append a record for each of the messages, all with the current time."""
        self.write_at(time.monotonic_ns(), kind, messages)

    def write_at(self, at: int, kind: int, messages: Iterable[int]) -> None:
        """Append a record for each of the messages, all with the time ``at``."""
        first = kind << _KIND_SHIFT
        waiting = self._waiting
        for message in messages:
            waiting += _RECORD.pack(first | message, at)
        if len(waiting) > self._kept:
            self.flush()

    def flush(self) -> None:
        """Write the buffered records."""
        os.write(self._fd, self._waiting)
        self._waiting.clear()

    def close(self) -> None:
        """Write the buffered records and close the file."""
        self.flush()
        os.close(self._fd)


def worker_of(path: Path) -> int:
    """The number of the worker that wrote the journal."""
    return int(path.stem)


def read(path: Path) -> Iterator[Record]:
    """The records of one worker, ordered by time."""
    worker = worker_of(path)
    data = path.read_bytes()
    for first, at in _RECORD.iter_unpack(data[: len(data) // _RECORD.size * _RECORD.size]):
        yield Record(at, worker, first >> _KIND_SHIFT, first & _MESSAGE)


def read_all(directory: Path) -> Iterator[Record]:
    """The records of all workers, ordered by time."""
    return heapq.merge(*(read(path) for path in sorted(directory.glob("*.journal"))))


_NUMBER = (1 << NUMBER_BITS) - 1

#: The bits of a message's byte: what is known of it.
_INTENDED, _CONFIRMED, _SEEN, _ACKING, _ACKED = 1, 2, 4, 8, 16

#: The bit that each kind of record sets.
_MEANS = {INTENT: _INTENDED, PUT: _CONFIRMED, GOT: _SEEN, ACKING: _ACKING, ACKED: _ACKED}
_MEANS[RETURNED] = 0

#: The violations, and what each means.
WRONGS = {
    "lost": "confirmed by put, and never acknowledged",
    "unexpected": "delivered, although it was never put",
    "back_after_ack": "delivered again after it was acknowledged",
    "held_twice": "delivered to a second consumer while the first one had it",
    "twice": "delivered twice, although no process died and no lease expired",
    "out_of_order": "delivered after a later message of the same producer",
}


@dataclasses.dataclass
class CheckResult:
    """The violations found, as sets of messages that must be empty, and two counts."""

    lost: set[int] = dataclasses.field(default_factory=set)
    unexpected: set[int] = dataclasses.field(default_factory=set)
    back_after_ack: set[int] = dataclasses.field(default_factory=set)
    held_twice: set[int] = dataclasses.field(default_factory=set)
    twice: set[int] = dataclasses.field(default_factory=set)
    out_of_order: set[int] = dataclasses.field(default_factory=set)
    put: int = 0
    redelivered: int = 0

    def wrong(self) -> dict[str, set[int]]:
        """The sets that are not empty, by the kind of violation."""
        return {kind: found for kind in WRONGS if (found := getattr(self, kind))}


class _KnownMessages:
    """One byte for each message of each producer: what is known of it."""

    def __init__(self, promised: Mapping[int, int]) -> None:
        known = _INTENDED | _CONFIRMED
        self._of = {producer: bytearray([known]) * put for producer, put in promised.items()}

    def of(self, message: int) -> tuple[bytearray, int]:
        """The bytes of the message's producer, and the index of the message's byte."""
        number = message & _NUMBER
        marks = self._of.setdefault(message >> NUMBER_BITS, bytearray())
        if number >= len(marks):
            marks.extend(bytes(number + 1 + len(marks) // 2 - len(marks) + 16))
        return marks, number

    def confirmed(self) -> Iterable[tuple[int, int]]:
        """Each message whose put was confirmed, with its byte."""
        for producer, marks in self._of.items():
            for number, known in enumerate(marks):
                if known & _CONFIRMED:
                    yield producer << NUMBER_BITS | number, known


class _Check:
    """A check in progress: what is known of each message, and which worker holds it."""

    def __init__(
        self, killed_at: Mapping[int, int], promised: Mapping[int, int], ordered: bool
    ) -> None:
        self.verdict = CheckResult()
        self.ledger = _KnownMessages(promised)
        self._killed_at = killed_at
        self._ordered = ordered
        self._holder: dict[int, int] = {}
        self._newest: dict[int, int] = {}

    def hear(self, record: Record) -> None:
        """Record one step."""
        marks, number = self.ledger.of(record.message)
        if record.kind == GOT:
            self._note_delivered(record, marks[number])
        marks[number] |= _MEANS[record.kind]
        if record.kind in {ACKED, RETURNED}:
            self._holder.pop(record.message, None)

    def _note_delivered(self, record: Record, known: int) -> None:
        at, worker, _, message = record
        if not known & _INTENDED:
            self.verdict.unexpected.add(message)
        if known & _ACKED:
            self.verdict.back_after_ack.add(message)
        last = self._holder.get(message)
        if last is not None and self._killed_at.get(last, at + 1) > at:
            self.verdict.held_twice.add(message)
        newest = self._newest.get(message >> NUMBER_BITS, message)
        if self._ordered and message < newest:
            self.verdict.out_of_order.add(message)
        self._newest[message >> NUMBER_BITS] = max(message, newest)
        self.verdict.redelivered += bool(known & _SEEN)
        self._holder[message] = worker

    def close(self) -> CheckResult:
        """The result, after the last record."""
        for message, known in self.ledger.confirmed():
            self.verdict.put += 1
            # If its consumer died during the acknowledgement, the message may be settled.
            if not known & (_ACKING | _ACKED):
                self.verdict.lost.add(message)
        return self.verdict


def judge(
    records: Iterable[Record],
    killed_at: Mapping[int, int],
    promised: Mapping[int, int] | None = None,
    ordered: bool = False,
) -> CheckResult:
    """Check a run in which workers were killed or leases expired.

    ``killed_at``: when each killed worker was last known to live, in monotonic ns.
    ``promised``: for each producer without a journal, how many messages it put, numbered
    from 0. ``ordered``: whether a message may not be delivered after a later one of its
    producer.
    """
    hearing = _Check(killed_at, promised or {}, ordered)
    for record in records:
        hearing.hear(record)
    return hearing.close()


def count_once(directory: Path, promised: Mapping[int, int]) -> CheckResult:
    """Check a run without kills: each message must be delivered once and in order.

    The journals need only the deliveries. Each consumer must get a producer's messages in the
    order in which they were put.
    """
    verdict = CheckResult(put=sum(promised.values()))
    seen = {producer: bytearray(put) for producer, put in promised.items()}
    for path in directory.glob("*.journal"):
        newest: dict[int, int] = {}
        for _, _, kind, message in read(path):
            if kind != GOT:
                continue
            producer, number = message >> NUMBER_BITS, message & _NUMBER
            marks = seen.get(producer)
            if marks is None or number >= len(marks):
                verdict.unexpected.add(message)
                continue
            if marks[number]:
                verdict.twice.add(message)
            elif number < newest.get(producer, 0):
                verdict.out_of_order.add(message)
            marks[number] = 1
            newest[producer] = number
    for producer, marks in seen.items():
        at = marks.find(0)
        while at >= 0:
            verdict.lost.add(producer << NUMBER_BITS | at)
            at = marks.find(0, at + 1)
    return verdict
