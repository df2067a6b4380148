"""What the application knows at one moment, and what a recovery must make of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

#: A message is known by what it says: its body is its name and what can be derived from it.
Name = str


@dataclass(frozen=True)
class Sent:
    """A message as it was put."""

    name: Name
    queue: str
    sequence: int
    body: bytes
    headers: Mapping[str, object]
    deduped: bool = False


@dataclass(frozen=True)
class Expectation:
    """What is known of all messages at a moment."""

    #: Confirmed to be on disk, and their settling has not begun.
    must: frozenset[Name] = frozenset()
    #: Settled, and that is on disk.
    gone: frozenset[Name] = frozenset()
    #: Put, or about to be.
    begun: frozenset[Name] = frozenset()
    #: With a dedupe id, and confirmed to be on disk, settled or not.
    deduped: frozenset[Name] = frozenset()
    #: How often each was delivered: at least so often on disk, and so often in memory.
    deliveries: Mapping[Name, tuple[int, int]] = field(default_factory=dict)
    #: Those which are dead letters on disk.
    dead: frozenset[Name] = frozenset()
    #: Those which were sent back, under another number, and are as if never delivered.
    renumbered: frozenset[Name] = frozenset()
    #: What went into transactions, and what came out of each: all of it is there, or nothing.
    transactions: frozenset[tuple[tuple[Name, ...], tuple[Name, ...]]] = frozenset()


@dataclass(frozen=True)
class Found:
    """A message that was recovered."""

    sequence: int
    body: bytes
    headers: Mapping[str, object]
    deliveries: int = 0
    reason: str | None = None


@dataclass(frozen=True)
class Recovered:
    """What a queue holds after a recovery, in order; the sequences that its window knows."""

    messages: Sequence[Found]
    deduped: frozenset[int] = frozenset()
    last_sequence: int = 0


def name_of(body: bytes) -> Name:
    """The name that a body begins with."""
    return body.partition(b" ")[0].decode("utf-8", "replace")


def complaints(
    expectation: Expectation, sent: Mapping[Name, Sent], queues: Mapping[str, Recovered]
) -> list[str]:
    """What of the promise was not kept, a line each; empty if all is well."""
    found = [
        (queue, message, name_of(message.body))
        for queue, recovered in queues.items()
        for message in recovered.messages
    ]
    count = Counter(name for _, _, name in found)
    wrong = [f"{name} is lost" for name in sorted(expectation.must - count.keys())]
    wrong += [f"{name} is back" for name in sorted(expectation.gone & count.keys())]
    wrong += [f"{name} is there {n} times" for name, n in sorted(count.items()) if n > 1]
    for queue, message, name in found:
        if name not in expectation.begun:
            wrong.append(f"{name} was never put")
        else:
            wrong += _differences(expectation, sent[name], queue, message)
    for queue, recovered in queues.items():
        wrong += _misplaced(queue, recovered)
    wrong += _halved(expectation, count)
    return wrong + list(_forgotten(expectation, sent, queues))


def _halved(expectation: Expectation, count: Mapping[Name, int]) -> Iterator[str]:
    for inputs, outputs in sorted(expectation.transactions):
        there = {name: count.get(name, 0) for name in (*inputs, *outputs)}
        before = all(there[name] for name in inputs) and not any(there[name] for name in outputs)
        after = all(there[name] for name in outputs) and not any(there[name] for name in inputs)
        if not before and not after:
            yield f"half of a transaction is there: {there}"


def _differences(expectation: Expectation, sent: Sent, queue: str, message: Found) -> Iterator[str]:
    if message.body != sent.body or message.headers != sent.headers:
        yield f"{sent.name} is corrupt"
    at_home = queue == sent.queue and sent.name not in expectation.renumbered
    if at_home and message.sequence != sent.sequence:
        yield f"{sent.name} has number {message.sequence}, not {sent.sequence}"
    least, most = expectation.deliveries.get(sent.name, (0, 0))
    if at_home and not least <= message.deliveries <= most:
        yield f"{sent.name} was delivered {message.deliveries} times, not {least} to {most}"
    if queue != sent.queue and message.reason is None:
        yield f"{sent.name} is in {queue}, and no dead letter"
    if sent.name in expectation.dead and message.reason is None:
        yield f"{sent.name} is not a dead letter any more"


def _misplaced(queue: str, recovered: Recovered) -> Iterator[str]:
    numbers = [message.sequence for message in recovered.messages]
    if numbers != sorted(numbers):
        yield f"{queue} is out of order: {numbers}"
    if numbers and recovered.last_sequence < max(numbers):
        yield f"{queue} would give number {recovered.last_sequence + 1} again"


def _forgotten(
    expectation: Expectation, sent: Mapping[Name, Sent], queues: Mapping[str, Recovered]
) -> Iterator[str]:
    for name in sorted(expectation.deduped):
        message = sent[name]
        queue = queues.get(message.queue)
        if queue is None or message.sequence not in queue.deduped:
            yield f"the dedupe id of {name} is forgotten"
