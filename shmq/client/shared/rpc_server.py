"""The serving side of requests: calls a handler and replies with its result."""

from __future__ import annotations

import functools
import logging
import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, Self

from shmq import api
from shmq.api import Message
from shmq.api.message import Reject, Retry, reason_of
from shmq.client.shared.backoff import Backoff
from shmq.client.shared.outage import AWAY, LONGEST, Outage
from shmq.errors import (
    ConnectionLost,
    Full,
    LeaseExpired,
    LockTimeout,
    NoSuchQueue,
    QueueDeleted,
    RequestFailed,
    ShmqError,
    Unsupported,
)
from shmq.native import _clock as time
from shmq.native.lock_holder import until_locked

log = logging.getLogger("shmq")

#: The header with the kind of the error in a reply; the error's text is the body.
FAILED: Final = "shmq-error"
#: The header with the error's traceback, if the server sends it.
TRACE: Final = "shmq-traceback"

#: How long one wait lasts before the next check whether to stop, in seconds.
_SLICE: Final = 0.1
#: How long a lease keeper waits at a time, in seconds.
_LOOK: Final = 1.0
#: How long to wait for room for a reply if its client does not read, or for the lock of a stopped
#: process, in seconds.
_PATIENCE: Final = 1.0
#: How many reply queues are kept open.
_DOORS: Final = 64
#: The most characters of an error's text, and of its traceback's end.
_LONGEST: Final = 4096
_LONGEST_TRACE: Final = 65_536


class Service:
    """Handles the requests of a queue, one at a time, with ``handler``.

    ``open_target`` opens a queue to put a reply into; ``patience`` is how long a reply waits for a
    server that is away, in seconds. As a context manager it closes the queues that it opened.
    """

    def __init__(
        self,
        open_target: Callable[[str], api.Queue],
        queue: api.Queue,
        handler: Callable[[api.Message], Any],
        tracebacks: bool,
        patience: float,
    ) -> None:
        self._open_target = open_target
        self._queue = queue
        self._handler = handler
        self._tracebacks = tracebacks
        self._patience = patience
        self._stop: threading.Event | None = None
        self._handles: OrderedDict[str, api.Queue] = OrderedDict()
        self._keeper = LeaseKeeper(
            f"queue {queue.name!r}", lambda: queue.options.visibility_timeout
        )
        #: How many messages were handled.
        self.handled = 0

    def __enter__(self) -> Self:
        self._keeper.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._keeper.__exit__()
        for handle in self._handles.values():
            handle.close()
        self._handles.clear()

    def run(self, prefetch: int, stop: threading.Event | None) -> None:
        """Handle requests until ``stop`` is set. Raises what a get of the queue raises.

        With ``stop``, a server that is away for less than `LONGEST` seconds is not an error.
        """
        self._stop = stop
        wait, longest = (None, 0.0) if stop is None else (_SLICE, LONGEST)
        warn = functools.partial(
            log.warning, "queue %s: waiting for the server: %s", self._queue.name
        )
        outage = Outage(warn, longest)
        while not self._is_stopped():
            # Prefetched messages are returned, uncounted, at the end of the block.
            with outage, self._queue.consume(prefetch, wait) as messages:
                for message in messages:
                    outage.end()
                    self._handle(message)
                    if self._is_stopped():
                        return

    def _is_stopped(self) -> bool:
        return self._stop is not None and self._stop.is_set()

    # ---- one request ----

    def _handle(self, message: api.Message) -> None:
        self._keeper.keep(message)
        try:
            deed = self._respond(message)
        except BaseException:
            _settle(message, functools.partial(message.nack, 0.0))
            raise
        finally:
            self._keeper.rest()
        _settle(message, deed)

    def _respond(self, message: api.Message) -> Callable[[], None]:
        """Call the handler and put the reply; return what settles the request."""
        try:
            reply, headers = self._handler(message), None
        except Retry as outcome:
            return functools.partial(message.nack, outcome.delay, error=reason_of(outcome))
        except Exception as error:
            if message.reply_to is None:
                log.exception("queue %s: message %d failed", self._queue.name, message.sequence)
                if isinstance(error, Reject):
                    return functools.partial(message.reject, reason_of(error))
                return functools.partial(message.nack, error=error)
            reply, headers = self._describe(error)
        if not self._answer(message, reply, headers):
            return functools.partial(message.nack, counted=False)
        self.handled += 1  # even if its lease has ended
        rejected = headers is not None and headers[FAILED] == "shmq.Reject"
        return message.reject if rejected else message.ack

    def _describe(self, error: Exception) -> tuple[str, dict[str, str]]:
        """The error report for the client: only the error's kind, text and traceback."""
        text, headers = failure_reply(error)
        log.info("queue %s: a request failed: %s: %s", self._queue.name, type(error), text)
        if self._tracebacks:
            headers[TRACE] = _plain(_trace_of(error)[-_LONGEST_TRACE:])
        return text, headers

    def _answer(self, message: api.Message, reply: Any, headers: Any) -> bool:
        """Put the reply, if one is wanted; return False if the server stays away.

        The request is always settled after its reply.
        """
        name, known_as = message.reply_to, message.correlation
        if name is None:
            return True
        put = functools.partial(self._put_reply, name, correlation=known_as)
        try:
            try:
                put(reply, headers=headers)
            except (Full, LockTimeout, NoSuchQueue, QueueDeleted, *AWAY):
                raise
            except Exception as error:  # noqa: BLE001 - it is sent to the client
                text, headers = self._describe(error)
                put(text, headers=headers)
        except (QueueDeleted, NoSuchQueue):
            self._handles.pop(name, None)  # the client is gone
        except AWAY as error:
            log.warning(
                "queue %s: request %d goes back to the queue, because its reply cannot be put: %s",
                self._queue.name,
                message.sequence,
                error,
            )
            return False
        except ShmqError as error:  # such as a queue that takes no body of that size
            log.warning("queue %s: a reply is dropped: %s", self._queue.name, error)
        return True

    def _put_reply(self, name: str, reply: Any, **properties: Any) -> None:
        """Put the reply, and wait a moment for room, or for the lock of a stopped process.

        If the server is away, it is tried again: a second reply to a request does no harm.
        """
        until, backoff = time.monotonic() + self._patience, Backoff()
        while True:
            try:
                until_locked(
                    lambda: self._handle_of(name).put(reply, None, _PATIENCE, **properties),
                    time.monotonic() + _PATIENCE,
                )
            except AWAY:
                left = until - time.monotonic()
                if left <= 0 or self._is_stopped():
                    raise
                time.sleep(backoff.pause(left))
            else:
                return

    def _handle_of(self, name: str) -> api.Queue:
        """The reply queue of that name; closes the least recently used ones."""
        handle = self._handles.get(name)
        if handle is None:
            handle = self._handles[name] = self._open_target(name)
            if len(self._handles) > _DOORS:
                self._handles.popitem(last=False)[1].close()
        else:
            self._handles.move_to_end(name)
        return handle


