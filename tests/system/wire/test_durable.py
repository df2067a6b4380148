"""Answers that come once a message is on disk: the flag 0x02, byte for byte."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator

import pytest

import shmq
from tests.support.server import Server
from tests.support.waiting import eventually
from tests.support.writer_process import WriterProcess, running_writer
from tests.system.wire import frames
from tests.system.wire.client import Wire
from tests.system.wire.conftest import Serve
from tests.system.wire.frames import S, T, item

DURABLE = 0x02


@pytest.fixture(scope="module")
def server(serve: Serve) -> Iterator[Server]:
    """A server that keeps nothing on disk by itself."""
    with serve(workers=1, persist=False) as server:
        yield server


@pytest.fixture
def shared_server(server: Server) -> Server:
    """The one that the fixtures of this folder use."""
    return server


@pytest.fixture
def journal(make_queue: Callable[..., str]) -> str:
    """A queue with a journal, without a writer."""
    return make_queue(durability="journal", dead_letter=None)


@pytest.fixture
def writer_process(server: Server) -> Iterator[WriterProcess]:
    with running_writer(server.namespace) as writer_process:
        yield writer_process


def put(wire: Wire, queue: str, body: bytes = b"x", flags: int = DURABLE) -> int:
    return wire.post(T.PRODUCE, frames.produce(queue, body, None, flags))


@pytest.mark.prove
def test_the_answer_is_held_back_and_nothing_else(wire: Wire, journal: str, server: Server) -> None:
    first = put(wire, journal)
    wire.still_answers()
    assert wire.put(journal, b"plain") == 2
    (taken,) = wire.take(journal)
    assert taken.sequence == 1
    second = put(wire, journal)
    wire.still_answers()
    with running_writer(server.namespace):
        answers = [wire.receive(), wire.receive()]
    assert [(a.id, a.kind, a.status) for a in answers] == [
        (first, T.REPLY, S.OK),
        (second, T.REPLY, S.OK),
    ]
    assert [frames.read_u64s(a.payload) for a in answers] == [[1], [3]]


def test_a_batch_is_answered_once_all_of_it_is_on_disk(
    wire: Wire, journal: str, server: Server
) -> None:
    number = wire.post(
        T.PRODUCE_BATCH, frames.batch(journal, item(b"a"), item(b"b"), flags=DURABLE)
    )
    wire.still_answers()
    with running_writer(server.namespace):
        answer = wire.receive()
    assert (answer.id, answer.status) == (number, S.OK)
    assert answer.payload == frames.u32(2) + frames.u64(1)


def test_a_large_body_is_held_back_too(wire: Wire, journal: str, server: Server) -> None:
    number = put(wire, journal, os.urandom(1_000_000))
    wire.still_answers()
    with running_writer(server.namespace):
        answer = wire.receive()
    assert (answer.id, answer.status) == (number, S.OK)


@pytest.mark.parametrize("durability", ["memory", "snapshot"])
def test_without_a_journal_it_is_unsupported(
    wire: Wire, make_queue: Callable[..., str], durability: str
) -> None:
    queue = make_queue(durability=durability)
    payload = frames.produce(queue, b"x", None, DURABLE)
    assert wire.status(T.PRODUCE, payload) == S.UNSUPPORTED
    payload = frames.batch(queue, item(b"x"), flags=DURABLE)
    assert wire.status(T.PRODUCE_BATCH, payload) == S.UNSUPPORTED
    assert not wire.take(queue)


def test_refusals_keep_their_place_behind_held_answers(
    wire: Wire, journal: str, queue: str, server: Server
) -> None:
    ids = [put(wire, journal), put(wire, queue), put(wire, "nobody"), put(wire, journal)]
    wire.still_answers()
    with running_writer(server.namespace):
        answers = [wire.receive() for _ in ids]
    assert [answer.id for answer in answers] == ids
    statuses = [answer.status for answer in answers]
    assert statuses == [S.OK, S.UNSUPPORTED, S.NO_QUEUE, S.OK]


def test_the_option_of_a_queue_is_for_plain_puts(
    wire: Wire, make_queue: Callable[..., str], server: Server
) -> None:
    queue = make_queue(durability="journal", confirm="disk", dead_letter=None)
    ids = [put(wire, queue, flags=0), wire.post(T.PRODUCE_BATCH, frames.batch(queue, item(b"a")))]
    wire.still_answers()
    with running_writer(server.namespace):
        answers = [wire.receive() for _ in ids]
    assert [(answer.id, answer.status) for answer in answers] == [(each, S.OK) for each in ids]


def test_no_answer_is_wanted_and_none_comes(wire: Wire, journal: str, server: Server) -> None:
    wire.post(T.PRODUCE, frames.produce(journal, b"x", None, DURABLE), id=0)
    with running_writer(server.namespace):
        number = put(wire, journal)
        assert wire.receive().id == number
    wire.still_answers()


def test_a_queue_that_is_deleted_ends_the_wait(wire: Wire, journal: str) -> None:
    number = put(wire, journal)
    wire.still_answers()
    with Wire(wire.socket.getpeername()) as other:
        other.ok(T.DELETE, frames.name(journal))
    answer = wire.receive()
    assert (answer.id, answer.status) == (number, S.NO_QUEUE)


@pytest.mark.prove
def test_a_full_disk_is_no_space_and_takes_nothing(
    wire: Wire, journal: str, broker: shmq.Broker, writer_process: WriterProcess
) -> None:
    queue = broker.queue(journal)
    writer_process.follows(queue)
    first = put(wire, journal)  # once this is on disk, the writer does nothing by itself
    assert wire.receive().id == first
    for code, status in ((errno.ENOSPC, S.NO_SPACE), (errno.EIO, S.INTERNAL)):
        before = queue.stats().put
        writer_process.fail(code)
        held = put(wire, journal)
        eventually(lambda: queue.stats().journal_error is not None, "the disk has failed")
        with Wire(wire.socket.getpeername()) as other:
            assert other.status(T.PRODUCE, frames.produce(journal, b"x", None, DURABLE)) == status
            payload = frames.batch(journal, item(b"x"), flags=DURABLE)
            answer = other.ask(T.PRODUCE_BATCH, payload)
            assert (answer.status, answer.payload) == (status, bytes(12))
            assert other.put(journal, b"plain") == before + 2
        writer_process.mend()
        answer = wire.receive()
        assert (answer.id, answer.status) == (held, S.OK)
        eventually(lambda: queue.stats().journal_error is None, "the disk works")


def test_a_half_closed_client_has_its_answers(wire: Wire, journal: str, server: Server) -> None:
    number = put(wire, journal)
    wire.finish()
    with running_writer(server.namespace):
        assert [(a.id, a.status) for a in wire.rest()] == [(number, S.OK)]


def test_what_is_fatal_is_answered_last(wire: Wire, journal: str, server: Server) -> None:
    number = put(wire, journal)
    wire.send(b"GET / HTTP/1.1\r\n\r\n")
    with running_writer(server.namespace):
        answers = [(a.id, a.status) for a in wire.rest()]
    assert answers == [(number, S.OK), (0, S.BAD_MAGIC)]


def test_a_closed_connection_is_not_waited_for(
    wire: Wire, journal: str, broker: shmq.Broker, server: Server
) -> None:
    for _ in range(3):
        with Wire(wire.socket.getpeername()) as other:
            put(other, journal)
            other.still_answers()
            other.reset()
    with running_writer(server.namespace):
        number = put(wire, journal)
        assert wire.receive().id == number
    assert broker.queue(journal).stats().journal_synced == 4


@pytest.mark.prove
def test_more_than_may_be_held_wait_until_some_are_answered(
    wire: Wire, make_queue: Callable[..., str], server: Server
) -> None:
    queue = make_queue(durability="journal", dead_letter=None, capacity=70_000)
    count = 66_000
    request = frames.frame(T.PRODUCE, frames.produce(queue, b"", None, DURABLE), 7)
    wire.send(request * count)
    with Wire(wire.socket.getpeername()) as other:

        def depth() -> int:
            return int(frames.unpack(other.ok(T.STATS, frames.name(queue)))["depth"])

        eventually(lambda: depth() >= 65_536, "as many are taken as may be held")
        assert depth() < 65_536 + 64  # a run of puts is not broken off
    with running_writer(server.namespace):
        answers = [wire.receive() for _ in range(count)]
    assert [frames.read_u64s(a.payload)[0] for a in answers] == list(range(1, count + 1))


@pytest.mark.prove
def test_a_server_that_ends_waits_for_the_disk_a_while(serve: Serve) -> None:
    with serve(workers=1, persist=False, limits={"drain": 10.0}) as server:
        with Wire(server.address) as wire, shmq.connect(server.namespace) as broker:
            broker.create_queue("j", durability="journal", dead_letter=None)
            number = put(wire, "j")
            wire.still_answers()
            server.process.terminate()
            server.hears("draining")
            late = put(wire, "j")
            with running_writer(server.namespace):
                answers = [(a.id, a.status) for a in wire.rest()]
            assert answers == [(number, S.OK), (late, S.SHUTTING_DOWN)]
        assert server.ends() == 0
