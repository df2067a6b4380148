"""Bad input and bad peers: nothing hangs, memory stays bounded, other clients go on."""

from __future__ import annotations

import contextlib
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from tests.support.processes import ROOT
from tests.support.server import Server
from tests.support.waiting import eventually
from tests.system.wire import frames
from tests.system.wire.client import Address, Wire
from tests.system.wire.conftest import Serve
from tests.system.wire.frames import FOREVER, UNUSED, S, T, frame
from tests.system.wire.test_frames import REQUESTS

MIB = 1 << 20
MakeQueue = Callable[..., str]


@pytest.fixture(scope="module")
def patient(serve: Serve) -> Iterator[Server]:
    """A server with one worker, whose memory is watched."""
    with serve(workers=1, limits={"frame": 2.0}) as server:
        yield server


def memory(server: Server) -> int:
    """What all processes of the server have of their own, in bytes: queues are not counted."""
    found = [psutil.Process(pid).memory_info() for pid in (server.pid, *server.children())]
    return sum(each.rss - each.shared for each in found)


# --- garbage ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_garbage_is_answered_by_one_fatal_frame_and_a_close(address: Address, seed: int) -> None:
    chance = random.Random(seed)
    with Wire(address) as wire:
        with contextlib.suppress(ConnectionError):
            wire.send(chance.randbytes(chance.randrange(16, 100_000)))

        answers = wire.rest()

    assert [(each.status, each.id) for each in answers] == [(S.BAD_MAGIC, 0)]


@pytest.mark.parametrize("type", REQUESTS, ids=lambda each: each.name)
def test_a_client_that_disconnects_within_a_frame_changes_nothing(
    address: Address, wire: Wire, queue: str, type: T
) -> None:
    wire.put(queue, b"there")
    before = wire.stats(queue)
    whole = frame(type, frames.request(type, queue), 77)
    for at in range(1, len(whole)):
        with Wire(address) as victim:
            victim.send(whole[:at])
            if at % 2:
                victim.reset()
    after = wire.stats(queue)

    for key in ("depth", "delayed", "in_flight", "put", "acked", "redelivered"):
        assert before[key] == after[key]
    assert [each.body for each in wire.take_all(queue)] == [b"there"]


@pytest.mark.parametrize("rest", [1, 1000, 100_000, 3 * MIB])
def test_a_large_message_that_never_comes_whole_is_no_message(
    address: Address, wire: Wire, queue: str, rest: int
) -> None:
    whole = frame(T.PRODUCE, frames.produce(queue, bytes(4 * MIB)))
    for reset in (False, True):
        with Wire(address) as victim:
            victim.send(whole[:-rest])
            victim.reset() if reset else victim.close()

    def nothing_is_kept() -> bool:
        found = wire.stats(queue)
        return (found["depth"], found["arena_used"]) == (0, 0)

    eventually(nothing_is_kept, "the space of what never came whole is free again")
    wire.put(queue, bytes(4 * MIB))


# --- peers that do not read, or not fast ------------------------------------------------


def stuff(wire: Wire, data: bytes, most: int) -> int:
    """Send without reading until nothing more is taken, or so much was; how much."""
    wire.socket.settimeout(1.0)
    sent = 0
    with contextlib.suppress(TimeoutError, ConnectionError):
        while sent < most:
            sent += wire.socket.send(data)
    return sent


@pytest.mark.prove
@pytest.mark.parametrize(
    "request_",
    [
        frame(T.PING, bytes(64)),
        frame(T.LIST),
        frame(T.STATS, frames.name("hostile")),
        frame(T.STATS, frames.name("absent")),
        frame(UNUSED),
        frame(T.CONSUME, frames.consume("hostile", 1000, 0)),
        frame(T.ACK, frames.receipts("hostile", *range(1000))),
    ],
    ids=["PING", "LIST", "STATS", "NO_QUEUE", "UNSUPPORTED", "CONSUME", "ACK"],
)
def test_a_client_that_never_reads_is_not_buffered_without_bound_and_others_go_on(
    patient: Server, request_: bytes
) -> None:
    with Wire(patient.address) as wire, Wire(patient.address) as silent:
        wire.create("hostile", dead_letter=None)
        for _ in range(20):
            wire.put("hostile", bytes(10_000))
        before = memory(patient)

        stuff(silent, request_ * 1000, 64 * MIB)

        assert memory(patient) - before < 32 * MIB
        wire.still_answers()
        silent.close()
        wire.ok(T.PURGE, frames.name("hostile"))


