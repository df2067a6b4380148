"""Each test runs on multiprocessing's queues and on ours: they cannot be told apart."""

from __future__ import annotations

import functools
import multiprocessing
import multiprocessing.queues
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shmq.mp
from tests.support.waiting import PATIENCE, eventually

METHODS = ("fork", "spawn", "forkserver")
MAKERS: dict[str, Any] = {"multiprocessing": multiprocessing, "shmq.mp": shmq.mp}
BRIEFLY = 0.01

#: A fork of a process with threads, as CPython's feeder is one.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture(params=MAKERS)
def mp(request: pytest.FixtureRequest) -> Any:
    """The module whose queues are tested."""
    return MAKERS[request.param]


@pytest.fixture(params=["Queue", "JoinableQueue"])
def make(request: pytest.FixtureRequest, mp: Any) -> Callable[..., Any]:
    """Makes a queue that has a maxsize."""
    maker: Callable[..., Any] = getattr(mp, request.param)
    return maker


def arrived(q: Any) -> None:
    """Return once something can be got: CPython's feeder takes its time."""
    eventually(lambda: not q.empty(), "the object arrives")


# ---- one process ----


def test_objects_come_in_the_order_in_which_they_were_put(make: Callable[..., Any]) -> None:
    q = make()
    for number in range(100):
        q.put(number)
    assert [q.get() for _ in range(100)] == list(range(100))


def test_a_full_queue_refuses(make: Callable[..., Any]) -> None:
    q = make(2)
    q.put(1)
    q.put(2, False)
    calls: list[Callable[[], object]] = [
        lambda: q.put(3, False),
        lambda: q.put_nowait(3),
        lambda: q.put(3, True, BRIEFLY),
        lambda: q.put(3, timeout=0),
        lambda: q.put(3, True, -1),
        lambda: q.put(3, False, PATIENCE),
    ]
    for refused in calls:
        with pytest.raises(queue.Full):
            refused()
    assert q.full()
    assert q.qsize() == 2
    assert [q.get(), q.get()] == [1, 2]
    assert not q.full()


def test_an_empty_queue_refuses(make: Callable[..., Any]) -> None:
    q = make()
    calls: list[Callable[[], object]] = [
        lambda: q.get(False),
        lambda: q.get(True, BRIEFLY),
        lambda: q.get(timeout=0),
        lambda: q.get(True, -1),
        lambda: q.get(False, PATIENCE),
    ]
    for refused in calls:
        with pytest.raises(queue.Empty):
            refused()
    with pytest.raises(queue.Empty):
        q.get_nowait()
    assert q.empty()
    assert q.qsize() == 0


def test_a_timeout_that_has_passed_takes_what_is_there(make: Callable[..., Any]) -> None:
    q = make()
    for timeout in (0, -1, 0.0):
        q.put("there")
        arrived(q)
        assert q.get(True, timeout) == "there"


@pytest.mark.parametrize("maxsize", [0, -1])
def test_a_queue_without_a_limit_is_never_full(make: Callable[..., Any], maxsize: int) -> None:
    q = make(maxsize=maxsize)
    for number in range(3000):
        q.put_nowait(number)
    assert not q.full()
    assert q.qsize() == 3000
    assert [q.get() for _ in range(3000)] == list(range(3000))


@pytest.mark.prove
@pytest.mark.parametrize("maxsize", ["5", 2.5, None])
def test_a_maxsize_is_an_int(make: Callable[..., Any], maxsize: object) -> None:
    with pytest.raises(TypeError):
        make(maxsize)


def test_a_timeout_is_a_number(make: Callable[..., Any]) -> None:
    q = make()
    with pytest.raises(TypeError):
        q.put(1, True, "long")
    with pytest.raises(TypeError):
        q.get(True, "long")


def test_a_put_waits_for_room(make: Callable[..., Any]) -> None:
    q = make(1)
    q.put(1)
    arrived(q)
    taker = threading.Timer(BRIEFLY, q.get)
    taker.start()
    q.put(2, True, PATIENCE)
    taker.join()
    assert q.get() == 2


