"""A program that forks, or ends, while another thread holds every lock of shmq.

The parent uses a handle of each kind. Then one of its threads acquires the locks of all objects,
classes and modules of shmq at the moment of a fork: after the handlers that run before the fork,
and until the parent goes on. The child uses the handles that it inherited, and those of
`tests.support.first_use` by the broker that it inherited. A process that hangs prints the stacks of
its threads after three times `LIMIT` seconds and fails.

Or one of its threads acquires the locks once everything that runs at exit has run. That thread has
stopped when the interpreter destroys the handles, and never releases them.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import faulthandler
import functools
import gc
import logging
import os
import queue as standard
import select
import threading
import types
from collections.abc import Coroutine
from typing import Any


class Holder:
    """A thread that holds the locks of `find_locks` while this process forks."""

    def __init__(self) -> None:
        self._orders: standard.SimpleQueue[bool] = standard.SimpleQueue()
        self._get_done = threading.Semaphore(0)
        self.active = False
        #: Where the locks are that the thread held at the last fork.
        self.held: list[str] = []
        threading.Thread(target=self._run, daemon=True).start()

    def order(self, hold: bool) -> None:
        """Acquire all locks, or release them."""
        if self.active:
            self._orders.put(hold)
            self._get_done.acquire()

    def _run(self) -> None:
        while self._orders.get():
            held = {
                place: lock for place, lock in find_locks().items() if lock.acquire(blocking=False)
            }
            self.held = list(held)
            self._get_done.release()
            assert not self._orders.get()
            for lock in held.values():
                lock.release()
            self._get_done.release()


def watch() -> None:
    """End this process if it hangs, and print the stacks of its threads."""
    faulthandler.dump_traceback_later(3 * LIMIT, exit=True)


# Registered before shmq is imported: of the handlers that run before a fork it is the last one, of
# those that run after it the first.
# Likewise, of those that run at exit it is the last one.
holder = Holder()
atexit.register(holder.order, True)
os.register_at_fork(
    before=functools.partial(holder.order, True),
    after_in_parent=functools.partial(holder.order, False),
    after_in_child=watch,
)

import shmq  # noqa: E402
from shmq import mp  # noqa: E402
from shmq.extras.django.place import BackendOptions, Place  # noqa: E402
from shmq.extras.frameworks.task_queues import Connection, TaskQueues  # noqa: E402
from shmq.extras.frameworks.task_table import TaskTable  # noqa: E402
from tests.support.first_use import KINDS, LIMIT, RING, SMALL  # noqa: E402
from tests.support.waiting import eventually  # noqa: E402

#: How many children the program forks.
FORKS = 2
#: What the stream on disk has: most of it has left the ring.
RECORDS = [b"%d " % n * 20 for n in range(1500)]

_LOCKS = (type(threading.Lock()), type(threading.RLock()))


def find_locks() -> dict[str, Any]:
    """The locks of all objects, classes and modules of shmq, by their place."""
    found: dict[int, tuple[str, Any]] = {}
    if logging.lastResort is not None:
        found[0] = "logging.lastResort", logging.lastResort.lock
    for owner in gc.get_objects():
        name, attributes = _describe(owner)
        if name.partition(".")[0] == "shmq":
            for attribute, value in attributes:
                lock = _lock_of(value)
                if lock is not None:
                    found[id(lock)] = f"{name}.{attribute}", lock
    return {f"{place} at {number}": lock for number, (place, lock) in found.items()}


def _describe(owner: Any) -> tuple[str, list[tuple[str, Any]]]:
    kind = type(owner)
    if kind is types.ModuleType:
        return owner.__name__, list(vars(owner).items())
    if issubclass(kind, type):
        return f"{owner.__module__}.{owner.__qualname__}", list(vars(owner).items())
    slots = [slot for base in kind.__mro__ for slot in vars(base).get("__slots__", ())]
    attributes = list(getattr(owner, "__dict__", {}).items()) if kind.__dictoffset__ else []
    attributes += [
        (slot, getattr(owner, slot, None)) for slot in slots if "shmq" in kind.__module__
    ]
    return f"{kind.__module__}.{kind.__qualname__}", attributes


def _lock_of(value: Any) -> Any:
    """The lock of an attribute's value; None if it has none."""
    if isinstance(value, threading.Event):
        value = value._cond  # type: ignore[attr-defined]
    if isinstance(value, threading.Condition):
        value = value._lock  # type: ignore[attr-defined]
    if isinstance(value, functools.cached_property):
        value = getattr(value, "lock", None)  # until Python 3.11
    return value if isinstance(value, _LOCKS) else None


