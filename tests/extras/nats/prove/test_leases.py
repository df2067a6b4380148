"""Messages that have waited for longer than their lease, while servers restart: one delivery each.

The next leader of a queue knows when a message was stored, and not when it was delivered, unless
the delivery was renewed. So what waits for long is what a rolling upgrade endangers.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import shmq
from shmq.extras.nats.client.inbox import Arrival
from shmq.extras.nats.client.message import NatsMessage
from shmq.extras.nats.client.names import queue_stream
from shmq.extras.nats.client.queue_port import NatsQueuePort
from shmq.extras.nats.client.settlement import Settlements
from shmq.extras.nats.cluster.local import LocalCluster
from tests.support.bridge import PATIENCE, wait_until

#: The visibility timeout, and how long a consumer holds what it has taken at most, in seconds.
LEASE, LONGEST_HOLD = 30.0, 8.0
MESSAGES, AT_ONCE = 400, 32


@pytest.fixture
def broker(cluster: LocalCluster, namespace: str) -> Iterator[shmq.Broker]:
    with shmq.connect(f"{cluster.url}/{namespace}", request_timeout=PATIENCE) as broker:
        yield broker


def queue_of_old_messages(broker: shmq.Broker, count: int) -> shmq.Queue:
    """A queue whose messages have all waited for longer than the lease."""
    queue = broker.create_queue("q", visibility_timeout=LEASE, max_deliveries=1, priorities=1)
    assert queue.put_many(range(count)) == count
    stored = time.monotonic()
    wait_until(lambda: time.monotonic() > stored + LEASE + 1)
    return queue


def restart_all(cluster: LocalCluster) -> None:
    """As for an upgrade: one server after the other, in order."""
    for node in cluster.nodes:
        node.stop()
        cluster.restart(node)


@pytest.mark.watchdog(600)
def test_what_one_consumer_holds_reaches_no_other_while_all_servers_restart(
    broker: shmq.Broker, cluster: LocalCluster
) -> None:
    queue = queue_of_old_messages(broker, 20)
    held = queue.get_many(20, timeout=PATIENCE)
    restart_all(cluster)
    others = queue.get_many(20, block=False)
    refused = queue.ack_many(held)
    if not refused:  # the restarts took less than the lease
        assert len(held) == 20
        assert others == []
        assert broker.queue("q.dlq").empty()
        wait_until(queue.empty)


@dataclasses.dataclass(frozen=True, slots=True)
class Hold:
    """A delivery; ``acked`` is the time of the call, in ns on the monotonic clock."""

    number: int
    taken: int
    acked: int | None


class ConsumerThread(threading.Thread):
    """Consumes queue ``q`` with a connection of its own, and keeps what goes wrong."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.problems: list[BaseException | str] = []
        self._url = url

    def run(self) -> None:
        try:
            with shmq.connect(self._url, request_timeout=PATIENCE) as broker:
                self._consume(broker.queue("q"))
        except BaseException as problem:
            self.problems.append(problem)

    def _consume(self, queue: shmq.Queue) -> None:
        raise NotImplementedError


class Consumer(ConsumerThread):
    """Takes messages, holds them for a while, acknowledges them, and writes that down."""

    def __init__(self, url: str, seed: int) -> None:
        super().__init__(url)
        self.holds: list[Hold] = []
        self._chance = random.Random(seed)
        self._ending = threading.Event()

    def _consume(self, queue: shmq.Queue) -> None:
        while not self._ending.is_set():
            messages = queue.get_many(self._chance.randint(1, AT_ONCE), timeout=1.0)
            taken = time.monotonic_ns()
            self._ending.wait(self._chance.random() * LONGEST_HOLD)
            for message in messages:
                acked: int | None = time.monotonic_ns()
                try:
                    message.ack()
                except shmq.LeaseExpired:
                    acked = None
                self.holds.append(Hold(message.body, taken, acked))

    def end(self) -> None:
        self._ending.set()
        self.join(2 * PATIENCE)
        assert not self.is_alive()
        assert not self.problems, self.problems


def drained(queue: shmq.Queue) -> bool:
    stats = queue.stats()
    return not (stats.depth or stats.in_flight)


def check(holds: list[Hold], dead: list[int]) -> None:
    """Raise AssertionError for a message with two holders, or lost, or dead without a delivery."""
    numbers = [hold.number for hold in holds]
    acked = {hold.number for hold in holds if hold.acked is not None}
    assert len(numbers) == len(set(numbers)), "one delivery is allowed"
    assert acked.isdisjoint(dead), "dead letters of messages that were acknowledged"
    assert acked | set(dead) == set(range(MESSAGES))
    assert set(dead) <= set(numbers), "dead letters of messages that were never delivered"