def test_a_subscriber_that_never_reads_is_not_buffered_without_bound(patient: Server) -> None:
    with Wire(patient.address) as wire, Wire(patient.address) as silent:
        wire.create("stream", dead_letter=None, arena_bytes=128 * MIB)
        silent.subscribe("stream", 0xFFFFFFFF)
        before = memory(patient)

        for _ in range(100):
            wire.put("stream", bytes(MIB))

        assert memory(patient) - before < 32 * MIB
        silent.close()
        with Wire(patient.address) as another:
            found = 0
            while found < 100:
                delivery = another.take_one("stream")
                another.settle("stream", delivery.receipt)
                found += 1


@pytest.mark.prove
def test_a_client_that_reads_nothing_for_too_long_is_closed_and_what_it_held_is_back(
    patient: Server,
) -> None:
    with Wire(patient.address) as wire, Wire(patient.address) as silent:
        wire.create("stalled", dead_letter=None, visibility_timeout=3600, arena_bytes=128 * MIB)
        for _ in range(40):
            wire.put("stalled", bytes(MIB))
        silent.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        silent.post(T.SUBSCRIBE, frames.subscribe("stalled", 1000))

        found = 0
        while found < 40:
            wire.settle("stalled", wire.take_one("stalled", 20_000).receipt)
            found += 1


def test_partial_frames_of_many_connections_are_kept_in_bounded_memory(patient: Server) -> None:
    before = memory(patient)
    with contextlib.ExitStack() as stack, Wire(patient.address) as wire:
        wire.create("partial", dead_letter=None)
        for _ in range(100):
            each = stack.enter_context(Wire(patient.address))
            each.send(frame(T.PRODUCE_BATCH, bytes(1000), length=16 * MIB))
        wire.still_answers()
        assert memory(patient) - before < 32 * MIB


@pytest.mark.prove
def test_connections_that_come_and_go_leave_no_memory_behind(patient: Server) -> None:
    def visit(times: int) -> None:
        for n in range(times):
            with Wire(patient.address) as wire:
                wire.put("visits", bytes(100))
                wire.subscribe("visits", 10)
                wire.post(T.CONSUME, frames.consume("visits", 1, FOREVER))
                if n % 2:
                    wire.reset()

    with Wire(patient.address) as wire:
        wire.create("visits", dead_letter=None, max_deliveries=None)
        visit(200)
        before = memory(patient)
        visit(1000)
        assert memory(patient) - before < 4 * MIB
        wire.ok(T.DELETE, frames.name("visits"))


def annoy(address: Address, chance: random.Random, queue: str) -> None:
    """One connection with bad intentions."""
    with contextlib.suppress(OSError), Wire(address) as bad:
        bad.socket.settimeout(0.2)
        bad.send(
            chance.choice(
                [
                    chance.randbytes(1000),
                    frame(T.PRODUCE, b"", length=0xFFFFFFFF),
                    frame(T.PING, b"half")[:-2],
                    frame(T.CONSUME, frames.consume(queue, 10, 0)) * 100,
                ]
            )
        )
        if chance.random() < 0.5:
            bad.reset()


