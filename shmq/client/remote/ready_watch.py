"""The watch of a queue of a server for a descriptor, and the thread that asks the server."""

from __future__ import annotations

import functools
import logging
import os
import select
import threading
from collections.abc import Sequence
from typing import Any, Final

from shmq import errors
from shmq.client.remote.address import Target
from shmq.client.remote.connection import Connection
from shmq.client.shared.backoff import Backoff
from shmq.client.shared.ready_event import Descriptor, ReadyWatch
from shmq.errors import ShmqError
from shmq.fork_safe import new_lock
from shmq.native import _clock as time
from shmq.native import _core
from shmq.protocol.messages.payload import pack_name
from shmq.protocol.opcodes import FOREVER, HEADS, Status, Type

log = logging.getLogger("shmq")

#: How long the thread and its connection stay after the last watch has left, in seconds: an
#: application may call `shmq.wait` in a loop.
_LINGER: Final = 2.0


class RemoteReadyWatch(ReadyWatch):
    """Implements :class:`shmq.client.shared.ready_event.ReadyWatch`.

    While it is armed, the server has a READY of it that waits.
    """

    def __init__(self, queue: Any, descriptor: Descriptor) -> None:
        _need_ready(queue)
        self.name: str = queue.name
        self.tell = descriptor.set
        self._thread = _thread_for(queue.connection.target, self)

    def arm(self) -> bool:
        # It never knows of a message: the server notifies of one at once.
        self._thread.arm(self)
        return False

    def close(self) -> None:
        self._thread.leave(self)

    @staticmethod
    def look(queues: Sequence[Any]) -> list[bool | ShmqError]:
        # Asks each server once.
        found: dict[Any, bool | ShmqError] = {}
        by_target: dict[int, list[Any]] = {}
        for queue in queues:
            _need_ready(queue)
            if queue.closed:
                found[queue] = queue.connection.closed_error()
            else:
                by_target.setdefault(id(queue.connection.target), []).append(queue)
        for some in by_target.values():
            found.update(zip(some, _poll(some), strict=True))
        return [found[queue] for queue in queues]


def _need_ready(queue: Any) -> None:
    greeting = queue.connection.greeting
    if greeting is None or not greeting.extended:
        raise errors.Unsupported(
            f"queue {queue.name!r}: the server cannot tell of messages without leasing them"
        )


def _poll(queues: list[Any]) -> list[bool | ShmqError]:
    """Ask the server of these queues, by the connection of the first one."""
    answers: list[_core.Answer] = []

    def write(wire: _core.Wire) -> _core.Answer:
        answers[:] = [_ready(wire, queue.name, 0) for queue in queues]
        return answers[-1]  # a server answers those that do not wait in their order

    try:
        queues[0].connection.call(Type.READY, write)
    except ShmqError as error:
        return [error] * len(queues)
    return [_meaning(*each) for each in zip(queues, answers, strict=True)]


def _ready(wire: _core.Wire, name: str, wait: int) -> _core.Answer:
    return wire.request(Type.READY, False, pack_name(name) + HEADS[Type.READY].pack(wait))


def _meaning(queue: Any, answer: _core.Answer) -> bool | ShmqError:
    if answer.status in (Status.OK, Status.QUEUE_EMPTY):
        return bool(answer.status == Status.OK)
    if answer.status == Status.BUSY:
        return True
    error: ShmqError = queue.port.error(answer)
    return error


