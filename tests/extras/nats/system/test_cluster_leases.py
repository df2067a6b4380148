"""Leases of a cluster: counted from the pull, and kept over the restart of a server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq.extras.nats.client.claim import Claims
from shmq.extras.nats.client.inbox import Arrival
from shmq.extras.nats.client.pull import Pulls
from shmq.extras.nats.client.settlement import Leases, Settlements
from shmq.extras.nats.cluster.local import LocalCluster
from tests.support.nats_cluster import PREFIX
from tests.support.nats_server import NATS_SERVER
from tests.support.processes import HOUR, drain
from tests.support.waiting import PATIENCE, eventually

#: The visibility timeout of the queues here, in seconds.
LEASE = 2.0
#: More than that.
LONGER = 2.1

#: Every way to get a message.
TAKES: dict[str, Callable[[shmq.Queue], shmq.Message]] = {
    "get": lambda queue: queue.get(timeout=PATIENCE),
    "aget": lambda queue: asyncio.run(queue.aget(timeout=PATIENCE)),
    "get_many": lambda queue: queue.get_many(2, timeout=PATIENCE)[0],
    "consume": lambda queue: next(iter(queue.consume(2, timeout=PATIENCE))),
}


@pytest.fixture
def broker(namespace: str) -> Iterator[shmq.Broker]:
    with NATS_SERVER.serve(namespace) as url, shmq.connect(url) as broker:
        yield broker


def _make_first_pull_late(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have what the first pull brings arrive after the end of its lease; returns the counts."""
    counts: list[int] = []
    take = Pulls.take

    async def late(pulls: Pulls, *arguments: Any, **options: Any) -> list[Arrival]:
        arrivals = await take(pulls, *arguments, **options)
        counts.append(len(arrivals))
        if len(counts) == 1:  # as by the consumers of other groups, while a server is stopped
            await asyncio.sleep(LONGER)
        return arrivals

    monkeypatch.setattr(Pulls, "take", late)
    monkeypatch.setattr(Pulls, "begin", lambda _pulls, _most, callback: callback(None))
    return counts


