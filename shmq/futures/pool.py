"""The calls of a pool: from their submission to their result.

Two queues in shared memory: the calls, and their results. A worker leases a call, puts its result,
and acknowledges the call then. If a worker dies, the pool decides after it has read all results
that the worker had put: a call with a result is done, any other is repeated, or fails. A worker
that gets a call for the second time does not execute it, but returns it to the pool, which puts it
again. So no call is executed more often than the pool has decided, even if the pool's process was
stopped at the time, and other processes have returned the lease.

One thread reads the results and decides about deaths. One thread for each worker waits for the end
of its process.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import signal as signals
import threading
import weakref
from collections import deque
from concurrent.futures import InvalidStateError
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Final

from shmq.api import Message
from shmq.api.names import SHM
from shmq.api.options import MAX_ARENA
from shmq.errors import LeaseExpired, LockTimeout, ShmqError, WorkerDied
from shmq.futures.call import Call
from shmq.futures.crew import Crew, Member
from shmq.futures.parcel import pass_on, put_parcel, read_parcel, signal, wait_for_locks
from shmq.mp.store import Store
from shmq.workers.deaths import describe_death

#: How long a call may take before others would repeat it, in seconds: no pool lives as long.
_LEASE: Final = 1e9
#: How many results are read at once.
_RESULTS: Final = 64
#: How many workers in a row may be killed by a signal while they start.
_STARTS: Final = 3
#: The part of /dev/shm that the arguments, or the results, may occupy.
_SHARE: Final = 4

_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


class Pool:
    """Calls, workers and results, without the executor: they live until the last call is done."""

    def __init__(
        self,
        crew_arguments: tuple[Any, ...],
        retries: int,
        namespace: str | None,
        arena_bytes: int | None,
    ) -> None:
        self.crew = Crew(*crew_arguments)
        self._retries = retries
        self._process = os.getpid()
        self._calls: dict[int, Call] = {}
        self._deaths: deque[Member] = deque()
        #: Calls that are withdrawn, but could not be acknowledged: leased until the pool ends.
        self._withdrawn: list[Message] = []
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()
        self._closed = False
        self._broken = ""
        self._failed_starts = 0
        options: dict[str, Any] = {"visibility_timeout": _LEASE}
        options["arena_bytes"] = options["max_message_bytes"] = arena_bytes or _share_of_memory()
        self._store = Store.create(0, namespace, **options)
        self._results = Store.create(0, namespace, **options)
        self.crew.attach(self._store, self._results)
        self._thread: threading.Thread | None = None
        _pools.add(self)

    # ---- callers ----

    def submit(self, function: Any, arguments: Any, keywords: Any) -> Call:
        """Put a call. What its pickling or its put raises is the exception of the call."""
        if self._process != os.getpid():
            raise RuntimeError(
                f"the pool belongs to process {self._process}: create one in this process"
            )
        with self._lock:
            if self._broken:
                raise BrokenProcessPool(self._broken)
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self.crew.grow(len(self._calls) + 1, self._on_death)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="shmq pool")
                self._thread.start()
            call = Call(next(self._numbers), self.withdraw, self.crew.activities.has_call)
            self._calls[call.number] = call
        try:
            put_parcel(self._store.queue, call.number, (function, arguments, keywords))
        except BaseException as error:
            self._finish(call.number, False, error)
            self._wake()
            if not isinstance(error, Exception):
                raise
        return call

    def withdraw(self, number: int) -> bool:
        """Remove a call from the queue, unless a worker has taken it."""
        with contextlib.suppress(ShmqError):
            self._remove(self._store.queue.get(False, where=f"correlation = '{number}'"))
            self._calls.pop(number, None)
            self._wake()
            return True
        return False

    def withdraw_all(self) -> None:
        """Cancel all calls that no worker has taken."""
        with contextlib.suppress(ShmqError):
            while messages := self._store.queue.get_many(1000, block=False):
                for message in messages:
                    self._remove(message)
                    call = self._calls.pop(int(message.correlation or 0), None)
                    if call is not None:
                        call.note_withdrawal()
        self._wake()

    def _remove(self, message: Message) -> None:
        """Acknowledge a call that this process has leased, so that no worker gets it."""
        try:
            message.ack()
        except LockTimeout:  # of a stopped worker, for which a caller does not wait
            self._withdrawn.append(message)

    def close(self, *, cancel: bool = False) -> None:
        """Accept no more calls, and end once all are done. May be called again."""
        if self._process != os.getpid():  # a forked child has no part in it
            return
        with self._lock:
            first, self._closed = not self._closed, True
            if self._thread is None:
                if first:
                    self._release()
                return
        if cancel:
            self.withdraw_all()
        self._wake()

    def join(self) -> None:
        """Wait until all workers have ended."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        if self._process == os.getpid():
            thread.join()

    def _wake(self) -> None:
        if self._closed:
            with contextlib.suppress(ShmqError, ValueError):  # the thread has ended
                signal(self._results.queue)

    # ---- the thread of the results ----

    def _run(self) -> None:
        try:
            while not self._closed or self._calls:
                for message in self._results.queue.get_many(_RESULTS):
                    self._read(message)
                    del message
        except ShmqError as error:
            self._break(f"a queue of the pool failed: {error}")
        if self._broken:
            self.crew.kill()
        with contextlib.suppress(ShmqError):  # the queue was deleted: the workers end
            for _ in self.crew.members:
                signal(self._store.queue)
        for member in list(self.crew.members):
            member.thread.join()
        self._release()

    def _release(self) -> None:
        self._store.drop()
        self._results.drop()
        self.crew.close()
        _pools.discard(self)

    def _read(self, message: Message) -> None:
        if message.correlation is None:
            wait_for_locks(message.ack)
            self._bury_all()
            return
        number, _, sequence = message.correlation.partition(".")
        if sequence:
            self._repeat(message, int(number), sequence)
            return
        try:
            success, value = read_parcel(message)
        except BaseException as error:  # noqa: BLE001 - it belongs to the caller
            success, value = False, error
        wait_for_locks(message.ack)
        self._finish(int(number), success, value)

    def _repeat(self, message: Message, number: int, sequence: str) -> None:
        """Put a call again that a worker has returned, unless it fails because of that death."""
        call = self._calls.get(number)
        if call is not None and sequence not in call.returned:  # not also by one that died then
            call.returned.add(sequence)
            for member in list(self.crew.members):
                if member.activity.call == number:  # it has lost its lease: it is dead
                    member.thread.join()
            self._bury_all()
            if number in self._calls:
                self._put_again(message, number)
        wait_for_locks(message.ack)

    def _put_again(self, message: Message, number: int) -> None:
        try:
            pass_on(message, self._store.queue, str(number), block=False)
        except ShmqError as error:
            self._finish(number, False, error)

    def _bury_all(self) -> None:
        while self._deaths:
            self._bury(self._deaths.popleft())

    def _finish(self, number: int, success: bool, value: Any) -> None:
        call = self._calls.pop(number, None)
        if call is None:
            return
        with contextlib.suppress(InvalidStateError):
            if success:
                call.set_result(value)
            else:
                call.set_exception(value)

    # ---- deaths ----

    def _on_death(self, member: Member) -> None:
        """In the thread of a worker: after the results that it has put."""
        self._deaths.append(member)
        with contextlib.suppress(ShmqError, ValueError):  # the pool has ended
            signal(self._results.queue)

    def _bury(self, member: Member) -> None:
        """Decide about the call of a dead worker, and start another one if it is needed."""
        was_ready, number = member.activity.is_ready, member.activity.call
        if number:
            self._settle(member, number)
        self.crew.remove(member)  # from now on its place may be another one's
        if was_ready:
            self._failed_starts = 0
        elif (member.code or 0) >= 0 or self._failed_starts == _STARTS - 1:
            self._break(f"a worker could not be started: {_describe(member, oom=False)}")
        else:
            self._failed_starts += 1
        if self._calls:
            try:
                self.crew.grow(len(self._calls), self._on_death)
            except Exception as error:  # noqa: BLE001 - no process, no descriptor, no memory
                if not self.crew.members:
                    self._break(f"no worker can be started: {error}")

    def _settle(self, member: Member, number: int) -> None:
        """Return the call of a dead worker to the queue, or let it fail."""
        error = self._judge(member, number)
        queue = self._store.queue
        with contextlib.suppress(LeaseExpired):  # it had settled the call
            settle = functools.partial(queue.ack, member.activity.receipt)
            if number in self._calls and error is None:
                settle = functools.partial(queue.nack, member.activity.receipt, 0)
            wait_for_locks(settle)
        if error is not None:
            self._finish(number, False, error)

    def _judge(self, member: Member, number: int) -> Exception | None:
        """With what a call fails whose worker has died; None if it is repeated."""
        if member.timed_out == number:
            return TimeoutError(f"the call took longer than {self.crew.timeout:g} s")
        call = self._calls.get(number)
        if call is None or member.timed_out:  # the next call of a worker that was killed too late
            return None
        call.deaths += 1
        if call.deaths <= self._retries:
            return None
        code = member.code
        oom = code == -signals.SIGKILL and member.ran_out_of_memory()
        times = "" if call.deaths == 1 else f"; {call.deaths} workers have died with it"
        return WorkerDied(
            f"worker process {member.pid} died during the call: {_describe(member, oom=oom)}"
            f"{times}",
            member.pid,
            None if code is None or code >= 0 else -code,
            code if code is not None and code >= 0 else None,
            oom,
        )

    def _break(self, reason: str) -> None:
        """Let all calls fail, and accept no more."""
        with self._lock:
            self._broken = f"{reason}; the process pool is not usable anymore"
            self._closed = True
        self.crew.kill()
        for number in list(self._calls):
            self._finish(number, False, BrokenProcessPool(self._broken))


def _describe(member: Member, *, oom: bool) -> str:
    if member.code is None:
        return "its exit status is unknown"
    return describe_death(member.code, timeout=None, after=0.0, out_of_memory=oom)


def _share_of_memory() -> int:
    space = os.statvfs(SHM)
    return min(space.f_blocks * space.f_frsize // _SHARE, MAX_ARENA, (1 << 32) - 1)


def _finish_all() -> None:
    """Wait for all calls when the interpreter exits, as concurrent.futures does."""
    for pool in list(_pools):
        pool.close()
    for pool in list(_pools):
        pool.join()


threading._register_atexit(_finish_all)  # type: ignore[attr-defined]
