"""Messages that have waited for longer than their lease, while servers restart: one delivery each.

The next leader of a queue knows when a message was stored, and not when it was delivered, unless
the delivery was renewed. So what waits for long is what a rolling upgrade endangers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import threading
import time
from collections.abc import Iterator

import pytest

import shmq
from shmq.client.nats.names import queue_stream
from shmq.cluster.local import LocalCluster
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


class Consumer(threading.Thread):
    """Takes messages, holds them for a while, acknowledges them, and writes that down."""

    def __init__(self, url: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.holds: list[Hold] = []
        self.problems: list[BaseException] = []
        self._url = url
        self._chance = random.Random(seed)
        self._ending = threading.Event()

    def run(self) -> None:
        try:
            with shmq.connect(self._url, request_timeout=PATIENCE) as broker:
                self._consume(broker.queue("q"))
        except BaseException as problem:
            self.problems.append(problem)

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
