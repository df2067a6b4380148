"""A write that is cut off in the middle: its retry by the same publisher finishes it, once."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import psutil
import pytest

import shmq
from tests.prove.spark.test_sink import bodies, error_of, numbers, queue_names, slowly
from tests.support.server import Server, fixed_port, serve
from tests.support.waiting import eventually
from tests.support.writer_process import running_writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 200
SMALL = 50
LOAD = {"publisher": "nightly load", "batch": 7}

Write = Callable[..., None]


@pytest.fixture
def write(spark: SparkSession, namespace: str) -> Write:
    """``write(topic=…)``: the same rows each time, by the same publisher, as the same batch."""

    def attempt(**options: Any) -> None:
        given = {"url": namespace, **LOAD, **options}
        numbers(spark, ROWS).write.format("shmq").mode("append").options(**given).save()

    return attempt


def text(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def kill(server: Server) -> None:
    """All of the server, at once."""
    for process in [server.process, *server.process.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    server.process.wait()
    server.leaves_no_process()


def start_again(server: Server) -> None:
    server.start()
    server.ready()


@contextlib.contextmanager
def beside(action: Callable[[], None]) -> Iterator[None]:
    """Do it in another thread; writes are this one's, whose session Spark knows."""
    raised: list[BaseException] = []

    def act() -> None:
        try:
            action()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    assert raised == []


def test_a_write_that_had_no_room_in_time_is_finished_by_its_retry(
    write: Write, broker: shmq.Broker
) -> None:
    small = broker.create_queue("small", capacity=SMALL)
    said = str(error_of(lambda: write(topic="small", publishTimeout="50ms")))
    assert "publishTimeout=0.05 s" in said
    assert "the same publisher and batch" in said
    assert small.qsize() == SMALL  # the first rows, in their order; the others are staged

    with slowly(small, ROWS) as found:
        write(topic="small")
    write(topic="small")
    assert found == text(ROWS)
    assert bodies(small) == []


def test_a_write_without_a_publisher_says_what_it_leaves(
    spark: SparkSession, broker: shmq.Broker, namespace: str
) -> None:
    small = broker.create_queue("small", capacity=SMALL)
    frame = numbers(spark, ROWS).write.format("shmq").mode("append")
    frame = frame.options(url=namespace, topic="small", publishTimeout="50ms")
    said = str(error_of(frame.save))
    assert "rows that are in the queue already stay there, the rest is discarded" in said
    assert ".option('publisher', NAME)" in said
    assert bodies(small) == text(SMALL)
    assert queue_names(broker) == ["small", "small.dlq"]


def test_a_write_whose_server_was_killed_is_finished_by_its_retry(
    write: Write, broker: shmq.Broker, namespace: str
) -> None:
    small = broker.create_queue("small", capacity=SMALL)
    with serve(namespace, port=fixed_port()) as server:
        url, port = server.url, server.port

        def kill_in_the_middle() -> None:
            eventually(lambda: small.qsize() == SMALL, "the queue is full")
            kill(server)

        with beside(kill_in_the_middle):
            error = error_of(lambda: write(url=url, topic="small", requestTimeout="3s"))
        assert f"127.0.0.1:{port}" in str(error)

        server.configure(port=port)
        start_again(server)
        with slowly(small, ROWS) as found:
            write(url=url, topic="small")
        assert found == text(ROWS)
        assert bodies(small) == []


def test_a_write_goes_on_when_its_server_is_back_in_time(
    write: Write, broker: shmq.Broker, namespace: str
) -> None:
    small = broker.create_queue("small", capacity=SMALL)
    found: list[str] = []
    with serve(namespace, port=fixed_port()) as server:
        url = server.url
        server.configure(port=server.port)

        def replace_in_the_middle() -> None:
            eventually(lambda: small.qsize() == SMALL, "the queue is full")
            kill(server)
            start_again(server)
            with slowly(small, ROWS) as taken:
                pass
            found.extend(taken)

        with beside(replace_in_the_middle):
            write(url=url, topic="small")
    assert found == text(ROWS)


def test_a_write_whose_disk_was_full_is_finished_by_its_retry(
    write: Write, broker: shmq.Broker, namespace: str
) -> None:
    with running_writer(namespace) as writer:
        kept = broker.create_queue("kept", durability="journal")
        writer.follows(kept)
        writer.fail(errno.ENOSPC)
        said = str(error_of(lambda: write(topic="kept", publishTimeout="500ms")))
        assert "or was in its journal: " in said
        assert "No space left on device" in said
        assert kept.qsize() == ROWS

        writer.mend()
        write(topic="kept", publishTimeout="60s")
        assert kept.stats().journal_lag == 0
        assert bodies(kept) == text(ROWS)


def test_records_of_a_write_that_had_no_room_in_time_are_completed_by_its_retry(
    spark: SparkSession, broker: shmq.Broker, namespace: str
) -> None:
    stream = broker.create_stream("s", 1, ring_bytes=64 << 10, overflow="block")
    try:
        group = stream.group("slow")
        group.reset({0: 0})
        frame = numbers(spark, ROWS).selectExpr("concat(value, ' ', repeat('x', 1000)) AS value")

        def write(**options: Any) -> None:
            given = {"url": namespace, "topic": "s", **LOAD, **options}
            frame.write.format("shmq").mode("append").options(**given).save()

        said = str(error_of(lambda: write(publishTimeout="100ms")))
        assert "publishTimeout=0.1 s" in said
        assert 0 < stream.latest(0) < ROWS

        found: list[bytes] = []

        def read_all() -> None:
            while len(found) < ROWS:
                records = stream.read(0, len(found), 1000, block=True, timeout=60)
                assert len(records)
                found.extend(records.values())
                group.reset({0: len(found)})

        with beside(read_all):
            write()
        assert sorted(int(value.split()[0]) for value in found) == list(range(ROWS))
        assert stream.latest(0) == ROWS
    finally:
        broker.delete_stream("s")