@pytest.mark.prove
def test_others_go_on_beside_a_flood_of_hostile_connections(
    address: Address, wire: Wire, make_queue: MakeQueue
) -> None:
    queue, theirs = make_queue(), make_queue()
    ended = threading.Event()

    def flood(seed: int) -> None:
        chance = random.Random(seed)
        while not ended.is_set():
            annoy(address, chance, theirs)

    threads = [threading.Thread(target=flood, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    try:
        end = time.monotonic() + 3
        turns = 0
        while time.monotonic() < end or turns <= 10:
            wire.put(queue, b"honest")
            for delivery in wire.take(queue, 1, 10_000):
                wire.settle(queue, delivery.receipt)
            turns += 1
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def test_a_hundred_thousand_waits_of_one_connection_stop_no_other(
    address: Address, wire: Wire, make_queue: MakeQueue
) -> None:
    queue = make_queue()
    with Wire(address) as waiting:
        for _ in range(100):
            waiting.send(frame(T.CONSUME, frames.consume(queue, 1, FOREVER), 9) * 1000)
        last = waiting.post(T.PING)
        refused = 0
        while (answer := waiting.receive()).id != last:
            assert answer.status == S.BAD_REQUEST
            refused += 1
        assert refused < 100_000
        for _ in range(100):
            wire.put(queue)
    wire.put(queue, b"for who lives")
    assert wire.take_one(queue).deliveries >= 1


# --- many ------------------------------------------------------------------------------

#: Opens so many connections that wait, tells when they are there, and ends with its input.
_CONNECTIONS = """
import json, resource, socket, sys
host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 100), hard))
from tests.system.wire.frames import T, frame
from tests.system.wire import frames
opened = []
for n in range(count):
    each = socket.create_connection((host, port), timeout=60)
    each.sendall(frame(T.PING, b"", 7))
    opened.append(each)
for each in opened:
    assert len(each.recv(16, socket.MSG_WAITALL)) == 16
print("there", flush=True)
sys.stdin.readline()
for each in opened[: count // 10]:
    each.sendall(frame(T.PING, b"", 8))
    assert len(each.recv(16, socket.MSG_WAITALL)) == 16
print("alive", flush=True)
sys.stdin.readline()
"""


@pytest.mark.prove
def test_ten_thousand_idle_connections_cost_little_and_delay_no_other(serve: Serve) -> None:
    count = 10_000
    limits = {"connections": count + 10}
    with serve(workers=2, limits=limits) as server, Wire(server.address) as wire:
        wire.create("q")
        before = memory(server)
        command = [sys.executable, "-c", _CONNECTIONS, *map(str, server.address), str(count)]
        with subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == "there\n"
            each = (memory(server) - before) / count
            for n in range(100):
                wire.put("q", b"%d" % n)
                assert wire.settle("q", wire.take_one("q").receipt) == []
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "alive\n"
        wire.still_answers()
    assert each < 20 * 1024, f"{each:.0f} bytes for each idle connection"


@pytest.mark.prove
def test_one_connection_more_than_allowed_is_closed_and_the_others_stay(serve: Serve) -> None:
    with serve(workers=1, limits={"connections": 5}) as server, contextlib.ExitStack() as stack:
        inside = [stack.enter_context(Wire(server.address)) for _ in range(5)]
        for each in inside:
            each.still_answers()
        with Wire(server.address) as late, contextlib.suppress(ConnectionError):
            late.post(T.PING)
            assert all(each.status != S.OK for each in late.rest())
        for each in inside:
            each.still_answers()
        inside[0].close()

        def one_is_let_in() -> bool:
            with Wire(server.address) as again, contextlib.suppress(OSError, EOFError):
                return again.ok(T.PING) == b""
            return False

        eventually(one_is_let_in, "a place that is free again is given to another")


@pytest.mark.prove
def test_what_one_connection_may_hold_unsettled_is_limited(serve: Serve) -> None:
    limits = {"unsettled_messages": 10, "unsettled_bytes": 50_000}
    with serve(workers=1, limits=limits) as server, Wire(server.address) as wire:
        wire.create("many")
        wire.create("large")
        for n in range(20):
            wire.put("many", b"%d" % n)
            wire.put("large", bytes(20_000))
        subscription = wire.subscribe("many", 1000)
        held = [wire.delivered(subscription) for _ in range(10)]
        wire.still_answers()

        wire.settle("many", held[0].receipt)
        assert wire.delivered(subscription).body == b"10"
        with Wire(server.address) as another:
            other = another.subscribe("large", 1000)
            for _ in range(2):
                another.delivered(other)
            assert wire.counts("large")[2] in {2, 3}