def test_a_get_waits_for_an_object(make: Callable[..., Any]) -> None:
    q = make()
    giver = threading.Timer(BRIEFLY, q.put, ["late"])
    giver.start()
    assert q.get() == "late"
    giver.join()


def test_a_closed_queue_neither_puts_nor_gets(make: Callable[..., Any]) -> None:
    q = make()
    q.put(1)
    q.close()
    q.close()
    with pytest.raises(ValueError, match=r"^Queue <.*> is closed$"):
        q.put(2)
    with pytest.raises(ValueError, match=r"^Queue <.*> is closed$"):
        q.get()
    with pytest.raises(ValueError, match="is closed"):
        q.put_nowait(2)
    with pytest.raises(ValueError, match="is closed"):
        q.get_nowait()
    q.join_thread()


def test_a_closed_queue_is_looked_at_unless_it_was_put_to(make: Callable[..., Any]) -> None:
    unused, used = make(1), make(1)
    used.put(1)
    for q in (unused, used):
        q.close()
        q.join_thread()
    assert unused.empty()
    assert (unused.qsize(), used.qsize()) == (0, 1)
    assert used.full()
    with pytest.raises(OSError, match=r"^handle is closed$"):
        used.empty()


def test_the_thread_is_joined_once_the_queue_is_closed(make: Callable[..., Any]) -> None:
    q = make()
    with pytest.raises(AssertionError, match="not closed"):
        q.join_thread()
    q.cancel_join_thread()
    q.close()
    assert q.join_thread() is None
    q.cancel_join_thread()


def test_threads_share_a_handle(make: Callable[..., Any]) -> None:
    q = make(3)
    got: list[int] = []

    def put(first: int) -> None:
        for number in range(first, first + 200):
            q.put(number)

    def get() -> None:
        got.extend(iter(q.get, None))

    putters = [threading.Thread(target=put, args=[first]) for first in (0, 200, 400)]
    getters = [threading.Thread(target=get) for _ in range(3)]
    for thread in putters + getters:
        thread.start()
    for putter in putters:
        putter.join()
    for _ in getters:
        q.put(None)
    for getter in getters:
        getter.join()
    assert sorted(got) == list(range(600))


# ---- what is put ----


class Thing:
    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Thing) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def greet(self) -> str:
        return f"I am {self.name}"


OBJECTS: list[Any] = [
    None,
    True,
    0,
    -1,
    1 << 5000,
    1 << 100_000,
    1.5,
    "",
    "ein Wort \N{SNOWMAN}",
    "\ud800",
    "long " * 100_000,
    b"",
    b"\x00\x80\x05",
    bytes(range(256)) * 4000,
    bytearray(b"abc"),
    bytearray(50_000),
    [],
    [b"x" * 5000, "y" * 5000, [b"z" * 70_000]],
    {"a": [1, 2, {"b": (3, None)}]},
    {1, 2},
    frozenset({"x"}),
    Thing("one"),
    [Thing(str(number)) for number in range(1000)],
    ...,
    int,
    len,
    complex(1, 2),
    range(5),
    slice(1, 2),
]


@pytest.mark.prove
@pytest.mark.parametrize("obj", OBJECTS, ids=lambda obj: type(obj).__name__)
@pytest.mark.parametrize("kind", ["Queue", "SimpleQueue"])
def test_an_object_comes_as_it_was(mp: Any, kind: str, obj: Any) -> None:
    q = getattr(mp, kind)()
    # A pipe takes only so much without a reader.
    putter = threading.Thread(target=q.put, args=[obj])
    putter.start()
    got = q.get()
    putter.join()
    assert got == obj
    assert type(got) is type(obj)


def test_an_exception_comes_as_it_was(make: Callable[..., Any]) -> None:
    q = make()
    q.put(KeyError("which"))
    assert repr(q.get()) == "KeyError('which')"


def test_one_object_put_twice_comes_as_two(make: Callable[..., Any]) -> None:
    q = make()
    thing = [Thing("one")] * 2
    q.put(thing)
    q.put(thing)
    first, second = q.get(), q.get()
    assert first[0] is first[1]
    assert first == second == thing
    assert first is not second


