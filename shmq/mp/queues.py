"""multiprocessing's queues, built on queues in shared memory.

Each class behaves like the class of the same name in multiprocessing.queues: the same
methods, arguments, errors and order. docs/use/multiprocessing.md lists the differences.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
import os
import pickle
import queue
import sys
import threading
import types
from collections.abc import Iterable, Iterator
from multiprocessing import context, reduction, util
from queue import Empty, Full
from typing import Any, Final, cast

from shmq import errors
from shmq.mp import codec
from shmq.mp.store import DRAINING, IDLE, IMMEDIATE, JOINING, SHUT, Store
from shmq.native import _clock as time

#: How long ``join`` sleeps at most: the process that had to wake it may have died.
_SLICE: Final = 1.0
_AT_ONCE: Final = (0.0,)
_FOR_EVER: Final = itertools.repeat(None)
#: Runs after the children are joined: see multiprocessing.util.
_AT_EXIT: Final = -10

if sys.version_info >= (3, 13):
    ShutDown = queue.ShutDown
else:

    class ShutDown(Exception):
        """The queue was shut down. From Python 3.13 on this is ``queue.ShutDown``."""


class _Queue:
    """The base of all three classes: a handle of an anonymous queue."""

    _store: Store

    def __init__(self, maxsize: int, *, zero_copy: bool) -> None:
        self._maxsize = maxsize
        self._zero_copy = zero_copy
        self._hold(Store.create(maxsize))
        util.register_after_fork(self, type(self)._after_fork)

    def _hold(self, store: Store) -> None:
        self._closed = self._has_put = False
        self._store = store
        self._words = store.words
        self._lease = store.queue.get
        self._place = store.queue.put
        util.Finalize(self, store.drop, exitpriority=_AT_EXIT)

    # The parent's finalizers were dropped in the child.
    def _after_fork(self) -> None:
        util.Finalize(self, self._store.drop, exitpriority=_AT_EXIT)

    # ---- pickling ----

    def __getstate__(self) -> Any:
        """Give a process that is being started a hold on the queue; otherwise only its name."""
        store = self._store
        starting = context.get_spawning_popen() is not None
        lifeline = reduction.DupFd(store.lifeline()) if starting else None
        return store.namespace.name, store.name, self._maxsize, self._zero_copy, lifeline

    def __setstate__(self, state: Any) -> None:
        namespace, name, self._maxsize, self._zero_copy, lifeline = state
        given = None if lifeline is None else lifeline.detach()
        try:
            self._hold(Store.attach(namespace, name))
        finally:
            if given is not None:
                os.close(given)
        util.register_after_fork(self, type(self)._after_fork)

    # ---- messages ----

    def _send(self, obj: object, block: bool, timeout: float | None) -> None:
        """Put the object. Raises Full, ShutDown, NoSpace, and what pickling raises."""
        waits = _split_wait(block, timeout)
        if self._words[SHUT]:
            raise ShutDown
        message = codec.encode(obj)
        full = False
        try:
            try:
                if type(message) is bytes:
                    self._place(message, False)
                else:
                    self._reserve_and_fill(message, False, None)
            except errors.Full:
                full = True
            if full:
                self._place_when_there_is_room(message, block, waits)
            if self._words[SHUT] == IMMEDIATE:  # since the check: the discard may have missed it
                self._store.discard()
                raise ShutDown
        except (errors.ShmqError, ValueError):
            _end_with_the_process()
            raise

    def _place_when_there_is_room(
        self, message: bytes | codec.Frame, block: bool, waits: Iterable[float | None]
    ) -> None:
        frame = codec.Frame([message], []) if type(message) is bytes else message
        for wait in waits:
            try:
                self._reserve_and_fill(frame, block, wait)
            except errors.Full:
                if self._words[SHUT]:
                    raise ShutDown from None
            else:
                return
        raise Full

    def _reserve_and_fill(self, frame: Any, block: bool, wait: float | None) -> None:
        loan = self._store.queue.loan(frame.size, block=block, timeout=wait, codec=codec.FRAME)
        with loan as view:
            if self._words[SHUT]:  # the room may come from its discard
                raise ShutDown
            frame.write(view)

    def _receive(self, block: bool, timeout: float | None) -> Any:
        """Get an object. Raises Empty, ShutDown, and what unpickling raises."""
        words = self._words
        try:
            for wait in _split_wait(block, timeout):
                shut = words[SHUT]  # before the lease: earlier puts are still delivered
                if shut == IMMEDIATE:
                    raise ShutDown
                try:
                    message = self._lease(block and not shut, wait)
                    body = message.body if message.codec == "bytes" else message.view
                    message.ack()  # before unpickling: a message is delivered once
                except errors.Empty:
                    if shut:
                        raise ShutDown from None
                except errors.LeaseExpired:  # stopped for longer than the visibility timeout
                    continue
                else:
                    return self._load(body)
        except (errors.ShmqError, ValueError):
            _end_with_the_process()
            raise
        raise Empty

    def _load(self, body: bytes | memoryview) -> Any:
        if type(body) is bytes:
            return pickle.loads(body)
        return codec.read_frame(cast(memoryview, body), in_place=self._zero_copy)

    # ---- shutting down ----

    @property
    def is_shutdown(self) -> bool:
        """Whether the queue was shut down, by any process."""
        return self._words[SHUT] != 0

    def shutdown(self, immediate: bool = False) -> None:
        """Make every process's puts raise ShutDown, and its gets once the queue is empty.

        ``immediate`` discards the messages, and each counts as a task done. Waiting calls
        are woken, and raise. See queue.Queue.shutdown of Python 3.13.
        """
        with self._store.mutex:
            self._words[SHUT] = max(self._words[SHUT], IMMEDIATE if immediate else DRAINING)
        self._store.queue.rouse()
        if immediate:
            self._store.discard()

    __class_getitem__: Any = classmethod(types.GenericAlias)


def _end_with_the_process() -> None:
    """Never return to a daemon thread if the exiting process has closed its queue."""
    while util.is_exiting() and threading.current_thread() is not threading.main_thread():
        time.sleep(1)


def _split_wait(block: bool, timeout: float | None) -> Iterable[float | None]:
    """The waits that make up a call, in seconds: one, or more if a shutdown interrupts it."""
    if not block:
        return _AT_ONCE
    if timeout is None:
        return _FOR_EVER
    return _split_wait_until(time.monotonic() + timeout)


def _split_wait_until(deadline: float) -> Iterator[float]:
    left = max(deadline - time.monotonic(), 0.0)
    while True:
        yield left
        left = deadline - time.monotonic()
        if left <= 0:
            return


class Queue(_Queue):
    """See multiprocessing.Queue. Threads and processes may share a handle.

    ``maxsize`` 0 or less means as many messages as fit. ``ctx`` is accepted for the signature
    of multiprocessing.queues.Queue, and ignored. With ``zero_copy`` the arrays that this
    handle, or a copy of it, gets are read-only views of shared memory, which is freed when
    they are gone. Raises NoSpace.
    """

    def __init__(
        self,
        maxsize: int = 0,
        *,
        ctx: Any = None,  # noqa: ARG002 - see above
        zero_copy: bool = False,
    ) -> None:
        super().__init__(operator.index(maxsize), zero_copy=zero_copy)

    def _after_fork(self) -> None:
        super()._after_fork()
        self._closed = self._has_put = False

    def put(self, obj: object, block: bool = True, timeout: float | None = None) -> None:
        """Put an object; it is pickled before this returns. Raises Full, NoSpace, ShutDown.

        Also raises ValueError if the handle was closed, its subclass MessageTooLarge for an
        object of 4 GiB, and what pickling raises.
        """
        if self._closed:
            raise ValueError(f"Queue {self!r} is closed")
        self._send(obj, block, timeout)
        self._has_put = True

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Remove and return an object. Raises Empty, ShutDown; ValueError if closed."""
        if self._closed:
            raise ValueError(f"Queue {self!r} is closed")
        return self._receive(block, timeout)

    def put_nowait(self, obj: object) -> None:
        """``put(obj, False)``."""
        self.put(obj, False)

    def get_nowait(self) -> Any:
        """``get(False)``."""
        return self.get(False)

    def qsize(self) -> int:
        """The number of objects ready to get."""
        return self._store.queue.qsize()

    def empty(self) -> bool:
        """Whether no object is ready to get.

        As in multiprocessing, raises OSError if this process has put with the handle and then
        closed it.
        """
        if self._closed and self._has_put:
            raise OSError("handle is closed")
        return self._store.queue.empty()

    def full(self) -> bool:
        """Whether the queue holds ``maxsize`` objects."""
        return self._store.queue.full()

    def close(self) -> None:
        """Refuse further puts and gets with this handle."""
        self._closed = True

    def join_thread(self) -> None:
        """Return at once; call it after ``close``. No thread is needed to send what was put."""
        assert self._closed, f"Queue {self!r} not closed"

    def cancel_join_thread(self) -> None:
        """Do nothing: an exiting process never waits for its puts."""


