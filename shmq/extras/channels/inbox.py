"""The private queue of a process, and the channels and groups that it has there."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
from collections.abc import Callable
from logging import getLogger
from typing import Any, Final, TypeVar

import shmq
from shmq.client.shared import loop_timer
from shmq.client.shared.blocking_calls import run_blocking
from shmq.extras.channels.envelope import Envelope, Kind
from shmq.extras.channels.mailbox import Mailbox, set_done
from shmq.extras.channels.routes import Routes
from shmq.extras.frameworks.task_queues import Connection
from shmq.fork_safe import new_lock
from shmq.native import _clock as time
from shmq.native._core import reserve_standard

_T = TypeVar("_T")

log = getLogger("channels.shmq")

#: The options of the queue: it ends with its process, and only what is in it takes memory.
_OPTIONS: Final[dict[str, Any]] = {
    "exclusive": True,
    "capacity": 16_384,
    "arena_bytes": 64 << 20,
    "max_message_bytes": 16 << 20,
}
#: How many messages are taken from the queue at a time.
_BATCH: Final = 64
#: The pause before a process asks again for an inbox that it could not open, in seconds.
_PAUSE: Final = 1.0
#: In place of a group: all of them are to be bound again.
_ALL: Final = ""
_AWAY: Final = (shmq.QueueDeleted, shmq.NoSuchQueue, shmq.ConnectionLost, shmq.ShuttingDown)


class Inbox:
    """The queue of this process, created at its first use, and again if it was deleted.

    ``on_dropped(count)`` is called with the number of messages that full channels did not take.
    """

    def __init__(
        self,
        connection: Connection,
        routes: Routes,
        capacity: Callable[[str], int],
        expiry: float,
        group_expiry: float,
        on_dropped: Callable[[int], None],
        *,
        is_remote: bool,
    ) -> None:
        self.pid = os.getpid()
        self.token = secrets.token_hex(8)
        self._connection = connection
        self._routes = routes
        self._group_expiry = group_expiry
        self._on_dropped = on_dropped
        self._is_remote = is_remote
        self._name = routes.inbox_name(self.token)
        self._key = routes.inbox_key(self.token)
        #: Held while messages go from the queue into the mailbox, so that they stay in order.
        self._order = new_lock()
        #: Guards the mailbox and the groups; held for moments only.
        self._lock = new_lock()
        self._mailbox = Mailbox(capacity, expiry)
        #: When each channel has joined each group, by the monotonic clock; none is empty.
        self._groups: dict[str, dict[str, float]] = {}
        #: The groups to settle, or `_ALL`: what a task that was cancelled has left, the next does.
        self._changed: set[str] = set()
        #: Guards the queue and its bindings, and is held while they change. It is taken first, and
        #: by no event loop.
        self._binding = new_lock()
        self._bound: set[str] = set()
        self._opened: shmq.Queue | None = None

    # ---- the queue ----

    def open(self) -> shmq.Queue:
        """The queue, with its bindings."""
        with self._binding:
            if self._opened is None:
                self._routes.delete_dead()
                queue = self._connection.broker.create_queue(self._name, **_OPTIONS)
                self._opened = queue
                try:
                    self.bind()
                except BaseException:  # no messages would arrive
                    self._opened = None
                    queue.close()
                    raise
            return self._opened

    def close(self) -> None:
        """Delete the queue, with its messages; the groups stay for the next `open`."""
        with self._binding:
            queue, self._opened = self._opened, None
        with self._lock:
            self._mailbox.wake_all()
        if queue is not None:
            try:
                self._connection.broker.delete_queue(self._name)
            except shmq.ShmqError as error:
                log.debug("The inbox %r is away: %s", self._name, error)
            queue.close()

    def clear(self) -> None:
        """Forget the groups and messages."""
        with self._lock:
            self._mailbox.clear()
            self._groups.clear()
            self._bound.clear()

    def bind(self) -> None:
        """Bind the queue with the keys of all groups that have members. Raises NoSuchQueue."""
        with self._binding:
            queue = self.open()
            with self._lock:
                self._bound.clear()
                keys = [self._key, *self._groups]
            for key in keys:
                self._change_binding(queue, key)

    def settle(self, key: str) -> None:
        """Bind the queue with this key if the group has members, or else remove the binding."""
        with self._binding:
            queue = self.open()
            try:
                self._change_binding(queue, key)
            except shmq.NoSuchQueue:  # deleted
                self._forget(queue)
                self.open()

    def _change_binding(self, queue: shmq.Queue, key: str) -> None:
        with self._lock:
            is_wanted = key in self._groups or key == self._key
            was_bound = key in self._bound
            if not is_wanted:  # from here on, a channel that joins settles the group again
                self._bound.discard(key)
        if not is_wanted:
            self._routes.unbind(queue.name, key)
        elif not was_bound:
            self._routes.bind(queue.name, key)
            self._bound.add(key)

    def _settle_changed(self) -> None:
        with self._lock:
            changed, self._changed = self._changed, set()
        try:
            if _ALL in changed:
                self.bind()
            for key in changed - {_ALL}:
                self.settle(key)
        except BaseException:
            self._note_changed(changed)
            raise

    def _note_changed(self, groups: set[str]) -> None:
        """Have the groups settled: also by a leader that waits, if this thread's task is gone."""
        with self._lock:
            self._changed |= groups
            self._mailbox.wake_all()

    def _forget(self, queue: shmq.Queue) -> None:
        """Forget a queue that was deleted, or whose server is away."""
        with self._binding:
            if self._opened is queue:
                self._opened = None
                queue.close()
                log.warning(
                    "The inbox %r was deleted, with its messages: it is made again", self._name
                )

    # ---- groups ----

    def join(self, group: str, channel: str) -> bool:
        """Add a channel of this process to the group; whether `settle` is to be called."""
        with self._lock:
            self._groups.setdefault(group, {})[channel] = time.monotonic()
            return group not in self._bound

    def leave(self, group: str, channel: str) -> bool:
        """Remove a channel from the group; whether `settle` is to be called."""
        with self._lock:
            members = self._groups.get(group, {})
            members.pop(channel, None)
            if members or group not in self._groups:
                return False
            del self._groups[group]
            return True

    def _members(self, group: str) -> list[str]:
        """The channels of this process in the group, without those that joined too long ago."""
        members = self._groups.get(group, {})
        oldest = time.monotonic() - self._group_expiry
        for channel in [channel for channel, joined in members.items() if joined < oldest]:
            del members[channel]
        if not members:
            self._groups.pop(group, None)
        return list(members)

    # ---- receiving ----

    async def receive(self, channel: str) -> bytes:
        """The next message of a channel of this process. A task that is cancelled takes none."""
        loop = asyncio.get_running_loop()
        while True:
            with self._lock:
                payload = self._mailbox.take(channel)
                if payload is not None:
                    self._mailbox.find_leader(loop)
                    return payload
                leads = self._mailbox.lead(loop)
                waiter = None if leads else self._mailbox.wait(channel, loop)
            if waiter is None:
                return await self._receive_as_leader(channel, loop)
            try:
                await waiter
            except BaseException:
                with self._lock:
                    self._mailbox.leave(channel, loop, waiter)
                raise

    async def _receive_as_leader(self, channel: str, loop: asyncio.AbstractEventLoop) -> bytes:
        try:
            while True:
                with self._lock:
                    payload = self._mailbox.take(channel)
                if payload is not None:
                    return payload
                await self._fetch(channel, loop)
        finally:
            with self._lock:
                self._mailbox.resign(loop)
                self._mailbox.find_leader(loop)

    async def _fetch(self, channel: str, loop: asyncio.AbstractEventLoop) -> None:
        """Fill the mailbox from the queue, or wait until the queue may have a message."""
        queue = self._opened
        try:
            if queue is None:
                queue = await run_blocking(self.open)
            found = await self._call(self._drain, queue)
            if self._changed:
                await run_blocking(self._settle_changed)
            if not found:
                await self._wait(queue, channel, loop)
        except shmq.ShmqError as error:
            if queue is None:
                if not isinstance(error, _AWAY):
                    raise
                log.warning("The inbox %r cannot be opened: %s", self._name, error)
                await loop_timer.sleep(_PAUSE)
            elif self._opened is queue:  # else another task has closed it
                if not isinstance(error, (*_AWAY, shmq.Forbidden)):
                    raise
                await run_blocking(self._forget, queue)

    async def _call(self, call: Callable[..., _T], *args: Any) -> _T:
        """The result of a call that does not block unless the queue is a server's."""
        return await run_blocking(call, *args) if self._is_remote else call(*args)

    async def _wait(self, queue: shmq.Queue, channel: str, loop: asyncio.AbstractEventLoop) -> None:
        """Wait until the queue may have a message, or another loop's leader has found one."""
        with self._lock:
            ready = self._mailbox.wait(channel, loop)
        try:
            await self._wait_until_readable(queue, loop, ready)
        finally:
            with self._lock:
                self._mailbox.leave(channel, loop, ready)

    async def _wait_until_readable(
        self, queue: shmq.Queue, loop: asyncio.AbstractEventLoop, ready: asyncio.Future[None]
    ) -> None:
        reserve_standard()
        try:
            # Its own: another thread may close the queue, and the number may be a new file's then.
            descriptor = os.dup(queue.fileno())
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            return  # the queue is closed
        try:
            loop.add_reader(descriptor, set_done, ready)
            try:
                # Else `wake_all` was called before this task could be woken by it.
                if self._opened is queue and not self._changed:
                    await ready
            finally:
                loop.remove_reader(descriptor)
        finally:
            os.close(descriptor)

    def _drain(self, queue: shmq.Queue) -> bool:
        """Move messages into the mailbox; whether there were any."""
        found = False
        with self._order:
            while messages := queue.get_many(_BATCH, block=False):
                found = True
                bodies = [message.body for message in messages]
                queue.ack_many(messages)
                with self._lock:
                    changed = set[str]().union(*map(self._accept, bodies))
                if changed:
                    self._note_changed(changed)
        return found

    def _accept(self, body: Any) -> set[str]:
        """Do what an envelope says; the groups to settle, or `_ALL`."""
        try:
            kind, name, payload = Envelope.unpack(body)
        except (ValueError, TypeError) as error:
            log.warning("The inbox %r had a message of another program: %s", self._name, error)
            return set()
        match kind:
            case Kind.CHANNEL:
                self._deliver([name], payload, f"channel {name}")
            case Kind.GROUP:
                members = self._members(name)
                self._deliver(members, payload, f"group {name}")
                return set() if members else {name}
            case Kind.JOIN:
                return {name} if self.join(name, payload.decode()) else set()
            case Kind.LEAVE:
                return {name} if self.leave(name, payload.decode()) else set()
            case Kind.BIND:
                return {_ALL}
            case Kind.FLUSH:
                self.clear()
        return set()

    def _deliver(self, channels: list[str], payload: bytes, to: str) -> None:
        full = sum(not self._mailbox.add(channel, payload) for channel in channels)
        if full:
            self._on_dropped(full)
            log.info("%s of %s channels over capacity in %s", full, len(channels), to)