def test_what_multiprocessing_can_reduce_can_be_put(mp: Any) -> None:
    q = mp.Queue()
    here, there = mp.Pipe()
    with here, there:
        q.put(there)
        q.put(Thing("a method").greet)
        q.put(functools.partial(max, 3))
        with q.get() as copy:
            copy.send("through the queue")
            assert here.recv() == "through the queue"
    assert q.get()() == "I am a method"
    assert q.get()(5) == 5


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="its protocol 5 makes copies read-only")
def test_an_array_that_was_read_only_can_be_written_to(mp: Any) -> None:
    q = mp.Queue()
    for size in (10, 100_000):
        array = np.frombuffer(bytes(size), dtype=np.uint8)
        q.put(array)
        got = q.get()
        got += 1
        assert got.sum() == size
        assert not array.any()


ARRAYS: dict[str, Any] = {
    "small": np.arange(10),
    "large": np.arange(100_000),
    "of two dimensions": np.arange(20_000.0).reshape(100, 200),
    "in Fortran's order": np.asfortranarray(np.arange(20_000.0).reshape(100, 200)),
    "with gaps": np.arange(40_000)[::3],
    "backwards": np.arange(10_000)[::-1],
    "with gaps, read-only": np.broadcast_to(np.arange(10_000), (3, 10_000)),
    "of nothing": np.empty((0, 5)),
    "of no dimension": np.array(5),
    "of records": np.zeros(5000, dtype=[("a", "i4"), ("b", "f8")]),
    "of objects": np.array([1, "two", None], dtype=object),
    "of dates": np.arange("2013-01-01", "2063-01-01", dtype="datetime64[D]"),
    "masked": np.ma.masked_less(np.arange(10_000), 10),
}


@pytest.mark.prove
@pytest.mark.parametrize("which", ARRAYS)
def test_an_array_is_a_copy_that_can_be_written_to(mp: Any, which: str) -> None:
    array = ARRAYS[which]
    q = mp.Queue()
    q.put([array, {"again": array}])
    got, again = q.get()
    assert got is again["again"]
    assert (got.dtype, got.shape) == (array.dtype, array.shape)
    assert got.flags.writeable
    np.testing.assert_array_equal(got, array)
    before = array.copy()
    got[...] = got.flat[0] if got.size else 0
    np.testing.assert_array_equal(array, before)


# ---- SimpleQueue ----


def test_a_simple_queue_is_a_queue(mp: Any) -> None:
    q = mp.SimpleQueue()
    assert q.empty()
    q.put(1)
    q.put("two")
    assert not q.empty()
    assert [q.get(), q.get()] == [1, "two"]
    assert q.empty()


def test_a_closed_simple_queue_refuses(mp: Any) -> None:
    q = mp.SimpleQueue()
    q.put(1)
    q.close()
    q.close()
    for refused in (q.get, q.empty, lambda: q.put(2)):
        with pytest.raises(OSError, match="handle is closed"):
            refused()


def test_the_classes_can_be_given_a_parameter(mp: Any) -> None:
    assert mp.queues.SimpleQueue[int].__args__ == (int,)


# ---- JoinableQueue ----


def test_a_task_is_done_only_once(mp: Any) -> None:
    q = mp.JoinableQueue()
    q.join()
    with pytest.raises(ValueError, match=r"^task_done\(\) called too many times$"):
        q.task_done()
    q.put(1)
    q.put(2)
    q.task_done()  # without a get before it
    q.get()
    q.get()
    q.task_done()
    with pytest.raises(ValueError, match="called too many times"):
        q.task_done()
    q.join()


def test_a_join_waits_for_every_task(mp: Any) -> None:
    q = mp.JoinableQueue()
    for number in range(3):
        q.put(number)
    joined: list[int] = []

    def join() -> None:
        q.join()
        joined.append(1)

    joiners = [threading.Thread(target=join) for _ in range(3)]
    for joiner in joiners:
        joiner.start()
    for _ in range(3):
        assert joined == []
        q.get()
        q.task_done()
    for joiner in joiners:
        joiner.join()
    assert joined == [1, 1, 1]