@pytest.mark.watchdog(900)
@pytest.mark.parametrize("seed", range(1))
def test_a_history_of_old_messages_with_one_delivery_allowed(
    broker: shmq.Broker, cluster: LocalCluster, namespace: str, seed: int
) -> None:
    queue = queue_of_old_messages(broker, MESSAGES)
    consumers = [Consumer(f"{cluster.url}/{namespace}", seed + at) for at in range(2)]
    for consumer in consumers:
        consumer.start()
    try:
        restart_all(cluster)
        leader = cluster.leader_of(queue_stream(namespace, "q"))
        if leader is not None:
            leader.kill()
            cluster.restart(leader)
        wait_until(lambda: drained(queue))
    finally:
        for consumer in consumers:
            with contextlib.suppress(AssertionError):
                consumer.end()
    for consumer in consumers:
        consumer.end()
    letters = broker.queue("q.dlq").get_many(MESSAGES, block=False)
    check([hold for one in consumers for hold in one.holds], [one.body for one in letters])


# ---- gets that take longer than the lease ----

#: The visibility timeout, in seconds: a get may take longer while a server is stopped.
SHORT = 2.0
GROUPS = 8
#: So many settlements of messages that have another holder are observed while a server is stopped.
LATE = 40


class Deliveries:
    """The deliveries of a queue to all consumers of this process, in their order.

    They are noted in the one event loop of all cluster connections, right after the check of their
    leases.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._last: dict[int, int] = {}
        self.problems: list[str] = []
        hold = NatsQueuePort._hold

        def note(port: NatsQueuePort, messages: list[NatsMessage]) -> None:
            for message in messages:
                number, known = number_of(message), self._last.get(message.sequence, 0)
                if number < known:
                    self.problems.append(
                        f"message {message.sequence}: delivery {number} is returned after {known}"
                    )
                self._last[message.sequence] = max(number, known)
            hold(port, messages)

        monkeypatch.setattr(NatsQueuePort, "_hold", note)

    def has_later(self, message: shmq.Message) -> bool:
        """Whether a consumer got the message after this delivery of it."""
        return self._last[message.sequence] > number_of(message)


def number_of(message: shmq.Message) -> int:
    """The number of a delivery of its message, from 1 on."""
    assert isinstance(message, NatsMessage)
    assert message.lease is not None
    return message.lease.delivery.deliveries


class LateConsumer(ConsumerThread):
    """Settles each message as soon as another delivery of it was returned, and later at once."""

    def __init__(self, url: str, deliveries: Deliveries) -> None:
        super().__init__(url)
        #: The bodies of messages that were acknowledged.
        self.acked: list[int] = []
        #: How many settlements of messages with another holder were refused.
        self.late = 0
        self.is_prompt = threading.Event()
        self.ending = threading.Event()
        self._deliveries = deliveries

    def _consume(self, queue: shmq.Queue) -> None:
        held: list[shmq.Message] = []
        while not self.ending.is_set():
            prompt = self.is_prompt.is_set()
            held += queue.get_many(AT_ONCE, timeout=0.2)
            for message in list(held):
                is_late = self._deliveries.has_later(message)
                if is_late or prompt:
                    held.remove(message)
                    self._settle(message, is_late)

    def _settle(self, message: shmq.Message, is_late: bool) -> None:
        try:
            message.ack()
        except shmq.LeaseExpired:
            self.late += is_late
            return
        self.acked.append(message.body)
        if is_late:
            self.problems.append(f"message {message.body} was settled by a former holder")


@pytest.mark.watchdog(600)
@pytest.mark.parametrize("leads", [True, False])
def test_no_message_of_a_group_has_two_holders_while_a_server_is_stopped(
    broker: shmq.Broker,
    cluster: LocalCluster,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    leads: bool,
) -> None:
    queue = broker.create_queue(
        "q", visibility_timeout=SHORT, max_deliveries=None, dead_letter=None, priorities=1
    )
    bodies = list(range(4 * GROUPS))
    for body in bodies:
        queue.put(body, group=f"g{body % GROUPS}" if body % 2 else None)
    deliveries = Deliveries(monkeypatch)
    consumers = [LateConsumer(f"{cluster.url}/{namespace}", deliveries) for _ in range(2)]
    leader = cluster.leader_of(queue_stream(namespace, "q"))
    stopped = next(node for node in cluster.nodes if (node is leader) is leads)
    for consumer in consumers:
        consumer.start()
    try:
        wait_until(lambda: sum(one.late for one in consumers) >= len(bodies))
        stopped.pause()
        seen = sum(one.late for one in consumers)
        wait_until(lambda: sum(one.late for one in consumers) >= seen + LATE)
    finally:
        stopped.resume()
        for consumer in consumers:
            consumer.is_prompt.set()
        with contextlib.suppress(AssertionError):
            wait_until(lambda: drained(queue))
        for consumer in consumers:
            consumer.ending.set()
            consumer.join(2 * PATIENCE)
    assert not any(one.is_alive() for one in consumers)
    assert [*consumers[0].problems, *consumers[1].problems, *deliveries.problems] == []
    assert sorted(consumers[0].acked + consumers[1].acked) == bodies


@pytest.mark.watchdog(600)
def test_a_renewal_that_only_a_server_has_that_is_stopped_then_makes_no_second_holder(
    broker: shmq.Broker, cluster: LocalCluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = broker.create_queue("q", visibility_timeout=LEASE, max_deliveries=None, priorities=1)
    queue.put("a")
    stored = time.monotonic()
    leader = consumer_leader(queue, cluster)
    others = [node for node in cluster.nodes if node is not leader]
    held: list[Any] = []
    arrived, isolated = threading.Event(), threading.Event()
    sift = Settlements.sift

    async def sift_isolated(settlements: Settlements, came: list[Arrival]) -> list[NatsMessage]:
        if not arrived.is_set():
            arrived.set()
            await asyncio.to_thread(isolated.wait)
        return await sift(settlements, came)

    def hold() -> None:
        url = f"nats://127.0.0.1:{leader.ports.client}/{namespace}"
        with contextlib.suppress(shmq.LeaseExpired, shmq.Empty):
            held.append(shmq.connect(url).queue("q").get(timeout=LEASE))

    wait_until(lambda: time.monotonic() > stored + LEASE / 2)
    monkeypatch.setattr(Settlements, "sift", sift_isolated)
    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    assert arrived.wait(PATIENCE)
    for node in others:
        node.kill()
    isolated.set()
    holder.join(2.0)  # the leader confirms a renewal alone
    leader.pause()
    for node in others:
        cluster.restart(node, wait=False)
    try:
        again: Any = queue.get(timeout=PATIENCE)
    finally:
        leader.resume()
    assert again.is_leased
    assert not any(one.is_leased for one in held)
    for one in held:
        with pytest.raises(shmq.LeaseExpired):
            one.ack()
    again.ack()


def test_of_changes_of_one_definition_at_once_one_succeeds(broker: shmq.Broker) -> None:
    """A cluster refuses the others in two ways: while the first is under way, and later."""
    queue: Any = broker.create_queue("q")
    put = queue.port.definitions.put

    async def race(revision: int | None, number: int) -> list[int | None]:
        values = [{"round": number, "place": place} for place in range(8)]
        return list(await asyncio.gather(*(put("race", value, revision) for value in values)))

    revision: int | None = 0
    for number in range(100):
        done = [one for one in queue.port.run(race(revision, number)) if one is not None]
        assert len(done) == 1
        revision = done[0]


def consumer_leader(queue: Any, cluster: LocalCluster) -> Any:
    """The server that leads the consumer of the messages without a group."""
    consumers = queue.port.run(queue.port.pulls.consumers())
    (name,) = [one["cluster"]["leader"] for one in consumers if one["name"] == "p0"]
    return next(node for node in cluster.nodes if node.name == name)


@pytest.mark.watchdog(600)
def test_a_get_that_takes_longer_than_the_lease_does_not_return_what_another_consumer_has(
    broker: shmq.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow: Any = broker.create_queue(
        "q", visibility_timeout=SHORT, max_deliveries=None, dead_letter=None
    )
    for body in range(3):
        slow.put(body, group=f"g{body}")
    deliveries = Deliveries(monkeypatch)
    arrived, fetched = threading.Event(), threading.Event()
    sift = Settlements.sift

    async def sift_late(settlements: Settlements, came: list[Arrival]) -> list[NatsMessage]:
        if settlements is slow.port.settlements and not arrived.is_set():
            arrived.set()
            await asyncio.to_thread(fetched.wait)
        return await sift(settlements, came)

    monkeypatch.setattr(Settlements, "sift", sift_late)
    getting = threading.Thread(target=slow.get_many, args=(3,), kwargs={"timeout": PATIENCE})
    getting.start()
    assert arrived.wait(PATIENCE)
    others: dict[int, shmq.Message] = {}
    with broker.queue("q") as fast:
        while len(others) < 3:
            others |= {one.sequence: one for one in fast.get_many(3, timeout=1.0)}
        fetched.set()
        fast.put("end")
    getting.join(PATIENCE)
    assert not getting.is_alive()
    assert deliveries.problems == []
