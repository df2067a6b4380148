"""The request methods of a broker, for any transport."""

from __future__ import annotations

import abc
import contextlib
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from shmq import api
from shmq.api.options import check_whole
from shmq.client.shared.outage import LONGEST
from shmq.client.shared.reconnects import limit_reconnects
from shmq.client.shared.reply_inbox import LoopReplies, Replies, ReplyCounts, ThreadReplies
from shmq.client.shared.rpc_server import Service, failure_of
from shmq.errors import ConnectionLost, Forbidden, NoReply, QueueDeleted, ShmqError
from shmq.lazy_imports import late_imports
from shmq.native import _core

if TYPE_CHECKING:
    import asyncio

_T = TypeVar("_T")

#: The options of a reply queue: replies wait for nothing but their reader.
REPLY_OPTIONS: dict[str, Any] = {
    "arena_bytes": 64 << 20,
    "dead_letter": None,
    "max_deliveries": None,
}


class RpcClient(api.Broker):
    """The part of a broker that sends and serves requests.

    It has one reply queue for its threads and one for each event loop, created by their first
    request. The child of a fork creates its own.
    """

    def __init__(self) -> None:
        self._tally = ReplyCounts()
        self._ended = False
        self._targets: dict[str, api.Queue] = {}
        self._forget_replies()

    def _forget_replies(self) -> None:
        self._asker = os.getpid()
        self._asking = threading.Lock()
        self._threads: ThreadReplies | None = None
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopReplies] = (
            weakref.WeakKeyDictionary()
        )

    @abc.abstractmethod
    def _check_open(self) -> None:
        """Raise ShmqError once the broker is closed."""

    @property
    def _request_timeout(self) -> float:
        """How long a request waits for a server that is away, in seconds."""
        return LONGEST

    @abc.abstractmethod
    def _make_reply_queue(self) -> api.Queue:
        """A queue of this client alone, which is removed when this process ends."""

    @abc.abstractmethod
    def _remove_reply_queue(self, queue: api.Queue) -> None:
        """Close and delete the queue."""

    @property
    def late_replies(self) -> int:
        return self._tally.late

    def request(
        self,
        queue: str | api.Queue,
        body: api.Body,
        timeout: float | None = None,
        **properties: Any,
    ) -> api.Message:
        _check_queue(queue)
        _check_request(timeout, properties)
        with limit_reconnects(timeout) as until:
            replies = self._thread_replies()
            ticket = replies.expect()
            properties |= {"reply_to": replies.name, "correlation": ticket.correlation}
            try:
                self._put(queue, lambda target: target.put(body, None, timeout, **properties))
                with self._reading(replies):
                    reply = replies.wait(ticket, until)
            finally:
                replies.forget(ticket)
        return _check(reply, queue, timeout)

    async def arequest(
        self,
        queue: str | api.Queue,
        body: api.Body,
        timeout: float | None = None,
        **properties: Any,
    ) -> api.Message:
        _check_queue(queue)
        _check_request(timeout, properties)
        with limit_reconnects(timeout) as until:
            replies = await self._loop_replies()
            ticket = replies.expect()
            properties |= {"reply_to": replies.name, "correlation": ticket.correlation}
            try:
                await self._aput(queue, lambda target: target.aput(body, timeout, **properties))
                with self._reading(replies):
                    reply = await replies.wait(ticket, until)
            finally:
                replies.forget(ticket)
        return _check(reply, queue, timeout)

    def serve(
        self,
        queue: str | api.Queue,
        handler: Callable[[api.Message], Any],
        *,
        prefetch: int = 1,
        stop: threading.Event | None = None,
        tracebacks: bool = False,
    ) -> int:
        check_whole("prefetch", prefetch, 1)
        _check_queue(queue)
        if not callable(handler):
            raise TypeError(f"handler={handler!r} must be called with a message, and cannot be")
        if stop is not None and not callable(getattr(stop, "is_set", None)):
            raise TypeError(f"stop={stop!r} must be a threading.Event, not {type(stop).__name__}")
        with contextlib.ExitStack() as stack:
            opened = stack.enter_context(self.queue(queue)) if isinstance(queue, str) else queue
            service = stack.enter_context(
                Service(self.put_target, opened, handler, tracebacks, self._request_timeout)
            )
            try:
                service.run(prefetch, stop)
            except ShmqError:
                if not self._is_closed():
                    raise
            return service.handled

    # ---- the queue of requests ----

    def _put(self, queue: str | api.Queue, put: Callable[[api.Queue], _T]) -> _T:
        """Put by the queue's handle; if the queue was recreated, the handle is reopened."""
        if not isinstance(queue, str):
            return put(queue)
        known = queue in self._targets
        try:
            return put(self._target(queue))
        except QueueDeleted:
            self._forget_target(queue)
            if not known:
                raise
        return put(self._target(queue))

    async def _aput(self, queue: str | api.Queue, put: Callable[[api.Queue], Awaitable[_T]]) -> _T:
        if not isinstance(queue, str):
            return await put(queue)
        known = queue in self._targets
        try:
            return await put(self._target(queue))
        except QueueDeleted:
            self._forget_target(queue)
            if not known:
                raise
        return await put(self._target(queue))

    def _target(self, name: str) -> api.Queue:
        found = self._targets.get(name)
        if found is None:
            found = self._targets[name] = self.put_target(name)
        return found

    def _forget_target(self, name: str) -> None:
        found = self._targets.pop(name, None)
        if found is not None:
            found.close()

    # ---- the reply queues ----

    def _thread_replies(self) -> ThreadReplies:
        if self._asker != os.getpid():
            self._forget_replies()
        found = self._threads
        if found is None or found.is_stale:
            with self._asking:
                found = self._threads
                if found is None or not _is_there(found):
                    self._check_asking()
                    found = self._threads = ThreadReplies(self._make_reply_queue(), self._tally)
        return found

    async def _loop_replies(self) -> LoopReplies:
        # A caller that awaits has asyncio loaded; others do not need it.
        import asyncio  # noqa: PLC0415

        with late_imports:
            from shmq.client.shared.blocking_calls import run_blocking  # noqa: PLC0415

        if self._asker != os.getpid():
            self._forget_replies()
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is None or (found.is_stale and not await run_blocking(_is_there, found)):
            self._check_asking()
            queue = await run_blocking(self._make_reply_queue)
            found = self._loops[loop] = LoopReplies(queue, self._tally)
        return found

    @contextlib.contextmanager
    def _reading(self, replies: Replies) -> Iterator[None]:
        try:
            yield
        except (QueueDeleted, Forbidden) as error:  # forbidden: it is still a lost connection's
            replies.is_lost = True
            self._check_asking()
            raise ConnectionLost(
                f"the reply queue {replies.name!r} is gone, so no reply can come: the connection "
                f"was lost, or the queue was deleted; whether the request was handled is unknown"
            ) from error
        except ShmqError:
            self._check_asking()
            raise

    def _check_asking(self) -> None:
        if self._ended:
            raise ShmqError("this broker is closed: no reply can come any more")
        self._check_open()

    def _close_replies(self) -> None:
        """Remove the reply queues, if they belong to this process, and end its requests."""
        self._ended = True
        if self._asker == os.getpid():
            for replies in (self._threads, *self._loops.values()):
                if replies is not None:
                    self._remove_reply_queue(replies.queue)
        self._forget_replies()

    def _is_closed(self) -> bool:
        try:
            self._check_open()
        except ShmqError:
            return True
        return False


def _check_queue(queue: object) -> None:
    if not isinstance(queue, str | api.Queue):
        raise TypeError(
            f"queue={queue!r:.80} must be a queue or its name, not {type(queue).__name__}"
        )


def _check_request(timeout: float | None, properties: Mapping[str, Any]) -> None:
    for own in ("reply_to", "correlation"):
        if own in properties:
            raise TypeError(f"{own}={properties[own]!r:.40}: a request has its own; put it instead")
    timeout = _core.check_timeout(timeout)


def _is_there(replies: Replies) -> bool:
    """Whether the reply queue still exists: a server removes it with its connection."""
    if replies.is_stale:
        try:
            replies.queue.qsize()
        except ShmqError:
            replies.is_lost = True
    if replies.is_lost:
        replies.queue.close()
    return not replies.is_lost


def _check(reply: api.Message | None, queue: str | api.Queue, timeout: float | None) -> api.Message:
    name = queue if isinstance(queue, str) else queue.name
    if reply is None:
        raise NoReply(
            f"no reply to the request to queue {name!r} came within {timeout} s: see with "
            f"`shmq who -q {name}` whether it is served; it may still be handled"
        )
    failure = failure_of(reply, name)
    if failure is not None:
        raise failure
    return reply
