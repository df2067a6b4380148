"""Queues that go with the connection that made them, and the rights that requests need."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

import shmq
from shmq.api.names import is_reply_name, reply_name
from shmq.protocol.opcodes import Status, Type
from tests.support.peer import Peer, name_of
from tests.support.server import Server
from tests.support.waiting import PATIENCE, eventually
from tests.system.server.conftest import Serve

pytestmark = pytest.mark.prove

ASKS, SERVES, NEITHER = "a" * 40, "s" * 40, "n" * 40

OWN = msgpack.packb({"own": True, "dead_letter": None})


@pytest.fixture
def server(served: Serve) -> Server:
    return served()


@pytest.fixture
def peer(server: Server) -> Iterator[Peer]:
    with Peer(server) as peer:
        yield peer


def has(broker: shmq.Broker, name: str) -> bool:
    return name in [each.name for each in broker.list_queues()]


def test_a_queue_goes_with_the_connection_that_made_it(server: Server, broker: shmq.Broker) -> None:
    name = reply_name()
    with Peer(server) as peer:
        peer.ok(Type.CREATE, name_of(name) + OWN)
        with Peer(server) as other:
            other.ok(Type.STATS, name_of(name))
        assert has(broker, name)

    eventually(lambda: not has(broker, name), "the queue goes")


def test_it_is_made_once_and_by_the_name_of_a_reply_queue(peer: Peer) -> None:
    name = reply_name()
    peer.ok(Type.CREATE, name_of(name) + OWN)

    assert peer.status(Type.CREATE, name_of(name) + OWN) == Status.QUEUE_EXISTS
    assert peer.status(Type.CREATE, name_of("mine") + OWN) == Status.BAD_REQUEST
    packed = msgpack.packb({"own": 1})
    assert peer.status(Type.CREATE, name_of(reply_name()) + packed) == Status.BAD_REQUEST
    packed = msgpack.packb({"own": True, "capacity": 0})
    assert peer.status(Type.CREATE, name_of(reply_name()) + packed) == Status.BAD_REQUEST


def test_it_may_be_gone_before_its_connection_is(peer: Peer, broker: shmq.Broker) -> None:
    name = reply_name()
    peer.ok(Type.CREATE, name_of(name) + OWN)
    peer.ok(Type.DELETE, name_of(name))
    broker.create_queue(name, dead_letter=None)  # another client's
    peer.__exit__(None, None, None)
    with shmq.connect(broker.namespace):
        assert has(broker, name)


def test_what_a_killed_server_left_goes_with_the_next_one_that_asks(
    server: Server, broker: shmq.Broker
) -> None:
    name = reply_name()
    broker.create_queue("q")
    threading.Thread(target=broker.serve, args=("q", lambda m: m.body), daemon=True).start()
    with Peer(server) as peer:
        peer.ok(Type.CREATE, name_of(name) + OWN)
        (front,) = server.workers()
        os.kill(front, signal.SIGKILL)
        server.hears("front end 1 died")  # its record locks go with the last of its threads

        assert broker.request("q", 1, PATIENCE).body == 1

        assert name not in broker.queue_names()


def test_the_rights_that_asking_and_serving_take(served: Serve, broker: shmq.Broker) -> None:
    asks = {"produce": ["q"], "admin": ["reply.*"], "consume": ["reply.*"]}
    serves = {"consume": ["q"], "produce": ["reply.*"]}
    neither = {"produce": ["q"]}
    server = served(tokens={ASKS: asks, SERVES: serves, NEITHER: neither})
    broker.create_queue("q")
    with (
        shmq.connect(server.url, token=ASKS) as client,
        shmq.connect(server.url, token=SERVES) as serving,
        shmq.connect(server.url, token=NEITHER) as stranger,
    ):
        thread = threading.Thread(target=serving.serve, args=("q", lambda m: m.body))
        thread.start()
        assert client.request("q", [1], PATIENCE).body == [1]
        with pytest.raises(shmq.Forbidden, match=r"reply\.\*"):
            stranger.request("q", [1], PATIENCE)
        serving.close()
        thread.join()


def test_a_client_that_was_cut_off_while_it_waited_is_told(
    served: Serve, broker: shmq.Broker, tmp_path: Path
) -> None:
    # A restart keeps this address, so that the client has no need of a short timeout.
    settings: dict[str, Any] = {"workers": 1, "bind": f"unix:{tmp_path}/shmq.sock"}
    server = served(**settings)
    queue = broker.create_queue("q")
    with shmq.connect(server.url) as client:
        told: list[BaseException] = []

        def ask() -> None:
            try:
                client.request("q", 1, PATIENCE)
            except shmq.ShmqError as error:
                told.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        eventually(lambda: queue.qsize() == 1, "the request is there")
        (own,) = [each.name for each in broker.list_queues() if is_reply_name(each.name)]
        server.restart(**settings)
        thread.join()
        assert isinstance(told[0], shmq.ConnectionLost)
        assert not has(broker, own)
