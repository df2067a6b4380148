"""A client of a cluster is told what changes there: it does not ask again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import shmq
from shmq.extras.nats.client.broker import NatsBroker
from tests.support.bridge import wait_until
from tests.support.nats_server import NATS_SERVER


@pytest.fixture
def url(namespace: str) -> Iterator[str]:
    with NATS_SERVER.serve(namespace) as served:
        yield served


@pytest.fixture
def broker(url: str) -> Iterator[NatsBroker]:
    with NatsBroker.connect(url) as made:
        yield made


def sent(broker: NatsBroker) -> int:
    """How many messages the client has sent, requests among them."""

    async def count() -> int:
        return int((await broker.connection.client()).stats["out_msgs"])

    return broker.connection.run(count())


def test_a_member_that_waits_asks_seldom(broker: NatsBroker, url: str) -> None:
    stream = broker.create_stream("events", partitions=2)
    with shmq.connect(url) as other, stream.group("g").join() as mine:
        assert mine.poll(timeout=0) == []
        before = sent(broker)
        assert mine.poll(timeout=1.0) == []
        assert sent(broker) - before < 60  # some for each second, not for each 20 ms
        with other.stream("events").group("g").join() as theirs:

            def are_divided() -> bool:
                mine.poll(timeout=0.05)
                theirs.poll(timeout=0.05)
                return len(mine.assignment) == len(theirs.assignment) == 1

            wait_until(are_divided)


def test_a_wait_that_is_cancelled_leaves_the_connection_as_it_is(broker: NatsBroker) -> None:
    async def cancelled() -> int:
        client = await broker.connection.client()
        for _ in range(5):
            flush = asyncio.ensure_future(client.flush())
            await asyncio.sleep(0)  # it has sent its ping
            flush.cancel()
        await broker.connection.api("INFO")  # without a connection it reconnects
        return int(client.stats["reconnects"])

    assert broker.connection.run(cancelled()) == 0


def test_a_get_of_a_queue_without_groups_asks_for_them_seldom(broker: NatsBroker) -> None:
    queue = broker.create_queue("jobs", priorities=1)
    with pytest.raises(shmq.Empty):
        queue.get(block=False)
    before = sent(broker)
    for _ in range(20):
        with pytest.raises(shmq.Empty):
            queue.get(block=False)
    assert sent(broker) - before < 40  # a pull each, and the list of consumers once a second
    queue.put(b"first of a group", group="g")
    assert queue.get(timeout=30).group == "g"


def test_a_get_that_waits_has_the_first_message_of_a_group(broker: NatsBroker, url: str) -> None:
    queue = broker.create_queue("jobs", priorities=1)
    with pytest.raises(shmq.Empty):
        queue.get(block=False)  # it takes the queue to have no groups
    with shmq.connect(url) as other:
        other.queue("jobs").put(b"", group="g")
    assert queue.get(timeout=30).group == "g"


def test_a_publish_does_not_ask_for_the_table_and_sees_what_others_bind(
    broker: NatsBroker, url: str
) -> None:
    exchange = broker.create_exchange("prices", "topic")
    jobs, late = broker.create_queue("jobs"), broker.create_queue("late")
    exchange.bind("jobs", "a.*")
    exchange.publish(b"", "a.b")
    before = sent(broker)
    for _ in range(20):
        assert exchange.publish(b"", "a.b").delivered == 1
    assert sent(broker) - before < 40  # a message each, and the table once a second
    with shmq.connect(url) as other:
        other.exchange("prices").bind("late", "a.*")
        wait_until(lambda: exchange.publish(b"", "a.b").delivered == 2)
        other.delete_queue("late")
        other.create_queue("late", priorities=1)
        other.exchange("prices").bind("late", "a.*")
    assert exchange.publish(b"new", "a.b").delivered == 2
    with broker.queue("late") as again:
        assert again.get(timeout=30).body == b"new"
    late.close()
    jobs.close()
