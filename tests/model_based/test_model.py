"""Hypothesis drives the real queue and the model through the same operations.

``SHMQ_MODEL_EXAMPLES`` and ``SHMQ_MODEL_STEPS`` make the run longer (default: 120
examples of at most 40 steps).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import shmq
from shmq import Loan, Message, Queue, QueueOptions
from shmq.core import _core

from .model import SECOND, Item, ModelQueue, NoRoom, Place, Refused

EXAMPLES = int(os.environ.get("SHMQ_MODEL_EXAMPLES", "120"))
STEPS = int(os.environ.get("SHMQ_MODEL_STEPS", "40"))

#: Where the test's clock begins, in ns.
EPOCH = 1_000_000 * SECOND
#: Two clients, so that one can hold what the other wants.
CLIENTS = 2
NAME, DEAD = "q", "q.dead"

SPANS = st.sampled_from([0.125, 0.5, 1.0, 2.0, 3.5])
WAITS = st.one_of(st.none(), st.just(0.0), SPANS)
GROUPS = st.sampled_from([None, None, "a", "b"])
SIZES = st.sampled_from([8, 8, 100, 5000])
CLIENT = st.integers(0, CLIENTS - 1)
PICK = st.integers(0, 1000)
FEW = st.integers(1, 4)


def option_sets() -> st.SearchStrategy[dict[str, Any]]:
    """Options of small queues whose limits are soon met."""
    return st.fixed_dictionaries(
        {
            "capacity": st.integers(1, 7),
            "priorities": st.integers(1, 3),
            "visibility_timeout": st.sampled_from([1.0, 2.5]),
            "max_deliveries": st.sampled_from([1, 2, 3, None]),
            "dead_letter": st.sampled_from([DEAD, DEAD, None]),
            "ttl": st.sampled_from([None, None, 3.0]),
            "on_expired": st.sampled_from(["dead-letter", "drop"]),
            "retry_delay": st.sampled_from([0.0, 1.0]),
            "retry_delay_max": st.sampled_from([0.5, 4.0]),
            "dedupe_window": st.sampled_from([0.0, 2.0]),
            "overflow": st.sampled_from(["reject", "block", "drop-oldest"]),
        }
    )


def ns(seconds: float | None) -> int:
    return round((seconds or 0) * SECOND)


@dataclasses.dataclass
class Side:
    """A queue as it is and as it should be."""

    real: list[Queue]
    model: ModelQueue


@dataclasses.dataclass(eq=False)
class Delivery:
    """A message that was handed out: by the real queue, and by the model."""

    side: Side
    client: int
    message: Message
    item: Item
    lease: int


@dataclasses.dataclass(eq=False)
class Held:
    """A view that keeps a message's bytes."""

    side: Side
    item: Item
    view: memoryview


