"""Event streams: ``GET /events`` sends what changes, each second, as server-sent events."""

from __future__ import annotations

import asyncio
import functools
from typing import Any, Final

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from shmq.extras.console.access import Caller
from shmq.extras.console.api.operation import Operation, Parameter
from shmq.extras.console.api.routes import API, admit, given_of
from shmq.extras.console.context import Console, in_thread
from shmq.extras.console.live import End, LiveConnections
from shmq.extras.console.problem import Problem
from shmq.extras.console.snapshot import Feed, Subscriber

#: The most event streams at a time.
MOST_STREAMS: Final = 200
#: How long a reader may take to receive one event, in seconds.
_PATIENCE: Final = 10.0
#: A comment is sent after so many seconds without an event.
_COMMENT: Final = 15.0
_MOST_ID: Final = 64

_MEDIA: Final = "text/event-stream"
_BEGIN: Final = b"retry: 2000\n\n"
_STILL_THERE: Final = b": still here\n\n"
_DROPPED: Final = (
    b'event: dropped\ndata: {"detail":"events were read too slowly, and were not kept: connect '
    b'again"}\n\n'
)
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_ROW: Final = Operation(
    method="GET",
    path="/events",
    name="events",
    summary="Follow what changes",
    handler=lambda _: None,
    parameters=(Parameter("queues", "string", "only queues of this pattern", None, most=255),),
)


def routes() -> list[Route]:
    """The route of the events."""
    return [Route(f"{API}/events", _stream_events, methods=list(_METHODS))]


async def _stream_events(request: Request) -> Response:
    console: Console = request.app.state.console
    caller = await admit(console, request)
    if request.method not in {"GET", "HEAD"}:
        raise Problem(
            405,
            "unknown-path",
            f"{request.method} is not a method of {request.url.path}: use GET",
            headers={"Allow": "GET"},
        )
    pattern = given_of(_ROW, request)["queues"]
    last = request.headers.get("last-event-id", "")
    return EventStream(request, caller, pattern, last if 0 < len(last) <= _MOST_ID else None)


def _get_feed(request: Request) -> tuple[Feed, LiveConnections]:
    """The feed and the connections of this application, made for the first stream."""
    state, console = request.app.state, request.app.state.console
    if not hasattr(state, "feed"):
        state.feed = Feed(console.observer)
        state.event_streams = LiveConnections(console, MOST_STREAMS, "event streams")
    return state.feed, state.event_streams


class EventStream(Response):
    """The answer: it ends with its reader, when that is too slow, and with the console."""

    media_type = _MEDIA

    def __init__(
        self, request: Request, caller: Caller, pattern: str | None, last: str | None
    ) -> None:
        super().__init__(None, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._request = request
        self._asked = (caller, pattern, last)
        self._new = asyncio.Event()
        self._over = False

    def _end(self, _: End) -> None:
        self._over = True
        self._new.set()

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Send events until there is a reason to end."""
        start: Any = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        if self._request.method == "HEAD":
            await send(start)
            await send({"type": "http.response.body", "body": b""})
            return
        feed, streams = _get_feed(self._request)
        loop = asyncio.get_running_loop()
        wake = functools.partial(_wake, loop, self._new)
        with streams.enter(self._asked[0], self._end):
            subscriber = await in_thread(feed.subscribe, *self._asked, wake)
            try:
                await send(start)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._watch_reader, receive, tasks.cancel_scope)
                    await self._send_all(subscriber, send)
                    tasks.cancel_scope.cancel()
            finally:
                feed.unsubscribe(subscriber)

    @staticmethod
    async def _watch_reader(receive: Receive, scope: anyio.CancelScope) -> None:
        """Cancel the scope once the reader has gone."""
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel()

    async def _send_all(self, subscriber: Subscriber, send: Send) -> None:
        content: bytes | None = _BEGIN
        while True:
            if content is not None and not await _send(send, content, more=True):
                return  # the reader takes nothing: the connection is closed as is
            if self._over or subscriber.dropped:
                await _send(send, _DROPPED if subscriber.dropped else b"", more=False)
                return
            content = subscriber.take()
            if content is None:
                content = await self._wait_for_event()

    async def _wait_for_event(self) -> bytes | None:
        """None once there is something new; a comment if nothing is for long."""
        try:
            await asyncio.wait_for(self._new.wait(), _COMMENT)
        except TimeoutError:
            return _STILL_THERE
        self._new.clear()
        return None


async def _send(send: Send, content: bytes, *, more: bool) -> bool:
    """Send a piece; False if the reader did not take it in time."""
    with anyio.move_on_after(_PATIENCE) as scope:
        await send({"type": "http.response.body", "body": content, "more_body": more})
    return not scope.cancelled_caught


def _wake(loop: asyncio.AbstractEventLoop, new: asyncio.Event) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(new.set)