class JoinableQueue(Queue):
    """A :class:`~shmq.mp.Queue` that counts its tasks: see multiprocessing.JoinableQueue.

    The count stays right when a process that puts or gets dies.
    """

    def task_done(self) -> None:
        """Count one of the put objects as done, no matter which process got it.

        Raises ValueError if all of them are done already.
        """
        store = self._store
        with store.mutex:
            if not store.unfinished():
                raise ValueError("task_done() called too many times")
            store.count_done(1)

    def join(self) -> None:
        """Wait until every object that was put is done."""
        store = self._store
        words = self._words
        with store.mutex:
            if not store.unfinished():
                return
            epoch = words[IDLE]
            words[JOINING] = 1
        wakeups = store.wakeups()
        while True:
            with contextlib.suppress(errors.Empty, errors.LeaseExpired):
                wakeups.get(True, _SLICE).ack()
            if words[SHUT] == IMMEDIATE:  # messages of a dead getter come back after the discard
                store.discard()
            with store.mutex:
                if words[IDLE] != epoch or not store.unfinished():
                    break
                words[JOINING] = 1
        store.wake()  # for the other waiters


class SimpleQueue(_Queue):
    """See multiprocessing.SimpleQueue; ``ctx`` and ``zero_copy`` as for Queue."""

    def __init__(
        self,
        *,
        ctx: Any = None,  # noqa: ARG002 - as for Queue
        zero_copy: bool = False,
    ) -> None:
        super().__init__(0, zero_copy=zero_copy)

    def put(self, obj: object) -> None:
        """Put an object. Raises OSError if the handle was closed, NoSpace, ShutDown."""
        self._check_open()
        self._send(obj, True, None)

    def get(self) -> Any:
        """Remove and return an object. Raises OSError if the handle was closed, ShutDown."""
        self._check_open()
        return self._receive(True, None)

    def empty(self) -> bool:
        """Whether no object is ready to get. Raises OSError if the handle was closed."""
        self._check_open()
        return self._store.queue.empty()

    def close(self) -> None:
        """Close the handle. May be called again."""
        self._closed = True
        self._store.close()

    def _check_open(self) -> None:
        if self._closed:
            raise OSError("handle is closed")
