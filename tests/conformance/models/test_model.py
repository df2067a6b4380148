"""Hypothesis drives the real queue and the model through the same operations.

Time is the model's: the core's clock stands still until a rule moves it. The environment
makes the run longer: ``SHMQ_MODEL_EXAMPLES`` (default 50) of at most
``SHMQ_MODEL_STEPS`` (default 50) steps each.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import time
from contextlib import AbstractContextManager
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import shmq
from shmq import Batch, Bodies, Broker, Consumer, Loan, Message, Packed, Queue, QueueOptions
from shmq.native import _core

from .model import SECOND, Item, ModelConsumer, ModelQueue, NoRoom, Place, Refused

EXAMPLES = int(os.environ.get("SHMQ_MODEL_EXAMPLES", "50"))
STEPS = int(os.environ.get("SHMQ_MODEL_STEPS", "50"))

#: Two clients, so that one can hold what the other wants.
CLIENTS = 2
NAME, DEAD = "q", "q.dead"
#: Where the test's clock begins, in ns.
EPOCH = 1_000_000 * SECOND
#: Longer than any run of the test, in seconds.
YEAR = 365 * 24 * 3600.0
#: How often dead letters are looked for.
PATIENCE = 100
TOTALS = ("put", "acked", "nacked", "expired", "redelivered", "dead_lettered", "dropped", "deduped")

SPANS = st.sampled_from([0.125, 0.5, 1.0, 2.0, 3.5])
WAITS = st.one_of(st.none(), st.just(0.0), SPANS)
TTLS = st.sampled_from([None, None, None, None, 0.5, 2.0])
GROUPS = st.sampled_from([None, "a", "a", "b"])
IDS = st.sampled_from([None, None, "x", "y"])
ITEMS = st.builds(
    Item,
    st.sampled_from([b"", bytes(100), bytes(5000)]),
    st.integers(0, 15),
    GROUPS,
    st.sampled_from([{}, {"h": 1}]),
)
CLIENT = st.integers(0, CLIENTS - 1)
#: Mostly the queue itself, sometimes its dead letters.
WHERE = st.sampled_from([False, False, False, True])
#: Who settles: the message itself, or a client by its receipt.
BY = st.one_of(st.none(), CLIENT)
FEW = st.integers(1, 4)
PICK = st.integers(0, 1000)

OPTIONS = st.fixed_dictionaries(
    {
        "capacity": st.sampled_from([8, 1, 2, 4, 8, 8]),
        "priorities": st.integers(1, 3),
        "visibility_timeout": st.sampled_from([1.0, 2.5]),
        "max_deliveries": st.sampled_from([1, 2, 3, None]),
        "dead_letter": st.sampled_from([DEAD, DEAD, None]),
        "ttl": st.sampled_from([None, None, None, 3.0]),
        "on_expired": st.sampled_from(["dead-letter", "drop"]),
        "retry_delay": st.sampled_from([1.0, 1.0, 0.0]),
        "retry_delay_max": st.sampled_from([4.0, 4.0, 0.5]),
        "dedupe_window": st.sampled_from([0.0, 2.0]),
        "overflow": st.sampled_from(["reject", "block", "drop-oldest"]),
    }
)


def _properties(item: Item) -> dict[str, Any]:
    return {"headers": item.headers, "group": item.group, "priority": item.priority}


def ns(seconds: float | None) -> int:
    return round((seconds or 0) * SECOND)


@dataclasses.dataclass(eq=False)
class Side:
    """A queue as it is, by each client's handle, and as it should be."""

    real: list[Queue]
    model: ModelQueue


@dataclasses.dataclass(eq=False)
class Consuming:
    """A consumer as it is and as it should be."""

    side: Side
    client: int
    real: Consumer | Bodies
    model: ModelConsumer
    #: The item whose body is in hand, and its lease, in a loop over bodies.
    held: tuple[Item, int] | None = None


@dataclasses.dataclass(eq=False)
class Delivery:
    """A message that was handed out by the real queue, and by the model."""

    side: Side
    queue: Queue
    message: Message
    item: Item
    lease: int
    consuming: Consuming | None
    #: Whether the message has settled itself; its acks may wait to be carried out.
    settled: bool = False