class QueueMachine(RuleBasedStateMachine):
    """Every rule does the same to both; ``agree`` compares them after each."""

    def __init__(self) -> None:
        super().__init__()
        self.now = EPOCH
        self.bodies = 0
        self.deliveries: list[Delivery] = []
        self.loans: list[tuple[Loan, Item]] = []
        self.views: list[Held] = []
        self.sides: list[Side] = []

    # ---- set-up ----

    @initialize(options=option_sets(), graves=st.sampled_from([2, 50, 50]))
    def make(self, options: dict[str, Any], graves: int) -> None:
        _core.set_clock(self.now)
        namespace = f"model-{uuid.uuid4().hex[:12]}"
        self.brokers = [shmq.connect(namespace) for _ in range(CLIENTS)]
        dead = QueueOptions.for_queue(NAME, {**options, "capacity": graves}).for_dead_letters()
        self.brokers[0].create_queue(DEAD, **dead.as_dict())
        self.options = options
        self.brokers[0].create_queue(NAME, **options)
        graveyard = Side(self._open(DEAD), ModelQueue(dead, None))
        main = QueueOptions.for_queue(NAME, options)
        model = ModelQueue(main, graveyard.model if main.dead_letter else None)
        self.sides = [Side(self._open(NAME), model), graveyard]
        for side in self.sides:
            side.model.tick(self.now)

    def _open(self, name: str) -> list[Queue]:
        return [broker.queue(name) for broker in self.brokers]

    def teardown(self) -> None:
        for held in self.views:
            held.view.release()
        for broker in self.brokers:
            broker.close()
        with shmq.connect(self.brokers[0].namespace) as broker:
            for line in broker.list_queues():
                broker.delete_queue(line.name)
        _core.set_clock(None)

    @property
    def main(self) -> Side:
        return self.sides[0]

    def _side(self, dead: bool) -> Side:
        return self.sides[1] if dead else self.sides[0]

    def _body(self, size: int) -> bytes:
        """A body that no other message has."""
        self.bodies += 1
        return b"%d." % self.bodies + bytes(size)

    # ---- put ----

    @rule(
        client=CLIENT,
        size=SIZES,
        priority=st.one_of(st.none(), st.integers(0, 2)),
        group=GROUPS,
        delay=WAITS,
        ttl=st.one_of(st.none(), st.none(), SPANS),
        dedupe_id=st.sampled_from([None, None, "x", "y"]),
        headers=st.sampled_from([None, {"h": 1}]),
    )
    def put(
        self,
        client: int,
        size: int,
        priority: int | None,
        group: str | None,
        delay: float | None,
        ttl: float | None,
        dedupe_id: str | None,
        headers: dict[str, Any] | None,
    ) -> None:
        item = self._item(size, priority, group, headers)
        properties: dict[str, Any] = {
            "group": group,
            "delay": delay,
            "ttl": ttl,
            "headers": headers,
        }
        properties["dedupe_id"] = dedupe_id
        properties["priority"] = None if priority is None else item.priority
        queue = self.main.real[client]
        try:
            kept, duplicate = self.main.model.put(
                item, ns(delay), None if ttl is None else ns(ttl), dedupe_id
            )
        except NoRoom:
            with pytest.raises(shmq.Full):
                queue.put(item.body, block=False, **properties)
            return
        put = queue.put(item.body, block=False, **properties)
        assert put.duplicate == duplicate
        self._learn(self.main, kept, put.sequence)

    def _item(
        self,
        size: int,
        priority: int | None,
        group: str | None = None,
        headers: dict[str, Any] | None = None,
    ) -> Item:
        priorities = self.main.model.options.priorities
        given = priorities // 2 if priority is None else priority % priorities
        return Item(self._body(size), given, group, headers or {})

    @staticmethod
    def _learn(side: Side, item: Item, sequence: int) -> None:
        """The model does not choose sequence numbers, but they must rise with the order."""
        assert item.sequence in (None, sequence)
        item.sequence = sequence
        known = sorted(
            (other.order, other.sequence)
            for other in side.model.items
            if other.sequence is not None and other.place is not Place.LOANED
        )
        numbers = [number for _, number in known]
        assert numbers == sorted(set(numbers))

    @rule(client=CLIENT, count=st.integers(0, 9), group=GROUPS, delay=WAITS, ttl=WAITS)
    def put_many(
        self, client: int, count: int, group: str | None, delay: float | None, ttl: float | None
    ) -> None:
        items = [self._item(8, None, group) for _ in range(count)]
        ttl = ttl or None
        accepted = 0
        for item in items:
            try:
                self.main.model.put(item, ns(delay), None if ttl is None else ns(ttl))
            except NoRoom:
                break
            accepted += 1
        bodies = [item.body for item in items]
        queue = self.main.real[client]
        assert queue.put_many(bodies, False, group=group, delay=delay, ttl=ttl) == accepted

    # ---- loan ----

    @rule(client=CLIENT, size=SIZES, group=GROUPS)
    def lend(self, client: int, size: int, group: str | None) -> None:
        item = self._item(size, None, group)
        queue = self.main.real[client]
        try:
            self.main.model.lend(item)
        except NoRoom:
            with pytest.raises(shmq.Full):
                queue.loan(len(item.body), block=False, group=group)
            return
        loan = queue.loan(len(item.body), block=False, group=group)
        loan.view[:] = item.body
        self.loans.append((loan, item))

    @precondition(lambda self: self.loans)
    @rule(pick=PICK)
    def commit(self, pick: int) -> None:
        loan, item = self.loans.pop(pick % len(self.loans))
        self.main.model.commit(item)
        self._learn(self.main, item, loan.commit().sequence)

    @precondition(lambda self: self.loans)
    @rule(pick=PICK)
    def drop(self, pick: int) -> None:
        loan, item = self.loans.pop(pick % len(self.loans))
        self.main.model.items.remove(item)
        loan.drop()

    # ---- get ----

    @rule(dead=st.booleans(), client=CLIENT)
    def get(self, dead: bool, client: int) -> None:
        side = self._side(dead)
        if side.model.deliverable():
            self._expect(side, client, [side.real[client].get(block=False)])
            return
        with pytest.raises(shmq.Empty):
            side.real[client].get(block=False)

    @rule(dead=st.booleans(), client=CLIENT, count=FEW)
    def get_many(self, dead: bool, client: int, count: int) -> None:
        side = self._side(dead)
        expected = min(count, len(side.model.deliverable()))
        messages = side.real[client].get_many(count, block=False)
        assert len(messages) == expected
        self._expect(side, client, messages)

    def _expect(self, side: Side, client: int, messages: Sequence[Message]) -> list[Delivery]:
        """The real queue handed these out: so does the model, and they are the same."""
        found = []
        for message in messages:
            item = side.model.get(side.real[client])
            assert item is not None
            self._same(side, message, item)
            assert message.delivery_count == item.deliveries
            found.append(Delivery(side, client, message, item, item.lease))
        self.deliveries += found
        return found

    def _same(self, side: Side, message: Message, item: Item) -> None:
        assert message.body == item.body
        assert (message.priority, message.group) == (item.priority, item.group)
        assert dict(message.headers) == item.headers
        self._learn(side, item, message.sequence)
        if item.death is None:
            assert message.dead is None
        else:
            assert message.dead is not None
            assert (message.dead.reason, message.dead.queue) == (item.death.reason, NAME)
            assert message.dead.deliveries == item.death.deliveries

    @rule(client=CLIENT, dead=st.booleans(), prefetch=FEW, take=st.integers(0, 5), acks=PICK)
    def consume(self, client: int, dead: bool, prefetch: int, take: int, acks: int) -> None:
        """Take some, leave the rest of what was leased ahead, ack some of those taken."""
        side = self._side(dead)
        taken: list[Delivery] = []
        with side.real[client].consume(prefetch, block=False) as messages:
            for _ in range(take):
                found = list(next(([m] for m in messages), []))
                assert bool(found) == bool(side.model.deliverable())
                taken += self._expect(side, client, found)
            for number, delivery in enumerate(taken):
                if acks >> number & 1:
                    delivery.message.ack()
                    side.model.ack(delivery.item, delivery.lease)

    # ---- settle ----

    @precondition(lambda self: self.deliveries)
    @rule(pick=PICK, by=st.one_of(st.none(), CLIENT))
    def ack(self, pick: int, by: int | None) -> None:
        delivery = self._pick(pick)
        if by is not None:
            self._ack_many([delivery], by)
            return
        with self._as_the_model(delivery, "ack"):
            delivery.message.ack()

    @precondition(lambda self: self.deliveries)
    @rule(picks=st.lists(PICK, max_size=4), by=CLIENT)
    def ack_many(self, picks: list[int], by: int) -> None:
        chosen = [self._pick(pick) for pick in picks]
        self._ack_many([one for one in chosen if one.side is self.main], by)

    def _ack_many(self, deliveries: list[Delivery], by: int) -> None:
        refused = []
        for delivery in deliveries:
            try:
                delivery.side.model.ack(delivery.item, delivery.lease)
            except Refused:
                refused.append(delivery.message.receipt)
        for side in self.sides:
            receipts = [one.message.receipt for one in deliveries if one.side is side]
            expected = [receipt for receipt in refused if receipt in receipts]
            assert side.real[by].ack_many(receipts) == expected

    @precondition(lambda self: self.deliveries)
    @rule(pick=PICK, delay=st.one_of(st.just(0.0), SPANS), by=st.one_of(st.none(), CLIENT))
    def nack(self, pick: int, delay: float, by: int | None) -> None:
        delivery = self._pick(pick)
        with self._as_the_model(delivery, "nack", ns(delay)):
            if by is None:
                delivery.message.nack(delay)
            else:
                delivery.side.real[by].nack(delivery.message.receipt, delay)

    @precondition(lambda self: self.deliveries)
    @rule(pick=PICK)
    def nack_by_backoff(self, pick: int) -> None:
        """It stays away for the least of the retry delay and is back after the most."""
        delivery = self._pick(pick)
        least, most = delivery.side.model.backoff(delivery.item)
        with self._as_the_model(delivery, "nack", most):
            delivery.message.nack()
        if least:
            self._advance(least - 1)
            self.agree()
            self._advance(most - least + 1)

    @precondition(lambda self: self.deliveries)
    @rule(pick=PICK, by=st.one_of(st.none(), CLIENT))
    def reject(self, pick: int, by: int | None) -> None:
        delivery = self._pick(pick)
        with self._as_the_model(delivery, "reject"):
            if by is None:
                delivery.message.reject()
            else:
                delivery.side.real[by].reject(delivery.message.receipt)

    @precondition(lambda self: self.deliveries)
    @rule(pick=PICK, span=st.one_of(st.just(0.0), SPANS), by=st.one_of(st.none(), CLIENT))
    def extend(self, pick: int, span: float, by: int | None) -> None:
        delivery = self._pick(pick)
        with self._as_the_model(delivery, "extend", ns(span)):
            if by is None:
                delivery.message.extend(span)
            else:
                delivery.side.real[by].extend(delivery.message.receipt, span)

    def _pick(self, pick: int) -> Delivery:
        """Mostly one that is still held; also those that were settled long ago."""
        live = [one for one in self.deliveries if one.item.lease == one.lease]
        live = [one for one in live if one.item.place is Place.LEASED]
        chosen = live if live and pick % 4 else self.deliveries
        return chosen[pick // 4 % len(chosen)]

    def _as_the_model(self, delivery: Delivery, what: str, *arguments: int) -> Any:
        """A context in which LeaseExpired must come if the model refuses, and only then."""
        settle = getattr(delivery.side.model, what)
        try:
            settle(delivery.item, delivery.lease, *arguments)
        except Refused:
            return pytest.raises(shmq.LeaseExpired)
        return contextlib.nullcontext()

    # ---- views ----

    @precondition(lambda self: self.deliveries)
    @rule(pick=PICK)
    def hold_view(self, pick: int) -> None:
        delivery = self._pick(pick)
        item, side = delivery.item, delivery.side
        if item.place is not Place.LEASED or item.lease != delivery.lease:
            return
        view = delivery.message.view
        assert view == item.body
        side.model.pin(item)
        self.views.append(Held(side, item, view))

    @precondition(lambda self: self.views)
    @rule(pick=PICK)
    def release_view(self, pick: int) -> None:
        held = self.views.pop(pick % len(self.views))
        assert held.view == held.item.body
        held.view.release()
        held.side.model.unpin(held.item)

    # ---- time, and the whole queue ----

    @rule(span=SPANS)
    def advance(self, span: float) -> None:
        self._advance(ns(span))

    def _advance(self, duration: int) -> None:
        self.now += duration
        _core.set_clock(self.now)
        for side in self.sides:
            side.model.tick(self.now)

    @rule(dead=st.booleans(), client=CLIENT)
    def purge(self, dead: bool, client: int) -> None:
        side = self._side(dead)
        assert side.real[client].purge() == side.model.purge()

    @precondition(lambda self: self.main.model.dead_letters)
    @rule(dead=st.booleans(), client=CLIENT, limit=st.one_of(st.none(), st.integers(0, 3)))
    def redrive(self, dead: bool, client: int, limit: int | None) -> None:
        moved = self._side(dead).real[client].redrive(limit)
        assert moved == self.main.model.redrive(limit)

    @rule(dead=st.booleans(), client=CLIENT)
    def close_and_attach_again(self, dead: bool, client: int) -> None:
        side = self._side(dead)
        queue = side.real[client]
        side.model.close(queue)
        queue.close()
        side.real[client] = self.brokers[client].queue(queue.name)

    # ---- the comparison ----

    @invariant()
    def agree(self) -> None:
        for side in self.sides:
            check: Any = side.real[0]  # the local queue has more than the contract
            check.check()
        self._bury()
        for side in self.sides:
            self._compare(side)

    def _bury(self) -> None:
        """Let the model's dying go where the real ones went, in the real order."""
        main, graveyard = self.sides
        main.real[0].stats()
        known = {item.body for item in graveyard.model.at(Place.VISIBLE)}
        peeked = graveyard.real[0].peek(1000)
        arrived = [message for message in peeked if message.body not in known]
        arrived.sort(key=lambda message: message.sequence)
        assert len(arrived) == main.model.to_bury()
        main.model.bury(message.body for message in arrived)

    def _compare(self, side: Side) -> None:
        model, queue = side.model, side.real[1]
        stats = queue.stats()
        assert queue.qsize() == stats.depth == len(model.at(Place.VISIBLE))
        assert stats.delayed == len(model.at(Place.DELAYED))
        assert stats.in_flight == len(model.at(Place.LEASED))
        assert stats.dying == len(model.at(Place.DYING))
        assert queue.full() == (model.room() < 1)
        totals = ("put", "acked", "nacked", "expired", "redelivered", "deduped", "dropped")
        for name in (*totals, "dead_lettered"):
            assert (name, getattr(stats, name)) == (name, model.totals[name])
        peeked = queue.peek(1000)
        served = model.deliverable()
        assert [message.body for message in peeked] == [item.body for item in served]
        for message, item in zip(peeked, served, strict=True):
            self._same(side, message, item)
        for held in self.views:
            assert held.view == held.item.body


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