def _settle(message: api.Message, deed: Callable[[], None]) -> None:
    if message.settled:  # by the handler itself
        return
    try:
        until_locked(deed, time.monotonic() + _PATIENCE)
    except (LeaseExpired, ConnectionLost, LockTimeout, Unsupported) as error:
        log.warning("message %d stays unchanged: %s", message.sequence, error)


def failure_reply(error: Exception) -> tuple[str, dict[str, str]]:
    """The body and the headers of a reply for which `failure_of` returns the error."""
    return _plain(_text_of(error)[:_LONGEST]), {FAILED: _kind(error)}


def _kind(error: Exception) -> str:
    kind = type(error)
    if kind is Reject:
        return "shmq.Reject"
    name = (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else (f"{kind.__module__}.{kind.__qualname__}")
    )
    return _plain(name[:200])


def _text_of(error: Exception) -> str:
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001 - it is the application's code
        return f"(its text cannot be had: str() of it raises {_kind(failure)})"


def _trace_of(error: Exception) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001 - a traceback is optional
        return "".join(traceback.format_tb(error.__traceback__))


def _plain(text: str) -> str:
    """The text without surrogates, which a message cannot hold."""
    return text.encode("utf-8", "backslashreplace").decode()


def failure_of(reply: api.Message, queue: str) -> ShmqError | None:
    """The error in a reply; None: the reply is not an error."""
    headers = reply.headers
    if not headers or FAILED not in headers:
        return None
    kind, text, trace = str(headers[FAILED]), str(reply.body), headers.get(TRACE)
    return RequestFailed(
        f"the handler of queue {queue!r} failed: {kind}: {text}",
        kind,
        text,
        None if trace is None else str(trace),
    )


_keeper_log = logging.getLogger("shmq.workers")

#: How often a lease is extended during its time: two failures in a row do no harm.
BEATS = 3


class LeaseKeeper:
    """A thread that extends the lease of one message at a time, by ``seconds()`` each time."""

    def __init__(self, who: str, seconds: Callable[[], float]) -> None:
        self._who = who
        self._seconds = seconds
        self._message: Message | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shmq-lease", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def keep(self, message: Message) -> None:
        """From now on, keep the lease of ``message``."""
        self._message = message

    def rest(self) -> None:
        """Keep no lease. An extension that is under way may still happen."""
        self._message = None

    def _run(self) -> None:
        extended = time.monotonic()
        while True:
            left = extended + self._seconds() / BEATS - time.monotonic()
            if self._ended.wait(max(0.0, min(left, _LOOK))):
                return
            if left > _LOOK:  # in the meantime the time may have become shorter
                continue
            extended, message = time.monotonic(), self._message
            if message is not None:
                self._prolong(message)

    def _prolong(self, message: Message) -> None:
        try:
            message.extend(self._seconds())
        except LeaseExpired as error:
            if self._message is message and not message.settled:
                self._message = None
                _keeper_log.warning(
                    "%s: the lease of the message in progress is lost: %s", self._who, error
                )
        except ShmqError as error:
            _keeper_log.warning(
                "%s: the lease of the message in progress is not extended: %s", self._who, error
            )
