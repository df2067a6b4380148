"""What streams in this host's shared memory have beside the contract."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

import shmq
from shmq.api.names import SHM
from shmq.client.local.retention_hold import RetentionHold, drop_dead
from shmq.client.local.stream import LocalStream
from shmq.disk.storage.paths import partition_directory
from shmq.host.namespace.namespace import Namespace
from shmq.model.codec.compression import compressor
from shmq.native import _stream
from tests.conformance.tools import in_thread, outcome

FORK = multiprocessing.get_context("fork")


@pytest.fixture
def stream(broker: shmq.Broker) -> LocalStream:
    """A stream of one small partition."""
    return cast(LocalStream, broker.create_stream("events", 1, ring_bytes=64 << 10))


def fill(stream: LocalStream) -> int:
    """Append until there is not enough room, or the first record is gone; the last offset."""
    offset = 0
    for _ in range(100):
        offset = stream.append(b"x" * 8000).offset
    return offset


def test_a_view_is_of_the_ring_itself_and_says_when_it_is_overtaken(stream: LocalStream) -> None:
    stream.append_many([b"abc", b"defg"])
    records = stream.read(0, 0, view=True)

    assert [bytes(view) for view in records.values()] == [b"abc", b"defg"]
    assert records[1].value.readonly
    records.check()
    fill(stream)
    with pytest.raises(shmq.OffsetOutOfRange):
        records.check()


def test_a_view_that_was_overtaken_has_no_records_when_asked_again(stream: LocalStream) -> None:
    stream.append_many([b"abc"] * 5)
    records = cast(_stream.Records, stream.read(0, 0, view=True))
    fill(stream)
    for _ in range(3):
        with pytest.raises(shmq.OffsetOutOfRange):
            records[4]
        with pytest.raises(shmq.OffsetOutOfRange):
            records.select([True] * 5)


def test_what_is_pinned_is_not_overwritten_until_it_is_released(stream: LocalStream) -> None:
    stream.append(b"abc")
    with stream.read(0, 0, view=True, pin=True) as records:
        with pytest.raises(shmq.Full, match="pinned"):
            fill(stream)
        assert bytes(records[0].value) == b"abc"
        assert stream.earliest(0) == 0
    fill(stream)
    assert stream.earliest(0) > 0


def test_a_dead_process_pins_nothing(stream: LocalStream) -> None:
    stream.append(b"abc")

    def pin_and_die() -> None:
        kept = stream.read(0, 0, view=True, pin=True)
        os.kill(os.getpid(), signal.SIGKILL)
        kept.release()

    run_to_its_end(pin_and_die)
    assert len(stream.logs[0].holders()) == 1
    fill(stream)
    assert stream.earliest(0) > 0
    assert stream.logs[0].holders() == []


@pytest.mark.prove
def test_a_child_of_a_fork_drops_none_of_its_parents_pins(stream: LocalStream) -> None:
    stream.append(b"abc")
    kept = [stream.read(0, 0, view=True, pin=True) for _ in range(2)]

    def drop() -> None:
        kept[0].release()
        kept.clear()
        gc.collect()

    assert run_to_its_end(drop) == 0
    assert len(stream.logs[0].holders()) == 2
    for records in kept:
        records.release()
    assert stream.logs[0].holders() == []


def test_in_a_child_of_a_fork_views_are_right_for_as_long_as_the_parent_pins_them(
    stream: LocalStream,
) -> None:
    stream.append(b"abc")
    kept = stream.read(0, 0, view=True, pin=True)

    def look() -> None:
        kept.check()
        stream.logs[0].drop(0)  # as the parent does
        fill(stream)
        with pytest.raises(shmq.OffsetOutOfRange):
            kept.check()

    assert run_to_its_end(look) == 0


def test_a_pin_of_nothing_ends_once(stream: LocalStream) -> None:
    nothing = stream.read(0, 0, view=True, pin=True)
    stream.append(b"abc")
    with stream.read(0, 0, view=True, pin=True):
        del nothing
        gc.collect()
        assert len(stream.logs[0].holders()) == 1


def test_a_look_for_dead_processes_drops_nothing_of_their_successors(
    stream: LocalStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, nobody = stream.logs[0], 1 << 40
    log.hold(0, nobody)
    stream.namespace.processes.own_number()  # or no process can tell which ones live

    overtaken = Namespace(stream.namespace.name)

    def is_alive(number: int) -> bool:
        """While it looks, another process drops the hold, and a third one takes its place."""
        drop_dead(stream.namespace, log)
        log.hold(0, tag=7)
        return stream.namespace.processes.is_alive(number)

    monkeypatch.setattr(overtaken.processes, "is_alive", is_alive)
    drop_dead(overtaken, log)

    assert log.holders() == [(0, 0, 7, False)]


def test_where_a_hold_fails_halfway_nothing_is_held(broker: shmq.Broker, tmp_path: Path) -> None:
    stream = cast(
        LocalStream, broker.create_stream("kept", 2, overflow="block", durability="journal")
    )
    files = tmp_path / partition_directory("kept", stream.identity, 1)
    files.parent.mkdir(parents=True)
    files.touch()  # it should be a directory
    stream.namespace.roles.become_writer(tmp_path)
    held = RetentionHold(stream)

    with pytest.raises(shmq.ShmqError, match="the files of stream 'kept' cannot be read"):
        held.take({0: 0, 1: 0})

    assert held.is_empty
    assert [log.holders() for log in stream.logs] == [[], []]
    stream.namespace.roles.release_writer()


def test_an_append_waits_for_a_blocking_reader(broker: shmq.Broker) -> None:
    stream = cast(
        LocalStream, broker.create_stream("blocking", 1, ring_bytes=64 << 10, overflow="block")
    )
    log = stream.logs[0]
    cursor = log.hold(0)
    with pytest.raises(shmq.Full):
        for _ in range(100):
            stream.append(b"x" * 8000, block=False)
    latest = stream.latest(0)
    with pytest.raises(shmq.Full):
        stream.append(b"x" * 8000, timeout=0.01)
    waiting = in_thread(stream.append, b"x" * 8000)
    log.move(cursor, latest)
    assert outcome(waiting).offset == latest
    log.drop(cursor)


def test_a_subscriber_takes_the_places_of_the_dead_and_no_others(broker: shmq.Broker) -> None:
    stream = cast(LocalStream, broker.create_stream("crowded", 1, overflow="block"))
    nobody = 1 << 40
    for _ in range(255):
        stream.logs[0].hold(0)
    stream.logs[0].hold(0, nobody)

    with stream.subscribe(policy="block"):
        with pytest.raises(shmq.NoSpace, match=r"partition 0 of stream 'crowded'.*256"):
            stream.subscribe(policy="block")
        assert len(stream.logs[0].holders()) == 256
    stream.subscribe(policy="block").close()


def test_a_child_of_a_fork_appends_and_reads_on(stream: LocalStream) -> None:
    stream.append(b"parent")

    def append() -> None:
        assert stream.read(0, 0).values() == [b"parent"]
        stream.append(b"child")

    assert run_to_its_end(append) == 0
    assert stream.read(0, 0).values() == [b"parent", b"child"]


def test_a_handle_that_is_pickled_attaches_where_it_is_unpickled(stream: LocalStream) -> None:
    other = pickle.loads(pickle.dumps(stream))
    stream.append(b"here")

    assert other.read(0, 0).values() == [b"here"]
    assert other.identity == stream.identity


def test_a_wait_that_is_interrupted_ends_at_once(stream: LocalStream) -> None:
    def on_alarm(*_: object) -> None:
        raise InterruptedError

    before = signal.signal(signal.SIGALRM, on_alarm)
    try:
        with pytest.raises(InterruptedError):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            stream.read(0, 0, block=True)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_what_was_compressed_together_is_read_one_by_one(stream: LocalStream) -> None:
    block = _stream.pack_records([b"a", b"b", b"c"], keys=["k", None, None])
    packed = compressor("lz4")(block)
    done = stream.append_block(
        packed, partition=0, count=3, compression="lz4", raw_bytes=len(block)
    )
    stream.append(b"d")

    assert (done.first, done.count) == (0, 3)
    assert stream.read(0, 0).values() == [b"a", b"b", b"c", b"d"]
    assert [(it.offset, it.key, it.value) for it in stream.read(0, 1, 2)] == [
        (1, None, b"b"),
        (2, None, b"c"),
    ]
    raw, next_offset = stream.read_raw(0, 1)
    salt = stream.identity & 0xFFFFFFFF
    assert _stream.records_of(raw, 0, 1, salt=salt).values() == [b"b", b"c", b"d"]
    assert next_offset == 4


def test_bytes_that_are_no_records_are_told(stream: LocalStream) -> None:
    stream.append(b"abc")
    raw, _ = stream.read_raw(0, 0)
    salt = stream.identity & 0xFFFFFFFF

    assert _stream.records_of(raw, 0, 0, salt=salt).values() == [b"abc"]
    for at in range(len(raw)):
        wrong = bytearray(raw)
        wrong[at] ^= 1
        with pytest.raises(shmq.ShmqError):
            _stream.records_of(bytes(wrong), 0, 0, salt=salt)


def test_an_empty_stream_takes_little_memory(broker: shmq.Broker, namespace: str) -> None:
    broker.create_stream("empty", 4)
    used = sum(
        path.stat().st_blocks * 512 for path in SHM.iterdir() if f"@{namespace}@empty" in path.name
    )

    assert used < 4 * 64 << 10


@pytest.mark.debris
def test_what_a_maker_that_died_has_left_is_cleared_away(
    broker: shmq.Broker, namespace: str
) -> None:
    broker.create_stream("half", 2)
    control = SHM / f"stream.shmq@{namespace}@half"
    with control.open("r+b") as file:
        file.write(bytes(8))

    with pytest.raises(shmq.NoSuchStream):
        broker.stream("half")
    assert files_of(namespace) == []
    assert broker.create_stream("half", 1).append(b"x").offset == 0


def test_a_segment_with_another_mode_is_not_touched(broker: shmq.Broker, namespace: str) -> None:
    broker.create_stream("open", 1)
    control = SHM / f"stream.shmq@{namespace}@open"
    control.chmod(0o644)
    try:
        with pytest.raises(shmq.ForeignSegment, match="0600"):
            broker.stream("open")
        (summary,) = broker.list_streams()
        assert summary.problem is not None
    finally:
        control.chmod(0o600)


def test_a_damaged_stream_is_refused_and_can_be_deleted(
    broker: shmq.Broker, namespace: str
) -> None:
    broker.create_stream("damaged", 1)
    log = SHM / f"log.shmq@{namespace}@damaged@0"
    with log.open("r+b") as file:
        file.seek(24)
        file.write(b"\xff" * 8)

    with pytest.raises(shmq.DamagedSegment, match="partition 0 of stream 'damaged'"):
        broker.stream("damaged")
    broker.delete_stream("damaged")
    assert files_of(namespace) == []


def files_of(namespace: str) -> list[Path]:
    return [path for path in SHM.iterdir() if f"shmq@{namespace}@" in path.name]


def run_to_its_end(act: Callable[[], None]) -> int:
    """The exit code of a forked child that does it; negative: its signal."""
    child = FORK.Process(target=act)
    child.start()
    child.join()
    code = child.exitcode
    assert code is not None
    return code


def test_records_before_the_one_that_is_waited_for_are_not_it(stream: LocalStream) -> None:
    def append() -> None:
        for _ in range(500_000):
            stream.append(b"x")

    appender = FORK.Process(target=append)
    appender.start()
    while appender.is_alive():
        assert not stream.wait_for_any({0: 1 << 40}, timeout=0.001)
    appender.join()
    assert appender.exitcode == 0
