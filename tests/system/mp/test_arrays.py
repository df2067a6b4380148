"""Arrays: written straight into shared memory, and out of it as copies or as views."""

from __future__ import annotations

import gc
import pickle
import queue
import weakref
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shmq.mp
from shmq.mp import Queue, SimpleQueue, codec
from tests.support.processes import Start

SIZE = 100_000


def lies_in_shared_memory(array: Any) -> bool:
    address = array.__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(end, 16) for end in line.split()[0].split("-"))
        if first <= address < last:
            return "/dev/shm/shmq@" in line
    raise AssertionError("the array lies nowhere")


def pinned(q: Any) -> int:
    """The bytes of the queue's arena that are in use."""
    return int(q._store.queue.stats().arena_used)


def test_what_is_large_is_not_copied_until_it_is_in_shared_memory() -> None:
    array, text = np.arange(SIZE), b"x" * SIZE
    frame = codec.encode({"array": array, "text": text})
    assert isinstance(frame, codec.Frame)
    assert any(piece is text for piece in frame._pieces)
    (buffer,) = frame._buffers
    assert np.shares_memory(np.frombuffer(buffer, dtype=array.dtype), array)


def test_an_array_is_got_as_a_copy_of_ones_own() -> None:
    q: Any = Queue()
    q.put(np.arange(SIZE))
    array = q.get()
    assert not lies_in_shared_memory(array)
    assert pinned(q) == 0
    array += 1
    assert array[-1] == SIZE


@pytest.mark.parametrize("kind", [Queue, SimpleQueue, shmq.mp.JoinableQueue])
def test_without_a_copy_an_array_is_a_view_that_nobody_writes_to(kind: Any) -> None:
    q = kind(zero_copy=True)
    q.put([np.arange(SIZE), np.ones((10, SIZE), order="F"), np.arange(5)])
    array, second, small = q.get()
    assert lies_in_shared_memory(array)
    assert lies_in_shared_memory(second)
    assert second.flags.f_contiguous
    assert array.__array_interface__["data"][0] % 64 == 0
    with pytest.raises(ValueError, match="read-only"):
        array += 1
    assert (array.sum(), second.sum(), small.sum()) == (SIZE * (SIZE - 1) // 2, 10 * SIZE, 10)


def test_a_view_keeps_its_bytes_until_it_is_gone() -> None:
    q: Any = Queue(1, zero_copy=True)
    q.put(np.full(SIZE, 7))
    array = q.get()
    part = array[10:20]
    del array
    gc.collect()
    assert pinned(q) > 0
    with pytest.raises(queue.Full):  # a message that is still read takes its place
        q.put_nowait(np.full(SIZE, 8))
    assert set(part) == {7}
    del part
    gc.collect()
    q.put_nowait(np.full(SIZE, 8))
    assert set(q.get()) == {8}


def test_a_view_outlives_its_queue() -> None:
    q: Any = Queue(zero_copy=True)
    q.put(np.full(SIZE, 7))
    array = q.get()
    q.close()
    del q
    gc.collect()
    assert lies_in_shared_memory(array)
    assert set(array) == {7}


def test_a_view_can_be_put_again_and_is_got_as_a_copy_elsewhere() -> None:
    views: Any = Queue(zero_copy=True)
    copies: Any = Queue()
    views.put(np.full(SIZE, 7))
    copies.put(views.get())
    array = copies.get()
    array += 1
    assert set(array) == {8}


@pytest.mark.prove
def test_a_copy_of_a_handle_gets_views_too(start: Start) -> None:
    q: Any = Queue(zero_copy=True)
    q.put(np.arange(SIZE))
    assert lies_in_shared_memory(pickle.loads(pickle.dumps(q)).get())
    for method in ("fork", "spawn"):
        q.put(np.arange(SIZE))
        assert start(is_view, q, method=method).ends() is True


def is_view(pipe: Connection, q: Any) -> bool:
    return lies_in_shared_memory(q.get())


def test_what_cannot_be_pickled_is_refused_by_put() -> None:
    q: Any = Queue(1)
    for refused in (lambda: None, [np.arange(SIZE), lambda: None]):
        with pytest.raises((AttributeError, pickle.PicklingError)):
            q.put(refused)
    assert q.empty()
    q.put_nowait("there is room")
    assert q.get() == "there is room"


class Chatty:
    """Puts something while it is pickled, and can fail at that."""

    def __init__(self, q: Any, fails: bool = False) -> None:
        self.q = q
        self.fails = fails

    def __reduce__(self) -> Any:
        self.q.put({"told": [np.arange(SIZE)]})
        if self.fails:
            raise ZeroDivisionError
        return str, ("chatty",)


def test_an_object_may_put_while_it_is_pickled() -> None:
    q: Any = Queue()
    with pytest.raises(ZeroDivisionError):
        q.put([np.arange(SIZE), Chatty(q, fails=True)])
    q.put([b"first" * SIZE, Chatty(q), np.arange(3)])
    for _ in range(2):
        assert q.get()["told"][0].sum() == SIZE * (SIZE - 1) // 2
    first, chatty, last = q.get()
    assert (first, chatty, list(last)) == (b"first" * SIZE, "chatty", [0, 1, 2])
    assert q.empty()


def test_a_put_keeps_no_object_alive() -> None:
    q: Any = Queue()
    array = np.arange(SIZE)
    alive = weakref.ref(array)
    q.put([array])
    del array
    gc.collect()
    assert alive() is None


class Unwilling:
    def __reduce__(self) -> Any:
        return int, ("no number",)


def test_what_cannot_be_unpickled_is_got_once_as_its_error() -> None:
    q: Any = Queue()
    for obj in (Unwilling(), [Unwilling(), bytes(SIZE)]):
        q.put(obj)
        with pytest.raises(ValueError, match="no number"):
            q.get()
    assert q.empty()
    assert pinned(q) == 0