@pytest.mark.parametrize("how", TAKES)
def test_a_lease_is_counted_from_the_pull(
    broker: shmq.Broker, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    queue = broker.create_queue("q", visibility_timeout=LEASE, max_deliveries=1, priorities=1)
    queue.put("a")
    counts = _make_first_pull_late(monkeypatch)
    message = TAKES[how](queue)
    assert counts[:2] == [1, 1], "it was delivered again once its lease had ended"
    assert message.delivery_count == 1
    message.ack()
    assert broker.queue("q.dlq").empty()


@pytest.mark.parametrize("kind", ["get_batch", "get_packed"])
def test_the_lease_of_a_batch_is_counted_from_the_pull(
    broker: shmq.Broker, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    queue = broker.create_queue("q", visibility_timeout=LEASE, max_deliveries=1, priorities=1)
    queue.put("a")
    counts = _make_first_pull_late(monkeypatch)
    batch = getattr(queue, kind)(1, timeout=PATIENCE)
    assert len(batch) == 1
    assert counts[:2] == [1, 1]
    assert batch.ack() == []
    assert queue.empty()


def test_an_expired_message_is_not_settled(broker: shmq.Broker) -> None:
    queue = broker.create_queue("q", visibility_timeout=LEASE, max_deliveries=None, priorities=1)
    queue.put("a")
    late = queue.get(timeout=PATIENCE)
    holder = queue.get(timeout=PATIENCE)
    settlements: list[Callable[[], None]] = [
        late.ack,
        late.nack,
        late.reject,
        lambda: late.extend(1),
        lambda: queue.ack(late.receipt),
    ]
    for settle in settlements:
        with pytest.raises(shmq.LeaseExpired):
            settle()
    assert queue.stats().in_flight == 1
    holder.extend(PATIENCE)
    holder.ack()


def test_a_message_that_arrives_after_its_lease_for_a_caller_who_is_gone_is_not_returned(
    broker: shmq.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue: Any = broker.create_queue("q", visibility_timeout=LEASE, max_deliveries=1, priorities=1)
    queue.put("a")
    arrived: list[Arrival] = []
    sift = Settlements.sift

    async def note(settlements: Settlements, came: Any) -> list[Any]:
        arrived.extend(came)
        return await sift(settlements, came)

    monkeypatch.setattr(Settlements, "sift", note)
    monkeypatch.setattr(Pulls, "begin", lambda _pulls, _most, callback: callback(None))
    assert queue.get(timeout=PATIENCE).body == "a"
    port = queue.port
    port.run(asyncio.sleep(LONGER))
    port.run(port.settlements.give_back(arrived[:1]))  # its delivery is not counted any more
    holder = queue.get(timeout=PATIENCE)
    port.run(port.settlements.give_back(arrived[:1]))
    assert queue.get_many(1, block=False) == [], "what the other holder has was returned"
    holder.ack()


def _return_early(queue: Any, message: Any) -> None:
    """Have the server deliver a message again that is held: as one does that was stopped.

    It goes on with what it had received, and its successor may have lost what it confirmed.
    """
    queue.port.run(queue.port.connection.request(message.lease.reply, b"-NAK"))


@pytest.mark.parametrize("how", ["new", "waited", "again", "extended"])
def test_a_message_that_is_delivered_again_too_early_has_one_holder(
    broker: shmq.Broker, how: str
) -> None:
    lease = 6.0
    queue: Any = broker.create_queue("q", visibility_timeout=lease, max_deliveries=2, priorities=1)
    queue.put("a")
    if how == "waited":
        eventually(lambda: queue.stats().oldest_age > lease / 4, "the message has waited")
    message = queue.get(timeout=PATIENCE)
    if how == "again":
        message.nack(delay=0)
        message = queue.get(timeout=PATIENCE)
    if how == "extended":
        message.extend(2 * lease)
    other: Any = broker.queue("q")
    with other:
        for _ in range(2):
            _return_early(queue, message)
            assert other.get_many(1, timeout=0.5) == [], "two holders have it"
            _return_early(queue, message)
            port = other.port
            arrivals = port.run(port.pulls.take(1, time.monotonic() + 5, waits=True))
            port.run(port.settlements.give_back(arrivals))  # for a caller who is gone
        assert message.is_leased
        message.ack()
        eventually(other.empty, "it is settled")
    assert broker.queue("q.dlq").empty(), "the deliveries to no holder are not counted"


def test_a_message_that_its_holder_returned_is_delivered_at_once(
    broker: shmq.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = broker.create_queue("q", visibility_timeout=60.0, max_deliveries=None, priorities=1)
    queue.put("a")
    for count in range(1, 4):
        message = queue.get(timeout=PATIENCE)
        assert message.delivery_count == count
        message.extend(60.0)
        message.nack(delay=0)
    receipt = queue.get(timeout=PATIENCE).receipt
    monkeypatch.setattr(Leases, "_of_process", {})  # as in another process
    with broker.queue("q") as other:
        other.extend(receipt, 60.0)
        other.nack(receipt, delay=0)
    message = queue.get(timeout=PATIENCE)
    assert message.delivery_count == 5
    message.nack(counted=False)
    assert queue.get(timeout=PATIENCE).delivery_count == 5


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LocalCluster]:
    """A server of its own, to be restarted."""
    cluster = LocalCluster.create(tmp_path / "cluster", nodes=1, sync="2m")
    try:
        cluster.start(prefix=PREFIX)
        yield cluster
    finally:
        for node in cluster.nodes:
            if node.pid is not None:
                node.kill()


#: Every way to return messages that were taken together.
RETURNS: dict[str, Callable[[Any, shmq.Batch], object]] = {
    "close": lambda queue, _: queue.close(),
    "nack": lambda _, batch: batch.nack(0),
    "uncounted": lambda _, batch: batch.nack(counted=False),
    "extend": lambda queue, batch: queue.port.settle("extend", batch.receipts, 0),
}


@pytest.mark.parametrize("how", RETURNS)
def test_messages_that_are_returned_together_come_back_in_their_order(
    broker: shmq.Broker, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    put = Claims.put

    async def confirm_late(claims: Claims, sequence: int, *arguments: Any) -> int | None:
        revision = await put(claims, sequence, *arguments)
        await asyncio.sleep(0.2 / sequence)  # the last one is confirmed first
        return revision

    queue = broker.create_queue("jobs", visibility_timeout=HOUR)
    queue.put_many([1, 2, 3])
    taking = broker.queue("jobs")
    batch = taking.get_batch(3)
    monkeypatch.setattr(Claims, "put", confirm_late)

    RETURNS[how](taking, batch)

    assert drain(queue) == [1, 2, 3]


@pytest.mark.prove
def test_a_message_that_has_waited_has_one_holder_over_a_restart_of_the_server(
    server: LocalCluster,
) -> None:
    lease = 10.0
    with shmq.connect(server.url, request_timeout=PATIENCE) as broker:
        queue = broker.create_queue(
            "q", visibility_timeout=lease, max_deliveries=None, priorities=1
        )
        queue.put_many(range(3))
        eventually(lambda: queue.stats().oldest_age > lease / 2, "the messages have waited")
        held = queue.get_many(3, timeout=PATIENCE)
        (node,) = server.nodes
        node.stop()  # in order: of a single server, what it has not written yet would be lost
        server.restart(node)
        again = queue.get(timeout=PATIENCE)
        assert again.delivery_count == 2
        for message in held:
            with pytest.raises(shmq.LeaseExpired):
                message.ack()  # another holder has it: its own lease has ended by then


def test_servers_without_room_for_claims_can_be_emptied(broker: shmq.Broker) -> None:
    queue: Any = broker.create_queue("q", visibility_timeout=LEASE, dead_letter=None, priorities=1)
    queue.put_many(range(20))
    time.sleep(LEASE / 4)  # they are not new any more
    connection, bucket = queue.connection, queue.port.definitions._stream
    described = connection.run(connection.api(f"STREAM.INFO.{bucket}"))
    full = {**described["config"], "max_bytes": 1, "discard": "new"}
    connection.run(connection.api(f"STREAM.UPDATE.{bucket}", full))

    bodies = []
    for message in queue.get_many(20, timeout=PATIENCE):
        bodies.append(message.body)
        message.ack()
    assert bodies == list(range(20))
    eventually(queue.empty, "the queue is empty")
