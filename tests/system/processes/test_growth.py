"""Attaching and detaching, making and deleting, for ever: nothing grows."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import pytest

import shmq
from shmq import Broker, Queue
from tests.support.processes import LARGE, SHM, Start, attached, drain, files_of, is_empty

pytestmark = pytest.mark.prove

CYCLES = 200
ROUNDS = 3
#: What a cycle that leaves anything leaves on the heap at least, in bytes.
LEAST_LEAK = 16

#: What a process may grow by over all cycles, in bytes: less than one of them takes.
SLACK = 512 * 1024


class Taken(NamedTuple):
    """What a process and a namespace take."""

    files: list[str]
    shared_bytes: int
    descriptors: int
    mappings: int
    objects: int
    heap: int
    resident: int


class MallInfo(ctypes.Structure):
    """struct mallinfo2 of glibc: mallinfo(3)."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "free", "fast", "maps", "mapped", "x", "y", "used", "z", "top")
    ]


def heap_bytes() -> int:
    """What malloc has handed out; 0 where it does not say."""
    ask = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if ask is None:
        return 0
    ask.restype = MallInfo
    info = ask()
    return int(info.used + info.mapped)


def shared(namespace: str) -> tuple[list[str], int]:
    """The files of a namespace, and the bytes that they take."""
    files = files_of(namespace)
    return files, sum((SHM / name).stat().st_blocks for name in files) * 512


def taken(namespace: str) -> Taken:
    gc.collect()
    files, shared_bytes = shared(namespace)
    return Taken(
        files=files,
        shared_bytes=shared_bytes,
        descriptors=len(os.listdir("/proc/self/fd")),
        mappings=len(Path("/proc/self/maps").read_text().splitlines()),
        objects=sys.getallocatedblocks(),
        heap=heap_bytes(),
        resident=int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize(),
    )


def attach_and_close(broker: Broker) -> None:
    broker.queue("q").close()


def attach_and_forget(broker: Broker) -> None:
    broker.queue("q")


def connect_and_close(broker: Broker) -> None:
    with shmq.connect(broker.namespace) as other:
        other.queue("q").put(b"1")
        other.queue("q").get().ack()


def use_everything(broker: Broker) -> None:
    with broker.queue("q") as queue:
        with queue.loan(LARGE, headers={"a": 1}, group="one") as view:
            view[:5] = b"hello"
        for message in queue.consume(block=False):
            assert bytes(message.view[:5]) == b"hello"
            message.ack()
        queue.put(b"1", correlation="1")
        queue.get().reject()
        assert queue.redrive() == 1
        assert drain(queue) == [b"1"]


def attach_with_views_alive(broker: Broker) -> None:
    queue = broker.queue("q")
    queue.put(bytes(LARGE))
    message = queue.get()
    view, loan = message.view, queue.loan(LARGE)
    message.ack()
    queue.close()
    assert (len(view), len(loan.view)) == (LARGE, LARGE)


def attach_and_fail(broker: Broker) -> None:
    with pytest.raises(shmq.NoSuchQueue):
        broker.queue("none")
    with pytest.raises(shmq.QueueExists):
        broker.create_queue("q", capacity=7)
    with pytest.raises(shmq.Empty):
        broker.queue("q").get(timeout=0.0001)


def look(broker: Broker) -> None:
    broker.list_queues()
    with broker.queue("q") as queue:
        queue.stats()
        queue.attachments()
        queue.peek()


def make_and_delete(broker: Broker) -> None:
    queue = broker.create_queue("made")
    queue.put_many([bytes(LARGE)] * 3)
    queue.get().reject()
    broker.delete_queue("made")
    broker.delete_queue("made.dlq")


def delete_under_handles(broker: Broker) -> None:
    queue, other = broker.create_queue("made"), broker.queue("made")
    queue.put(bytes(LARGE))
    view = other.get().view
    broker.delete_queue("made")
    with pytest.raises(shmq.QueueDeleted):
        queue.get()
    assert len(view) == LARGE


def leave_the_namespace(broker: Broker) -> None:
    with shmq.connect(f"{broker.namespace}-other") as other:
        other.create_queue("made", dead_letter=None)
        other.delete_queue("made")


CYCLE: list[Callable[[Broker], None]] = [
    attach_and_close,
    attach_and_forget,
    connect_and_close,
    use_everything,
    attach_with_views_alive,
    attach_and_fail,
    look,
    make_and_delete,
    delete_under_handles,
    leave_the_namespace,
]


def find_growth(before: Taken, after: Taken) -> dict[str, tuple[object, object]]:
    """What a round of cycles has left, by its name: what was taken before it and after it."""
    has_grown = {
        "files": after.files != before.files,
        "shared_bytes": after.shared_bytes != before.shared_bytes,
        "descriptors": after.descriptors > before.descriptors,
        "mappings": after.mappings > before.mappings + 2,
        "objects": after.objects >= before.objects + CYCLES,
        "heap": after.heap >= before.heap + CYCLES * LEAST_LEAK,
        "resident": after.resident >= before.resident + SLACK,
    }
    return {
        name: (getattr(before, name), getattr(after, name))
        for name, grown in has_grown.items()
        if grown
    }


def grow(
    pipe: Connection, namespace: str, cycle: Callable[[Broker], None]
) -> list[dict[str, tuple[object, object]]]:
    """What each round of cycles has left, up to a round that left nothing, once things are warm.

    Some of what a process takes is due by time, not by cycle, such as a guardian's watch after a
    slow wait, or another arena of the interpreter. It may fall into one round; what each cycle
    leaves is in every round.
    """
    growths = []
    with shmq.connect(namespace) as broker:
        for _ in range(CYCLES // 4):
            cycle(broker)
        after = taken(namespace)
        for _ in range(ROUNDS):
            before = after
            for _ in range(CYCLES):
                cycle(broker)
            after = taken(namespace)
            growths.append(find_growth(before, after))
            if not growths[-1]:
                break
    return growths


@pytest.mark.parametrize("cycle", CYCLE)
def test_cycles_make_nothing_grow(
    namespace: str, broker: Broker, start: Start, cycle: Callable[[Broker], None]
) -> None:
    queue = broker.create_queue("q", dedupe_window=0.0)

    growths = start(grow, namespace, cycle).ends()

    assert not growths[-1], growths
    assert attached(queue) == [os.getpid()]
    is_empty(queue)


def die_attached(pipe: Connection, queue: Queue) -> None:
    queue.put(bytes(LARGE))
    _view, _loan = queue.get().view, queue.loan(LARGE)
    pipe.send("attached")
    pipe.recv()


def test_processes_that_die_make_nothing_grow(namespace: str, queue: Queue, start: Start) -> None:
    def cycle() -> tuple[list[str], int]:
        child = start(die_attached, queue)
        child.hear()
        child.kill()
        assert drain(queue) == [bytes(LARGE)]
        assert attached(queue) == [os.getpid()]
        return shared(namespace)

    before = [cycle() for _ in range(3)][-1]
    after = [cycle() for _ in range(30)][-1]

    assert after == before
    is_empty(queue)


def test_handles_take_no_more_memory_for_being_many(namespace: str, broker: Broker) -> None:
    broker.create_queue("q", dead_letter=None)
    before = taken(namespace)
    handles = [broker.queue("q") for _ in range(200)]
    while_there = taken(namespace)
    for handle in handles:
        handle.close()
    del handle, handles

    after = taken(namespace)

    assert after.descriptors == before.descriptors
    assert after.shared_bytes == while_there.shared_bytes <= before.shared_bytes + 4 * 4096