class Handles:
    """Handles of all kinds, which `use` uses in any process."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.broker = shmq.connect(target)
        self.queue = self.broker.ensure_queue("q", **SMALL)
        self.failing = self.broker.ensure_queue("failing", **SMALL | {"dead_letter": "dead"})
        self.full = self.broker.ensure_queue("full", **SMALL | {"capacity": 1})
        self.full.put(0)
        self.stream = self.broker.ensure_stream("s", **RING)
        self.disk = self.broker.ensure_stream(
            "disk", **RING, segment_bytes=RING["ring_bytes"], durability="journal"
        )
        for first in range(0, len(RECORDS), 100):
            self.disk.append_many(RECORDS[first : first + 100], partition=0, confirm="disk")
        self.producer = self.stream.producer(linger=0.001)
        self.exchange = self.broker.ensure_exchange("e")
        self.exchange.bind("q", "key")
        self.table = self.broker.ensure_table("t")
        self.ready = shmq.ReadyEvent([self.queue])
        self.journaled = self.broker.ensure_queue("journaled", **SMALL, durability="journal")
        self.connection = Connection(target)
        self.tasks = TaskQueues(self.connection, "", SMALL)
        self.results = TaskTable(self.connection, "results", "memory")
        self.django = BackendOptions(target=target)
        self.never = self.broker.ensure_queue("never", **SMALL)
        #: Of an event loop of another thread, which has started them: they wait.
        self.waiting: list[Coroutine[Any, Any, Any]] = [
            self.never.aget(),
            self.table.await_("never"),
            self.broker.ensure_stream("quiet", **RING).areader().__anext__(),
        ]
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        for each in self.waiting:
            asyncio.run_coroutine_threadsafe(each, loop)

    def use(self) -> None:
        """Use each of them, and others by the same broker."""
        logging.getLogger("shmq").warning("used in process %d", os.getpid())
        self.queue.put("a")
        assert select.select([self.queue.fileno()], [], [], LIMIT)[0]
        assert select.select([self.ready.fileno()], [], [], LIMIT)[0]
        assert shmq.wait([self.queue], LIMIT) == [self.queue]
        self.queue.get(where="priority >= 0").ack()
        self.failing.put({"id": 1}, headers={"odd": True})
        self.failing.get().reject()
        where = "reason = 'rejected' and header.odd = true and shape = '{id: int}' and body.id = 1"
        assert self.failing.redrive(where=where) == 1
        self.failing.get().ack()
        self.exchange.publish("b", "key")
        assert self.queue.get(timeout=LIMIT).ack() is None
        with contextlib.suppress(shmq.Full):
            self.full.put(1, timeout=0.01)
            raise AssertionError("there is not enough room")
        records = [bytes(record.value) for record in self.disk.read(0, 0)]
        assert records == RECORDS[: len(records)]
        self.disk.latest(0)
        before = self.stream.latest(0)
        self.producer.send("c")
        eventually(lambda: self.stream.latest(0) > before, "the record is appended by a thread")
        self.table.set("key", 1)
        assert self.table.get("key") == 1
        self.tasks.put("tasks", b"d")
        self.tasks.queue("tasks").get(timeout=LIMIT).ack()
        self.results.store("key", 1, None)
        assert self.connection.broker.list_queues()
        assert Place.of(self.django).queue("tasks").empty()
        asyncio.run(self.journaled.aput("e", confirm="disk"))
        self.journaled.get().ack()
        for kind, use in KINDS.items():
            use(self.broker, f"{kind}.{os.getpid()}")


def main(target: str) -> None:
    """Use all handles here, and in each child that is forked while all locks are held."""
    handles = Handles(target)
    handles.use()
    for _ in range(FORKS):
        holder.active = True
        child = os.fork()
        holder.active = False
        if not child:
            handles.use()
            for each in handles.waiting:
                each.close()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert status == 0


def end(target: str) -> None:
    """Use all handles, and leave them to the interpreter while all locks are held."""
    handles = Handles(target)
    handles.use()
    taken = handles.broker.ensure_queue("taken", **SMALL)
    taken.put_many(["a", "b"])
    bodies = taken.bodies(timeout=LIMIT)
    assert next(bodies) == "a"
    members = handles.stream.share("share"), handles.stream.group("group").join()
    of_multiprocessing = mp.Queue()
    of_multiprocessing.put("a")
    # A cycle, which the collector of the ending interpreter destroys.
    kept: list[Any] = [handles, taken, bodies, members, of_multiprocessing]
    kept.append(kept)
    logging.lastResort = None  # its module was imported first, and so takes its lock afterwards
    holder.active = True
    watch()
    atexit.register(len, kept)  # keeps it until all that runs at exit has run
