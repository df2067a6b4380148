"""Many that make, find and delete one queue at once, and makers that died half-way."""

from __future__ import annotations

import errno
import itertools
import mmap
import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import posix_ipc
import pytest

import shmq
from shmq import Broker
from shmq.client.local.broker import LocalBroker
from shmq.client.local.queue import LocalQueue
from shmq.host.namespace.namespace import Namespace
from shmq.host.namespace.semaphores import make_semaphores, remove_semaphores, semaphore_names
from shmq.host.namespace.wakeups import wakeup_prefix
from shmq.native import _core
from tests.support.layout import place_of
from tests.support.processes import Start, drain, files_of, is_empty, is_sound
from tests.support.waiting import PATIENCE

T = TypeVar("T")

#: Where the header says "ready", and where the queue's id is.
PUBLISHED = place_of("published")
QUEUE_ID = place_of("options.queue_id")
OPTIONS = place_of("options")


def path_of(namespace: str, queue: str = "q") -> Path:
    return Path(Namespace.of(namespace).path_of(queue))


# ---- at once ----


@pytest.mark.prove
def test_eight_processes_that_make_one_queue_at_once_get_one_queue(
    namespace: str, broker: Broker, start: Start
) -> None:
    barrier = multiprocessing.get_context("fork").Barrier(8)

    def work(pipe: Connection, name: str, method: str) -> int:
        with shmq.connect(namespace) as mine:
            barrier.wait(PATIENCE)
            queue: Any = getattr(mine, method)(name)
            queue.put(b"1")
            return int(queue.segment.queue_id)

    for number in range(10):
        name, method = f"q{number}", "create_queue" if number % 2 else "ensure_queue"
        children = [start(work, name, method) for _ in range(8)]
        ids = {child.ends() for child in children}

        assert len(ids) == 1
        queue = broker.queue(name)
        assert drain(queue) == [b"1"] * 8
        is_empty(queue)
    made = [f"q{number}{suffix}" for number in range(10) for suffix in ("", ".dlq")]
    assert [summary.name for summary in broker.list_queues()] == sorted(made)
    assert len(files_of(namespace)) == 2 + 3 * len(made)


def test_of_many_that_make_it_with_other_options_one_wins_and_the_others_are_told(
    namespace: str, start: Start
) -> None:
    barrier = multiprocessing.get_context("fork").Barrier(8)

    def work(pipe: Connection, capacity: int) -> int | str:
        with shmq.connect(namespace) as mine:
            barrier.wait(PATIENCE)
            try:
                return mine.create_queue("q", capacity=capacity).options.capacity
            except shmq.QueueExists as error:
                return str(error)

    children = [start(work, 10 + number) for number in range(8)]
    said = [child.ends() for child in children]

    won = [capacity for capacity in said if isinstance(capacity, int)]
    assert len(won) == 1
    for number, told in enumerate(said):
        if told != won[0]:
            assert f"capacity is {won[0]}, not {10 + number}" in str(told)


def come_and_go(pipe: Connection, namespace: str, part: int) -> int:
    """Make, find, use and delete queue ``q`` all the time; how often that went well."""
    went = 0
    with shmq.connect(namespace) as broker:
        for number in range(150):
            try:
                queue = broker.queue("q") if number % 3 else broker.create_queue("q")
                queue.put(b"1")
                queue.get_many(1, block=False)
                queue.close()
                if number % 4 == part:
                    broker.delete_queue("q")
                went += 1
            except (shmq.NoSuchQueue, shmq.QueueDeleted):
                continue
    return went


def test_deleting_and_making_race_with_attaching(
    namespace: str, broker: Broker, start: Start
) -> None:
    children = [start(come_and_go, namespace, part) for part in range(4)]

    assert min(child.ends() for child in children) > 0

    queue = broker.create_queue("q")
    drain(queue)
    is_sound(queue)
    assert len(files_of(namespace)) == 8


@pytest.mark.prove
def test_a_queue_that_is_being_made_is_waited_for(namespace: str, start: Start) -> None:
    def make(pipe: Connection) -> None:
        mine = Namespace.of(namespace)
        with mine.locked():
            Path(mine.path_of("q")).touch(0o600)
            pipe.send("half-way")
            pipe.recv()
            with shmq.connect(namespace) as broker:
                broker.create_queue("q").put(b"1")

    def find(pipe: Connection) -> list[bytes]:
        with shmq.connect(namespace) as broker:
            return drain(once_unlocked(lambda: broker.queue("q"), pipe))

    maker = start(make)
    maker.hear()
    finder = start(find)
    assert finder.hear() == maker.pid
    maker.tell()

    assert finder.ends() == [b"1"]
    maker.ends()


