"""A local process that is stopped inside a queue's critical section, and the server's requests."""

from __future__ import annotations

import contextlib
import secrets
import signal
import socket
import struct
from collections.abc import Iterator

import msgpack
import psutil
import pytest

import shmq
from shmq.protocol.messages.group import Join, MemberRequest
from shmq.protocol.opcodes import FOREVER, Status, Type
from tests.support.peer import Peer, name_of
from tests.support.server import Server, serve
from tests.support.stopped import locks_of_group, locks_of_queue
from tests.support.waiting import eventually

LARGE = b"x" * (64 << 10)


@pytest.fixture(scope="module")
def shared() -> Iterator[Server]:
    """One worker for all tests of this module."""
    with serve(f"test-{secrets.token_hex(6)}", workers=1) as server:
        yield server


@pytest.fixture
def broker(shared: Server) -> Iterator[shmq.Broker]:
    with shmq.connect(shared.namespace) as broker:
        yield broker


@pytest.fixture
def server(shared: Server, broker: shmq.Broker) -> Iterator[Server]:
    """The server, with the queues "held" and "free"; the test's process holds neither."""
    with broker.create_queue("held", arena_bytes=1 << 20), broker.create_queue("free"):
        pass
    yield shared
    for name in reversed(broker.queue_names()):
        broker.delete_queue(name)


@pytest.fixture
def stream(broker: shmq.Broker) -> Iterator[shmq.Stream]:
    """A stream, whose group "held" has a member."""
    with broker.create_stream("s", partitions=1) as made:
        yield made
    broker.delete_stream("s")


@contextlib.contextmanager
def held(server: Server, side: str = "gets") -> Iterator[None]:
    """A process is stopped while it holds a lock of the queue "held"; in the end it goes on."""
    lock = locks_of_queue(server.namespace, "held")[side]
    with lock.held_by_stopped() as process:
        yield
        process.send_signal(signal.SIGCONT)
        assert process.wait() == 0


@contextlib.contextmanager
def group_held(server: Server) -> Iterator[None]:
    """A process is stopped while it holds the lock of the group "held"."""
    (lock,) = locks_of_group(server.namespace, "held")
    with lock.held_by_stopped() as process:
        yield
        process.send_signal(signal.SIGCONT)
        assert process.wait() == 0


def of_member(member: int = 0, rest: bytes = b"") -> bytes:
    """The payload of a member's request."""
    return name_of("s") + MemberRequest("held", 0, member, rest).pack()


def join(peer: Peer) -> int:
    answer = peer.ok(Type.JOIN, of_member(rest=Join({"session_timeout": 3600.0}, "m").pack()))
    member: int = msgpack.unpackb(answer)["member"]
    return member


def goes_on(server: Server) -> None:
    """A connection of the same worker is answered, and can use another queue."""
    with Peer(server) as other:
        assert other.ok(Type.PING, b"there?") == b"there?"
        other.hello()
        assert other.put("free").status == Status.OK
        assert other.take("free").kind == Type.DELIVER
        assert b"depth" in other.ok(Type.STATS, name_of("free"))


@pytest.mark.prove
@pytest.mark.parametrize(
    ("side", "kind", "rest"),
    [
        ("puts", Type.PRODUCE, b"\0x"),
        ("gets", Type.PRODUCE, b"\0" + LARGE),
        ("puts", Type.PRODUCE_BATCH, struct.pack("!BIBIc", 0, 1, 0, 1, b"x")),
        ("gets", Type.CONSUME, struct.pack("!IIB", 1, 0, 0)),
        ("gets", Type.STATS, b""),
        ("puts", Type.PURGE, b""),
        ("gets", Type.PEEK, struct.pack("!I", 10)),
        ("puts", Type.REDRIVE, struct.pack("!I", FOREVER)),
    ],
    ids=lambda value: str(value)[:12] if isinstance(value, str) else repr(value)[:16],
)
def test_a_request_that_cannot_have_the_lock_is_busy_and_delays_no_other(
    server: Server, side: str, kind: Type, rest: bytes
) -> None:
    with Peer(server) as peer:
        assert peer.put("held").status == Status.OK
        with held(server, side):
            asked = peer.post(kind, name_of("held") + rest)
            goes_on(server)
            answer = peer.receive()
            assert (answer.id, answer.status) == (asked, Status.BUSY)
            goes_on(server)
        assert peer.put("held").status == Status.OK


def test_what_waits_behind_a_parked_request_keeps_its_order(server: Server) -> None:
    with Peer(server) as peer:
        assert peer.put("held").status == Status.OK
        with held(server, "puts"):
            asked = [peer.post(Type.PRODUCE, name_of("held") + b"\0%d" % n) for n in range(200)]
            asked += [peer.post(Type.PRODUCE, name_of("free") + b"\0x"), peer.post(Type.PING)]
            answers = [peer.receive() for _ in asked]
        assert [answer.id for answer in answers] == asked
        assert {answer.status for answer in answers[:200]} == {Status.BUSY}
        assert answers[200].status == answers[201].status == Status.OK
        assert peer.put("held").status == Status.OK