@dataclasses.dataclass(eq=False)
class Lent:
    """A loan; ``item`` is None if it is of a message that was put before."""

    client: int
    loan: Loan
    item: Item | None
    dedupe_id: str | None


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
        self.namespace = f"model-{secrets.token_hex(6)}"
        self.now = EPOCH
        self.bodies = 0
        self.brokers: list[Broker] = []
        self.sides: list[Side] = []
        self.deliveries: list[Delivery] = []
        self.loans: list[Lent] = []
        self.views: list[Held] = []
        self.consumers: list[Consuming] = []

    # ---- set-up ----

    @initialize(options=OPTIONS, dead_letter_capacity=st.sampled_from([2, 50, 50]))
    def make(self, options: dict[str, Any], dead_letter_capacity: int) -> None:
        _core.set_clock(self.now)
        self.brokers += [shmq.connect(self.namespace) for _ in range(CLIENTS)]
        self.options = options
        wanted = QueueOptions.for_queue(NAME, options)
        dead = dataclasses.replace(wanted.for_dead_letters(), capacity=dead_letter_capacity)
        self.brokers[0].create_queue(DEAD, **dead.as_dict())
        self.brokers[0].create_queue(NAME, **options)
        dead_letter_queue = Side(self._open(DEAD), ModelQueue(dead, None))
        model = ModelQueue(wanted, dead_letter_queue.model if wanted.dead_letter else None)
        self.sides = [Side(self._open(NAME), model), dead_letter_queue]
        self._advance(0)

    def _open(self, name: str) -> list[Queue]:
        return [broker.queue(name) for broker in self.brokers]

    def teardown(self) -> None:
        for held in self.views:
            held.view.release()
        # Descriptors are freed with the last reference, and a failure keeps this object.
        for mine in (self.views, self.loans, self.deliveries, self.consumers, self.sides):
            mine.clear()
        for broker in self.brokers:
            broker.close()
        with shmq.connect(self.namespace) as last:
            for line in last.list_queues():
                last.delete_queue(line.name)
        _core.set_clock(None)

    @property
    def main(self) -> Side:
        return self.sides[0]

    def _side(self, dead: bool) -> Side:
        return self.sides[1] if dead else self.sides[0]

    def _own(self, item: Item) -> Item:
        """``item`` as a message of its own, with a body that no other has."""
        self.bodies += 1
        body = b"%d." % self.bodies + item.body
        priority = item.priority % self.main.model.options.priorities
        return dataclasses.replace(item, body=body, priority=priority)

    # ---- put ----

    @rule(
        client=CLIENT,
        item=ITEMS,
        delay=st.one_of(WAITS, st.sampled_from([-YEAR, YEAR])),
        ttl=TTLS,
        dedupe_id=IDS,
    )
    def put(
        self, client: int, item: Item, delay: float | None, ttl: float | None, dedupe_id: str | None
    ) -> None:
        """Delays of a year are given as a time of day, and never end within the test."""
        item = self._own(item)
        properties = {**_properties(item), "ttl": ttl, "dedupe_id": dedupe_id}
        if delay in (-YEAR, YEAR):
            properties["deliver_at"] = time.time() + delay
        else:
            properties["delay"] = delay
        queue, model = self.main.real[client], self.main.model
        if dedupe_id is not None and not model.options.dedupe_window:
            with pytest.raises(shmq.InvalidOption, match="dedupe_window"):
                queue.put(item.body, block=False, **properties)
            return
        try:
            kept, duplicate = model.put(item, max(0, ns(delay)), ns(ttl) or None, dedupe_id)
        except NoRoom:
            with pytest.raises(shmq.Full):
                queue.put(item.body, block=False, **properties)
            return
        put = queue.put(item.body, block=False, **properties)
        assert put.duplicate == duplicate
        self._learn(self.main, kept, put.sequence)

    @staticmethod
    def _learn(side: Side, item: Item, sequence: int) -> None:
        """The model does not choose sequence numbers, but they must rise with the order."""
        assert item.sequence in (None, sequence)
        item.sequence = sequence
        known = sorted((one.order, one.sequence) for one in side.model.items if one.sequence)
        numbers = [number for _, number in known]
        assert numbers == sorted(set(numbers))

    @rule(client=CLIENT, count=st.integers(0, 5), group=GROUPS, delay=WAITS, ttl=TTLS)
    def put_many(
        self, client: int, count: int, group: str | None, delay: float | None, ttl: float | None
    ) -> None:
        plain = Item(b"", self.main.model.options.priorities // 2, group)
        items = [self._own(plain) for _ in range(count)]
        accepted = 0
        with contextlib.suppress(NoRoom):
            for item in items:
                self.main.model.put(item, ns(delay), ns(ttl) or None)
                accepted += 1
        bodies = [item.body for item in items]
        queue = self.main.real[client]
        assert queue.put_many(bodies, False, group=group, delay=delay, ttl=ttl) == accepted

    # ---- loan ----

    @precondition(lambda self: len(self.loans) < 2)
    @rule(client=CLIENT, item=ITEMS, dedupe_id=IDS)
    def lend(self, client: int, item: Item, dedupe_id: str | None) -> None:
        item = self._own(item)
        queue = self.main.real[client]
        properties = {**_properties(item), "block": False, "dedupe_id": dedupe_id}
        if dedupe_id is not None and not self.main.model.options.dedupe_window:
            with pytest.raises(shmq.InvalidOption, match="dedupe_window"):
                queue.loan(len(item.body), **properties)
            return
        try:
            fresh = self.main.model.lend(item, dedupe_id)
        except NoRoom:
            with pytest.raises(shmq.Full):
                queue.loan(len(item.body), **properties)
            return
        loan = queue.loan(len(item.body), **properties)
        loan.view[:] = item.body
        self.loans.append(Lent(client, loan, item if fresh else None, dedupe_id))

    @precondition(lambda self: self.loans)
    @rule(pick=PICK, drop=WHERE)
    def end_loan(self, pick: int, drop: bool) -> None:
        lent = self.loans.pop(pick % len(self.loans))
        if drop:
            lent.loan.drop()
            self._dropped(lent)
        else:
            self._commit(lent)

    def _commit(self, lent: Lent) -> None:
        put = lent.loan.commit()
        if lent.item is None:
            assert put.duplicate
            return
        kept, duplicate = self.main.model.commit(lent.item, lent.dedupe_id)
        assert put.duplicate == duplicate
        self._learn(self.main, kept, put.sequence)

    def _dropped(self, lent: Lent) -> None:
        if lent.item is not None:
            self.main.model.items.remove(lent.item)

    # ---- get ----

    @rule(dead=WHERE, client=CLIENT)
    def get(self, dead: bool, client: int) -> None:
        side = self._side(dead)
        item = side.model.get(side.real[client])
        if item is not None:
            self._delivered(side, client, side.real[client].get(block=False), item)
            return
        with pytest.raises(shmq.Empty):
            side.real[client].get(block=False)

    @rule(dead=WHERE, client=CLIENT, count=FEW)
    def get_many(self, dead: bool, client: int, count: int) -> None:
        side = self._side(dead)
        items = self._lease(side, client, count)
        messages = side.real[client].get_many(count, block=False)
        for message, item in zip(messages, items, strict=True):
            self._delivered(side, client, message, item)

    @rule(dead=WHERE, client=CLIENT, count=FEW, acked=st.booleans(), packed=st.booleans())
    def get_batch(self, dead: bool, client: int, count: int, acked: bool, packed: bool) -> None:
        """A batch that is settled at once; every message is a packed batch of one record."""
        side = self._side(dead)
        queue = side.real[client]
        items = self._lease(side, client, count)
        get = queue.get_packed if packed else queue.get_batch
        batch: Batch | Packed = get(count, block=False)
        assert list(batch) == [item.body for item in items]
        assert len(batch.receipts) == len(items)
        assert (batch.ack() if acked else batch.nack(delay=0)) == []
        for item in items:
            if acked:
                side.model.ack(item, item.lease)
            else:
                side.model.nack(item, item.lease, 0)

    @staticmethod
    def _lease(side: Side, client: int, most: int) -> list[Item]:
        """Let the model lease as many as there are, up to ``most``."""
        leased = (side.model.get(side.real[client]) for _ in range(most))
        return [item for item in leased if item is not None]

    def _delivered(
        self,
        side: Side,
        client: int,
        message: Message,
        item: Item,
        consuming: Consuming | None = None,
    ) -> Delivery:
        self._same(side, message, item)
        assert message.delivery_count == item.deliveries
        queue = side.real[client]
        delivery = Delivery(side, queue, message, item, item.lease, consuming)
        self.deliveries.append(delivery)
        return delivery

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

    # ---- consume ----

    @precondition(lambda self: len(self.consumers) < CLIENTS)
    @rule(dead=WHERE, client=CLIENT, prefetch=FEW, bodies=st.booleans())
    def consume(self, dead: bool, client: int, prefetch: int, bodies: bool) -> None:
        side = self._side(dead)
        queue = side.real[client]
        model = ModelConsumer(side.model, queue, prefetch)
        real = (queue.bodies if bodies else queue.consume)(prefetch, block=False)
        self.consumers.append(Consuming(side, client, real, model))

    @precondition(lambda self: self.consumers)
    @rule(pick=PICK, count=FEW, ack=st.booleans())
    def iterate(self, pick: int, count: int, ack: bool) -> None:
        one = self.consumers[pick % len(self.consumers)]
        for _ in range(count):
            if isinstance(one.real, Bodies):
                if not self._step(one, one.real):
                    return
                continue
            item = one.model.next()
            message = next(one.real, None)
            assert (message is None) == (item is None)
            if message is None or item is None:
                self.consumers.remove(one)
                return
            delivery = self._delivered(one.side, one.client, message, item, one)
            if ack:
                self._settle(delivery, None, "ack")

    def _step(self, one: Consuming, bodies: Bodies) -> bool:
        """One step of a loop over bodies; whether the loop goes on."""
        held, one.held = one.held, None
        if held is not None:
            try:
                one.model.ack(*held)
            except Refused:
                with pytest.raises(shmq.LeaseExpired):
                    next(bodies)
                return True
        item = one.model.next()
        if item is None:
            assert list(bodies) == []
            self.consumers.remove(one)
            return False
        assert next(bodies) == item.body
        one.held = item, item.lease
        return True

    @precondition(lambda self: self.consumers)
    @rule(pick=PICK, failed=st.booleans())
    def leave(self, pick: int, failed: bool) -> None:
        """The end of the block of a loop over bodies; an exception returns the one in hand."""
        one = self.consumers[pick % len(self.consumers)]
        if not isinstance(one.real, Bodies) or failed:
            self._stop(one)
            return
        held, one.held = one.held, None
        outcome: AbstractContextManager[object] = contextlib.nullcontext()
        if held is not None:
            try:
                one.model.ack(*held)
            except Refused:
                outcome = pytest.raises(shmq.LeaseExpired)
        with outcome:
            one.real.__exit__(None, None, None)
        one.model.close()
        self.consumers.remove(one)

    @precondition(lambda self: self.consumers)
    @rule(pick=PICK, flush=WHERE)
    def stop(self, pick: int, flush: bool) -> None:
        one = self.consumers[pick % len(self.consumers)]
        if flush:
            one.real.flush()
            one.model.flush()
        else:
            self._stop(one)

    def _stop(self, one: Consuming) -> None:
        """Close it. The body in hand comes back by the queue's back-off, as `nack_by_backoff`."""
        least = most = 0
        one.real.close()
        if one.held is not None and one.side.model.holds(*one.held):
            least, most = one.side.model.backoff(one.held[0])
            one.side.model.nack(*one.held, most)
        one.model.close()
        self.consumers.remove(one)
        self._move_dying()
        if least:
            self._advance(least - 1)
            self.agree()
            self._advance(most - least + 1)

    # ---- settle ----

    @precondition(lambda self: self.deliveries)
    @rule(pick=PICK)
    def ack(self, pick: int) -> None:
        delivery = self._pick(pick)
        if delivery.queue in delivery.side.real:
            self._settle(delivery, None, "ack")

    @rule(dead=WHERE, picks=st.lists(PICK, max_size=4), client=CLIENT)
    def ack_many(self, dead: bool, picks: list[int], client: int) -> None:
        """By receipt, from a client that need not be the one that got them."""
        side = self._side(dead)
        chosen = [self._pick(pick) for pick in picks if self.deliveries]
        chosen = [delivery for delivery in chosen if delivery.side is side]
        refused = []
        for delivery in chosen:
            try:
                side.model.ack(delivery.item, delivery.lease)
            except Refused:
                refused.append(delivery.message.receipt)
        receipts = [delivery.message.receipt for delivery in chosen]
        assert side.real[client].ack_many(receipts) == refused

    @precondition(lambda self: self.held())
    @rule(pick=PICK, delay=st.one_of(st.just(0.0), SPANS), by=BY)
    def nack(self, pick: int, delay: float, by: int | None) -> None:
        delivery = self._pick(pick)
        self._settle(delivery, by, "nack", delay)

    @precondition(lambda self: self.held())
    @rule(pick=PICK, by=BY)
    def nack_by_backoff(self, pick: int, by: int | None) -> None:
        """It stays away for the least of the retry delay, and is back after the most."""
        delivery = self._pick(pick)
        least, most = delivery.side.model.backoff(delivery.item)
        self._settle(delivery, by, "nack", expected=most / SECOND)
        self._move_dying()
        if least:
            self._advance(least - 1)
            self.agree()
            self._advance(most - least + 1)

    @precondition(lambda self: self.held())
    @rule(pick=PICK, by=BY)
    def reject(self, pick: int, by: int | None) -> None:
        delivery = self._pick(pick)
        self._settle(delivery, by, "reject")

    @precondition(lambda self: self.held())
    @rule(pick=PICK, span=st.one_of(st.just(0.0), SPANS), by=BY)
    def extend(self, pick: int, span: float, by: int | None) -> None:
        delivery = self._pick(pick)
        self._settle(delivery, by, "extend", span)

    def held(self) -> list[Delivery]:
        """Those that are not settled and have not run out."""
        return [one for one in self.deliveries if self._is_held(one)]

    def _pick(self, pick: int) -> Delivery:
        """Mostly one that is still held; sometimes one that was settled long ago."""
        chosen = self.deliveries if pick % 8 == 7 else self.held() or self.deliveries
        return chosen[pick // 8 % len(chosen)]

    @staticmethod
    def _is_held(delivery: Delivery) -> bool:
        return delivery.side.model.holds(delivery.item, delivery.lease)

    def _settle(
        self,
        delivery: Delivery,
        by: int | None,
        what: str,
        *seconds: float,
        expected: float | None = None,
    ) -> None:
        """By the message itself, or by its receipt if a client is named or its own is gone.

        ``expected`` is what the model takes the seconds to be.
        """
        itself = by is None and delivery.queue in delivery.side.real
        modelled = seconds if expected is None else (expected,)
        outcome: AbstractContextManager[object] = contextlib.nullcontext()
        try:
            self._settle_in_model(delivery, itself, what, *map(ns, modelled))
        except Refused:
            outcome = pytest.raises(shmq.LeaseExpired)
        with outcome:
            if itself:
                getattr(delivery.message, what)(*seconds)
            else:
                queue = delivery.side.real[by or 0]
                getattr(queue, what)(delivery.message.receipt, *seconds)

    @staticmethod
    def _settle_in_model(delivery: Delivery, itself: bool, what: str, *duration: int) -> None:
        if itself and delivery.settled:
            raise Refused
        if what == "ack" and delivery.consuming is not None:
            delivery.consuming.model.ack(delivery.item, delivery.lease)
        else:
            getattr(delivery.side.model, what)(delivery.item, delivery.lease, *duration)
        delivery.settled = delivery.settled or (itself and what != "extend")

    # ---- views ----

    @precondition(lambda self: self.held())
    @rule(pick=PICK)
    def hold_view(self, pick: int) -> None:
        delivery = self._pick(pick)
        item, side = delivery.item, delivery.side
        if delivery.settled or not self._is_held(delivery) or delivery.queue not in side.real:
            return
        view = delivery.message.view
        assert view == item.body
        if isinstance(view.obj, bytes):
            assert item.views, "a copy, though no other client has a view"
            return
        side.model.pin(item)
        self.views.append(Held(side, item, view))

    @precondition(lambda self: self.views)
    @rule(pick=PICK)
    def release_view(self, pick: int) -> None:
        held = self.views.pop(pick % len(self.views))
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

    @rule(
        what=st.sampled_from(["redrive", "redrive", "close", "close", "purge", "delete"]),
        dead=st.booleans(),
        client=CLIENT,
        limit=st.one_of(st.none(), FEW),
    )
    def now_and_then(self, what: str, dead: bool, client: int, limit: int | None) -> None:
        """One rule, so that what empties queues does not come as often as what fills them."""
        if what == "purge":
            side = self._side(dead)
            assert side.real[client].purge() == side.model.purge()
        elif what == "close":
            self._close_and_attach_again(self._side(dead), client)
        elif what == "delete":
            self._delete_and_make_anew(client)
        elif self.main.model.dead_letters and not self.main.model.at(Place.DYING):
            self._redrive(self._side(dead).real[client], limit)

    def _redrive(self, queue: Queue, limit: int | None) -> None:
        """Not while messages wait to die: how many of them move meanwhile is left open."""
        try:
            moved = self.main.model.redrive(limit)
        except NoRoom:
            with pytest.raises(shmq.Full):
                queue.redrive(limit)
            return
        assert queue.redrive(limit) == moved

    def _close_and_attach_again(self, side: Side, client: int) -> None:
        queue = side.real[client]
        for one in [one for one in self.consumers if (one.side, one.client) == (side, client)]:
            self._stop(one)
        side.model.close(queue)
        queue.close()
        side.real[client] = self.brokers[client].queue(queue.name)
        if side is self.main:
            for lent in [lent for lent in self.loans if lent.client == client]:
                self.loans.remove(lent)
                self._dropped(lent)

    def _delete_and_make_anew(self, client: int) -> None:
        old, dead_letter_queue = self.sides
        self.brokers[client].delete_queue(NAME)
        self._nothing_works(old)
        self.brokers[1 - client].create_queue(NAME, **self.options)
        model = ModelQueue(old.model.options, old.model.dead_letters)
        self.sides = [Side(self._open(NAME), model), dead_letter_queue]
        self._advance(0)

    def _nothing_works(self, deleted: Side) -> None:
        """Only the views of a deleted queue stay good."""
        for queue in deleted.real:
            with pytest.raises(shmq.QueueDeleted):
                queue.qsize()
        for delivery in [one for one in self.deliveries if one.side is deleted]:
            self.deliveries.remove(delivery)
            with pytest.raises(shmq.QueueDeleted):
                deleted.real[0].reject(delivery.message.receipt)
        for one in [one for one in self.consumers if one.side is deleted]:
            self.consumers.remove(one)
            # The end of the lease in hand is reported first.
            with pytest.raises((shmq.QueueDeleted, shmq.LeaseExpired)):
                list(one.real)
        for lent in [lent for lent in self.loans if lent.item is not None]:
            with pytest.raises(shmq.QueueDeleted):
                lent.loan.commit()
        self.loans.clear()

    # ---- the comparison ----

    @invariant()
    def agree(self) -> None:
        self._move_dying()
        for side in self.sides:
            self._compare(side)
            check: Any = side.real[0]  # the local queue has more than the contract
            check.check()
        for held in self.views:
            assert held.view == held.item.body

    def _move_dying(self) -> None:
        """Let the model's dying go where the real ones went, in the real order."""
        main, dead_letter_queue = self.sides
        known = {item.body for item in dead_letter_queue.model.at(Place.VISIBLE)}
        for _ in range(PATIENCE):
            main.real[0].stats()
            peeked = dead_letter_queue.real[0].peek(1000)
            arrived = [message for message in peeked if message.body not in known]
            if len(arrived) == main.model.dying_to_move():
                break
            time.sleep(0.01)  # after a refusal the real queue pauses by the real clock
        assert len(arrived) == main.model.dying_to_move()
        arrived.sort(key=lambda message: message.sequence)
        main.model.move_dying(message.body for message in arrived)

    def _compare(self, side: Side) -> None:
        model, queue = side.model, side.real[1]
        stats = queue.stats()
        assert stats.depth == len(model.at(Place.VISIBLE)) == queue.qsize()
        assert stats.delayed == len(model.at(Place.DELAYED))
        assert stats.in_flight == model.in_flight()
        assert stats.dying == len(model.at(Place.DYING))
        assert stats.oldest_age == pytest.approx(model.age() / SECOND, abs=1e-6)
        assert queue.full() == (model.room() < 1)
        for name in TOTALS:
            assert (name, getattr(stats, name)) == (name, model.totals[name])
        peeked, visible = queue.peek(1000), model.visible()
        assert [message.body for message in peeked] == [item.body for item in visible]
        for message, item in zip(peeked, visible, strict=True):
            self._same(side, message, item)


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
