"""Queues that end with the connections and clients of a server."""

from __future__ import annotations

import contextlib
import os
import signal
from multiprocessing.connection import Connection
from typing import Any

import pytest

import shmq
from shmq import Broker, Queue
from tests.support.peer import Peer
from tests.support.processes import Child, Start, drain
from tests.support.server import Server
from tests.support.waiting import PATIENCE, eventually
from tests.system.server.conftest import Serve

pytestmark = pytest.mark.prove

ENDS: dict[str, dict[str, Any]] = {
    "auto_delete": {"auto_delete": True},
    "exclusive": {"exclusive": True},
}


@pytest.fixture
def server(served: Serve) -> Server:
    return served()


@pytest.fixture
def start() -> Any:
    starter = Start()
    yield starter
    starter.close()


def be_consumer(queue: Queue) -> None:
    with contextlib.suppress(shmq.Empty):
        queue.get(block=False)


def work(pipe: Connection, url: str, options: dict[str, Any]) -> None:
    """Make queue ``t`` of the server, and be its consumer until killed."""
    queue = shmq.connect(url).ensure_queue("t", **options)
    be_consumer(queue)
    pipe.send(os.getpid())
    pipe.recv()


def worker(start: Start, url: str, options: dict[str, Any]) -> Child:
    child = start(work, url, options, method="spawn")
    child.hear()
    return child


@pytest.mark.parametrize("workers", [2, pytest.param(1, marks=pytest.mark.prove)])
@pytest.mark.parametrize("ends", ENDS)
def test_a_publish_neither_fails_nor_fills_a_killed_clients_queue(
    served: Serve, broker: Broker, start: Start, ends: str, workers: int
) -> None:
    server = served(workers=workers)
    with shmq.connect(server.url) as remote:
        exchange = remote.create_exchange("e", "fanout")
        stays = remote.create_queue("stays")
        child = worker(start, server.url, {"capacity": 4, **ENDS[ends]})
        for target in ("t", "stays"):
            exchange.bind(target)
        assert exchange.publish(b"0").delivered == 2

        child.kill()
        eventually(lambda: "t" not in broker.queue_names(), "the server sees the end of it")

        for publisher in (exchange, broker.exchange("e")):
            assert [publisher.publish(b"1").delivered for _ in range(9)] == [1] * 9
        assert [each.target for each in exchange.bindings()] == ["stays"]
        assert len(drain(stays)) == 19


@pytest.mark.parametrize("ends", ENDS)
def test_the_queues_of_a_killed_front_ends_clients_go_too(
    server: Server, broker: Broker, start: Start, ends: str
) -> None:
    worker(start, server.url, ENDS[ends])
    broker.create_exchange("e", "fanout").bind("t")
    (front,) = server.workers()

    os.kill(front, signal.SIGKILL)
    server.hears("front end 1 died")

    with pytest.raises(shmq.Unroutable):
        broker.exchange("e").publish(b"1", mandatory=True)
    assert broker.queue_names() == []


def test_a_client_whose_connection_was_lost_finds_its_exclusive_queue_gone(
    server: Server, broker: Broker
) -> None:
    with shmq.connect(server.url) as remote:
        queue = remote.create_queue("t", exclusive=True)
        queue.put(b"1")
        (front,) = server.workers()
        os.kill(front, signal.SIGKILL)
        server.hears("front end 1 started", 2)

        with pytest.raises((shmq.NoSuchQueue, shmq.QueueDeleted)):
            queue.get(timeout=PATIENCE)

        assert remote.create_queue("t", exclusive=True).qsize() == 0


def test_its_owner_is_told_to_other_clients_and_to_processes_of_the_host(
    served: Serve, broker: Broker
) -> None:
    server = served(workers=2)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(shmq.connect(server.url)) for _ in range(4)]
        clients[0].create_queue("t", exclusive=True)
        for other in [*clients[1:], broker]:
            with pytest.raises(shmq.Forbidden, match="'t' is exclusive to"):
                other.queue("t")
            target = other.put_target("t")
            target.put(b"1")
            with pytest.raises(shmq.Forbidden, match="'t' is exclusive to"):
                target.get(timeout=0)
        assert clients[0].queue("t").qsize() == 4


def test_a_connection_that_owns_a_queue_may_be_idle(served: Serve, broker: Broker) -> None:
    server = served(limits={"idle": 1.5})
    with Peer(server) as owner, Peer(server) as other:
        owner.create("t", exclusive=True)
        other.create("u")
        for _ in range(2):
            with Peer(server) as later:
                assert later.ended()

        assert other.ended()
        assert broker.queue_names() == ["t", "u", "u.dlq"]
        owner.put("t")


def test_a_local_consumer_and_a_remote_one_keep_a_queue_for_each_other(
    server: Server, broker: Broker
) -> None:
    here = broker.create_queue("t", auto_delete=True)
    be_consumer(here)
    with shmq.connect(server.url) as remote:
        there = remote.queue("t")
        be_consumer(there)
        here.close()
        assert [each.name for each in broker.list_queues()] == ["t"]
        there.put(b"1")
        assert drain(there) == [b"1"]

    eventually(lambda: broker.queue_names() == [], "it goes with the last one")
