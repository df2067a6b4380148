"""All rings and queues of a row hold equally many bodies."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from bench.peers import cloudtoid, fifo, shared_large, shared_queue, subetha, zmq_ipc
from bench.row import Row
from bench.rows import LOCAL
from bench.scratch import unique_name
from bench.stream import Stream
from bench.way import Way, equal_places

ROWS = [row for row in (make() for make in LOCAL) if isinstance(row.contestants[0], Stream)]


def ways(row: Row) -> Iterator[Way]:
    for contestant in row.contestants:
        if isinstance(contestant, Stream):
            yield contestant.kind("name", contestant.size)


@pytest.mark.parametrize("row", ROWS, ids=[row.key for row in ROWS])
def test_the_places_of_a_row_are_equal(row: Row) -> None:
    places = {way.label: way.places for way in ways(row) if way.places is not None}
    assert len(set(places.values())) <= 1, places


def test_a_ring_holds_a_mebibyte_of_bodies_or_four() -> None:
    assert [equal_places(size) for size in (64, 1024, 1 << 20)] == [16_384, 1024, 4]


@contextlib.contextmanager
def made(kind: type[Way], size: int) -> Iterator[Way]:
    lacking = kind.missing()
    if lacking:
        pytest.skip(lacking)
    way = kind(unique_name(), size)
    try:
        way.create()
        yield way
    finally:
        way.remove()


def filled(put: Callable[[bytes], object], size: int, *refused: type[Exception]) -> int:
    """How many bodies were accepted until one was refused, by an error or by a false answer."""
    count = 0
    with contextlib.suppress(*refused):
        while put(bytes(size)) is not False:
            count += 1
    return count


@pytest.mark.parametrize("size", [64, 1024])
def test_a_ring_of_cloudtoid_holds_as_many(size: int) -> None:
    with made(cloudtoid.OneByOne, size) as way:
        assert isinstance(way, cloudtoid.OneByOne)
        assert filled(way._publisher().try_send, size) == way.places


@pytest.mark.parametrize("size", [64, 1024])
def test_a_ring_of_faster_fifo_holds_as_many(size: int) -> None:
    with made(fifo.OneByOne, size) as way:
        assert isinstance(way, fifo.OneByOne)
        from queue import Full

        assert filled(way.queue.put_nowait, size, Full) == way.places


def test_a_ring_of_subetha_holds_as_many() -> None:
    with made(subetha.OneByOne, 64) as way:
        assert isinstance(way, subetha.OneByOne)
        assert filled(way.open().push, 64) == way.places


@pytest.mark.parametrize(
    ("kind", "size"),
    [(shared_queue.OneByOne, 64), (shared_queue.Batches, 1024), (shared_large.Loaned, 1 << 20)],
)
def test_a_queue_of_shmq_holds_as_many(kind: type[shared_queue.SharedQueue], size: int) -> None:
    with made(kind, size) as way:
        assert isinstance(way, kind)
        queue = way.open()
        assert filled(lambda body: queue.put_many([body], block=False) == 1, size) == way.places


def test_the_two_sides_of_zmq_hold_as_many_together() -> None:
    with made(zmq_ipc.OneByOne, 64) as way:
        assert isinstance(way, zmq_ipc.OneByOne)
        marks = []
        for kind in ("PULL", "PUSH"):
            marks.append(way._socket(kind).get_hwm())
            way.finish()
        assert sum(marks) == way.places
