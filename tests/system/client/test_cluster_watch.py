"""A client of a cluster is told what changes there: it does not ask again and again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import shmq
from shmq.client.nats.broker import NatsBroker
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
            for _ in range(200):
                mine.poll(timeout=0.05)
                theirs.poll(timeout=0.05)
                if len(mine.assignment) == len(theirs.assignment) == 1:
                    return
    pytest.fail("the partitions were not divided")


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
    assert queue.get(timeout=5).group == "g"
