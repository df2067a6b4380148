"""Whether the history of a stream is one that a stream may have.

The check is that of Jepsen's tests of Kafka and Redpanda: of what was confirmed nothing is
lost, no offset ever has two values, offsets have no gaps, and what one appender appended
under one key is in its order. https://jepsen.io/analyses/redpanda-21.10.1
"""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Iterable, Sequence

from tests.prove.soak.streams.notes import Kind, Note

#: Keys of one appender; its message n has key n modulo these.
KEYS = 4
_NUMBER = (1 << 32) - 1

#: What must not be, and what it means.
WRONGS = {
    "lost": "confirmed to its appender, and not there",
    "divergent": "an offset had another value for one than for another",
    "doubled": "one message is at two offsets",
    "unexpected": "it was never appended",
    "out_of_order": "behind a later message of the same appender and key",
    "apart": "of one key in two partitions",
    "unread": "behind the group's commit, and read by none of its members",
}


@dataclasses.dataclass
class Verdict:
    """What was found; the sets but for the counts must be empty."""

    lost: set[int] = dataclasses.field(default_factory=set)
    divergent: set[tuple[int, int]] = dataclasses.field(default_factory=set)
    doubled: set[int] = dataclasses.field(default_factory=set)
    unexpected: set[int] = dataclasses.field(default_factory=set)
    out_of_order: set[int] = dataclasses.field(default_factory=set)
    apart: set[int] = dataclasses.field(default_factory=set)
    unread: set[tuple[int, int]] = dataclasses.field(default_factory=set)
    #: Messages confirmed, and records read again by another member.
    appended: int = 0
    again: int = 0

    def wrong(self) -> dict[str, object]:
        """What must not be."""
        return {kind: found for kind in WRONGS if (found := getattr(self, kind))}


def key_of(message: int) -> bytes:
    """The key of a message: its appender and one of :data:`KEYS`."""
    return b"%d-%d" % (message >> 32, (message & _NUMBER) % KEYS)


def judge(observed: Sequence[array[int]], notes: Iterable[Note]) -> Verdict:
    """The verdict on ``observed``, the message at each offset of each partition, from 0 on."""
    verdict = Verdict()
    intended: dict[int, int] = {}
    confirmed: set[int] = set()
    read = [bytearray(len(partition)) for partition in observed]
    for note in notes:
        if note.kind is Kind.APPENDING:
            intended[note.worker] = max(note.message, intended.get(note.worker, 0))
            continue
        if note.kind is Kind.COMMITTING:
            continue
        if note.kind is Kind.APPENDED:
            verdict.appended += 1
            confirmed.add(note.message)
        _compare(verdict, observed, note)
        if note.kind is Kind.READ and note.offset < len(observed[note.partition]):
            verdict.again += read[note.partition][note.offset]
            read[note.partition][note.offset] = 1
    _judge_records(verdict, observed, intended, confirmed)
    verdict.unread = {
        (partition, offset)
        for partition, marks in enumerate(read)
        for offset, mark in enumerate(marks)
        if not mark
    }
    return verdict


def _compare(verdict: Verdict, observed: Sequence[array[int]], note: Note) -> None:
    """All that read, or appended, a record at an offset mean the same one."""
    there = observed[note.partition]
    if note.offset >= len(there):
        verdict.lost.add(note.message)
    elif there[note.offset] != note.message:
        verdict.divergent.add((note.partition, note.offset))


def _judge_records(
    verdict: Verdict, observed: Sequence[array[int]], intended: dict[int, int], confirmed: set[int]
) -> None:
    seen: set[int] = set()
    newest: dict[bytes, tuple[int, int]] = {}
    for partition, messages in enumerate(observed):
        for message in messages:
            if message > intended.get(message >> 32, 0):
                verdict.unexpected.add(message)
            if message in seen:
                verdict.doubled.add(message)
            seen.add(message)
            where, before = newest.get(key_of(message), (partition, 0))
            if where != partition:
                verdict.apart.add(message)
            elif message < before:
                verdict.out_of_order.add(message)
            newest[key_of(message)] = partition, message
    verdict.lost |= confirmed - seen