def once_unlocked(operation: Callable[[], T], pipe: Connection) -> T:
    """Try until no maker has the lock; the pipe is told of the process that had it at first."""
    told = False
    while True:
        try:
            return operation()
        except shmq.LockTimeout as error:
            if not told:
                pipe.send(error.pid)
            told = True


@pytest.mark.prove
def test_a_maker_that_is_killed_lets_the_next_one_make_the_queue(
    namespace: str, broker: Broker, start: Start
) -> None:
    def make(pipe: Connection) -> None:
        mine = Namespace.of(namespace)
        with mine.locked():
            Path(mine.path_of("q")).touch(0o600)
            pipe.send("half-way")
            pipe.recv()

    maker = start(make)
    maker.hear()

    def make_too(pipe: Connection) -> int:
        broker = shmq.connect(namespace)
        return once_unlocked(lambda: broker.create_queue("q"), pipe).put(b"1").sequence

    other = start(make_too)
    assert other.hear() == maker.pid

    maker.kill()

    assert other.ends() == 1
    assert drain(broker.queue("q")) == [b"1"]


# ---- left half-way by a maker ----


def whole_segment(broker: LocalBroker, namespace: str) -> tuple[int, bytes, int]:
    """The id, the first page and the size of a queue ``q``, which is deleted again."""
    queue = broker.create_queue("q", dead_letter=None)
    path = path_of(namespace)
    with path.open("rb") as file:
        page = file.read(4096)
    identity, size = queue.segment.queue_id, path.stat().st_size
    broker.delete_queue("q")
    return identity, page, size


def leave(namespace: str, page: bytes, size: int) -> None:
    """Write a segment of that size which begins with these bytes."""
    path = path_of(namespace)
    path.touch(0o600)
    with path.open("r+b") as file:
        file.write(page)
        file.truncate(size)


#: How far a maker came: the bytes and the size that it left, and whether it had made the
#: semaphores.
STILLBORN: dict[str, Callable[[bytes, int], tuple[bytes, int, bool]]] = {
    "file made": lambda page, size: (b"", 0, False),
    "id written": lambda page, size: (bytes(8) + page[QUEUE_ID], 16, False),
    "semaphores made": lambda page, size: (bytes(8) + page[QUEUE_ID], 16, True),
    "size set": lambda page, size: (bytes(8) + page[QUEUE_ID], size, True),
    "options written": lambda page, size: (bytes(8) + page[OPTIONS], size, True),
    "not published": lambda page, size: (bytes(8) + page[8:], size, True),
    "size set by hand": lambda page, size: (b"", size, False),
}


@pytest.fixture(params=STILLBORN)
def stillborn(request: pytest.FixtureRequest, namespace: str, broker: LocalBroker) -> None:
    """A queue ``q`` of which the maker died half-way."""
    identity, page, size = whole_segment(broker, namespace)
    page, size, semaphores = STILLBORN[request.param](page, size)
    leave(namespace, page, size)
    if semaphores:
        make_semaphores(namespace, identity)


@pytest.mark.usefixtures("stillborn")
def test_a_stillborn_queue_is_no_queue(namespace: str, broker: Broker) -> None:
    with pytest.raises(shmq.NoSuchQueue):
        broker.queue("q")

    assert files_of(namespace) in ([], [f"shmq@{namespace}"])


@pytest.mark.usefixtures("stillborn")
def test_a_stillborn_queue_is_not_listed(broker: Broker) -> None:
    assert broker.list_queues() == []


@pytest.mark.usefixtures("stillborn")
def test_a_stillborn_queue_cannot_be_deleted(namespace: str, broker: Broker) -> None:
    with pytest.raises(shmq.NoSuchQueue):
        broker.delete_queue("q")

    assert files_of(namespace) in ([], [f"shmq@{namespace}"])


@pytest.mark.usefixtures("stillborn")
@pytest.mark.parametrize("method", ["create_queue", "ensure_queue"])
def test_a_stillborn_queue_is_made_anew(namespace: str, broker: Broker, method: str) -> None:
    queue = getattr(broker, method)("q", dead_letter=None)

    queue.put(b"1")
    assert drain(queue) == [b"1"]
    is_empty(queue)
    assert len(files_of(namespace)) == 5


@pytest.mark.usefixtures("stillborn")
def test_a_stillborn_dead_letter_queue_is_made_anew(namespace: str, broker: Broker) -> None:
    queue = broker.create_queue("main", dead_letter="q")
    queue.put(b"1")
    queue.get().reject()

    assert drain(broker.queue("q")) == [b"1"]


# ---- left half-way by a deleter ----


