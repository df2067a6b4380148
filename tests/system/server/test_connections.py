"""Connections: how many, how they end, and those that do not do their part."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import struct
import time

import psutil
import pytest

import shmq
from shmq.protocol.opcodes import FOREVER, Status, Type
from tests.support.peer import Peer, frame, name_of
from tests.support.waiting import eventually
from tests.system.server.conftest import Serve

pytestmark = pytest.mark.prove

MIB = 1 << 20


def test_one_more_than_the_limit_over_all_workers_is_closed_at_once(served: Serve) -> None:
    server = served(workers=2, limits={"connections": 6})
    with contextlib.ExitStack() as stack:
        inside = [stack.enter_context(Peer(server)) for _ in range(6)]
        for peer in inside:
            peer.ok(Type.PING)

        late = stack.enter_context(Peer(server))
        assert late.ended()
        server.hears(r"127.0.0.1:\d+: connection refused: connections=6 are open")

        for peer in inside:
            peer.ok(Type.PING)
        inside[0].socket.close()

        def again() -> bool:
            with Peer(server) as peer, contextlib.suppress(EOFError, ConnectionError):
                return peer.ok(Type.PING) == b""
            return False

        eventually(again, "there is room again")


def test_the_connections_of_a_killed_worker_count_no_more(served: Serve) -> None:
    server = served(workers=1, limits={"connections": 2})
    with Peer(server) as one, Peer(server) as two:
        one.ok(Type.PING)
        two.ok(Type.PING)
        os.kill(server.workers()[0], signal.SIGKILL)
        assert one.ended() and two.ended()
    with Peer(server) as one, Peer(server) as two:
        one.ok(Type.PING)
        two.ok(Type.PING)


def test_a_flood_of_refused_connections_does_not_flood_the_log(served: Serve) -> None:
    server = served(limits={"connections": 1})
    with Peer(server) as peer:
        peer.ok(Type.PING)
        began = time.monotonic()
        for _ in range(50):
            with Peer(server) as late:
                assert late.ended()
        seconds = time.monotonic() - began
    assert 1 <= len(server.said("connection refused: connections=1")) <= 2 + seconds


def test_without_descriptors_connections_wait_until_there_are_some(served: Serve) -> None:
    server = served()
    worker = psutil.Process(server.workers()[0])
    limit = resource.prlimit(worker.pid, resource.RLIMIT_NOFILE)
    with Peer(server) as peer:
        peer.ok(Type.PING)
        open_ = min(worker.num_fds() for _ in range(20))  # without what it opens for a moment
        resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, (open_, limit[1]))
        with Peer(server) as late:
            asked = late.post(Type.PING)
            server.hears("cannot accept a connection now: Too many open files")
            peer.ok(Type.PING)

            resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, limit)

            assert late.receive().id == asked


def test_a_peer_that_never_reads_is_held_back_and_then_cut_off(
    served: Serve, broker: shmq.Broker
) -> None:
    server = served(limits={"frame": 0.5})
    queue = broker.create_queue("q", arena_bytes=256 * MIB, max_message_bytes=4 * MIB)
    for _ in range(40):
        queue.put(bytes(4 * MIB))
    worker = psutil.Process(server.workers()[0])
    with Peer(server) as deaf, Peer(server) as other:
        before = worker.memory_full_info().uss
        deaf.post(Type.SUBSCRIBE, name_of("q") + struct.pack("!IB", 1000, 0))
        eventually(lambda: queue.stats().in_flight > 0, "it is delivered to")
        grown = worker.memory_full_info().uss - before
        other.ok(Type.PING)

        eventually(lambda: queue.stats().in_flight == 0, "it is cut off, and all is back")

        other.ok(Type.PING)
    assert queue.qsize() == 40
    assert grown < 32 * MIB


def test_a_peer_that_sends_and_never_reads_is_not_read_from_without_bound(served: Serve) -> None:
    server = served(limits={"frame": 3600})
    worker = psutil.Process(server.workers()[0])
    pings = frame(Type.PING, bytes(64)) * 1000
    with Peer(server) as deaf, Peer(server) as other:
        before = worker.memory_full_info().uss
        deaf.socket.setblocking(False)
        sent = 0
        stuck_since = time.monotonic()
        while time.monotonic() < stuck_since + 0.5:
            try:
                sent += deaf.socket.send(pings[sent % len(pings) :])
                stuck_since = time.monotonic()
            except BlockingIOError:
                time.sleep(0.01)
            assert sent < 200 * MIB, "the server reads on and on"
        other.ok(Type.PING)
        assert worker.memory_full_info().uss - before < 16 * MIB


def test_a_half_closed_client_gets_its_answers_and_then_the_end(
    served: Serve, broker: shmq.Broker
) -> None:
    queue = broker.create_queue("q", visibility_timeout=3600)
    queue.put(b"x")
    with Peer(served()) as peer:
        pings = [peer.post(Type.PING, b"x") for _ in range(100)]
        waits = peer.begin_to_take("empty")
        peer.begin_to_take("q")
        peer.socket.shutdown(socket.SHUT_WR)

        assert [peer.receive().id for _ in pings] == pings
        assert peer.receive()[1:3] == (Status.NO_QUEUE, waits)
        assert peer.receive().kind == Type.DELIVER
        with pytest.raises(EOFError):
            peer.receive()
        eventually(lambda: queue.qsize() == 1, "what it held is back")


def test_the_answer_to_what_is_fatal_is_not_lost_to_a_reset(served: Serve) -> None:
    with Peer(served()) as peer:
        peer.socket.sendall(b"garbage!" * 4)
        with contextlib.suppress(ConnectionError):
            for _ in range(200):
                peer.socket.sendall(bytes(10_000))
                time.sleep(0.001)

        assert peer.receive()[1] == Status.BAD_MAGIC
        with pytest.raises(EOFError):
            peer.receive()


def test_a_client_that_lingers_after_its_end_is_closed(served: Serve) -> None:
    server = served()
    worker = psutil.Process(server.workers()[0])
    with Peer(server) as peer:
        peer.socket.sendall(b"garbage!" * 4)
        assert peer.ended()
        eventually(lambda: len(worker.net_connections("tcp")) == 1, "only the listener is left")


def test_a_reset_connection_gives_back_what_it_held(served: Serve, broker: shmq.Broker) -> None:
    server = served()
    queue = broker.create_queue("q", visibility_timeout=3600)
    queue.put(b"x")
    peer = Peer(server)
    assert peer.take("q").kind == Type.DELIVER

    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.socket.close()

    eventually(lambda: queue.qsize() == 1, "it is back")


def test_a_message_put_on_the_host_reaches_a_remote_consumer_that_waits(
    served: Serve, broker: shmq.Broker
) -> None:
    queue = broker.create_queue("q")
    with Peer(served(workers=2)) as peer:
        asked = peer.begin_to_take("q", FOREVER)
        peer.ok(Type.PING)
        queue.put(b"hello")

        found = peer.receive()

        assert (found.kind, found.id, found.payload[-5:]) == (Type.DELIVER, asked, b"hello")


def test_waiters_of_several_workers_and_of_the_host_share_what_comes(
    served: Serve, broker: shmq.Broker
) -> None:
    queue = broker.create_queue("q")
    server = served(workers=2)
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(Peer(server)) for _ in range(20)]
        for peer in peers:
            peer.begin_to_take("q", FOREVER)
            peer.ok(Type.PING)
        for number in range(20):
            queue.put(b"%02d" % number)

        assert sorted(peer.receive().payload[-2:] for peer in peers) == [
            b"%02d" % number for number in range(20)
        ]


def test_a_short_wait_ends_in_its_time(served: Serve, broker: shmq.Broker) -> None:
    broker.create_queue("q")
    with Peer(served()) as peer:
        peer.take("q", 1)
        began = time.monotonic()
        for _ in range(20):
            assert peer.take("q", 5).status == Status.QUEUE_EMPTY
        assert time.monotonic() - began >= 0.1


def test_the_deletion_of_a_queue_ends_its_waits(served: Serve, broker: shmq.Broker) -> None:
    broker.create_queue("q", dead_letter=None)
    with Peer(served()) as waiter:
        asked = waiter.begin_to_take("q", FOREVER)
        waiter.ok(Type.PING)

        broker.delete_queue("q")

        assert waiter.receive()[1:3] == (Status.NO_QUEUE, asked)
        assert waiter.create("q", dead_letter=None).status == Status.OK
        assert waiter.put("q").status == Status.OK


@pytest.mark.parametrize("size", [0, 1, 15, 16, 20])
def test_a_disconnect_within_a_frame_leaves_no_trace(
    served: Serve, broker: shmq.Broker, size: int
) -> None:
    server = served()
    queue = broker.create_queue("q")
    with Peer(server) as peer:
        peer.socket.sendall(frame(Type.PRODUCE, name_of("q") + b"\0x")[:size])
    with Peer(server) as peer:
        peer.ok(Type.PING)
    assert queue.stats().put == 0