def test_a_lock_that_is_free_in_time_is_only_waited_for(server: Server) -> None:
    with Peer(server) as peer:
        assert peer.put("held").status == Status.OK
        lock = locks_of_queue(server.namespace, "held")["puts"]
        with lock.held_by_stopped() as process:
            asked = [peer.post(Type.PRODUCE, name_of("held") + b"\0x") for _ in range(100)]
            process.send_signal(signal.SIGCONT)
            answers = [peer.receive() for _ in asked]
            process.wait()
    statuses = {answer.status for answer in answers}
    assert statuses <= {Status.OK, Status.BUSY}
    assert [answer.id for answer in answers] == asked


def test_a_queue_that_is_held_can_be_attached_to_once_it_is_free(server: Server) -> None:
    """No connection has used it before: it is the attaching that waits."""
    with Peer(server) as peer:
        with held(server):
            asked = peer.begin_to_take("held")
            goes_on(server)
            answer = peer.receive()
            assert (answer.id, answer.status) == (asked, Status.BUSY)
        assert peer.put("held").status == Status.OK


def test_the_leases_of_a_connection_that_ends_meanwhile_go_back_afterwards(
    server: Server, broker: shmq.Broker
) -> None:
    queue = broker.queue("held")
    queue.put_many([b"x"] * 10 + [LARGE])
    with Peer(server) as peer:
        peer.begin_to_take("held", most=11)
        assert {peer.receive().kind for _ in range(11)} == {Type.DELIVER}
        assert queue.stats().in_flight == 11
        with held(server):
            peer.socket.close()
            goes_on(server)
    eventually(lambda: queue.stats().in_flight == 0, "the leases are back")
    assert queue.stats().depth == 11
    queue.check()  # type: ignore[attr-defined]


def test_a_settlement_of_many_goes_on_where_it_was(server: Server, broker: shmq.Broker) -> None:
    queue = broker.queue("held")
    queue.put_many([b"x"] * 200)
    with Peer(server) as peer:
        peer.begin_to_take("held", most=200)
        receipts = [peer.receive().payload[8:16] for _ in range(200)]
        with held(server):
            bad = struct.pack("!Q", 12345)
            asked = peer.post(Type.ACK, name_of("held") + bad + b"".join(receipts))
            goes_on(server)
            answer = peer.receive()
            assert (answer.id, answer.status) == (asked, Status.BUSY)
        again = peer.ask(Type.ACK, name_of("held") + bad + b"".join(receipts))
        assert (again.status, again.payload) == (Status.LEASE_EXPIRED, bad)
    assert queue.stats().acked == 200


def test_a_waiting_consumer_gets_messages_when_the_queue_is_free_again(
    server: Server, broker: shmq.Broker
) -> None:
    with Peer(server) as peer, Peer(server) as filtered:
        assert peer.put("free").status == Status.OK
        with held(server):
            peer.begin_to_take("held", FOREVER)
            where = b"size = 1"
            filtered.post(
                Type.CONSUME,
                name_of("held") + struct.pack("!IIBH", 1, FOREVER, 4, len(where)) + where,
            )
            goes_on(server)
        broker.queue("held").put_many([b"1", b"2"])
        kinds = {peer.receive().kind, filtered.receive().kind}
    assert kinds <= {Type.DELIVER, Type.REPLY}


@pytest.mark.parametrize("reset", [True, False], ids=["reset", "ended"])
def test_a_connection_that_ends_while_its_group_is_held_is_closed_and_leaves_afterwards(
    server: Server, stream: shmq.Stream, reset: bool
) -> None:
    (pid,) = server.workers()
    worker = psutil.Process(pid)
    others = len(worker.net_connections())
    peer = Peer(server)
    join(peer)
    group = stream.group("held")
    assert len(group.members()) == 1
    with group_held(server):
        linger = struct.pack("ii", reset, 0)
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        peer.socket.close()
        eventually(lambda: len(worker.net_connections()) == others, "its socket is closed")
    eventually(lambda: group.members() == [], "it has left the group")
    assert not server.said("internal error")


def test_a_member_that_cannot_leave_stays_one(server: Server, stream: shmq.Stream) -> None:
    with Peer(server) as peer:
        member = join(peer)
        with group_held(server):
            assert peer.status(Type.LEAVE, of_member(member)) == Status.BUSY
        assert peer.ok(Type.LEAVE, of_member(member)) == b""
    assert stream.group("held").members() == []


@pytest.mark.prove
def test_the_keeper_tends_the_others(server: Server, broker: shmq.Broker) -> None:
    with held(server), broker.create_queue("short", ttl=0.05) as queue:
        queue.put(b"x")
        dead_letter_queue = broker.queue("short.dlq")
        eventually(lambda: dead_letter_queue.qsize() == 1, "the message is a dead letter")
    assert not server.said("died")
