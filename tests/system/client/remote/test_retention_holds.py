"""Subscriptions that hold back retention in a server's stream, and connections that are cut."""

from __future__ import annotations

import contextlib
import os
import signal

import msgpack
import pytest

import shmq
from shmq import Broker, Stream
from shmq.protocol.opcodes import Status, Type
from tests.conformance.tools import SOON, in_thread, outcome
from tests.support.proxy import Proxy, of_type
from tests.support.server import serve
from tests.support.waiting import PATIENCE, eventually
from tests.system.client.remote.test_foreign import reply, server

#: More records than the stream has room for.
ENDLESS = 200


@pytest.fixture
def stream(broker: Broker) -> Stream:
    """A small stream that can be held back."""
    return broker.create_stream("small", 1, ring_bytes=64 << 10, overflow="block")


def fill(stream: Stream) -> int:
    """Append for as long as there is room; how many that were."""
    for count in range(ENDLESS):
        try:
            stream.append(bytes(1000), block=False)
        except shmq.Full:
            return count
    return ENDLESS


@pytest.mark.parametrize("where", ["cut_before", "cut_after"])
def test_one_that_lost_its_connection_holds_the_rest_again(
    proxy: Proxy, afar: Broker, stream: Stream, where: str
) -> None:
    with afar.subscribe("small", policy="block", timeout=PATIENCE, limit=5) as subscription:
        filled = fill(stream)
        assert len(subscription.poll(PATIENCE)) == 5
        getattr(proxy, where)(of_type(Type.HOLD))

        found = subscription.poll(PATIENCE)

        assert [record.offset for record in found] == [5, 6, 7, 8, 9]
        assert (subscription.lost, filled < ENDLESS) == (0, True)
        assert fill(stream) < ENDLESS


def test_one_that_waits_holds_again_before_anything_is_appended(
    proxy: Proxy, afar: Broker, stream: Stream
) -> None:
    with afar.subscribe("small", policy="block", timeout=PATIENCE) as subscription:
        waiting = in_thread(next, subscription)
        eventually(lambda: proxy.requests.count(Type.HOLD) >= 2, "it waits")
        asked = proxy.requests.count(Type.HOLD)
        proxy.cut()
        eventually(lambda: proxy.requests.count(Type.HOLD) > asked, "it asks again")

        stream.append(b"first")
        assert outcome(waiting).value == b"first"
        assert fill(stream) < ENDLESS


def test_what_was_overwritten_without_a_connection_is_told(
    proxy: Proxy, afar: Broker, stream: Stream
) -> None:
    told: list[int] = []
    with afar.subscribe(
        "small", policy="block", timeout=SOON, limit=10, on_lost=told.append
    ) as subscription:
        filled = fill(stream)
        assert len(subscription.poll(PATIENCE)) == 10
        proxy.cut()
        eventually(lambda: fill(stream) == ENDLESS, "no reader holds it back")
        end = stream.latest(0)

        found = [record.offset for record in subscription]

        assert filled < ENDLESS
        assert found == list(range(10 + subscription.lost, end))
        assert told == [subscription.lost]
        assert subscription.lost > 0


def test_one_that_is_closed_without_a_connection_is_closed(
    proxy: Proxy, afar: Broker, stream: Stream
) -> None:
    subscription = afar.subscribe("small", policy="block")
    connections = proxy.connections
    proxy.cut()
    subscription.close()

    eventually(lambda: fill(stream) == ENDLESS, "no reader holds it back")
    assert proxy.connections == connections


def test_a_closed_handle_holds_back_no_append(afar: Broker, stream: Stream) -> None:
    handle = afar.stream("small")
    subscription = handle.subscribe(policy="block")
    assert fill(stream) < ENDLESS

    handle.close()

    eventually(lambda: fill(stream) == ENDLESS, "no reader holds it back")
    subscription.close()


@pytest.mark.prove
def test_a_killed_server_holds_back_no_append(namespace: str) -> None:
    with serve(namespace, workers=1) as server, shmq.connect(namespace) as near:
        stream = near.create_stream("small", 1, ring_bytes=64 << 10, overflow="block")
        with shmq.connect(server.url) as far:
            subscription = far.subscribe("small", policy="block", timeout=PATIENCE)
            fill(stream)
            waiting = in_thread(stream.append, b"last", block=True, timeout=PATIENCE)
            os.kill(server.workers()[0], signal.SIGKILL)

            offset = outcome(waiting).offset

            with contextlib.closing(subscription):
                while next(subscription).offset < offset:
                    pass
        near.delete_stream("small")


def test_a_server_without_holds_cannot_hold_back() -> None:
    def script(kind: int, id_: int, _: bytes) -> bytes | None:
        if kind == Type.HELLO:
            said = {"server": "other", "max_frame": 1 << 20, "features": ["streams"]}
            return reply(id_, msgpack.packb(said))
        if kind == Type.HOLD:
            return reply(id_, b"", Status.UNSUPPORTED)
        told = {"identity": 5, "partitions": 1, "options": {}, "offsets": [{"partition": 0}]}
        return reply(id_, msgpack.packb(told))

    with (
        server(script) as url,
        shmq.connect(url) as broker,
        broker.stream("s") as stream,
        pytest.raises(shmq.Unsupported, match=r"'s'.*does not know this request"),
    ):
        stream.subscribe(policy="block")