def half_deleted(broker: LocalBroker, namespace: str, semaphores: int) -> LocalQueue:
    """A queue of which the deleter died after so many of its semaphores."""
    queue = broker.create_queue("q", dead_letter=None)
    queue.put(b"old")
    names = semaphore_names(namespace, queue.segment.queue_id)
    _core.mark_deleted(queue.segment, *names, wakeup_prefix(namespace))
    for name in names[:semaphores]:
        posix_ipc.unlink_semaphore(name)
    return queue


@pytest.mark.parametrize("semaphores", [0, 1, 2])
def test_a_half_deleted_queue_is_no_queue_and_leaves_nothing(
    namespace: str, broker: LocalBroker, semaphores: int
) -> None:
    old = half_deleted(broker, namespace, semaphores)

    with pytest.raises(shmq.NoSuchQueue):
        broker.queue("q")

    assert files_of(namespace) == [f"names.shmq@{namespace}", f"shmq@{namespace}"]
    with pytest.raises(shmq.QueueDeleted):
        old.get()


@pytest.mark.parametrize("semaphores", [0, 1, 2])
def test_a_half_deleted_queue_is_made_anew(
    namespace: str, broker: LocalBroker, semaphores: int
) -> None:
    old = half_deleted(broker, namespace, semaphores)

    new = broker.create_queue("q", dead_letter=None)

    assert drain(new) == []
    new.put(b"new")
    assert drain(new) == [b"new"]
    assert len(files_of(namespace)) == 5
    with pytest.raises(shmq.QueueDeleted):
        old.put(b"2")


@pytest.mark.parametrize("semaphores", [0, 1, 2])
def test_a_half_deleted_queue_is_not_listed_and_cannot_be_deleted_again(
    namespace: str, broker: LocalBroker, semaphores: int
) -> None:
    half_deleted(broker, namespace, semaphores)

    assert broker.list_queues() == []
    with pytest.raises(shmq.NoSuchQueue):
        broker.delete_queue("q")


# ---- what others have removed ----


@pytest.mark.parametrize("method", ["queue", "create_queue", "ensure_queue"])
def test_a_queue_that_has_lost_its_semaphores_says_so_and_can_be_deleted(
    namespace: str, broker: LocalBroker, method: str
) -> None:
    queue = broker.create_queue("q", dead_letter=None)
    remove_semaphores(namespace, queue.segment.queue_id)

    with pytest.raises(shmq.ShmqError, match=r"semaphore.*delete"):
        getattr(broker, method)("q", **({} if method == "queue" else {"dead_letter": None}))
    assert [summary.name for summary in broker.list_queues()] == ["q"]

    broker.delete_queue("q")
    with pytest.raises(shmq.QueueDeleted):
        queue.get_nowait()
    new = broker.create_queue("q", dead_letter=None)
    new.put(b"1")
    assert drain(new) == [b"1"]


def test_a_queue_whose_segment_was_unlinked_is_made_anew(
    namespace: str, broker: LocalBroker
) -> None:
    old = broker.create_queue("q", dead_letter=None)
    path_of(namespace).unlink()
    with pytest.raises(shmq.NoSuchQueue):
        broker.queue("q")

    new = broker.create_queue("q", dead_letter=None)
    old.put(b"old")

    assert drain(new) == []
    remove_semaphores(namespace, old.segment.queue_id)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.EMFILE, "too many")])
@pytest.mark.parametrize("after", range(4))
def test_a_create_that_fails_half_way_leaves_nothing(
    namespace: str,
    broker: LocalBroker,
    monkeypatch: pytest.MonkeyPatch,
    after: int,
    error: BaseException,
) -> None:
    broker.create_queue("other", dead_letter=None)
    before, make, calls = files_of(namespace), _core.fill_semaphore, itertools.count()

    def fail(*arguments: Any, **options: Any) -> Any:
        if next(calls) == after:
            raise error
        return make(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(_core, "fill_semaphore", fail)
        with pytest.raises(type(error)):
            broker.create_queue("q")

    assert files_of(namespace) == before


def test_no_descriptor_is_left_open_by_attempts_that_fail(
    namespace: str, broker: LocalBroker
) -> None:
    broker.create_queue("q", dead_letter=None)
    path = path_of(namespace)
    whole = path.read_bytes()[: mmap.PAGESIZE]
    attempts: list[bytes] = [b"x", bytes(mmap.PAGESIZE), whole[:-1], b"\xff" + whole[1:]]
    before = len(os.listdir("/proc/self/fd"))

    for page in attempts:
        path.write_bytes(page)
        with pytest.raises((shmq.NoSuchQueue, shmq.SegmentError)):
            broker.queue("q")
        path.touch(0o600)

    assert len(os.listdir("/proc/self/fd")) == before
    for name in files_of(namespace):
        if name.startswith("sem."):
            posix_ipc.unlink_semaphore(f"/{name.removeprefix('sem.')}")
