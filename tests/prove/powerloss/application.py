"""An application that remembers what it knows of each of its messages."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import shmq
from shmq.host.namespace.namespace import Namespace
from shmq.host.namespace.semaphores import remove_semaphores
from tests.prove.powerloss.expectation import (
    Expectation,
    Found,
    Name,
    Recovered,
    Sent,
    complaints,
    name_of,
)

#: How the core numbers the states of a slot that a recovered message may be in.
READY, DELAYED = 3, 4


class Application:
    """Puts, gets and settles in one thread, and says at any moment what it was promised.

    A put is confirmed once the queue's position on disk has reached it: that is what a put
    with ``confirm="disk"`` waits for. An acknowledgement is on disk once no queue has
    settled messages that its journal does not have.
    """

    def __init__(self, broker: Any, seed: int = 0) -> None:
        self.broker = broker
        self.chance = random.Random(seed)
        self.queues: dict[str, Any] = {}
        self._options: dict[str, dict[str, Any]] = {}
        self.sent: dict[Name, Sent] = {}
        #: Leased now, by name.
        self.held: dict[Name, Any] = {}
        self._confirmed: set[Name] = set()
        self._unconfirmed: dict[str, list[Name]] = {}
        self._settling: set[Name] = set()
        self._settled: set[Name] = set()
        self._is_gone: set[Name] = set()
        self._dead: set[Name] = set()
        self._renumbered: set[Name] = set()
        self._together: set[tuple[tuple[Name, ...], tuple[Name, ...]]] = set()
        self._delivered: dict[Name, int] = {}
        self._at_least: dict[Name, int] = {}
        #: While the memory is lost: what was known before.
        self._blind: Expectation | None = None
        self._last: tuple[object, Expectation] = (None, Expectation())
        self._changes = 0
        #: To be called whenever something is known that was not.
        self.noted: Callable[[], None] = lambda: None

    def create(self, name: str, **options: Any) -> Any:
        """A queue with a journal; retries come at once."""
        given: dict[str, Any] = {
            "durability": "journal",
            "capacity": 64,
            "retry_delay": 0.0,
        } | options
        self._options[name] = given
        self.queues[name] = self.broker.create_queue(name, **given)
        self._unconfirmed[name] = []
        dead_letter_queue = given.get("dead_letter", f"{name}.dlq")
        if dead_letter_queue is not None:
            self.queues[dead_letter_queue] = self.broker.queue(dead_letter_queue)
            self._unconfirmed.setdefault(dead_letter_queue, [])
        return self.queues[name]

    def delete(self, name: str) -> None:
        """The queue, and what is in it; its dead letters stay, but not their queue without any."""
        doomed = {each.name for each in self.sent.values() if each.queue == name}
        self._settling |= doomed
        self._changed()
        self.queues.pop(name).close()
        del self._unconfirmed[name]
        self.broker.delete_queue(name)
        for gone in [each for each, queue in self.queues.items() if queue.segment.deleted]:
            self.queues.pop(gone).close()
            self._unconfirmed.pop(gone, None)
        self._settled |= doomed
        self._changes += 1

    def put(self, queue: str, size: int = 40, **properties: Any) -> Name:
        """One message of about that size. Returns its name."""
        name = f"m{len(self.sent) + 1}"
        body = name.encode() + b" " + self.chance.randbytes(size)
        self._delivered[name] = self._at_least[name] = 0
        done = self.queues[queue].put(body, **properties)
        # As a put that is confirmed by the disk does:
        self.queues[queue].journal.request_sync(done.sequence)
        deduped = properties.get("dedupe_id") is not None
        headers = dict(properties.get("headers") or {})
        self.sent[name] = Sent(name, queue, done.sequence, body, headers, deduped)
        self._unconfirmed[queue].append(name)
        self._changes += 1
        return name

    def transact(self, inputs: Sequence[Name], outputs: Sequence[str], size: int = 40) -> None:
        """Settle what is held, and put a message into each of the queues, in one transaction."""
        names = tuple(f"m{len(self.sent) + 1 + n}" for n in range(len(outputs)))
        for name, queue in zip(names, outputs, strict=True):
            body = name.encode() + b" " + self.chance.randbytes(size)
            self.sent[name] = Sent(name, queue, 0, body, {})
            self._delivered[name] = self._at_least[name] = 0
        self._renumbered |= {*names}  # one that is put by a recovery has another number
        self._settling |= {*inputs}
        self._together.add((tuple(inputs), names))
        self._changed()
        with self.broker.transaction() as transaction:
            for name in inputs:
                transaction.ack(self.queues[self.sent[name].queue], self.held.pop(name))
            for name, queue in zip(names, outputs, strict=True):
                transaction.put(self.queues[queue], self.sent[name].body)
        self._settled |= {*inputs}
        for name, queue in zip(names, outputs, strict=True):
            sequence = self.queues[queue].last_sequence
            self.sent[name] = replace(self.sent[name], sequence=sequence)
            self.queues[queue].journal.request_sync(sequence)
            self._unconfirmed[queue].append(name)
        self._changes += 1

    def put_again(self, name: Name, dedupe_id: str) -> None:
        """With an id that was used: nothing is put."""
        sent = self.sent[name]
        assert self.queues[sent.queue].put(sent.body, dedupe_id=dedupe_id).duplicate

    def get(self, queue: str) -> Name:
        """Lease the next message. Returns its name; raises Empty."""
        message = self.queues[queue].get_nowait()
        name = name_of(bytes(message.body))
        self.held[name] = message
        self._delivered[name] += queue == self.sent[name].queue
        self._changes += 1
        return name

    def ack(self, name: Name) -> None:
        self._settling.add(name)
        self._changed()
        self.held.pop(name).ack()
        self._settled.add(name)
        self._changes += 1

    def nack(self, name: Name, delay: float = 0.0) -> None:
        self.held.pop(name).nack(delay=delay)
        self._changes += 1

    def reject(self, name: Name) -> None:
        self.held.pop(name).reject()
        self._changes += 1

    def redrive(self, dead_letter_queue: str) -> None:
        """Send all dead letters back, under new numbers, if they are on disk."""
        if self.queues[dead_letter_queue].stats().journal_lag:
            return
        self._renumbered |= set(self._names_in(dead_letter_queue))
        self._changed()
        self.queues[dead_letter_queue].redrive()

    def came_back_unwritten(self, name: Name) -> bool:
        """Whether it was sent back, and its queue's journal is behind."""
        behind = any(queue.stats().journal_lag for queue in self.queues.values())
        return name in self._renumbered and behind

    def purge(self, queue: str) -> None:
        """Everything of the queue that is not leased is gone. Call it where none has moved in."""
        doomed = {
            each.name
            for each in self.sent.values()
            if each.queue == queue and each.name not in self.held
        } - self._dead
        self._settling |= doomed
        self._changed()
        self.queues[queue].purge()
        self._settled |= doomed
        self._changes += 1

    # --- the loss of the shared memory ----------------------------------------------------

    def lose_memory(self) -> None:
        """The queues of this host are gone, as by a reboot, with all leases."""
        self._blind = self.know()
        self.held.clear()
        for name, queue in self.queues.items():
            remove_semaphores(self.broker.namespace, queue.segment.queue_id)
            queue.close()
            Namespace.of(self.broker.namespace).remove_segment(name)

    def come_back(self) -> None:
        """Take over what was recovered. Raises AssertionError if it is not as promised."""
        assert self._blind is not None
        for name in self._options.keys() & self.queues.keys():
            # Of one of which nothing was ever written nothing is there; it is recreated.
            made = self.broker.ensure_queue(name, **self._options[name])
            if made.options.dead_letter is not None:
                made.dead_letter_queue()
        self.queues = {name: self.broker.queue(name) for name in self.queues}
        for queue in self.queues.values():
            queue.qsize()  # a look moves dead letters
        found = {name: in_memory(queue) for name, queue in self.queues.items()}
        wrong = complaints(replace(self._blind, deduped=frozenset()), self.sent, found)
        assert not wrong, f"after the loss of the memory: {'; '.join(wrong)}"
        for queue_name, one in found.items():
            for message in one.messages:
                name = name_of(message.body)
                if queue_name == self.sent[name].queue:
                    self._delivered[name] = message.deliveries
                    self._at_least[name] = min(self._at_least[name], message.deliveries)
        there = {name_of(each.body) for one in found.values() for each in one.messages}
        self._settling = self.sent.keys() - there
        self._settled -= there
        self._unconfirmed = {name: [] for name in self.queues}
        self._blind = None
        self._changed()

    # --- what is known ------------------------------------------------------------------

    def know(self) -> Expectation:
        """What is promised now."""
        if self._blind is not None:
            return self._blind
        synced = {name: queue.journal.synced for name, queue in self.queues.items()}
        waiting = sum(queue.stats().journal_waiting for queue in self.queues.values())
        if not waiting and not self._settled <= self._is_gone:
            self._is_gone |= self._settled
            self._changes += 1
        for queue, names in self._unconfirmed.items():
            while names and self.sent[names[0]].sequence <= synced[queue]:
                self._confirmed.add(names.pop(0))
                self._changes += 1
        if self._last[0] != self._changes:
            self._last = (self._changes, self._expectation())
        return self._last[1]

    def all_is_written(self) -> None:
        """Every journal has all that there is: what came back, and what died, stays so."""
        for name in self.sent:
            if name not in self.held:
                self._at_least[name] = self._delivered[name]
        dead_letter_queues = [
            name for name, queue in self.queues.items() if queue.options.dead_letter is None
        ]
        dead = {each for name in dead_letter_queues for each in self._names_in(name)}
        self._dead = dead - self._settling - self._renumbered
        self._changes += 1

    def _names_in(self, queue: str) -> list[Name]:
        return [name_of(bytes(message.body)) for message in self.queues[queue].peek(1000)]

    def _changed(self) -> None:
        self._changes += 1
        self.noted()

    def _expectation(self) -> Expectation:
        return Expectation(
            must=frozenset(self._confirmed - self._settling),
            gone=frozenset(self._is_gone),
            begun=frozenset(self.sent),
            deduped=frozenset(name for name in self._confirmed if self.sent[name].deduped),
            deliveries={name: (self._at_least[name], self._delivered[name]) for name in self.sent},
            dead=frozenset(self._dead - self._settling - self._renumbered),
            renumbered=frozenset(self._renumbered),
            # What came out and is settled since says nothing any more.
            transactions=frozenset(
                one for one in self._together if not self._settling.intersection(one[1])
            ),
        )

    def take_all(self) -> list[Name]:
        """Lease all visible messages of all queues."""
        taken = []
        for name in self.queues:
            while True:
                try:
                    taken.append(self.get(name))
                except shmq.Empty:
                    break
        return taken


def in_memory(queue: Any) -> Recovered:
    """What the queue holds, leases apart, in the order of its sequence numbers."""
    found, start = [], 0
    while start is not None:
        rows, start = queue.inspection.scan(start, 1000)
        for at, state, sequence, *_ in rows:
            if state in {READY, DELAYED}:
                message = queue.inspection.copy_at(at, sequence)
                found.append(
                    Found(
                        sequence,
                        bytes(message.body),
                        dict(message.headers),
                        message.delivery_count,
                        message.dead.reason if message.dead else None,
                    )
                )
    found.sort(key=lambda message: message.sequence)
    return Recovered(found, last_sequence=queue.last_sequence)