def test_a_put_that_is_refused_is_no_task(mp: Any) -> None:
    q = mp.JoinableQueue(1)
    q.put(1)
    with pytest.raises(queue.Full):
        q.put(2, timeout=BRIEFLY)
    q.get()
    q.task_done()
    q.join()


# ---- processes ----


def echo(inbox: Any, outbox: Any) -> None:
    for obj in iter(inbox.get, None):
        outbox.put(obj)


@pytest.mark.prove
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["Queue", "JoinableQueue", "SimpleQueue"])
def test_a_process_is_given_queues(mp: Any, method: str, kind: str) -> None:
    context = mp.get_context(method)
    inbox, outbox = getattr(context, kind)(), getattr(context, kind)()
    process = context.Process(target=echo, args=(inbox, outbox))
    process.start()
    for number in range(50):
        inbox.put({"number": number, "array": np.full(2000, number)})
        got = outbox.get()
        assert got["number"] == number
        assert got["array"].sum() == 2000 * number
    inbox.put(None)
    process.join()
    assert process.exitcode == 0


def work_off(q: Any) -> None:
    for obj in iter(q.get, None):
        assert obj >= 0
        q.task_done()


@pytest.mark.prove
@pytest.mark.parametrize("method", METHODS)
def test_processes_work_tasks_off(mp: Any, method: str) -> None:
    context = mp.get_context(method)
    q = context.JoinableQueue(7)
    workers = [context.Process(target=work_off, args=(q,)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for _ in range(3):
        for number in range(50):
            q.put(number)
        q.join()
        assert q.empty()
    for _ in workers:
        q.put(None)
    for worker in workers:
        worker.join()
    for _ in workers:
        q.task_done()
    with pytest.raises(ValueError, match="called too many times"):
        q.task_done()


inherited: list[Any] = []


def inherit(q: Any) -> None:
    inherited[:] = [q]


def square(number: int) -> None:
    inherited[0].put(number * number)


@pytest.mark.prove
@pytest.mark.parametrize("method", METHODS)
def test_the_workers_of_a_pool_inherit_a_queue(mp: Any, method: str) -> None:
    context = mp.get_context(method)
    q = context.Queue()
    with context.Pool(2, inherit, (q,)) as pool:
        pool.map(square, range(10))
        assert sorted(q.get() for _ in range(10)) == [number**2 for number in range(10)]


def put_after_close(q: Any) -> None:
    q.put("mine is open")


@pytest.mark.prove
@pytest.mark.parametrize("method", METHODS)
def test_a_process_is_given_an_open_handle_of_a_queue_closed_here(mp: Any, method: str) -> None:
    context = mp.get_context(method)
    closed, verdict = context.Queue(), context.Queue()
    closed.close()
    process = context.Process(target=put_after_close, args=(closed,))
    process.start()
    process.join()
    assert process.exitcode == 0
    verdict.put(1)
    assert verdict.get() == 1


class Noting:
    """The recipe that many programs have for a queue with more to it."""

    def __init__(self, note: str, context: Any) -> None:
        super().__init__(ctx=context)  # type: ignore[call-arg]
        self.note = note

    def __getstate__(self) -> Any:
        return {"parent": super().__getstate__(), "note": self.note}

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state["parent"])  # type: ignore[misc]
        self.note = state["note"]


class Theirs(Noting, multiprocessing.queues.Queue):  # type: ignore[type-arg]
    pass


class Ours(Noting, shmq.mp.queues.Queue):
    pass


def put_note(q: Any) -> None:
    q.put(q.note)


@pytest.mark.prove
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", [Theirs, Ours])
def test_a_class_of_ones_own_can_be_derived(kind: Any, method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    q = kind("noted", context)
    process = context.Process(target=put_note, args=(q,))
    process.start()
    assert q.get() == "noted"
    process.join()