class _ReadyThread:
    """Keeps a READY of each armed watch waiting at one server, over a connection of its own.

    Its thread sleeps until the server answers, or a watch is armed or leaves. If the server cannot
    be reached within the request timeout, all armed watches tell: the next get says why. The
    thread then rests until one is armed again, after a get that has reached the server.
    """

    def __init__(self, target: Target, first: RemoteReadyWatch) -> None:
        self.target = target
        self._connection = Connection(target)
        self._watches = {first}
        self._to_ask: set[RemoteReadyWatch] = set()
        self._asked: dict[RemoteReadyWatch, _core.Answer] = {}
        self._connected = self._ended = False
        self._lock = new_lock()
        self._woken = Descriptor()
        self._left_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="shmq ready", daemon=True)
        self._thread.start()

    def join(self, watch: RemoteReadyWatch) -> bool:
        """Add the watch; False if the thread has ended."""
        with self._lock:
            if not self._ended:
                self._watches.add(watch)
            return not self._ended

    def arm(self, watch: RemoteReadyWatch) -> None:
        """Have the server asked, unless it is."""
        with self._lock:
            if watch in self._watches and watch not in self._asked:
                self._to_ask.add(watch)
                self._woken.set()

    def leave(self, watch: RemoteReadyWatch) -> None:
        """Remove the watch: it tells no more."""
        with self._lock:
            self._watches.discard(watch)
            self._to_ask.discard(watch)
            self._left_at = time.monotonic()
            if not (self._watches or self._connected):
                self._ended = True  # it would only try to connect
                self._connection.drop()
            self._woken.set()

    # ---- the thread ----

    def _run(self) -> None:
        backoff = Backoff()
        try:
            while self._goes_on():
                if not self._has_work():
                    self._rest()
                    continue
                began = time.monotonic()
                self._attend()
                if time.monotonic() - began > 1:
                    backoff = Backoff()
                time.sleep(backoff.pause())
        finally:
            _forget(self)
            self._connection.close()

    def forked(self) -> None:
        """In the child of a fork: leave the parent's descriptor to the parent."""
        self._woken.forked()

    def _goes_on(self) -> bool:
        with self._lock:
            lingers = time.monotonic() < self._left_at + _LINGER
            self._ended = self._ended or not (self._watches or lingers)
            return not self._ended

    def _has_work(self) -> bool:
        with self._lock:
            return bool(self._to_ask)

    def _pause(self) -> int | None:
        """How long to sleep, in ms: without limit while there are watches."""
        with self._lock:
            left = self._left_at + _LINGER - time.monotonic()
            return None if self._watches else max(0, int(left * 1000)) + 1

    def _rest(self) -> None:
        poller = select.poll()
        poller.register(self._woken.fd, select.POLLIN)
        poller.poll(self._pause())
        self._woken.unset()

    def _attend(self) -> None:
        """Connect, and serve the watches until the connection ends; tell them if there is none."""
        try:
            wire = self._connection.ready(time.monotonic() + self.target.request_timeout)
            self._serve(wire)
        except (ShmqError, OSError) as error:
            log.info("%s: no queue of it can be watched: %s", self.target.address, error)
            self._tell_all()
        except Exception:
            log.exception("the thread that watches queues of a server goes on after an error")
            self._tell_all()

    def _serve(self, wire: _core.Wire) -> None:
        poller = select.poll()
        poller.register(self._woken.fd, select.POLLIN)
        fd = wire.fileno()
        wire.holds += 1
        self._connected = True
        try:
            while not wire.is_broken and self._goes_on():
                self._woken.unset()
                self._ask(wire)
                poller.register(fd, select.POLLIN | (select.POLLOUT if wire.send() else 0))
                poller.poll(self._pause())
                wire.read_now()
        finally:
            self._asked_no_more()
            wire.let_go()

    def _ask(self, wire: _core.Wire) -> None:
        """Write what was armed, and end what has left."""
        with self._lock:
            for watch in self._asked.keys() - self._watches:
                answer = self._asked.pop(watch)
                wire.forget(answer)
                wire.forget(wire.unsubscribe(answer))
            for watch in list(self._to_ask):  # a destructor may remove one during the loop
                answer = self._asked[watch] = _ready(wire, watch.name, FOREVER)
                answer.notify = functools.partial(self._on_answer, watch, wire)
            self._to_ask.clear()

    def _on_answer(self, watch: RemoteReadyWatch, wire: _core.Wire, answer: _core.Answer) -> None:
        with self._lock:
            if self._asked.get(watch) is not answer:
                return
            del self._asked[watch]
            if watch not in self._watches:
                return
            if answer.lost or answer.status == Status.SHUTTING_DOWN:
                self._to_ask.add(watch)  # over the next connection
        if answer.status == Status.SHUTTING_DOWN:
            self._connection.retire(wire)
        elif not answer.lost:
            watch.tell()

    def _asked_no_more(self) -> None:
        """The connection has ended: what waited there is asked again."""
        with self._lock:
            self._connected = False
            self._to_ask |= self._asked.keys() & self._watches
            self._asked.clear()

    def _tell_all(self) -> None:
        with self._lock:
            watches = self._to_ask | self._asked.keys()
            self._to_ask.clear()
            self._asked.clear()
        for watch in watches:
            watch.tell()


_threads: dict[int, _ReadyThread] = {}
_threads_lock = new_lock()


def _thread_for(target: Target, watch: RemoteReadyWatch) -> _ReadyThread:
    """The thread of that server, started if needed, with the watch."""
    with _threads_lock:
        thread = _threads.get(id(target))
        if thread is None or not thread.join(watch):
            thread = _threads[id(target)] = _ReadyThread(target, watch)
        return thread


def _forget(thread: _ReadyThread) -> None:
    with _threads_lock:
        if _threads.get(id(thread.target)) is thread:
            del _threads[id(thread.target)]


def _in_child() -> None:
    for thread in _threads.values():
        thread.forked()
    _threads.clear()


os.register_at_fork(after_in_child=_in_child)
