"""Calls and results as messages: pickles, with large arrays beside them, and a number.

The number of the call is the message's correlation; "NUMBER.SEQUENCE" is a call that a worker has
returned. A message without one is a signal: to a worker that it has to end, to the pool that
something has changed.
"""

from __future__ import annotations

import functools
import logging
import pickle
from collections.abc import Callable
from concurrent.futures.process import _ExceptionWithTraceback
from traceback import format_exception
from typing import Any, Final, TypeVar

from shmq.api import Message
from shmq.client.local.queue import LocalQueue
from shmq.errors import RequestFailed
from shmq.mp import codec
from shmq.native.lock_holder import until_locked

_T = TypeVar("_T")

log = logging.getLogger("shmq.futures")

#: How much of the text of an error that cannot be pickled arrives, in characters.
_TEXT: Final = 10_000


def put_parcel(queue: LocalQueue, number: int, obj: object, *, for_locks: bool = False) -> None:
    """Put an object, and wait for room, and ``for_locks`` as `wait_for_locks` does.

    Raises what pickling and a put raise.
    """
    put = functools.partial(_put, queue, codec.encode(obj), str(number))
    if for_locks:
        wait_for_locks(put)
    else:
        put()


def _put(queue: LocalQueue, message: bytes | codec.Frame, correlation: str) -> None:
    if isinstance(message, bytes):
        queue.put(message, True, correlation=correlation)
    else:
        loan = queue.loan(message.size, block=True, codec=codec.FRAME, correlation=correlation)
        with loan as view:
            message.write(view)


def read_parcel(message: Message) -> Any:
    """The object of a message, with a copy of its arrays. Raises what unpickling raises."""
    if message.codec == codec.FRAME:
        return codec.read_frame(message.view, in_place=False)
    return pickle.loads(message.body)


def pass_on(message: Message, queue: LocalQueue, correlation: str, *, block: bool) -> None:
    """Put the content of a message into another queue."""
    view = message.view

    def put() -> None:
        loan = queue.loan(len(view), block=block, codec=message.codec, correlation=correlation)
        with loan as place:
            place[:] = view

    wait_for_locks(put)


def signal(queue: LocalQueue) -> None:
    """Put a message without a number."""
    queue.put(b"", True)


def wait_for_locks(deed: Callable[[], _T]) -> _T:
    """Return what ``deed()`` returns, once no stopped process holds a lock that it needs.

    A pool waits for its queues until they are deleted. What it waits for is logged.
    """
    return until_locked(deed, None, lambda error: log.warning("the pool waits: %s", error))


def pack_error(error: BaseException) -> object:
    """The error with its traceback, or its text if it cannot be pickled or unpickled."""
    trace: Any = error.__traceback__  # None only of an error that was not raised
    try:
        packed = _ExceptionWithTraceback(error, trace)
        pickle.loads(pickle.dumps(packed))
    except Exception:  # noqa: BLE001 - whatever the error's own methods raise
        return _ExceptionWithTraceback(_describe(error, trace), trace)
    return packed


def _describe(error: BaseException, trace: Any) -> RequestFailed:
    kind = type(error).__qualname__
    if (module := type(error).__module__) != "builtins":
        kind = f"{module}.{kind}"
    try:
        text = str(error)[:_TEXT]
    except Exception:  # noqa: BLE001 - its own __str__
        text = "?"
    lines = "".join(format_exception(type(error), error, trace))[-_TEXT:]
    return RequestFailed(f"{kind}: {text}", kind, text, lines)
