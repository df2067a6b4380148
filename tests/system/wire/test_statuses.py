"""Each row of the table of statuses, produced by a request."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable

import pytest

import shmq
from tests.support.layout import place_of, value_of
from tests.support.namespaces import SHM
from tests.support.processes import why_not
from tests.support.server import Server
from tests.system.wire import frames
from tests.system.wire.client import Wire
from tests.system.wire.conftest import Serve
from tests.system.wire.frames import FOREVER, UNUSED, Frame, S, T, frame

#: What a command begins with that has a /dev/shm of its own, of a megabyte.
SMALL_SHM = (
    *("unshare", "--map-root-user", "--mount", "sh", "-c"),
    'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$0" "$@"',
)

WHY_NOT = why_not(*SMALL_SHM, "true")


def _full(wire: Wire) -> Frame:
    wire.ok(T.PRODUCE_BATCH, frames.batch("q", *[frames.item(b"x")] * 3))
    return wire.ask(T.PRODUCE, frames.produce("q", b"one too many"))


def _twice(wire: Wire) -> Frame:
    wire.put("q", b"", {"dedupe": "a"})
    return wire.ask(T.PRODUCE, frames.produce("q", b"", {"dedupe": "a"}))


def _sent(wire: Wire, data: bytes) -> Frame:
    wire.send(data)
    return wire.receive()


#: What is answered by a server that needs nothing special.
ORDINARY: dict[S, Callable[[Wire], Frame]] = {
    S.OK: lambda wire: wire.ask(T.PING),
    S.QUEUE_FULL: _full,
    S.QUEUE_EMPTY: lambda wire: wire.ask(T.CONSUME, frames.consume("q")),
    S.NO_QUEUE: lambda wire: wire.ask(T.STATS, frames.name("absent")),
    S.QUEUE_EXISTS: lambda wire: wire.ask(T.CREATE, frames.create("q", capacity=9)),
    S.BAD_REQUEST: lambda wire: wire.ask(T.STATS, b""),
    S.TOO_LARGE: lambda wire: wire.ask(T.PRODUCE, frames.produce("q", bytes(101))),
    S.LEASE_EXPIRED: lambda wire: wire.ask(T.ACK, frames.receipts("q", 5)),
    S.DUPLICATE: _twice,
    S.UNSUPPORTED: lambda wire: wire.ask(UNUSED),
    S.FORBIDDEN: lambda wire: wire.ask(T.DELETE, frames.name("q")),
    S.BAD_MAGIC: lambda wire: _sent(wire, frame(T.PING, magic=0)),
    S.BAD_VERSION: lambda wire: _sent(wire, frame(T.PING, version=2)),
    S.FRAME_TOO_LARGE: lambda wire: _sent(wire, frame(T.PING, length=1 << 31)),
    S.UNAUTHORIZED: lambda wire: wire.ask(T.HELLO, frames.pack({"client": "c", "token": "x"})),
    S.TIMED_OUT: lambda wire: wire.receive(),
}


@pytest.mark.prove
@pytest.mark.parametrize("status", ORDINARY)
def test_each_status_is_the_answer_to_something(serve: Serve, status: S) -> None:
    tokens = {"t" * 40: {"produce": ["q"], "consume": ["*"]}}
    limits = {"idle": 2.0 if status == S.TIMED_OUT else 300.0}
    with serve(workers=1, tokens=tokens, limits=limits) as server:
        with shmq.connect(server.namespace) as broker:
            broker.create_queue(
                "q", capacity=3, max_message_bytes=100, dedupe_window=60, dead_letter=None
            ).close()
        if status == S.QUEUE_EXISTS:
            server.restart(tokens={"t" * 40: {"admin": ["q"]}}, limits=limits)
        with Wire(server.address) as wire:
            wire.ok(T.HELLO, frames.pack({"client": "c", "token": "t" * 40}))

            answer = ORDINARY[status](wire)

            assert answer.status == status
            assert answer.kind == T.REPLY
            if status >= frames.FATAL:
                assert wire.rest() == []
            else:
                wire.still_answers()


def test_the_tests_of_this_file_produce_every_status_but_those_of_streams() -> None:
    streams = {S.OUT_OF_RANGE, S.FENCED, S.OUT_OF_SEQUENCE, S.NO_GROUP, S.DAMAGED}

    assert {*ORDINARY, S.NO_SPACE, S.SHUTTING_DOWN, S.INTERNAL, S.BUSY} == set(S) - streams


@pytest.mark.prove
@pytest.mark.skipif(bool(WHY_NOT), reason=f"no /dev/shm can be mounted here: {WHY_NOT}")
def test_no_space_is_answered_when_shared_memory_is_full_and_takes_nothing(serve: Serve) -> None:
    with serve(workers=1, before=SMALL_SHM) as server, Wire(server.address) as wire:
        wire.create("q", capacity=100_000)
        taken = 0
        while (answer := wire.ask(T.PRODUCE, frames.produce("q", bytes(1000)))).status == S.OK:
            taken += 1

        assert (answer.kind, answer.status) == (T.REPLY, S.NO_SPACE)
        assert taken > 3
        payload = frames.batch("q", *[frames.item(bytes(1000))] * 100)
        stopped = wire.ask(T.PRODUCE_BATCH, payload)
        assert stopped.status == S.NO_SPACE
        taken += int.from_bytes(stopped.payload[:4], "big")
        assert wire.status(T.CREATE, frames.create("more")) == S.NO_SPACE
        assert "more" not in wire.names()
        assert wire.counts("q") == (taken, 0, 0)
        found = wire.take_all("q")
        assert len(found) == taken
        assert wire.settle("q", *(each.receipt for each in found)) == []
        wire.put("q", bytes(1000))


@pytest.mark.prove
@pytest.mark.parametrize("known", [True, False], ids=["attached", "not attached"])
@pytest.mark.parametrize("member", ["state", "slots_made"])
def test_internal_is_answered_for_a_damaged_queue_and_the_others_go_on(
    serve: Serve, member: str, known: bool
) -> None:
    with serve(workers=1) as server, Wire(server.address) as wire:
        wire.create("sound")
        with shmq.connect(server.namespace) as broker:
            broker.create_queue("damaged", dead_letter=None).close()
        if known:
            wire.put("damaged")
        _damage(server, "damaged", member)

        for kind, payload in (
            (T.PRODUCE, frames.produce("damaged")),
            (T.PRODUCE_BATCH, frames.batch("damaged", frames.item(b""))),
            (T.CONSUME, frames.consume("damaged")),
        ):
            assert wire.status(kind, payload) == S.INTERNAL

        wire.put("sound", b"fine")
        assert wire.take_one("sound").body == b"fine"
        assert server.log.count("the segment of queue 'damaged' is damaged") >= 3
        wire.ok(T.DELETE, frames.name("damaged"))


def _damage(server: Server, queue: str, member: str) -> None:
    """What recovery does to the state if slots contradict each other; or more slots than can be."""
    wrong = value_of("SHMQ_BROKEN" if member == "state" else "SHMQ_MAX_CAPACITY")
    with (SHM / f"shmq@{server.namespace}@{queue}").open("r+b") as file:
        file.seek(place_of(member).start)
        file.write(wrong.to_bytes(4, "little"))


@pytest.mark.prove
def test_new_requests_are_answered_with_shutting_down_while_the_server_drains(serve: Serve) -> None:
    with serve(workers=2, limits={"drain": 3}) as server:
        with Wire(server.address) as wire, Wire(server.address) as waiter:
            wire.create("q", visibility_timeout=3600)
            wire.put("q", b"held")
            wire.take_one("q")
            waits = waiter.post(T.CONSUME, frames.consume("q", 1, FOREVER))
            waiter.still_answers()

            os.kill(server.pid, signal.SIGTERM)

            statuses = []
            with contextlib.suppress(EOFError, ConnectionError):
                for _ in range(10_000):
                    statuses.append(wire.ask(T.PRODUCE, frames.produce("q")).status)
                    time.sleep(0.001)
            assert S.SHUTTING_DOWN in statuses
            assert set(statuses) <= {S.OK, S.SHUTTING_DOWN}
            assert sorted(statuses) == statuses
            ended = waiter.rest()
            assert [each.id for each in ended] == [waits]
            assert server.ends() == 0
        with shmq.connect(server.namespace) as broker, broker.queue("q") as queue:
            assert queue.stats().in_flight == 0
            assert queue.stats().depth == 1 + statuses.count(S.OK)
